"""Rankings of candidates, how much each takes, and what the keys are made of by which they order rows.

Rows are always in rank order: tasks by code point, rows by number. Of equal keys the first row is taken.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.stage import ShardFile, ShardRecord
from pairmill.stages.select import arrays
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.settings import OWN_TARGET, Settings

LOG_WEIGHTS: Final = "log_weights.npy"
SCORE: Final = "score.npy"
GROUP: Final = "group.npy"
TOKENS: Final = "tokens.npy"
PASSES: Final = "passes.npy"
UNIFORM: Final = "uniform.npy"
EXTREMES: Final = 20
"""Best and worst rows of each ranking that are shown."""

Floats = NDArray[np.float64]


def noise_of(ranking: int) -> str:
    """Name the file of a ranking's noise."""
    return f"noise{ranking}.npy"


@dataclass(frozen=True)
class Ranking:
    """An order of all candidates, of which the best are taken: one for each target, or one for score and hybrid.

    Args:
        name: of the target; "attributes" or "hybrid" for a score.
        share: of the budget, of all rankings 1 together.
        salt: of the draws that are added to keys; empty = none.
    """

    name: str
    share: float
    salt: str = ""


@dataclass(frozen=True)
class Budget:
    """The rows or tokens that are chosen; exactly one of both.

    Args:
        tokens: how many response tokens; the row that reaches them is taken.
    """

    rows: int | None = None
    tokens: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, candidates: int) -> Budget:
        """Take a share as the decimal number that it is written as, and at least one row."""
        if settings.share is not None:
            return cls(rows=max(1, math.floor(Fraction(str(settings.share)) * candidates)))
        return cls(rows=settings.rows, tokens=settings.tokens)

    @property
    def amount(self) -> int:
        """Rows or response tokens."""
        amount = self.tokens if self.tokens is not None else self.rows
        assert amount is not None
        return amount


def rankings_of(settings: Settings) -> tuple[Ranking, ...]:
    """List the rankings in the order in which they take rows."""
    if settings.selector.score or not settings.selector.weights:
        return (Ranking(settings.method, 1.0, "sample" if settings.attributes.choose == "sample" else ""),)
    if settings.selector.where == "target":
        names, shares = [OWN_TARGET], [1.0]
    else:
        names = [target.name for target in settings.dsir.targets]
        shares = [target.share for target in settings.dsir.targets]
    total = math.fsum(shares)
    pairs = zip(names, shares, strict=True)
    return tuple(Ranking(name, share / total, name if settings.dsir.noise else "") for name, share in pairs)


@dataclass
class Scored:
    """The data of a record of ScoreRows, whose files are the arrays of :class:`ScoredRows`.

    Args:
        counts: rows of each slice of the block.
    """

    counts: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return sum(self.counts)


@dataclass(frozen=True)
class ScoredRows:
    """Consecutive rows of a block, and the arrays that have a value for each row of it.

    ``log_weights.npy``  float64 [targets, rows]: scaled by length; if rows have weights
    ``score.npy``        float64: of attributes; if there is one
    ``group.npy``        uint32: code of the group; if there are several
    ``tokens.npy``       uint32: response tokens; if they are counted
    ``passes.npy``       bool: within ``attributes.where``; if that decides who is chosen
    ``noise<n>.npy``     float64: Gumbel with the salt of ranking n; if it has one
    ``uniform.npy``      float64: Gumbel with the salt "uniform"; if rows have weights

    Args:
        files: of them those that there are.
        start: first row of the block.
        stop: one past the last.
    """

    files: Mapping[str, ShardFile]
    start: int
    stop: int

    @classmethod
    def from_record(cls, record: ShardRecord) -> ScoredRows:
        """Return all rows of a block, given the record of ScoreRows."""
        return cls(arrays.files_of(record), 0, record.read(Scored).rows)

    def __len__(self) -> int:
        return self.stop - self.start

    def load(self, path: str) -> NDArray[Any] | None:
        """Read an array; None if there is none. The last axis is rows."""
        return arrays.load_rows(self.files[path].uri, self.start, self.stop) if path in self.files else None

    def cut(self, most: int) -> Iterator[ScoredRows]:
        """Yield the same rows, some at a time: a file of lines is one slice, however many rows it has."""
        for start in range(self.start, self.stop, most):
            yield ScoredRows(self.files, start, min(start + most, self.stop))


@dataclass(frozen=True)
class KeyRule:
    """The rule by which the key of a row follows from its arrays.

    Args:
        tau: what a score is divided by before noise is added.
        part: share of the log weight in a score; None = keys are log weights.
    """

    tau: float = 1.0
    part: float | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Take it from the settings."""
        if not settings.selector.score:
            return cls()
        part = settings.hybrid.lambda_ if settings.selector.both else 0.0
        return cls(settings.attributes.tau if settings.attributes.choose == "sample" else 1.0, part)

    def values(self, rows: ScoredRows, ranking: int, moments: Moments | None) -> Floats:
        """Return what rows are ranked by before noise, float64 [rows]; ``moments`` are those of log weights."""
        weights = rows.load(LOG_WEIGHTS) if self.part is None or self.part > 0 else None
        if self.part is None:
            assert weights is not None
            line: Floats = weights[ranking]
            return line
        total = np.zeros(len(rows))
        # A part of 0 or 1 adds nothing to the other, not even a rounding.
        if weights is not None:
            assert moments is not None
            codes = rows.load(GROUP)
            z = moments.scaled(0, weights[0], np.zeros(len(rows), np.int64) if codes is None else codes)
            total = z if self.part == 1 else self.part * z
        score = rows.load(SCORE) if self.part < 1 else None
        if score is not None:
            total = score if self.part == 0 else total + (1 - self.part) * score
        return total

    def keys(self, values: Floats, rows: ScoredRows, ranking: int) -> Floats:
        """Return the keys of rows, float64 [rows], given what they are ranked by: the largest are taken."""
        noise = rows.load(noise_of(ranking))
        return values if noise is None else values / self.tau + noise


def rule_of(settings: Settings) -> KeyRule:
    """Make the rule of the method."""
    module, _, name = settings.selector.rule.partition(".")
    kind: type[KeyRule] = getattr(importlib.import_module(f"pairmill.stages.select.{module}"), name)
    return kind.from_settings(settings)


@dataclass
class Extremes:
    """The best and the worst rows of a ranking, by value before noise; of equals the first.

    Args:
        best: value and place in rank order.
        worst: the same.
    """

    best: list[tuple[float, int]] = field(default_factory=list)
    worst: list[tuple[float, int]] = field(default_factory=list)

    def add(self, values: Floats, places: NDArray[np.int64]) -> None:
        """Look at further candidates, whose places come after those of all before."""
        for sign, held in ((-1.0, self.best), (1.0, self.worst)):
            signed = sign * values
            if len(held) == EXTREMES:
                better = signed < sign * held[-1][0]
                signed, some = signed[better], places[better]
            else:
                some = places
            order = np.argsort(signed, kind="stable")[:EXTREMES]
            held += zip((sign * signed[order]).tolist(), some[order].tolist(), strict=True)
            # Stable: of equal values the earlier row stays first.
            held.sort(key=lambda row, sign=sign: sign * row[0])  # type: ignore[misc]
            del held[EXTREMES:]
