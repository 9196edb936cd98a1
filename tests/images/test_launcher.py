"""Every component of the compiled pipeline in its built image, under the contract of Kubeflow's launcher."""

from pathlib import Path
from typing import Any

from tests.emulator import Attempt, Backend, Folder, Podman, load
from tests.helpers import REPOSITORY, contents
from tests.images.containers import PIPELINE, writable

COMPILED = REPOSITORY / "pipelines/compiled/pretraining.yaml"
RETRY = {"maxRetryCount": 2, "backoffDuration": "1s", "backoffFactor": 2.0, "backoffMaxDuration": "3600s"}


def retried(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pipeline with a retry policy for every program, whatever it asks for itself."""
    pipeline = documents[0]
    for component in (pipeline["root"], *pipeline["components"].values()):
        for task in component.get("dag", {}).get("tasks", {}).values():
            if "executorLabel" in pipeline["components"][task["componentRef"]["name"]]:
                task["retryPolicy"] = RETRY
    return documents


def test_the_line_in_pods_of_which_each_is_killed_once_makes_the_same_arrays(line: Path, tmp_path: Path) -> None:
    killed = []

    def kill(attempt: Attempt) -> None:
        if attempt.index == 0 and attempt.running is not None:
            killed.append(attempt.node)
            attempt.running.kill()

    folder = writable(tmp_path / "data")
    mounts = (f"--volume={line}:/line:ro", f"--volume={folder}:/data")
    engine = Podman(lambda _: PIPELINE, mounts)
    backend = Backend(Folder(tmp_path / "objects"), engine, tmp_path / "pods", started=kill, second=0.1, pods=2)
    arguments = {"raw": "/line/raw", "root": "/data/root", "output_path": "/data/sampled", "vocab_size": 512}
    run = backend.run(retried(load(COMPILED)), {**arguments, "prefix_config_path": "/line/rules.yaml", "epochs": 2})
    assert run.state == "SUCCEEDED", run.failures()
    assert len(killed) == len({attempt.node.rpartition("(")[0] for attempt in run.attempts})
    assert {attempt.exit_code for attempt in run.attempts if attempt.index == 0} == {137}
    assert contents(folder / "sampled") == contents(line / "sampled")
    assert [path for path in contents(folder) if path.endswith(".partial")] == []
    for execution in run.executions:
        for artifact in execution.outputs.artifacts.values():
            assert backend.objects.exists(artifact.uri), f"{execution.task} wrote no {artifact.uri}"
