"""Every component of the compiled pipeline in its built image, under the contract of Kubeflow's launcher."""

from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.kubeflow.compile import MAX_WORKERS
from tests.support.data.results import manifests, upload
from tests.support.helpers import REPOSITORY, contents, python
from tests.support.kubernetes.containers import PIPELINE, writable
from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Podman, Stores, load

COMPILED = REPOSITORY / "pipelines/compiled/pretraining.yaml"
PARALLEL = REPOSITORY / "pipelines/compiled/pretraining-parallel.yaml"
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


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_the_line_shared_out_over_pods_on_a_bucket_gives_what_it_gives_on_files(
    kind: str, request: pytest.FixtureRequest, line: Path, tmp_path: Path
) -> None:
    server = request.getfixturevalue({"s3": "s3_server", "gs": "gcs_server"}[kind])
    request.getfixturevalue("use")(server.environment())
    options = {"vocab_size": 512, "epochs": 2}
    files = {"raw": line / "raw", "root": tmp_path / "root", "prefix_config_path": line / "rules.yaml", **options}
    done = python("-m", "pairmill", "run", *(f"{name}={value}" for name, value in files.items()))
    assert done.returncode == 0, done.stderr

    bucket = server.bucket()
    rules = f"{bucket}/rules.yaml"
    storage.store_for(rules).copy(str(line / "rules.yaml"), rules)
    places = {"raw": upload(line / "raw", f"{bucket}/raw"), "root": f"{bucket}/project", "prefix_config_path": rules}
    secret = {name.removesuffix("_S3"): value for name, value in server.environment().items()}
    engine = Podman(lambda _: PIPELINE)
    backend = Backend(Stores(), engine, tmp_path / "pods", secrets={"pairmill-storage": secret}, second=0.1, pods=4)
    run = backend.run(load(PARALLEL), {**places, **options}, root=f"{bucket}/artifacts")
    assert run.state == "SUCCEEDED", run.failures()
    # A task for each stage, and beside five of them those that share its work.
    assert len(run.attempts) == 8 + 5 * (MAX_WORKERS - 1)
    assert manifests(f"{bucket}/project") == manifests(str(tmp_path / "root"))
    reports = [entry.path for entry in storage.store_for(bucket).list(f"{bucket}/artifacts") if "/report" in entry.path]
    assert len(reports) == 8
