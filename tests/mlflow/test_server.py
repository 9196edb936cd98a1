"""A real MLflow server: runs as Kubeflow makes them, metrics as its launcher logs them, and the tags of a task.

``make mlflow-test``. ``MLFLOW_PYTHON`` is a Python that has MLflow.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.helpers import PATIENCE, REPOSITORY
from tests.support.kubernetes.emulator import Backend, Folder, Forked, load


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [os.environ["MLFLOW_PYTHON"], "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}"]
    command += ["--workers=1", f"--backend-store-uri=sqlite:///{folder}/runs.db", f"--artifacts-destination={folder}"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process:
        try:
            while not is_ready(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def call(server: str, name: str, value: Mapping[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{server}/api/2.0/mlflow/{name}", json.dumps(value).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def test_the_runs_of_a_pipeline_have_metrics_and_tags(server: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    subprocess.run([sys.executable, "examples/make_raw.py", str(raw)], cwd=REPOSITORY, check=True)
    experiment = call(server, "experiments/create", {"name": "pretraining"})["experiment_id"]
    begun = {"experiment_id": experiment, "start_time": 1}
    parent = call(server, "runs/create", {**begun, "run_name": "pipeline"})["run"]["info"]["run_id"]

    # As Kubeflow's driver begins a task: a nested run, whose number and server the container gets.
    nested = {"key": "mlflow.parentRunId", "value": parent}
    task = call(server, "runs/create", {**begun, "run_name": "all tasks", "tags": [nested]})["run"]["info"]["run_id"]
    engine = Forked(env={"MLFLOW_RUN_ID": task, "MLFLOW_TRACKING_URI": server, "MLFLOW_EXPERIMENT_ID": experiment})
    backend = Backend(Folder(tmp_path / "objects"), engine, tmp_path / "pods", second=0.01)
    places = {"raw": str(raw), "root": str(tmp_path / "root"), "prefix_config_path": "prefix_config.yaml"}
    run = backend.run(
        load(REPOSITORY / "pipelines/compiled/pretraining.yaml"), {**places, "vocab_size": 512, "epochs": 2}
    )
    assert run.state == "SUCCEEDED", run.failures()
    for name, outputs in run.outputs.items():
        # As its launcher ends one: every number of the artifact's metadata.
        metrics = {
            key: value for key, value in outputs.artifacts["metrics"].metadata.items() if isinstance(value, int | float)
        }
        assert metrics, name
        values = [{"key": key, "value": value, "timestamp": 1, "step": 0} for key, value in metrics.items()]
        call(server, "runs/log-batch", {"run_id": task, "metrics": values})

    with urllib.request.urlopen(f"{server}/api/2.0/mlflow/runs/get?run_id={task}", timeout=PATIENCE) as answer:
        data = json.load(answer)["run"]["data"]
    tags = {tag["key"]: tag["value"] for tag in data["tags"]}
    # Of all tasks the sample's is the last that sets them.
    assert tags["mlflow.parentRunId"] == parent
    assert tags["pairmill.stage"] == "sample"
    assert tags["pairmill.plan"] == tags["pairmill.fingerprint"]
    assert (tmp_path / "root/sample" / tags["pairmill.plan"] / "_MANIFEST.json").is_file()
    assert sum(float(value) for name, value in tags.items() if "share" in name) == pytest.approx(1, abs=1e-4)
    assert {"rows_in", "rows_out"} <= {metric["key"] for metric in data["metrics"]}
