"""AdamATan2 alone: weights, moments and EMA after each step, absent gradients, the exchange of weights and EMA."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pairmill.training.optimizers.optimizer import Optimizer, make
from pairmill.training.settings import OptimizerSettings
from tests.pytorch_conformance.recorded import TRAIN, cases

CASES = [case for path in cases("", "adam_atan2.json") for case in json.loads(path.read_text())]
CLOSE = 1e-6


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return load_file(TRAIN / "adam_atan2.safetensors")


def optimizer_of(case: dict[str, Any], weight: nn.Parameter) -> Optimizer:
    settings = OptimizerSettings(betas=case["betas"], weight_decay=case["weight_decay"], decay="all")
    return make(settings, [("w", weight)], case["ema"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_step_is_as_recorded(case: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    name = case["name"]
    weight = nn.Parameter(tensors[f"{name}.param0"].clone())
    optimizer = optimizer_of(case, weight)
    compared = 0
    for step in range(case["steps"]):
        weight.grad = None if case["no_grad"][step] else tensors[f"{name}.grad{step}"].clone()
        optimizer.step(case["lr"][step])
        found = {"param": weight.detach(), **optimizer.state["w"]}
        for key in ("param", "exp_avg", "exp_avg_sq", "param_ema"):
            recorded = tensors.get(f"{name}.{key}{step + 1}")
            # State that the reference has not made yet has its first value here.
            assert recorded is None or key in found
            if recorded is not None:
                torch.testing.assert_close(found[key], recorded, rtol=0, atol=CLOSE)
                compared += 1
    # Before the first gradient the reference records no state.
    assert compared >= case["steps"] * 2
    assert optimizer.steps["w"] == case["final_step"]
    if f"{name}.param_after_swap" in tensors:
        optimizer.swap_ema()
        torch.testing.assert_close(weight.detach(), tensors[f"{name}.param_after_swap"], rtol=0, atol=CLOSE)
        torch.testing.assert_close(
            optimizer.state["w"]["param_ema"], tensors[f"{name}.ema_after_swap"], rtol=0, atol=CLOSE
        )


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_scale_of_gradients_is_not_seen(case: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """So gradients that are as many times too large as there are processes change nothing."""
    name = case["name"]
    found = []
    for scale in (1.0, 8.0):
        weight = nn.Parameter(tensors[f"{name}.param0"].clone())
        optimizer = optimizer_of(case, weight)
        for step in range(case["steps"]):
            weight.grad = tensors.get(f"{name}.grad{step}", torch.zeros_like(weight)) * scale
            optimizer.step(case["lr"][step])
        found.append(weight.detach())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-7)
