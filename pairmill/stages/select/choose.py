"""Which rows are taken: one shard streams the keys of all blocks, and never holds all rows as objects.

A ranking takes from each group by descending key, in the order of rankings; what one took, no later one takes. Equal
keys are taken in rank order. All that a ranking decides by is a cut for each group: :mod:`pairmill.stages.select.cuts`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.stages.select import arrays, cuts, quotas, table
from pairmill.stages.select.cuts import Candidates, Cuts
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.rankings import (
    GROUP,
    PASSES,
    TOKENS,
    UNIFORM,
    Budget,
    Extremes,
    KeyRule,
    Ranking,
    ScoredRows,
)
from pairmill.stages.select.settings import Quota
from pairmill.stages.select.table import Table

GROUPS: Final = "groups.json"
OUTSIDE: Final = 255
"""The code of a row that was taken, but goes because it is outside the bounds of dsir_then_filter."""
_ROWS: Final = 1 << 18
"""Rows that are read together."""


def chosen_path(block: int) -> str:
    """Name the file of a block's codes: uint8 [rows], 0 = not chosen, n + 1 = taken by ranking n, or OUTSIDE."""
    return f"chosen{block}.npy"


def uniform_path(block: int) -> str:
    """Name the file that says in how many uniform samples each row of a block is: uint8 [rows].

    There is a sample for each ranking, of as many candidates as it took, those with the largest draws: the smaller is a
    part of the larger. Of sizes from large to small, sample n holds the rows with a number > n.
    """
    return f"uniform{block}.npy"


@dataclass
class Chosen:
    """The data of the record of Choose.

    Args:
        rows: taken by each ranking.
        tokens: of them, by ranking; 0 if not counted.
        spent: how much of the budget was taken, in its unit.
        outside: rows that were taken, but go for the bounds of dsir_then_filter; they are not counted above.
        extremes: by ranking the best and the worst rows: value, and place among all rows.
    """

    rows: list[int]
    tokens: list[int]
    spent: int = 0
    outside: int = 0
    extremes: list[dict[str, list[list[Any]]]] = field(default_factory=list)


@dataclass
class GroupCounts:
    """Rows taken of each group, in the order of the model's groups: ``groups.json`` of Choose.

    Args:
        rows: taken of each.
        tokens: of them; 0 if not counted.
        asked: part of the budget of each by the rule alone, in its unit.
        quotas: of each, which is not above what it has.
    """

    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    quotas: list[int] = field(default_factory=list)

    @classmethod
    def from_record(cls, record: ShardRecord) -> GroupCounts:
        """Read what Choose wrote."""
        uri = record.uri(GROUPS)
        return cls(**json.loads(storage.store_for(uri).read(uri)))


@dataclass(frozen=True)
class Choose(Shard[object], reads=()):
    """Takes rows.

    Args:
        blocks: records of ScoreRows in rank order.
        model: record of AddUp.
        rankings: in the order in which they take.
        rule: makes the keys.
        budget: of all rankings.
        quota: how the budget is shared out to groups.
        filters_last: whether rows outside of bounds are no candidates, or are taken and go then.
        allow_unfilled: whether the budget may be more than there is.
    """

    work = "choose rows"

    blocks: tuple[ShardRecord, ...]
    model: ShardRecord
    rankings: tuple[Ranking, ...]
    rule: KeyRule
    budget: Budget
    quota: Quota
    filters_last: bool
    allow_unfilled: bool

    def run(self, context: object, out: Writer) -> ShardResult:
        groups = Moments.load(self.model)
        moments = Moments.merge(map(Moments.load, self.blocks)) if self.rule.part else None
        if moments is not None:
            moments.save(out)
        blocks = [ScoredRows.from_record(record) for record in self.blocks]
        first = blocks[0].files
        types = {f"key{at}": "<u8" for at in range(len(self.rankings))} | {"chosen": "u1"}
        types |= {"uniform": "<u8", "samples": "u1"} if UNIFORM in first else {}
        types |= {"group": "<u4"} if GROUP in first else {}
        types |= {"tokens": "<u4"} if TOKENS in first else {}
        types |= {"passes": "?"} if PASSES in first and self.filters_last else {}
        with table.open_table(sum(map(len, blocks)), types) as rows:
            extremes = self._load(rows, blocks, moments)
            choice = Choice(self, groups.names, rows)
            choice.run()
            self._write(rows, blocks, out)
        choice.chosen.extremes = [asdict(some) for some in extremes]
        with out.create(GROUPS, scratch=True) as local:
            local.write_text(json.dumps(asdict(choice.groups), separators=(",", ":")))
        return ShardResult(Ledger(), asdict(choice.chosen))

    def _load(self, rows: Table, blocks: Sequence[ScoredRows], moments: Moments | None) -> list[Extremes]:
        """Read the arrays of all blocks once; keys become integers of the same order, 0 = not a candidate."""
        extremes = [Extremes() for _ in self.rankings]
        start = 0
        for piece in (piece for block in blocks for piece in block.cut(_ROWS)):
            passes = piece.load(PASSES)
            candidate = np.ones(len(piece), np.bool_) if passes is None or self.filters_last else passes
            places = np.flatnonzero(candidate)
            for at, seen in enumerate(extremes):
                values = self.rule.values(piece, at, moments)
                seen.add(values[candidate], start + places)
                keys = self.rule.keys(values, piece, at)
                rows.write(f"key{at}", start, np.where(candidate, cuts.to_bits(keys), np.uint64(0)))
            for name in ("uniform", "group", "tokens", "passes"):
                if name in rows:
                    column = piece.load(f"{name}.npy")
                    assert column is not None
                    bits = np.where(candidate, cuts.to_bits(column), np.uint64(0)) if name == "uniform" else column
                    rows.write(name, start, bits)
            start += len(piece)
        return extremes

    def _write(self, rows: Table, blocks: Sequence[ScoredRows], out: Writer) -> None:
        """Write what was taken, block by block."""
        start = 0
        for number, block in enumerate(blocks):
            for name, path in (("chosen", chosen_path(number)), ("samples", uniform_path(number))):
                if name in rows:
                    pieces = (rows.read(name, start + piece.start, start + piece.stop) for piece in block.cut(_ROWS))
                    arrays.save_parts(out, path, "u1", (len(block),), pieces)
            start += len(block)


class Choice:
    """The rankings' choices over a table.

    Args:
        shard: what is chosen.
        rows: the keys; its columns ``chosen`` and ``samples`` are filled.
    """

    def __init__(self, shard: Choose, names: Sequence[str], rows: Table) -> None:
        self._shard, self._names, self._rows = shard, names, rows
        self._by_tokens = shard.budget.tokens is not None
        count = len(shard.rankings)
        self.chosen, self.groups = Chosen([0] * count, [0] * count), GroupCounts()

    def run(self) -> None:
        """Take rows for one ranking after another, then draw the uniform samples."""
        total = self._shard.budget.amount
        self._refuse_more_than_there_is(total)
        shared = []
        for at, part in enumerate(amounts([ranking.share for ranking in self._shard.rankings], total)):
            have = dict(zip(self._names, self._count_left().tolist(), strict=True))
            quota = quotas.split_budget(self._shard.quota, part, have)
            shared.append(quota)
            given = np.array([quota.given[name] for name in self._names], np.int64)
            keys = partial(self._candidates, f"key{at}", by_tokens=self._by_tokens)
            self._mark("chosen", at + 1, cuts.find(keys, given), keys())
        self._count()
        for name in self._names:
            self.groups.asked.append(math.fsum(quota.asked[name] for quota in shared))
            self.groups.quotas.append(sum(quota.given[name] for quota in shared))
        if "samples" in self._rows:
            self._sample()

    def _chunks(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._rows.rows, _ROWS):
            yield start, min(start + _ROWS, self._rows.rows)

    def _candidates(
        self, column: str, *, taken: bool = False, by_tokens: bool = False, grouped: bool = True
    ) -> Iterator[Candidates]:
        """Yield the candidates with the bits of a column; those that are taken already only if ``taken``."""
        for start, stop in self._chunks():
            bits = self._rows.read(column, start, stop)
            mask = bits != 0
            if not taken:
                mask &= self._rows.read("chosen", start, stop) == 0
            count = int(mask.sum())
            groups, weights = np.zeros(count, np.int64), np.ones(count, np.int64)
            if grouped and "group" in self._rows:
                groups = self._rows.read("group", start, stop)[mask].astype(np.int64)
            if by_tokens:
                weights = self._rows.read("tokens", start, stop)[mask].astype(np.int64)
            yield Candidates(start + np.flatnonzero(mask), bits[mask], groups, weights)

    def _count_left(self) -> NDArray[np.int64]:
        """Count what each group can still give, in the unit of the budget."""
        total = np.zeros(len(self._names), np.int64)
        for some in self._candidates("key0", by_tokens=self._by_tokens):
            total += np.bincount(some.groups, some.weights, minlength=len(total)).astype(np.int64)
        return total

    def _mark(self, column: str, more: int, cut: Cuts, candidates: Iterator[Candidates]) -> None:
        """Add a number to a column of the rows that a cut takes."""
        for some in candidates:
            taken = some.positions[cut.take(some)]
            if len(taken):
                start, stop = int(taken[0]), int(taken[-1]) + 1
                values = self._rows.read(column, start, stop).copy()
                values[taken - start] += more
                self._rows.write(column, start, values)

    def _count(self) -> None:
        """Count what was taken; rows outside of bounds of dsir_then_filter are marked OUTSIDE."""
        chosen, number = self.chosen, len(self._names)
        groups, tokens = np.zeros(number, np.int64), np.zeros(number, np.int64)
        for start, stop in self._chunks():
            codes = self._rows.read("chosen", start, stop)
            if "passes" in self._rows:
                gone = (codes != 0) & ~self._rows.read("passes", start, stop)
                chosen.outside += int(gone.sum())
                codes = np.where(gone, np.uint8(OUTSIDE), codes)
                self._rows.write("chosen", start, codes)
            kept = (codes != 0) & (codes != OUTSIDE)
            group = self._rows.read("group", start, stop)[kept] if "group" in self._rows else np.zeros(kept.sum(), int)
            sizes = self._rows.read("tokens", start, stop)[kept] if "tokens" in self._rows else np.zeros(len(group))
            groups += np.bincount(group, minlength=number)
            tokens += np.bincount(group, sizes, minlength=number).astype(np.int64)
            for at in range(len(chosen.rows)):
                mine = codes[kept] == at + 1
                chosen.rows[at] += int(mine.sum())
                chosen.tokens[at] += int(sizes[mine].sum())
        self.groups.rows, self.groups.tokens = groups.tolist(), tokens.tolist()
        chosen.spent = sum(chosen.tokens if self._by_tokens else chosen.rows)

    def _sample(self) -> None:
        """Count in how many uniform samples each row is: one for each ranking, of as many rows as it took."""
        for size in self.chosen.rows:
            draws = partial(self._candidates, "uniform", taken=True, grouped=False)
            self._mark("samples", 1, cuts.find(draws, np.array([size])), draws())

    def _refuse_more_than_there_is(self, total: int) -> None:
        """Raise UsageError if no choice can reach the budget, or nothing can be taken."""
        have = dict(zip(self._names, self._count_left().tolist(), strict=True))
        weights = quotas.weigh(self._shard.quota, have)
        most = sum(count for name, count in have.items() if weights[name])
        where, unit = ("tokens", "response tokens") if self._by_tokens else ("rows", "rows")
        if not most:
            raise UsageError(
                "nothing can be chosen",
                where=where,
                got=f"0 {unit} within the bounds and in groups of weight above 0",
                expected=f"at least 1 of {total:,}",
                hint="widen attributes.where, or give a weight to groups that have rows",
            )
        refuse_more(total, most, unit, allow_unfilled=self._shard.allow_unfilled)


def refuse_more(total: int, most: int, unit: str, *, allow_unfilled: bool) -> None:
    """Raise UsageError if a budget of ``total`` rows or response tokens (``unit``) is more than there is."""
    if total > most and not allow_unfilled:
        raise UsageError(
            "more is asked for than there is",
            where=unit.split()[-1],
            got=f"{total:,} {unit}",
            expected=f"at most {most:,}, the candidates' {unit}",
            hint=f"ask for {most:,}, or set allow_unfilled: true, which takes all {most:,}",
        )


def amounts(shares: Sequence[float], total: int) -> list[int]:
    """Share a total out to rankings: each takes its share rounded down, and the last what is left."""
    taken = [math.floor(total * share) for share in shares[:-1]]
    return [*taken, total - sum(taken)]
