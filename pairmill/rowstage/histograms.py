"""Histograms of attributes with bins that depend on no data, so that those of slices add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LINEAR: Final = 50
_PER_OCTAVE: Final = 2
_ZERO: Final = 64
"""The bin of zero; larger ones are of positive values, smaller ones of negative."""
_BINS: Final = 2 * _ZERO + 1
_LEAST_OCTAVE: Final = -12


@dataclass
class Histogram:
    """Counts of values, in fifty bins from 0 to 1 and in bins of half an octave.

    Args:
        linear: counts of the values from 0 to 1, by bin; bins without a value are left out.
        octaves: counts of all values, by bin.
        outside: values below 0 or above 1.
        nulls: rows without a value.
        whole: whether all values are whole numbers.
    """

    linear: dict[str, int] = field(default_factory=dict)
    octaves: dict[str, int] = field(default_factory=dict)
    outside: int = 0
    nulls: int = 0
    whole: bool = True

    def add(self, column: pa.Array) -> None:
        """Count the values of a column."""
        self.nulls += column.null_count
        values = column.drop_null().cast(pa.float64()).to_numpy()
        values = values[np.isfinite(values)]
        if not len(values):
            return
        inside = (values >= 0) & (values <= 1)
        self.outside += int(len(values) - inside.sum())
        self.whole = self.whole and bool((values == np.floor(values)).all())
        _count(self.linear, np.minimum((values[inside] * _LINEAR).astype(np.int64), _LINEAR - 1), _LINEAR)
        _count(self.octaves, _octave(values), _BINS)

    def join(self, other: Histogram) -> None:
        """Add that of other rows."""
        for mine, theirs in ((self.linear, other.linear), (self.octaves, other.octaves)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        self.outside += other.outside
        self.nulls += other.nulls
        self.whole = self.whole and other.whole

    def shown(self, bounds: Sequence[float | None]) -> dict[str, Any]:
        """Return what the manifest says of it: counts between edges, and the bounds of a rule."""
        if not self.outside:
            counts = [self.linear.get(str(at), 0) for at in range(_LINEAR)]
            edges = [round(at / _LINEAR, 6) for at in range(_LINEAR + 1)]
        else:
            bins = sorted(map(int, self.octaves))
            if not bins:
                return {"counts": [], "edges": [], "bounds": list(bounds)}
            all_bins = range(bins[0], bins[-1] + 1)
            counts = [self.octaves.get(str(at), 0) for at in all_bins]
            edges = [_edge(at) for at in all_bins] + [_edge(bins[-1] + 1)]
        return {"counts": counts, "edges": edges, "bounds": list(bounds)}


def _count(into: dict[str, int], bins: NDArray[np.int64], size: int) -> None:
    counts = np.bincount(bins, minlength=size)
    for at in np.flatnonzero(counts).tolist():
        into[str(at)] = into.get(str(at), 0) + int(counts[at])


def _octave(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each value: bin _ZERO + 1 begins at the smallest positive value that has one of its own."""
    size = np.abs(values)
    with np.errstate(divide="ignore"):
        at = np.floor(np.log2(size) * _PER_OCTAVE)
    at = np.where(size > 0, np.clip(at - _LEAST_OCTAVE * _PER_OCTAVE + 1, 1, _ZERO), 0).astype(np.int64)
    result: NDArray[np.int64] = _ZERO + np.where(values < 0, -at, at)
    return result


def _edge(at: int) -> float:
    """Return the least value of a bin."""
    if at == _ZERO:
        return 0.0
    if at > _ZERO:
        return float(f"{2.0 ** ((at - _ZERO - 1) / _PER_OCTAVE + _LEAST_OCTAVE):.6g}")
    return -_edge(2 * _ZERO - at + 1)


def to_json(histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    """Return them as a record keeps them."""
    return {name: vars(item) for name, item in histograms.items()}


def of_json(data: Mapping[str, Any]) -> dict[str, Histogram]:
    """Read them from a record."""
    return {name: Histogram(**item) for name, item in data.items()}


def join(mine: dict[str, Histogram], others: Mapping[str, Histogram]) -> None:
    """Add others by name."""
    for name, item in others.items():
        mine.setdefault(name, Histogram()).join(item)
