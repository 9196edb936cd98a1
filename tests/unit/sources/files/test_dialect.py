"""Text files that are not written in the usual way: encodings, tables, and records within one JSON object."""

import csv
import gzip
import io
import json
import random
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats import slices as cutting
from pairmill.formats.limits import RECORD_BYTES
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.sources.files import json_shapes, readers
from pairmill.sources.files.dialect import is_ascii
from pairmill.sources.language import mapped
from pairmill.sources.parsed import Malformed
from pairmill.sources.source import Source
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of

Load = Callable[..., Source]


def described(folder: Path, kind: str, **keys: str) -> Path:
    """A YAML file about ``a.<kind>`` beside it."""
    values = {"name": "mine", "files": f"a.{kind}", "condition": "direct", "instruction": "q", "response": "a"}
    path = folder / "mine.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in (values | keys).items()), "utf-8")
    return path


def read(folder: Path, data: bytes, kind: str, longest: int = RECORD_BYTES, **keys: str) -> list[Any]:
    """The records of a file with this content."""
    path = folder / f"a.{kind}"
    path.write_bytes(data)
    source = mapped.load(str(described(folder, kind, **keys)))
    return list(source.read(FileSlice(path.name, str(path), size=len(data), longest=longest), "pairmill"))


def clean(folder: Path, data: bytes, kind: str, **keys: str) -> Manifest:
    """The stage over a file with this content."""
    (folder / f"a.{kind}").write_bytes(data)
    sources = [str(described(folder, kind, **keys))]
    return runner.run(Clean(), CleanConfig(sources=sources, root=str(folder / "root"), workers=1)).manifest


def refused(folder: Path, data: bytes, kind: str, **keys: str) -> str:
    """What the stage says, which does not take the file."""
    with pytest.raises(PairmillError) as caught:
        clean(folder, data, kind, **keys)
    assert caught.value.exit_code == 3
    return str(caught.value)


# --- encodings ------------------------------------------------------------------------------------------------------

WORDS = {
    "iso8859-1": ["", "a", "déjà vu", "x" * 50, "ÿþ", "a\x85b"],
    "cp1252": ["", "“quoted”", "€", "a b"],
    "shift_jis": ["", "日本語", "ソ表", "ab"],
    "gb18030": ["", "汉字", "😀", "ab"],
    "utf-16": ["", "日本語", "😀", "ab\u2028", "\u0a0a", "\u220a"],
    "utf-16-le": ["", "日本語", "\u0a0d"],
    "utf-32": ["", "😀"],
    "utf-7": ["", "+日本-"],
    "utf-8-sig": ["", "é"],
    "iso2022_jp": ["", "日本語", "ab"],
    "cp037": ["", "abc"],
}


@pytest.mark.parametrize("encoding", WORDS)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_pieces_of_any_encoding_give_the_records_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, kind: str
) -> None:
    draw = random.Random(encoding)
    written = [{"q": draw.choice(WORDS[encoding]), "a": str(number)} for number in range(150)]
    text = io.StringIO()
    if kind == "csv":
        table = csv.writer(text, lineterminator="\n")
        table.writerows([["q", "a"], *([one["q"], one["a"]] for one in written)])
    else:
        text.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in written))
    data = text.getvalue().encode(encoding)
    found = read(tmp_path, data, kind, encoding=encoding)
    assert [record for _, record in found] == written
    source = mapped.load(str(tmp_path / "mine.yaml"))
    assert bool(source.lines_per_record) == is_ascii(source.dialect.encoding)
    monkeypatch.setattr(cutting, "_BLOCK", 64)
    for size in (1, 40, 300):
        path = tmp_path / f"a.{kind}"
        whole = FileSlice(path.name, str(path), size=len(data))
        pieces = Slicing(size, 2 * size).cut(whole, source.lines_per_record)
        if source.lines_per_record and '"' not in text.getvalue()[: 0 if kind == "jsonl" else None]:
            assert len(pieces) > 3
        joined = [one for piece in pieces for one in source.read(piece, "pairmill")]
        assert joined == found, size


def test_encodings_that_are_cut_have_line_feeds_wherever_such_a_byte_is() -> None:
    assert {name for name in WORDS if is_ascii(name)} == {"iso8859-1", "cp1252", "shift_jis", "gb18030", "utf-8-sig"}


@pytest.mark.parametrize(
    ("encoding", "wrong", "reason"),
    [
        ("cp1252", b"\x81", "invalid_cp1252"),
        ("shift_jis", b"\x81\x20", "invalid_shift_jis"),
        ("ascii", b"\xe9", "invalid_ascii"),
        ("utf-8", b"\xe9", "invalid_utf8"),
        ("utf-16-be", b"\xd8\x00\x00a", "invalid_utf_16_be"),
    ],
)
def test_a_line_that_is_not_of_the_encoding_spoils_itself_alone(
    tmp_path: Path, encoding: str, wrong: bytes, reason: str
) -> None:
    q, a, end = (text.encode(encoding) for text in ('{"q": "', '", "a": "1"}', "\n"))
    lines = q + a + end + q + wrong + a + end + q + a + end
    found = read(tmp_path, lines, "jsonl", encoding=encoding)
    assert found == [(0, {"q": "", "a": "1"}), (1, Malformed(reason)), (2, {"q": "", "a": "1"})]
    comma, header = ",".encode(encoding), "q,a".encode(encoding)
    table = header + end + wrong + comma + end + comma + end
    assert read(tmp_path, table, "csv", encoding=encoding) == [(1, Malformed(reason)), (2, {"q": "", "a": ""})]


def test_a_file_that_ends_within_a_character_spoils_its_last_line(tmp_path: Path) -> None:
    data = '{"q": "x", "a": "1"}\n{"q": "y", "a": "1"}'.encode("utf-16-le")[:-1]
    assert [record for _, record in read(tmp_path, data, "jsonl", encoding="utf-16-le")] == [
        {"q": "x", "a": "1"},
        Malformed("invalid_utf_16_le"),
    ]


def test_a_record_is_as_long_in_any_encoding_as_in_utf8(tmp_path: Path) -> None:
    line = json.dumps({"q": "日" * 300, "a": "1"}, ensure_ascii=False) + "\n"
    assert len(read(tmp_path, line.encode("utf-16"), "jsonl", longest=1000, encoding="utf-16")) == 1
    with pytest.raises(InputError, match=r"a\.jsonl line 1: a record is longer than max_record_bytes"):
        read(tmp_path, line.encode("utf-16"), "jsonl", longest=900, encoding="utf-16")


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("csv", "q,a\nx,y\n".encode("utf-16"), r"a\.csv: the file is UTF-16; .*mine\.yaml: encoding: utf-16"),
        ("jsonl", '{"q": "x", "a": "y"}\n'.encode("utf-16"), r"the file is UTF-16; .*encoding: utf-16"),
        ("csv", "q,a,é\nx,y,z\n".encode("cp1252"), r"the header is not UTF-8; write in .*encoding: cp1252"),
        ("csv", "q,a\né,y\n".encode("cp1252"), r"mine\.yaml: encoding: cp1252\n.*invalid_utf8 \(found 0\.0% of"),
        (
            "jsonl",
            '{"q": "é", "a": "y"}\n'.encode("cp1252"),
            r"mine\.yaml: encoding: cp1252\n.*invalid_utf8 \(found 0\.0% of",
        ),
    ],
)
def test_a_file_of_another_encoding_says_the_line_to_write(tmp_path: Path, kind: str, data: bytes, said: str) -> None:
    message = refused(tmp_path, data, kind)
    assert re.search(said, message)
    written = re.search(r"encoding: ([\w-]+)", message)
    assert written is not None
    assert clean(tmp_path, data, kind, encoding=written[1]).ledger.rows_kept == 1


def test_files_that_are_records_have_an_encoding_too(tmp_path: Path) -> None:
    keys = {"files": "'*.txt'", "each": "file", "text": "text", "encoding": "cp1252"}
    text = "".join(f"{key}: {value}\n" for key, value in ({"name": "mine"} | keys).items())
    (tmp_path / "mine.yaml").write_text(text)
    source = mapped.load(str(tmp_path / "mine.yaml"))
    for name, data, expected in (("a.txt", b"\x93Hi\x94", "“Hi”"), ("b.txt", b"\x81", None)):
        (tmp_path / name).write_bytes(data)
        ((_, record),) = source.read(FileSlice(name, str(tmp_path / name)), "pairmill")
        assert record == Malformed("invalid_cp1252") if expected is None else record["text"] == expected


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "keys", "rows"),
    [
        ("tsv", 'q\ta\n"x\ty"\tz\n', {}, [("x\ty", "z")]),
        ("tsv", 'q\ta\n"x" y\t"z\n', {"quote": "none"}, [('"x" y', '"z')]),
        ("csv", "q;a\nx;'y;z\n1'\n", {"delimiter": "';'", "quote": '"\'"'}, [("x", "y;z\n1")]),
        ("csv", "q\ta\nx\ty,z\n", {"delimiter": "tab"}, [("x", "y,z")]),
        ("csv", "q\ta\nx\ty\n", {"delimiter": r'"\t"'}, [("x", "y")]),
        ("csv", "q|a\nx|y\n", {"delimiter": "'|'"}, [("x", "y")]),
        ("tsv", "q,a\nx,y\n", {"delimiter": "','"}, [("x", "y")]),
        ("csv", "1,x,y\n2,z,w\n", {"header": "[n, q, a]"}, [("x", "y"), ("z", "w")]),
    ],
)
def test_tables_are_read_as_they_are_described(
    tmp_path: Path, kind: str, text: str, keys: dict[str, str], rows: list[tuple[str, str]]
) -> None:
    found = [(record["q"], record["a"]) for _, record in read(tmp_path, text.encode(), kind, **keys)]
    assert found == rows
    packed = read(tmp_path, gzip.compress(text.encode()), f"{kind}.gz", **keys)
    assert [(record["q"], record["a"]) for _, record in packed] == rows


def test_pieces_of_a_table_without_a_header_give_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{number}\tx{number}\n" for number in range(100))
    found = read(tmp_path, text.encode(), "tsv", header="[q, a]")
    assert [record["q"] for _, record in found] == [str(number) for number in range(100)]
    monkeypatch.setattr(cutting, "_BLOCK", 64)
    source = mapped.load(str(tmp_path / "mine.yaml"))
    pieces = Slicing(50, 100).cut(FileSlice("a.tsv", str(tmp_path / "a.tsv"), size=len(text)), source.lines_per_record)
    assert len(pieces) > 5
    assert [one for piece in pieces for one in source.read(piece, "pairmill")] == found
    assert mapped.load(str(described(tmp_path, "tsv", quote="'|'"))).lines_per_record == 0


@pytest.mark.parametrize(("delimiter", "written"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_a_table_with_another_delimiter_says_the_line_to_write(tmp_path: Path, delimiter: str, written: str) -> None:
    data = f"q{delimiter}a\nx{delimiter}y\n".encode()
    assert refused(tmp_path, data, "csv").endswith(f"write in {tmp_path / 'mine.yaml'}: delimiter: {written}")
    assert clean(tmp_path, data, "csv", delimiter=written).ledger.rows_kept == 1


def test_a_table_with_quotes_in_its_texts_says_the_line_to_write(tmp_path: Path) -> None:
    data = b'q\ta\n"x" is a letter\ty\n'
    assert re.search(r"not valid CSV.*write quote: none", refused(tmp_path, data, "tsv"))
    assert clean(tmp_path, data, "tsv", quote="none").ledger.rows_kept == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"encoding": "klingon"}, "encoding: not an encoding; got 'klingon'; expected the name of an encoding"),
        ({"encoding": "rot13"}, "not an encoding"),
        ({"encoding": "base64"}, "not an encoding"),
        ({"encoding": "idna"}, "not an encoding"),
        ({"encoding": "unicode_escape"}, "not an encoding"),
        ({"encoding": r'"utf-8\0"'}, "not an encoding"),
        ({"encoding": "8859"}, "not a text; got 8859"),
        ({"delimiter": "';;'"}, "delimiter: not a delimiter; got ';;'; expected one character"),
        ({"delimiter": r'"\n"'}, "delimiter"),
        ({"delimiter": "'\"'"}, "not a delimiter"),
        ({"quote": "aa"}, "quote: not a quote"),
        ({"quote": "a"}, "quote: not a quote"),
        ({"delimiter": "'|'", "quote": "'|'"}, "quote: the quote is also the delimiter"),
        ({"quote": "','"}, "quote: the quote is also the delimiter"),
        ({"header": "[q, q]"}, "header: the same text occurs twice"),
        ({"header": "[q, answer, b]"}, "header: no column 'a'; got q, answer, b; expected q, a"),
        ({"records": "data"}, r"records: only allowed where files: names \.json; got \.csv"),
        ({"files": "a.jsonl", "delimiter": "tab"}, r"delimiter: only allowed where files: names \.csv or \.tsv"),
        ({"files": "a.parquet", "encoding": "latin-1"}, "encoding: Parquet files have no encoding"),
        ({"files": "a.json", "records": "'data[0]'"}, "records: not a way to the records"),
        ({"files": "a.json", "records": "'*.data'"}, "records: not a valid path"),
        ({"files": "a.json", "records": "a b"}, "records: not a valid path"),
    ],
)
def test_a_dialect_that_is_not_understood_is_refused(tmp_path: Path, keys: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        mapped.load(str(described(tmp_path, "csv", **keys)))


def test_another_dialect_is_another_version(tmp_path: Path) -> None:
    keys: list[dict[str, str]] = [
        {},
        {"encoding": "latin-1"},
        {"delimiter": "tab"},
        {"quote": "none"},
        {"header": "[q, a]"},
        {"header": "[a, q]"},
    ]
    versions = {mapped.load(str(described(tmp_path, "csv", **one))).version for one in keys}
    assert len(versions) == len(keys)
    same = mapped.load(str(described(tmp_path, "csv", encoding="utf_8"))).version
    assert same == mapped.load(str(described(tmp_path, "csv"))).version


# --- records within an object ---------------------------------------------------------------------------------------

ROWS = [{"q": f"q{number}", "a": "x"} for number in range(5)]
DEEP = {"version": 1, "result": {"more": [1, [2]], "items": ROWS, "end": {"a": {"b": [None]}}}, "note": "]}"}


@pytest.mark.parametrize(
    ("value", "records"),
    [
        ({"data": ROWS}, "data"),
        ({"a": [{"data": [9]}], "data": ROWS, "b": {"data": 1}}, "data"),
        (DEEP, "result.items"),
        ({"my data": ROWS}, "\"['my data']\""),
        ({"data": {str(number): row for number, row in enumerate(ROWS)}}, "data.*"),
        ({str(number): row for number, row in enumerate(ROWS)}, "'*'"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_records_are_found_within_an_object(tmp_path: Path, value: Any, records: str, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    expected = list(enumerate(ROWS))
    assert read(tmp_path, data, "json", records=records) == expected
    assert read(tmp_path, gzip.compress(data), "json.gz", records=records) == expected
    assert read(tmp_path, data.decode().encode("utf-16"), "json", records=records, encoding="utf-16") == expected


def test_a_packed_array_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(json.dumps(ROWS).encode()), "json.gz") == list(enumerate(ROWS))


@pytest.mark.parametrize(
    ("value", "records", "said", "line"),
    [
        ({"data": ROWS}, "date", "no 'date' at the top of the file; got data; expected 'date'", "data"),
        ({"data": {"rows": ROWS}}, "data", "not a list at data; got an object; expected a list", "data.rows"),
        ({"data": ROWS}, "data.*", "not an object at data; got a list", "data"),
        ({"data": ROWS}, "data.items", "not an object at data; got a list", "data"),
        ({"data": 5, "rows": ROWS}, "data", "not a list at data; got a single value", "rows"),
        ({"data": {"a": ROWS[0], "b": ROWS[1]}}, "data", "not a list at data; got an object", "data.*"),
        ({"a": ROWS[0], "b": ROWS[1]}, "a", "not a list at a; got an object", "'*'"),
        (DEEP, "result", "not a list at result", "result.items"),
        ({"my data": ROWS}, "data", "no 'data'", "\"['my data']\""),
    ],
)
def test_another_way_to_the_records_says_the_line_to_write(
    tmp_path: Path, value: Any, records: str, said: str, line: str
) -> None:
    data = json.dumps(value).encode()
    message = refused(tmp_path, data, "json", records=records)
    assert said in message
    assert message.endswith(f"write in {tmp_path / 'mine.yaml'}: records: {line}")
    assert clean(tmp_path, data, "json", records=line).ledger.rows_kept > 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"version": 2, "data": ROWS, "few": ROWS[:2]}), "got an object with version, data, few;.*s: data$"),
        (json.dumps({"data": ROWS, "few": ROWS[:2]}, indent=1), "the file is one object; .*records: data$"),
        (json.dumps({"log": [{"t": 1}] * 9, "data": ROWS}), "records: data$"),
        (json.dumps(DEEP, indent=2), r"records: result\.items$"),
        (json.dumps({"x": ROWS[0], "y": ROWS[1]}), r"records: '\*'$"),
        (json.dumps({"q": ["1", "2"], "a": ["x", "y"]}), "each field holds a list.*json.dumps"),
        (json.dumps({"a": 1, "b": 2}, indent=1), "got an object with a, b; .*jq -c"),
        ("\n".join(json.dumps(row, indent=1) for row in ROWS), "an object spans several lines; .*json: lenient$"),
    ],
)
def test_a_file_that_is_one_object_says_the_line_to_write(tmp_path: Path, text: str, said: str) -> None:
    message = refused(tmp_path, text.encode(), "json")
    assert re.search(said, message)
    written = re.search(r"records: (.*)$", message)
    if written:
        assert clean(tmp_path, text.encode(), "json", records=written[1]).ledger.rows_kept > 1


def test_columns_become_records_by_the_line_that_is_said(tmp_path: Path) -> None:
    data = {"q": ["1", "2"], "a": ["x", "y"]}
    program = re.search(r"python -c '(.*)'", refused(tmp_path, json.dumps(data).encode(), "json"))
    assert program is not None
    command = [sys.executable, "-c", program[1]]
    done = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"q": "1", "a": "x"}, {"q": "2", "a": "y"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"q": "x", "a": "y"}', [{"q": "x", "a": "y"}]),
        ('{"q": "x", "a": "y"}\n\n', [{"q": "x", "a": "y"}]),
        ('{"b": 1}\n{"q": "x", "a": "y"}', [{"b": 1}, {"q": "x", "a": "y"}]),
        ('{"q": \n{"q": "x", "a": "y"}\n', [Malformed("invalid_json"), {"q": "x", "a": "y"}]),
        ('{"q": "x", "a": "y"}\n{"q": ', [{"q": "x", "a": "y"}, Malformed("invalid_json")]),
        ('{"q": ', [Malformed("invalid_json")]),
        ("\ufeff" + '{"q": "x", "a": "y"}', [{"q": "x", "a": "y"}]),
        ("", []),
    ],
)
def test_lines_under_the_name_json_are_read_as_before(tmp_path: Path, text: str, expected: list[Any]) -> None:
    assert [record for _, record in read(tmp_path, text.encode(), "json")] == expected


def test_a_record_of_many_keys_or_of_many_bytes_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {f"k{number}": [{"x": 1}] for number in range(50)} | {"q": "x", "a": "y"}
    assert read(tmp_path, json.dumps(wide).encode(), "json") == [(0, wide)]
    monkeypatch.setattr(json_shapes, "HEAD", 500)
    monkeypatch.setattr(readers, "_BUFFER", 100)
    long = {"q": "x", "a": "y", "turns": [{"text": "z" * 50}] * 30}
    lines = f"\n{json.dumps(long)}\n{json.dumps(long)}\n"
    assert [record for _, record in read(tmp_path, lines.encode(), "json")] == [long, long]
    assert refused(tmp_path, json.dumps({"data": ROWS * 40}).encode(), "json").endswith("records: data")


@pytest.mark.parametrize(
    "text",
    [
        '{"data": [{"q": "x"}',
        '{"data": [{"q": "x"}]',
        '{"data": [{"q": "x"}]}]',
        '{"data": [{"q": "x"}], "data": []}',
        '{"data": [{"q": "x"},]}',
        '{"data": [],}',
        '{"data" []}',
        '{"data": [] "b": 1}',
        "{5: []}",
        '{"a": [1, "data": []}',
        '{"data": [{"q": "\\x"}]}',
    ],
)
def test_a_damaged_object_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"a\.json row \d+ \(line 1\): not valid JSON|no 'data'"):
        read(tmp_path, text.encode(), "json", records="data")


def test_the_list_and_what_is_beside_it_are_not_held_in_memory(tmp_path: Path) -> None:
    row = json.dumps({"q": "q" * 400, "a": "a" * 400})
    many = ",".join([row] * 8_000)
    size = (tmp_path / "a.json").write_text(f'{{"other": {{"x": [{many}]}}, "data": [{many}], "end": [{many}]}}')
    assert size > 18 << 20
    del many
    source = mapped.load(str(described(tmp_path, "json", records="data")))
    piece = FileSlice("a.json", str(tmp_path / "a.json"), size=size)
    tracemalloc.start()
    try:
        assert sum(1 for _ in source.read(piece, "pairmill")) == 8_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_value_that_is_too_long_is_refused_beside_the_list_too(tmp_path: Path) -> None:
    text = json.dumps({"other": "x" * 5000, "data": ROWS})
    with pytest.raises(InputError, match="longer than max_record_bytes"):
        read(tmp_path, text.encode(), "json", longest=1000, records="data")
    deep = '{"a":' * 300 + "1" + "}" * 300
    assert len(read(tmp_path, f'{{"other": {deep}, "data": [{{}}]}}'.encode(), "json", records="data")) == 1


# --- an encoding for some of the files -------------------------------------------------------------------------------


def mixed(folder: Path, encoding: str | None, files: dict[str, bytes], **keys: str) -> CleanConfig:
    """A source of files, which are below ``data/``."""
    for name, data in files.items():
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_bytes(data)
    lines = {"name": "mine", "files": "data/**/*.jsonl", "condition": "direct", "instruction": "q", "response": "a"}
    lines |= {"encoding": encoding} if encoding else {}
    (folder / "mine.yaml").write_text("".join(f"{key}: {one}\n" for key, one in (lines | keys).items()), "utf-8")
    return CleanConfig(root=str(folder / "root"), sources=[str(folder / "mine.yaml")], workers=1)


def lines(encoding: str, count: int = 10, answer: str = "déjà vu") -> bytes:
    return "".join(f'{{"q": "q{n}", "a": "{answer if n else "plain"}"}}\n' for n in range(count)).encode(encoding)


def cleaned_texts(config: CleanConfig) -> tuple[Manifest, set[str]]:
    result = runner.run(Clean(), config)
    rows = (Path(result.uri) / "data" / "mine.jsonl").read_text("utf-8").splitlines()
    return result.manifest, {json.loads(row)["response"] for row in rows}


FILES = {"part-1.jsonl": lines("utf-8"), "part-2.jsonl": lines("utf-8"), "old/part-31.jsonl": lines("latin-1", 5)}


def test_files_that_are_not_utf_8_are_named_with_the_share_that_is_and_their_encoding(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        runner.run(Clean(), mixed(tmp_path, None, FILES))
    said = str(caught.value)
    assert "4 of 25 records of mine are malformed" in said
    assert "84.0% of the records are UTF-8; others are in old/part-31.jsonl (4)" in said
    assert max(map(len, said.replace(str(tmp_path), "").splitlines())) < 200
    (written,) = re.findall(r"write in \S+mine\.yaml: encoding: (.*)", said)
    assert written == '{"old/part-31.jsonl": cp1252}'
    manifest, texts = cleaned_texts(mixed(tmp_path, written, FILES))
    assert texts == {"déjà vu", "plain"}
    assert not any("another encoding" in line for line in report_of(manifest).look_at)


@pytest.mark.parametrize(
    "pattern", ["part-3*.jsonl", "old/part-3*.jsonl", "data/old/*.jsonl", "'**/old/*'", "./data/old/part-31.jsonl"]
)
def test_a_pattern_of_files_is_a_name_or_written_as_in_files(tmp_path: Path, pattern: str) -> None:
    _, texts = cleaned_texts(mixed(tmp_path, f"{{{pattern}: latin-1}}", FILES))
    assert texts == {"déjà vu", "plain"}


def test_one_pattern_stands_for_many_files(tmp_path: Path) -> None:
    files = {f"part-3{n}.jsonl": lines("cp1252", 3) for n in range(6)} | {"part-1.jsonl": lines("utf-8")}
    with pytest.raises(InputError, match=r'encoding: \{"part-3\*\.jsonl": cp1252\}') as caught:
        runner.run(Clean(), mixed(tmp_path, None, files))
    assert "and 3 files more" in str(caught.value)
    _, texts = cleaned_texts(mixed(tmp_path, '{"part-3*.jsonl": cp1252}', files))
    assert texts == {"déjà vu", "plain"}
    with pytest.raises(InputError, match=r"mine\.yaml: encoding: cp1252"):
        runner.run(Clean(), mixed(tmp_path / "all", None, {"a.jsonl": lines("cp1252"), "b.jsonl": lines("cp1252")}))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "{part-1.jsonl: latin-1, '*': cp1252}"])
def test_utf_8_that_is_read_in_another_encoding_is_told_with_its_records(tmp_path: Path, encoding: str) -> None:
    manifest, texts = cleaned_texts(mixed(tmp_path, encoding, FILES))
    assert "dÃ©jÃ\xa0 vu" in texts
    assert manifest.data["sources"]["mine"]["misread"] == {"part-1.jsonl": 9, "part-2.jsonl": 9}
    (told,) = [line for line in report_of(manifest).look_at if "another encoding" in line]
    assert told.startswith("mine: 18 records are UTF-8")
    assert "part-1.jsonl (9), part-2.jsonl (9)" in told
    assert "part-31" not in told


def test_what_is_not_mojibake_is_not_told(tmp_path: Path) -> None:
    files = {"a.jsonl": lines("latin-1"), "b.jsonl": lines("ascii", answer="plain"), "c.jsonl": b""}
    manifest, texts = cleaned_texts(mixed(tmp_path, "latin-1", files))
    assert texts == {"déjà vu", "plain"}
    assert "misread" not in manifest.data["sources"]["mine"]


def test_the_encoding_of_a_file_is_part_of_what_rows_follow_from(tmp_path: Path) -> None:
    files = {"a.jsonl": lines("latin-1"), "b.jsonl": lines("utf-8")}
    first, _ = cleaned_texts(mixed(tmp_path, "{a.jsonl: latin-1}", files))
    second, _ = cleaned_texts(mixed(tmp_path, "{a.jsonl: cp1252}", files))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("encoding", "said", "code"),
    [
        ("{part-9.jsonl: latin-1}", r"no file of mine has the encoding of 'part-9\.jsonl'", 3),
        ("{part-1.jsonl: klingon}", r"line 6, encoding: part-1\.jsonl: not an encoding; got 'klingon'", 2),
        ("{part-1.jsonl: [latin-1]}", r"line 6, encoding: part-1\.jsonl: not an encoding", 2),
        ("{part-1.jsonl: latin-1, part-1.jsonl: cp1252}", "the name occurs twice", 2),
        ("{}", "line 6, encoding: not a mapping|not a text", 2),
        ("[latin-1]", "line 6, encoding: not a text", 2),
    ],
)
def test_an_encoding_of_no_file_or_of_no_name_is_refused(tmp_path: Path, encoding: str, said: str, code: int) -> None:
    with pytest.raises(PairmillError, match=said) as caught:
        runner.run(Clean(), mixed(tmp_path, encoding, FILES))
    assert caught.value.exit_code == code
