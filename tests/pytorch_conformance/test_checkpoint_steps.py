"""KempnerForge's steps with a checkpoint, an early dense window too."""

import json
from typing import Any

import pytest

from pairmill.training.schedules import saves_at
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import cases

(PATH,) = cases("llama", "checkpoint_steps.json")
CASES = json.loads(PATH.read_text())


def test_there_are_cases() -> None:
    assert all(case["steps"] for case in CASES)
    assert CASES


@pytest.mark.parametrize("case", CASES, ids=lambda one: f"{one['interval']}-{one['window']}")
def test_steps_are_those_recorded(case: dict[str, Any]) -> None:
    settings = TrainSettings.parse(
        "", [f"checkpoints.every_steps={case['interval']}", f"checkpoints.early={case['window'] or []}"]
    )
    found = [step for step in range(case["steps"][-1] + 1) if saves_at(settings, step)]
    assert found == case["steps"]
