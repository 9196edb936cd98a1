"""Mixtures drawn around the natural shares. Pure: a function of the seed, the axes and their limits.

Each mixture has random numbers of its own, so more runs add mixtures and change none.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill.mixture.planning import share_out

Floats = NDArray[np.float64]

DIGITS: Final = 6
"""Decimals of a share that is drawn: the same on every machine, whatever its logarithms are in the last bit."""
_CANDIDATES: Final = 16
"""Of each mixture: the one that tells most beside those before it is taken."""
_KNOWN: Final = 1e-3
"""What is known of each direction before the first mixture, so that the first ones can be compared."""


@dataclass(frozen=True)
class Draw:
    """How mixtures are drawn.

    Args:
        seed: of all draws.
        strengths: the lowest and the highest sum of the Dirichlet distribution's parameters, drawn evenly on a
            logarithmic scale: low ones give mixtures of few sources, high ones mixtures near the centre.
        flatten: the centre is in proportion to size ** flatten: below 1 small sources are seen more.
        least: smaller shares become 0.
    """

    seed: int
    strengths: tuple[float, float] = (0.5, 10.0)
    flatten: float = 0.5
    least: float = 0.005


class _Numbers:
    """Random numbers of one candidate. No release of numpy changes them: raw ones of Philox, formulas of our own."""

    def __init__(self, *names: object) -> None:
        key = hashlib.sha256("/".join(map(str, names)).encode()).digest()[:16]
        self._raw = np.random.Philox(key=int.from_bytes(key, "little"))

    def uniform(self) -> float:
        """Above 0 and below 1."""
        return (int(self._raw.random_raw()) // 2**11 + 0.5) / 2**53

    def _normal(self) -> float:
        return math.sqrt(-2 * math.log(self.uniform())) * math.cos(2 * math.pi * self.uniform())

    def log_gamma(self, shape: float) -> float:
        """Return the logarithm of a gamma variate (Marsaglia and Tsang 2000): that of a small shape would be 0
        itself."""
        if shape < 1:
            return self.log_gamma(shape + 1) + math.log(self.uniform()) / shape
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self._normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log(self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return math.log(d * v)


def mixtures(draw: Draw, natural: Sequence[float], limits: Sequence[float], count: int) -> list[Floats]:
    """Return the first is the natural mixture, as far as the limits allow; each float64 [axes], adding up to 1.

    Args:
        draw: how.
        natural: shares of the axes, above 0, adding up to 1.
        limits: the largest share of each, at least 1 together.
        count: of mixtures.
    """
    axes = len(natural)
    result = [limited(np.asarray(natural, np.float64), limits)]
    seen = {result[0].tobytes()}
    known = _KNOWN * np.eye(2 * axes)
    for number in range(1, count):
        told = _features(result[-1][None, :])
        known = known + told.T @ told
        candidates = [_candidate(draw, number, part, natural, limits) for part in range(_CANDIDATES)]
        # A mixture twice is one run. With few sources under tight caps there may be no other.
        candidates = [item for item in candidates if item.tobytes() not in seen] or candidates
        table = _features(np.stack(candidates))
        # The candidate whose loss the ones before it say least about: the next point of a D-optimal design.
        unknown = np.sum(table @ np.linalg.inv(known) * table, axis=1)
        result.append(candidates[int(np.argmax(unknown.round(9)))])
        seen.add(result[-1].tobytes())
    return result


def _features(points: Floats) -> Floats:
    """Return what a loss may depend on: shares, and their roots, since the first rows of a source change most.

    Of those that were compared these led nearest to the optimum: docs/decisions/0045-search.md.
    """
    return np.hstack([points, np.sqrt(points)])


def _candidate(draw: Draw, number: int, part: int, natural: Sequence[float], limits: Sequence[float]) -> Floats:
    numbers = _Numbers("mixture", draw.seed, number, part)
    low, high = draw.strengths
    strength = low * (high / low) ** numbers.uniform()
    centre = np.asarray(natural, np.float64) ** draw.flatten
    centre = centre / centre.sum()
    logs = np.array([numbers.log_gamma(strength * float(item)) for item in centre])
    shares = np.exp(logs - logs.max())
    shares = shares / shares.sum()
    shares[shares < draw.least] = 0.0
    return limited(shares, limits)


def limited(weights: Floats, limits: Sequence[float]) -> Floats:
    """Shares in proportion to weights, up to the limits; sources of weight 0 are taken only if the others do not
    suffice.
    """
    given = _share_out(weights, limits, 1.0)
    missing = 1.0 - given.sum()
    if missing > 1e-9:
        rest = np.asarray(limits, np.float64) - given
        given = given + _share_out(np.where(weights > 0, 0.0, 1.0), np.maximum(rest, 0.0).tolist(), missing)
    return rounded(given, limits)


def _share_out(weights: Floats, limits: Sequence[float], whole: float) -> Floats:
    names = {str(number): float(weight) for number, weight in enumerate(weights)}
    given = share_out(names, whole, {str(number): float(limit) for number, limit in enumerate(limits)})
    return np.array([given.tokens[name] for name in names])


def rounded(shares: Floats, limits: Sequence[float]) -> Floats:
    """Shares of :data:`DIGITS` decimals that add up to 1, none above its limit."""
    unit = 10**DIGITS
    most = [math.floor(min(limit, 1.0) * unit + 1e-6) for limit in limits]
    parts = [min(math.floor(share * unit + 1e-6), top) for share, top in zip(shares.tolist(), most, strict=True)]
    # What is missing goes to those that lost most, as long as they have room.
    order = sorted(range(len(parts)), key=lambda axis: (parts[axis] - shares[axis] * unit, axis))
    left = unit - sum(parts)
    while left > 0:
        given = [axis for axis in order if parts[axis] < most[axis] and (shares[axis] > 0 or left > len(parts))]
        given = given or [axis for axis in order if parts[axis] < most[axis]]
        if not given:
            break
        for axis in given[:left]:
            parts[axis] += 1
        left = unit - sum(parts)
    return np.array(parts, np.float64) / unit
