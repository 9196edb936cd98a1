"""A pipeline that ends in a training: its tasks get what Kubeflow gives them, and the last one trains.

Kubeflow's compiler is in another environment. The tokens are those of the example data: only the end of the line runs.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.kubernetes.emulator import Backend, Folder, Forked, load
from tests.support.processes.nursery import TRAINING

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = """\
model: {width: 32, layers: 1, heads: 2}
batch: {tokens: 768}
training: {steps: 4, threads: 1}
schedule: {warmup_steps: 1}
evaluation: {rows: 8}
watch: {every_steps: 1, tensorboard: false}
"""

COMPILE = """\
import sys
from pairmill.kubeflow.compile import CompileConfig, run
run(CompileConfig(output=sys.argv[1], train=True), ["clean", "curate", "select", "train_tokenizer", "tokenize", "mix"])
"""


def test_the_last_task_makes_its_arrays_and_trains(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "mounts of a pod's own need root"
    project = tmp_path / "project"
    (made,) = (path for path in (ROOT / "build/train/line/tokenize").iterdir() if path.name != "shards")
    tokenized = shutil.copytree(made, project / "tokenize" / made.name)
    (project / "train.yaml").write_text(SETTINGS)
    programs = Forked(TRAINING, env={"OMP_NUM_THREADS": "1"})
    backend = Backend(Folder(tmp_path / "objects"), programs, tmp_path / "pods", second=0.01)
    command = [ROOT / ".venv/bin/python", "-c", COMPILE, tmp_path / "pipeline.yaml"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    options = {"root": str(project), "tokenized": str(tokenized), "holdout": "0.05", "epochs": 3}
    trained = {"train_config": str(project / "train.yaml"), "set": "training.seed=7"}
    run = backend.run(load(tmp_path / "pipeline.yaml"), {**options, **trained})
    assert run.state == "SUCCEEDED", run.failures()
    assert [one.task for one in run.attempts] == ["fetch", "sample", "held-out-sample", "train"]
    (execution,) = (one for one in run.executions if one.task == "train")
    folder = Path(execution.outputs.parameters["output"])
    assert folder.parent == project / "train"
    assert {"weights.safetensors", "config.json", "tokenizer.json", "metrics.jsonl", "report.html"} <= {
        path.name for path in folder.iterdir()
    }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2, 3, 4]
    assert [line["heldout_loss"] for line in lines if line["kind"] == "heldout"]
    # Arrays were in memory of the pod, and are gone with it.
    assert not list(tmp_path.rglob("epoch_0"))
    assert "heldout loss" in str(execution.outputs.artifacts["metrics"]).replace("_", " ")
