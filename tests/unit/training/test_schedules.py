"""Learning rates, differentiated calls, the EMA's beta, steps with a checkpoint."""

from itertools import pairwise

import pytest

from pairmill.nets.settings import ModelSettings
from pairmill.training.schedules import Rate, choose_ema_beta, count_differentiated, saves_at
from pairmill.training.settings import TrainSettings


def factors(*overrides: str, total: int = 100, steps: range = range(1, 131)) -> list[float]:
    rate = Rate(TrainSettings.parse("", overrides), total)
    return [rate.factor(step) for step in steps]


@pytest.mark.parametrize("shape", ["constant", "cosine", "linear", "wsd"])
def test_every_shape_warms_up_goes_down_and_stays_there(shape: str) -> None:
    found = factors(f"schedule.shape={shape}", "schedule.warmup_steps=10")
    assert found[:10] == [step / 10 for step in range(1, 11)]
    assert all(one >= two for one, two in pairwise(found[9:]))
    end = 1.0 if shape == "constant" else 0.1
    assert found[99:] == pytest.approx([end] * 31, abs=1e-12)
    assert found[98] > end or shape == "constant"


def test_wsd_is_constant_until_its_descent() -> None:
    # A fifth of the run unless something is said.
    found = factors("schedule={shape: wsd, warmup_steps: 10}")
    assert found[9:80] == [1.0] * 71
    assert found[80] < 1
    assert found[89] == pytest.approx(0.55)
    found = factors("schedule={shape: wsd, warmup_steps: 10, stable_steps: 30, wsd_decay: sqrt}")
    assert (found[39], found[54]) == (1.0, pytest.approx(0.1 + 0.9 * 0.75**0.5))
    found = factors("schedule={shape: wsd, warmup_steps: 10, stable_steps: 30, decay_steps: 10, wsd_decay: cosine}")
    assert (found[44], found[49], found[99]) == pytest.approx((0.55, 0.1, 0.1))


def test_a_rate_that_rises_again_is_the_profile_s_alone() -> None:
    given = ["schedule={shape: cosine, warmup_steps: 10, min_ratio: 0.1}"]
    ours, theirs = factors(*given), factors("profile=hrm_text", *given)
    assert ours[:100] == pytest.approx(theirs[:100], rel=1e-12)
    assert theirs[119] > theirs[99] == pytest.approx(ours[119])


def test_a_first_step_that_does_nothing_is_the_profile_s_alone() -> None:
    given = "schedule={shape: cosine, warmup_steps: 10}"
    assert factors(given)[0] == 0.1
    assert factors("profile=kempner", given)[0] == 0.0


@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (2, 1), (20, 1), (1000, 50), (100_000, 2000)])
def test_the_warm_up_follows_from_the_length(total: int, warmup: int) -> None:
    assert Rate(TrainSettings(), total).warmup == warmup


def test_the_rate_is_a_part_of_lr() -> None:
    assert Rate(TrainSettings.parse("", ["optimizer.lr=0.5"]), 100).at(5) == 0.5
    assert factors("schedule.decay_steps=10", "schedule.warmup_steps=0")[10] == pytest.approx(0.1)


@pytest.mark.parametrize(("total", "beta"), [(1, 0.0), (10, 0.0), (20, 0.5), (1000, 0.99), (10**7, 0.9999)])
def test_a_mean_fits_the_length_of_the_run(total: int, beta: float) -> None:
    found = choose_ema_beta(TrainSettings(), total)
    assert found == pytest.approx(beta)
    assert found is not None
    assert found**total < 1e-4, "the initial weights are in the mean at the end"


def test_a_mean_can_be_given_or_left_out() -> None:
    assert choose_ema_beta(TrainSettings.parse("", ["training.ema=off"]), 10) is None
    assert choose_ema_beta(TrainSettings.parse("", ["training.ema=0.9999"]), 10) == 0.9999


def test_differentiated_calls() -> None:
    assert count_differentiated(ModelSettings(), 1, 10) is None
    model = ModelSettings.for_net("hrm")
    assert [count_differentiated(model, step, 100) for step in (1, 9, 10, 20, 100)] == [3, 3, 4, 5, 5]
    assert count_differentiated(ModelSettings.for_net("hrm", bp_warmup_ratio=0.0), 1, 100) == 5


def test_checkpoints_are_due_by_steps() -> None:
    settings = TrainSettings.parse("", ["checkpoints={every_steps: 10, early: [2, 12]}"])
    assert [step for step in range(31) if saves_at(settings, step)] == [2, 3, 4, 6, 10, 20, 30]
    assert not any(saves_at(TrainSettings(), step) for step in range(100))
