"""Whether two plans differ, by differences that are paired by seed. Pure numbers; the tests of its level are measured.

A seed draws initial weights, the rows of a plan and their order. So the differences of seeds are independent and of one
distribution, whose mean is 0 if the change has no effect: Student's t test holds its level for them. Held-out rows are
the same for all runs, so they add no chance to the difference. A bootstrap of four numbers would find differences
that are not there (docs/decisions/0043-comparisons.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

LEVEL: Final = 0.01
"""How often a change without effect is called better or worse."""
POWER: Final = 0.9
"""How often an effect is found, where seeds are counted that would find it."""
MOST_SEEDS: Final = 1000

Word = Literal["better", "worse", "not distinguishable"]


@dataclass(frozen=True)
class Paired:
    """Differences of a measure between two plans, by seed.

    Attributes:
        differences: the change less the base.
        mean: of them.
        spread: their standard deviation; None of one seed.
        low, high: interval of the mean at the level (99 %); None of one seed.
        p: how often chance alone gives a mean this far from 0; None of one seed.
    """

    differences: list[float]
    mean: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @classmethod
    def of(cls, differences: Sequence[float], level: float = LEVEL) -> Paired:
        """The test of these differences."""
        count = len(differences)
        mean = math.fsum(differences) / count
        if count < 2:
            return cls(list(differences), mean)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in differences) / (count - 1))
        error = spread / math.sqrt(count)
        far = quantile(1 - level / 2, count - 1) * error
        p = 1.0 if mean == 0 else 2 * (1 - cumulative(abs(mean) / error, count - 1)) if error else 0.0
        return cls(list(differences), mean, spread, mean - far, mean + far, p)

    def word(self, *, lower_is_better: bool, level: float = LEVEL) -> Word | None:
        """The verdict on the change; None of one seed."""
        if self.p is None:
            return None
        if self.p >= level:
            return "not distinguishable"
        return "better" if (self.mean < 0) == lower_is_better else "worse"

    @property
    def seeds_needed(self) -> int | None:
        """Seeds that would find a difference as large as this mean; None = of one seed, or more than a thousand."""
        if not self.spread or not self.mean:
            return None
        for count in range(2, MOST_SEEDS + 1):
            if _found(self.spread, count) <= abs(self.mean):
                return count
        return None

    @property
    def found(self) -> float | None:
        """The least difference that as many seeds find nine times in ten."""
        return None if self.spread is None else _found(self.spread, len(self.differences))


def _found(spread: float, count: int) -> float:
    return (quantile(1 - LEVEL / 2, count - 1) + quantile(POWER, count - 1)) * spread / math.sqrt(count)


def cumulative(t: float, freedom: int) -> float:
    """Student's distribution: the probability of at most ``t``.

    By the sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    if freedom % 2:
        term = total = math.cos(angle) if freedom > 1 else 0.0
        for step in range(3, freedom - 1, 2):
            term *= square * (step - 1) / step
            total += term
        within = 2 / math.pi * (angle + sine * total)
    else:
        term = total = 1.0
        for step in range(2, freedom - 1, 2):
            term *= square * (step - 1) / step
            total += term
        within = sine * total
    return (1 + within) / 2


def quantile(probability: float, freedom: int) -> float:
    """The ``t`` that Student's distribution exceeds with 1 - ``probability``."""
    low, high = 0.0, 1.0
    if probability < 0.5:
        return -quantile(1 - probability, freedom)
    while cumulative(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if cumulative(middle, freedom) < probability else (low, middle)
    return high
