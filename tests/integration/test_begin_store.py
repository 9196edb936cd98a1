"""``pairmill init`` of data in a bucket: its files are looked at there, and the description names them by URI."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from pairmill import storage
from pairmill.interface.command import run

ROWS = [(f"frage {n}?", f"größer {n}") for n in range(20)]


@pytest.mark.parametrize("kind", ["jsonl", "db"])
def test_data_in_a_bucket_becomes_rows(
    kind: str, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "db":
        with closing(sqlite3.connect(tmp_path / "a.db")) as made:
            made.execute("CREATE TABLE pairs (question TEXT, answer TEXT)")
            made.executemany("INSERT INTO pairs VALUES (?, ?)", ROWS)
            made.commit()
        data = (tmp_path / "a.db").read_bytes()
    else:
        data = "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in ROWS).encode()
    storage.store_for(s3).write(f"{s3}/mine/deep/a.{kind}", data)
    assert run(["init", f"{s3}/mine"]) == 0
    assert f"{len(ROWS)} of {len(ROWS)} records make rows" in capsys.readouterr().out
    assert yaml.safe_load(Path("mine.yaml").read_text())["files"] == f"{s3}/mine/deep/a.{kind}"
    assert run(["clean", "sources=mine.yaml", "root=root", "workers=1"]) == 0
    (path,) = (tmp_path / "root" / "clean").glob("*/data/mine.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["instruction"], row["response"]) for row in rows] == ROWS
