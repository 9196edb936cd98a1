"""Arrow files, databases and workbooks as raw data, beside the programs that write them."""

from __future__ import annotations

import io
import random
import sqlite3
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest

from pairmill.errors import PairmillError
from pairmill.formats.limits import EXPANDED_BYTES, RECORD_BYTES
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.sources.files.card import READABLE
from pairmill.sources.files.databases import checked_query
from pairmill.sources.files.readers import READERS
from pairmill.sources.language import mapped
from pairmill.sources.parsed import TOO_LONG
from tests.support import tools

QUERY = "SELECT * FROM pairs ORDER BY id"


def described(folder: Path, file: str, **keys: str) -> Any:
    """The source of one file beside its description."""
    lines = {"name": "mine", "files": file, "condition": "direct", "instruction": "q", "response": "a", **keys}
    path = tools.write_text(folder / "mine.yaml", "".join(f"{key}: {value}\n" for key, value in lines.items()))
    return mapped.load(str(path))


def read(folder: Path, file: str, longest: int = RECORD_BYTES, *, aside: bool = False, **keys: str) -> list[Any]:
    """The records of a file."""
    path = folder / file
    piece = FileSlice(file, str(path), size=path.stat().st_size, longest=longest, aside=aside)
    return [record for _, record in described(folder, file, **keys).read(piece, "pairmill")]


def refused(folder: Path, file: str, **keys: str) -> PairmillError:
    with pytest.raises(PairmillError) as caught:
        read(folder, file, **keys)
    return caught.value


def test_every_kind_has_one_reader() -> None:
    assert set(READERS) == set(READABLE)


# --- Arrow ----------------------------------------------------------------------------------------------------------


def table(rows: int, seed: int = 0) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "q": [f"question {n} " + "x" * draw.randrange(50) for n in range(rows)],
            "a": [draw.choice([None, "", "größer", "y" * 99]) for _ in range(rows)],
            "of": pa.array([draw.choice("abc") for _ in range(rows)]).dictionary_encode(),
            "deep": [[{"role": "user", "content": str(n)}] * draw.randrange(3) for n in range(rows)],
        }
    )


def arrow_file(content: pa.Table, kind: str, rows: int = 7, compression: str | None = None) -> bytes:
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(out, content.schema, options=options) as writer:
        writer.write_table(content, max_chunksize=rows)
    return out.getvalue()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_arrow_gives_the_rows_that_pyarrow_gives(tmp_path: Path, kind: str, compression: str | None) -> None:
    content = table(60)
    (tmp_path / "a.arrow").write_bytes(arrow_file(content, kind, compression=compression))
    assert read(tmp_path, "a.arrow") == content.select(["q", "a"]).to_pylist()
    assert read(tmp_path, "a.arrow", where="of == 'a'") == content.select(["q", "a", "of"]).to_pylist()


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("size", [1, 300, 1000, 10**9])
def test_slices_of_arrow_give_its_rows_once_at_their_places(tmp_path: Path, kind: str, size: int) -> None:
    content = table(90).drop_columns(["of"])
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_file(content, kind))
    source = described(tmp_path, "a.arrow")
    whole = FileSlice("a.arrow", str(path), size=path.stat().st_size)
    pieces = Slicing(size, open_from=0).cut(whole)
    assert len(pieces) in {1: [13], 10**9: [1]}.get(size, range(2, 14))
    records = [record for piece in pieces for record in source.read(piece, "pairmill")]
    assert records == list(enumerate(content.select(["q", "a"]).to_pylist()))
    if len(pieces) > 2:
        data = bytearray(path.read_bytes())
        data[pieces[1].start + (pieces[1].size // 2)] ^= 1
        path.write_bytes(data)
        with pytest.raises(PairmillError):
            list(source.read(pieces[1], "pairmill"))


def test_what_pandas_and_datasets_write_is_read(tmp_path: Path) -> None:
    import datasets

    rows = {"q": [f"q {n}" for n in range(25)], "a": ["yes", "no", "ü", "", "x"] * 5}
    pandas.DataFrame(rows).astype({"a": "category"}).to_feather(tmp_path / "a.feather")
    expected = pa.table(rows).to_pylist()
    assert read(tmp_path, "a.feather") == expected
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved", num_shards=2)
    files = sorted(path.name for path in (tmp_path / "saved").glob("*.arrow"))
    assert len(files) == 2
    assert [record for name in files for record in read(tmp_path, f"saved/{name}")] == expected


def test_memory_follows_a_batch_and_not_the_file(tmp_path: Path) -> None:
    content = pa.table({"q": ["x" * 1000] * 20_000, "a": ["y" * 1000] * 20_000})
    (tmp_path / "a.arrow").write_bytes(arrow_file(content, "stream", rows=500))
    source = described(tmp_path, "a.arrow")
    piece = FileSlice("a.arrow", str(tmp_path / "a.arrow"), size=40_000_000)
    tracemalloc.start()
    count = sum(1 for _ in source.read(piece, "pairmill"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 8 << 20


def test_long_records_of_arrow_are_refused_or_put_aside(tmp_path: Path) -> None:
    content = pa.table({"q": ["a", "b" * 5000, "c"], "a": ["1", "2", "3"]})
    (tmp_path / "a.arrow").write_bytes(arrow_file(content, "file", rows=2))
    assert read(tmp_path, "a.arrow", 1000, aside=True)[1:] == [TOO_LONG, {"q": "c", "a": "3"}]
    with pytest.raises(PairmillError, match=r"a\.arrow row 2: a record is longer than max_record_bytes"):
        read(tmp_path, "a.arrow", 1000)


def test_a_batch_that_expands_to_too_much_is_refused_before_it_is_made(tmp_path: Path) -> None:
    content = pa.table({"q": ["x"] * 1000, "a": ["y"] * 1000})
    data = bytearray(arrow_file(content, "stream", rows=1000, compression="zstd"))
    place = data.rfind(struct.pack("<q", 4004))  # before the offsets of 1000 texts, 4 bytes each
    assert place > 0
    data[place : place + 8] = struct.pack("<q", 1 << 40)
    (tmp_path / "a.arrow").write_bytes(data)
    error = refused(tmp_path, "a.arrow")
    assert "a batch is too large" in str(error)
    assert "max_chunksize" in error.hint


@pytest.mark.parametrize("seed", range(20))
def test_damaged_arrow_files_are_input_errors(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(arrow_file(table(30), draw.choice(["stream", "file"]), compression=draw.choice([None, "zstd"])))
    if draw.random() < 0.3:
        del data[draw.randrange(len(data)) :]
    for _ in range(draw.randrange(1, 8)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    (tmp_path / "a.arrow").write_bytes(data)
    try:
        count, code = len(read(tmp_path, "a.arrow")), 3
    except PairmillError as error:
        count, code = 0, error.exit_code
    assert code == 3
    assert count <= 30


# --- SQLite ---------------------------------------------------------------------------------------------------------


def database(path: Path, rows: list[tuple[Any, ...]], *, wal: bool = False) -> sqlite3.Connection:
    made = sqlite3.connect(path)
    if wal:
        made.execute("PRAGMA journal_mode=wal")
    made.execute("CREATE TABLE pairs (id INTEGER PRIMARY KEY, q TEXT, a)")
    made.executemany("INSERT INTO pairs VALUES (?, ?, ?)", rows)
    made.commit()
    return made


def test_a_query_gives_the_rows_that_sqlite3_gives(tmp_path: Path) -> None:
    rows = [(n, f"frage {n} größer", [n, n / 2, None, "text"][n % 4]) for n in range(2500, 0, -1)]
    database(tmp_path / "a.db", rows).close()
    expected = [{"id": n, "q": q, "a": a} for n, q, a in sorted(rows)]
    assert read(tmp_path, "a.db", query=QUERY) == expected
    assert read(tmp_path, "a.db", query="SELECT q, a FROM pairs WHERE id > 2498 ORDER BY id DESC") == [
        {"q": row["q"], "a": row["a"]} for row in reversed(expected[-2:])
    ]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT * FROM pairs", "does not say the order"),
        ("SELECT * FROM (SELECT * FROM pairs ORDER BY id)", "does not say the order"),
        ("DELETE FROM pairs", "not a query that reads rows"),
        ("PRAGMA table_info(pairs)", "not a query that reads rows"),
    ],
)
def test_a_query_without_an_order_is_refused(tmp_path: Path, query: str, what: str) -> None:
    database(tmp_path / "a.db", []).close()
    error = refused(tmp_path, "a.db", query=query)
    assert error.exit_code == 2
    assert what in str(error)
    assert "query" in error.where


def test_queries_have_an_order_whatever_follows_it() -> None:
    for query in (
        "select 1 order by 1;",
        "SELECT a FROM t ORDER\nBY a LIMIT 3",
        "WITH t AS (SELECT 1) SELECT 1 ORDER BY 1",
    ):
        assert checked_query(query) == query.rstrip(";")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT * FROM missing ORDER BY 1", "no such table: missing"),
        (
            "WITH x AS (SELECT 1) DELETE FROM pairs WHERE 1 IN (SELECT 1 ORDER BY 1) RETURNING 1 ORDER BY 1",
            "the query fails",
        ),
        ("SELECT load_extension('x') ORDER BY 1", "the query fails"),
        ("SELECT 1 AS q ORDER BY 1; ATTACH '/etc/passwd' AS b", "the query fails"),
        ("SELECT id FROM pairs ORDER BY id", "column 'q' is missing"),
    ],
)
def test_a_query_reads_this_file_alone(tmp_path: Path, query: str, what: str) -> None:
    database(tmp_path / "a.db", [(1, "x", "y")]).close()
    error = refused(tmp_path, "a.db", query=query)
    assert (error.exit_code, what in str(error)) == (3, True), error
    assert read(tmp_path, "a.db", query=QUERY) == [{"id": 1, "q": "x", "a": "y"}]


def test_a_database_with_changes_beside_its_file_is_refused(tmp_path: Path) -> None:
    open_ = database(tmp_path / "a.db", [(1, "x", "y")], wal=True)
    error = refused(tmp_path, "a.db", query=QUERY)
    assert "wal_checkpoint" in error.hint
    open_.close()
    assert read(tmp_path, "a.db", query=QUERY) == [{"id": 1, "q": "x", "a": "y"}]


def test_files_that_are_no_databases_and_files_without_a_query_are_refused(tmp_path: Path) -> None:
    tools.write_text(tmp_path / "a.db", "not a database at all, but a text of some length" * 9)
    assert "not a SQLite file" in str(refused(tmp_path, "a.db", query=QUERY))
    error = refused(tmp_path, "a.db")
    assert error.exit_code == 2
    assert "query: SELECT" in error.hint


def test_long_and_broken_texts_of_a_database_spoil_themselves_alone(tmp_path: Path) -> None:
    made = database(tmp_path / "a.db", [(1, "x" * 5000, "y"), (3, "x", "y")])
    made.execute("INSERT INTO pairs VALUES (2, CAST(x'ff41' AS TEXT), 'y')")
    made.commit()
    long, broken, good = read(tmp_path, "a.db", 1000, aside=True, query=QUERY)
    assert (long, broken.reason, good["q"]) == (TOO_LONG, "invalid_utf8", "x")


# --- Excel ----------------------------------------------------------------------------------------------------------


def test_a_sheet_gives_the_rows_that_pandas_wrote(tmp_path: Path) -> None:
    rows = pandas.DataFrame({"q": ["one", "größer", None, "four"], "a": [1, 2.5, 3, 4], "b": [True, False, True, True]})
    with pandas.ExcelWriter(tmp_path / "a.xlsx") as writer:
        rows.to_excel(writer, sheet_name="Pairs", index=False)
    expected = [(row["q"], row["a"], row["b"]) for row in read(tmp_path, "a.xlsx")]
    assert expected == [("one", 1, True), ("größer", 2.5, False), (None, 3, True), ("four", 4, True)]
    with pandas.ExcelWriter(tmp_path / "a.xlsx", mode="a") as writer:
        pandas.DataFrame([["x", "y"]]).to_excel(writer, sheet_name="More", index=False, header=False)
    error = refused(tmp_path, "a.xlsx")
    assert "several sheets" in str(error)
    assert "sheet: Pairs" in error.hint
    assert len(read(tmp_path, "a.xlsx", sheet="Pairs")) == 4
    assert read(tmp_path, "a.xlsx", sheet="More", header="[q, a]") == [{"q": "x", "a": "y"}]
    assert "no sheet 'Less'" in str(refused(tmp_path, "a.xlsx", sheet="Less"))


def test_a_workbook_that_is_none_or_that_expands_too_much_is_refused(tmp_path: Path) -> None:
    tools.write_text(tmp_path / "a.xlsx", "no zip")
    assert "not a readable Excel file" in str(refused(tmp_path, "a.xlsx"))
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/sharedStrings.xml", bytes(EXPANDED_BYTES + 1))
    piece = FileSlice("a.xlsx", str(tmp_path / "a.xlsx"), size=1000, expansion=1000)
    with pytest.raises(PairmillError, match="much longer than their file"):
        list(described(tmp_path, "a.xlsx").read(piece, "pairmill"))


@pytest.mark.parametrize(
    ("file", "said"),
    [("a.html", "trafilatura"), ("a.warc.gz", "datatrove"), ("a.lance", "import lance"), ("a.xls", "save it as .xlsx")],
)
def test_pages_and_other_files_are_refused_with_what_helps(tmp_path: Path, file: str, said: str) -> None:
    with pytest.raises(PairmillError) as caught:
        described(tmp_path, file)
    assert (caught.value.exit_code, said in caught.value.hint) == (2, True)


@pytest.mark.parametrize(
    ("file", "keys"),
    [("a.arrow", {"encoding": "latin-1"}), ("a.jsonl", {"query": QUERY}), ("a.csv", {"sheet": "x"}), ("a.db", {})],
)
def test_entries_of_other_files_are_refused(tmp_path: Path, file: str, keys: dict[str, str]) -> None:
    with pytest.raises(PairmillError) as caught:
        described(tmp_path, file, **keys)
    assert caught.value.exit_code == 2


def test_another_query_or_sheet_is_another_version(tmp_path: Path) -> None:
    make: Callable[..., int] = lambda file, **keys: described(tmp_path, file, **keys).version  # noqa: E731
    assert len({make("a.db", query=QUERY), make("a.db", query=f"{QUERY} LIMIT 3")}) == 2
    assert len({make("a.xlsx"), make("a.xlsx", sheet="x"), make("a.xlsx", sheet="y")}) == 3
