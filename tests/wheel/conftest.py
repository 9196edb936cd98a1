"""A machine of a stranger: a bare Python, a folder of wheels as its index, and nothing of the repository."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.helpers import PATIENCE, REPOSITORY, missing
from tests.support.kubernetes.containers import podman

_WHEELS = REPOSITORY / "dist" / "wheels"
_PINNED = re.search("^ARG BASE_IMAGE=(.*)$", (REPOSITORY / "images" / "Dockerfile").read_text(), re.MULTILINE)


@dataclass
class Machine:
    """A container that runs; what is typed there sees the host's network, where stand-ins of servers are."""

    container: str
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, line: str, *, fails: bool = False) -> str:
        """Type a line, or several, into its shell; return stdout, and where it ``fails`` stderr."""
        settings = [f"--env={name}={value}" for name, value in self.variables.items()]
        done = subprocess.run(
            ["podman", "exec", *settings, "--workdir=/home", self.container, "bash", "-ec", line],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"$ {line}\n{done.stdout}\n{done.stderr}"
        return done.stderr if fails else done.stdout

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files below its working directory."""
        for name, content in files.items():
            place = f"/home/{name}"
            subprocess.run(
                ["podman", "exec", "-i", self.container, "bash", "-c", f"mkdir -p $(dirname {place}); cat > {place}"],
                input=content,
                check=True,
            )


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A machine with Python and pip, and an environment for each of ``bare`` and ``whole``."""
    if "WHEEL" not in os.environ:
        missing("a container with a wheel: make wheel-test")
    wheel = Path(os.environ["WHEEL"]).resolve()
    assert _PINNED
    image = os.environ.get("BASE_IMAGE") or _PINNED[1]
    mounts = (f"--volume={_WHEELS / 'pipeline'}:/index:ro", f"--volume={wheel}:/own/{wheel.name}:ro")
    tools = f"--volume={_WHEELS / 'images'}:/tools:ro"
    started = podman("run", "--detach", "--rm", "--network=host", *mounts, tools, image, "sleep", "3600")
    here = Machine(started.stdout.strip())
    try:
        # Debian's Python has no pip; it runs out of its own wheel. The folders are the package index here.
        for name in ("bare", "whole"):
            here.type(
                f"python3 -m venv --without-pip /{name}; export PYTHONPATH=$(echo /tools/pip-*.whl)\n"
                f"/{name}/bin/python -m pip install --no-index $PYTHONPATH"
            )
        here.variables |= {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": "/index /own",
            "PIP_NO_COMPILE": "1",
        }
        yield here
    finally:
        podman("kill", here.container, check=False)


def entered(machine: Machine, environment: str) -> Machine:
    """Return the machine with an environment activated."""
    return Machine(machine.container, {**machine.variables, "PATH": f"/{environment}/bin:/usr/local/bin:/usr/bin:/bin"})


@pytest.fixture(scope="session")
def bare(machine: Machine) -> Machine:
    """The machine after ``pip install pairmill``."""
    here = entered(machine, "bare")
    here.type("pip install pairmill")
    return here


@pytest.fixture(scope="session")
def whole(machine: Machine) -> Machine:
    """The machine after ``pip install 'pairmill[stages]'``."""
    here = entered(machine, "whole")
    here.type("pip install 'pairmill[stages]'")
    return here
