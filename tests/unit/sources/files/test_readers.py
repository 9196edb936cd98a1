"""Raw files to records: every format, whole and in pieces, damaged and cut, with names that nobody should trust."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine.options import Profile
from pairmill.errors import InputError
from pairmill.formats import slices as cutting
from pairmill.formats.limits import RECORD_BYTES
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.sources.files import readers
from pairmill.sources.parsed import Malformed, Parsed, Record
from pairmill.sources.source import Context, Source, Unit

Reader = Callable[..., Iterator[Record]]
PROFILES: list[Profile] = ["pairmill", "data_io"]
both = pytest.mark.parametrize("profile", PROFILES)


class Plain(Source):
    """A source that reads whatever it is given."""

    name = "plain"
    origin = None  # type: ignore[assignment]
    licence = "none stated"
    citation = "nobody"

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return []

    def parse(self, record: Any, context: Context) -> Parsed:
        return Malformed("not_parsed")


class Named(Plain):
    """A source that reads two columns, and a third where it is there."""

    fields = ("a", "b")
    optional = ("c",)


PLAIN, NAMED = Plain(), Named()


def records(reader: Reader, piece: FileSlice, source: Source, profile: Profile) -> Iterator[Record]:
    """What a reader makes of a piece; some need nothing else."""
    if reader is readers.line_pairs:
        return reader(piece, pair_empty_lines=profile == "data_io")
    return reader(piece) if reader in {readers.json_object, readers.csv_fields} else reader(piece, source)


def whole(
    path: Path,
    reader: Reader = readers.read,
    source: Source = PLAIN,
    profile: Profile = "pairmill",
    longest: int = RECORD_BYTES,
) -> list[Any]:
    return list(records(reader, FileSlice(path.name, str(path), longest=longest), source, profile))


def made(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def zstd(data: bytes) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as file:
        file.write(data)
    compressed: bytes = buffer.getvalue().to_pybytes()
    return compressed


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


# --- Parquet --------------------------------------------------------------------------------------------------------


def test_parquet_gives_rows_in_order_with_their_numbers(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(5_000)), "b": [None, "x"] * 2_500, "d": [[{"k": "v"}]] * 5_000})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    found = whole(tmp_path / "x.parquet")
    assert [place for place, _ in found] == list(range(5_000))
    assert found[4_999] == (4_999, {"a": 4_999, "b": "x", "d": [{"k": "v"}]})
    assert whole(tmp_path / "x.parquet", source=NAMED)[0] == (0, {"a": 0, "b": None})


def test_parquet_reads_optional_columns_where_they_are_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": ["z"], "b": ["y"], "a": ["x"], "d": ["w"]}), tmp_path / "x.parquet")
    assert whole(tmp_path / "x.parquet", source=NAMED) == [(0, {"c": "z", "b": "y", "a": "x"})]


def test_parquet_without_a_column_says_which_and_whose(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"column 'b' is missing; got a; expected a, b.*plain"):
        whole(tmp_path / "x.parquet", source=NAMED)


def test_parquet_text_that_is_not_utf8_spoils_its_row_alone(tmp_path: Path) -> None:
    values = [f"t{number}".encode() for number in range(3_000)]
    values[1_500] = b"\xff"
    column = pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())
    pq.write_table(pa.table({"a": column, "b": ["x"] * 3_000}), tmp_path / "x.parquet")
    found = whole(tmp_path / "x.parquet", source=NAMED)
    assert found[1_500] == (1_500, Malformed("invalid_utf8"))
    assert [(place, record["a"]) for place, record in found if place != 1_500] == [
        (number, f"t{number}") for number in range(3_000) if number != 1_500
    ]


@pytest.mark.parametrize("cut", [0, 1, 4, 100, -1, -8, -100])
def test_parquet_that_is_cut_is_an_input_error(tmp_path: Path, cut: int) -> None:
    pq.write_table(pa.table({"a": [str(number) for number in range(3_000)]}), tmp_path / "x.parquet")
    path = made(tmp_path / "y.parquet", (tmp_path / "x.parquet").read_bytes()[:cut])
    with pytest.raises(InputError, match=r"y\.parquet"):
        whole(path)


def test_parquet_without_rows_gives_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "x.parquet")
    assert whole(tmp_path / "x.parquet") == []
    file = FileSlice("x.parquet", str(tmp_path / "x.parquet"), size=1)
    assert Slicing(1, 2).cut(file) == [file]


# --- JSON -----------------------------------------------------------------------------------------------------------

LINES = b'{"a":1}\n\n \t\n{"a":\n"\xff"\n' + b"[" * 100_000 + b"\n" + b"9" * 5_000 + b'\n[NaN]\r\n{"a":2}\r\n"x"'


@both
def test_json_lines_are_read_past_a_line_that_is_none(tmp_path: Path, profile: Profile) -> None:
    found = whole(made(tmp_path / "x.jsonl", LINES), profile=profile)
    assert [place for place, _ in found] == [0, 3, 4, 5, 6, 7, 8, 9]
    assert [record for _, record in found[:5]] == [
        {"a": 1},
        Malformed("invalid_json"),
        Malformed("invalid_utf8"),
        Malformed("invalid_json"),
        Malformed("invalid_json"),
    ]
    assert repr(found[5][1]) == "[nan]"
    assert found[6:] == [(8, {"a": 2}), (9, "x")]
    assert whole(made(tmp_path / "empty.jsonl", b"")) == []


@both
def test_a_json_file_is_one_array_or_lines(tmp_path: Path, profile: Profile) -> None:
    array = ' \n[{"a":1},\n{"a":[NaN]}, 5 ]\n'
    assert (
        repr(whole(made(tmp_path / "x.json", array), profile=profile)) == "[(0, {'a': 1}), (1, {'a': [nan]}), (2, 5)]"
    )
    assert whole(made(tmp_path / "y.json", '{"a":1}\n{"a":2}')) == [(0, {"a": 1}), (1, {"a": 2})]
    assert whole(made(tmp_path / "z.json", "[]")) == []


@pytest.mark.parametrize("text", ["[", "[1", "[1,", "[1,]", "[1 2]", "[1]]", "[1] x", '["\\x"]', b'["\xff"]'])
def test_a_damaged_json_array_is_an_input_error(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"x\.json"):
        whole(made(tmp_path / "x.json", text))


def test_a_json_object_is_the_whole_file_and_strict(tmp_path: Path) -> None:
    for text, expected in {
        '{"a":\n1}': {"a": 1},
        "[1]": [1],
        "": Malformed("invalid_json"),
        "NaN": Malformed("invalid_json"),
        '{"a": -Infinity}': Malformed("invalid_json"),
        "{} {}": Malformed("invalid_json"),
        "\ufeff{}": Malformed("invalid_json"),
    }.items():
        assert whole(made(tmp_path / "x.json", text), readers.json_object) == [(0, expected)]
    assert readers.whole_json(b"\xff") == Malformed("invalid_utf8")


def test_a_file_of_another_kind_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no reader for this kind of file.*\.parquet, \.jsonl, \.json, \.csv"):
        whole(made(tmp_path / "x.txt", "x"))


# --- CSV ------------------------------------------------------------------------------------------------------------


@both
def test_csv_fields_come_without_the_header(tmp_path: Path, profile: Profile) -> None:
    text = 'any,thing\r\na,"b ""c"", d"\r\n\r\n"two\nlines",x\r\ny\x0bz,\u2028'
    assert whole(made(tmp_path / "x.csv", text), readers.csv_fields, profile=profile) == [
        (1, ["a", 'b "c", d']),
        (2, []),
        (3, ["two\nlines", "x"]),
        (4, ["y\x0bz", "\u2028"]),
    ]
    for text in ("", "header\n", "header"):
        assert whole(made(tmp_path / "x.csv", text), readers.csv_fields, profile=profile) == []


def test_csv_dicts_go_by_the_header(tmp_path: Path) -> None:
    text = "b,x,a\n1,2,3\n4,5\n6,7,8,9\n\xff".encode("latin-1") + b",,\n,,\n"
    assert whole(made(tmp_path / "x.csv", text), source=NAMED) == [
        (1, {"b": "1", "x": "2", "a": "3"}),
        (2, Malformed("another_number_of_fields")),
        (3, Malformed("another_number_of_fields")),
        (4, Malformed("invalid_utf8")),
        (5, {"b": "", "x": "", "a": ""}),
    ]
    with pytest.raises(InputError, match=r"column 'b' is missing; got a, c; expected a, b"):
        whole(made(tmp_path / "x.csv", "a,c\n1,2\n"), source=NAMED)


def test_csv_with_an_unending_field_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.csv record 3: a record is longer than max_record_bytes"):
        whole(made(tmp_path / "x.csv", 'a\n1\n"' + "x\n" * 2_000), readers.csv_fields, longest=1_000)


# --- pairs of lines -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        ("", []),
        ("q\na\n", [(0, ("q", "a"))]),
        ("q\na", [(0, ("q", "a"))]),
        (" q \r\n\ta\r\nq2\ra2\r", [(0, ("q", "a")), (2, ("q2", "a2"))]),
        ("q\x0b1\x0c\x1c\u2028x\na\x85\n", [(0, ("q\x0b1\x0c\x1c\u2028x", "a"))]),
        (b"q\n\xff\nq2\na2\n", [(0, Malformed("invalid_utf8")), (2, ("q2", "a2"))]),
        ("q\na\nq2\n", [(0, ("q", "a")), (2, Malformed("question_without_answer", 2))]),
    ],
)
def test_line_pairs(tmp_path: Path, profile: Profile, data: str | bytes, pairs: list[Any]) -> None:
    assert whole(made(tmp_path / "x.txt", data), readers.line_pairs, profile=profile) == pairs


def test_line_pairs_behind_an_empty_line_are_malformed_but_for_data_io(tmp_path: Path) -> None:
    path = made(tmp_path / "x.txt", "q\na\n\n \nq2\na2\nq3\na3\n")
    here = whole(path, readers.line_pairs)
    assert [record for _, record in here] == [("q", "a")] + [Malformed("out_of_step_behind_an_empty_line")] * 2
    assert [record for _, record in whole(path, readers.line_pairs, profile="data_io")] == [
        ("q", "a"),
        ("", ""),
        ("q2", "a2"),
        ("q3", "a3"),
    ]
    path = made(tmp_path / "y.txt", "q\na\n\n \n\n")
    assert whole(path, readers.line_pairs) == [(0, ("q", "a"))]


# --- compression ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_lines_are_those_of_the_plain_file(tmp_path: Path, ending: str) -> None:
    data = b"".join(json.dumps({"a": number, "b": "é" * (number % 50)}).encode() + b"\n" for number in range(3_000))
    plain = whole(made(tmp_path / "x.jsonl", data))
    assert whole(made(tmp_path / f"x.jsonl.{ending}", PACKERS[ending](data))) == plain
    assert len(plain) == 3_000
    table = b"a,b\n1,2\n"
    assert whole(made(tmp_path / f"x.csv.{ending}", PACKERS[ending](table)), source=NAMED) == [
        (1, {"a": "1", "b": "2"})
    ]
    pairs = whole(made(tmp_path / f"x.txt.{ending}", PACKERS[ending](b"q\na\n")), readers.line_pairs)
    assert pairs == [(0, ("q", "a"))]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_cut_or_damaged_compressed_file_is_an_input_error(tmp_path: Path, ending: str) -> None:
    rng = random.Random(7)
    data = PACKERS[ending](b"".join(b'{"a":"%d"}\n' % rng.getrandbits(80) for _ in range(5_000)))
    for cut in [1, 3, 10, *rng.sample(range(10, len(data)), 40), len(data) - 1]:
        path = made(tmp_path / f"x.jsonl.{ending}", data[:cut])
        with pytest.raises(InputError, match=rf"x\.jsonl\.{ending}: is damaged or cut"):
            whole(path)
    with pytest.raises(InputError, match="is damaged or cut"):
        whole(made(tmp_path / f"y.jsonl.{ending}", b'{"a":1}\n' * 100))


# --- archives -------------------------------------------------------------------------------------------------------


def packed(members: dict[str, bytes], mode: str = "w:gz", kinds: dict[str, bytes] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.type = (kinds or {}).get(name, tarfile.REGTYPE)
            info.linkname = "/etc/passwd"
            info.size = len(data) if info.type == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def members(path: Path, longest: int = RECORD_BYTES) -> list[tuple[str, bytes]]:
    return list(readers.tar_members(FileSlice(path.name, str(path), longest=longest), lambda name: True))


HOSTILE = {
    "../../etc/passwd": b"1",
    "/abs/x": b"2",
    "a\nb\x01": b"3",
    "x" * 300: b"4",
    b"caf\xe9".decode("utf-8", "surrogateescape"): b"5",
    ".": b"6",
    "": b"7",
    "a": b"8",
    "a/b": b"9",
}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives_give_their_members_in_order_under_any_name(tmp_path: Path, mode: str) -> None:
    path = made(tmp_path / "x.tar.gz", packed(HOSTILE, mode))
    assert members(path) == list(HOSTILE.items())
    assert sorted(tmp_path.rglob("*")) == [path]


def test_archives_give_regular_files_alone(tmp_path: Path) -> None:
    kinds = {
        "folder": tarfile.DIRTYPE,
        "symlink": tarfile.SYMTYPE,
        "link": tarfile.LNKTYPE,
        "fifo": tarfile.FIFOTYPE,
        "device": tarfile.CHRTYPE,
    }
    data = packed({"first": b"1", **dict.fromkeys(kinds, b""), "last": b"2"}, kinds=kinds)
    assert members(made(tmp_path / "x.tar.gz", data)) == [("first", b"1"), ("last", b"2")]


def test_what_is_no_archive_is_an_input_error(tmp_path: Path) -> None:
    for data in (b"", b"x" * 5_000, gzip.compress(b"x" * 5_000), gzip.compress(b"")):
        with pytest.raises(InputError, match=r"x\.tar\.gz: is damaged or cut"):
            members(made(tmp_path / "x.tar.gz", data))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_cut_archive_is_an_input_error_wherever_it_is_cut(tmp_path: Path, mode: str) -> None:
    rng = random.Random(3)
    whole_archive = packed({f"{number}": rng.randbytes(rng.choice([0, 10, 512, 3_000])) for number in range(20)}, mode)
    end = len(whole_archive.rstrip(b"\0")) if mode == "w" else len(whole_archive)
    for cut in [*range(0, end, max(1, end // 150)), end - 1]:
        with pytest.raises(InputError, match=r"x\.tar: is damaged or cut"):
            members(made(tmp_path / "x.tar", whole_archive[:cut]))


def test_a_damaged_archive_is_an_input_error(tmp_path: Path) -> None:
    rng = random.Random(3)
    data = packed({f"{number}": rng.randbytes(700) for number in range(20)})
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.randrange(20, len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(InputError, match=r"x\.tar: is damaged or cut"):
            members(made(tmp_path / "x.tar", bytes(changed)))


# --- pieces ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def set_sizes(piece: int, block: int) -> None:
        monkeypatch.setitem(globals(), "SLICING", Slicing(piece, 2 * piece))
        monkeypatch.setattr(cutting, "_BLOCK", block)

    return set_sizes


SLICING = Slicing(64 << 20, 128 << 20)


def pieces(path: Path, step: int = 1) -> list[FileSlice]:
    return SLICING.cut(FileSlice(path.name, str(path), size=path.stat().st_size), step)


def joined(found: list[FileSlice], reader: Reader, source: Source, profile: Profile) -> list[Any]:
    return [record for piece in found for record in records(reader, piece, source, profile)]


def check_cover(found: list[FileSlice], size: int) -> None:
    """Pieces follow one another from the first byte to the last."""
    if len(found) > 1:
        assert [piece.start for piece in found] == [0, *(piece.stop for piece in found[:-1])]
        assert found[-1].stop == size
        assert sum(piece.size for piece in found) == size


SIZES = [(1, 1), (7, 3), (40, 16), (1, 64), (40, 1_000), (300, 64), (2_000, 128)]
TEXTS = ["", "a", "two words", "é日😀", "x" * 90, "\u2028", "\x0b", " ", "1,2", "\ufeff"]


@pytest.mark.parametrize("seed", range(12))
def test_pieces_of_json_lines_give_the_records_of_the_file(
    tmp_path: Path, small_pieces: Callable[[int, int], None], seed: int
) -> None:
    rng = random.Random(seed)
    lines = [
        rng.choice(
            [
                json.dumps({"a": rng.choice(TEXTS), "b": '"quoted"'}, ensure_ascii=False).encode(),
                json.dumps(rng.random()).encode(),
                b"",
                b" \t",
                b'{"broken": ',
                b'"\xff"',
                b'"\r"',
            ]
        )
        for _ in range(rng.randrange(1, 120))
    ]
    end = rng.choice([b"\n", b"\r\n"])
    path = made(tmp_path / "x.jsonl", end.join(lines) + rng.choice([b"", end]))
    expected = whole(path)
    for sizes in SIZES:
        small_pieces(*sizes)
        found = pieces(path)
        check_cover(found, path.stat().st_size)
        assert joined(found, readers.read, PLAIN, "pairmill") == expected, sizes
    small_pieces(40, 16)
    assert len(pieces(path)) > 1 or path.stat().st_size < 300


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("reader", [readers.csv_fields, readers.csv_dicts])
def test_pieces_of_csv_give_the_records_of_the_file(
    tmp_path: Path, small_pieces: Callable[[int, int], None], reader: Reader, seed: int
) -> None:
    rng = random.Random(seed)
    buffer = io.StringIO()
    quoted = seed % 3 == 0
    texts = [*TEXTS, 'q"q', "two\nlines"] if quoted else [text for text in TEXTS if "," not in text]
    writer = csv.writer(buffer, lineterminator=rng.choice(["\n", "\r\n"]) if quoted else "\n")
    writer.writerow(["a", "b", "c"])
    for _ in range(rng.randrange(1, 150)):
        writer.writerow([rng.choice(texts) for _ in range(rng.choice([3, 3, 3, 2]))])
    data = buffer.getvalue().encode()
    if seed % 4 == 1:
        data = data.replace(b"two words", b"\xff") + b"\n"
    path = made(tmp_path / "x.csv", data[:-1] if seed % 2 else data)
    source = NAMED if reader is readers.csv_dicts else PLAIN
    expected = whole(path, reader, source)
    for sizes in SIZES:
        small_pieces(*sizes)
        found = pieces(path)
        check_cover(found, path.stat().st_size)
        assert joined(found, reader, source, "pairmill") == expected, sizes
        assert not quoted or b'"' not in data or len(found) == 1


@both
@pytest.mark.parametrize("seed", range(16))
def test_pieces_of_line_pairs_give_the_records_of_the_file(
    tmp_path: Path, small_pieces: Callable[[int, int], None], profile: Profile, seed: int
) -> None:
    rng = random.Random(seed)
    texts = ["q", "What is 1?", "é日😀", "x" * 90, "a\u2028b"]
    lines = [rng.choice(texts).encode() for _ in range(rng.randrange(2, 100))]
    if seed % 4 == 1:
        lines[rng.randrange(len(lines))] = rng.choice([b"", b" ", b"\t\x0b"])
    if seed % 4 == 2:
        lines[rng.randrange(len(lines))] = b"\xff"
    end = b"\r\n" if seed % 4 == 3 else b"\n"
    path = made(tmp_path / "x.txt", end.join(lines) + rng.choice([b"", end]))
    expected = whole(path, readers.line_pairs, profile=profile)
    for sizes in SIZES[3:]:  # a block is longer than an empty line is
        small_pieces(*sizes)
        found = pieces(path, step=2)
        check_cover(found, path.stat().st_size)
        assert joined(found, readers.line_pairs, PLAIN, profile) == expected, sizes


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_parquet_give_the_rows_of_the_file(
    tmp_path: Path, small_pieces: Callable[[int, int], None], seed: int
) -> None:
    rng = random.Random(seed)
    rows = [{"a": rng.choice([None, *TEXTS]), "b": "x" * rng.randrange(200)} for _ in range(rng.randrange(1, 400))]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=rng.choice([1, 7, 50, 1_000]))
    groups = pq.ParquetFile(path).metadata.num_row_groups
    expected = whole(path, source=NAMED)
    assert [record for _, record in expected] == rows
    counts = []
    for size in (1, 500, 3_000, 10**6):
        small_pieces(size, 1)
        found = pieces(path)
        counts.append(len(found))
        assert joined(found, readers.read, NAMED, "pairmill") == expected
        if len(found) > 1:
            assert [piece.start for piece in found] == [0, *(piece.stop for piece in found[:-1])]
            assert found[-1].stop == groups
    assert counts[0] == groups
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)


def test_what_is_read_from_its_beginning_is_one_piece(tmp_path: Path, small_pieces: Callable[[int, int], None]) -> None:
    small_pieces(10, 10)
    for name in ("x.json", "x.jsonl.gz", "x.csv.zst", "x.tar.gz", "x.txt.xz"):
        path = made(tmp_path / name, b"x\n" * 500)
        assert pieces(path) == [FileSlice(name, str(path), size=1_000)]
    small_pieces(501, 10)
    path = made(tmp_path / "x.jsonl", b"1\n" * 500)
    assert pieces(path) == [FileSlice("x.jsonl", str(path), size=1_000)]


def test_pieces_are_about_as_large_as_wanted(tmp_path: Path, small_pieces: Callable[[int, int], None]) -> None:
    small_pieces(10_000, 1_000)
    path = made(tmp_path / "x.jsonl", b"1234567\n" * 12_500)
    sizes = [piece.size for piece in pieces(path)]
    assert sum(sizes) == 100_000
    assert all(9_000 <= size <= 11_000 for size in sizes[:-1])
    assert [piece.first for piece in pieces(path)][1] * 8 == sizes[0]
