"""HRM-Text's learning rate, the rise after the planned end too, and the number of planned steps."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.data.inputs import Inputs, open_inputs
from pairmill.stages.train.data.steps import scheduled_steps
from pairmill.training.schedules import Rate, compute_rising_cosine
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import TRAIN, cases

(PATH,) = cases("", "hrm_lr.json")
RECORDED = json.loads(PATH.read_text())


def test_there_are_tables() -> None:
    assert RECORDED["tables"]
    assert RECORDED["total_steps"]


@pytest.mark.parametrize("table", RECORDED["tables"], ids=lambda one: f"{one['lr_warmup_steps']}of{one['total_steps']}")
def test_rates_are_those_recorded(table: dict[str, Any]) -> None:
    settings = TrainSettings.parse(
        "",
        [
            "profile=hrm_text",
            f"optimizer.lr={table['lr']}",
            f"schedule.min_ratio={table['lr_min_ratio']}",
            f"schedule.warmup_steps={table['lr_warmup_steps']}",
        ],
    )
    total, warmup = table["total_steps"], table["lr_warmup_steps"]
    runs = total > 0 and total != warmup
    if not runs:  # no step at all, or a division by zero where the warm-up ends: such a run is not begun
        with pytest.raises(UsageError):
            Rate(settings, total)
    assert table["table"]
    for step, value in table["table"]:
        if value == "ZeroDivisionError":
            assert not runs
            with pytest.raises(ZeroDivisionError):
                compute_rising_cosine(step, total, warmup, table["lr_min_ratio"])
        else:
            factor = compute_rising_cosine(step, total, warmup, table["lr_min_ratio"])
            assert table["lr"] * factor == pytest.approx(value, rel=1e-12), step
            assert not runs or Rate(settings, total).at(step) == pytest.approx(value, rel=1e-12), step


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    root = tmp_path_factory.mktemp("root")
    return open_inputs(TrainConfig(root=str(root), sampled=[str(TRAIN / "run/data")]), TrainSettings())


@pytest.mark.parametrize("case", RECORDED["total_steps"], ids=lambda one: str(one["total_steps"]))
def test_planned_steps_are_those_recorded(case: dict[str, int], inputs: Inputs) -> None:
    metadata = replace(inputs.plan.folders[0].metadata, total_length=case["total_length"])
    assert metadata.total_steps(case["epochs"], case["global_batch_size"]) == case["total_steps"]


def test_planned_steps_are_missed_by_the_profile_alone(inputs: Inputs) -> None:
    said = json.loads((TRAIN / "run/runs.json").read_text())["one_rank"]
    config = said["init"]["config"]
    given = [f"batch.tokens={config['global_batch_size']}", f"training.epochs={config['epochs']}"]
    length, batch = config["train_metadata"]["total_length"], config["global_batch_size"]
    estimate, real = config["epochs"] * length // batch, said["logged"][-1]["step"]
    assert scheduled_steps(inputs, TrainSettings.parse("", ["profile=hrm_text", *given]), 1) == estimate
    assert scheduled_steps(inputs, TrainSettings.parse("", given), 1) == real
