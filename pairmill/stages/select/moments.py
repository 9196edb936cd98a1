"""Means and deviations of values by group, in float64: added within a slice, and merged in rank order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.stage import ShardFile, ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError

MOMENTS: Final = "moments.json"
MAX_GROUPS: Final = 100_000
"""Distinct values of group_by; more are refused."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Candidates of each group, and the number, mean and summed squared deviations of their values.

    Args:
        names: of the groups that have a candidate, by code point.
        rows: candidates of each group, int64 [groups].
        counts: values that are not null, float64 [terms, groups].
        means: float64 [terms, groups].
        squares: squared deviations from the mean, float64 [terms, groups].
    """

    names: list[str]
    rows: NDArray[np.int64]
    counts: Floats
    means: Floats
    squares: Floats

    @classmethod
    def from_values(
        cls, values: Floats, codes: NDArray[Any], names: Sequence[str], candidates: NDArray[np.bool_]
    ) -> Moments:
        """Add up the candidates' values (float64 [terms, rows]; NaN = null), given the codes of their groups."""
        codes = codes[candidates].astype(np.int64)
        rows = np.bincount(codes, minlength=len(names))
        shape = (len(values), len(names))
        counts, means, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for term, row in enumerate(values):
            known = ~np.isnan(row[candidates])
            mine, code = row[candidates][known], codes[known]
            counts[term] = np.bincount(code, minlength=len(names))
            # Deviations are counted from a value of the group, so that equal values have the deviation 0.
            base = np.zeros(len(names))
            base[code[::-1]] = mine[::-1]
            number = np.maximum(counts[term], 1)
            with np.errstate(over="ignore", invalid="ignore"):
                apart = mine - base[code]
                offset = np.bincount(code, apart, len(names)) / number
                means[term] = base + offset
                squares[term] = np.bincount(code, (apart - offset[code]) ** 2, len(names))
        used = np.flatnonzero(rows)
        order = sorted(used.tolist(), key=lambda at: names[at])
        return cls([names[at] for at in order], rows[order], counts[:, order], means[:, order], squares[:, order])

    @classmethod
    def merge(cls, parts: Iterable[Moments]) -> Moments:
        """Merge the moments of consecutive rows; the order of the parts decides the last bits.

        Raises:
            UsageError: there are too many groups.
        """
        merged: Moments | None = None
        for part in parts:
            merged = part if merged is None else merged._join(part)
        return merged or cls([], np.zeros(0, np.int64), *(np.zeros((0, 0)) for _ in range(3)))

    def _join(self, other: Moments) -> Moments:
        names = sorted({*self.names, *other.names})
        if len(names) > MAX_GROUPS:
            raise UsageError(
                "too many groups",
                where="attributes.group_by",
                got=f"more than {MAX_GROUPS:,}",
                expected="an attribute of few values, or edges: [number, …]",
            )
        left, right = self._spread(names), other._spread(names)
        counts = left.counts + right.counts
        part = right.counts / np.maximum(counts, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = right.means - left.means
            between = np.where(left.counts * right.counts > 0, apart * apart * left.counts * part, 0.0)
            means = np.where(left.counts > 0, left.means + apart * part, right.means)
            return Moments(names, left.rows + right.rows, counts, means, left.squares + right.squares + between)

    def _spread(self, names: list[str]) -> Moments:
        """Give the groups their places among more of them."""
        if names == self.names:
            return self
        place = {name: at for at, name in enumerate(names)}
        columns = [place[name] for name in self.names]

        def spread(array: NDArray[Any]) -> NDArray[Any]:
            wide = np.zeros((*array.shape[:-1], len(names)), array.dtype)
            wide[..., columns] = array
            return wide

        return Moments(names, *map(spread, (self.rows, self.counts, self.means, self.squares)))

    @property
    def deviations(self) -> Floats:
        """Deviations of the whole population, not of a sample; float64 [terms, groups]."""
        return np.sqrt(self.squares / np.maximum(self.counts, 1))

    def save(self, out: Writer) -> None:
        """Write the moments as scratch."""
        raw = {name: value if isinstance(value, list) else value.tolist() for name, value in vars(self).items()}
        with out.create(MOMENTS, scratch=True) as local:
            local.write_text(json.dumps(raw, separators=(",", ":")), "utf-8")

    @classmethod
    def load(cls, source: ShardRecord | ShardFile) -> Moments:
        """Read what a shard wrote."""
        uri = source.uri(MOMENTS) if isinstance(source, ShardRecord) else source.uri
        raw = json.loads(storage.store_for(uri).read(uri))
        shape = (len(raw["counts"]), len(raw["names"]))
        arrays = (np.array(raw[name], np.float64).reshape(shape) for name in ("counts", "means", "squares"))
        return cls(raw["names"], np.array(raw["rows"], np.int64), *arrays)

    def scaled(self, term: int, values: Floats, codes: NDArray[Any]) -> Floats:
        """Return how many deviations above its group's mean each value is; 0 for null, or without a deviation."""
        mean, spread = self.means[term], self.deviations[term]
        known = ~np.isnan(values) & ((spread > 0) & np.isfinite(spread) & np.isfinite(mean))[codes]
        with np.errstate(over="ignore"):
            scaled: Floats = np.divide(values - mean[codes], spread[codes], out=np.zeros(len(values)), where=known)
        return scaled
