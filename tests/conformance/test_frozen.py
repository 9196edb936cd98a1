"""Runs whose workflow object passed 1 MiB, as a real server answered: their picture froze."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kfp_server_api
import pytest

from pairmill.kubeflow.submit import frozen, state
from pairmill.kubeflow.submit.state import Verdict

FROZEN = {"parallel-3-frozen": Verdict.SUCCEEDED, "train-failed-frozen": Verdict.FAILED}


def answer(shared: Path, name: str) -> Any:
    data = (shared / "conformance" / "kubeflow" / "sizes" / f"run-{name}.json").read_text()
    return kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=data), "V2beta1Run")


def branched() -> dict[str, Any]:
    """The pipeline that was recorded, as far as its last tasks go: a branch in a branch."""
    stages = ["fetch", "clean", "curate", "select", "train-tokenizer", "tokenize", "mix", "sample"]
    line = {
        name: {"componentRef": {"name": "comp-any"}, "dependentTasks": [before] if before else []}
        for before, name in zip(["", *stages], stages, strict=False)
    }
    inside = {name: {"componentRef": {"name": f"comp-{name}"}} for name in ("condition-2", "condition-3")}
    return {
        "root": {
            "dag": {
                "tasks": {
                    **line,
                    "condition-branches-1": {"componentRef": {"name": "comp-branches"}, "dependentTasks": ["sample"]},
                }
            }
        },
        "components": {
            "comp-any": {"executorLabel": "any"},
            "comp-branches": {"dag": {"tasks": inside}},
            "comp-condition-2": {
                "dag": {
                    "tasks": {
                        "train": {"componentRef": {"name": "comp-any"}, "dependentTasks": ["sample-2"]},
                        "sample-2": {"componentRef": {"name": "comp-any"}},
                    }
                }
            },
            "comp-condition-3": {"dag": {"tasks": {"train-2": {"componentRef": {"name": "comp-any"}}}}},
        },
    }


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_a_run_that_ended_while_its_workflow_is_shown_as_going_on_is_frozen(shared: Path, name: str) -> None:
    run = answer(shared, name)
    assert state.verdict(run) is FROZEN[name]
    assert frozen.is_frozen(run)
    # A driver takes seconds; of these two one is shown as running for ever.
    assert frozen.driver_that_runs(run)
    assert not [task for task in state.tasks(run, datetime.now(UTC)) if task.state == state.FAILED]


@pytest.mark.parametrize("name", ["holdout", "oom"])
def test_a_run_that_is_shown_to_its_end_is_not(shared: Path, name: str) -> None:
    run = answer(shared, name)
    assert not frozen.is_frozen(run)
    assert not frozen.driver_that_runs(run)


def test_nodes_of_pods_that_are_not_shown_follow_from_the_pipeline(shared: Path) -> None:
    run = answer(shared, "train-failed-frozen")
    found = frozen.hidden(run, branched())
    assert [task.label for task in found] == ["sample-2", "train", "train-2"]
    # What is shown of the first of them has the id that is computed.
    shown = {child.pod_name for one in run.run_details.task_details for child in one.child_tasks or []}
    assert found[0].driver in shown
    assert not shown.intersection(found[0].pods, found[1].pods)


def test_the_id_of_every_recorded_node_is_a_hash_of_its_name(shared: Path) -> None:
    from tests.conformance.test_weight import recorded

    workflow = recorded(shared)
    name = workflow["metadata"]["name"]
    nodes = workflow["status"]["nodes"]
    assert {f"{name}-{frozen._fnv(one['name'])}" for one in nodes.values() if one["name"] != name} == set(nodes) - {
        name
    }


def test_the_pipeline_of_a_version_is_found_alone_and_beside_its_platform() -> None:
    pipeline = branched()
    for found in (pipeline, {"pipeline_spec": pipeline, "platform_spec": {}}, json.dumps(pipeline)):
        assert frozen.specification(found) == pipeline
