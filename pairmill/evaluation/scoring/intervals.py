"""Intervals of shares."""

from math import sqrt
from typing import Final

_Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def wilson(correct: float, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share (Wilson 1927, doi:10.2307/2276774).

    Args:
        correct: how many of them are right; a sum of scores between 0 and 1 gives an interval that is too wide.
        n: questions, at least 1.

    Raises:
        ValueError: n is below 1, or ``correct`` is not between 0 and n.
    """
    if n < 1 or not 0 <= correct <= n:
        raise ValueError(f"{correct} of {n}")
    share, z2 = correct / n, _Z * _Z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return (0.0 if correct == 0 else max(0.0, middle - half)), (1.0 if correct == n else min(1.0, middle + half))
