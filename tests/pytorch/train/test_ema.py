"""The mean of the weights: what it is, and that it is right for runs of any length, with every optimizer."""

import pytest
import torch
from torch import nn

from pairmill.training.optimizers.optimizer import make
from pairmill.training.schedules import choose_ema_beta
from pairmill.training.settings import OptimizerSettings, TrainSettings, defaults

LR = 0.01


def run(name: str, steps: int, beta: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights that begin at 5 and go to 0; they and their mean at the end."""
    weight = nn.Parameter(torch.full((4, 4), 5.0) + torch.eye(4))
    optimizer = make(OptimizerSettings(name=name, weight_decay=0.0), [("w", weight)], beta)
    for _ in range(steps):
        weight.grad = weight.detach().clone()
        optimizer.step(5 / steps * 1.5)
    return weight.detach(), optimizer.state["w"]["param_ema"]


@pytest.mark.parametrize("name", ["adam_atan2", "adamw"])
def test_the_mean_of_a_short_run_is_near_its_last_weights(name: str) -> None:
    for steps in (5, 50, 500):
        weight, mean = run(name, steps, choose_ema_beta(TrainSettings(), steps))
        assert float((mean - weight).abs().max()) < 1.0
        # The reference's default exports almost the initial weights.
        _, theirs = run(name, steps, choose_ema_beta(defaults("hrm_text"), steps))
        assert float((theirs - weight).abs().max()) > 4.0


def test_it_is_the_recursion_and_exchanging_it_twice_changes_nothing() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = make(OptimizerSettings(weight_decay=0.0), [("w", weight)], 0.75)
    expected = torch.zeros(2)
    for _ in range(3):
        weight.grad = -torch.ones(2)
        optimizer.step(LR)
        expected = 0.75 * expected + 0.25 * weight.detach()
    mean = optimizer.state["w"]["param_ema"].clone()
    torch.testing.assert_close(mean, expected)
    last = weight.detach().clone()
    optimizer.swap_ema()
    assert torch.equal(weight, mean)
    assert torch.equal(optimizer.state["w"]["param_ema"], last)
    optimizer.swap_ema()
    assert torch.equal(weight, last)


def test_without_a_mean_there_is_none() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = make(OptimizerSettings(), [("w", weight)])
    assert not optimizer.averages
    optimizer.swap_ema()
    assert "param_ema" not in optimizer.state["w"]


def test_schedule_free_brings_its_own() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    assert make(OptimizerSettings(name="schedule_free_adamw"), [("w", weight)]).averages


def test_beta_0_is_the_weights_themselves() -> None:
    weight, mean = run("adam_atan2", 5, 0.0)
    assert torch.equal(weight, mean)
