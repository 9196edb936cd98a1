"""KempnerForge's optimizers: a matrix, a vector, and a matrix that is too long for Muon."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pairmill.training.optimizers.optimizer import make
from pairmill.training.schedules import Rate
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import TRAIN, cases

(PATH,) = cases("llama", "optimizers.json")
CASES = json.loads(PATH.read_text())
CLOSE = 1e-6


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return load_file(TRAIN / "llama/optimizers.safetensors")


def test_there_are_cases() -> None:
    assert CASES


@pytest.mark.parametrize("case", CASES, ids=lambda one: one["name"])
def test_each_step_is_as_recorded(case: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    name, config = case["name"], dict(case["config"])
    warmup = config.pop("schedule_free_warmup_steps", 0)
    given = [f"optimizer.{key}={value}" for key, value in {**config, "weight_decay": case["weight_decay"]}.items()]
    settings = TrainSettings.parse(
        "",
        ["profile=kempner", f"optimizer.name={name}", "schedule.shape=none", f"schedule.warmup_steps={warmup}", *given],
    )
    names = sorted({key.split(".")[1] for key in tensors if key.startswith(f"{name}.")})
    assert names
    weights = {one: nn.Parameter(tensors[f"{name}.{one}.0"].clone()) for one in names}
    optimizer, rate = make(settings.optimizer, weights.items()), Rate(settings, 100)
    steps = sum(key.startswith(f"{name}.{names[0]}.grad") for key in tensors)
    assert steps
    for step in range(1, steps + 1):
        for one, weight in weights.items():
            weight.grad = tensors[f"{name}.{one}.grad{step - 1}"].clone()
        optimizer.step(rate.at(step))
        for one, weight in weights.items():
            torch.testing.assert_close(weight.detach(), tensors[f"{name}.{one}.{step}"], rtol=0, atol=CLOSE)
