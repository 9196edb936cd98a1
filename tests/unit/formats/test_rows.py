"""Row files: what the writers write, byte for byte, and what the readers take, refuse and bound."""

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.errors import InputError
from pairmill.formats import rows
from pairmill.formats.rows import JsonlWriter, ParquetWriter, Row
from pairmill.formats.slices import FileSlice, Slicing

ROWS = [Row("direct", "q", "a"), Row("cot", "", "é\n"), Row("synth,cot", "x" * 50, "")]


def write_jsonl(path: Path, *batches: list[Row]) -> bytes:
    with path.open("wb") as file, JsonlWriter(file) as writer:
        for batch in batches:
            writer.write(batch)
    return path.read_bytes()


def read(path: Path) -> list[Row]:
    found: list[Row] = []
    for batch in rows.read(str(path)):
        assert batch.start == len(found)
        assert len(batch) > 0
        for column in (batch.condition, batch.instruction, batch.response):
            assert column.type in (pa.string(), pa.large_string())
            assert len(column) == len(batch)
        found += [Row(*item) for item in zip(*(getattr(batch, name).to_pylist() for name in rows.FIELDS), strict=True)]
    return found


# --- JSON Lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('"', r"\""),
        ("\\", r"\\"),
        ("\b\t\n\f\r", r"\b\t\n\f\r"),
        ("\x00\x01\x1f\x0b", r"\u0000\u0001\u001f\u000b"),
        ("/", "/"),
        ("\x7f", "\x7f"),
        ("\u2028\u2029", "\u2028\u2029"),
        ("é日😀", "é日😀"),
        ("<&>'", "<&>'"),
        ("\ufeff\ufffd\U0010ffff", "\ufeff\ufffd\U0010ffff"),
    ],
)
def test_texts_are_escaped_as_data_io_escapes_them(tmp_path: Path, text: str, written: str) -> None:
    assert write_jsonl(tmp_path / "x.jsonl", [Row("direct", text, text)]) == (
        f'{{"condition":"direct","instruction":"{written}","response":"{written}"}}\n'.encode()
    )


def test_a_file_without_rows_is_empty(tmp_path: Path) -> None:
    assert write_jsonl(tmp_path / "x.jsonl") == b""
    assert write_jsonl(tmp_path / "x.jsonl", [], []) == b""
    assert read(tmp_path / "x.jsonl") == []
    assert rows.count(str(tmp_path / "x.jsonl")) == 0


def test_every_row_ends_in_a_line_feed_however_rows_are_handed_over(tmp_path: Path) -> None:
    whole = write_jsonl(tmp_path / "one.jsonl", ROWS)
    assert whole.count(b"\n") == len(ROWS)
    assert whole.endswith(b"\n")
    assert write_jsonl(tmp_path / "other.jsonl", ROWS[:1], [], ROWS[1:]) == whole


def test_jsonl_rows_come_back(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", ROWS)
    assert read(tmp_path / "x.jsonl") == ROWS
    assert rows.count(str(tmp_path / "x.jsonl")) == 3


@pytest.mark.parametrize(
    "text",
    [
        '{"condition":"c","instruction":"i","response":"r"}',
        '{"response":"r","x":{"condition":5},"instruction":"i","condition":"c","x":null}',
        '["c","i","r"]',
        '\n\n  {"condition" : "c",\n"instruction":"i",\r\n\t"response":"r"\n}\n\n',
        '{"condition":"\\u0063","instruction":"i","response":"r"}',
    ],
)
def test_a_row_may_be_written_in_any_way_that_data_io_takes(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    assert read(tmp_path / "x.jsonl") == [Row("c", "i", "r")]


GOOD = '{"condition":"c","instruction":"i","response":"r"}\n'


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('{"condition":"c","instruction":"i"}', "response is missing"),
        ("{}", "condition is missing"),
        ('{"condition":"c","instruction":null,"response":"r"}', "instruction is not text; got null"),
        ('{"condition":"c","instruction":5,"response":"r"}', "instruction is not text; got int"),
        ('{"condition":"c","instruction":["i"],"response":"r"}', "instruction is not text; got list"),
        ('{"condition":"c","instruction":{"i":1},"response":"r"}', "instruction is not text"),
        ('{"condition":"c","instruction":"i","response":"r","condition":"c"}', "condition is given twice"),
        ('["c","i"]', "not a JSON object"),
        ('["c","i","r","x"]', "not a JSON object"),
        ('["c","i",5]', "response is not text; got int"),
        ('"text"', "not a JSON object; got str"),
        ("5", "not a JSON object; got int"),
        ("null", "not a JSON object"),
        ('{"condition":"c","instruction":"\\ud800","response":"r"}', "unpaired surrogate"),
        ('{"condition":"c","instruction":"i","response":"a\\udc00b"}', "unpaired surrogate"),
        ('{"condition":"c","instruction":"i","response":"r","x":NaN}', "NaN is not JSON"),
        ('{"condition":"c"', "not valid JSON"),
    ],
)
def test_a_bad_row_fails_the_file_and_is_named(tmp_path: Path, bad: str, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(GOOD * 2 + bad + ("\n" + GOOD if bad.endswith(("}", "]")) else ""))
    with pytest.raises(InputError) as caught:
        read(path)
    assert said in str(caught.value)
    assert f"{path} row 3" in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"condition":"c","instruction":"\\ud83d\\ude00","response":"r"}')
    assert read(tmp_path / "x.jsonl") == [Row("c", "😀", "r")]


@pytest.mark.parametrize("reader", ["rust", "python"])
def test_jsonl_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    many = [Row("c", f"{number:02}" + "i" * 58, "r" * 40) for number in range(100)]
    write_jsonl(tmp_path / "x.jsonl", many)
    if reader == "python":
        monkeypatch.setattr(_native, "json_rows", none_taken)
    monkeypatch.setattr(rows, "_ARROW_BYTES", 1000)
    batches = list(rows.read(str(tmp_path / "x.jsonl")))
    assert len(batches) >= 10
    assert max(rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response) for batch in batches) <= 1000
    assert read(tmp_path / "x.jsonl") == many
    monkeypatch.setattr(rows, "_ARROW_BYTES", 10)  # far less than a row
    assert read(tmp_path / "x.jsonl") == many


def none_taken(_data: bytes, _last: bool) -> tuple[pa.Array, pa.Array, pa.Array, int, bool]:
    empty = pa.array([], pa.large_string())
    return empty, empty, empty, 0, True


def outcome(path: Path) -> list[Row] | str:
    """The rows of a file, or what is wrong with it."""
    try:
        return read(path)
    except InputError as error:
        return str(error)


STREAM = (
    '{"response":"\\u00e9\\n","x":[{"condition":5},-1.5e+99],"instruction":"日","condition":"cot"} \r\n'
    '["c","","\\ud83d\\ude00"]{"condition":"c","instruction":"i","response":"r"}'
)
BROKEN = (
    STREAM.replace('"i"', "null"),
    STREAM.replace('"x":', '"instruction":"i","x":'),
    STREAM.replace("ude00", "u0041"),
    STREAM.replace("-1.5", "NaN"),
    STREAM.replace('"i"', '"i\n"'),
    STREAM + "]",
    "\ufeff" + STREAM,
)


def test_either_reader_of_jsonl_says_the_same_of_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, native = tmp_path / "x.jsonl", _native.json_rows
    monkeypatch.setattr(rows, "_ARROW_BYTES", 64)
    whole = STREAM.encode()
    files = [whole[:cut] for cut in range(len(whole) + 1)]
    files += [whole[:cut] + b"\xff" + whole[cut:] for cut in range(len(whole) + 1)]
    files += [text.encode() for text in BROKEN]
    rows_seen = []
    for data in files:
        path.write_bytes(data)
        monkeypatch.setattr(_native, "json_rows", native)
        by_rust = outcome(path)
        monkeypatch.setattr(_native, "json_rows", none_taken)
        assert outcome(path) == by_rust, data
        rows_seen.append(by_rust)
    assert rows_seen[len(whole)] == [Row("cot", "日", "é\n"), Row("c", "", "😀"), Row("c", "i", "r")]
    assert sum(isinstance(seen, str) for seen in rows_seen) > 2 * len(whole) - 10
    assert all(isinstance(seen, str) for seen in rows_seen[-len(BROKEN) :])


def test_a_bad_row_far_into_a_file_is_named_with_row_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_ARROW_BYTES", 1000)
    (tmp_path / "x.jsonl").write_text(GOOD * 500 + "\n" + GOOD[:-2] + "\n" + GOOD)
    with pytest.raises(InputError, match=r"row 501 \(line 503\): not valid JSON"):
        read(tmp_path / "x.jsonl")


def test_the_row_of_a_surrogate_is_right_in_a_later_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_ROWS", 4)
    monkeypatch.setattr(_native, "json_rows", none_taken)
    bad = GOOD.replace('"i"', '"\\ud800"')
    (tmp_path / "x.jsonl").write_text(GOOD * 9 + bad + GOOD)
    with pytest.raises(InputError, match="row 10: an unpaired surrogate"):
        read(tmp_path / "x.jsonl")


# --- Parquet --------------------------------------------------------------------------------------------------------


def write_parquet(path: Path, *batches: list[Row], null_type_if_empty: bool = False) -> pq.ParquetFile:
    with path.open("wb") as file, ParquetWriter(file, null_type_if_empty=null_type_if_empty) as writer:
        for batch in batches:
            writer.write(batch)
    return pq.ParquetFile(path)


def test_parquet_is_written_as_data_io_writes_it(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "x.parquet", ROWS)
    text = pa.string()
    assert file.schema_arrow == pa.schema([("instruction", text), ("response", text), ("condition", text)])
    assert file.schema_arrow.metadata is None
    assert file.metadata.format_version == "2.6"
    for index in range(3):
        column = file.metadata.row_group(0).column(index)
        assert column.compression == "SNAPPY"
        # Few texts come twice; tags do.
        assert ("RLE_DICTIONARY" in column.encodings) == (index == 2)
        assert column.statistics is None
    assert read(tmp_path / "x.parquet") == ROWS
    assert rows.count(str(tmp_path / "x.parquet")) == 3


@pytest.mark.parametrize(("data_io", "kind"), [(False, pa.string()), (True, pa.null())])
@pytest.mark.parametrize("batches", [[], [[], []]])
def test_a_parquet_file_without_rows_has_the_columns_of_its_profile(
    tmp_path: Path, data_io: bool, kind: pa.DataType, batches: list[list[Row]]
) -> None:
    file = write_parquet(tmp_path / "x.parquet", *batches, null_type_if_empty=data_io)
    assert [(field.name, field.type) for field in file.schema_arrow] == [
        (name, kind) for name in ("instruction", "response", "condition")
    ]
    assert file.metadata.num_rows == 0
    assert read(tmp_path / "x.parquet") == []
    assert rows.count(str(tmp_path / "x.parquet")) == 0


def test_a_parquet_file_with_rows_is_text_in_either_profile(tmp_path: Path) -> None:
    one = write_parquet(tmp_path / "a.parquet", ROWS, null_type_if_empty=True)
    other = write_parquet(tmp_path / "b.parquet", ROWS)
    assert one.schema_arrow == other.schema_arrow
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_parquet_row_group_is_a_batch_of_the_writer(tmp_path: Path) -> None:
    assert write_parquet(tmp_path / "x.parquet", ROWS[:2], [], ROWS[2:]).metadata.num_row_groups == 2
    assert read(tmp_path / "x.parquet") == ROWS


def table(kind: pa.DataType) -> pa.Table:
    columns = {name: pa.array([getattr(row, name) for row in ROWS]).cast(kind) for name in rows.FIELDS}
    return pa.table({"other": pa.array([1, 2, 3]), **columns})


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
)
def test_every_arrow_type_of_text_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(table(kind), tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == ROWS


@pytest.mark.parametrize("kind", [pa.string(), pa.null()])
def test_nulls_are_passed_on(tmp_path: Path, kind: pa.DataType) -> None:
    nulls = pa.nulls(2, kind)
    text = pa.array(["a", "b"])
    pq.write_table(pa.table({"instruction": nulls, "response": text, "condition": text}), tmp_path / "x.parquet")
    (batch,) = rows.read(str(tmp_path / "x.parquet"))
    assert batch.instruction.to_pylist() == [None, None]
    assert batch.instruction.type in (pa.string(), pa.large_string())
    assert rows.text_bytes(batch.instruction) == 0
    assert rows.text_bytes(batch.response.slice(1)) == 1


def test_slices_of_a_parquet_file_are_its_row_groups_in_order(tmp_path: Path) -> None:
    many = [Row("c", f"{number:04}" * 20, "r") for number in range(1000)]
    path = tmp_path / "x.parquet"
    groups = write_parquet(path, *(many[start : start + 90] for start in range(0, 1000, 90))).metadata.num_row_groups
    assert groups == 12
    file = FileSlice("x.parquet", str(path), size=path.stat().st_size)
    parts = Slicing(20_000, 0).cut(file)
    assert [(part.start, part.stop, part.first) for part in parts] == [
        (start, min(start + 3, 12), start * 90) for start in range(0, 12, 3)
    ]
    assert sum(part.size for part in parts) == sum(part.size for part in Slicing(1, 0).cut(file)) > 80_000
    found: list[Row] = []
    for part in parts:
        for batch in rows.read(str(path), part):
            assert batch.start == len(found)
            found += map(Row, *(getattr(batch, name).to_pylist() for name in rows.FIELDS))
    assert found == many
    total = sum(part.size for part in parts)
    assert Slicing(1 << 30, 0).cut(file) == [dataclasses.replace(file, stop=12, size=total)]
    for whole in (Slicing(1, 0, total + 1), Slicing(1, file.size + 1)):
        assert whole.cut(file) == [file]


@pytest.mark.parametrize("name", rows.FIELDS)
def test_a_parquet_file_without_a_column_is_refused(tmp_path: Path, name: str) -> None:
    pq.write_table(table(pa.string()).drop_columns([name]), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=f"x.parquet: column '{name}' is missing; got other"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_(), pa.binary(), pa.list_(pa.string())])
def test_a_parquet_column_that_is_no_text_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    values = {pa.binary(): [b"x"] * 3, pa.list_(pa.string()): [["x"]] * 3}.get(kind, [1, 0, 1])
    made = table(pa.string()).drop_columns(["response"]).append_column("response", pa.array(values).cast(kind))
    pq.write_table(made, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="column 'response' is not text"):
        read(tmp_path / "x.parquet")


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _cut_footer(data: bytes) -> bytes:
    return data[:-1]


def _nothing(data: bytes) -> bytes:
    return b""


def _text(data: bytes) -> bytes:
    return b"condition,instruction,response\n"


@pytest.mark.parametrize("harm", [_cut, _cut_footer, _nothing, _text])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    write_parquet(tmp_path / "x.parquet", ROWS)
    (tmp_path / "x.parquet").write_bytes(harm((tmp_path / "x.parquet").read_bytes()))
    for use in (read, lambda path: rows.count(str(path))):
        with pytest.raises(InputError, match=r"x.parquet: not a readable Parquet file.*copy it again"):
            use(tmp_path / "x.parquet")


def test_damaged_pages_are_refused(tmp_path: Path) -> None:
    many = [Row("c", f"{number}" * 20, "r") for number in range(2000)]
    write_parquet(tmp_path / "x.parquet", many)
    data = bytearray((tmp_path / "x.parquet").read_bytes())
    for place in range(40, len(data) - 2000):
        data[place] ^= 0x5A
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"x.parquet row 1 or later: is damaged"):
        read(tmp_path / "x.parquet")


def text_of(batch: rows.Batch) -> int:
    return sum(rows.text_bytes(getattr(batch, name)) for name in rows.FIELDS)


def test_parquet_batches_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Row("c", f"{number:06}" * 10, f"{number:05}" * 8) for number in range(1000)]
    write_parquet(tmp_path / "x.parquet", many)
    monkeypatch.setattr(rows, "_ARROW_BYTES", 5000)
    batches = list(rows.read(str(tmp_path / "x.parquet")))
    assert len(batches) >= 20
    assert max(text_of(batch) for batch in batches) <= 2 * 5000
    assert read(tmp_path / "x.parquet") == many


def test_parquet_batches_are_bounded_where_texts_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A dictionary stores a repeated text once: the size of the file says nothing about the size of its rows.
    write_parquet(tmp_path / "x.parquet", [Row("c", "i" * 1000, "r")] * 2000)
    monkeypatch.setattr(rows, "_ARROW_BYTES", 5000)
    assert max(text_of(batch) for batch in rows.read(str(tmp_path / "x.parquet"))) <= 4 * 5000


def test_parquet_batches_are_bounded_where_rows_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [Row("c", f"{number:04}", "r") for number in range(2000)]
    long = [Row("c", f"{number:04}" * 250, "r") for number in range(200)]
    write_parquet(tmp_path / "x.parquet", short, long)
    monkeypatch.setattr(rows, "_ARROW_BYTES", 5000)
    assert max(text_of(batch) for batch in rows.read(str(tmp_path / "x.parquet"))) <= 4 * 5000


def test_the_writer_follows_the_extension(tmp_path: Path) -> None:
    assert isinstance(rows.writer_for("data/x.jsonl", io.BytesIO()), JsonlWriter)
    assert isinstance(rows.writer_for("data_clustered/x/y.parquet", io.BytesIO()), ParquetWriter)


def test_fields_are_written_in_the_order_that_is_asked_for() -> None:
    order = ("response", "condition", "instruction")
    lines, table = io.BytesIO(), io.BytesIO()
    with rows.writer_for("x.jsonl", lines, fields=order) as writer:
        writer.write([Row("c", "i", "r")])
    assert lines.getvalue() == b'{"response":"r","condition":"c","instruction":"i"}\n'
    with rows.writer_for("x.parquet", table, fields=order, large=True) as writer:
        writer.write([Row("c", "i", None)])
    file = pq.ParquetFile(table)
    assert file.schema_arrow == pa.schema([(name, pa.large_string()) for name in order])
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.read().to_pylist() == [{"response": None, "condition": "c", "instruction": "i"}]


def test_a_null_of_data_io_is_a_null_of_json() -> None:
    lines = io.BytesIO()
    with rows.writer_for("x.jsonl", lines) as writer:
        writer.write([Row("c", None, "r")])
    assert lines.getvalue() == b'{"condition":"c","instruction":null,"response":"r"}\n'


def test_a_row_written_as_jsonl_is_one_that_json_reads(tmp_path: Path) -> None:
    every = "".join(chr(number) for number in range(0x300))
    data = write_jsonl(tmp_path / "x.jsonl", [Row("c", every, every[::-1])])
    assert json.loads(data) == {"condition": "c", "instruction": every, "response": every[::-1]}
