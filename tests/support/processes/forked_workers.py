"""Worker processes of stages that a test runs in its own process, forked from one that has imported what they import.

Spawned, each imports for a second. A fork gets the shard, the context and the environment that a spawned one would get;
like those it sees nothing that a test changed in this process, and hashes in another way than this process does.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import forkserver, popen_forkserver, popen_spawn_posix
from multiprocessing.context import SpawnProcess
from typing import Any

from tests.support.processes.nursery import STAGES


def fork_workers() -> None:
    """From now on processes of this one that are to be spawned are forked."""
    forkserver.set_forkserver_preload([*STAGES])
    SpawnProcess._Popen = staticmethod(partial(_start, os.getpid()))  # type: ignore[assignment,method-assign]


def _start(owner: int, process: Any) -> popen_forkserver.Popen | popen_spawn_posix.Popen:
    if os.getpid() != owner:  # a fork of this process, whose child the server is not
        return popen_spawn_posix.Popen(process)
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    target, process._target = process._target, partial(_within, dict(os.environ), process._target)
    # Threads of numpy's algebra would be started by its import.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        forkserver.ensure_running()
        return popen_forkserver.Popen(process)
    finally:
        process._target = target
        del os.environ["OPENBLAS_NUM_THREADS"]
        if threads is not None:
            os.environ["OPENBLAS_NUM_THREADS"] = threads


def _within(environment: Mapping[str, str], target: Callable[..., object], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
