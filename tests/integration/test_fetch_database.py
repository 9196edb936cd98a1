"""Rows of a database on a server: fetched once, locked by what came, and asked for again by ``update=`` alone.

SQLite's ADBC driver stands in for a server's, which has the same interface.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.errors import PairmillError, StorageError, UsageError
from pairmill.sources.files import databases
from pairmill.sources.language import mapped
from tests.support import tools
from tests.support.stages.fetching import clean, fetch, fetched

ROWS = [(n, f"frage {n}", f"größer {n}") for n in range(2000)]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(databases.DRIVERS, "file", "adbc_driver_sqlite")
    change(tmp_path, "CREATE TABLE pairs (id INTEGER PRIMARY KEY, q TEXT, a TEXT)")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as made:
        made.executemany("INSERT INTO pairs VALUES (?, ?, ?)", reversed(ROWS))
        made.commit()
    return described(tmp_path)


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as made:
        made.execute(statement)
        made.commit()


def described(folder: Path, **keys: str) -> Path:
    lines = {
        "name": "faq",
        "database": f"file://{folder}/shop.db",
        "query": "SELECT q, a FROM pairs ORDER BY id",
        "condition": "direct",
        "instruction": "q",
        "response": "a",
    }
    return tools.write_text(folder / "faq.yaml", yaml.safe_dump(lines | keys))


def test_rows_are_fetched_once_and_locked_by_what_came(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = fetch(root, str(source))
    assert list(fetched(first, "faq")) == ["train.parquet"]
    rows = clean(root, first.uri, str(source))["data/faq.jsonl"].decode().splitlines()
    assert len(rows) == len(ROWS)
    assert rows[7] == '{"condition":"direct","instruction":"frage 7","response":"größer 7"}'
    change(tmp_path, "DELETE FROM pairs WHERE id = 7")
    again = fetch(root, str(source))
    assert (again.reused, again.uri) == (True, first.uri), "nothing is asked for a second time"
    tools.remove(root / "raw")
    tools.remove(root / "fetch")
    with pytest.raises(PairmillError, match=r"other rows than it gave when they were locked.*update=faq"):
        fetch(root, str(source))
    third = fetch(root, str(source), update=["faq"])
    assert third.uri != first.uri
    assert len(clean(root, third.uri, str(source))["data/faq.jsonl"].splitlines()) == len(ROWS) - 1


def test_the_first_rows_alone(source: Path, tmp_path: Path) -> None:
    result = fetch(tmp_path / "root", str(source), limit=10)
    assert list(fetched(result, "faq")) == ["first-10-of-train.parquet"]
    assert len(clean(tmp_path / "root", result.uri, str(source))["data/faq.jsonl"].splitlines()) == 10


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"query": "SELECT q FROM missing ORDER BY 1"}, "the query fails"),
        ({"query": "SELECT q, a FROM pairs WHERE id < 0 ORDER BY id"}, "the query gives no row"),
    ],
)
def test_a_query_that_gives_nothing_is_an_input_error(
    keys: dict[str, str], said: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(PairmillError, match=said) as caught:
        fetch(tmp_path / "root", str(described(tmp_path, **keys)))
    assert caught.value.exit_code == 3


def test_a_database_that_does_not_answer_is_a_storage_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PairmillError, match="does not answer") as caught:
        fetch(tmp_path / "root", str(described(tmp_path, database=f"file://{tmp_path}/none/shop.db?mode=ro")))
    assert caught.value.exit_code == StorageError.exit_code


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"database": "postgresql://me:secret@db/shop"}, "has a password"),
        ({"database": "mysql://db/shop"}, "expected postgresql://"),
        ({"database": "shop.db"}, "of a SQLite file write files: and query:"),
        ({"query": "SELECT q FROM pairs"}, "does not say the order"),
        ({"files": "a.jsonl"}, "database: already says where the data is"),
        ({"query": None}, "nothing says which rows"),
    ],
)
def test_a_database_that_is_not_described_well_is_refused(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = described(tmp_path, **{"database": "postgresql://me@db/shop", **keys})
    if keys.get("query", "") is None:
        tools.write_text(path, "".join(line for line in path.read_text().splitlines(True) if "query" not in line))
    with pytest.raises(UsageError) as caught:
        mapped.load(str(path))
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_driver_that_is_not_installed_says_what_installs_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(databases.DRIVERS, "file", "adbc_driver_nothing")
    with pytest.raises(PairmillError, match="pip install adbc-driver-nothing") as caught:
        fetch(tmp_path / "root", str(source))
    assert caught.value.exit_code == UsageError.exit_code
