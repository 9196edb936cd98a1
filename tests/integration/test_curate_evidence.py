"""Every row that goes because of another has a decision that the texts of both rows prove, and that leads to a row that
stays or that goes for what it is; `explain` follows them.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill import _native
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.near.settings import NearSettings, native
from tests.support.data.near_duplicates import generated
from tests.support.stages import curating
from tests.support.stages.curating import decisions, manifest, text
from tests.support.stages.near_in_memory import verified

POOR = "heuristics: {mode: drop, profile: none, rules: [{metric: words, field: response, min: 45, name: short}]}\n"


def columns(rows: list[tuple[str, str, str]]) -> tuple[pa.Array, pa.Array]:
    """Instructions and responses."""
    return pa.array([one[1] for one in rows]), pa.array([one[2] for one in rows])


def test_each_drop_is_proved_by_a_row_of_the_input_whatever_becomes_of_that_row(tmp_path: Path) -> None:
    made = [(row.condition, row.instruction or "", row.response or "") for row in generated(1500, seed=5)]
    files = {f"{name}.parquet": made[at::3] for at, name in enumerate("abc")}
    said = POOR + "exact: {instruction: drop, response: drop}\n"
    folder = curating.curate(tmp_path / "root", curating.write(tmp_path / "rows", files), said)
    given = {name: curating.kept(tmp_path / "rows", name) for name in files}
    gone: dict[tuple[str, int], tuple[int, tuple[str, int] | None]] = {}
    for place, operation in enumerate(("exact", "near", "heuristics")):
        for name in files:
            for one in decisions(folder, operation, name):
                if one["action"] in ("drop", "cap"):
                    assert (name, one["ordinal"]) not in gone
                    other = (one["other_task"], one["other_ordinal"]) if "other_task" in one else None
                    gone[name, one["ordinal"]] = place, other
    counts: Counter[str] = Counter()
    near: list[tuple[tuple[str, str, str], tuple[str, str, str]]] = []
    for name in files:
        for one in decisions(folder, "exact", name):
            row, other = given[name][one["ordinal"]], given[one["other_task"]][one["other_ordinal"]]
            keys = [_native.curate_exact_keys(fields(some, one["rule"]), True).tolist() for some in (row, other)]
            assert keys[0] == keys[1], one
            counts[one["rule"]] += 1
            counts["gone later"] += (one["other_task"], one["other_ordinal"]) in gone
        for one in decisions(folder, "near", name):
            if one["rule"] != "contained":
                near.append((given[name][one["ordinal"]], given[one["other_task"]][one["other_ordinal"]]))
                counts["gone later"] += (one["other_task"], one["other_ordinal"]) in gone
    found = verified(columns([a for a, _ in near]), columns([b for _, b in near]), native(NearSettings()))
    assert all(duplicate for duplicate, *_ in found)
    dropped = manifest(folder).ledger.dropped
    assert sum(dropped.values()) == len(gone)
    for place, other in gone.values():
        while other in gone:  # a later operation has removed the row that stood in the place of this one
            later, other = gone[other]
            assert later > place
            place = later
            counts["steps"] += 1
    assert counts["steps"] > 10, counts
    assert counts["instruction"] > 0
    assert min(counts["pair"], counts["response"], len(near), counts["gone later"]) > 10, (
        counts,
        dropped,
    )


def fields(row: tuple[str, str, str], rule: str) -> list[pa.Array]:
    """What an exact rule compares."""
    chosen = {"pair": row[1:], "instruction": row[1:2], "response": row[2:]}[rule]
    return [pa.array([one]) for one in chosen]


def test_explain_follows_the_row_that_stood_in_the_place_to_one_that_is_kept(tmp_path: Path) -> None:
    near = " and so on, with some more words after the last of these"
    first, second = ("", text(3), text(4) * 2), ("", text(3), text(4) * 2 + near)
    poor = ("", text(8), "too short")
    files = {"a.parquet": [first, second, second, poor, poor]}
    said = "exact: {instruction: off, response: off}\n" + POOR.replace("45", "5")
    folder = curating.curate(tmp_path / "root", curating.write(tmp_path / "rows", files), said)

    def lines(ordinal: int) -> list[str]:
        whole = explain(ExplainConfig(path=str(folder), row=f"a.parquet:{ordinal}", rows=[str(tmp_path / "rows")]))
        return whole.split("\n\n")[0].splitlines()

    assert lines(0) == ["a.parquet:0: kept"]
    assert [line.rpartition("; ")[2] for line in lines(1)] == ["a.parquet:0 is kept in its place"]
    copy, stood = lines(2)
    assert copy.endswith("(in the ledger: dup_exact); a.parquet:1 stood in its place, and was removed later")
    assert stood.startswith("  a.parquet:1: dropped by near, rule ")
    assert stood.endswith("(in the ledger: dup_near); a.parquet:0 stood in its place")
    copy, stood = lines(4)
    assert copy.endswith("a.parquet:3 stood in its place, and was removed later")
    assert stood == "  a.parquet:3: dropped by heuristics, rule short (in the ledger: heuristic:short)"
    assert pq.read_table(folder / "a.parquet").num_rows == 1
