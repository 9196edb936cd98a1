"""Recorded inputs and results of the reference programs, found through PAIRMILL_SHARED (default ../shared)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.helpers import REPOSITORY, environment
from tests.support.processes import nursery


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
        done = nursery.shared().run("pairmill", [name, *arguments], environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
