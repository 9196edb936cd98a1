"""The compiled pipeline whose stages are Jobs, under Kubeflow's launcher and a server that carries out Jobs."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from pairmill.kubeflow import compile as compiler
from pairmill.line.table import LINE
from tests.support import tools
from tests.support.data.results import manifests
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Forked, load
from tests.support.kubernetes.jobs_server import Jobs, Ran

OPTIONS = {"sources": "gsm8k_train,scibench", "vocab_size": 300, "epochs": 1, "context_size": 513}
SHARED = [task.stage for task in LINE if task.shared]


def pods(jobs: Jobs) -> Forked:
    """Return what runs the pipeline's pods, which have a service account."""
    return Forked(env={**jobs.environment(), "PAIRMILL_LOG": "json"})


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    done = tools.run([*tools.command("none")[:1], str(REPOSITORY / "examples/make_raw.py"), str(folder)])
    assert done.code == 0, done.err
    return folder


def compiled(folder: Path, **options: Any) -> list[dict[str, Any]]:
    file = folder / "made.yaml"
    compiler.run(compiler.CompileConfig(output=str(file), fan_out="job", image="a@sha256:0", **options))
    return load(file)


def test_pods_that_are_killed_and_a_watcher_that_is_cost_no_byte(raw: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    tools.ended(tools.stage("run", raw=raw, root=alone, **OPTIONS))
    killed: set[tuple[str, str]] = set()
    with Jobs(tmp_path / "cluster", Forked()) as jobs:
        backend = Backend(Folder(tmp_path / "objects"), pods(jobs), tmp_path / "pods", second=0.01)

        def kill(ran: Ran) -> None:
            meta = ran.doc["metadata"]
            place = (
                meta["labels"]["pairmill.dev/stage"],
                meta["annotations"]["batch.kubernetes.io/job-completion-index"],
            )
            # Preempted, a pod of each stage; in clean the pod that finishes it too.
            if place not in killed and (place[1] == "1" or place == ("clean", "0")):
                killed.add(place)
                ran.disrupted = True
                threading.Timer(0.2, ran.running.kill).start()

        def leave(attempt: Attempt) -> None:
            if attempt.task == "tokenize" and attempt.index == 0:
                running = attempt.running
                assert running is not None
                threading.Timer(1.0, running.kill, [signal.SIGKILL]).start()

        jobs.started, backend.started = kill, leave
        given = {"raw": str(raw), "root": str(tmp_path / "root"), **OPTIONS}
        run = backend.run(compiled(tmp_path, workers=3), {**given, "prefix_config_path": "prefix_config.yaml"})
        assert run.state == "SUCCEEDED", run.failures()
        assert manifests(str(tmp_path / "root")) == manifests(str(alone))
        assert {stage for stage, _ in killed} >= {"clean", "curate", "tokenize", "train_tokenizer"}
        # Where nobody watched the end, its time to live ends a Job.
        assert {job["metadata"]["labels"]["pairmill.dev/stage"] for job in jobs.jobs.values()} <= {"tokenize"}
        # One task a stage, and the pods of its Job.
        assert sorted({attempt.task for attempt in run.attempts}) == sorted(
            task.name.replace("_", "-") for task in LINE if not task.only_with
        )
        jobs.asked.clear()
        again = backend.run(compiled(tmp_path, workers=3), {**given, "prefix_config_path": "prefix_config.yaml"})
        assert again.state == "SUCCEEDED", again.failures()
        assert jobs.asked == [], "what is finished needs no Job"


def test_the_reason_of_a_share_is_the_reason_of_the_task(raw: Path, tmp_path: Path) -> None:
    with Jobs(tmp_path / "cluster", Forked()) as jobs:
        backend = Backend(Folder(tmp_path / "objects"), pods(jobs), tmp_path / "pods", second=0.01)

        def vanish(attempt: Attempt) -> None:
            if attempt.task == "curate":
                rows = (tmp_path / "root" / "clean").glob("[0-9a-f]*/data/**/*.jsonl")
                for path in rows:
                    path.chmod(0o600)
                    path.write_bytes(b"x" * path.stat().st_size)

        backend.before = vanish
        given = {"raw": str(raw), "root": str(tmp_path / "root"), **OPTIONS}
        run = backend.run(compiled(tmp_path, workers=2, retries=0), given)
    assert run.state == "FAILED"
    (failed,) = (attempt for attempt in run.attempts if attempt.exit_code)
    assert failed.task == "curate"
    assert failed.exit_code == 3
    last = failed.log.decode().splitlines()[-1]
    assert "share" in last
    assert "of 2 failed with exit code 3" in last
    assert "kubectl -n team logs pairmill-curate-" in last
