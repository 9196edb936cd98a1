"""What a real Kubeflow Pipelines said of its runs, through the logic of the submission."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import kfp_server_api

from pipelines.submit import state
from pipelines.submit.state import Verdict

# The two that the recorder terminated: they end as FAILED.
CANCELED = {"terminate", "no-image"}


def test_every_recorded_run_ends_as_it_was_recorded(shared: Path) -> None:
    folder = shared / "conformance" / "kubeflow"
    client = kfp_server_api.ApiClient()
    counted = 0
    for path in sorted((folder / "rest").glob("*.json")):
        run = client.deserialize(SimpleNamespace(data=path.read_text()), "V2beta1Run")
        recorded = json.loads((folder / "recorded" / path.name).read_text())
        verdict = Verdict.CANCELED if path.stem in CANCELED else Verdict[recorded["state"]]
        assert state.verdict(run) is verdict, path.stem
        tasks = state.tasks(run, datetime.now(UTC))
        assert state.settled(tasks), path.stem
        shown = {task.label.split("[")[0].split(".")[-1]: task for task in tasks}
        for executor in recorded.get("executors", []):
            place = executor["node"].split(".")
            assert place[-2] in shown, (path.stem, place)
            # An attempt that failed may have been followed by one that did not.
            if executor["phase"] == "Failed" and place[-1] == "executor" and "iteration-item" not in place:
                assert shown[place[-2]].state == state.FAILED, (path.stem, place)
        assert all(task.node for task in tasks if task.state == state.FAILED), path.stem
        noise = ("driver", "iteration", "for-loop", "executor", "condition", "exit-handler")
        assert not any(word in task.label for task in tasks if "(driver)" not in task.label for word in noise)
        counted += 1
    assert counted == len(list((folder / "rest").glob("*.json"))) > 10


def test_workers_of_a_recorded_loop_have_their_index(shared: Path) -> None:
    data = (shared / "conformance" / "kubeflow" / "rest" / "loop-failure.json").read_text()
    run = kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=data), "V2beta1Run")
    found = {task.label: task.state for task in state.tasks(run, datetime.now(UTC))}
    workers = {f"nth-fails[{index}]": "FAILED" if index == 1 else "SUCCEEDED" for index in range(4)}
    assert found == {"after-2": "SUCCEEDED", **workers}
