"""The best mixture under caps: the minimum of a convex function over shares that add up to 1. Exact, deterministic.

It ends with a proof: no mixture at all that the caps allow is better by more than the gap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GAP: Final = 1e-7
"""Relative to the objective."""
_STEPS: Final = 5_000
_MEMORY: Final = 10
"""Steps among which the objective may rise: without it the steps below become short."""
_LEAST: Final = 1e-14
"""A share is never less where a logarithm of it is taken."""


@dataclass(frozen=True)
class Optimum:
    """Where the minimum is.

    Attributes:
        shares: float64 [axes].
        value: of the objective.
        gap: no allowed mixture is lower than value - gap.
    """

    shares: Floats
    value: float
    gap: float


@dataclass(frozen=True)
class Objective:
    """A convex function of shares: its value and its gradient."""

    at: Callable[[Floats], float]
    gradient: Callable[[Floats], Floats]


def minimise(objective: Objective, start: Floats, limits: Floats) -> Optimum:
    """Return the minimum over shares from 0 to their limits that add up to 1.

    Spectral projected gradient (Birgin, Martínez and Raydan 2000); the gap is that of Frank and Wolfe.

    Args:
        objective: convex.
        start: float64 [axes], shares that are allowed.
        limits: float64 [axes], at least 1 together; 1 or more = none.
    """
    limits = np.minimum(limits, 1.0)
    shares = project(start, limits)
    value, slope = objective.at(shares), objective.gradient(shares)
    best = Optimum(shares, value, gap(slope, shares, limits))
    recent = [value]
    length = 1.0 / max(float(np.abs(slope).max()), 1e-12)
    for _ in range(_STEPS):
        if best.gap <= GAP * max(abs(best.value), 1e-12):
            break
        step = project(shares - length * slope, limits) - shares
        downhill = float(slope @ step)
        if downhill >= -1e-18:
            break
        part, highest = 1.0, max(recent[-_MEMORY:])
        while part > 1e-12 and objective.at(shares + part * step) > highest + 1e-4 * part * downhill:
            part /= 2
        moved = shares + part * step
        turned = objective.gradient(moved)
        change, bend = moved - shares, turned - slope
        curvature = float(change @ bend)
        length = float(np.clip(change @ change / curvature, 1e-10, 1e10)) if curvature > 0 else length * 2
        shares, slope = moved, turned
        value = objective.at(shares)
        recent.append(value)
        if value < best.value:
            best = Optimum(shares, value, gap(slope, shares, limits))
    return best


def gap(slope: Floats, shares: Floats, limits: Floats) -> float:
    """Return the most that a convex function with this slope can fall from these shares."""
    order = np.argsort(slope, kind="stable")
    room = np.minimum(limits, 1.0)[order]
    before = np.concatenate([[0.0], np.cumsum(room)[:-1]])
    filled = np.clip(1.0 - before, 0.0, room)
    return max(0.0, float(slope @ shares - slope[order] @ filled))


def project(point: Floats, limits: Floats) -> Floats:
    """Return the nearest shares from 0 to their limits that add up to 1."""
    # The sum falls piecewise linearly as the point is lowered, with a kink where a share meets 0 or its limit.
    kinks = np.unique(np.concatenate([point, point - limits]))
    sums = np.clip(point[None, :] - kinks[:, None], 0.0, limits[None, :]).sum(axis=1)
    after = int(np.searchsorted(-sums, -1.0, side="left"))
    if after == 0 or after == len(kinks):
        lowered = float(kinks[min(after, len(kinks) - 1)])
    else:
        high, low = sums[after - 1], sums[after]
        part = (high - 1.0) / (high - low) if high > low else 0.0
        lowered = float(kinks[after - 1] + part * (kinks[after] - kinks[after - 1]))
    made: Floats = np.clip(point - lowered, 0.0, limits)
    return made


def distance(shares: Floats, natural: Floats) -> float:
    """Return how far shares are from the natural ones: Kullback and Leibler's divergence, in nats."""
    held = np.maximum(shares, _LEAST)
    return float(np.sum(shares * np.log(held / np.maximum(natural, _LEAST))))


def distance_gradient(shares: Floats, natural: Floats) -> Floats:
    """Return its slope in each share."""
    made: Floats = np.log(np.maximum(shares, _LEAST) / np.maximum(natural, _LEAST)) + 1.0
    return made
