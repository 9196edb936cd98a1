"""What becomes of rows that several operations find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine.writer import Writer
from pairmill.formats import decisions
from pairmill.stages.curate import operations
from pairmill.stages.curate.decide import TALLY, Decide, Decided
from pairmill.stages.curate.operation import TaskFindings
from pairmill.stages.curate.tallies import Tally


@dataclass(frozen=True)
class Found:
    """Findings as the operations store them: (ordinal, rule, other task)."""

    found: tuple[tuple[int, str, str | None], ...]

    def identify(self) -> object:
        return self.found

    def read(self) -> pa.Table:
        ordinals, rules, others = zip(*self.found, strict=True)
        columns = {
            "ordinal": ordinals,
            "rule": rules,
            "action": ["drop"] * len(rules),
            "other_task": others,
            "other_ordinal": [None if one is None else 0 for one in others],
        }
        return decisions.table_of(columns, len(rules))


def asked(
    operation: str, *found: tuple[int, str], reports: bool = False, acts: str = "drop", other: str | None = None
) -> TaskFindings:
    rules = dict.fromkeys((rule for _, rule in found if rule != "info"), acts)
    rows = Found(tuple((ordinal, rule, other) for ordinal, rule in found))
    known = operations.of_folder(operation)
    return TaskFindings(
        operation, rules, reports, known.reasons, decisions=rows, changes=known.changes, by_source=operation == "near"
    )


def decide(
    folder: Path, *findings: TaskFindings, report_all: bool = False
) -> tuple[Decided, dict[str, list[Any]], Tally]:
    shard = Decide("web__x.jsonl", "web", (0, 10), findings, report_all, name="decide")
    result = shard.run(None, Writer(str(folder)))
    found = {
        path.parent.name: [(row["ordinal"], row["rule"], row["action"]) for row in pq.read_table(path).to_pylist()]
        for path in (folder / "decisions").rglob("*.parquet")
    }
    return Decided(**result.data), found, Tally.load((folder / TALLY).read_bytes())


def test_the_first_operation_that_drops_a_row_owns_it(tmp_path: Path) -> None:
    decided, found, _ = decide(tmp_path, asked("exact", (1, "pair")), asked("near", (1, "strong"), (2, "strong")))
    assert (decided.rows, decided.kept, decided.dropped) == (10, 8, {"dup_exact": 1, "dup_near": 1})
    assert found == {"exact": [(1, "pair", "drop")], "near": [(2, "strong", "drop")]}


def test_modes_count_the_same(tmp_path: Path) -> None:
    findings = [("exact", [(1, "pair"), (1, "info")]), ("near", [(1, "strong"), (2, "strong"), (2, "weak")])]
    counts = []
    for reports in (False, True):
        operations = [asked(name, *some, reports=reports) for name, some in findings]
        decided, _, tally = decide(tmp_path / str(reports), *operations)
        counts.append(
            {name: {rule: sum(one["web"].values()) for rule, one in some.items()} for name, some in tally.rules.items()}
        )
        assert decided.kept == (10 if reports else 8)
    assert counts[0] == counts[1] == {"exact": {"pair": 1, "info": 1}, "near": {"strong": 1, "weak": 1}}


def test_what_only_informs_owns_no_row(tmp_path: Path) -> None:
    decided, found, _ = decide(tmp_path, asked("near", (3, "info")), asked("filter", (3, "long")))
    assert decided.dropped == {"filter:long": 1}
    assert found["near"] == [(3, "info", "report")]


def test_a_report_before_a_drop_takes_nothing_from_it(tmp_path: Path) -> None:
    decided, found, _ = decide(tmp_path, asked("near", (3, "strong"), reports=True), asked("filter", (3, "long")))
    assert decided.dropped == {"filter:long": 1}
    assert found == {"near": [(3, "strong", "report")], "filter": [(3, "long", "drop")]}


def test_one_row_is_dropped_once_by_an_operation(tmp_path: Path) -> None:
    decided, found, _ = decide(tmp_path, asked("heuristics", (4, "a"), (4, "b")))
    assert decided.dropped == {"heuristic:a": 1}
    assert found["heuristics"] == [(4, "a", "drop"), (4, "b", "report")]


def test_all_operations_report_every_row_if_asked(tmp_path: Path) -> None:
    operations = [asked("exact", (1, "pair")), asked("near", (1, "strong"))]
    decided, found, _ = decide(tmp_path, *operations, report_all=True)
    assert (decided.kept, decided.dropped) == (10, {})
    assert found == {"exact": [(1, "pair", "report")], "near": [(1, "strong", "report")]}


def test_what_repeats_a_held_out_row_has_a_reason_of_its_own(tmp_path: Path) -> None:
    decided, *_ = decide(tmp_path, asked("near", (1, "strong"), other="holdout/web__x.jsonl"))
    assert decided.dropped == {"held_out": 1}


def test_redaction_keeps_rows_and_says_every_kind(tmp_path: Path) -> None:
    decided, found, _ = decide(tmp_path, asked("pii", (1, "EMAIL"), (1, "IP"), acts="redact"))
    assert decided.kept == 10
    assert found["pii"] == [(1, "EMAIL", "redact"), (1, "IP", "redact")]


def test_near_removals_are_counted_by_both_sources(tmp_path: Path) -> None:
    *_, tally = decide(tmp_path, asked("near", (1, "strong"), (2, "strong"), other="gold.jsonl"))
    assert tally.matrix == {"web": {"gold": 2}}
