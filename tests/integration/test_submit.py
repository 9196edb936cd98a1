"""``pairmill submit`` as a process against a server that plays each way a run can go."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow.component import PLACEHOLDER_IMAGE
from tests.support.helpers import PATIENCE, REPOSITORY, environment, until
from tests.support.kubernetes.pipelines_server import WORKFLOW, ApiServer, Node, frame, frozen, named_node
from tests.support.processes import nursery

IMAGE = "image=registry.example/pairmill@sha256:" + "0" * 64
OTHER_IMAGE = "image=registry.example/pairmill@sha256:" + "1" * 64
SECRET = "s3cr3t-b3ar3r-t0k3n"
RUN = "/apis/v2beta1/runs/*"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


class Done:
    """What a process left: its exit code, stdout, stderr, and the log's messages."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        self.said = [json.loads(line)["message"] for line in stderr.splitlines()]


def call(server: ApiServer, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a process."""
    command, options = (arguments[:1], arguments[1:]) if "=" not in arguments[0] else ((), arguments)
    given = options if any(each.startswith("host=") for each in options) else (f"host={server.url}", *options)
    poll = () if "poll=" in "".join(given) else ("poll=0.02",)
    # With a token it does not load kfp to learn where the pod's would be; a server that wants none does not mind.
    own = {"KF_PIPELINES_TOKEN": "unused", "KF_PIPELINES_ENDPOINT": "", "KF_PIPELINES_UI_ENDPOINT": server.url}
    return [*command, *given, *poll], {**environment(), **own, **variables}


def start(server: ApiServer, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    given, around = call(server, *arguments, **variables)
    return subprocess.Popen(
        [sys.executable, "-m", "pairmill", "submit", *given],
        cwd=REPOSITORY,
        env=around,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Done:
    stdout, stderr = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, stdout, stderr)


def submit(server: ApiServer, *arguments: str, **variables: str) -> Done:
    given, around = call(server, *arguments, **variables)
    done = nursery.shared(nursery.PIPELINES).run("pairmill", ["submit", *given], around)
    return Done(done.returncode, done.stdout, done.stderr)


def watch(server: ApiServer, frames: list[dict[str, object]], *arguments: str, **variables: str) -> Done:
    server.add_run("r1", frames)
    return submit(server, "watch", "run=r1", *arguments, **variables)


# --- how a run ends -------------------------------------------------------------------------------------------------

CANCELED_HISTORY = ("PENDING", "RUNNING", "CANCELING", "FAILED")


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        (frame("SUCCEEDED"), 0, "run r1 succeeded"),
        (frame("FAILED"), 6, "run r1: failed"),
        (frame("CANCELED"), 7, "run r1: was canceled"),
        (frame("FAILED", history=CANCELED_HISTORY), 7, "run r1: was canceled"),
        (frame("SKIPPED"), 8, "run r1: was skipped"),
        (frame("EVAPORATED"), 10, "run r1: ended in the state EVAPORATED"),
    ],
)
def test_the_exit_code_says_how_the_run_ended(server: ApiServer, last: dict[str, object], code: int, said: str) -> None:
    done = watch(server, [frame("PENDING"), frame("RUNNING"), last])
    assert (done.code, done.stdout) == (code, "r1\n")
    assert done.said[-1].startswith(said)
    assert done.said[0] == f"run: {server.url}/#/runs/details/r1"


def test_an_unknown_state_is_waited_through(server: ApiServer) -> None:
    done = watch(server, [frame("PONDERING", finished=False), frame("PONDERING", finished=False), frame("SUCCEEDED")])
    assert done.code == 0
    assert done.said.count("the run is PONDERING, which this version does not know") == 1


ENDED = b"F1122 06:20:06.504467      21 main.go:59] failed to execute component: exit status 3\n"
"""The launcher's last line where the program failed."""


def test_a_failed_task_is_shown_with_the_end_of_its_log(server: ApiServer) -> None:
    workers = [Node("encode", "FAILED" if n == 1 else "SUCCEEDED", loop="for-loop-2", index=n) for n in range(3)]
    retried = Node("train", "FAILED", attempts=("FAILED", "FAILED"), start="2026-11-21T01:00:30Z")
    broken = Node("late", "DRIVER FAILED")
    server.logs[workers[1].log_node] = b"".join(b"line %d\n" % n for n in range(20_000)) + ENDED
    server.logs[retried.log_node] = b"second try\n" + ENDED
    done = watch(server, [frame("RUNNING", *workers), frame("FAILED", *workers, retried, broken)])
    assert done.code == 6
    logs = {text.partition(" ")[0]: text.splitlines() for text in done.said if " failed; " in text}
    expected = [f"  line {n}" for n in range(19_980, 20_000)]
    (label,) = (label for label in logs if label.startswith("encode"))
    assert logs[label] == [f"{label} failed; the end of its log:", *expected]
    assert logs["train"] == ["train failed; the end of its log:", "  second try"]
    # Where there is no log the server answers 200, and a message in place of it.
    (said,) = logs["late"]
    assert said.startswith(
        "late (driver) failed; it left no log: its pod was ended from outside: OOMKilled (raise memory="
    )
    assert "BadRequestError: Failed to read logs" in said
    assert set(done.said[-1].partition("; see http")[0].partition("failed tasks: ")[2].split(", ")) == {
        "late (driver)",
        "train",
        label,
    }


@pytest.mark.parametrize("log", [b"", b"\n", b"clean: 40 of 99 files\n"])
def test_a_pod_that_was_ended_from_outside_is_told_from_a_program_that_failed(server: ApiServer, log: bytes) -> None:
    # Recorded of a container over its memory limit: the server answers 200, with nothing.
    killed = Node("clean", "FAILED")
    server.logs[killed.log_node] = log
    done = watch(server, [frame("FAILED", killed)])
    assert done.code == 6
    (said,) = (text for text in done.said if text.startswith("clean failed; "))
    assert "its pod was ended from outside: OOMKilled (raise memory=" in said
    assert "kubectl get pods -l pipeline/runid=r1 tells which" in said
    assert ("it left no log" in said) == (not log.strip())
    assert ("\n  clean: 40 of 99 files" in said) == bool(log.strip())


def test_the_reason_of_a_failure_reaches_who_submitted(server: ApiServer) -> None:
    failed = Node("fetch", "FAILED")
    said = "fetch: raw: is missing or empty; got s3://corpus/nothing"
    lines = [
        "I1122 06:20:05.759209      21 main.go:67] Setting log level to: '1'",
        json.dumps({"time": "2026-11-22T06:20:06Z", "severity": "ERROR", "message": said, "exit_code": 3, "log": said}),
        "E1122 06:20:06.462351      21 launcher_v2.go:449] Component failed to execute successfully: exit status 3",
        'I1122 06:20:06.466716      21 object_store.go:231] uploadFile(localFilePath="/minio/x", blobFilePath="x")',
        "F1122 06:20:06.504467      21 main.go:59] failed to execute component: exit status 3",
    ]
    server.logs[failed.log_node] = "\n".join(lines).encode()
    done = watch(server, [frame("FAILED", Node("fetch", "FAILED"))])
    assert done.code == 6
    assert done.said[-2] == f"fetch failed; the end of its log:\n  {said}"
    assert done.said[-1].startswith("run r1: failed; failed tasks: fetch; see http")


def test_a_canceled_run_asks_for_no_logs(server: ApiServer) -> None:
    done = watch(server, [frame("FAILED", Node("clean", "FAILED"), history=CANCELED_HISTORY)])
    assert done.code == 7
    assert "failed" not in " ".join(done.said[1:]).replace("clean: FAILED", "")
    assert not server.asked("GET", "/apis/v1alpha1/*")


def test_a_line_for_every_change_and_none_for_drivers(server: ApiServer) -> None:
    def at(one: str, two: str, executor: str = "") -> dict[str, object]:
        tasks = (Node("clean", one, executor=executor), Node("tokenize", two))
        return frame("RUNNING", *tasks)

    frames = [at("RUNNING", "", "PENDING"), at("RUNNING", ""), at("RUNNING", ""), at("SUCCEEDED", "RUNNING")]
    done = watch(server, [*frames, frame("SUCCEEDED", Node("clean", "SUCCEEDED"), Node("tokenize", "SUCCEEDED"))])
    assert done.said[1:-1] == [
        "run: RUNNING",
        "clean: PENDING",
        "clean: RUNNING",
        "clean: SUCCEEDED after 1 min 5 s",
        "tokenize: RUNNING",
        "run: SUCCEEDED",
        "tokenize: SUCCEEDED after 1 min 5 s",
    ]


def test_tasks_that_end_behind_the_run_are_waited_for(server: ApiServer) -> None:
    late = frame("FAILED", Node("clean", "RUNNING"))
    done = watch(server, [late, late, frame("FAILED", Node("clean", "FAILED"))])
    assert done.code == 6
    assert "failed tasks: clean" in done.said[-1]


def test_what_waits_for_long_is_said_once(server: ApiServer) -> None:
    server.add_run("r1", [frame("RUNNING", Node("clean", "RUNNING", executor="PENDING"))])
    done = submit(server, "watch", "run=r1", "poll=0.01", "timeout=2")
    assert done.code == 9
    (said,) = (text for text in done.said if "has waited for" in text)
    assert said.startswith("clean has waited for")
    assert "kubectl get pods -l pipeline/runid=r1" in said


# --- a frozen picture -----------------------------------------------------------------------------------------------


@pytest.fixture
def version(server: ApiServer) -> dict[str, str]:
    """The pipeline of the run, uploaded."""
    assert submit(server, IMAGE, "root=gs://b/p", "wait=false", "version=v1", "holdout=0.1").code == 0
    (made,) = server.versions
    return {name: made[name] for name in ("pipeline_id", "pipeline_version_id")}


# What the server shows of a run once its workflow object has passed 1 MiB.
SHOWN = frame("RUNNING", Node("fetch", "SUCCEEDED"), Node("clean", "RUNNING"))
REASON = b"clean: gsm8k_train.jsonl: is damaged\n" + ENDED


@pytest.mark.parametrize(
    "place", ["(0).root(0).tokenize(0).executor(0)", "(0).root(0).condition-1(0).held-out-sample(0).executor(1)"]
)
def test_the_reason_of_a_failure_that_is_not_shown_is_found(
    server: ApiServer, version: dict[str, str], place: str
) -> None:
    server.logs[named_node(place)] = REASON
    server.logs[named_node("(0).root(0).clean(0).executor(0)")] = b"done\n"
    done = watch(server, [SHOWN, frozen(SHOWN, "FAILED", version)])
    assert done.code == 6
    assert "the ends of some tasks are not shown: Kubeflow shows no more of a run whose workflow object" in done.stderr
    task = place.split(".")[-2].partition("(")[0]
    assert f"failed tasks: {task}" in done.said[-1]
    (said,) = (text for text in done.said if f"{task} failed" in text)
    assert "is damaged" in said
    assert "clean failed" not in done.stderr


def test_where_no_log_tells_the_reason_it_is_said_how_to_look(server: ApiServer, version: dict[str, str]) -> None:
    done = watch(server, [SHOWN, frozen(SHOWN, "FAILED", version)])
    assert done.code == 6
    assert "no log of a task whose end is not shown says why" in done.stderr
    assert "kubectl get pods -l pipeline/runid=r1" in done.stderr


def test_a_frozen_run_that_succeeded_is_said_to_have(server: ApiServer, version: dict[str, str]) -> None:
    done = watch(server, [SHOWN, frozen(SHOWN, "SUCCEEDED", version)])
    assert done.code == 0
    assert "the ends of some tasks are not shown" in done.stderr
    assert done.said[-1] == "run r1 succeeded"


def test_a_run_that_goes_on_while_its_tasks_do_not_change_is_frozen_and_no_pod_is_called_waiting(
    server: ApiServer, version: dict[str, str]
) -> None:
    waiting = frame("RUNNING", Node("fetch", "SUCCEEDED"), Node("clean", "RUNNING", executor="PENDING"))
    waiting["pipeline_version_reference"] = version
    # Its pod has begun, for it has a log: it does not wait.
    server.logs[named_node("(0).root(0).clean(0).executor(0)")] = b"a line\n"
    server.add_run("r1", [waiting])
    driver = json.loads(json.dumps(frame("RUNNING", Node("fetch", "SUCCEEDED"), Node("clean", ""))))
    for entry in driver["run_details"]["task_details"]:
        if entry["display_name"].startswith("clean-driver"):
            entry["state"] = "RUNNING"
    server.add_run("r2", [driver])
    for run, why in (("r1", "clean, which is shown as waiting, has a log"), ("r2", "clean-driver")):
        done = submit(server, "watch", f"run={run}", "poll=0.01", "timeout=2")
        assert done.code == 9
        (said,) = (text for text in done.said if "no task has changed its state" in text)
        assert why in said
        assert "has waited for" not in done.stderr


# --- the wait -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["leave", "terminate"])
def test_the_wait_is_bounded(server: ApiServer, choice: str) -> None:
    done = watch(server, [frame("RUNNING")], "timeout=0.3", f"on_timeout={choice}")
    assert done.code == 9
    assert len(server.asked("POST", f"{RUN}:terminate")) == (choice == "terminate")
    hint = "watch host=" if choice == "leave" else "it is being terminated"
    assert done.said[-1].startswith("r1: has not ended in 0.3 s; ")
    assert hint in done.said[-1]


def test_answers_that_fail_to_come_are_waited_for(server: ApiServer) -> None:
    server.fail("GET", RUN, 503, times=3, skip=1)
    server.fail("GET", RUN, 0, times=7, skip=1)
    server.fail("GET", RUN, 500, times=1, skip=1)
    done = watch(server, [frame("RUNNING"), frame("RUNNING"), frame("SUCCEEDED")])
    assert done.code == 0
    assert not any("urllib3" in line or "Retry" in line for line in done.stderr.splitlines())


def test_a_lost_connection_leaves_the_run_and_says_how_to_go_on(server: ApiServer) -> None:
    server.fail("GET", RUN, 502, skip=1)
    done = watch(server, [frame("RUNNING")], "poll=0.005")
    assert done.code == 4
    assert f"pairmill submit watch host={server.url} run=r1" in done.said[-1]
    assert "connection lost" in done.said[-1]


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        done = submit(ApiServer(), "watch", f"host={url}", "run=r1")
    assert (done.code, done.stdout) == (4, "")
    assert f"{url}: does not answer" in done.said[-1]


def test_a_page_is_no_server(server: ApiServer) -> None:
    server.fail("GET", "/apis/v2beta1/healthz", 302)
    done = submit(server, "watch", "run=r1")
    assert (done.code, done.said) == (4, [done.said[0]])
    assert "redirects to a login" in done.said[0]


def test_a_run_that_is_not_there(server: ApiServer) -> None:
    done = submit(server, "watch", "run=nowhere")
    assert done.code == 3
    assert "Run nowhere not found" in done.said[-1]


# --- who asks -------------------------------------------------------------------------------------------------------


def guarded(tmp_path: Path) -> tuple[ApiServer, Path]:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    return ApiServer(token=SECRET), file


def test_a_token_from_a_file_a_variable_or_the_pod(tmp_path: Path) -> None:
    made, file = guarded(tmp_path)
    with made as server:
        server.add_run("r1", [frame("SUCCEEDED")])
        assert submit(server, "watch", "run=r1", KF_PIPELINES_TOKEN="").code == 4
        assert submit(server, "watch", "run=r1", f"token_file={file}").code == 0
        assert submit(server, "watch", "run=r1", KF_PIPELINES_TOKEN=SECRET).code == 0
        assert submit(server, "watch", "run=r1", KF_PIPELINES_TOKEN="", KF_PIPELINES_SA_TOKEN_PATH=str(file)).code == 0


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_never_shown(tmp_path: Path, status: int) -> None:
    made, file = guarded(tmp_path)
    with made as server:
        echo = json.dumps({"code": 16, "message": f"Bearer {SECRET} is not known"})
        server.fail("GET", RUN, status, body=echo, skip=1)
        done = watch(server, [frame("RUNNING")], f"token_file={file}")
        assert done.code == 4
        assert "Bearer … is not known" in done.said[-1]
        assert "the run goes on" in done.said[-1]
        assert SECRET not in done.stdout + done.stderr
        # A refused token is read anew and tried once more; who may not is not asked again.
        assert len(server.asked("GET", RUN)) == (3 if status == 401 else 2)


def test_a_token_that_expires_is_read_again(tmp_path: Path) -> None:
    made, file = guarded(tmp_path)
    with made as server:
        server.add_run("r1", [frame("RUNNING")])
        process = start(server, "watch", "run=r1", f"token_file={file}")
        until(lambda: len(server.asked("GET", RUN)) > 2, "the run is looked at")
        file.write_text("another\n")
        server.token = "another"
        before = len(server.asked("GET", RUN))
        until(lambda: len(server.asked("GET", RUN)) > before + 3, "the run is looked at with the new token")
        server.runs["r1"].frames = [frame("SUCCEEDED")]
        assert end(process).code == 0
        assert server.requests[-1].headers["authorization"] == "Bearer another"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["token_file=/nowhere/token"], "token_file: cannot be read; got /nowhere/token"),
        (["ca_file=/nowhere/ca.pem"], "ca_file: does not exist; got /nowhere/ca.pem"),
        (["host=https://me:pass@kubeflow.example"], "host: contains a login"),
        (["poll=0"], "poll: out of range"),
        (["timeout=-1"], "timeout: out of range; got -1; expected 0 or more"),
        (["on_interrupt=maybe"], "on_interrupt"),
        (["runn=r2"], "did you mean 'run'?"),
    ],
)
def test_a_wrong_option_is_named(server: ApiServer, options: list[str], said: str) -> None:
    done = submit(server, "watch", "run=r1", *options)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.said[-1]
    assert "me:pass" not in done.stderr
    assert not server.requests


def test_a_certificate_of_ones_own_authority(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(both)]
    certificate = subprocess.run([*made, *named], capture_output=True, text=True, check=True).stdout
    both.write_text(both.read_text() + certificate)
    authority = tmp_path / "ca.pem"
    authority.write_text(certificate)
    with ApiServer(tls=both) as server:
        server.add_run("r1", [frame("SUCCEEDED")])
        refused = submit(server, "watch", "run=r1")
        assert (refused.code, refused.stdout) == (4, "")
        assert "CERTIFICATE_VERIFY_FAILED" in refused.said[-1]
        assert submit(server, "watch", "run=r1", f"ca_file={authority}").code == 0


# --- interrupts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("choice", ["ask", "terminate"])
def test_without_a_terminal_an_interrupt_asks_nothing(server: ApiServer, number: signal.Signals, choice: str) -> None:
    server.add_run("r1", [frame("RUNNING")])
    process = start(server, "watch", "run=r1", f"on_interrupt={choice}")
    until(lambda: len(server.asked("GET", RUN)) > 1, "the run is looked at")
    process.send_signal(number)
    done = end(process)
    terminated = len(server.asked("POST", f"{RUN}:terminate"))
    if choice == "terminate":
        assert (done.code, terminated) == (7, 1)
    else:
        assert (done.code, terminated) == (128 + number, 0)
        assert f"the run goes on: pairmill submit watch host={server.url} run=r1" in done.said[-1]


def test_a_second_interrupt_does_not_wait_for_the_end(server: ApiServer) -> None:
    server.add_run("r1", [frame("RUNNING")])
    server.fail("POST", f"{RUN}:terminate", 200, body="{}")
    process = start(server, "watch", "run=r1", "on_interrupt=terminate")
    until(lambda: len(server.asked("GET", RUN)) > 1, "the run is looked at")
    process.send_signal(signal.SIGINT)
    until(lambda: server.asked("POST", f"{RUN}:terminate"), "the run is terminated")
    before = len(server.asked("GET", RUN))
    until(lambda: len(server.asked("GET", RUN)) > before + 1, "the end is waited for")
    process.send_signal(signal.SIGTERM)
    done = end(process)
    assert done.code == 143
    assert done.said[-1] == "r1: interrupted; it is being terminated"


def test_a_run_that_ended_before_it_was_terminated(server: ApiServer) -> None:
    server.add_run("r1", [frame("RUNNING")])
    server.fail("POST", f"{RUN}:terminate", 400, body='{"code": 3, "message": "the run has ended"}')
    process = start(server, "watch", "run=r1", "on_interrupt=terminate")
    until(lambda: len(server.asked("GET", RUN)) > 1, "the run is looked at")
    process.send_signal(signal.SIGINT)
    until(lambda: server.asked("POST", f"{RUN}:terminate"), "the run is terminated")
    server.runs["r1"].frames = [frame("SUCCEEDED")]
    assert end(process).code == 0


class Terminal:
    """A process on a terminal of its own, whose keys are pressed and whose screen is read."""

    def __init__(self, server: ApiServer) -> None:
        self.keys, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, b"\x30\x00\xa0\x00\x00\x00\x00\x00")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairmill", "submit", "watch", f"host={server.url}", "run=r1", "poll=0.02"],
            cwd=REPOSITORY,
            env={**environment(), "TERM": "xterm"},
            stdin=screen,
            stdout=subprocess.PIPE,
            stderr=screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self.text = ""

    def press(self, keys: bytes) -> None:
        os.write(self.keys, keys)

    def see(self, wanted: str) -> None:
        def shown() -> bool:
            ready, _, _ = select.select([self.keys], [], [], 0)
            if ready:
                try:
                    self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self.keys, 1 << 16).decode())
                except OSError:
                    return wanted in self.text
            return wanted in self.text

        until(shown, f"the terminal shows {wanted!r}")

    def close(self) -> int:
        # What is left on the screen must be read for the process to end.
        reader = threading.Thread(target=self._drain, daemon=True)
        reader.start()
        code = self.process.wait(PATIENCE)
        reader.join(PATIENCE)
        os.close(self.keys)
        return code

    def _drain(self) -> None:
        try:
            while piece := os.read(self.keys, 1 << 16):
                self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode())
        except OSError:
            return


def test_on_a_terminal_ctrl_c_asks(server: ApiServer) -> None:
    server.add_run("r1", [frame("RUNNING", Node("clean", "RUNNING"))])
    terminal = Terminal(server)
    terminal.see("clean")
    terminal.press(b"\x03")
    terminal.see("terminate the run?")
    assert not server.asked("POST", f"{RUN}:terminate")
    terminal.press(b"\n")
    before = len(server.asked("GET", RUN))
    until(lambda: len(server.asked("GET", RUN)) > before + 2, "the run is watched on")
    terminal.text = ""
    terminal.press(b"\x03")
    terminal.see("terminate the run?")
    terminal.press(b"y\n")
    assert terminal.close() == 7
    assert len(server.asked("POST", f"{RUN}:terminate")) == 1


def test_many_workers_are_one_line_of_the_table(server: ApiServer) -> None:
    states = ["SUCCEEDED"] * 40 + ["RUNNING"] * 24
    workers = [Node("encode", each, loop="for-loop-1", index=index) for index, each in enumerate(states)]
    server.add_run("r1", [frame("RUNNING", Node("clean", "SUCCEEDED"), *workers)])
    terminal = Terminal(server)
    terminal.see("encode[64]")
    terminal.see("24 RUNNING, 40 SUCCEEDED")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.close() == 143


def test_a_second_ctrl_c_leaves_the_run(server: ApiServer) -> None:
    server.add_run("r1", [frame("RUNNING", Node("clean", "RUNNING"))])
    terminal = Terminal(server)
    terminal.see("clean")
    terminal.press(b"\x03")
    terminal.see("terminate the run?")
    # A signal just before a process waits for keys would be noticed with the next key only.
    waits = Path(f"/proc/{terminal.process.pid}/syscall")
    until(lambda: waits.read_text().split()[1:2] == ["0x0"], "it reads from the terminal")
    terminal.press(b"\x03")
    assert terminal.close() == 130
    assert "the run goes on" in " ".join(terminal.text.split())
    assert not server.asked("POST", f"{RUN}:terminate")


# --- submission -----------------------------------------------------------------------------------------------------


def test_a_submission_from_nothing(server: ApiServer) -> None:
    done = submit(server, IMAGE, "root=gs://bucket/project", "epochs=3", "wait=false", "version=0.1.0-abc")
    assert done.code == 0
    (run,) = server.runs.values()
    assert done.stdout == f"{run.id}\n"
    assert f"{server.url}/#/runs/details/{run.id}" in done.said[-1]
    (pipeline,), (version,), (experiment,) = server.pipelines, server.versions, server.experiments
    assert (pipeline["display_name"], version["display_name"]) == ("pairmill-pretraining", "0.1.0-abc")
    assert run.made_of["display_name"].startswith("0.1.0-abc 20")
    assert run.made_of["experiment_id"] == experiment["experiment_id"]
    assert run.made_of["pipeline_version_reference"] == {
        "pipeline_id": pipeline["pipeline_id"],
        "pipeline_version_id": version["pipeline_version_id"],
    }
    given = run.made_of["runtime_config"]["parameters"]
    assert (given["root"], given["epochs"], given["sources"]) == ("gs://bucket/project", 3, "")
    assert not any("run" in name for name in given)
    (specification, *_) = compiler.documents(version["content"].encode())
    images = {each["container"]["image"] for each in specification["deploymentSpec"]["executors"].values()}
    assert images == {IMAGE.removeprefix("image=")}
    assert set(given) == set(specification["root"]["inputDefinitions"]["parameters"])
    assert not server.asked("GET", RUN)


RUN_OF_TRAIN = ("run=s3://b/p", "every=100", "benchmarks=gsm8k")
PLANS = ("plans=base=s3://b/p/sample/one,s3://b/p/sample/two", "held_out=s3://b/p/sample/held")


@pytest.mark.parametrize(
    ("name", "options", "given"),
    [
        ("compare", PLANS, {"plans": "base=s3://b/p/sample/one,s3://b/p/sample/two", "seeds": 4}),
        (
            "search",
            ("tokenized=s3://b/p/t", "held_out=s3://b/p/h", "train_config=s3://b/proxy.yaml", "runs=8"),
            {"tokenized": "s3://b/p/t", "runs": 8},
        ),
        ("evaluate", RUN_OF_TRAIN, {"run": "s3://b/p", "every": 100, "idle_hours": 6.0}),
    ],
)
def test_a_pipeline_of_runs_is_submitted_as_the_line_is(
    server: ApiServer, name: str, options: tuple[str, ...], given: dict[str, object]
) -> None:
    trainer = f"registry.example/trainer@sha256:{'2' * 64}"
    done = submit(server, name, IMAGE, f"trainer_image={trainer}", "root=s3://b/p", *options, "version=v1", "gpus=2")
    assert (done.code, done.said[-1]) == (0, f"run {done.stdout.strip()} succeeded")
    ((run,), (pipeline,), (version,)) = server.runs.values(), server.pipelines, server.versions
    assert (pipeline["display_name"], version["display_name"]) == (f"pairmill-{name}", "v1")
    parameters = run.made_of["runtime_config"]["parameters"]
    assert given.items() <= parameters.items()
    (specification, *_) = compiler.documents(version["content"].encode())
    assert set(parameters) == set(specification["root"]["inputDefinitions"]["parameters"])
    executors = specification["deploymentSpec"]["executors"].values()
    images = {each["container"]["image"] for each in executors}
    assert images == ({trainer} if name == "evaluate" else {IMAGE.removeprefix("image="), trainer})
    compiled = compiler.documents((REPOSITORY / "pipelines" / "compiled" / f"{name}.yaml").read_bytes())[0]
    assert specification["root"] == compiled["root"], "the pipeline that the repository has"


@pytest.mark.parametrize("name", ["compare", "search", "evaluate"])
def test_a_wrong_pipeline_of_runs_is_refused_before_it_is_uploaded(server: ApiServer, name: str) -> None:
    base = (name, IMAGE, f"trainer_image=registry.example/trainer@sha256:{'2' * 64}", "root=s3://b/p", "version=v1")
    own = {
        "compare": PLANS,
        "search": ("tokenized=s3://b/p/t", "held_out=s3://b/p/h", "train_config=s3://b/proxy.yaml"),
        "evaluate": RUN_OF_TRAIN,
    }
    wrong = {
        "compare": [
            ((*PLANS[:1],), "held_out: required option missing"),
            ((*PLANS, "seeds=-1"), "seeds: out of range; got -1"),
            ((*PLANS, "set=training.steps=5"), "set: not a setting of a compared run"),
            (("plans=one,s3://b/two", PLANS[1]), "plans: is a relative path; got one"),
        ],
        "search": [
            ((*own["search"], "epochs=0"), "epochs: out of range; got 0"),
            (("tokenized=t", *own["search"][1:]), "tokenized: is a relative path; got t"),
            (own["search"][1:], "tokenized: required option missing"),
        ],
        "evaluate": [
            (RUN_OF_TRAIN[:2], "one or more of benchmarks, held_out is required"),
            (("run=p", *RUN_OF_TRAIN[1:]), "run: is a relative path; got p"),
            ((*RUN_OF_TRAIN, "serve=vllm"), "serve: not a valid value"),
            ((RUN_OF_TRAIN[0], "every=0", RUN_OF_TRAIN[2]), "every: out of range; got 0"),
        ],
    }
    for options, said in wrong[name]:
        done = submit(server, *base, *options)
        assert (done.code, done.said[-1].partition(";")[0]) == (2, said.partition(";")[0]), options
        assert said in done.said[-1]
    done = submit(server, name, IMAGE, "root=s3://b/p", *own[name])
    what = "checkpoints" if name == "evaluate" else "trainings"
    assert (done.code, done.said[-1].partition(";")[0]) == (2, f"trainer_image: required with {what}")
    done = submit(server, *base[:3], "root=/p", *own[name])
    assert (done.code, done.said[-1].partition(",")[0]) == (2, "root: is a folder of one pod")
    assert not server.pipelines


def test_a_run_whose_pods_were_ended_from_outside_is_started_again(server: ApiServer) -> None:
    # Argo as Kubeflow ships it does not try such a pod again: recorded in run-parallel-2-pod-deleted.json.
    deleted, failed = frame("FAILED", Node("curate", "FAILED")), frame("FAILED", Node("clean", "FAILED"))
    server.logs[Node("clean", "FAILED").log_node] = b"the reason\n" + ENDED
    options = (IMAGE, "root=s3://b/p", "version=v1")

    server.scripts = [[deleted], [deleted], [frame("SUCCEEDED")]]
    done = submit(server, *options)
    assert done.code == 0
    assert done.stdout.splitlines() == list(server.runs), "a line for each time"
    assert len(server.runs) == 3
    assert len(server.versions) == 1
    first, *later = [run.made_of["runtime_config"] for run in server.runs.values()]
    assert all(each == first for each in later)

    for scripts, given, code, started in (
        ([[deleted]] * 3, "retries=1", 6, 2),
        ([[deleted]] * 3, "retries=0", 6, 1),
        ([[failed]] * 3, "retries=2", 6, 1),
        ([[deleted], [failed], [deleted]], "retries=2", 6, 2),
    ):
        server.runs.clear()
        server.scripts = list(scripts)
        done = submit(server, *options, given)
        assert (done.code, len(server.runs)) == (code, started), (given, done.said)


def test_workers_and_placement_are_compiled_in(server: ApiServer) -> None:
    options = ("root=gs://b/p", "wait=false", "version=v1", "workers=3", "memory=9Gi", "node_selector=pool=big")
    assert submit(server, IMAGE, *options).code == 0
    (run,), (version,) = server.runs.values(), server.versions
    assert server.pipelines[0]["display_name"] == "pairmill-pretraining-parallel"
    assert "workers" not in run.made_of["runtime_config"]["parameters"]
    assert version["content"].count("comp-clean-share") > 2
    assert "9Gi" in version["content"]
    assert "pool: big" in version["content"]


def test_a_version_is_uploaded_once_and_another_content_gets_another_name(server: ApiServer) -> None:
    options = ("root=gs://b/p", "wait=false", "version=v1")
    for image in (IMAGE, IMAGE, OTHER_IMAGE):
        assert submit(server, image, *options).code == 0
    names = [version["display_name"] for version in server.versions]
    assert names[0] == "v1"
    assert len(names) == 2
    assert re.fullmatch(r"v1-[0-9a-f]{8}", names[1])
    assert len(server.runs) == 3


def test_a_run_is_started_from_a_version_that_gitops_applied(server: ApiServer, tmp_path: Path) -> None:
    (file,) = compiler.run(compiler.CompileConfig(form="manifests", output=str(tmp_path / "made.yaml")))
    pipeline, version = compiler.documents(file.read_bytes())
    # As the server shows objects that were applied to the cluster.
    server.pipelines.append({"pipeline_id": "p1", "display_name": pipeline["metadata"]["name"]})
    shown = {"display_name": version["spec"]["displayName"], "description": version["spec"]["description"]}
    server.versions.append({"pipeline_id": "p1", "pipeline_version_id": "v1", **shown})
    image, name = f"image={PLACEHOLDER_IMAGE}", f"version={shown['display_name']}"
    assert submit(server, image, "root=gs://b/p", "wait=false", name).code == 0
    (run,) = server.runs.values()
    reference = {"pipeline_id": "p1", "pipeline_version_id": "v1"}
    assert run.made_of["pipeline_version_reference"] == reference
    assert (len(server.pipelines), len(server.versions)) == (1, 1)


def test_the_version_is_named_by_the_commit_and_nothing_is_written_at_home(server: ApiServer, tmp_path: Path) -> None:
    # A namespace where Kubeflow has one user is no harm.
    assert submit(server, IMAGE, "root=gs://b/p", "namespace=team", HOME=str(tmp_path)).code == 0
    assert list(tmp_path.iterdir()) == []
    head = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"]
    sha = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    crate = (REPOSITORY / "rust" / "Cargo.toml").read_text()
    semver = re.search(r'^version = "(.+)"', crate, re.MULTILINE)
    assert semver is not None
    assert re.fullmatch(rf"{re.escape(semver[1])}-{sha}(-dirty)?", server.versions[0]["display_name"])


def test_two_submissions_at_once_both_end_well(server: ApiServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda _: submit(server, IMAGE, "root=gs://b/p", "version=v1"), range(2))
    assert [each.code for each in done] == [0, 0]
    assert (len(server.pipelines), len(server.versions), len(server.experiments), len(server.runs)) == (1, 1, 1, 2)


def test_what_another_made_meanwhile_is_taken(server: ApiServer) -> None:
    # Between its look at what there is and its upload another one uploads the same.
    options = (IMAGE, "root=gs://b/p", "wait=false", "version=v1")
    assert submit(server, *options).code == 0
    kept, server.versions = server.versions, []
    exists = '{"error_message": "exists"}'
    upload = "/apis/v2beta1/pipelines/upload_version"
    server.fail("POST", upload, 409, times=1, body=exists, then=lambda: server.versions.extend(kept))
    assert submit(server, *options).code == 0
    assert server.versions == kept
    assert len(server.asked("POST", upload)) == 2


def test_a_lost_answer_to_the_start_is_not_asked_again(server: ApiServer) -> None:
    server.fail("POST", "/apis/v2beta1/runs", 0)
    done = submit(server, IMAGE, "root=gs://b/p", "name=tonight", "version=v1")
    assert (done.code, done.stdout) == (4, "")
    assert "look whether 'tonight' is among the runs" in done.said[-1]
    assert len(server.asked("POST", "/apis/v2beta1/runs")) == 1


def test_a_refused_run_is_said_in_the_servers_words(server: ApiServer) -> None:
    server.fail("POST", "/apis/v2beta1/runs", 400, body='{"code": 3, "message": "parameter epochs is bad"}')
    done = submit(server, IMAGE, "root=gs://b/p", "version=v1")
    assert done.code == 2
    assert "parameter epochs is bad" in done.said[-1]


def test_several_users() -> None:
    # Where kfp's own client keeps the namespace that it was given.
    kept = Path("~/.config/kfp/context.json").expanduser()
    before = kept.read_bytes() if kept.exists() else None
    with ApiServer(multi_user=True) as server:
        options = (IMAGE, "root=gs://b/p", "wait=false", "version=v1")
        refused = submit(server, *options)
        assert refused.code == 2
        assert "namespace: required" in refused.said[-1]
        assert submit(server, *options, "namespace=team", "service_account=default-editor").code == 0
        assert (server.pipelines[0]["namespace"], server.experiments[0]["namespace"]) == ("team", "team")
        assert next(iter(server.runs.values())).made_of["service_account"] == "default-editor"
    assert (kept.read_bytes() if kept.exists() else None) == before


def test_names_with_signs_that_urls_know(server: ApiServer) -> None:
    options = (IMAGE, "root=gs://b/p", "wait=false", "version=v1+100%", "experiment=ä + b%20")
    assert [submit(server, *options).code for _ in range(2)] == [0, 0]
    assert [each["display_name"] for each in server.experiments] == ["ä + b%20"]
    assert [each["display_name"] for each in server.versions] == ["v1+100%"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            [IMAGE, "root=gs://b/p", f"workers={compiler.MAX_WORKERS + 1}"],
            f"workers: out of range; got {compiler.MAX_WORKERS + 1}; exp",
        ),
        ([IMAGE, "root=gs://b/p", "epochs=0"], "epochs: out of range; got 0"),
        ([IMAGE, "root=gs://b/p", "profile=nonsense"], "profile: "),
        ([IMAGE, "root=gs://b/p", "vocab_size=3"], "vocab_size: is too small"),
        ([IMAGE, "root=ftp://b/p"], "root: no storage backend for this scheme; got ftp://b/p"),
        (["schedule", IMAGE, "root=gs://b/p", "cron=0 3 * * *", "epochs=0"], "epochs: out of range; got 0"),
        (["image=registry.example/pairmill:latest", "root=gs://b/p"], "image: is not named by digest"),
        ([IMAGE], "root: required option missing"),
        ([IMAGE, "root=gs://b/p", "epoch=3"], "did you mean 'epochs'?"),
        ([IMAGE, "root=gs://b/p", "epochs=many"], "epochs"),
        (["wach", "run=r1"], "did you mean 'watch'?"),
    ],
)
def test_a_wrong_submission_is_refused(server: ApiServer, options: list[str], said: str) -> None:
    done = submit(server, *options)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.said[-1]
    assert not server.requests


# --- recurring runs -------------------------------------------------------------------------------------------------


def test_a_recurring_run_is_made_once_changed_paused_and_deleted(server: ApiServer) -> None:
    nightly = ("schedule", IMAGE, "root=gs://b/p", "version=v1", "cron=0 3 * * *")
    first = submit(server, *nightly)
    assert first.code == 0
    (job,) = server.recurring
    assert first.stdout == f"{job['recurring_run_id']}\n"
    # A field of seconds stands first: five fields would be read as "third minute of every hour".
    assert job["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    assert (job["max_concurrency"], job["no_catchup"], job["mode"]) == ("1", True, "ENABLE")
    assert submit(server, *nightly).stdout == first.stdout
    assert submit(server, "pause").code == 0
    assert server.recurring[0]["status"] == "DISABLED"
    changed = submit(server, *nightly, "epochs=2")
    assert changed.stdout != first.stdout
    (job,) = server.recurring
    assert (job["runtime_config"]["parameters"]["epochs"], job["status"]) == (2, "DISABLED")
    assert submit(server, "resume").code == 0
    assert server.recurring[0]["status"] == "ENABLED"
    assert submit(server, "delete").code == 0
    assert server.recurring == []
    assert submit(server, "delete").code == 3


@pytest.mark.parametrize("cron", ["0 3 * *", "0 0 3 * * *", "@daily", "a b c d e;"])
def test_a_schedule_has_five_fields(server: ApiServer, cron: str) -> None:
    done = submit(server, "schedule", IMAGE, "root=gs://b/p", f"cron={cron}")
    assert done.code == 2
    assert "minute hour day month weekday" in done.said[-1]
    assert not server.requests


# --- the stand-in ---------------------------------------------------------------------------------------------------


def test_the_client_of_kfp_gets_from_the_stand_in_what_it_expects(server: ApiServer, tmp_path: Path) -> None:
    compiled = REPOSITORY / "pipelines" / "compiled" / "pretraining.yaml"
    server.add_run("r1", [frame("RUNNING", Node("clean", "RUNNING")), frame("SUCCEEDED", Node("clean", "SUCCEEDED"))])
    code = f"""
import json, sys, kfp
client = kfp.Client(host={server.url!r})
experiment = client.create_experiment("e")
pipeline = client.pipelines.pipeline_service_create_pipeline({{"display_name": "p"}})
version = client.upload_pipeline_version({str(compiled)!r}, "v", pipeline_id=client.get_pipeline_id("p"))
run = client.run_pipeline(experiment.experiment_id, "job", pipeline_id=pipeline.pipeline_id,
                          version_id=version.pipeline_version_id, params={{"root": "x"}})
job = client.create_recurring_run(experiment.experiment_id, "nightly", cron_expression="0 0 3 * * *", no_catchup=True,
                                  pipeline_id=pipeline.pipeline_id, version_id=version.pipeline_version_id)
client.disable_recurring_run(job.recurring_run_id)
(listed,) = client.list_recurring_runs(experiment_id=experiment.experiment_id).recurring_runs
done = client.wait_for_run_completion("r1", 10, sleep_duration=0)
names = [task.display_name for task in done.run_details.task_details]
print(json.dumps([client.get_run(run.run_id).state, listed.status, done.state, names]), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    state, status, ended, names = json.loads(done.stderr.splitlines()[-1])
    assert (state, status, ended) == ("SUCCEEDED", "DISABLED", "SUCCEEDED")
    tasks = [WORKFLOW, "root-driver", "root", "clean-driver", "clean"]
    assert {*tasks, *(f"{name}(0)" for name in tasks), "executor", "executor(0)"} == set(names)
