"""Rows that stay together: units that are drawn all or none, and what an epoch has of them on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmill._native import Philox
from pairmill.digest import BLAKE3, digest_bytes
from pairmill.rules.rule import Numbers, Part
from pairmill.rules.solve_level import Counts


@dataclass(frozen=True)
class Eligible:
    """The rows of a task that a rule may draw: numbers in its arrays, and tokens of prompts and responses, int64."""

    numbers: Numbers
    inst_len: Counts
    resp_len: Counts

    def take(self, which: NDArray[Any]) -> Eligible:
        return Eligible(self.numbers[which], self.inst_len[which], self.resp_len[which])

    def sums(self) -> tuple[float, ...]:
        """Return rows, tokens of prompts, of responses, and the sums of squared lengths of rows and of responses."""
        resp = self.resp_len
        whole = self.inst_len + resp
        return (
            len(self.numbers),
            *map(float, (self.inst_len.sum(), resp.sum(), (whole * whole).sum(), (resp * resp).sum())),
        )


@dataclass(frozen=True)
class ExpectedDraw:
    """What an epoch has of a task, on average over the epochs.

    Attributes:
        rows, tokens, response_tokens: expected.
        error: standard error of ``tokens``, by the lengths of rows and units.
        largest: rows of the largest unit; 0 if rows are drawn one by one.
    """

    rows: float
    tokens: float
    response_tokens: float
    error: float
    largest: int = 0


@dataclass(frozen=True)
class Units:
    """The units of a task that epochs have room for.

    Args:
        rows: that they are of.
        unit: of each row, from 0, int64 [rows].
        sizes: rows of each unit, int64 [units].
    """

    rows: Eligible
    unit: Counts
    sizes: Counts

    @classmethod
    def from_rows(cls, rows: Eligible, units: Counts, epochs: Sequence[int]) -> Self:
        """Leave out the units that the smallest epoch has no room for.

        Args:
            rows: that may be drawn.
            units: a number that the rows of a unit share, int64 [rows].
            epochs: the most rows that each epoch has.
        """
        _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
        small = sizes[unit] <= min((count for count in epochs if count), default=0)
        _, unit, sizes = np.unique(unit[small], return_inverse=True, return_counts=True)
        return cls(rows.take(small), unit, sizes)

    def parts(self, rows: Sequence[int], stream: str) -> list[Part]:
        """Draw units: all rows of one, or none. An epoch ends before the unit that it has no room for, which is the
        first of the next.

        Args:
            rows: the most that each epoch has.
            stream: seed and name of the random numbers.
        """
        numbers, sizes = self.rows.numbers, self.sizes
        whole = len(numbers)
        if not whole:
            return []
        # What an epoch has of all rows needs no draw.
        parts = [Part("all", numbers, tuple(count // whole * whole for count in rows))]
        words = bytes.fromhex(digest_bytes(f"{stream}\0units".encode()).removeprefix(BLAKE3))[:16]
        random = Philox(int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))
        order, ends, at = np.empty(0, np.uint32), np.zeros(1, np.int64), 0
        for epoch, count in enumerate(rows):
            left, pass_ = count % whole, 0
            while left:
                if at == len(order):
                    order = np.arange(len(sizes), dtype=np.uint32)
                    random.shuffle(order)
                    ends, at = np.concatenate([[0], np.cumsum(sizes[order])]), 0
                stop = int(np.searchsorted(ends, ends[at] + left, side="right")) - 1
                if stop == at:
                    break
                taken = np.zeros(len(sizes), np.bool_)
                taken[order[at:stop]] = True
                mine = numbers[taken[self.unit]]
                parts.append(Part(f"{epoch} {pass_}", mine, tuple(len(mine) * (e == epoch) for e in range(len(rows)))))
                left, at, pass_ = left - len(mine), stop, pass_ + 1
        return parts

    def expected(self, rows: Sequence[int]) -> ExpectedDraw:
        """Return what :meth:`parts` gives an epoch on average over all streams."""
        whole, sizes = len(self.rows.numbers), self.sizes
        if not whole:
            return ExpectedDraw(0.0, 0.0, 0.0, 0.0)
        left = np.array(rows, np.int64) % whole
        # The unit that an epoch ends before is one of s rows with the probability of its rows, and begins 0 to s - 1
        # rows before the end of the epoch, in steps of the greatest divisor of all sizes.
        step = int(np.gcd.reduce(sizes))
        begins = (sizes - step) / 2
        lacks = float((begins * sizes).sum()) / whole
        spread = float(((sizes - step) * (2 * sizes - step) / 6 * sizes).sum()) / whole - lacks**2
        missing = np.minimum(left, left % step + lacks * (left > 0))
        drawn = float((np.array(rows) - missing).sum())
        lengths = self.rows.inst_len + self.rows.resp_len
        mean = float(lengths.mean())
        # Units differ from their rows times the mean; those of a whole order add up to nothing.
        differences = np.bincount(self.unit, lengths - mean)
        part = math.fmod(float((left - missing).sum()), whole) / whole
        variance = len(sizes) / max(1, len(sizes) - 1) * part * (1 - part) * float((differences**2).sum())
        variance += spread * mean**2 * int((left > 0).sum())
        epochs = len(rows)
        return ExpectedDraw(
            drawn / epochs,
            drawn * mean / epochs,
            drawn * float(self.rows.resp_len.mean()) / epochs,
            math.sqrt(variance) / epochs,
            int(sizes.max()),
        )
