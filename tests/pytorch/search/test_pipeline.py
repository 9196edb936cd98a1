"""The compiled search under the emulator of Kubeflow: a search on this machine finds all of it done."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from pairmill.line import search
from tests.support.kubernetes.emulator import Backend, Folder, Forked, load
from tests.support.nets.mixture_task import Inside, held_out_plan, in_project, options
from tests.support.processes.nursery import TRAINING

ROOT = Path(__file__).resolve().parents[3]


def test_the_compiled_pipeline_finds_the_same(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "mounts of a pod's own need root"
    project = tmp_path / "project"
    # A task has plans: the tokens are in the project, and the held-out rows are a plan of it.
    fast = {"runs": 5, "train_set": "training.steps=12"}
    made = options(tmp_path / "task", project, **fast)
    config = replace(made, tokenized=str(in_project(Path(made.tokenized), project)))
    programs = Forked(TRAINING, env={"OMP_NUM_THREADS": "1"})
    backend = Backend(Folder(tmp_path / "objects"), programs, tmp_path / "pods", second=0.01)
    compiled = tmp_path / "search.yaml"
    command = [ROOT / ".venv/bin/python", "-m", "pairmill", "compile", "search=true", f"output={compiled}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    given = {name: value for name, value in vars(config).items() if name not in {"at_once", "samples_path"}}
    run = backend.run(load(compiled), {**given, "held_out": held_out_plan(project, Path(config.tokenized))})
    assert run.state == "SUCCEEDED", run.failures()
    stages = [one.task.rstrip("-23") for one in run.attempts]
    assert {name: stages.count(name) for name in stages} == {"search": 3, "proxy": 5, "optimum": 1}
    (last,) = (one for one in run.executions if one.task == "search-3")
    folder = Path(last.outputs.parameters["output"])
    assert json.loads((folder / "search.json").read_text())["measured"]
    # On this machine the same project has nothing left to do.
    here = Inside()
    assert search.run(config, here).folder == str(folder)
    assert [one.stage for one in here.ended if not one.reused and one.stage != "sample"] == []
