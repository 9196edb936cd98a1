"""A training whose plan is extended while it runs: sampled, carried out, read, saved, extended, and read on."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pairmill.loader import Batch, Loader, RowPlan
from tests.unit.loader.test_parents import digest
from tests.unit.stages.sample.test_extend import Training


@pytest.mark.parametrize("tail", ["drop", "carry"])
def test_three_generations_are_one_training_in_any_layout(tmp_path: Path, tail: Any) -> None:
    world = Training(tmp_path)
    plans = [world.plan(epochs=2)]
    plans.append(world.extend(plans[0], 3))
    plans.append(world.extend(plans[1], 5))
    whole = world.plan(epochs=5)
    folders = {}
    for plan, layout in ((plans[0], "compact"), (plans[1], "data_io"), (plans[2], "compact"), (whole, "compact")):
        folders[plan] = str(tmp_path / f"node {plan}")
        world.carry_out(plan, layout=layout, keep=9, output_path=folders[plan])

    def read(plan: str) -> Loader:
        return Loader(RowPlan(folders[plan], tail=tail), batch_tokens=128, rank=1, ranks=2, threads=0)

    expected = list(read(whole))
    ends = [number for number, batch in enumerate(expected) if batch.epoch == 1]
    for stops in ((3, ends[2]), (ends[0], ends[-1]), (ends[-1], None)):
        batches: list[Batch] = []
        state = None
        for plan, stop in zip(plans, [*stops, None], strict=True):
            loader = read(plan)
            if state is not None:
                loader.load_state_dict(state)
            batches += list(islice(loader, None if stop is None else stop - len(batches)))
            state = json.loads(json.dumps(loader.state_dict(), sort_keys=True))
        assert digest(batches) == digest(expected)


def test_a_plan_after_another_begins_where_that_one_ended(tmp_path: Path) -> None:
    world = Training(tmp_path)
    first = world.plan(epochs=2)
    second = world.plan(epochs=2, after=f"{world.home(first)}:2")
    folders = {first: str(tmp_path / "first"), second: str(tmp_path / "second")}
    world.carry_out(first, layout="data_io", output_path=folders[first])
    world.carry_out(second, output_path=folders[second])
    before, after = (Loader(RowPlan(folders[plan]), batch_tokens=128, threads=0) for plan in (first, second))
    for _ in before:
        pass
    after.load_state_dict(before.state_dict())
    assert after.state_dict()["sources"] == {"data": [0, 0]}
    assert after.position.batches == before.position.batches
