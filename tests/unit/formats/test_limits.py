"""Memory follows neither a line nor a page: what a few kilobytes can stand for is refused, or read in parts."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.engine.options import Profile
from pairmill.errors import InputError, StageFailure, StorageError, UsageError
from pairmill.formats import jsonstream, limits, rows, token_files
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.rows import Row
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.sources.files import readers
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source, Unit
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch import archive
from tests.support.helpers import PATIENCE, REPOSITORY

MB = 1 << 20
LONGEST = 8 * MB
MOST = 300 * MB
"""Peak of a process, its imports included, that reads or refuses records of at most 8 MiB."""

READ = """
    import sys, types
    from pairmill.sources.files import readers
    from pairmill.sources.files.dialect import Dialect
    from pairmill.formats.slices import FileSlice
    from pairmill.formats import rows
    from pairmill.errors import InputError
    try:
        if sys.argv[1] == "rows":
            print(sum(len(batch) for batch in rows.read(sys.argv[2], longest=8 << 20)))
        else:
            known = {"name": "made", "fields": ("a", "b"), "optional": (), "counted": (), "origin": None}
            source = types.SimpleNamespace(**known, dialect=Dialect(), described_in="y" * (sys.argv[1] == "aside"))
            if sys.argv[1] not in ("read", "aside"):
                read = getattr(readers, sys.argv[1])
            else:
                read = readers.read
            options = {"longest": 8 << 20, "expansion": 1 << 40, "aside": sys.argv[1] == "aside"}
            piece = FileSlice(sys.argv[2].rsplit("/", 1)[-1], sys.argv[2], **options)
            if read is readers.line_pairs:
                found = read(piece, pair_empty_lines=False)
            else:
                found = read(piece) if read in (readers.json_object, readers.csv_fields) else read(piece, source)
            print(sum(1 for _ in found))
    except InputError as error:
        print(error)
"""


def peak(*arguments: str) -> tuple[str, int]:
    """What a process prints that reads a file, and the most memory that it had, in bytes: the less of two that are too
    many, since a run on a busy machine may take 11 MiB more than all others."""
    # A process that is forked has its parent's peak at first, so that another one starts it.
    start = "import os, sys; child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)\n" + (
        "_, status, usage = os.wait4(child, 0); sys.exit(print(usage.ru_maxrss, file=sys.stderr) or status)"
    )
    program = [sys.executable, "-c", start, sys.executable, "-c", textwrap.dedent(READ), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    taken = []
    while not taken or (taken[-1] >= MOST and len(taken) < 2):
        done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE)
        taken.append(int(done.stderr.split()[-1]) * 1024)
    return done.stdout.strip(), min(taken)


def repeated(count: int, size: int) -> pa.Array:
    """A text that a dictionary says once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["x" * size]))


def written(path: Path, column: Any, **options: Any) -> Path:
    table = pa.table({"a": column, "b": pa.array(["y"] * len(column))})
    pq.write_table(table, path, compression="zstd", store_schema=False, **options)
    assert path.stat().st_size < 100_000
    return path


def bomb(
    path: Path, packed: Callable[[bytes], Any], head: bytes = b"", fill: bytes = b"x", size: int = 160 * MB
) -> Path:
    """A compressed file that begins with ``head`` and goes on with ``fill``; ``packed`` makes independent streams."""
    with path.open("wb") as file:
        file.write(packed(head) if head else b"")
        block = packed(fill * (32 * MB // len(fill)))
        for _ in range(size // (32 * MB)):
            file.write(block)
    assert path.stat().st_size < 3 * MB
    return path


# --- what a process takes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("dictionary", lambda path: written(path, repeated(500, MB)), "500"),
        ("lists", lambda path: written(path, pa.ListArray.from_arrays(range(0, 501, 5), repeated(500, MB))), "100"),
        (
            "uneven lists",
            lambda path: written(path, pa.ListArray.from_arrays([*[0] * 9000, 500], repeated(500, MB))),
            "column a.list.element: a record is longer than max_record_bytes",
        ),
        (
            "page",
            lambda path: written(path, pa.array(["x" * MB] * 50), use_dictionary=False),
            "row group 0, column a: a page is too large",
        ),
        (
            "prefixes",
            lambda path: written(
                path, pa.array(["x" * MB] * 200), use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"}
            ),
            "200",
        ),
        (
            "long list",
            lambda path: written(path, pa.ListArray.from_arrays([0, 5 * MB], pa.array(np.zeros(5 * MB, np.int64)))),
            "in 1 rows of a.list.element",
        ),
        (
            "one row",
            lambda path: written(path, pa.array(["x" * (10 * MB)]), use_dictionary=False),
            "row 1: a record is longer than max_record_bytes",
        ),
        (
            "few among many",
            lambda path: written(
                path, pa.array([""] * 6_000 + ["x" * (6 * MB)] * 40), use_dictionary=False, write_batch_size=1
            ),
            "6040",
        ),
    ],
)
def test_a_kilobyte_of_parquet_does_not_become_gigabytes(
    tmp_path: Path, name: str, make: Callable[[Path], Path], said: str
) -> None:
    out, taken = peak("read", str(make(tmp_path / "x.parquet")))
    assert said in out
    assert taken < MOST, f"{taken >> 20} MiB"


@pytest.mark.parametrize(
    ("name", "reader", "packed", "head", "said"),
    [
        ("x.jsonl.gz", "read", gzip.compress, b'{"a": 1}\n"', "x.jsonl.gz line 2: a record is longer"),
        ("x.jsonl.bz2", "read", bz2.compress, b'{"a": 1}\n"', "x.jsonl.bz2 line 2: a record is longer"),
        ("x.jsonl.xz", "read", lzma.compress, b'{"a": 1}\n"', "x.jsonl.xz line 2: a record is longer"),
        ("x.csv.gz", "read", gzip.compress, b'a,b\n1,2\n"', "x.csv.gz record 3: a record is longer"),
        ("x.txt.gz", "line_pairs", gzip.compress, b"q\na\nq\n", "x.txt.gz line 4: a record is longer"),
    ],
)
def test_a_line_without_an_end_does_not_fill_the_memory(
    tmp_path: Path, name: str, reader: str, packed: Callable[[bytes], bytes], head: bytes, said: str
) -> None:
    out, taken = peak(reader, str(bomb(tmp_path / name, packed, head)))
    assert said in out
    assert taken < MOST, f"{taken >> 20} MiB"


def test_a_row_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.write(b'{"condition":"direct","instruction":"a","response":"b"}\n{"condition":"')
        for _ in range(10):
            file.write(b"x" * (6 * MB))
    out, taken = peak("rows", str(path))
    assert "x.jsonl row 2 (line 2): a record is longer than max_record_bytes" in out
    assert taken < MOST, f"{taken >> 20} MiB"


# --- what a file expands to -----------------------------------------------------------------------------------------


def described(folder: Path, name: str, **options: Any) -> CleanConfig:
    text = f"name: mine\nfiles: {name}\ncondition: direct\ninstruction: b\nresponse: a\n"
    (folder / "mine.yaml").write_text(text)
    return CleanConfig(root=str(folder / "root"), sources=[str(folder / "mine.yaml")], workers=1, **options)


def refusal(config: CleanConfig) -> InputError:
    with pytest.raises(StageFailure) as caught:
        runner.run(Clean(), config)
    ((_, error),) = caught.value.failures
    assert isinstance(error, InputError)
    assert caught.value.exit_code == 3
    return error


def small_limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Bytes that any file may expand to, as shards that run in this process see it."""
    monkeypatch.setattr(limits, "EXPANDED_BYTES", size)


def test_a_kilobyte_of_parquet_does_not_write_gigabytes_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = written(tmp_path / "a.parquet", repeated(40, MB)).stat().st_size
    small_limit(monkeypatch, 4 * MB)
    error = refusal(described(tmp_path, "a.parquet"))
    assert error.what == "the records are much longer than their file"
    assert error.where == str(tmp_path / "a.parquet")
    assert "max_expansion" in error.expected
    manifest = runner.run(Clean(), described(tmp_path, "a.parquet", max_expansion=40 * MB // size * 3)).manifest
    assert manifest.ledger.rows_out == 40


def test_a_file_that_expands_to_little_is_read_at_any_rate(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", repeated(2, MB))
    assert runner.run(Clean(), described(tmp_path, "a.parquet", max_expansion=1)).manifest.ledger.rows_out == 2


@pytest.mark.parametrize(("name", "packed"), [("a.jsonl.zst", "zstd"), ("a.json.xz", "xz"), ("a.csv.bz2", "bz2")])
def test_compressed_texts_that_expand_to_much_are_refused_even_if_no_row_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, packed: str
) -> None:
    line = {"jsonl": b'{"a": "%b", "b": "y"}\n', "json": b'{"a": "%b", "b": "y"},\n', "csv": b"%b,y\n"}[
        name.split(".")[1]
    ]
    data = line % (b"x" * 1000) * 8000
    data = b"[" + data[:-2] + b"]" if "json." in name else b"a,b\n" + data if "csv" in name else data
    pack = {"zstd": lambda one: pa.Codec("zstd").compress(one, asbytes=True), "xz": lzma.compress, "bz2": bz2.compress}
    (tmp_path / name).write_bytes(pack[packed](data))
    config = described(tmp_path, name)
    with (tmp_path / "mine.yaml").open("a") as file:
        file.write("where: b == 'z'\n")
    assert runner.run(Clean(), config).manifest.ledger.dropped == {"filtered_by_where": 8000}
    small_limit(monkeypatch, MB)
    runner_root = str(tmp_path / "other")
    assert refusal(replace(config, root=runner_root, max_expansion=10)).where == str(tmp_path / name)


def test_rows_that_grow_with_the_square_of_their_chat_are_bounded_by_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant")] * 1000
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    (tmp_path / "mine.yaml").write_text("name: mine\nfiles: a.jsonl\ncondition: direct\nturns: messages\n")
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    small_limit(monkeypatch, MB)
    assert runner.run(Clean(), config).manifest.ledger.rows_out == 1000
    assert refusal(replace(config, root=str(tmp_path / "other"), max_expansion=100)).where == str(tmp_path / "a.jsonl")


def test_rows_of_others_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_limit(monkeypatch, MB)
    columns = {"condition": ["direct"] * 40, "instruction": ["q"] * 40, "response": repeated(40, MB)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", compression="zstd", store_schema=False)
    part = FileSlice("x.parquet", str(tmp_path / "x.parquet"))
    with pytest.raises(InputError, match="much longer than their file"):
        list(rows.read(part.uri, part))
    assert sum(map(len, rows.read(part.uri, replace(part, expansion=1 << 30)))) == 40
    ids = pa.ListArray.from_arrays(range(0, 4_000_001, 100_000), pa.array(np.zeros(4_000_000, np.int32)))
    for group in (1, 40):
        pq.write_table(pa.table({"input_ids": ids}), tmp_path / "ids.parquet", row_group_size=group)
        part = FileSlice("ids.parquet", str(tmp_path / "ids.parquet"))
        with pytest.raises(InputError, match="much longer than their file"):
            list(token_files.read_parquet(part.uri, replace(part, expansion=10)))


# --- records that are put aside -------------------------------------------------------------------------------------

SHORT, LIMIT = 100, 4096
LONGER: dict[str, dict[str, Any]] = {
    "text": {"a": "x" * 60_000, "b": "q"},
    "marks": {"a": '\\"{[,]}\n' * 9_000, "b": "q"},
    "letters": {"a": "é😀" * 9_000, "b": "q"},
    "deep": {"a": "x", "b": "q", "c": [{"d": ["\\\\", '"', "}" * 50_000]}]},
}
KINDS = ("jsonl", "json", "object.json", "values.json", "csv", "tsv", "parquet", "jsonl.zst", "json.gz")


def table_of(path: Path, records: list[dict[str, Any]]) -> dict[str, str]:
    """Write records by the file's extension; returns what the YAML file says of them."""
    kind = path.name.split(".", 1)[1]
    plain = [{"a": one["a"], "b": one["b"]} for one in records]
    data = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records).encode()
    keys = {}
    if kind.startswith("json."):
        data = json.dumps(records).encode()
    elif kind == "object.json":
        data, keys = json.dumps({"n": [1, {"x": "y"}], "data": records, "m": 2}).encode(), {"records": "data"}
    elif kind == "values.json":
        data = json.dumps({"data": {str(n): one for n, one in enumerate(records)}}, indent=1).encode()
        keys = {"records": "data.*"}
    elif kind == "json":
        data = json.dumps(records, indent=1, ensure_ascii=False).encode()
    elif kind in ("csv", "tsv"):
        out = io.StringIO()
        writer = csv.DictWriter(out, ["a", "b"], delimiter="," if kind == "csv" else "\t")
        writer.writeheader()
        writer.writerows(plain)
        data = out.getvalue().encode()
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(plain), path, row_group_size=4)
        return keys
    pack = {"zst": lambda one: pa.Codec("zstd").compress(one, asbytes=True), "gz": gzip.compress}
    path.write_bytes(pack.get(kind.split(".")[-1], bytes)(data))
    return keys


TABLES = ("csv", "tsv", "parquet")
"""Kinds of files in which no record is nested."""


@pytest.mark.parametrize(
    ("what", "kind"), [(what, kind) for what in LONGER for kind in KINDS if what != "deep" or kind not in TABLES]
)
def test_a_long_record_is_put_aside_and_the_others_are_kept(tmp_path: Path, kind: str, what: str) -> None:
    records = [{"a": f"answer {n}", "b": f"question {n}"} for n in range(10)]
    for place in (0, 5, 6, 11):
        records.insert(place, {**LONGER[what], "b": f"long {place}"})
    assert len(records) == 14
    keys = table_of(tmp_path / f"a.{kind}", records)
    config = described(tmp_path, f"a.{kind}", max_record_bytes=LIMIT)
    with (tmp_path / "mine.yaml").open("a") as file:
        file.writelines(f"{key}: {one}\n" for key, one in keys.items())
    assert "longer than max_record_bytes" in refusal(config).what or kind == "parquet"
    result = runner.run(Clean(), replace(config, on_long_record="reject"))
    ledger = result.manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.dropped) == (14, 10, {"record_too_long": 4})
    rows_ = [json.loads(line) for line in (Path(result.uri) / "data/mine.jsonl").read_text().splitlines()]
    assert [one["response"] for one in rows_] == [f"answer {n}" for n in range(10)]
    (rejects,) = (Path(result.uri) / "rejects").rglob("*.jsonl")
    aside = [json.loads(line) for line in rejects.read_text().splitlines()]
    places = [place + 1 + (kind in ("csv", "tsv")) for place in (0, 5, 6, 11)]  # a header is a row, as readers count
    assert [one["row"] for one in aside] == places
    assert {(one["file"], one["reason"], one["record"]) for one in aside} == {
        (f"mine/a.{kind}", "record_too_long", None)
    }
    assert manifest_reasons(result.manifest) == {"record_too_long": 4}


def manifest_reasons(manifest: Manifest) -> dict[str, int]:
    return {one["reason"]: one["count"] for one in manifest.data["sources"]["mine"]["reject_reasons"]}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_aside_is_what_would_be_refused(tmp_path: Path, kind: str) -> None:
    record = {"a": "x" * 50, "b": "y" * 50}
    keys = table_of(tmp_path / f"a.{kind}", [record] * 3)
    size = 100 if kind in ("csv", "tsv", "parquet") else len(json.dumps(record))
    if kind in ("json", "values.json"):
        size = len(json.dumps(record, indent=1).replace("\n", "\n " if kind == "json" else "\n  "))
    for most, kept in ((size, 3), (size - 1, 0)):
        config = described(tmp_path, f"a.{kind}", max_record_bytes=most, on_long_record="reject")
        with (tmp_path / "mine.yaml").open("a") as file:
            file.writelines(f"{key}: {one}\n" for key, one in keys.items())
        ledger = runner.run(Clean(), config).manifest.ledger
        assert (ledger.rows_kept, ledger.dropped.get("record_too_long", 0)) == (kept, 3 - kept)


def test_a_header_that_is_too_long_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"a,b,{'c' * 500}\n1,2,3\n")
    error = refusal(described(tmp_path, "a.csv", max_record_bytes=100, on_long_record="reject"))
    assert error.what == "the header is longer than max_record_bytes"


def test_what_is_put_aside_is_part_of_the_key_and_refusing_is_not(tmp_path: Path) -> None:
    table_of(tmp_path / "a.jsonl", [{"a": "x" * size, "b": "q"} for size in (10, 200, 3000)])

    def run(**options: Any) -> tuple[str, int]:
        manifest = runner.run(Clean(), described(tmp_path, "a.jsonl", **options)).manifest
        return manifest.fingerprint, manifest.ledger.rows_kept

    assert run() == run(max_record_bytes=9_999)
    found = [run(max_record_bytes=most, on_long_record="reject") for most in (100, 1000, 5000)]
    assert [kept for _, kept in found] == [1, 2, 3]
    assert len({run(), *found}) == 4
    with pytest.raises(UsageError, match="on_long_record: unknown value; got 'drop'; expected refuse or reject"):
        run(on_long_record="drop")


def test_a_file_that_is_one_record_is_put_aside(tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 5000), ("c", 20)):
        (tmp_path / f"{name}.txt").write_text("x" * size)
    (tmp_path / "mine.yaml").write_text("name: mine\nfiles: '*.txt'\neach: file\ntext: text\n")
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    manifest = runner.run(Clean(), replace(config, max_record_bytes=1000, on_long_record="reject")).manifest
    assert (manifest.ledger.rows_kept, manifest.ledger.dropped) == (2, {"record_too_long": 1})


@pytest.mark.parametrize(
    ("name", "packed", "head", "tail"),
    [
        ("x.jsonl.gz", gzip.compress, b'{"a": "', b'"}\n{"a": "y"}\n'),
        ("x.json.gz", gzip.compress, b'[{"a": "', b'"}, {"a": "y"}]'),
        ("x.csv.gz", gzip.compress, b'a,b\n"', b'",2\n1,2\n'),
    ],
)
def test_what_is_put_aside_is_not_held(
    tmp_path: Path, name: str, packed: Callable[[bytes], bytes], head: bytes, tail: bytes
) -> None:
    path = bomb(tmp_path / name, packed, head)
    with path.open("ab") as file:
        file.write(packed(tail))
    out, taken = peak("aside", str(path))
    assert out == "2"
    assert taken < MOST, f"{taken >> 20} MiB"


# --- the limit, to the byte -----------------------------------------------------------------------------------------


class Made(Source):
    name = "made"
    origin = None  # type: ignore[assignment]
    licence = citation = ""
    fields = ("a",)

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return []

    def parse(self, record: Any, context: Context) -> Parsed:
        return Row("", "", "")


def one(path: Path, reader: Any, longest: int) -> list[Any]:
    piece = FileSlice(path.name, str(path), longest=longest)
    if reader is readers.line_pairs:
        return list(reader(piece, pair_empty_lines=False))
    return list(reader(piece) if reader is readers.json_object else reader(piece, Made()))


@pytest.mark.parametrize("text", ["x" * 900, "é" * 450, "😀" * 225])
def test_a_record_of_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path, text: str) -> None:
    record = json.dumps({"a": text}, ensure_ascii=False)
    size = len(record.encode())
    cases: list[tuple[str, Any, str, int]] = [
        ("x.jsonl", readers.read, f"{record}\n{record}", size),
        ("crlf.jsonl", readers.read, f"{record}\r\n{record}\r\n", size),
        ("x.json", readers.read, f"[{record},\n{record}]", size),
        ("object.json", readers.json_object, record, size),
        ("x.csv", readers.read, f'a\n"{text}"\n"{text}"', 900),
        ("lines.csv", readers.read, f'a\n"{text[:9]}\n{text[9:]}"\r\n', 901),
        ("x.txt", readers.line_pairs, f"q\n{text}\n", 901),
        ("y.txt", readers.line_pairs, f"{text}\na\n", 901),
    ]
    for name, reader, content, most in cases:
        path = tmp_path / name
        path.write_bytes(content.encode())
        assert one(path, reader, most), name
        with pytest.raises(
            InputError, match=rf"{name}.* is longer than max_record_bytes.*at most {most - 1} bytes"
        ) as failed:
            one(path, reader, most - 1)
        assert failed.value.exit_code == 3
    for path, column in ((tmp_path / "x.parquet", [text, text]), (tmp_path / "l.parquet", [["", text], []])):
        pq.write_table(pa.table({"a": column}), path)
        assert len(one(path, readers.read, 900)) == 2
        with pytest.raises(
            InputError, match=r"\.parquet row 1: a record is longer than max_record_bytes; got 900 bytes"
        ):
            one(path, readers.read, 899)
    for path in (tmp_path / "rows.jsonl", tmp_path / "rows.parquet"):
        if path.suffix == ".jsonl":
            path.write_text(
                json.dumps(dict(zip(rows.FIELDS, ("c", "i", text), strict=True)), ensure_ascii=False) + "\n"
            )
        else:
            pq.write_table(pa.table({"condition": ["c"], "instruction": ["i"], "response": [text]}), path)
        assert sum(map(len, rows.read(str(path), longest=1000))) == 1
        with pytest.raises(InputError, match=r"row 1.*a record is longer than max_record_bytes"):
            list(rows.read(str(path), longest=899))


def test_an_element_of_an_array_has_the_same_limit_wherever_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonstream, "_CHUNK", 64)
    path = tmp_path / "x.json"
    for element in ('"' + "x" * 5000, "0." + "1" * 5000, "[1," + "2," * 5000, '"' + "é" * 2500):
        path.write_text(f'["short",\n{element}')
        with pytest.raises(InputError, match=r"x\.json row 2 \(line 2\): a record is longer than max_record_bytes"):
            list(jsonstream.array(str(path), 1000))


def test_the_limit_is_an_option_that_every_piece_has(tmp_path: Path) -> None:
    assert CleanConfig(root="x", raw="y").max_record_bytes == limits.RECORD_BYTES == 64 << 20
    (tmp_path / "x.jsonl").write_text("{}\n" * 4)
    slices = Slicing(3, 0).cut(FileSlice("x.jsonl", str(tmp_path / "x.jsonl"), size=12, longest=5), 1)
    assert [one.longest for one in slices] == [5] * 4
    with pytest.raises(UsageError, match=r"max_record_bytes: out of range; got 0"):
        CleanConfig(root="x", raw="y", max_record_bytes=0)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "bcd", None, ""],
        [["a", "bb"], None, [], ["ccc"]],
        [{"x": "abc", "y": ["d"]}, None, {"x": "", "y": []}],
        [[{"x": "abc"}, {"x": None}], []],
    ],
)
def test_bytes_of_a_row_are_those_of_its_texts(values: list[Any]) -> None:
    def size(value: Any) -> int:
        if isinstance(value, dict):
            value = list(value.values())
        return sum(map(size, value)) if isinstance(value, list) else len(value or "")

    for column in (pa.array(values), pa.array([*values, *values]).slice(len(values))):
        assert limits.row_bytes(column).tolist() == list(map(size, values))
    if isinstance(values[0], str):
        assert limits.row_bytes(pa.array(values).dictionary_encode()).tolist() == list(map(size, values))


def test_rows_are_taken_together_up_to_the_bytes_of_a_batch() -> None:
    assert limits.stretches(np.array([1, 2, 3, 100, 1, 1, 0]), 5) == [(0, 2), (2, 1), (3, 1), (4, 3)]
    assert limits.stretches(np.array([], np.int64), 5) == []


def test_rows_of_parquet_are_the_same_in_batches_of_any_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    texts = ["x" * int(size) for size in rng.integers(0, 300, 500)]
    column = [[texts[n], texts[n // 7]] for n in range(500)]
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        path = tmp_path / f"{codec}.parquet"
        pq.write_table(
            pa.table({"a": column, "b": texts}), path, compression=codec, row_group_size=130, data_page_size=500
        )
        for most, size in ((1024, 8 << 20), (7, 1 << 20), (1024, 1000), (1024, 1)):
            with open_parquet(str(path)) as file:
                found = list(parquet_batches(str(path), file, None, None, most, size))
            assert pa.Table.from_batches(found)["b"].to_pylist() == texts


# --- archives -------------------------------------------------------------------------------------------------------


def unpacked(data: bytes, tmp_path: Path, pattern: str = "**") -> dict[str, int]:
    sizes = {}

    @contextmanager
    def create(name: str) -> Iterator[Path]:
        yield tmp_path / "out"
        sizes[name] = (tmp_path / "out").stat().st_size

    archive.unpack(io.BytesIO(data), "x.tar", [pattern], 0, create)
    return sizes


def sparse(size: int, form: str) -> bytes:
    """A tar archive whose one member, ``a.txt``, is a hole of this size."""
    info = tarfile.TarInfo("a.txt")
    data = b""
    if form == "gnu":
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[156:157] = tarfile.GNUTYPE_SPARSE
        header[386:410] = b"%011o\0%011o\0" % (size, 0)
        header[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        data = bytes(header)
    else:
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(size)}
        info.pax_headers |= {"GNU.sparse.map": f"{size},0", "GNU.sparse.numblocks": "1"}
        data = info.tobuf(tarfile.PAX_FORMAT)
    return data + bytes(10_240 - len(data))


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_sparse_member_is_refused_where_it_is_wanted(tmp_path: Path, form: str) -> None:
    data = sparse(1 << 40, form)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(member.size, member.issparse()) for member in tar] == [(1 << 40, True)]
    with pytest.raises(InputError, match=r"x\.tar: .*sparse file; got 'a\.txt'"):
        unpacked(data, tmp_path)
    assert unpacked(data, tmp_path, "*.json") == {}
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(InputError, match=r"x\.tar member 'a\.txt': a member is sparse"):
        list(readers.tar_members(FileSlice("x.tar", str(tmp_path / "x.tar")), lambda name: True))


def packed(kind: str, name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_member_that_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    import shutil

    data = packed(kind, "a.txt", bytes(5 * MB))
    assert unpacked(data, tmp_path) == {"a.txt": 5 * MB}
    (tmp_path / "out").unlink()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 * MB - 1))
    with pytest.raises(StorageError, match=r"x\.tar member 'a\.txt': no space left.*expected 5242880 bytes"):
        unpacked(data, tmp_path)
    assert not (tmp_path / "out").exists() or not (tmp_path / "out").stat().st_size


def test_a_member_of_an_archive_that_is_a_record_has_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(packed("tar", "a.txt", bytes(1001)))
    piece = FileSlice(path.name, str(path), longest=1001)
    assert list(readers.tar_members(piece, lambda name: True)) == [("a.txt", bytes(1001))]
    with pytest.raises(
        InputError, match=r"x\.tar\.gz member 'a\.txt': a member is longer than max_record_bytes; got 1001"
    ):
        list(readers.tar_members(FileSlice(path.name, str(path), longest=1000), lambda name: True))


def test_a_header_of_a_tar_is_not_read_into_memory_whatever_it_says(tmp_path: Path) -> None:
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
        info = tarfile.TarInfo("a")
        info.type, info.size = kind, 64 * MB
        with pytest.raises(InputError, match=r"x\.tar: not a complete tar or zip archive; got a header of more than"):
            unpacked(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(64 * MB), 1), tmp_path)


def test_what_asks_for_much_memory_to_be_decompressed_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 * MB}]
    (tmp_path / "x.jsonl.xz").write_bytes(lzma.compress(b"{}\n", filters=filters))
    with pytest.raises(InputError, match=r"x\.jsonl\.xz: needs too much memory to decompress"):
        one(tmp_path / "x.jsonl.xz", readers.read, 1000)


@pytest.mark.parametrize(("packing", "name"), [(bz2.compress, "x.jsonl.bz2"), (lzma.compress, "x.jsonl.xz")])
def test_a_damaged_stream_behind_another_is_not_taken_for_the_end(
    tmp_path: Path, packing: Callable[[bytes], bytes], name: str
) -> None:
    path = tmp_path / name
    streams = [packing(b'{"a": 1}\n'), packing(b'{"a": 2}\n')]
    path.write_bytes(b"".join(streams))
    assert len(one(path, readers.read, 1000)) == 2
    for second in (b"?" + streams[1][1:], streams[1][:5], b"rest"):
        path.write_bytes(streams[0] + second)
        with pytest.raises(InputError, match="is damaged or cut"):
            one(path, readers.read, 1000)


# --- columns of one name --------------------------------------------------------------------------------------------


def test_a_column_that_is_read_and_there_twice_is_refused(tmp_path: Path) -> None:
    csv_file, parquet = tmp_path / "x.csv", tmp_path / "x.parquet"
    csv_file.write_text("a,q,a\n1,2,3\n")
    pq.write_table(pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"]), pa.array(["3"])], ["a", "q", "a"]), parquet)
    for path in (csv_file, parquet):
        with pytest.raises(InputError, match=rf"{path.name}: column 'a' exists 2 times; got a, q, a; expected once"):
            one(path, readers.read, 1000)
    csv_file.write_text("a,q,q\n1,2,3\n")
    pq.write_table(pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"]), pa.array(["3"])], ["a", "q", "q"]), parquet)
    for path in (csv_file, parquet):
        assert [record["a"] for _, record in one(path, readers.read, 1000)] == ["1"]
