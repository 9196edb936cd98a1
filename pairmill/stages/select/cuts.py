"""The k largest of very many keys, by group, found by counting: the keys stay where they are.

Float64 keys are mapped to uint64 of the same order. Each pass over the rows counts one digit of the keys that begin
like the k-th largest, until few enough rows are left to be sorted. Of equal keys the first positions are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FEW: Final = 1 << 20
"""Rows that are sorted in memory."""
_COUNTERS: Final = 1 << 21
_WIDEST: Final = 16
_TOP: Final = np.uint64(1 << 63)
_LAST: Final = np.uint64(2**64 - 1)
_END: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Candidates:
    """Candidates rows, in the order of positions; all arrays have one entry a row.

    Args:
        positions: int64, ascending, also over successive ones.
        bits: uint64, the key as :func:`to_bits` maps it.
        groups: int64, number of the group.
        weights: int64, what a row takes of the quota: 1, or its tokens.
    """

    positions: NDArray[np.int64]
    bits: NDArray[np.uint64]
    groups: NDArray[np.int64]
    weights: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Candidates:
        """Return those of a mask."""
        return Candidates(self.positions[mask], self.bits[mask], self.groups[mask], self.weights[mask])

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """Join consecutive ones."""
        return cls(*(np.concatenate([getattr(some, item.name) for some in parts]) for item in fields(cls)))

    def __len__(self) -> int:
        return len(self.positions)


Stream = Callable[[], Iterator[Candidates]]
"""Each call begins with the first row again."""


@dataclass(frozen=True)
class Cuts:
    """The ends of the taken rows of each group.

    Args:
        bits: uint64 by group; a row of larger bits is taken.
        stops: int64 by group; a row of equal bits is taken if its position is smaller.
    """

    bits: NDArray[np.uint64]
    stops: NDArray[np.int64]

    def take(self, some: Candidates) -> NDArray[np.bool_]:
        """Return which rows are taken."""
        bits = self.bits[some.groups]
        taken: NDArray[np.bool_] = (some.bits > bits) | (
            (some.bits == bits) & (some.positions < self.stops[some.groups])
        )
        return taken


def to_bits(keys: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Map keys (float64, no NaN) to uint64 of the same order; -0.0 is 0.0."""
    assert not np.isnan(keys).any(), "a key is not a number"
    bits = (keys + 0.0).view(np.uint64)
    return np.where(bits >= _TOP, ~bits, bits | _TOP)


def find(stream: Stream, quotas: NDArray[np.int64]) -> Cuts:
    """Take rows by descending key until the quota of their group is reached; the row that crosses it is taken.

    A group of less than its quota is taken as a whole. Memory does not depend on the number of rows.

    Args:
        stream: the rows that can be taken.
        quotas: int64 by group, in the unit of the weights.
    """
    search = _Search(quotas)
    while len(search.open):
        search.count(stream)
        if search.rows <= _FEW or not search.shift:
            search.settle(stream)
    return Cuts(search.bits, search.stops)


class _Search:
    """Counts the digits of the groups' cuts.

    ``prefix`` is the key of the last taken row without its lowest ``shift`` bits, by group; ``need`` is what the rows
    that begin like it have to give.
    """

    def __init__(self, quotas: NDArray[np.int64]) -> None:
        number = len(quotas)
        # Quota 0: no row. Quotas larger than what there is: `count` finds them.
        self.bits = np.full(number, _LAST)
        self.stops = np.zeros(number, np.int64)
        self.need = quotas.astype(np.int64)
        self.open = np.flatnonzero(self.need > 0)
        self.prefix = np.zeros(number, np.uint64)
        self.shift = 64
        self.rows = 0

    def _inside(self, stream: Stream) -> Iterator[tuple[Candidates, NDArray[np.int64]]]:
        """Yield the rows that begin like their group's cut, and the place of their group among the open ones."""
        places = np.full(len(self.bits), -1, np.int64)
        places[self.open] = np.arange(len(self.open))
        for some in stream():
            mask = places[some.groups] >= 0
            if self.shift < 64:
                mask &= (some.bits >> np.uint64(self.shift)) == self.prefix[some.groups]
            inside = some.where(mask)
            yield inside, places[inside.groups]

    def count(self, stream: Stream) -> None:
        """Find the next digit of each open group's cut; close the groups that have less than their quota."""
        number = len(self.open)
        width = min(self.shift, _WIDEST, max(1, (_COUNTERS // number).bit_length() - 1))
        low, mask = np.uint64(self.shift - width), np.uint64((1 << width) - 1)
        rows = np.zeros(number << width, np.int64)
        taken = np.zeros(number << width, np.int64)
        for some, place in self._inside(stream):
            index = (place << width) | ((some.bits >> low) & mask).astype(np.int64)
            rows += np.bincount(index, minlength=len(rows))
            # Of one call: float64 is exact below 2**53.
            taken += np.bincount(index, some.weights, minlength=len(rows)).astype(np.int64)
        # From the largest digit down.
        sums = np.cumsum(taken.reshape(number, -1)[:, ::-1], axis=1)
        need = self.need[self.open]
        all_taken = sums[:, -1] < need
        self.bits[self.open[all_taken]] = 0
        self.stops[self.open[all_taken]] = _END
        at = np.argmax(sums >= need[:, None], axis=1)
        digit = (1 << width) - 1 - at
        line = np.arange(number)
        above = np.where(at > 0, sums[line, at - 1], 0)
        inside = rows.reshape(number, -1)[line, digit]
        self.need[self.open] = need - above
        before = self.prefix[self.open] << np.uint64(width) if self.shift < 64 else np.zeros(number, np.uint64)
        self.prefix[self.open] = before | digit.astype(np.uint64)
        self.shift -= width
        self.rows = int(inside[~all_taken].sum())
        self.open = self.open[~all_taken]

    def settle(self, stream: Stream) -> None:
        """Find the last taken row of each open group: by sorting, or by position if the whole keys are equal."""
        need = self.need.copy()
        held: list[Candidates] = []
        for some, _ in self._inside(stream):
            if self.shift:
                held.append(some)
            else:
                self._take(some, need)
        if held:
            self._take(Candidates.join(held), need)
        self.open = self.open[:0]

    def _take(self, some: Candidates, need: NDArray[np.int64]) -> None:
        """Take rows in order until ``need`` is reached, and lower it by what they give."""
        if not len(some):
            return
        order = np.lexsort((some.positions, ~some.bits, some.groups))
        groups, weights = some.groups[order], some.weights[order]
        sums = np.cumsum(weights)
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        base = np.repeat(sums[starts] - weights[starts], np.diff(np.r_[starts, len(groups)]))
        before = sums - base - weights
        taken = np.flatnonzero(before < need[groups])
        last = taken[np.r_[groups[taken][1:] != groups[taken][:-1], True]] if len(taken) else taken
        self.bits[groups[last]] = some.bits[order[last]]
        self.stops[groups[last]] = some.positions[order[last]] + 1
        np.subtract.at(need, groups, weights)
