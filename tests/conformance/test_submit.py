"""What a real Kubeflow Pipelines said of its runs, through the logic of the submission."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import kfp_server_api
import pytest

from pairmill.kubeflow.submit import state, watch
from pairmill.kubeflow.submit.state import Verdict

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
        # These runs' drivers were not wrapped in retries: no entry names their pods.
        assert all(task.node for task in tasks if task.state == state.FAILED and "(driver)" not in task.label), (
            path.stem
        )
        noise = ("driver", "iteration", "for-loop", "executor", "condition", "exit-handler")
        assert not any(word in task.label for task in tasks if "(driver)" not in task.label for word in noise)
        counted += 1
    assert counted == len(list((folder / "rest").glob("*.json"))) > 10


def test_workers_of_a_recorded_loop_have_a_number(shared: Path) -> None:
    data = (shared / "conformance" / "kubeflow" / "rest" / "loop-failure.json").read_text()
    run = kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=data), "V2beta1Run")
    found = {task.label: task.state for task in state.tasks(run, datetime.now(UTC))}
    workers = {f"nth-fails[{index}]": "FAILED" if index == 1 else "SUCCEEDED" for index in range(4)}
    assert found == {"after-2": "SUCCEEDED", **workers}


STAGES = ["fetch", "clean", "train-tokenizer", "tokenize", "sample"]
SHARED = [
    "fetch",
    # Of a pipeline whose shares were iterations of loops.
    *(name for stage in ("clean", "train-tokenizer", "tokenize") for name in (f"{stage}-2[0]", f"{stage}-2[1]", stage)),
    "sample",
]


@pytest.mark.parametrize(
    ("name", "verdict", "labels", "failed"),
    [
        ("serial", Verdict.SUCCEEDED, STAGES, []),
        ("parallel", Verdict.SUCCEEDED, SHARED, []),
        ("plain-parallel", Verdict.SUCCEEDED, SHARED, []),
        ("failed", Verdict.FAILED, STAGES, ["sample"]),
        ("plain-failed", Verdict.FAILED, ["fetch"], ["fetch"]),
        ("terminated", Verdict.CANCELED, ["fetch"], ["fetch"]),
        ("deadline", Verdict.CANCELED, ["fetch", "clean (driver)"], ["clean (driver)"]),
    ],
)
def test_our_own_runs_on_a_stock_installation(
    shared: Path, name: str, verdict: Verdict, labels: list[str], failed: list[str]
) -> None:
    recorded = json.loads((shared / "conformance" / "kubeflow" / "stock" / f"{name}.json").read_text())
    run = kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=json.dumps(recorded["rest"])), "V2beta1Run")
    assert state.verdict(run) is verdict
    tasks = state.tasks(run, datetime.now(UTC))
    assert [task.label for task in tasks] == labels
    assert state.settled(tasks)
    found = [task for task in tasks if task.state == state.FAILED]
    assert [task.label for task in found] == failed
    for task in found:
        # The one whose log was asked for when the run was recorded: the pod of the program.
        answer = recorded["logs"][task.node]
        assert answer["status"] == 200
        if verdict is Verdict.FAILED:
            assert watch.program_lines(answer["body"])[-1].startswith("failed to execute component: exit status")
        else:
            assert "error_message" in json.loads(answer["body"])


def test_a_log_as_the_stock_installation_gives_it_has_only_our_lines(shared: Path) -> None:
    recorded = json.loads((shared / "conformance" / "kubeflow" / "stock" / "serial.json").read_text())
    lines = [watch.program_lines(answer["body"]) for answer in recorded["logs"].values()]
    assert any("6,300 out of 6,300 (100.00%)" in line for said in lines for line in said)
    assert not any("launcher" in line or line.startswith(("I1122", " ", "{", "}")) for said in lines for line in said)


def test_a_task_is_six_nodes_and_an_iteration_of_a_loop_six_more(shared: Path) -> None:
    # As tests/support/kubernetes/workflow_weight.py has it.
    folder = shared / "conformance" / "kubeflow" / "stock"
    found = {
        name: len(json.loads((folder / f"{name}.json").read_text())["workflow"]["nodes"])
        for name in ("serial", "parallel")
    }
    assert found == {"serial": 6 + 6 * 5, "parallel": 6 + 6 * 5 + 3 * (5 + 12 * 2)}


@pytest.mark.parametrize(
    ("name", "verdict", "beside", "failed"),
    [("holdout", Verdict.SUCCEEDED, {"sample", "sample-2"}, []), ("oom", Verdict.FAILED, {"clean"}, ["clean"])],
)
def test_runs_that_were_recorded_for_their_size(
    shared: Path, name: str, verdict: Verdict, beside: set[str], failed: list[str]
) -> None:
    data = (shared / "conformance" / "kubeflow" / "sizes" / f"run-{name}.json").read_text()
    run = kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=data), "V2beta1Run")
    assert state.verdict(run) is verdict
    tasks = state.tasks(run, datetime.now(UTC))
    labels = {task.label for task in tasks}
    # Held-out rows have a task of their own, which is not a share of the other one.
    assert beside <= labels
    assert not any("[" in label for label in labels)
    assert [(task.label, bool(task.node)) for task in tasks if task.state == state.FAILED] == [
        (label, True) for label in failed
    ]
