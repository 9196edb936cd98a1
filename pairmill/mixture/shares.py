"""Predicted shares, and how far drawn ones may be from them by chance.

A walk draws one permutation of a task's rows after another, so only a pass that an epoch begins or ends within is
uncertain. The error is that of drawing without replacement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pairmill.mixture.plan import Mixture, PlannedTask

LEAST: Final = 0.001
"""Shares may differ by a tenth of a percentage point, whatever chance says."""
ERRORS: Final = 4
"""Standard errors by which a share may differ."""


@dataclass(frozen=True)
class Drawn:
    """Response tokens of a source, and the variance of their number.

    Args:
        tokens: drawn, or expected to be drawn.
        variance: by :func:`draw_variance`, summed over tasks.
    """

    tokens: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.tokens + other.tokens, self.variance + other.variance)


class Compared(NamedTuple):
    """A predicted share beside the drawn one.

    Attributes:
        predicted: share of the plan.
        realised: share of the drawn tokens.
        error: standard error of the drawn share.
        tolerance: how far both may be apart.
    """

    predicted: float
    realised: float
    error: float
    tolerance: float

    @property
    def within(self) -> bool:
        """Whether they are near enough."""
        return abs(self.realised - self.predicted) <= self.tolerance


def length_variance(rows: int, tokens: float, squares: float) -> float:
    """Return the variance of the response lengths of a task, from their sum and the sum of their squares."""
    if not rows:
        return 0.0
    # Integers: the difference of squares of long rows would lose all its digits as floats.
    return max(0.0, float((int(squares) * rows - int(tokens) ** 2) / (rows * rows)))


def draw_variance(rows: int, variance: float, before: int, drawn: int) -> float:
    """Return the variance of the tokens of the next rows of a walk.

    Args:
        rows: of the task.
        variance: of their lengths.
        before: rows that the walk had drawn before.
        drawn: rows that it draws.
    """
    if rows < 2:
        return 0.0
    first = min(drawn, -before % rows)
    last = (drawn - first) % rows
    return variance * (first * (rows - first) + last * (rows - last)) / (rows - 1)


def share_errors(drawn: Mapping[str, Drawn]) -> dict[str, float]:
    """Return the standard error of the share of each source."""
    total = math.fsum(item.tokens for item in drawn.values())
    variance = math.fsum(item.variance for item in drawn.values())
    result = {}
    for name, item in drawn.items():
        share = item.tokens / total if total else 0.0
        spread = (1 - share) ** 2 * item.variance + share**2 * max(0.0, variance - item.variance)
        result[name] = math.sqrt(spread) / total if total else 0.0
    return result


def compare(predicted: Mapping[str, float], drawn: Mapping[str, Drawn]) -> dict[str, Compared]:
    """Compare the shares of a plan with the drawn ones, source by source.

    Args:
        predicted: shares by source.
        drawn: tokens of the same sources.
    """
    total = math.fsum(item.tokens for item in drawn.values())
    errors = share_errors(drawn)
    return {
        name: Compared(
            share, drawn[name].tokens / total if total else 0.0, errors[name], max(LEAST, ERRORS * errors[name])
        )
        for name, share in predicted.items()
    }


def predicted(mixture: Mixture, phase: str = "", first: int = 0) -> dict[str, float]:
    """Return the shares of a phase, or of the whole training from epoch ``first`` on, by source."""
    tokens = dict.fromkeys(mixture.names, 0.0)
    parts = {item.name: max(0, item.epochs[1] - max(first, item.epochs[0])) / item.count for item in mixture.phases}
    for source in mixture.by_phase[phase] if phase else mixture.sources:
        tokens[source.name] += source.tokens if phase else source.tokens * parts[source.phase]
    total = math.fsum(tokens.values())
    return {name: value / total if total else 0.0 for name, value in tokens.items()}


def expected(mixture: Mixture, first: int = 0, end: int | None = None) -> dict[str, Drawn]:
    """Return the tokens that epochs ``first`` to ``end`` will have of each source, in whole rows."""
    end = mixture.epochs if end is None else end
    result = dict.fromkeys(mixture.names, Drawn())
    for key, rows in mixture.wants().items():
        task = mixture.tasks[key]
        name = mixture.source_of[key]
        result[name] += drawn_of(task, sum(rows[:first]), sum(rows[first:end]))
    return result


def drawn_of(task: PlannedTask, before: int, drawn: int) -> Drawn:
    """Return the tokens that the next rows of a task's walk have on average, and their variance."""
    if not task.rows:
        return Drawn()
    variance = length_variance(task.rows, task.response_tokens, task.squares)
    return Drawn(drawn * task.response_tokens / task.rows, draw_variance(task.rows, variance, before, drawn))
