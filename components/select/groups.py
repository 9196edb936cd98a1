"""Means and deviations of values by group, and scores of rows scaled by them.

Sums are exact, so that slices, their order and the number of workers do not change a bit of them: a float64 is an
integer times 2**-1074, and its square one times 2**-2148. Mean and variance are the rounded exact ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select.shapes import MAX_GROUPS, Looked, Scale
from pairmill.errors import UsageError

_UNIT: Final = 1074
"""A sum is an integer times two to the power of minus this; a sum of squares, of minus twice this."""
_MANTISSA: Final = 53
_LOW: Final = np.uint64((1 << 27) - 1)
_HALF: Final = np.uint64((1 << 32) - 1)


@dataclass
class Sums:
    """Number, sum and sum of squares of the values of a group, exact.

    Args:
        count: of values; null is none.
        total: times 2**1074.
        squares: times 2**2148.
    """

    count: int = 0
    total: int = 0
    squares: int = 0

    def join(self, other: Sums) -> None:
        """Add those of other rows."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        """The mean, correctly rounded; 0 of nothing."""
        return _rounded(Fraction(self.total, self.count << _UNIT)) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The deviation of the whole population (not of a sample): the root of the correctly rounded variance."""
        if not self.count:
            return 0.0
        variance = Fraction(self.count * self.squares - self.total * self.total, (self.count * self.count) << 2 * _UNIT)
        return math.sqrt(_rounded(variance))


@dataclass
class Moments:
    """Sums of values by group's name.

    Args:
        terms: how many values a row has.
        rows: candidates of each group.
        sums: of each group, one a term.
    """

    terms: int
    rows: dict[str, int] = field(default_factory=dict)
    sums: dict[str, list[Sums]] = field(default_factory=dict)

    @classmethod
    def of(cls, looked: Looked, candidates: NDArray[np.bool_]) -> Moments:
        """Those of the candidates (bool [rows]) of some rows."""
        return cls.by_code(looked.values, looked.groups, looked.names, candidates)

    @classmethod
    def by_code(
        cls,
        values: NDArray[np.float64],
        codes: NDArray[Any],
        names: Sequence[str],
        candidates: NDArray[np.bool_],
    ) -> Moments:
        """Those of values (float64 [terms, rows]; NaN = null) with a code of their group's name each."""
        found = cls(len(values))
        some = codes[candidates].astype(np.int64)
        counts = np.bincount(some, minlength=len(names)).tolist()
        sums = [sums_by_code(line[candidates], some, len(names)) for line in values]
        for code, name in enumerate(names):
            if counts[code]:
                found.rows[name] = counts[code]
                found.sums[name] = [line[code] for line in sums]
        return found

    @classmethod
    def joined(cls, parts: Iterable[Moments]) -> Moments:
        """Those of all rows; any order gives the same.

        Raises:
            UsageError: there are too many groups.
        """
        total: Moments | None = None
        for one in parts:
            total = total or cls(one.terms)
            total._join(one)
        return total or cls(0)

    def _join(self, other: Moments) -> None:
        for name, rows in other.rows.items():
            self.rows[name] = self.rows.get(name, 0) + rows
            mine = self.sums.setdefault(name, [Sums() for _ in range(self.terms)])
            for one, more in zip(mine, other.sums[name], strict=True):
                one.join(more)
        if len(self.rows) > MAX_GROUPS:
            raise UsageError(
                "too many groups",
                where="attributes.group_by",
                got=f"more than {MAX_GROUPS:,}",
                expected="an attribute of few values, or edges: [number, …]",
            )

    @property
    def names(self) -> list[str]:
        """Of the groups, by code point."""
        return sorted(self.rows)

    def scale(self, names: Sequence[str]) -> Scale:
        """Mean and deviation of each term in each group."""
        found = [self.sums.get(name) or [Sums() for _ in range(self.terms)] for name in names]
        mean = [[group[term].mean for group in found] for term in range(self.terms)]
        deviation = [[group[term].deviation for group in found] for term in range(self.terms)]
        shape = (self.terms, len(names))
        return Scale(np.array(mean, np.float64).reshape(shape), np.array(deviation, np.float64).reshape(shape))

    def to_json(self) -> dict[str, Any]:
        """JSON-like."""
        sums = {
            name: [[one.count, f"{one.total:x}", f"{one.squares:x}"] for one in some]
            for name, some in sorted(self.sums.items())
        }
        return {"terms": self.terms, "rows": dict(sorted(self.rows.items())), "sums": sums}

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Moments:
        """The reverse."""
        sums = {
            name: [Sums(count, int(total, 16), int(squares, 16)) for count, total, squares in some]
            for name, some in raw["sums"].items()
        }
        return cls(raw["terms"], dict(raw["rows"]), sums)


def score_of(looked: Looked, codes: NDArray[Any], scale: Scale, weights: Sequence[float]) -> NDArray[np.float64]:
    """The score of rows (float64 [rows]): the sum of weight · z over the terms, from the first to the last.

    Args:
        looked: what is known of the rows.
        codes: of their groups, into the groups of ``scale``.
        scale: of the terms.
        weights: of the terms.
    """
    total = np.zeros(len(codes), np.float64)
    for term, weight in enumerate(weights):
        total = total + weight * scaled(looked.values[term], codes, scale.mean[term], scale.deviation[term])
    return total


def scaled(
    values: NDArray[np.float64], codes: NDArray[Any], mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """z of values (float64 [rows]): how many deviations above its group's mean each is; 0 for null or no deviation."""
    spread = deviation[codes]
    known = ~np.isnan(values) & (spread > 0)
    found = np.zeros(len(values), np.float64)
    np.divide(values - mean[codes], spread, out=found, where=known)
    return found


def sums_by_code(values: NDArray[np.float64], codes: NDArray[np.int64], number: int) -> list[Sums]:
    """Exact sums of finite values by code; NaN counts as null."""
    known = ~np.isnan(values)
    values, codes = values[known], codes[known]
    found = [Sums(count) for count in np.bincount(codes, minlength=number).tolist()]
    if not len(values):
        return found
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, _MANTISSA).astype(np.int64)
    negative = mantissas < 0
    size = np.abs(mantissas).astype(np.uint64)
    high, low = size >> np.uint64(27), size & _LOW
    # A sum for each code and exponent; there are few.
    keys, place = np.unique(np.stack([codes, exponents.astype(np.int64)]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    count = keys.shape[1]
    totals = [
        more - less
        for more, less in zip(_exact(size, place, count, ~negative), _exact(size, place, count, negative), strict=True)
    ]
    squares = [_exact(part, place, count) for part in (high * high, high * low, low * low)]
    for at, (code, exponent) in enumerate(keys.T.tolist()):
        shift = exponent - _MANTISSA
        found[code].total += _shifted(totals[at], shift + _UNIT)
        square = (squares[0][at] << 54) + (squares[1][at] << 28) + squares[2][at]
        found[code].squares += _shifted(square, 2 * (shift + _UNIT))
    return found


def _exact(
    values: NDArray[np.uint64], place: NDArray[np.int64], number: int, mask: NDArray[np.bool_] | None = None
) -> list[int]:
    """Sums of uint64 below 2**55, as integers: halves of 32 bits, whose sums float64 holds for 2**21 values each."""
    if mask is not None:
        values, place = values[mask], place[mask]
    found = [0] * number
    for start in range(0, len(values), 1 << 20):
        some, where = values[start : start + (1 << 20)], place[start : start + (1 << 20)]
        low = np.bincount(where, (some & _HALF).astype(np.float64), number).tolist()
        high = np.bincount(where, (some >> np.uint64(32)).astype(np.float64), number).tolist()
        for at in range(number):
            found[at] += (int(high[at]) << 32) + int(low[at])
    return found


def _shifted(value: int, shift: int) -> int:
    """value · 2**shift; what a negative shift cuts off is 0, because a float64 is a whole number of units."""
    return value << shift if shift >= 0 else value >> -shift


def _rounded(value: Fraction) -> float:
    """The nearest float64; infinite if it is too large."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf
