"""From what proxies lost to the optimum: laws, their errors at runs left out, sensitivities. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.stages.search.draw import rounded
from pairmill.stages.search.laws import DEFAULT, LAWS, Law
from pairmill.stages.search.optimum import GAP, Objective, distance, distance_gradient, minimise
from pairmill.stages.search.space import Space

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """What proxies lost.

    Attributes:
        points: float64 [runs, axes], shares of the axes.
        losses: by target, float64 [runs].
        weights: by target, adding up to 1; of those that count.
    """

    points: Floats
    losses: Mapping[str, Floats]
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Optimum:
    """The mixture that loses least by the laws.

    Attributes:
        point: float64 [axes].
        gap: what a better one could gain, at most: a proof, relative to the objective.
    """

    point: Floats
    gap: float


@dataclass(frozen=True)
class Findings:
    """What was fitted.

    Attributes:
        law: its name in the registry.
        laws: by target, also of those that count nothing.
        left_out: by target, what the law of the other runs says of each run, float64 [runs].
        weights: by target that counts.
        optimum: of the weighted mean.
    """

    law: str
    laws: Mapping[str, Law]
    left_out: Mapping[str, Floats]
    weights: Mapping[str, float]
    optimum: Optimum

    def objective(self, values: Mapping[str, Any]) -> Any:
        """Return the weighted mean of values by target."""
        return sum(weight * values[name] for name, weight in self.weights.items())

    def predicted(self, point: Floats) -> dict[str, float]:
        """Return what each target loses at a mixture, by its law."""
        return {name: float(item.at(point)) for name, item in self.laws.items()}

    def slope(self, point: Floats) -> Floats:
        """Return how the objective changes with each share, float64 [axes]."""
        made: Floats = np.sum(
            [weight * self.laws[name].gradient(point) for name, weight in self.weights.items()], axis=0
        )
        return made


def find(measured: Measured, space: Space, closeness: float, law: str = DEFAULT) -> Findings:
    """Fit a law to each target, and find the optimum of the weighted mean under the limits of the space."""
    points, kind = measured.points, LAWS[law]
    laws = {name: kind.fit(points, losses) for name, losses in measured.losses.items()}
    left_out = {name: kind.leave_out(points, losses) for name, losses in measured.losses.items()}
    natural = np.asarray(space.natural)
    counted = [(weight, laws[name]) for name, weight in measured.weights.items()]

    def at(point: Floats) -> float:
        value = sum(weight * float(item.at(point)) for weight, item in counted)
        return value + closeness * distance(point, natural) if closeness else value

    def gradient(point: Floats) -> Floats:
        slope: Floats = np.sum([weight * item.gradient(point) for weight, item in counted], axis=0)
        return slope + closeness * distance_gradient(point, natural) if closeness else slope

    # From the best run that was measured: a flat law then ends where something is known.
    best = int(np.argmin(sum(weight * measured.losses[name] for name, weight in measured.weights.items())))
    result = minimise(Objective(at, gradient), points[best], np.asarray(space.limits))
    point = rounded(result.shares, space.limits)
    return Findings(law, laws, left_out, measured.weights, Optimum(point, max(result.gap / abs(result.value), GAP)))


def sensitivities(slope: Floats, point: Floats) -> Floats:
    """Return how the objective changes if a share grows by 0.01 at the cost of all others in proportion, float64
    [axes]."""
    made: Floats = np.empty(len(point))
    for axis, share in enumerate(point.tolist()):
        rest = 1.0 - share
        others = point / rest if rest > 1e-9 else np.full(len(point), 1.0 / max(1, len(point) - 1))
        made[axis] = 0.01 * (slope[axis] - slope @ np.where(np.arange(len(point)) == axis, 0.0, others))
    return made


def agreement(truth: Floats, predicted: Floats) -> dict[str, float | None]:
    """Return how well predictions agree with the truth: correlation, rank correlation, root mean square of the
    errors."""
    return {
        "pearson": _correlation(truth, predicted),
        "spearman": _correlation(_ranks(truth), _ranks(predicted)),
        "error": float(np.sqrt(np.mean(np.square(truth - predicted)))),
    }


def _correlation(first: Floats, second: Floats) -> float | None:
    a, b = first - first.mean(), second - second.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(np.clip(a @ b / size, -1, 1)) if size > 1e-300 else None


def _ranks(values: Floats) -> Floats:
    """Ranks; equal values share theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    made: Floats = (first + (counts - 1) / 2)[place]
    return made


def targets(names: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the targets that count, adding up to 1; without any all count the same."""
    counting = {name: weights[name] for name in names if weights.get(name)} if weights else dict.fromkeys(names, 1.0)
    whole = sum(counting.values())
    return {name: weight / whole for name, weight in counting.items()}
