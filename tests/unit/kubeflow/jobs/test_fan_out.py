"""A Job from its start to its end, against a server that carries it out; programs are a line of a shell."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import PairmillError, StorageError, UsageError
from pairmill.kubeflow.jobs.fan_out import fan_out
from pairmill.kubeflow.jobs.indexed import SPEC, Starter, Work, job_of
from pairmill.kubeflow.jobs.server import ApiServer
from pairmill.kubeflow.pods import JobConfig
from pairmill.stages.clean.config import CleanConfig
from tests.support.helpers import PATIENCE, REPOSITORY, until
from tests.support.kubernetes.emulator.containers import Pod, Running
from tests.support.kubernetes.jobs_server import NAMESPACE, Jobs, Ran, settled

HOME = "s3://bucket/root/clean/0123456789abcdef"
SAYS = '{"message": "fetch: row 7 is malformed", "severity": "ERROR"}'


@dataclass
class Shell:
    """Runs a line of a shell in the place of each pod's program."""

    line: str

    def start(self, pod: Pod) -> Running:
        process = subprocess.Popen(
            ["sh", "-c", self.line],
            env={**pod.env, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return Program(process)


@dataclass
class Program:
    process: "subprocess.Popen[bytes]"

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    with Jobs(tmp_path, Shell("exit 0")) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("KFP_POD_NAME", raising=False)
        yield server


def config(**options: Any) -> JobConfig:
    return JobConfig(**{"shares": 4, "image": "name@sha256:0", **options})


def run(given: JobConfig | None = None, finished: bool = False) -> None:
    options = CleanConfig(root="s3://bucket/root", raw="s3://bucket/raw", policy="a $(HOME) $x")
    fan_out("clean", options, HOME, lambda: finished, (given or config()).dump())


def test_a_job_is_started_watched_and_gone_when_it_has_ended_well(
    jobs: Jobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    jobs.engine = Shell(f"echo $JOB_COMPLETION_INDEX >> {tmp_path}/indices")
    run()
    assert sorted((tmp_path / "indices").read_text().split()) == ["0", "1", "2", "3"]
    assert jobs.jobs == {}
    assert "clean: Job pairmill-clean-" in caplog.text
    assert "all 4 shares are done" in caplog.text


def test_what_is_finished_needs_no_job(jobs: Jobs) -> None:
    run(finished=True)
    assert jobs.asked == []


def test_a_pod_gets_the_options_of_the_stage_and_its_share(jobs: Jobs) -> None:
    seen: list[Ran] = []
    jobs.started = seen.append
    run()
    (command,) = {tuple(ran.doc["spec"]["containers"][0]["command"]) for ran in seen}
    assert command[:-1] == ("python", "-m", "pairmill", "stage", "clean", "--executor-input")
    values = json.loads(command[-1].replace("$$", "$"))["inputs"]["parameterValues"]
    assert values == {
        "root": "s3://bucket/root",
        "raw": "s3://bucket/raw",
        "policy": "a $(HOME) $x",
        "sources": ["all"],
        "share": "auto/4",
        "finish": True,
    }
    # Kubernetes would read a variable there.
    assert "a $$(HOME) $$x" in command[-1]


@pytest.mark.parametrize("code", [2, 3])
def test_what_would_fail_again_ends_the_job_at_once_with_the_reason(jobs: Jobs, tmp_path: Path, code: int) -> None:
    count = tmp_path / "begun"
    jobs.engine = Shell(f"echo >> {count}; [ $JOB_COMPLETION_INDEX = 2 ] && {{ echo '{SAYS}'; exit {code}; }}; sleep 9")
    with pytest.raises(PairmillError, match="fetch: row 7 is malformed") as error:
        run()
    assert error.value.exit_code == code
    assert f"share 3 of 4 failed with exit code {code}" in str(error.value)
    assert f"kubectl -n {NAMESPACE} logs pairmill-clean-" in str(error.value)
    assert len(count.read_text().splitlines()) <= 4
    assert list(jobs.jobs), "it stays for its logs"


def test_a_share_that_fails_is_tried_again_as_often_as_retries_say(jobs: Jobs, tmp_path: Path) -> None:
    count = tmp_path / "begun"
    jobs.engine = Shell(f"[ $JOB_COMPLETION_INDEX = 0 ] || exit 0; echo >> {count}; exit 5")
    with pytest.raises(PairmillError, match="share 1 of 4 failed with exit code 5") as error:
        run(config(retries=1))
    assert error.value.exit_code == 5
    assert len(count.read_text().splitlines()) == 2


def test_memory_that_is_over_is_named(jobs: Jobs) -> None:
    jobs.engine = Shell("kill -9 $$")
    with pytest.raises(PairmillError, match=r"exit code 137 \(OOMKilled\)"):
        run(config(retries=0))


def test_a_pod_that_is_ended_from_outside_costs_nothing_however_often(jobs: Jobs, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    jobs.engine = Shell(f"trap 'exit 143' TERM; [ -e {mark} ] || {{ sleep 9 >/dev/null 2>&1 & wait; }}")
    ended: list[str] = []

    def end(ran: Ran) -> None:
        ended.append(ran.doc["metadata"]["name"])
        if len(ended) > 5:
            mark.touch()
        # Preempted pods have a condition, deleted ones end by the signal alone.
        ran.disrupted = len(ended) % 2 == 0
        threading.Timer(0.1, ran.running.kill, [signal.SIGKILL if ran.disrupted else signal.SIGTERM]).start()

    jobs.started = end
    run(config(retries=0))
    assert len(ended) > 5


def test_who_comes_after_a_killed_watcher_goes_on_with_the_job(
    jobs: Jobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    go = tmp_path / "go"
    jobs.engine = Shell(f"until [ -e {go} ]; do sleep 0.05; done")

    def watch() -> None:
        # Whoever sees the end first deletes it.
        with contextlib.suppress(StorageError):
            run()

    threading.Thread(target=watch, daemon=True).start()
    until(lambda: len(jobs.jobs) == 1, "the first one has started it")
    uid = next(iter(jobs.jobs.values()))["metadata"]["uid"]
    second = threading.Thread(target=watch, daemon=True)
    second.start()
    assert settled(lambda: "found running" in caplog.text)
    assert next(iter(jobs.jobs.values()))["metadata"]["uid"] == uid
    go.touch()
    second.join(PATIENCE)
    assert jobs.jobs == {}


def test_a_job_of_another_size_is_replaced(jobs: Jobs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    work = Work("clean", {}, HOME)
    jobs.engine = Shell("sleep 9")
    ApiServer().create(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job_of(work, config(), Starter()))
    until(lambda: len(jobs.of(work.name)) == 4, "its pods run")
    jobs.engine = Shell(f"echo >> {tmp_path}/done")
    run(config(shares=7))
    assert "was started with other options (4 shares), and is replaced; finished shards are reused" in caplog.text
    assert len((tmp_path / "done").read_text().splitlines()) == 7


def test_a_job_that_is_deleted_by_hand_ends_the_task(jobs: Jobs) -> None:
    jobs.engine = Shell("sleep 9")
    jobs.started = lambda ran: threading.Timer(0.1, jobs._end, [next(iter(jobs.jobs))]).start()
    with pytest.raises(StorageError, match="was deleted before it had ended; submit again"):
        run(config(shares=2))


WATCHER = "from tests.unit.kubeflow.jobs.test_fan_out import run; run()"


@pytest.mark.parametrize(
    ("adopts", "meta", "stays"),
    [(False, {}, False), (False, {"deletionTimestamp": "2026-11-28T22:00:00Z"}, True), (True, {}, True)],
    ids=["terminated", "deleted", "of another run"],
)
def test_a_run_that_is_terminated_takes_its_job_along_and_a_deleted_pod_leaves_it(
    jobs: Jobs, adopts: bool, meta: dict[str, str], stays: bool
) -> None:
    # Recorded (terminate-traced, pod-deleted-traced): SIGTERM comes in both, and only a deleted pod is gone.
    jobs.engine = Shell("sleep 60")
    about: dict[str, Any] = {"labels": {"pipeline/runid": "7"}}
    jobs.pods["watcher"] = {"metadata": about, "spec": {}, "status": {"phase": "Running"}}
    if adopts:

        def other() -> None:
            with contextlib.suppress(StorageError):
                run()

        threading.Thread(target=other, daemon=True).start()
        until(lambda: jobs.jobs, "another run has started it")
    environment = {**os.environ, "KFP_POD_NAME": "watcher", "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", WATCHER], cwd=REPOSITORY, env=environment) as process:
        own, made = (
            f"GET /api/v1/namespaces/{NAMESPACE}/pods/watcher",
            f"POST /apis/batch/v1/namespaces/{NAMESPACE}/jobs",
        )

        def watches() -> bool:
            after = jobs.asked[jobs.asked.index(own) :] if own in jobs.asked else []
            return made in after and any(item.startswith("GET") for item in after[after.index(made) :])

        until(watches, "it watches the Job")
        about.update(meta)
        process.terminate()
        assert process.wait(PATIENCE) == 143
    assert bool(jobs.jobs) is stays


# --- what keeps it from starting


def test_a_role_that_is_missing_is_said_with_the_line_that_gives_it(jobs: Jobs) -> None:
    jobs.rules = [rule for rule in jobs.rules if "jobs" not in rule["resources"]]
    with pytest.raises(StorageError, match='cannot create resource "jobs"') as error:
        run()
    assert "kubectl apply -k manifests/base/jobs" in str(error.value)
    assert error.value.exit_code == 4


def test_rights_that_only_say_more_are_not_needed(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    jobs.rules = [rule for rule in jobs.rules if "jobs" in rule["resources"]]
    jobs.queues, jobs.engine = ["team-queue"], Shell("sleep 0.3")
    run(config(queue="team-queue"))
    assert jobs.jobs == {}


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        (None, "this cluster has no Kueue; got nightly"),
        ([], "no such LocalQueue in the namespace team; got nightly; expected one that was made"),
        (["day", "night"], "no such LocalQueue in the namespace team; got nightly; expected day, night"),
    ],
)
def test_a_queue_that_does_not_exist_is_refused_before_anything_is_made(
    jobs: Jobs, queues: list[str] | None, text: str
) -> None:
    jobs.queues = queues
    with pytest.raises(UsageError, match=text):
        run(config(queue="nightly"))
    assert jobs.jobs == {}


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ({"queues": ["day"], "admits": False}, "the queue day: couldn't assign flavors to pod set main: insufficient"),
        ({"makes_pods": "pods is forbidden: exceeded quota: team"}, "its pods may not be made: pods is forbidden"),
        ({"pending": "0/3 nodes are available: 3 Insufficient cpu."}, "a node: 0/3 nodes are available"),
    ],
)
def test_a_quota_that_never_comes_ends_the_task_and_says_what_waits_for_what(
    jobs: Jobs, caplog: pytest.LogCaptureFixture, lacks: dict[str, Any], text: str
) -> None:
    caplog.set_level(logging.INFO)
    for name, value in lacks.items():
        setattr(jobs, name, value)
    queue = {"queue": "day"} if "queues" in lacks else {}
    with pytest.raises(StorageError, match="no pod has run") as error:
        run(config(**queue, wait_hours=0.5 / 3600))
    assert text in str(error.value)
    assert "0 of 4 shares are done" in caplog.text
    assert text in caplog.text
    assert jobs.jobs == {}, "it would begin after all"


def test_outside_of_a_pod_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UsageError, match="a Job is started by a pod that has a service account"):
        ApiServer()


# --- the Job


def test_the_name_follows_from_the_result_and_the_run_is_no_part_of_what_it_does() -> None:
    work, other = Work("train_tokenizer", {}, HOME), Work("train_tokenizer", {}, f"{HOME[:-1]}0")
    assert work.name != other.name
    assert work.name.startswith("pairmill-train-tokenizer-")
    pod = {
        "metadata": {"labels": {"pipeline/runid": "7", "app": "x"}, "ownerReferences": [{"kind": "Workflow"}]},
        "spec": {},
    }
    first, second = job_of(work, config(), Starter()), job_of(work, config(), Starter.from_pod(pod))
    assert first["metadata"]["annotations"][SPEC] == second["metadata"]["annotations"][SPEC]
    assert second["metadata"]["labels"]["pipeline/runid"] == "7"
    assert second["metadata"]["ownerReferences"] == [
        {"kind": "Workflow", "controller": False, "blockOwnerDeletion": False}
    ]
    larger = job_of(work, config(shares=5), Starter())
    assert larger["metadata"]["annotations"][SPEC] != first["metadata"]["annotations"][SPEC]


def test_settings_come_back_as_they_went() -> None:
    given = config(queue="q", tolerations=["spot=true:NoSchedule", "gpu:NoExecute"], memory="8Gi", wait_hours=0.5)
    assert JobConfig.parse(given.dump()) == given
    assert len(config().dump()) < 40
