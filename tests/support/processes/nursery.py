"""Modules as processes of their own, forked from one that has imported what all import.

A fresh interpreter imports for a third of a second before a stage begins, and for more than a second where it talks to
an object store or compiles a pipeline. A process from here has its own arguments, environment, output and exit code,
runs the module as ``python -m`` does and waits for the module's threads. All forks of a nursery hash alike, so two runs
whose bytes are compared are of two nurseries. Not for tests of how a process starts or ends.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from types import SimpleNamespace
from typing import IO

from tests.support.helpers import PATIENCE, REPOSITORY

STAGES = (
    "pairmill.stages.clean.core",
    "pairmill.stages.curate.core",
    "pairmill.stages.fetch.core",
    "pairmill.stages.mix.core",
    "pairmill.stages.sample.core",
    "pairmill.stages.sample.report",
    "pairmill.stages.sample.run",
    "pairmill.stages.select.core",
    "pairmill.stages.tokenize.core",
    "pairmill.stages.train_tokenizer.core",
    "filelock",
    "httpx",
    "numpy.random",
    "omegaconf",
    "pairmill._native",
    "pairmill.engine.processes",
    "pairmill.interface.command",
    "pairmill.interface.stagecli",
    "pairmill.line.following",
    "pairmill.interface.start",
    *(f"pairmill.stages.{stage}.command" for stage in ("clean", "curate", "fetch", "tokenize", "train_tokenizer")),
    *(f"pairmill.stages.{stage}.command" for stage in ("mix", "sample", "select")),
    # pyarrow imports it, where it is installed, for what no stage asks of it.
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "tokenizers",
    "xxhash",
)
STORES = (
    *STAGES,
    "botocore.auth",
    "botocore.client",
    "botocore.handlers",
    "botocore.httpsession",
    "botocore.session",
    "google.cloud.storage",
    "pairmill.storage.gcs",
    "pairmill.storage.s3",
    "tests.support.objectstores.models",
)
TRAINING = (
    *STAGES,
    "pairmill.stages.train.run.loop",
    "pairmill.stages.evaluate.held_out",
    "pairmill.stages.search.core",
)
"""Where torch is."""
PIPELINES = (
    *STORES,
    "kfp.client",
    "kfp.compiler",
    "kfp.kubernetes",
    "kfp_server_api",
    "pairmill.line.dry_run",
    "pairmill.line.parameters",
    "pairmill.line.run",
    "pairmill.lineage.command",
    "pairmill.lineage.page",
    "pairmill.kubeflow.placement",
    "pairmill.kubeflow.pretraining",
    "pairmill.kubeflow.submit.publish",
    "pairmill.kubeflow.submit.watch",
)


class Child:
    """A process that was forked, the first of a group of its own: as much of ``subprocess.Popen`` as is needed.

    Attributes:
        stdout: where its stdout and stderr are read, if they are one pipe.
        returncode: how it ended, negative for a signal, once somebody asked.
    """

    def __init__(self, talk: socket.socket, stdout: IO[bytes] | None = None) -> None:
        self._talk, self.stdout = talk, stdout
        self.returncode: int | None = None
        self.pid = self._answer()

    def fileno(self) -> int:
        """For ``select``, which then waits for its end."""
        return self._talk.fileno()

    def _answer(self) -> int:
        said = b""
        while not said.endswith(b"\n"):
            more = self._talk.recv(1)
            assert more, "the process that forks has ended"
            said += more
        return int(said)

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        if self.returncode is None and select.select([self._talk], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit code."""
        if self.returncode is None:
            self._talk.settimeout(timeout)
            self.returncode = self._answer()
            self._talk.close()
        return self.returncode

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Nursery:
    """Runs modules in the repository.

    Args:
        imported: what they have imported already.
        parent: one that has imported some of it, and forks this one: a second less of processor time, and they hash
            alike.
    """

    def __init__(self, imported: Sequence[str], parent: "Nursery | None" = None) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads of numpy's algebra would be started by its import.
        own = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        module = "tests.support.processes.fork_server"
        self._process: Child | subprocess.Popen[bytes]
        with theirs:
            if parent is None:
                command = [sys.executable, "-m", module, *imported, str(theirs.fileno())]
                self._process = subprocess.Popen(command, cwd=REPOSITORY, env=own, pass_fds=[theirs.fileno()])
            else:
                self._process = parent.start(module, imported, own, (1, 2), others=[theirs.fileno()])

    def close(self) -> None:
        """Let it end, when what it forked has ended or not."""
        self._door.close()
        self._process.wait()

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: tuple[int, int] | None = None,
        die_before: int = 0,
        changes: str = "",
        mounts: Sequence[tuple[str, str, str]] = (),
        folder: str = "",
        others: Sequence[int] = (),
    ) -> Child:
        """Start a module.

        Args:
            output: descriptors of its stdout and stderr; None: one pipe for both.
            die_before: the change of a name before which it is killed (see kill_points).
            changes: a file where its changes of names are noted (see kill_points).
            mounts: what it alone sees: (folder, place, "") or ("tmpfs", place, options).
            folder: where it works; by default the repository.
            others: descriptors that it has too, by numbers that are its last arguments.
        """
        given = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "die_before": die_before,
            "changes": changes,
            "mounts": list(mounts),
            "folder": folder,
        }
        mine, theirs = socket.socketpair()
        stdout = None
        with theirs, open(os.devnull, "rb") as nothing, ExitStack() as stack:
            if output is None:
                read, write = os.pipe()
                stack.callback(os.close, write)
                output, stdout = (write, write), os.fdopen(read, "rb", buffering=0)
            socket.send_fds(self._door, [b"start"], [theirs.fileno(), nothing.fileno(), *output, *others])
        mine.sendall(json.dumps(given).encode() + b"\n")
        return Child(mine, stdout)

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        die_before: int = 0,
        changes: str = "",
        folder: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """Run a module to its end, or until it is killed (see kill_points); stdout and stderr as text."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            output = (out.fileno(), err.fileno())
            child = self.start(module, arguments, environment, output, die_before, changes, folder=folder)
            code = child.wait()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess([module, *arguments], code, *texts)

    def in_place_of_subprocess(self) -> SimpleNamespace:
        """What a module that starts its tasks by ``subprocess.run`` is given, so that they are forked."""

        def run(
            command: Sequence[str], stdout: int, check: bool, env: Mapping[str, str]
        ) -> "subprocess.CompletedProcess[bytes]":
            with open(os.devnull, "wb") as nothing:
                output = (nothing.fileno() if stdout == subprocess.DEVNULL else stdout, 2)
                child = self.start(command[2], command[3:], env, output)
            return subprocess.CompletedProcess(command, child.wait())

        return SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL)


def shared(imported: Sequence[str] = STAGES, number: int = 0) -> Nursery:
    """One for all tests of this process, with which it ends; those of another number hash in another way."""
    return _shared(imported, number)


@cache
def _shared(imported: Sequence[str], number: int) -> Nursery:
    return Nursery(imported, None if imported == STAGES else shared(STAGES, number))
