"""The compiled pipeline under the contract of Kubeflow's driver and launcher.

``tests/support/kubernetes/emulator`` repeats that contract.

Nothing of kfp is used: ``pipelines/compiled/pretraining.yaml`` is resolved, and every task's own command is a process
of this machine with mounts of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.helpers import REPOSITORY, contents
from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Forked, load
from tests.support.tools import STAGES

COMPILED = REPOSITORY / "pipelines/compiled/pretraining.yaml"


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend(Folder(tmp_path / "objects"), Forked(), tmp_path / "pods", second=0.01)


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, object]:
    subprocess.run([sys.executable, "examples/make_raw.py", str(tmp_path / "raw")], cwd=REPOSITORY, check=True)
    places = {"raw": str(tmp_path / "raw"), "root": str(tmp_path / "root")}
    return {**places, "vocab_size": 512, "epochs": 2, "prefix_config_path": "prefix_config.yaml"}


def test_the_compiled_pipeline_runs_under_the_launcher_contract(
    backend: Backend, arguments: dict[str, object], tmp_path: Path
) -> None:
    run = backend.run(load(COMPILED), arguments)
    assert run.state == "SUCCEEDED", run.failures()
    assert run.outputs["clean"].artifacts["report"].metadata["rows_out"] == 6300
    assert run.outputs["clean"].artifacts["metrics"].metadata["rows_in"] == 6060
    (cleaned,) = (one for one in run.executions if one.task == "clean")
    assert cleaned.inputs["raw"] == run.outputs["fetch"].parameters["output"]
    for task in ("fetch", "clean", "curate", "train-tokenizer", "tokenize", "sample"):
        outputs = run.outputs[task]
        assert Path(outputs.parameters["output"], "_MANIFEST.json").is_file()
        for artifact in outputs.artifacts.values():
            assert backend.objects.exists(artifact.uri), f"{task} wrote no {artifact.uri}"
            for value in artifact.metadata.values():
                assert isinstance(value, str | float), "nested metadata is mangled, and null fails"
    report = backend.objects.get(run.outputs["sample"].artifacts["report"].uri)
    assert report.startswith(b"<!doctype html>")
    for attempt in run.attempts:
        assert max(map(len, attempt.command)) < 16_384
        assert "{{" not in " ".join(attempt.command), f"{attempt.node}: an unresolved placeholder"
        assert b"Traceback" not in attempt.log

    # Another run finds every result, and writes nothing below the root.
    before = contents(tmp_path / "root")
    again = backend.run(load(COMPILED), arguments)
    assert again.state == "SUCCEEDED", again.failures()
    assert again.outputs["sample"].artifacts["report"].metadata["reused"] == "true"
    assert contents(tmp_path / "root") == before


def test_a_failing_task_says_why_and_leaves_no_outputs(
    backend: Backend, arguments: dict[str, object], tmp_path: Path
) -> None:
    run = backend.run(load(COMPILED), {"raw": str(tmp_path / "nothing"), "root": arguments["root"]})
    assert run.state == "FAILED"
    assert {attempt.task for attempt in run.attempts} == {"fetch"}
    assert run.attempts[-1].exit_code == 3
    log = run.attempts[-1].log.decode()
    assert f"{tmp_path / 'nothing'}: is missing or empty" in log
    assert "Traceback" not in log
    assert {Path(path).name.rsplit("-", 1)[0] for path in backend.objects.list(run.job.root)} == {"executor-logs"}

    # A task behind one that succeeded.
    def vanish(attempt: Attempt) -> None:
        if attempt.task == "clean":
            Path(str(arguments["raw"]), "sudoku", "train.csv").unlink(missing_ok=True)

    backend.before = vanish
    run = backend.run(load(COMPILED), arguments)
    assert run.state == "FAILED"
    assert "fetch" in run.outputs
    assert "clean" not in run.outputs
    log = run.attempts[-1].log.decode()
    assert run.attempts[-1].exit_code == 3
    assert "1 raw files of sudoku are missing or changed since they were fetched" in log
    assert "Traceback" not in log


def test_a_killed_task_is_done_again_by_the_retry_policy(backend: Backend, arguments: dict[str, object]) -> None:
    def kill(attempt: Attempt) -> None:
        if attempt.task == "fetch" and attempt.index == 0 and attempt.running is not None:
            attempt.running.kill()

    pipeline, *platform = load(COMPILED)
    tasks = pipeline["root"]["dag"]["tasks"]
    policy = {"maxRetryCount": 2, "backoffDuration": "1s", "backoffFactor": 2.0, "backoffMaxDuration": "3600s"}
    # Whatever the pipeline asks for: this is about the emulator's hook.
    tasks["fetch"]["retryPolicy"] = policy
    pipeline["root"]["dag"]["tasks"] = {"fetch": tasks["fetch"]}
    backend.started = kill
    run = backend.run([pipeline, *platform], arguments)
    assert run.state == "SUCCEEDED", run.failures()
    assert [(attempt.index, attempt.exit_code) for attempt in run.attempts] == [(0, -9), (1, 0)]
    assert backend.objects.exists(run.outputs["fetch"].artifacts["report"].uri)


def test_held_out_rows_are_sampled_in_a_branch_that_other_runs_skip(
    backend: Backend, arguments: dict[str, object], tmp_path: Path
) -> None:
    given = {**arguments, "sources": "gsm8k_train", "output_path": str(tmp_path / "out" / "{fingerprint}")}
    run = backend.run(load(COMPILED), given)
    assert run.state == "SUCCEEDED", run.failures()
    stages = [name.replace("_", "-") for name in STAGES]
    assert sorted(attempt.task for attempt in run.attempts) == sorted(stages)
    assert not (tmp_path / "out-holdout").exists()

    run = backend.run(load(COMPILED), {**given, "holdout": "0.2"})
    assert run.state == "SUCCEEDED", run.failures()
    assert sorted(attempt.task for attempt in run.attempts) == sorted([*stages, "held-out-sample"])
    cleaned = json.loads(Path(run.outputs["clean"].parameters["output"], "_MANIFEST.json").read_bytes())
    held = sum(cleaned["data"]["held_out"].values())
    assert held
    curated = json.loads(Path(run.outputs["curate"].parameters["output"], "_MANIFEST.json").read_bytes())
    assert sum(curated["data"]["held_out"].values()) == held
    for folder, rows in (("out", curated["ledger"]["rows_kept"] - held), ("out-holdout", held)):
        current = (tmp_path / folder / "PLAN").read_text().strip()
        manifest = json.loads((tmp_path / folder / current / "_MANIFEST.json").read_bytes())
        assert manifest["ledger"]["rows_in"] == rows
