"""Which rows are taken: one shard streams the keys of all blocks, and never holds all rows as objects.

A ranking takes from each group by descending key, in the order of rankings; what one took, no later one takes. Equal
keys are taken in rank order. All that a ranking decides by is a cut for each group: :mod:`components.select.cuts`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select import cuts, quotas, table
from components.select.cuts import Cuts, Some
from components.select.settings import Quota
from components.select.shapes import OUTSIDE, Budget, ByGroup, Chosen, Groups, KeyedBlock, Ranking
from components.select.table import Table
from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError

VERSION: Final = 1
GROUPS: Final = "groups.json"
_ROWS: Final = 1 << 18
"""Rows that are looked at together."""
_NONE: Final = np.uint64(2**64 - 1)
"""More than the bits of any key."""
_COMPARED: Final = 20
"""Rankings whose overlap is counted; each costs a choice of its own."""


@dataclass(frozen=True)
class Choose(HandKeyed[object]):
    """Takes rows.

    Args:
        blocks: in rank order.
        rankings: in the order in which they take.
        budget: of all.
        groups: of all candidates.
        quota: how the budget is shared out to groups.
        has_groups: whether there are several, so that blocks say the group of each row.
        has_tokens: whether blocks say the tokens of each row.
        has_passes: whether rows outside of bounds go after they were taken.
        allow_unfilled: whether the budget may be more than there is.
    """

    work = "choose rows"

    blocks: tuple[KeyedBlock, ...]
    rankings: tuple[Ranking, ...]
    budget: Budget
    groups: Groups
    quota: Quota
    has_groups: bool
    has_tokens: bool
    has_passes: bool
    allow_unfilled: bool

    @classmethod
    def of(
        cls,
        blocks: Sequence[KeyedBlock],
        rankings: Sequence[Ranking],
        budget: Budget,
        groups: Groups,
        quota: Quota,
        *,
        has_tokens: bool = False,
        has_passes: bool = False,
        allow_unfilled: bool = False,
    ) -> Choose:
        """The shard; blocks have files of tokens and bounds if ``has_…`` says so, and of groups if there are some."""
        has_groups = len(groups.names) > 1
        has_tokens = has_tokens or budget.tokens is not None
        key = content_key(
            "select choose",
            VERSION,
            [[one.record.key, one.scored.key, one.rows] for one in blocks],
            [[one.name, one.share] for one in rankings],
            asdict(budget),
            groups.names,
            asdict(quota),
            [has_tokens, has_passes, allow_unfilled],
        )
        size = 8 * (len(rankings) + 1) * sum(one.rows for one in blocks)
        return cls(
            "choose",
            key,
            size,
            tuple(blocks),
            tuple(rankings),
            budget,
            groups,
            quota,
            has_groups,
            has_tokens,
            has_passes,
            allow_unfilled,
        )

    def run(self, context: object, out: Writer) -> ShardResult:
        types = {f"key{at}": "<u8" for at in range(len(self.rankings))}
        types |= {"uniform": "<u8", "chosen": "u1", "samples": "u1"}
        types |= {"group": "<u4"} if self.has_groups else {}
        types |= {"tokens": "<u4"} if self.has_tokens else {}
        types |= {"passes": "?"} if self.has_passes else {}
        with table.opened(sum(one.rows for one in self.blocks), types) as rows:
            self._load(rows)
            choice = Choice(self, rows)
            choice.run()
            self._write(rows, choice.made, out)
        data = json.dumps(asdict(choice.groups), separators=(",", ":"), ensure_ascii=False).encode()
        choice.made.by_group = hashlib.sha256(data).hexdigest()
        with out.create(GROUPS, scratch=True) as local:
            local.write_bytes(data)
        return ShardResult(Ledger(), asdict(choice.made))

    def _load(self, rows: Table) -> None:
        """Read the files of all blocks once; keys become integers of the same order, 0 = not a candidate."""
        start = 0
        for block in self.blocks:
            for name in ("uniform", *(f"key{at}" for at in range(len(self.rankings)))):
                for at, keys in _loaded(block, name):
                    known = ~np.isnan(keys)
                    bits = np.where(known, cuts.ordered(np.where(known, keys, 0.0)), np.uint64(0))
                    rows.write(name, start + at, bits)
            for name in ("group", "tokens", "passes"):
                for at, values in _loaded(block, name) if name in rows else ():
                    rows.write(name, start + at, values)
            start += block.rows

    def _write(self, rows: Table, made: Chosen, out: Writer) -> None:
        """Write what was taken, block by block."""
        start = 0
        for block in self.blocks:
            for name, file in (("chosen", "chosen"), ("samples", "uniform")):
                digest = hashlib.sha256()
                with out.create(f"{file}{block.number}.npy", scratch=True) as local, local.open("wb") as target:
                    head = {"descr": "|u1", "fortran_order": False, "shape": (block.rows,)}
                    np.lib.format.write_array_header_1_0(target, head)
                    for at in range(0, block.rows, _ROWS):
                        some = rows.read(name, start + at, start + min(at + _ROWS, block.rows)).tobytes()
                        digest.update(some)
                        target.write(some)
                if name == "chosen":
                    made.digests.append(digest.hexdigest())
            start += block.rows


class Choice:
    """The rankings' choices over a table.

    Args:
        asked: what is chosen.
        rows: the keys; its columns ``chosen`` and ``samples`` are filled.
    """

    def __init__(self, asked: Choose, rows: Table) -> None:
        self._asked, self._rows = asked, rows
        self._number = len(asked.groups.names)
        self._by_tokens = asked.budget.tokens is not None
        count = len(asked.rankings)
        self.made = Chosen([0] * count, [0] * count)
        self.groups = ByGroup(asked.groups.names)

    def run(self) -> None:
        """Take rows for one ranking after another, then draw the uniform samples."""
        asked = self._asked
        total = asked.budget.tokens if asked.budget.tokens is not None else asked.budget.rows
        assert total is not None
        self._refuse_more_than_there_is(total)
        parts = amounts([one.share for one in asked.rankings], total)
        shares: list[quotas.Quotas] = []
        for at, part in enumerate(parts):
            quota = self._quotas(part, self._have())
            shares.append(quota)
            self._mark(at, self._find(at, quota))
        self._count()
        for name in self.groups.names:
            self.groups.asked.append(math.fsum(one.asked[name] for one in shares))
            self.groups.quotas.append(sum(one.given[name] for one in shares))
        if 1 < len(parts) <= _COMPARED:
            self.made.overlap = self._overlap(parts)
        self._sample(self.made.rows)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._rows.rows, _ROWS):
            yield start, min(start + _ROWS, self._rows.rows)

    def _some(self, name: str, *, free: bool, by_tokens: bool, grouped: bool = True) -> Iterator[Some]:
        """The candidates with the bits of a column; only those not taken yet if ``free``."""
        for start, stop in self._chunks():
            bits = self._rows.read(name, start, stop)
            mask = bits != 0
            if free:
                mask &= self._rows.read("chosen", start, stop) == 0
            count = int(mask.sum())
            groups = np.zeros(count, np.int64)
            if grouped and "group" in self._rows:
                groups = self._rows.read("group", start, stop)[mask].astype(np.int64)
            weights = np.ones(count, np.int64)
            if by_tokens:
                weights = self._rows.read("tokens", start, stop)[mask].astype(np.int64)
            yield Some(start + np.flatnonzero(mask), bits[mask], groups, weights)

    def _have(self, *, free: bool = True) -> NDArray[np.int64]:
        """What each group can give, in the unit of the budget."""
        total = np.zeros(self._number, np.int64)
        for some in self._some("uniform", free=free, by_tokens=self._by_tokens):
            total += np.bincount(some.groups, some.weights, minlength=self._number).astype(np.int64)
        return total

    def _quotas(self, part: int, have: NDArray[np.int64]) -> quotas.Quotas:
        return quotas.of(self._asked.quota, part, dict(zip(self._asked.groups.names, have.tolist(), strict=True)))

    def _find(self, at: int, quota: quotas.Quotas, *, free: bool = True) -> Cuts:
        given = np.array([quota.given[name] for name in self._asked.groups.names], np.int64)
        return cuts.find(lambda: self._some(f"key{at}", free=free, by_tokens=self._by_tokens), given)

    def _mark(self, at: int, cut: Cuts) -> None:
        for some in self._some(f"key{at}", free=True, by_tokens=False):
            taken = some.positions[cut.taken(some)]
            if len(taken):
                start, stop = int(taken[0]), int(taken[-1]) + 1
                codes = self._rows.read("chosen", start, stop).copy()
                codes[taken - start] = at + 1
                self._rows.write("chosen", start, codes)

    def _count(self) -> None:
        """Count what was taken; rows outside of bounds of dsir_then_filter are marked OUTSIDE."""
        made = self.made
        groups, tokens = np.zeros(self._number, np.int64), np.zeros(self._number, np.int64)
        least = np.full((len(made.rows), self._number), _NONE)
        for start, stop in self._chunks():
            codes = self._rows.read("chosen", start, stop)
            if self._asked.has_passes:
                gone = (codes != 0) & ~self._rows.read("passes", start, stop)
                made.outside += int(gone.sum())
                codes = np.where(gone, np.uint8(OUTSIDE), codes)
                self._rows.write("chosen", start, codes)
            kept = (codes != 0) & (codes != OUTSIDE)
            code = self._rows.read("group", start, stop)[kept] if "group" in self._rows else np.zeros(kept.sum(), int)
            groups += np.bincount(code, minlength=self._number)
            size = np.zeros(len(code), np.int64)
            if "tokens" in self._rows:
                size = self._rows.read("tokens", start, stop)[kept].astype(np.int64)
            tokens += np.bincount(code, size, minlength=self._number).astype(np.int64)
            for at in range(len(made.rows)):
                mine = codes[kept] == at + 1
                if mine.any():
                    made.rows[at] += int(mine.sum())
                    made.tokens[at] += int(size[mine].sum())
                    bits = self._rows.read(f"key{at}", start, stop)[kept][mine]
                    np.minimum.at(least[at], code[mine], bits)
        self.groups.rows, self.groups.tokens = groups.tolist(), tokens.tolist()
        keys = cuts.unordered(least)
        self.groups.thresholds = [
            [None if one == _NONE else key for one, key in zip(bits.tolist(), line.tolist(), strict=True)]
            for bits, line in zip(least, keys, strict=True)
        ]
        made.spent = sum(made.tokens if self._by_tokens else made.rows)

    def _overlap(self, parts: Sequence[int]) -> list[list[int]]:
        """Rows that two rankings would both take if each chose alone; on the diagonal, what each would take."""
        have = self._have(free=False)
        found = [self._find(at, self._quotas(part, have), free=False) for at, part in enumerate(parts)]
        total = np.zeros((len(parts), len(parts)), np.int64)
        streams = [self._some(f"key{at}", free=False, by_tokens=False) for at in range(len(parts))]
        for somes in zip(*streams, strict=True):
            taken = np.stack([cut.taken(some) for cut, some in zip(found, somes, strict=True)]).astype(np.int64)
            total += taken @ taken.T
        return [[int(count) for count in line] for line in total]

    def _sample(self, sizes: Sequence[int]) -> None:
        """Mark in how many uniform samples each row is: one for each ranking, of as many rows as it took."""
        for size in sizes:
            wanted = np.array([size], np.int64)
            cut = cuts.find(lambda: self._some("uniform", free=False, by_tokens=False, grouped=False), wanted)
            for some in self._some("uniform", free=False, by_tokens=False, grouped=False):
                taken = some.positions[cut.taken(some)]
                if len(taken):
                    start, stop = int(taken[0]), int(taken[-1]) + 1
                    levels = self._rows.read("samples", start, stop).copy()
                    levels[taken - start] += 1
                    self._rows.write("samples", start, levels)

    def _refuse_more_than_there_is(self, total: int) -> None:
        """Raise UsageError if no choice can reach the budget, or nothing can be taken."""
        names = self._asked.groups.names
        have = dict(zip(names, self._have(free=False).tolist(), strict=True))
        weights = quotas.weights_of(self._asked.quota, have)
        most = sum(count for name, count in have.items() if weights[name])
        unit = "response tokens" if self._by_tokens else "rows"
        where = "tokens" if self._by_tokens else "rows"
        if not most:
            raise UsageError(
                "nothing can be chosen",
                where=where,
                got=f"0 {unit} within the bounds and in groups of weight above 0",
                expected=f"at least 1 of {total:,}",
                hint="widen attributes.where, or give a weight to groups that have rows",
            )
        refuse_more(total, most, unit, allow_unfilled=self._asked.allow_unfilled)


def refuse_more(total: int, most: int, unit: str, *, allow_unfilled: bool) -> None:
    """Raise UsageError if a budget is more than there is.

    Args:
        total: the budget.
        most: what there is.
        unit: rows or response tokens.
        allow_unfilled: whether that is allowed.
    """
    if total > most and not allow_unfilled:
        raise UsageError(
            "more is asked for than there is",
            where=unit.split()[-1],
            got=f"{total:,} {unit}",
            expected=f"at most {most:,}, the candidates' {unit}",
            hint=f"ask for {most:,}, or set allow_unfilled: true, which takes all {most:,}",
        )


def amounts(shares: Sequence[float], total: int) -> list[int]:
    """What each ranking takes of a total: its share rounded down, and the last what is left."""
    found = [math.floor(total * share) for share in shares[:-1]]
    return [*found, total - sum(found)]


def _loaded(block: KeyedBlock, name: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of a file of a block, some at a time, each with the number of the first: a file of lines is one block,
    however many rows it has.
    """
    uri = block.uri(name)
    with storage.store_for(uri).open(uri) as file:
        np.lib.format.read_magic(file)
        (count,), _, kind = np.lib.format.read_array_header_1_0(file)
        assert count == block.rows, uri
        for at in range(0, count, _ROWS):
            yield at, np.frombuffer(file.read(min(_ROWS, count - at) * kind.itemsize), kind)


def by_group(uri: str) -> ByGroup:
    """What a shard wrote of groups."""
    return ByGroup(**json.loads(storage.store_for(uri).read(uri)))
