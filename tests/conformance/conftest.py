"""Recorded inputs and results of the reference programs, found through PAIRMILL_SHARED (default ../shared)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.helpers import REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    path = (REPOSITORY / os.environ.get("PAIRMILL_SHARED", "../shared")).resolve()
    if not path.is_dir():
        pytest.fail(f"no recorded cases at {path}; set PAIRMILL_SHARED")
    return path


@pytest.fixture(scope="session")
def stage() -> Callable[..., str]:
    """Run a stage as its users do; returns stdout."""

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "pairmill", name, *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
