"""Whether two plans differ, by differences that are paired by seed. Pure numbers; the tests of its level are measured.

A seed draws initial weights, the rows of a plan and their order. So the differences of seeds are independent and of one
distribution, whose mean is 0 if the change has no effect: Student's t test holds its level for them. Held-out rows are
the same for all runs, so they add no chance to the difference. A bootstrap of four numbers would find differences
that are not there (docs/decisions/0043-comparisons.md).

A comparison may be looked at again with more seeds, and have several plans. Each doubling of the seeds spends half of
the level that is left, and Holm's method corrects for the plans (docs/decisions/0048-second-looks.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

LEVEL: Final = 0.01
"""How often a change without effect is called better or worse, at any of the looks that are paid for."""
POWER: Final = 0.9
"""How often an effect is found, where seeds are counted that would find it."""
LOOKS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Seeds of the looks that are paid for."""

Word = Literal["better", "worse", "not distinguishable"]


def level_of_look(seeds: int) -> float:
    """Return the part of :data:`LEVEL` that a look at these seeds spends: half of what the looks before it left.

    A number between two looks is judged as the later one is. Fewer than four seeds have what all looks leave.
    """
    before = len(LOOKS) - 1 if seeds < LOOKS[0] else sum(look < seeds for look in LOOKS[:-1])
    return math.ldexp(LEVEL, -before - 1)


@dataclass(frozen=True)
class Paired:
    """Differences of a measure between two plans, by seed.

    Attributes:
        differences: the change less the base.
        mean: of them.
        spread: their standard deviation; None of one seed.
        low, high: the 99 % interval of the mean: simultaneous for all looks and plans, or uncorrected; None of one
            seed.
        p: how often chance alone gives a mean this far from 0, uncorrected; None of one seed.
        plans: that are compared with the base, for which the interval is corrected; 0 = for nothing.
    """

    differences: list[float]
    mean: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    plans: int = 1

    @classmethod
    def from_differences(cls, differences: Sequence[float], plans: int = 1) -> Paired:
        """Test these differences.

        Args:
            differences: by seed.
            plans: that are compared with the base; 0 = a figure that is not judged, whose interval is uncorrected.
        """
        count = len(differences)
        mean = math.fsum(differences) / count
        if count < 2:
            return cls(list(differences), mean, plans=plans)
        spread = math.sqrt(math.fsum((item - mean) ** 2 for item in differences) / (count - 1))
        error = spread / math.sqrt(count)
        far = quantile(1 - _level(count, plans) / 2, count - 1) * error
        p = 1.0 if mean == 0 else 2 * (1 - cumulative(abs(mean) / error, count - 1)) if error else 0.0
        return cls(list(differences), mean, spread, low=mean - far, high=mean + far, p=p, plans=plans)

    def word(self, *, lower_is_better: bool) -> Word | None:
        """Return the verdict on the change, as the only one that is compared with the base; None of one seed."""
        return verdicts([self], lower_is_better=lower_is_better)[0][1]

    @property
    def seeds_needed(self) -> int | None:
        """Seeds of the first look that would find a difference as large as this mean; None = of one seed, or none."""
        if not self.spread or not self.mean:
            return None
        return next((seeds for seeds in LOOKS if self._finds(seeds) <= abs(self.mean)), None)

    @property
    def detectable(self) -> float | None:
        """The least difference that as many seeds find nine times in ten."""
        return None if self.spread is None else self._finds(len(self.differences))

    def _finds(self, seeds: int) -> float:
        assert self.spread is not None
        far = quantile(1 - _level(seeds, self.plans) / 2, seeds - 1) + quantile(POWER, seeds - 1)
        return far * self.spread / math.sqrt(seeds)


def verdicts(tests: Sequence[Paired], *, lower_is_better: bool) -> list[tuple[float | None, Word | None]]:
    """Return the verdicts on several changes of one base, and their p corrected for looks and plans; None of one seed.

    A change is better or worse if its corrected p is below :data:`LEVEL`.
    """
    if any(test.p is None for test in tests):
        return [(None, None)] * len(tests)
    looks = LEVEL / level_of_look(len(tests[0].differences))
    result: list[tuple[float | None, Word | None]] = []
    for test, p in zip(tests, holm([test.p or 0.0 for test in tests]), strict=True):
        corrected = min(1.0, p * looks)
        told = "better" if (test.mean < 0) == lower_is_better else "worse"
        result.append((corrected, told if corrected < LEVEL else "not distinguishable"))  # type: ignore[arg-type]
    return result


def holm(p: Sequence[float]) -> list[float]:
    """Return the p of several tests, corrected for their number (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    result = [0.0] * len(p)
    least = 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=lambda at: p[at])):
        least = max(least, min(1.0, (len(p) - rank) * p[at]))
        result[at] = least
    return result


def _level(seeds: int, plans: int) -> float:
    return level_of_look(seeds) / plans if plans else LEVEL


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


@cache
def quantile(probability: float, freedom: int) -> float:
    """Return the ``t`` that Student's distribution exceeds with 1 - ``probability``."""
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
