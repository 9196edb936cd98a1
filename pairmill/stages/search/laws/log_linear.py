"""The log-linear law of a loss: what a proxy's held-out loss is, given the shares of its mixture. Pure, deterministic.

    loss(p) = floor + exp(p · slopes)

Shares add up to 1, so the slopes have an intercept in them. It is the law of Olmix (arXiv 2602.12237) and of the data
mixing laws (arXiv 2403.16952). It is convex in the shares, so the optimum of a sum of such losses can be found exactly.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FLOORS: Final = (0.05, 0.15, 0.4, 1.0, 2.5, 6.0, 15.0)
"""Floors to try, as distances below the lowest loss in units of the range of the losses; a floor of 0 bounds them."""
_RIDGES: Final = (1e-6, 1e-4, 1e-3, 1e-2)
"""Penalties that are tried, of the slopes' squared distances from a common one, for each run."""
_STEPS: Final = 12
"""Of Gauss and Newton. Three to six are enough unless runs are outliers."""
_OUTLIER: Final = 2.5
"""Standard deviations from which on a run counts less (Huber)."""
_NORMAL: Final = 1.4826
"""Median absolute deviation to standard deviation, of a normal distribution."""
_CLOSE: Final = 1e-7
"""Fitting ends when no logarithm of a loss changes by more."""
_AT_ONCE: Final = 4_000_000
"""Numbers of a table that is held at once."""
_NOTHING: Final = -700.0
"""A slope whose exponential is nothing, and not 0."""
_FAR: Final = 30.0
"""A step of fitting may not change the logarithm of a loss by more: its exponential has to stay finite."""


@dataclass(frozen=True)
class LogLinear:
    """The law of one loss.

    Attributes:
        floor: what no mixture gets below.
        slopes: float64 [axes]; the loss falls along an axis with a low slope.
    """

    floor: float
    slopes: Floats

    def at(self, shares: Floats) -> Any:
        """Return the loss of a mixture float64 [axes], or of many float64 [mixtures, axes]."""
        return self.floor + np.exp(shares @ self.slopes)

    def gradient(self, shares: Floats) -> Floats:
        """Return the slope of the loss in each share, float64 [axes]."""
        made: Floats = np.exp(shares @ self.slopes) * self.slopes
        return made


def fit(shares: Floats, losses: Floats) -> LogLinear:
    """Fit the law to what was measured.

    Floor and penalty are those with the smallest error at the runs that each fit leaves out, by the shortcut for linear
    fits. Runs that are far from the law count less (Huber).

    Args:
        shares: float64 [runs, axes], rows add up to 1.
        losses: float64 [runs].
    """
    return _fits(shares, losses, np.ones((1, len(losses)), np.bool_))[0]


def left_out(shares: Floats, losses: Floats) -> Floats:
    """Return what the law of all other runs says of each run, float64 [runs]: everything is fitted anew without it."""
    runs, axes = shares.shape
    used = ~np.eye(runs, dtype=np.bool_)
    # As many at once as a few MB hold.
    some = max(1, _AT_ONCE // (len(_RIDGES) * (len(_FLOORS) + 1) * runs * (axes + 1)))
    result = [item for start in range(0, runs, some) for item in _fits(shares, losses, used[start : start + some])]
    return np.array([item.at(point) for item, point in zip(result, shares, strict=True)])


def _fits(shares: Floats, losses: Floats, used: Bools) -> list[LogLinear]:
    """Return a law for each set of runs, bool [sets, runs]."""
    tried = [_tried(losses[some]) for some in used]
    pairs = [(floor, ridge, some) for some, floors in enumerate(tried) for floor in floors for ridge in _RIDGES]
    if not pairs:
        return [_level(losses[some], shares.shape[1]) for some in used]
    floors, ridges = (np.array(values) for values in list(zip(*pairs, strict=True))[:2])
    sets = np.array([some for _, _, some in pairs])
    slopes, errors = _fitted(shares, losses, floors, ridges, used[sets])
    made = []
    for number, some in enumerate(used):
        mine = np.flatnonzero(sets == number)
        if len(mine):
            best = int(mine[np.argmin(errors[mine])])
            made.append(LogLinear(float(floors[best]), slopes[best]))
        else:
            made.append(_level(losses[some], shares.shape[1]))
    return made


def _tried(losses: Floats) -> list[float]:
    """Return the floors to try; none if nothing depends on the mixture."""
    lowest, spread = float(losses.min()), float(losses.max() - losses.min())
    if spread <= 1e-12 * abs(float(losses.mean())):
        return []
    floors = {lowest - times * spread for times in _FLOORS}
    # A loss has no floor below 0.
    return sorted({max(0.0, floor) for floor in floors} if lowest > 0 else floors, reverse=True)


def _level(losses: Floats, axes: int) -> LogLinear:
    """Return the law of a loss that is the same for every mixture: the logarithm below would have no slope to find."""
    level = float(losses.mean())
    return LogLinear(0.0, np.full(axes, np.log(level) if level > 0 else _NOTHING))


def _fitted(shares: Floats, losses: Floats, floors: Floats, ridges: Floats, used: Bools) -> tuple[Floats, Floats]:
    """Slopes float64 [tried, axes] for each floor, penalty and set of runs, and the mean squared error at runs that are
    left out one by one.

    Gauss and Newton on ``a + p · d`` with a penalty of d² alone, for all of them at once.
    """
    runs, axes = shares.shape
    design = np.hstack([np.ones((runs, 1)), shares])
    count = used.sum(axis=1, keepdims=True)
    penalty = np.zeros((len(floors), axes + 1, axes + 1))
    penalty[:, 1:, 1:] = (ridges * count[:, 0])[:, None, None] * np.eye(axes)
    above = losses[None, :] - floors[:, None]
    highest = np.max(np.where(used, above, 0.0), axis=1, keepdims=True)
    level = np.log(np.clip(above, 1e-3 * highest, highest))
    lowest, top = level.min() - _FAR, level.max() + _FAR
    logs, counts = level, used.astype(np.float64)
    # So that one penalty means the same for losses of any size.
    size = np.sum(np.square(above) * used, axis=1, keepdims=True) / count
    for step in range(_STEPS):
        now = np.exp(logs)
        weights = counts * np.square(now) / size
        wanted = level if step == 0 else logs + np.clip((above - now) / now, -_FAR, _FAR)
        inverse = np.linalg.inv((design.T[None, :, :] * weights[:, None, :]) @ design + penalty)
        result = np.matmul(inverse, (weights * wanted @ design)[:, :, None])[:, :, 0]
        before, logs = logs, np.clip(result @ design.T, lowest, top)
        residuals = above - np.exp(logs)
        counts = _huber(residuals, axes, used)
        if np.abs(logs - before).max() < _CLOSE:
            break
    leverage = np.sum(np.matmul(design, inverse) * design, axis=2) * weights
    left = residuals / np.maximum(1 - leverage, 1e-3)
    errors = np.sum(counts * np.square(left), axis=1) / count[:, 0]
    slopes: Floats = result[:, 1:] + result[:, :1]
    return slopes, errors


def _huber(residuals: Floats, axes: int, used: Bools) -> Floats:
    """Return how much each run counts: 1, less if it is far from the law, and 0 if it is not used."""
    count = used.sum(axis=1, keepdims=True)
    ordered = np.sort(np.where(used, np.abs(residuals), np.inf), axis=1)
    middle = np.take_along_axis(ordered, (count - 1) // 2, axis=1) + np.take_along_axis(ordered, count // 2, axis=1)
    # A law with almost as many slopes as there are runs passes through them: deviations say too little then.
    freedom = np.maximum(1, count - axes) / count
    limit = _OUTLIER * np.maximum(_NORMAL * middle / 2 / np.sqrt(freedom), 1e-12)
    counts: Floats = np.minimum(1.0, limit / np.maximum(np.abs(residuals), 1e-300)) * used
    return counts
