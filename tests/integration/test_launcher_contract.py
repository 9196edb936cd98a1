"""The compiled pipeline, task by task, under the contract of Kubeflow's driver and launcher.

What a real 2.17 backend gives a container: the executor input as one argument with every value (defaults included),
artifact URIs of an object store mounted at ``/<scheme>``, outputs whose parents may not exist. What it demands: exit
code 0, every declared output parameter, an executor output of known fields. Here a small stand-in for both resolves
``pipelines/compiled/pretraining.yaml``; nothing of kfp is used.
"""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import contents, missing

TOP = Path(__file__).parents[2]
ORDER = ("fetch", "clean", "train-tokenizer", "tokenize", "sample")


@pytest.fixture
def bucket() -> Iterator[str]:
    name = f"pairmill-test-{uuid.uuid4().hex[:8]}"
    made = not Path("/minio").exists()
    if not os.access("/" if made else "/minio", os.W_OK):
        missing("folders at the top of the file system, where the launcher mounts artifacts")
    yield name
    shutil.rmtree(f"/minio/{name}", ignore_errors=True)
    if made and Path("/minio").exists():
        Path("/minio").rmdir()


class Backend:
    """Resolves tasks as the driver does, runs them as the launcher does, and remembers their outputs."""

    def __init__(self, bucket: str, arguments: dict[str, Any]) -> None:
        self.spec = next(iter(yaml.safe_load_all((TOP / "pipelines/compiled/pretraining.yaml").read_text())))
        self.prefix = f"{bucket}/v2/artifacts/pairmill-pretraining/{uuid.uuid4()}"
        defaults = self.spec["root"]["inputDefinitions"]["parameters"]
        known = {name: item["defaultValue"] for name, item in defaults.items() if "defaultValue" in item}
        assert set(arguments) <= set(defaults)
        self.arguments = {**known, **arguments}
        self.outputs: dict[str, dict[str, Any]] = {}

    def executor_input(self, task: str) -> dict[str, Any]:
        item = self.spec["root"]["dag"]["tasks"][task]
        component = self.spec["components"][item["componentRef"]["name"]]
        declared = component["inputDefinitions"]["parameters"]
        values = {name: one["defaultValue"] for name, one in declared.items() if "defaultValue" in one}
        for name, source in item["inputs"]["parameters"].items():
            if "componentInputParameter" in source:
                values[name] = self.arguments[source["componentInputParameter"]]
            else:
                made = source["taskOutputParameter"]
                values[name] = self.outputs[made["producerTask"]]["parameterValues"][made["outputParameterKey"]]
        assert set(values) == set(declared), "the driver fails a task that lacks an input"
        artifacts = {}
        for name, source in item["inputs"].get("artifacts", {}).items():
            made = source["taskOutputArtifact"]
            artifacts[name] = self.outputs[made["producerTask"]]["artifacts"][made["outputArtifactKey"]]
        place = f"{self.prefix}/{task}/{uuid.uuid4()}"
        outputs = component["outputDefinitions"]
        made_artifacts = {
            name: {"artifacts": [{"name": name, "type": one["artifactType"], "uri": f"minio://{place}/{name}"}]}
            for name, one in outputs["artifacts"].items()
        }
        logs = {
            "name": "executor-logs",
            "type": {"schemaTitle": "system.Artifact"},
            "uri": f"minio://{place}/executor-logs-0",
        }
        folder = Path("/minio") / place
        return {
            "inputs": {"parameterValues": values, "artifacts": artifacts},
            "outputs": {
                "parameters": {
                    name: {"outputFile": str(folder / "parameters" / name)} for name in outputs["parameters"]
                },
                "artifacts": {**made_artifacts, "executor-logs": {"artifacts": [logs]}},
                "outputFile": str(folder / "output_metadata.json"),
            },
        }

    def run(self, task: str) -> "subprocess.CompletedProcess[str]":
        given = self.executor_input(task)
        item = self.spec["root"]["dag"]["tasks"][task]
        label = self.spec["components"][item["componentRef"]["name"]]["executorLabel"]
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        assert container["command"][0] == "python"
        text = json.dumps(given, sort_keys=True, separators=(",", ":"))
        command = [
            sys.executable,
            *container["command"][1:],
            *(text if arg == "{{$}}" else arg for arg in container["args"]),
        ]
        assert sum(len(part) for part in command) < 16_384
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            made = json.loads(Path(given["outputs"]["outputFile"]).read_text())
            assert set(made) <= {"parameterValues", "artifacts"}, "the launcher fails on unknown fields"
            for name, one in given["outputs"]["parameters"].items():
                assert Path(one["outputFile"]).read_text() == str(made["parameterValues"][name])
            for name, one in made["artifacts"].items():
                (artifact,) = one["artifacts"]
                assert artifact["uri"] == given["outputs"]["artifacts"][name]["artifacts"][0]["uri"]
                assert Path(artifact["uri"].replace("minio:/", "/minio", 1)).stat().st_size > 0
                for value in artifact["metadata"].values():
                    assert isinstance(value, str | int | float), (
                        "the launcher mangles nested metadata and fails on null"
                    )
            self.outputs[task] = made
        return done


def test_the_compiled_pipeline_runs_under_the_launcher_contract(bucket: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "examples/make_raw.py", str(tmp_path / "raw")], cwd=TOP, check=True)
    # Kubeflow knows doubles only.
    arguments = {"raw": str(tmp_path / "raw"), "root": str(tmp_path / "root"), "vocab_size": 512.0, "epochs": 2}
    backend = Backend(bucket, {**arguments, "prefix_config_path": "prefix_config.yaml"})
    for task in ORDER:
        done = backend.run(task)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert set(backend.outputs) == set(backend.spec["root"]["dag"]["tasks"])
    fetch, clean, sample = (backend.outputs[task] for task in ("fetch", "clean", "sample"))
    assert Path(fetch["parameterValues"]["output"], "_MANIFEST.json").is_file()
    assert backend.executor_input("clean")["inputs"]["parameterValues"]["raw"] == fetch["parameterValues"]["output"]
    assert clean["parameterValues"]["rows"] == 6300
    assert clean["artifacts"]["metrics"]["artifacts"][0]["metadata"]["rows_in"] == 6060
    assert Path(clean["parameterValues"]["output"], "_MANIFEST.json").is_file()
    assert Path(sample["parameterValues"]["output"], "report.html").is_file()
    report = sample["artifacts"]["report"]["artifacts"][0]["uri"].replace("minio:/", "/minio", 1)
    assert Path(report).read_text().startswith("<!doctype html>")


def test_a_failing_task_says_why_and_leaves_no_outputs(bucket: str, tmp_path: Path) -> None:
    arguments = {"raw": str(tmp_path / "raw"), "root": str(tmp_path / "root")}
    backend = Backend(bucket, arguments)
    done = backend.run("fetch")
    assert done.returncode == 3
    assert f"{tmp_path / 'raw'}: is missing or empty" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("/minio", bucket).exists()

    # A task behind one that succeeded.
    subprocess.run([sys.executable, "examples/make_raw.py", arguments["raw"]], cwd=TOP, check=True)
    backend = Backend(bucket, arguments)
    assert backend.run("fetch").returncode == 0
    before = contents(Path("/minio", bucket))
    assert before
    Path(arguments["raw"], "sudoku", "train.csv").unlink()
    done = backend.run("clean")
    assert done.returncode == 3
    assert "1 raw files of sudoku are gone or changed since they were fetched" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(Path("/minio", bucket)) == before
