"""How many calls of hrm are differentiated at each step."""

import json
from typing import Any

import pytest

from pairmill.nets.settings import ModelSettings
from pairmill.training.schedules import count_differentiated
from tests.pytorch_conformance.recorded import cases

(PATH,) = cases("", "hrm_bp_steps.json")
TABLES = json.loads(PATH.read_text())


def test_there_are_tables() -> None:
    assert TABLES
    assert all(table["table"] for table in TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda one: f"{one['bp_warmup_ratio']}of{one['total_steps']}")
def test_steps_are_those_recorded(table: dict[str, Any]) -> None:
    model = ModelSettings.for_net(
        "hrm",
        bp_min=table["bp_min_steps"],
        bp_max=table["bp_max_steps"],
        bp_warmup_ratio=table["bp_warmup_ratio"],
    )
    found = [[step, count_differentiated(model, step, table["total_steps"])] for step, _ in table["table"]]
    assert found == table["table"]
