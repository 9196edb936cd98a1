"""The test of differences: Student's distribution, verdicts, seeds that would be needed, and how often it is wrong.

``PAIRMILL_STATISTICS=400000`` simulates that many comparisons of each kind, and ``pytest -s`` prints the table of
docs/comparing.md.
"""

import math
import os

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.stages.compare.statistics import LEVEL, LOOKS, Paired, cumulative, holm, level_of_look, quantile, verdicts


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
    found = Paired.from_differences([0.05, 0.06, 0.04, 0.05])
    assert found.mean == pytest.approx(0.05)
    assert found.spread == pytest.approx(math.sqrt(2e-4 / 3))
    # A first look has half of the level: the quantile is that of 99.5 %.
    assert found.low == pytest.approx(0.05 - 7.4533 * found.spread / 2, abs=1e-4)
    assert Paired.from_differences(found.differences, 0).low == pytest.approx(
        0.05 - 5.8409 * found.spread / 2, abs=1e-4
    )
    assert Paired.from_differences(found.differences, 3).low == pytest.approx(
        0.05 - quantile(1 - 0.005 / 6, 3) * found.spread / 2
    )
    assert found.word(lower_is_better=True) == "worse"
    assert found.word(lower_is_better=False) == "better"
    assert found.seeds_needed == 4
    assert Paired.from_differences([-0.05, 0.06, 0.04, 0.05]).word(lower_is_better=True) == "not distinguishable"


def test_what_cannot_be_told_says_how_many_seeds_would_tell() -> None:
    found = Paired.from_differences([0.02, -0.005, 0.03, 0.015])
    assert found.word(lower_is_better=True) == "not distinguishable"
    needed = found.seeds_needed
    assert needed == 32
    # Nine times in ten so many seeds find a difference of that size; those of the look before it do not.
    assert found.spread is not None
    draws = np.random.default_rng(1).normal(found.mean, found.spread, (2000, needed))
    right = [
        sum(Paired.from_differences(row).word(lower_is_better=True) == "worse" for row in some.tolist())
        for some in (draws, draws[:, :16])
    ]
    assert right[0] / 2000 > 0.88
    assert right[1] / 2000 < 0.9
    assert found.detectable is not None
    assert found.detectable > abs(found.mean)


def test_one_seed_and_no_difference() -> None:
    one = Paired.from_differences([0.3])
    assert (one.word(lower_is_better=True), one.p, one.seeds_needed, one.detectable) == (None, None, None, None)
    same = Paired.from_differences([0.0, 0.0, 0.0])
    assert (same.word(lower_is_better=True), same.p, same.seeds_needed) == ("not distinguishable", 1.0, None)
    assert Paired.from_differences([0.1, 0.1]).word(lower_is_better=True) == "worse"


# Of scipy 1.17.1: stats.t.isf(level / 2, seeds - 1).
@pytest.mark.parametrize(
    ("seeds", "level", "t"),
    [
        (3, LEVEL / 512, 226.2708554),
        (4, 0.005, 7.4533185),
        (8, 0.0025, 4.5946382),
        (16, 0.00125, 3.9629929),
        (32, 0.000625, 3.8056744),
        (64, 0.0003125, 3.8152544),
        (1024, LEVEL / 512, 4.2903386),
    ],
)
def test_each_look_spends_half_of_what_is_left(seeds: int, level: float, t: float) -> None:
    assert level_of_look(seeds) == pytest.approx(level)
    assert quantile(1 - level / 2, seeds - 1) == pytest.approx(t, rel=1e-6)


def test_all_looks_together_spend_the_level() -> None:
    assert sum(map(level_of_look, (LOOKS[0] - 1, *LOOKS))) == pytest.approx(LEVEL)
    assert [level_of_look(seeds) for seeds in (5, 7)] == [level_of_look(8)] * 2
    assert level_of_look(9) == level_of_look(16)
    assert level_of_look(5000) == level_of_look(1024)


# Of statsmodels 0.15.0: stats.multitest.multipletests(p, method="holm").
@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        (
            [0.0021, 0.0004, 0.31, 0.0012, 0.0049, 0.0035, 0.9, 0.0027, 0.0011, 0.05],
            [0.0147, 0.004, 0.62, 0.0099, 0.0196, 0.0175, 0.9, 0.0162, 0.0099, 0.15],
        ),
        ([0.4], [0.4]),
    ],
)
def test_several_plans_are_corrected_as_statsmodels_corrects_them(p: list[float], corrected: list[float]) -> None:
    assert holm(p) == pytest.approx(corrected)


def test_a_plan_is_judged_beside_the_others() -> None:
    mild, strong, none = [0.05, 0.067, 0.04, 0.045], [-0.5, -0.52, -0.51, -0.5], [0.01, -0.01, 0.02, -0.015]
    alone = Paired.from_differences(mild)
    assert alone.p is not None
    assert 0.0025 < alone.p < 0.005
    assert alone.word(lower_is_better=True) == "worse"
    tests = [Paired.from_differences(some, 3) for some in (mild, strong, none)]
    (p, word), (least, told), (most, _) = verdicts(tests, lower_is_better=True)
    assert (word, told) == ("not distinguishable", "better")
    # Twice for half of the level, and by Holm three times the least p, twice the next and once the last.
    raw = [test.p or 0.0 for test in tests]
    assert (p, least, most) == (pytest.approx(4 * raw[0]), pytest.approx(6 * raw[1]), min(1.0, 2 * raw[2]))
    assert verdicts([Paired.from_differences([0.1], 2)] * 2, lower_is_better=True) == [(None, None)] * 2


TIMES = int(os.environ.get("PAIRMILL_STATISTICS", "30000"))
MOST = 64
"""Seeds of the last look that is simulated."""
Ints, Floats = NDArray[np.int64], NDArray[np.float64]


def judged(draws: Floats, plans: int = 1) -> tuple[NDArray[np.bool_], Ints]:
    """Whether any plan of each comparison is told from the base, and the next look that its first one needs, or 0.

    Args:
        draws: differences by seed, [comparisons, plans, seeds].
    """
    seeds = draws.shape[-1]
    mean, spread = draws.mean(-1), draws.std(-1, ddof=1)
    far = np.abs(mean) / (spread / np.sqrt(seeds))
    # The first of Holm's steps decides whether there is any verdict at all.
    told = (far > quantile(1 - level_of_look(seeds) / plans / 2, seeds - 1)).any(-1)
    needed = np.zeros(len(draws), np.int64)
    for look in reversed([look for look in LOOKS if seeds < look <= MOST]):
        finds = (quantile(1 - level_of_look(look) / plans / 2, look - 1) + quantile(0.9, look - 1)) / np.sqrt(look)
        needed[finds * spread[:, 0] <= np.abs(mean[:, 0])] = look
    return told, needed


def followed(draws: Floats, looks: int, plans: int = 1) -> tuple[float, float]:
    """How often a plan is told, and seeds taken, where the advice of each look is followed up to so many looks."""
    told, taken = np.zeros(len(draws), bool), np.full(len(draws), LOOKS[0])
    going = np.full(len(draws), LOOKS[0])
    for _ in range(looks):
        after = np.zeros(len(draws), np.int64)
        for look in [one for one in LOOKS if one <= MOST]:
            mine = np.flatnonzero(going == look)
            if len(mine):
                right, needed = judged(draws[mine, :, :look], plans)
                told[mine], taken[mine] = right, look
                after[mine[~right]] = needed[~right]
        going = after
    return float(told.mean()), float(taken.mean())


def test_the_simulation_judges_as_the_program_does() -> None:
    draws = np.random.default_rng(4).normal(0.4, 1, (300, 3, 8))
    for plans in (1, 3):
        told, needed = judged(draws[:, :plans], plans)
        for at, some in enumerate(draws[:, :plans].tolist()):
            tests = [Paired.from_differences(one, plans) for one in some]
            words = {word for _, word in verdicts(tests, lower_is_better=True)}
            assert bool(words & {"better", "worse"}) == told[at]
            wanted = tests[0].seeds_needed or 0
            assert needed[at] == (wanted if 8 < wanted <= MOST else 0) or wanted <= 8


def test_the_level_is_held_at_every_look_and_for_ten_plans() -> None:
    random = np.random.default_rng(2)
    draws = random.normal(0, 0.02, (TIMES, 1, MOST))
    base = random.normal(0, 0.02, (TIMES // 10, 1, MOST))
    ten = random.normal(0, 0.02, (TIMES // 10, 10, MOST)) - base
    every = np.zeros(TIMES, bool)
    for look in [one for one in LOOKS if one <= MOST]:
        every |= judged(draws[:, :, :look])[0]
    found = {
        "one look at 4 seeds": followed(draws, 1)[0],
        "and the seeds that it says": followed(draws, 2)[0],
        "a look at each of 4, 8, 16, 32 and 64": float(every.mean()),
        "ten plans, one look": followed(ten, 1, 10)[0],
        "ten plans, and the seeds that it says": followed(ten, 2, 10)[0],
    }
    for name, rate in found.items():
        count = TIMES // 10 if "ten" in name else TIMES
        print(f"| {name} | {count:,} | {rate:.2%} |")
        # What is allowed, and three standard errors of a rate that is simulated.
        assert rate < LEVEL + 3 * math.sqrt(LEVEL / count), name
    assert found["one look at 4 seeds"] > 0.4 * LEVEL


def test_what_is_found() -> None:
    draws = np.random.default_rng(3).normal(0, 1, (TIMES // 3, 1, MOST))
    rates = {}
    for effect in (0.5, 1, 2, 3, 4, 5):
        once, _ = followed(draws + effect, 1)
        again, seeds = followed(draws + effect, 2)
        rates[effect] = once, again
        print(f"| {effect:g} | {once:.0%} | {again:.0%} | {seeds:.0f} |")
    # 4.5 spreads are what four seeds find nine times in ten, by ``found``.
    assert rates[4][0] < 0.9 < rates[5][0] + 0.06
    assert rates[2][1] > 0.9
    assert all(once <= again for once, again in rates.values())
