"""Requests of near deduplication: they grow with the slices, not with slices times parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairmill.engine import shuffle
from pairmill.stages.curate.near import core
from pairmill.stages.curate.near.core import NearInput
from pairmill.stages.curate.near.settings import NearSettings
from tests.support import curated_rows
from tests.support.counted_store import counted
from tests.support.near_rounds import Found, run, slices_of, table_bytes

ROWS = 40
"""Of a slice."""


def requested(folder: Path, slices: int) -> tuple[float, Found]:
    """Requests for each slice, and what was found."""
    made = list(curated_rows.generated(slices * ROWS, 7, curated_rows.Shares(templates=20, edits=10), length=20))
    files = [
        curated_rows.write(folder / f"{slices}-{at:04}.parquet", made[at * ROWS : (at + 1) * ROWS])
        for at in range(slices)
    ]
    given = NearInput(NearSettings(), [piece for path in files for piece in slices_of(path)])
    (folder / "bucket").mkdir(exist_ok=True)
    with counted(folder) as store:
        found = run(given, f"s3://bucket/{slices}-{shuffle._FEW}")
        return store.requests.total() / slices, found


def test_requests_of_a_slice_stay_the_same_when_rows_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A few thousandths of what is shipped, so that a slice of 40 rows has as many cells as one of a million.
    monkeypatch.setattr(core, "_KEYS", 2_000)
    monkeypatch.setattr(core, "_GROUP", 30_000)
    monkeypatch.setattr(core, "_MOST_GROUP", 30_000)
    for name, value in {
        "_FEW": 64,
        "_BLOCK": 400_000,
        "_CHUNK": 12_000,
        "_FILE": 800_000,
        "_PER_REQUEST": 6_000,
    }.items():
        monkeypatch.setattr(shuffle, name, value)
    few, _ = requested(tmp_path, 16)
    many, found = requested(tmp_path, 48)
    monkeypatch.setattr(shuffle, "_FEW", 1 << 40)
    straight, same = requested(tmp_path, 48)
    assert {task: table_bytes(table) for task, table in found.tasks.items()} == {
        task: table_bytes(table) for task, table in same.tasks.items()
    }
    assert many < 1.15 * few
    assert straight > 1.5 * many
