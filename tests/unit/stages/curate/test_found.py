"""What operations that compare rows have found, as near deduplication reads it of one slice after another."""

from pathlib import Path

import numpy as np
import pytest

from pairmill.stages.curate import found
from pairmill.stages.curate.exact_settings import KINDS
from pairmill.stages.curate.found import DROP, DroppedRows, Place, Stored
from tests.support.objectstores.counted import counted

ROWS = 40_000
SLICE = 1003
"""Rows; not a multiple of 8, so that slices begin and end within a byte."""
PLACES = [Place("b", 0), Place("b", ROWS // 2), Place("a", 0)]


def findings(count: int) -> np.ndarray:
    """On rows of both slices of task b, by two of the three rules, some rows by both."""
    random = np.random.default_rng(3)
    rows = np.zeros(count, DROP)
    ordinals = np.sort(random.choice(ROWS, count, replace=False)).astype(np.uint64)
    rows["row"] = ordinals // (ROWS // 2) << 32 | ordinals % (ROWS // 2)
    rows["other"] = random.integers(0, 3, count) << 32 | random.integers(0, ROWS // 2, count)
    rows["rule"], rows["score_r"] = random.choice([0, 2], count), np.nan
    some = rows[::7].copy()
    some["rule"] = 2 - some["rule"]
    return np.sort(np.concatenate([rows, some]), order=["row", "rule"])


@pytest.mark.parametrize("count", [3, 12_000])
def test_slices_of_a_task_read_their_own_rows_and_no_others(count: int, tmp_path: Path) -> None:
    ((task, rows),) = found.by_task(findings(count), PLACES)
    assert task == "b"
    (tmp_path / "bucket").mkdir()
    with (tmp_path / "bucket" / "found").open("wb") as file:
        file.write(b"of another task")
        stored = Stored("s3://bucket/found", *found.write(file, rows, PLACES, KINDS))
    ordinals = (rows["row"] >> 32) * (ROWS // 2) + (rows["row"] & 0xFFFFFFFF)
    expected = {name: set(ordinals[rows["rule"] == rule].tolist()) for rule, name in enumerate(KINDS)}
    assert stored.rows.keys() == {name for name, mine in expected.items() if mine} == {KINDS[0], KINDS[2]}
    with counted(tmp_path) as store:
        for rules in ([KINDS[0]], [KINDS[2], KINDS[0]]):
            before = store.received
            wanted = set.union(*(expected[rule] for rule in rules))
            for first in range(0, ROWS, SLICE):
                part = DroppedRows.from_decisions(stored, rules, first, min(SLICE, ROWS - first))
                assert part.rows().tolist() == sorted(row - first for row in wanted if first <= row < first + SLICE)
            assert store.received - before <= len(rules) * (ROWS // 8 + 2 * ROWS // SLICE)


def test_decisions_are_written_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, data = [], []
    for number, most in enumerate((1 << 20, 1000)):
        monkeypatch.setattr(found, "_ROWS", most)
        path = tmp_path / f"found{number}"
        with path.open("wb") as file:
            data.append(found.write(file, findings(12_000), PLACES, KINDS))
        tables.append(Stored(str(path), *data[-1]).read())
    whole, parts = tables
    assert parts["rule"].num_chunks > 10 > whole["rule"].num_chunks
    assert parts == whole
    assert [row for row in whole.to_pylist()[:5] if row["other_task"] in {"a", "b"} and row["score_i"] == 0.0]
    assert data[0][1] == data[1][1]
