"""What the rounds of curate learn: what they found, and the verdicts that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.engine.stage import ShardRecord
from pairmill.rowstage import Findings
from pairmill.stages.curate.exact import ExactFound
from pairmill.stages.curate.near.index import NearFound


@dataclass(frozen=True)
class Looked:
    """What rounds 1 to 3 learned.

    Args:
        counts: rows of each slice.
        exact: what exact deduplication found.
        exact_records: of its shards.
        leaks: records of the shard that built the index of benchmarks.
        scores: records by scorer's name and number of the slice.
    """

    counts: list[int]
    exact: ExactFound
    exact_records: list[ShardRecord]
    leaks: list[ShardRecord]
    scores: dict[str, dict[int, ShardRecord]]


@dataclass(frozen=True)
class CurateFindings(Findings):
    """Verdicts, and what they follow from.

    Args:
        looked: what rounds 1 to 3 learned.
        near: what near deduplication found.
        decisions: the records of ``Decide``, of each training task.
    """

    looked: Looked
    near: NearFound
    decisions: list[ShardRecord]
