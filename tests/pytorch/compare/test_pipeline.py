"""The comparison as a pipeline: compiled, in pods of Kubeflow's emulator; by the command the same, all of it reused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill.interface import chain
from pairmill.line.compare import ComparisonHere, compare, placed
from pairmill.line.runs import Here
from tests.support.kubernetes.emulator import Backend, Folder, Forked, load
from tests.support.processes import nursery
from tests.support.processes.nursery import TRAINING

ROOT = Path(__file__).resolve().parents[3]


def test_pods_compare_as_processes_do(
    project: tuple[Path, list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.geteuid() == 0, "mounts of a pod's own need root"
    root, plans, held_out = project
    options = {
        "root": str(root),
        "plans": ",".join(f"{name}={path}" for name, path in zip(("base", "change"), plans, strict=True)),
        "held_out": str(held_out),
        "seeds": 1,
        "budget": 900,
        "train_config": str(root / "train.yaml"),
    }
    programs = Forked(TRAINING, env={"OMP_NUM_THREADS": "1"})
    backend = Backend(Folder(tmp_path / "objects"), programs, tmp_path / "pods", second=0.01)
    run = backend.run(load(ROOT / "pipelines/compiled/compare.yaml"), options)
    assert run.state == "SUCCEEDED", run.failures()
    tasks = [one.task for one in run.attempts]
    assert sorted(tasks) == ["compare", "compare-2", "run", "run"]
    assert (tasks[0], tasks[-1]) == ("compare", "compare-2")
    (execution,) = (one for one in run.executions if one.task == "compare-2")
    folder = Path(execution.outputs.parameters["output"])
    assert {"compare.json", "table.md", "report.html"} <= {path.name for path in folder.iterdir()}
    assert "One seed gives no verdict" in (folder / "report.html").read_text()
    # Arrays were in memory of the pods, and are gone with them.
    assert not list(tmp_path.rglob("epoch_0"))

    # Processes of this machine find it all, and give the same bytes.
    values = ComparisonHere(**options)  # type: ignore[arg-type]
    placed(values)
    here = Here(2)
    monkeypatch.setattr(chain, "subprocess", nursery.shared(TRAINING).in_place_of_subprocess())
    assert compare(values, here).output == str(folder)
    assert [one.stage for one in here.ended if not one.reused] == []
    assert len(here.ended) == 8


@pytest.mark.full
def test_a_third_plan_costs_its_own_runs_and_a_kill_changes_nothing(
    project: tuple[Path, list[Path], Path], tmp_path: Path
) -> None:
    root, plans, held_out = project

    def command(*named: Path, out: Path | None = None) -> list[str]:
        options = {
            "root": root,
            "plans": ",".join(map(str, named)),
            "held_out": held_out,
            "seeds": 1,
            "budget": 900,
            "train_config": root / "train.yaml",
            **({"out": out} if out else {}),
        }
        return [sys.executable, "-m", "pairmill", "compare", *(f"{name}={value}" for name, value in options.items())]

    def ended(done: str) -> list[tuple[str, str]]:
        lines = [line.split() for line in done.splitlines() if line.startswith("  ")]
        return [(line[0], line[1]) for line in lines if line[0] in {"sample", "train", "evaluate", "compare"}]

    # Killed when half of it is done, and begun again.
    process = subprocess.Popen(command(*plans), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("  evaluate"):
            process.kill()
            break
    process.wait()
    proof = tmp_path / "proof"
    done = subprocess.run(command(*plans, out=proof), cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("evaluate", "reused") in ended(done.stderr)
    folder = Path(done.stdout.splitlines()[0])
    names = {"README.md", "analytics-after.md", "analytics-before.md", "compare.json", "report.html", "runs.json"}
    assert {path.name for path in proof.iterdir()} == {*names, "table.md"}
    assert (proof / "README.md").read_text().startswith("# [Major] change against base\n")
    assert (proof / "compare.json").read_bytes() == (folder / "compare.json").read_bytes()

    other = comparing_plan(root, plans[0])
    done = subprocess.run(command(plans[0], other), cwd=ROOT, capture_output=True, text=True, check=True)
    found = ended(done.stderr)
    for wanted in ("reused", "made"):
        stages = sorted(stage for stage, state in found if state == wanted and stage != "compare")
        assert stages == ["evaluate", "sample", "train"]


def comparing_plan(root: Path, plan: Path) -> Path:
    """The same rows by another seed."""
    from pairmill.stages.sample.config import SampleConfig
    from pairmill.stages.sample.run import run

    made = run(SampleConfig(root=str(root), output_path="", again=f"{plan}@5", workers=1))
    return root / "sample" / str(made.parameters["fingerprint"])


def test_a_change_of_no_array_shows_checksums_time_and_memory(
    project: tuple[Path, list[Path], Path], tmp_path: Path
) -> None:
    root, plans, _ = project
    options = {"root": root, "plans": f"old={plans[0]},new={plans[0]}", "runs": 0, "out": tmp_path / "proof"}

    def compared() -> "subprocess.CompletedProcess[str]":
        given = [f"{name}={value}" for name, value in options.items()]
        return nursery.shared(TRAINING).run("pairmill", ["compare", *given], dict(os.environ))

    done = compared()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "proof")
    assert {path.name for path in (tmp_path / "proof").iterdir()} == {"README.md", "B3SUMS", "measured.json"}
    text = (tmp_path / "proof" / "README.md").read_text()
    assert text.startswith("# [Opt] new against old\n")
    middle = json.loads((tmp_path / "proof" / "measured.json").read_text())["middle"]
    assert middle["old"]["seconds"] > 0
    assert 20 < middle["new"]["peak_mb"] < 2000
    again = compared()
    assert again.returncode == 2
    assert "out: exists already" in again.stderr
    options |= {"plans": ",".join(map(str, plans)), "out": tmp_path / "other"}
    refused = compared()
    assert "out: the arrays differ, and there are no runs" in refused.stderr
