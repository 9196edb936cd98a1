"""What holds for every test."""

import ctypes
import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill import log
from tests.support import tools
from tests.support.processes.forked_workers import fork_workers

pytest_plugins = ["tests.support.objectstores.fixtures"]

# A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


fork_workers()

_system = ctypes.CDLL(None)

# All that is collected lives to the end: to look for garbage among it, now or in a test, finds none.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    # As in every program of ours: a test that parses a thousand files takes a third of the time.
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first: what a process takes over from another at the end is short."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what a module's tests freed: processes had 1.6 GB at last, and to fork one copies a line per page."""
    if nextitem is None or nextitem.path != item.path:
        if arrow := sys.modules.get("pyarrow"):
            arrow.default_memory_pool().release_unused()
        _system.malloc_trim(0)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test never depends on another's terminal, handler of logs or cache."""
    monkeypatch.delenv("PAIRMILL_LOG", raising=False)
    # Nor on what another test, or a user, kept.
    monkeypatch.setenv("PAIRMILL_CACHE", "")
    yield
    log.logger().handlers.clear()
    log.logger().propagate = True


@pytest.fixture
def shm() -> Iterator[Path]:
    """A folder of its own in /dev/shm."""
    with tools.shm_folder() as path:
        yield path
