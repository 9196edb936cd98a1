"""Row groups joined by copying: what a reader gets is what it gets from the files they come from."""

import contextlib
import io
import pickle
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage
from pairmill.errors import InputError, InternalError
from pairmill.formats import parquet
from pairmill.formats.parquet import Footer, Stitcher

SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("tag", pa.string()),
        ("number", pa.int64()),
        ("parts", pa.list_(pa.struct([("name", pa.string()), ("value", pa.float64())]))),
        ("flag", pa.bool_()),
        ("map", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ],
    metadata={"who": "tests"},
)
FORMS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "compression": "none"},
    {"compression": "zstd", "data_page_version": "2.0", "write_statistics": False},
    {"write_page_index": True, "bloom_filter_options": {"text": True, "tag": {"ndv": 10, "fpp": 0.1}}},
    {
        "data_page_version": "2.0",
        "use_dictionary": ["tag"],
        "data_page_size": 512,
        "write_page_checksum": True,
        "write_page_index": True,
    },
    {"dictionary_pagesize_limit": 200, "compression": {"text": "zstd", "tag": "snappy"}, "version": "1.0"},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}},
    {"bloom_filter_options": {"text": True}, "sorting_columns": [pq.SortingColumn(2)]},
]


MOVED = ("data_page_offset", "dictionary_page_offset", "file_offset")


def table(rng: random.Random, rows: int) -> pa.Table:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.2 else value

    def text() -> str:
        return "".join(rng.choices("abé日😀 \n", k=rng.choice([0, 1, 8, 200])))

    return pa.Table.from_pylist(
        [
            {
                "text": maybe(text()),
                "tag": maybe(rng.choice(["direct", "cot", "synth"])),
                "number": maybe(rng.getrandbits(40) - (1 << 39)),
                "parts": maybe(
                    [maybe({"name": maybe(text()), "value": rng.random()}) for _ in range(rng.randrange(4))]
                ),
                "flag": maybe(rng.random() < 0.5),
                "map": maybe([(f"{text()}{key}", maybe([1, 2, None])) for key in range(rng.randrange(3))]),
            }
            for _ in range(rows)
        ],
        schema=SCHEMA,
    )


def write(path: Path, groups: Sequence[pa.Table], **form: Any) -> Footer:
    with pq.ParquetWriter(path, groups[0].schema if groups else SCHEMA, **form) as writer:
        for group in groups:
            writer.write_table(group)
    return Footer.read(str(path))


def stitch(path: Path, *parts: tuple[Footer, Sequence[int]]) -> Footer:
    with Stitcher(path) as stitcher:
        for footer, groups in parts:
            stitcher.append(footer, groups)
    return Footer.read(str(path))


def small(*texts: str, name: str = "text", kind: pa.DataType = pa.string()) -> pa.Table:  # noqa: B008
    return pa.table({name: pa.array(texts, kind)})


def check(path: Path, *parts: tuple[Footer, Sequence[int]]) -> None:
    """The file at ``path`` is, to pyarrow, those row groups of those files."""
    sources = [(pq.ParquetFile(footer.uri), index) for footer, groups in parts for index in groups]
    expected = pa.concat_tables(file.read_row_group(index) for file, index in sources)
    with pq.ParquetFile(path, page_checksum_verification=True) as made:
        meta = made.metadata
        assert meta.num_row_groups == len(sources)
        assert meta.num_rows == len(expected)
        assert made.schema_arrow.equals(sources[0][0].schema_arrow, check_metadata=True)
        assert meta.metadata == sources[0][0].metadata.metadata
        assert meta.created_by == sources[0][0].metadata.created_by
        assert made.read().equals(expected)
        assert pa.Table.from_batches(made.iter_batches(batch_size=7), made.schema_arrow).equals(expected)
        for number, (file, index) in enumerate(sources):
            assert made.read_row_group(number).equals(file.read_row_group(index))
            group, source = meta.row_group(number), file.metadata.row_group(index)
            assert (group.num_rows, group.total_byte_size) == (source.num_rows, source.total_byte_size)
            assert group.sorting_columns == source.sorting_columns
            for column in range(group.num_columns):
                chunk, origin = group.column(column).to_dict(), source.column(column).to_dict()
                bloom = {"bloom_filter_offset": None, "bloom_filter_length": None}
                assert chunk == {**origin, **bloom, **{key: chunk[key] for key in MOVED}}
                assert not group.column(column).has_offset_index
                assert not group.column(column).has_column_index
    for file, _ in sources:
        file.close()


Change = Callable[[parquet._Struct], object]


def split(path: Path) -> tuple[bytes, bytes]:
    """What stands before the footer, and the footer."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    return data[: -8 - length], data[-8 - length : -8]


def put(path: Path, data: bytes, footer: bytes) -> str:
    path.write_bytes(data + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return str(path)


def groups_of(path: Path) -> Iterator[tuple[parquet._Struct, list[tuple[parquet._Struct, parquet._Struct]]]]:
    """Each row group with its column chunks and their metadata, as the footer has them."""
    for group, _ in parquet._Struct.parse(split(path)[1], 0)[0].structs(4):
        yield group, [(chunk, chunk.struct(3)) for chunk, _ in group.structs(1)]


def nothing(_: parquet._Struct) -> None:
    """The change that is none."""


def rewrite(path: Path, level: str, change: Change) -> str:
    """Change the footer: the struct of the file, or those of all row groups, column chunks or their metadata."""
    changes = {"file": nothing, "group": nothing, "chunk": nothing, "meta": nothing, level: change}
    data, footer = split(path)
    groups = []
    for group, chunks in groups_of(path):
        for chunk, meta in chunks:
            changes["meta"](meta)
            chunk[3] = parquet._STRUCT, meta.encode()
            changes["chunk"](chunk)
        group[1] = structs(*[chunk for chunk, _ in chunks])
        changes["group"](group)
        groups.append(group)
    file, _ = parquet._Struct.parse(footer, 0)
    file[4] = structs(*groups)
    changes["file"](file)
    return put(path, data, file.encode())


def integer(number: int) -> tuple[int, bytes]:
    return parquet._I64, parquet._signed(number)


def structs(*items: parquet._Struct) -> tuple[int, bytes]:
    return parquet._LIST, parquet._list([item.encode() for item in items])


# --- Joining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_a_reader_gets_the_row_groups_in_the_order_of_append(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    footers = []
    for number in range(rng.randint(1, 4)):
        groups = [table(rng, rng.choice([0, 1, 3, 60])) for _ in range(rng.randint(1, 4))]
        form = FORMS[seed % len(FORMS)] if number == 0 else rng.choice(FORMS)
        footers.append(write(tmp_path / f"{number}.parquet", groups, **form))
    parts = []
    for _ in range(rng.randint(1, 8)):
        footer = rng.choice(footers)
        parts.append((footer, rng.choices(range(len(footer.groups)), k=rng.randint(0, 5))))
    if not any(groups for _, groups in parts):
        parts.append((footers[0], [0]))
    # Joined files agree in all but what their writer chose for itself.
    stitch(tmp_path / "made.parquet", *parts)
    check(tmp_path / "made.parquet", *[part for part in parts if part[1]])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_joined_file_can_be_joined_again(tmp_path: Path, form: dict[str, Any]) -> None:
    rng = random.Random(1)
    first = write(tmp_path / "a", [table(rng, 20), table(rng, 0), table(rng, 30)], **form)
    second = write(tmp_path / "b", [table(rng, 10)], **form)
    middle = stitch(tmp_path / "c", (first, [2, 0]), (second, [0]))
    stitch(tmp_path / "d", (middle, [2, 0]), (first, [1]), (middle, [1]))
    check(tmp_path / "d", (second, [0]), (first, [2]), (first, [1]), (first, [0]))


def test_a_copy_of_the_whole_is_as_long_but_for_the_indexes(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [small("x"), small("y")])
    again = stitch(tmp_path / "b", (source, [0, 1]))
    assert [group.ranges for group in again.groups] == [group.ranges for group in source.groups]
    data, copy = (tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()
    end = sum(source.groups[-1].ranges[-1])
    assert copy[:end] == data[:end]
    # What is the same when written again: two joins of the same files are the same bytes.
    stitch(tmp_path / "c", (again, [0, 1]))
    assert (tmp_path / "c").read_bytes() == copy


def test_a_footer_says_rows_sizes_and_metadata(tmp_path: Path) -> None:
    rng = random.Random(2)
    footer = write(tmp_path / "a", [table(rng, 5), table(rng, 7)])
    with pq.ParquetFile(tmp_path / "a") as file:
        meta = file.metadata
        assert footer.num_rows == 12
        assert [group.rows for group in footer.groups] == [5, 7]
        assert [group.total_byte_size for group in footer.groups] == [
            meta.row_group(index).total_byte_size for index in range(2)
        ]
        for index, group in enumerate(footer.groups):
            chunks = [meta.row_group(index).column(column) for column in range(meta.num_columns)]
            assert group.size == sum(chunk.total_compressed_size for chunk in chunks)
            assert len(group.ranges) == 1
        assert footer.key_values == meta.metadata
        assert footer.created_by == meta.created_by
    assert pickle.loads(pickle.dumps(footer)) == footer


def test_ordinals_and_offsets_are_those_of_the_new_file(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [small("x"), small("y")])
    stitch(tmp_path / "b", (source, [1, 1, 0]))
    starts = [group.ranges[0][0] for group in Footer.read(str(tmp_path / "b")).groups]
    for ordinal, (group, [(chunk, _)]) in enumerate(groups_of(tmp_path / "b")):
        assert group.count(7) == ordinal
        assert group.count(5) == starts[ordinal]
        assert chunk.count(2) == 0


def test_more_row_groups_than_ordinals(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [small("x")], write_statistics=False)
    with Stitcher(tmp_path / "b") as stitcher:
        stitcher.append(source, [0] * 32_770)
    with pq.ParquetFile(tmp_path / "b") as file:
        assert file.metadata.num_rows == 32_770
        assert file.read_row_group(32_769).equals(small("x"))
    *_, (last, _), (none, _), (more, _) = groups_of(tmp_path / "b")
    assert last.count(7) == 32_767
    assert 7 not in none
    assert 7 not in more


def test_unknown_fields_survive(tmp_path: Path) -> None:
    write(tmp_path / "a", [small("x"), small("y")])
    inner = parquet._Struct(
        {
            1: (parquet._DOUBLE, b"12345678"),
            2: (1, b""),
            3: (parquet._MAP, b"\x02\x82\x01a\x01\x01b\x02"),
            4: (parquet._SET, b"\x22\x01\x00"),
            300: (parquet._UUID, b"u" * 16),
            -5: (parquet._BYTE, b"\x80"),
            301: (parquet._MAP, b"\x00"),
        }
    )
    unknown = parquet._STRUCT, inner.encode()

    added = {99: unknown, 32767: (parquet._BINARY, b"\x02xy")}
    for level in ("file", "group", "chunk", "meta"):
        rewrite(tmp_path / "a", level, lambda item: item.update(added))
    source = Footer.read(str(tmp_path / "a"))
    stitch(tmp_path / "b", (source, [1, 0]))
    check(tmp_path / "b", (source, [1, 0]))
    found = [parquet._Struct.parse(split(tmp_path / "b")[1], 0)[0]]
    for group, [(chunk, meta)] in groups_of(tmp_path / "b"):
        found += [group, chunk, meta]
    assert len(found) == 7
    for item in found:
        assert item[99] == unknown
        # It may hold offsets of the file that it comes from.
        assert 32767 not in item


def test_columns_that_lie_apart_are_each_copied(tmp_path: Path) -> None:
    rng = random.Random(3)
    source = write(tmp_path / "a", [table(rng, 9)])
    data, footer = split(tmp_path / "a")
    ((group, chunks),) = groups_of(tmp_path / "a")
    moved = b"PAR1"
    # Older writers put a copy of the metadata behind each chunk, and nothing says that chunks follow the columns.
    for chunk, meta in reversed(chunks):
        start, length = parquet._extent(meta)
        for field in {9, 11} & meta.keys():
            meta[field] = integer(meta.count(field) - start + len(moved))
        chunk[2] = integer(len(moved) + length)
        chunk[3] = parquet._STRUCT, meta.encode()
        moved += data[start : start + length] + meta.encode()
    group[1] = structs(*[chunk for chunk, _ in chunks])
    file, _ = parquet._Struct.parse(footer, 0)
    file[4] = structs(group)
    put(tmp_path / "b", moved, file.encode())
    apart = Footer.read(str(tmp_path / "b"))
    assert len(apart.groups[0].ranges) == len(chunks)
    again = stitch(tmp_path / "c", (apart, [0]))
    assert len(again.groups[0].ranges) == 1
    check(tmp_path / "c", (source, [0]))


def test_a_file_without_row_groups(tmp_path: Path) -> None:
    empty = write(tmp_path / "a", [])
    assert empty.groups == ()
    stitch(tmp_path / "b", (empty, []))
    assert pq.read_table(tmp_path / "b").equals(SCHEMA.empty_table())
    some = write(tmp_path / "c", [table(random.Random(4), 3)])
    stitch(tmp_path / "d", (empty, []), (some, [0]))
    check(tmp_path / "d", (some, [0]))


def test_nothing_appended_is_a_defect(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="no schema"), Stitcher(tmp_path / "a"):
        pass


def test_what_no_reader_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "a", [small("x")])
    monkeypatch.setattr(parquet, "_ITEMS", 10)
    stitch(tmp_path / "b", (source, [0] * 10))
    with pytest.raises(InputError, match="is too much for one Parquet file; got 11 row groups, 11 rows"):
        stitch(tmp_path / "b", (source, [0] * 11))


def test_an_exception_leaves_no_footer(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [small("x")])
    with pytest.raises(IndexError), Stitcher(tmp_path / "b") as stitcher:
        stitcher.append(source, [0, 1])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        Footer.read(str(tmp_path / "b"))


class Counted(io.BytesIO):
    """A file that keeps what was asked of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        self.reads.append((self.tell(), size))
        return super().read(size)


def test_neighbours_are_read_as_one_in_bounded_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_COPY_BYTES", 1000)
    rng = random.Random(5)
    source = write(tmp_path / "a", [table(rng, 40) for _ in range(4)])
    opened: list[Counted] = []

    def opening(_: storage.Store, uri: str) -> Counted:
        opened.append(Counted(Path(uri).read_bytes()))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(storage.LocalStore, "open", opening)
        stitch(tmp_path / "b", (source, [0, 1, 3]))
    file, _ = opened  # the second is read by stitch(), for the footer of what was made
    assert file.closed
    bounds = [(source.groups[0].ranges[0][0], sum(source.groups[1].ranges[0])), source.groups[3].ranges[0]]
    bounds[1] = (bounds[1][0], sum(bounds[1]))
    pieces = [(at, min(1000, end - at)) for start, end in bounds for at in range(start, end, 1000)]
    assert file.reads == pieces
    check(tmp_path / "b", (source, [0, 1, 3]))


# --- Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (small("x", name="words"), "'words' (optional BYTE_ARRAY); expected 'text' (optional BYTE_ARRAY)"),
        (small("x", kind=pa.large_string()), "the Arrow schema in its metadata differs"),
        (small("x", kind=pa.binary()), "expected another logical type of 'text' (optional BYTE_ARRAY)"),
        (small(kind=pa.int32()), "got 'text' (optional INT32); expected 'text' (optional BYTE_ARRAY)"),
        (pa.table({"text": ["x"], "more": ["y"]}), "got 'schema' of 2; expected 'schema' of 1"),
        (
            pa.table([["x"]], pa.schema([pa.field("text", pa.string(), nullable=False)])),
            "got 'text' (required BYTE_ARRAY)",
        ),
    ],
    ids=["name", "Arrow type", "logical type", "type", "columns", "nulls"],
)
def test_another_schema_is_refused_and_the_file_goes_on(tmp_path: Path, other: pa.Table, words: str) -> None:
    good, bad = write(tmp_path / "good", [small("x"), small("y")]), write(tmp_path / "bad", [other])
    with Stitcher(tmp_path / "made") as stitcher:
        stitcher.append(good, [0])
        with pytest.raises(InputError) as refusal:
            stitcher.append(bad, [0])
        stitcher.append(good, [1])
    assert refusal.value.where == bad.uri
    assert words in str(refusal.value)
    assert f"as in {good.uri}" in str(refusal.value)
    check(tmp_path / "made", (good, [0, 1]))


def test_other_sort_orders_and_unknown_fields_are_refused(tmp_path: Path) -> None:
    good = write(tmp_path / "a", [small("x")])
    write(tmp_path / "b", [small("x")])
    write(tmp_path / "c", [small("x")])
    bad = Footer.read(rewrite(tmp_path / "b", "file", lambda file: file.drop(7)))
    odd = Footer.read(rewrite(tmp_path / "c", "file", lambda file: file.update({40: integer(1)})))
    with Stitcher(tmp_path / "d") as stitcher:
        stitcher.append(good, [0])
        with pytest.raises(InputError, match="sort orders of its columns differ"):
            stitcher.append(bad, [0])
        with pytest.raises(InputError, match="field 40 of the footer differs"):
            stitcher.append(odd, [0])


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [small("x" * 100)])
    data = (tmp_path / "a").read_bytes()
    for length in range(len(data)):
        (tmp_path / "b").write_bytes(data[:length])
        with pytest.raises(InputError, match="is not a readable Parquet file") as refusal:
            Footer.read(str(tmp_path / "b"))
        assert refusal.value.where == str(tmp_path / "b")


def test_a_cut_or_longer_footer_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [small("x" * 100)])
    data, footer = split(tmp_path / "a")
    for length in range(len(footer)):
        put(tmp_path / "b", data, footer[:length])
        with pytest.raises(InputError, match="is not a readable Parquet file; got"):
            Footer.read(str(tmp_path / "b"))
    put(tmp_path / "b", data, footer + b"abc")
    with pytest.raises(InputError, match="got 3 bytes after the footer"):
        Footer.read(str(tmp_path / "b"))


def test_a_file_cut_after_its_footer_was_read(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [small("x" * 100), small("y" * 100)])
    other = write(tmp_path / "b", [small("z" * 100)])
    with (tmp_path / "a").open("r+b") as file:
        file.truncate(source.groups[1].ranges[0][0] + 5)
    with Stitcher(tmp_path / "c") as stitcher:
        with pytest.raises(InputError, match="ends within a row group"):
            stitcher.append(source, [0, 1])
        # What was copied in vain is a gap, no more.
        stitcher.append(other, [0])
    check(tmp_path / "c", (other, [0]))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Footer.read(str(tmp_path / "a"))


def test_encrypted_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [small("x")])
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[:-4] + b"PARE")
    with pytest.raises(InputError, match="is encrypted"):
        Footer.read(str(tmp_path / "a"))
    coded = parquet._STRUCT, b"\0"
    for level, field in (("file", 8), ("chunk", 8), ("chunk", 9)):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match="is encrypted"):
            Footer.read(rewrite(tmp_path / "a", level, _with(field, coded)))


def _with(field: int, value: tuple[int, bytes]) -> Change:
    return lambda item: item.update({field: value})


def _without(field: int) -> Change:
    return lambda item: item.drop(field)


@pytest.mark.parametrize(
    ("level", "change", "words"),
    [
        ("chunk", _with(1, (8, b"\x01z")), "has columns in another file; got z"),
        ("chunk", _without(3), "no struct in field 3"),
        ("meta", _with(7, integer(1 << 40)), "outside of the data"),
        ("meta", _with(7, integer(-1)), "-1 in field 7"),
        ("meta", _with(7, (8, b"\x00")), "no integer in field 7"),
        ("meta", _without(9), "no integer in field 9"),
        ("meta", _with(11, integer(3)), "outside of the data"),
        ("meta", _with(11, integer(1 << 30)), "pages lie apart"),
        ("group", _with(1, structs()), "0 columns under a schema of 1"),
        ("group", _with(3, integer(1)), "4 rows, but 2"),
        ("file", _with(3, integer(5)), "5 rows, but 4"),
        ("file", _without(2), "no list in field 2"),
        ("file", _with(2, (9, b"\x18\x00")), "1 items of type 8 for one of structs"),
        ("file", _with(2, (9, b"\xfc\xff\xff\xff\x7f")), "items in"),
        ("file", _with(2, (9, b"\xfc\xc1\x84\x3d" + bytes(1_000_001))), "a list of 1000001 items"),
        ("file", _with(6, (8, b"\xff\xff\xff\xff\x7f")), "bytes where"),
        ("file", _with(6, (6, b"\x02")), "no string in field 6"),
        ("file", _with(6, (8, b"\xff" * 11)), "more than 10 bytes"),
        ("file", _with(40, (6, b"\xff" * 11)), "more than 10 bytes"),
        ("file", _with(40, (12, b"\x1c" * 5000)), "more than 32 deep"),
        ("file", _with(40, (9, b"\x19" * 5000)), "more than 32 deep"),
        ("file", _with(40, (11, b"\x01\xbb" * 5000)), "more than 32 deep"),
        ("file", _with(40, (14, b"")), "unknown type 14"),
    ],
)
def test_a_footer_that_says_what_cannot_be(tmp_path: Path, level: str, change: Change, words: str) -> None:
    write(tmp_path / "a", [small("x", "y"), small("z", "z")])
    with pytest.raises(InputError) as refusal:
        Footer.read(rewrite(tmp_path / "a", level, change))
    assert words in str(refusal.value)
    assert refusal.value.where == str(tmp_path / "a")


def test_chunks_that_overlap_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [small("x")])

    rewrite(tmp_path / "a", "meta", _with(7, integer(50)))
    ((group, _),) = groups_of(tmp_path / "a")
    rewrite(tmp_path / "a", "file", lambda file: file.update({3: integer(1000), 4: structs(*[group] * 1000)}))
    with pytest.raises(InputError, match="overlap"):
        Footer.read(str(tmp_path / "a"))


def _flips(rng: random.Random, footer: bytes) -> Iterator[bytes]:
    for _ in range(400):
        damaged = bytearray(footer)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 0x19, 0x1C, 0x7F, 0xFF, rng.randrange(256)])
        yield bytes(damaged)
        start = rng.randrange(len(footer))
        yield footer[:start] + rng.randbytes(rng.randrange(40)) + footer[start + rng.randrange(40) :]
    for _ in range(100):
        yield rng.randbytes(rng.randrange(300))


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_footer_is_refused_or_passed_on(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    write(tmp_path / "a", [table(rng, 5), table(rng, 0)], **FORMS[seed])
    data, whole = split(tmp_path / "a")
    good = Footer.read(str(tmp_path / "a"))
    refused = taken = 0
    for footer in _flips(rng, whole):
        put(tmp_path / "b", data, footer)
        try:
            damaged = Footer.read(str(tmp_path / "b"))
        except InputError as error:
            assert error.where == str(tmp_path / "b")  # noqa: PT017
            refused += 1
            continue
        taken += 1
        made = stitch(tmp_path / "c", (damaged, range(len(damaged.groups))))
        assert made.num_rows == damaged.num_rows
        assert [group.size for group in made.groups] == [group.size for group in damaged.groups]
        with contextlib.suppress(InputError):
            stitch(tmp_path / "d", (good, [0]), (damaged, range(len(damaged.groups))))
    # Damage to a statistic or a name cannot be seen.
    assert refused > 100
    assert taken > 100
