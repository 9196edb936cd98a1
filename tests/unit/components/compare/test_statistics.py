"""The test of differences: tables of Student's distribution, verdicts, seeds that would be needed, and its level."""

import math

import numpy as np
import pytest

from components.compare.statistics import LEVEL, Paired, cumulative, quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "t"),
    # Abramowitz and Stegun, table 26.10.
    [(0.995, 1, 63.657), (0.995, 2, 9.925), (0.995, 3, 5.841), (0.995, 4, 4.604), (0.975, 3, 3.182), (0.9, 10, 1.372)],
)
def test_students_distribution_is_that_of_the_tables(probability: float, freedom: int, t: float) -> None:
    assert quantile(probability, freedom) == pytest.approx(t, abs=6e-4)
    assert quantile(1 - probability, freedom) == pytest.approx(-t, abs=6e-4)
    assert cumulative(t, freedom) == pytest.approx(probability, abs=1e-4)


def test_a_difference_of_four_seeds() -> None:
    found = Paired.of([0.05, 0.06, 0.04, 0.05])
    assert found.mean == pytest.approx(0.05)
    assert found.spread == pytest.approx(math.sqrt(2e-4 / 3))
    assert found.low == pytest.approx(0.05 - 5.841 * found.spread / 2, abs=1e-4)
    assert found.word(lower_is_better=True) == "worse"
    assert found.word(lower_is_better=False) == "better"
    assert found.seeds_needed == 4
    assert Paired.of([-0.05, 0.06, 0.04, 0.05]).word(lower_is_better=True) == "not distinguishable"


def test_what_cannot_be_told_says_how_many_seeds_would_tell() -> None:
    found = Paired.of([0.02, -0.01, 0.015, 0.005])
    assert found.word(lower_is_better=True) == "not distinguishable"
    needed = found.seeds_needed
    assert needed is not None
    assert 10 < needed < 60
    # Nine times in ten so many seeds find a difference of that size.
    assert found.spread is not None
    draws = np.random.default_rng(1).normal(found.mean, found.spread, (2000, needed))
    right = sum(Paired.of(row).word(lower_is_better=True) == "worse" for row in draws.tolist())
    assert 0.85 < right / 2000 < 0.95
    assert found.found is not None
    assert found.found > abs(found.mean)


def test_one_seed_and_no_difference() -> None:
    one = Paired.of([0.3])
    assert (one.word(lower_is_better=True), one.p, one.seeds_needed, one.found) == (None, None, None, None)
    same = Paired.of([0.0, 0.0, 0.0])
    assert (same.word(lower_is_better=True), same.p, same.seeds_needed) == ("not distinguishable", 1.0, None)
    assert Paired.of([0.1, 0.1]).word(lower_is_better=True) == "worse"


def test_the_level_is_held() -> None:
    draws = np.random.default_rng(2).normal(0, 0.02, (20_000, 4)).tolist()
    found = sum(Paired.of(row).word(lower_is_better=True) != "not distinguishable" for row in draws)
    assert 0.7 * LEVEL < found / 20_000 < 1.3 * LEVEL
