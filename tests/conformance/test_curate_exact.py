"""Exact duplicates of the recorded rows: the best-ranked row of each group stays, and it is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.support.stages.curating import curate, decisions, manifest


def test_of_each_group_of_equal_rows_the_first_stays(shared: Path, tmp_path: Path) -> None:
    folder = shared / "conformance/curate/dedup"
    rows = tmp_path / "rows"
    rows.mkdir()
    for path in folder.glob("[123]_*.parquet"):
        (rows / path.name).symlink_to(path)
    made = curate(tmp_path / "root", sorted(rows.iterdir()), "near: off\nheuristics: off\n")
    truth = pq.read_table(folder / "truth.parquet", columns=["row_id", "exact_pair", "kind"]).to_pylist()
    first: dict[str, str] = {}
    expected = {
        one["row_id"]: first[one["exact_pair"]]
        for one in truth
        if first.setdefault(one["exact_pair"], one["row_id"]) != one["row_id"]
    }
    assert {one["kind"] for one in truth if one["row_id"] in expected} >= {"exact", "light"}
    found = {
        f"{task}:{one['ordinal']}": f"{one['other_task']}:{one['other_ordinal']}"
        for task in sorted(path.name for path in rows.iterdir())
        for one in decisions(made, "exact", task)
        if one["rule"] == "pair"
    }
    assert found == expected
    assert manifest(made).ledger.dropped == {"dup_exact": len(expected)}
    keeping = set(expected.values())
    assert not keeping & set(expected)
