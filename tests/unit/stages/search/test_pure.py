"""What a search is made of: laws, draws, optima, without a stage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError
from pairmill.stages.search import findings
from pairmill.stages.search.draw import DIGITS, Draw, limited, mixtures, rounded
from pairmill.stages.search.findings import Measured
from pairmill.stages.search.laws import LawKind, log_linear
from pairmill.stages.search.optimum import GAP, Objective, distance, distance_gradient, gap, minimise, project
from pairmill.stages.search.space import KEPT, Source, Space

Floats = NDArray[np.float64]
Losses = Callable[[Floats], Floats]


def shares(seed: int, runs: int, axes: int) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(axes, 0.8), runs)


def test_a_law_is_found_again() -> None:
    points, slopes = shares(0, 30, 5), np.array([-1.2, 0.1, 0.4, -0.3, 0.2])
    losses = 1.1 + np.exp(points @ slopes)
    found = log_linear.fit(points, losses)
    others = shares(1, 50, 5)
    assert found.at(others) == pytest.approx(1.1 + np.exp(others @ slopes), abs=0.03)
    step = 1e-6 * np.eye(5)
    numeric = [(found.at(others[0] + one) - found.at(others[0] - one)) / 2e-6 for one in step]
    assert found.gradient(others[0]) == pytest.approx(numeric, rel=1e-5)


def test_a_run_that_went_wrong_counts_less() -> None:
    points = shares(2, 24, 4)
    losses = 0.9 + np.exp(points @ np.array([-1.0, 0.2, 0.3, -0.2]))
    truth = losses.copy()
    losses[5] += 0.8
    robust = np.abs(np.delete(log_linear.fit(points, losses).at(points) - truth, 5)).max()
    assert robust < 0.06
    # Least squares on the logarithm, which is what a fit without that would be, is far from them.
    plain = np.exp(points @ np.linalg.lstsq(points, np.log(losses - 0.9), rcond=None)[0]) + 0.9
    assert np.abs(np.delete(plain - truth, 5)).max() > 2 * robust


@pytest.mark.parametrize("level", [2.5, 0.0, -1.0])
def test_a_loss_that_does_not_depend_on_the_mixture(level: float) -> None:
    points = shares(3, 9, 3)
    found = log_linear.fit(points, np.full(9, level))
    assert found.at(points[0]) == pytest.approx(max(level, 0.0), abs=1e-9)
    assert findings.agreement(np.full(9, level), np.full(9, level))["pearson"] is None


def test_what_is_left_out_is_not_known() -> None:
    points = shares(4, 12, 3)
    losses = 1 + np.exp(points @ np.array([-1.0, 0.5, 0.0]))
    said = log_linear.left_out(points, losses)
    assert LawKind("", log_linear.fit).leave_out(points, losses) == pytest.approx(said)
    assert np.abs(said - losses).max() < 0.05
    wrong = losses.copy()
    wrong[7] += 5
    assert log_linear.left_out(points, wrong)[7] == pytest.approx(said[7])
    # Losses that say nothing of the mixture are not predicted by it.
    noise = np.random.default_rng(5).normal(2, 0.1, 12)
    agreement = findings.agreement(noise, log_linear.left_out(points, noise))
    assert agreement["pearson"] is not None
    assert agreement["pearson"] < 0.5


def test_agreement() -> None:
    found = findings.agreement(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 4.0]))
    assert found["spearman"] == pytest.approx(1)
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [1, 3, 4])[0, 1])
    assert found["error"] == pytest.approx(np.sqrt(1 / 3))
    tied = findings.agreement(np.array([1.0, 1.0, 2.0]), np.array([2.0, 3.0, 9.0]))["spearman"]
    assert tied == pytest.approx(np.sqrt(3) / 2)


def test_more_runs_change_none() -> None:
    natural, limits = [0.5, 0.3, 0.2], [1.0, 1.0, 0.4]
    few, many = (mixtures(Draw(7), natural, limits, count) for count in (5, 9))
    assert [one.tolist() for one in few] == [one.tolist() for one in many[:5]]
    assert few[0].tolist() == natural
    other = mixtures(Draw(8), natural, limits, 5)
    assert other[0].tolist() == natural
    assert other[1].tolist() != few[1].tolist()


def test_mixtures_are_the_same_anywhere() -> None:
    drawn = mixtures(Draw(0), [0.6, 0.3, 0.1], [1.0, 1.0, 0.5], 5)
    assert [one.tolist() for one in drawn[1:]] == RECORDED


RECORDED = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.516385, 0.010518, 0.473097], [0.642941, 0.357059, 0.0]]


@pytest.mark.parametrize("axes", [2, 3, 7, 20])
def test_mixtures_keep_to_the_limits_and_tell_the_sources_apart(axes: int) -> None:
    draw = np.random.default_rng(axes)
    natural = draw.dirichlet(np.ones(axes))
    limits = np.minimum(1.0, 4 * natural)
    drawn = np.stack(mixtures(Draw(1), natural.tolist(), limits.tolist(), 3 * (axes + 1)))
    assert drawn.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert drawn * 10**DIGITS == pytest.approx(np.round(drawn * 10**DIGITS), abs=1e-6)
    assert (drawn <= limits + 1e-12).all()
    assert (drawn >= 0).all()
    assert np.linalg.matrix_rank(drawn) == axes
    # Each source is both in and out, or at least low and high.
    assert (drawn.max(axis=0) > 1.2 * natural).all()
    assert (drawn.min(axis=0) < 0.6 * natural).all()


def test_limits_fill_up_with_what_was_left_out() -> None:
    assert limited(np.array([1.0, 0.0, 0.0]), [0.5, 0.3, 0.4]).tolist() == [0.5, 0.25, 0.25]
    assert rounded(np.array([1 / 3, 1 / 3, 1 / 3]), [1.0, 1.0, 0.3]).sum() <= 1
    assert rounded(np.array([2 / 3, 1 / 3]), [1.0, 1.0]).tolist() == [0.666667, 0.333333]


def test_projection_is_the_nearest_point() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        axes = int(draw.integers(2, 7))
        limits = np.minimum(1.0, draw.uniform(0, 1, axes) + 1 / axes)
        point = draw.normal(0, 1, axes)
        found = project(point, limits)
        assert found.sum() == pytest.approx(1)
        assert ((found >= -1e-12) & (found <= limits + 1e-12)).all()
        others = np.stack([project(draw.normal(0, 1, axes), limits) for _ in range(20)])
        # The angle at a nearest point of a convex set is a right one or more.
        assert ((others - found) @ (point - found) <= 1e-9).all()


@pytest.mark.parametrize("limits", [[1.0, 1.0, 1.0, 1.0], [0.3, 0.4, 0.5, 0.2]])
def test_the_minimum_is_proved(limits: list[float]) -> None:
    draw = np.random.default_rng(3)
    slopes = draw.normal(0, 1.5, (5, 4))
    most = np.array(limits)

    def at(point: Floats) -> float:
        return float(np.exp(slopes @ point).sum())

    def gradient(point: Floats) -> Floats:
        made: Floats = slopes.T @ np.exp(slopes @ point)
        return made

    start = project(np.full(4, 0.25), most)
    found = minimise(Objective(at, gradient), start, most)
    assert found.gap <= GAP * found.value
    assert found.value == at(found.shares)
    tried = np.stack([project(draw.normal(0.25, 0.4, 4), most) for _ in range(3000)])
    assert min(map(at, tried)) >= found.value - found.gap
    assert gap(gradient(start), start, most) >= at(start) - found.value


def test_closeness_keeps_the_shares_near() -> None:
    natural = np.array([0.5, 0.3, 0.2])
    step = np.eye(3) * 1e-6
    point = np.array([0.2, 0.3, 0.5])
    numeric = [(distance(point + one, natural) - distance(point - one, natural)) / 2e-6 for one in step]
    assert distance_gradient(point, natural) == pytest.approx(numeric, rel=1e-4)
    assert distance(natural, natural) == 0
    points = np.stack(mixtures(Draw(0), natural.tolist(), [1.0] * 3, 12))
    losses = {"a": 1 + np.exp(points @ np.array([0.5, 0.1, -1.0]))}
    space = Space.from_sources(
        [Source(name, tokens, 1e9, name) for name, tokens in zip("xyz", (50, 30, 20), strict=True)], 10
    )
    apart = [
        distance(findings.find(Measured(points, losses, {"a": 1.0}), space, closeness).optimum.point, natural)
        for closeness in (0.0, 0.2, 5.0)
    ]
    assert apart[0] > 1.5 > apart[1] > apart[2]
    assert apart[2] < 0.02


@pytest.mark.parametrize("axes", [3, 5])
@pytest.mark.parametrize("kind", ["log-linear", "power"])
def test_nine_tenths_of_the_gain_with_runs_linear_in_the_sources(kind: str, axes: int) -> None:
    """3 · (sources + 1) runs with noise, for the law that is assumed and for one that is not log-linear."""
    reached, correlations = [], []
    for seed in range(3):
        draw = np.random.default_rng(100 * axes + seed)
        natural = np.maximum(draw.dirichlet(np.ones(axes)), 0.02)
        natural = natural / natural.sum()
        loss = _task(kind, axes, draw)
        limits = np.minimum(1.0, 6 * natural)
        points = np.stack(mixtures(Draw(seed), natural.tolist(), limits.tolist(), 3 * (axes + 1)))
        measured = loss(points) + draw.normal(0, 0.004, (len(points), axes))
        space = Space.from_sources(
            [Source(str(n), int(1e6 * natural[n]), 6e6 * natural[n], "") for n in range(axes)], 1e6
        )
        targets = {str(one): measured[:, one] for one in range(axes)}
        found = findings.find(Measured(points, targets, dict.fromkeys(targets, 1 / axes)), space, 0.0)
        truth = minimise(_objective(loss, axes), points[0], limits)
        start = float(loss(points[0]).mean())
        reached.append((start - float(loss(found.optimum.point).mean())) / (start - truth.value))
        agreement = findings.agreement(found.objective(targets), found.objective(found.left_out))
        correlations.append(agreement["pearson"])
    assert min(reached) >= 0.9, reached
    assert min(correlations) > 0.7, correlations


def _task(kind: str, axes: int, draw: np.random.Generator) -> Losses:
    """Each held-out source needs its own source most, and the others as they are related."""
    related = np.abs(draw.normal(0, 0.25, (axes, axes))) + np.diag(draw.uniform(0.6, 1.4, axes))
    worth = draw.dirichlet(np.ones(axes)) * axes
    if kind == "log-linear":
        slopes = -related * worth[:, None]

        def loss(points: Floats) -> Floats:
            made: Floats = 0.7 + np.exp(points @ slopes.T)
            return made
    else:

        def loss(points: Floats) -> Floats:
            made: Floats = 0.7 + 0.5 * worth * (0.1 + points @ related.T) ** -0.4
            return made

    return loss


def _objective(loss: Losses, axes: int) -> Objective:
    def gradient(point: Floats) -> Floats:
        step = 1e-6 * np.eye(axes)
        return np.array([(loss(point + one).mean() - loss(point - one).mean()) / 2e-6 for one in step])

    return Objective(lambda point: float(loss(point).mean()), gradient)


def source(name: str, tokens: int, limit: float = 1e9) -> Source:
    return Source(name, tokens, limit, name)


def test_sources_that_are_kept_are_one_share() -> None:
    sources = [source("a", 40), source("b", 40, 30), source("new", 20)]
    space = Space.from_sources(sources, 100, {"a": 0.3, "b": 0.1})
    assert [axis.name for axis in space.axes] == [KEPT, "new"]
    assert space.axes[0].parts == pytest.approx({"a": 0.75, "b": 0.25})
    assert space.natural == pytest.approx((0.8, 0.2))
    assert space.limits == pytest.approx((1.0, 1.0))  # a quarter of the budget is less than the cap of b
    assert space.expand(np.array([0.6, 0.4])) == pytest.approx({"a": 0.45, "b": 0.15, "new": 0.4})
    # What was left out before stays out; if all was, they keep the shares as they come.
    assert Space.from_sources(sources, 100, {"a": 0.5, "b": 0.0}).axes[0].parts == {"a": 1.0, "b": 0.0}
    assert Space.from_sources(sources, 100, {"a": 0.0, "b": 0.0}).axes[0].parts == {"a": 0.5, "b": 0.5}
    # One source that is kept is a share as any other.
    assert [axis.name for axis in Space.from_sources(sources, 100, {"a": 1.0}).axes] == ["a", "b", "new"]


def test_spaces_that_are_refused() -> None:
    with pytest.raises(InputError, match="a source has no response token; got 'b'"):
        Space.from_sources([source("a", 3), source("b", 0)], 3)
    with pytest.raises(UsageError, match=r"caps do not allow so large a budget.*100 response tokens.*at most 30"):
        Space.from_sources([source("a", 50, 10), source("b", 50, 20)], 100)
    with pytest.raises(UsageError, match=r"nothing to search.*one source, 'a'"):
        Space.from_sources([source("a", 3)], 3)
    with pytest.raises(UsageError, match=r"nothing to search.*no source differs"):
        Space.from_sources([source("a", 3), source("b", 3)], 6, {"a": 0.5, "b": 0.5})
    with pytest.raises(UsageError, match=r"the other sources keep their shares.*at most 60% of the budget"):
        Space.from_sources([source("a", 50, 20), source("b", 50, 100), source("c", 5, 20)], 100, {"a": 0.5, "b": 0.5})
