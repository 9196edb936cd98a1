"""KempnerForge's factor of the learning rate at each update."""

import json
from typing import Any

import pytest

from pairmill.training.schedules import Rate
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import cases

(PATH,) = cases("llama", "schedules.json")
CASES = json.loads(PATH.read_text())
NAMES = {
    "name": "shape",
    "warmup_steps": "warmup_steps",
    "min_lr_ratio": "min_ratio",
    "decay_steps": "decay_steps",
    "stable_steps": "stable_steps",
    "wsd_decay_type": "wsd_decay",
    "rex_alpha": "rex_alpha",
}


def test_there_are_cases() -> None:
    assert CASES
    assert all(case["lr_factor_at_update"] for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda one: "-".join(map(str, one["config"].values())))
def test_factors_are_those_recorded(case: dict[str, Any]) -> None:
    given = [f"schedule.{NAMES[name]}={'null' if value is None else value}" for name, value in case["config"].items()]
    rate = Rate(TrainSettings.parse("", ["profile=kempner", *given]), case["max_steps"])
    for update, factor in case["lr_factor_at_update"].items():
        assert rate.factor(int(update)) == pytest.approx(factor, rel=1e-12, abs=1e-12), update
