"""Ways to run a container: a process of this machine in mounts of its own, or a real container of podman."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.helpers import REPOSITORY, missing
from tests.support.processes import nursery
from tests.support.processes.nursery import Child

USER = 65532


@dataclass(frozen=True)
class Pod:
    """What is to be run.

    Attributes:
        name: unique on this machine.
        image: as the pipeline names it.
        command: program and arguments, all placeholders filled.
        env: variables that Kubernetes sets.
        volumes: folders of this machine by the path at which they are mounted.
        memory: bytes of memory volumes by the path at which they are mounted.
    """

    name: str
    image: str
    command: list[str]
    env: Mapping[str, str]
    volumes: Mapping[str, Path]
    memory: Mapping[str, int]


class Running(Protocol):
    """A container that was started; its output is one pipe."""

    @property
    def process(self) -> "subprocess.Popen[bytes] | Child": ...

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the signal to the program."""


class Engine(Protocol):
    """Starts containers."""

    def start(self, pod: Pod) -> Running:
        """Start it. Raises OSError where the program cannot be."""


@dataclass
class _Process:
    process: "subprocess.Popen[bytes] | Child"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """To the whole group, as a pod's end takes all of its processes along."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Process:
    """Runs the command on this machine, whatever the image is.

    Volumes are mounted for the process alone (``unshare``), so that parallel tasks have each their own ``/minio``.
    Where a mount point is missing it is made and stays: it is an empty folder.

    Args:
        programs: what stands in for words of the command, such as the image's Python.
        folder: working directory.
        env: variables beside those of Kubernetes, in the place of the image's.
    """

    def __init__(
        self,
        programs: Mapping[str, str] | None = None,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if os.geteuid():
            missing("mounts of a process's own")
        self._programs = {"python": sys.executable, "python3": sys.executable, **(programs or {})}
        self._folder = folder
        self._env = {"PATH": os.environ["PATH"], "HOME": "/", **(env or {})}

    def start(self, pod: Pod) -> Running:
        lines = []
        for place, folder in sorted(pod.volumes.items()):
            Path(place).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind '{folder}' '{place}'")
        for place, size in sorted(pod.memory.items()):
            Path(place).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount -t tmpfs -o size={size} tmpfs '{place}'")
        script = " && ".join([*lines, 'exec "$@"'])
        command = [self._programs.get(word, word) for word in pod.command]
        wrapped = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *command]
        return _Process(_started(wrapped, self._folder, {**self._env, **pod.env}))


class Forked(Process):
    """Where the command is one of our programs, it is forked from a nursery that has imported all of this."""

    def __init__(self, imported: Sequence[str] = nursery.STAGES, env: Mapping[str, str] | None = None) -> None:
        super().__init__(folder=REPOSITORY, env=env)
        self._imported = imported

    def start(self, pod: Pod) -> Running:
        if pod.command[:2] != ["python", "-m"]:
            return super().start(pod)
        mounts = [(str(folder), place, "") for place, folder in sorted(pod.volumes.items())]
        mounts += [("tmpfs", place, f"size={size}") for place, size in sorted(pod.memory.items())]
        for _, place, _ in mounts:
            Path(place).mkdir(parents=True, exist_ok=True)
        module, *arguments = pod.command[2:]
        child = nursery.shared(self._imported).start(module, arguments, {**self._env, **pod.env}, mounts=mounts)
        return _Process(child)


@dataclass
class _Container:
    process: "subprocess.Popen[bytes]"
    name: str

    def kill(self, number: int = signal.SIGKILL) -> None:
        command = ["podman", "kill", f"--signal={int(number)}", self.name]
        # Between the start of podman and that of the container there is nothing to kill yet.
        while self.process.poll() is None and subprocess.run(command, capture_output=True, check=False).returncode:
            time.sleep(0.05)


class Podman:
    """Runs real containers as a cluster does: user 65532 in group 0, no capabilities, the image's files writable.

    Args:
        image: what to run in the place of the pipeline's image, by that name.
        options: further options of ``podman run``, such as folders that stand in for a bucket.
    """

    def __init__(self, image: Callable[[str], str] = str, options: tuple[str, ...] = ()) -> None:
        self._image, self._options = image, options

    def start(self, pod: Pod) -> Running:
        for folder in pod.volumes.values():
            _open(folder)
        program, *arguments = pod.command
        command = [
            *("podman", "run", "--rm", "--init", f"--name={pod.name}", f"--user={USER}:0", "--network=host"),
            *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--env=HOME=/"),
            *(f"--env={key}={value}" for key, value in pod.env.items()),
            *(f"--volume={folder}:{place}" for place, folder in pod.volumes.items()),
            *(f"--tmpfs={place}:rw,mode=1777,size={size}" for place, size in pod.memory.items()),
            *self._options,
            *(f"--entrypoint={program}", self._image(pod.image), *arguments),
        ]
        return _Container(_started(command), pod.name)


def _started(
    command: list[str], folder: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """A process group of its own whose stdout and stderr are one pipe, as the launcher starts a program."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _open(folder: Path) -> None:
    """Every emptyDir is open to all, and its parents let the user of the container pass."""
    for path in (folder, *(path for path in folder.rglob("*"))):
        path.chmod(0o777 if path.is_dir() else 0o666)
    for path in folder.parents:
        if path.stat().st_mode & 0o011 != 0o011:
            path.chmod(path.stat().st_mode | 0o011)
