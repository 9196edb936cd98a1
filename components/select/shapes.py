"""What the rooms of select hand to one another: blocks of rows, their keys, and what was chosen of them.

Rows are always in rank order: tasks by code point, rows by number. A row's place in a block, and a block's number, are
thus the tie-breaker of every choice: the smaller row id wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.stage import ShardRecord

OUTSIDE: Final = 255
"""The code of a row that was taken, but goes because it is outside the bounds of dsir_then_filter."""
MAX_GROUPS: Final = 100_000
"""Distinct values of group_by; more are refused."""


@dataclass(frozen=True)
class Looked:
    """What the attributes of consecutive rows say (``attributes.read``).

    Args:
        passes: whether the row is within all bounds of ``attributes.where``; bool [rows].
        values: of ``attributes.score``, in its order; NaN = null. float64 [terms, rows]. A date is its age in years.
        groups: codes into ``names``; int32 [rows]. All 0 without group_by.
        names: of the groups that occur; [""] without group_by.
    """

    passes: NDArray[np.bool_]
    values: NDArray[np.float64]
    groups: NDArray[np.int32]
    names: list[str]


@dataclass(frozen=True)
class Scale:
    """Mean and deviation by group, to which values are scaled; deviation 0 gives 0.

    Args:
        mean: float64 [terms, groups].
        deviation: float64 [terms, groups].
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """All groups, by code point; a row's code is its group's place.

    Args:
        names: of the groups.
        rows: candidates of each.
        tokens: response tokens of the candidates of each; empty if tokens are not counted.
        scale: of the terms of ``attributes.score``.
    """

    names: list[str]
    rows: list[int]
    tokens: list[int] = field(default_factory=list)
    scale: Scale | None = None


@dataclass(frozen=True)
class Ranking:
    """An order of all candidates, of which the best are taken: one for each target, or one for score and hybrid.

    Args:
        name: of the target; "attributes" or "hybrid" for a score.
        share: of the budget, of all rankings 1 together.
    """

    name: str
    share: float


@dataclass(frozen=True)
class Budget:
    """How much is chosen; exactly one of both.

    Args:
        rows: how many rows.
        tokens: how many response tokens; the row that reaches them is taken.
    """

    rows: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class KeyedBlock:
    """The keys of a block of rows: what choose reads, ``np.save`` files of two records, one value a row.

    ``key<n>.npy``   float64: key of ranking n, the larger the better; NaN = no candidate
    ``uniform.npy``  float64: Gumbel with salt "uniform"; NaN = no candidate
    ``group.npy``    uint32: code of the group; absent if there is one group
    ``tokens.npy``   uint32: response tokens; absent unless they are counted
    ``passes.npy``   bool: within ``attributes.where``; only of dsir_then_filter

    Args:
        number: of the block; blocks are in rank order.
        rows: of the block.
        candidates: how many keys are not NaN.
        record: of the shard that made keys.
        scored: of the shard that made the rest.
    """

    number: int
    rows: int
    candidates: int
    record: ShardRecord
    scored: ShardRecord

    def uri(self, name: str) -> str:
        """The place of a file, by its name without ``.npy``."""
        made_here = name == "uniform" or name.startswith("key")
        return (self.record if made_here else self.scored).uri(f"{name}.npy")


@dataclass(frozen=True)
class Span:
    """Rows of a task that are in one block: rows [start, stop) of the block, the task's rows from ``first``."""

    block: int
    start: int
    stop: int
    first: int

    def pieces(self, most: int = 1 << 19) -> list[Span]:
        """The same rows in spans of at most a given number of rows: what is known of a row takes a hundred bytes."""
        found = [
            Span(self.block, at, min(at + most, self.stop), self.first + at - self.start)
            for at in range(self.start, self.stop, most)
        ]
        return found or [self]


@dataclass
class Chosen:
    """The data of the record of ``choose``, whose files are ``chosen<block>.npy`` and ``uniform<block>.npy``.

    ``chosen<block>.npy``   uint8 [rows]: 0 = not chosen, n + 1 = taken by ranking n, 255 = taken, but outside the
                            bounds of dsir_then_filter, so that it goes
    ``uniform<block>.npy``  uint8 [rows]: in how many uniform samples the row is. There is one for each ranking, of as
                            many candidates as the ranking took, those with the largest draws: the smaller is a part of
                            the larger. Of sizes from large to small, sample n holds the rows with a number > n.

    Args:
        rows: taken by each ranking.
        tokens: of them, by ranking; 0 if not counted.
        digests: by block, hexadecimal, of ``chosen<block>.npy``; the key of what is written follows from it.
        by_group: digest of ``groups.json``, hexadecimal.
        spent: how much of the budget was taken, in its unit.
        outside: rows that were taken, but go for the bounds of dsir_then_filter; they are not counted above.
        overlap: of each two rankings, the rows that both would take if each chose alone from all candidates; on the
            diagonal, what one would take. Empty with one ranking.
    """

    rows: list[int]
    tokens: list[int]
    digests: list[str] = field(default_factory=list)
    by_group: str = ""
    spent: int = 0
    outside: int = 0
    overlap: list[list[int]] = field(default_factory=list)


@dataclass
class ByGroup:
    """What was taken of each group: ``groups.json`` of choose. There may be very many groups.

    Args:
        names: of the groups.
        thresholds: by ranking and group, the least key that was taken; null if none was.
        rows: taken of each.
        tokens: of them; 0 if not counted.
        asked: part of the budget of each by the rule alone, in its unit.
        quotas: of each, which is not above what it has.
    """

    names: list[str]
    thresholds: list[list[float | None]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    quotas: list[int] = field(default_factory=list)


def spans_by_task(
    blocks: Sequence[Sequence[tuple[str, int, int]]],
) -> Mapping[str, list[Span]]:
    """Where the rows of each task are.

    Args:
        blocks: the slices of each block, in order: task, first row in the task, rows.
    """
    found: dict[str, list[Span]] = {}
    for number, slices in enumerate(blocks):
        at = 0
        for task, first, rows in slices:
            spans = found.setdefault(task, [])
            if spans and spans[-1].block == number and spans[-1].stop == at:
                spans[-1] = Span(number, spans[-1].start, at + rows, spans[-1].first)
            else:
                spans.append(Span(number, at, at + rows, first))
            at += rows
    return found
