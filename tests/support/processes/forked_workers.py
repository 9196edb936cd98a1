"""Worker processes of stages that a test runs in its own process, forked from one that has imported what they import.

Spawned, each imports for a second. A fork gets the shard, the context and the environment that a spawned one would get;
like those it sees nothing that a test changed in this process, and hashes in another way than this process does.
"""

import os
import signal
import socket
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


def fork_workers_of_a_fork() -> None:
    """From now on processes of this one that are to be spawned are forked from one that is forked now.

    They are of its group, see its mounts, and hash like it.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        address = f"\0pairmill-workers-{os.getpid()}"
        listener.bind(address)
        listener.listen()
        alive, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(theirs)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                forkserver.main(listener.detach(), alive, [])
            finally:
                os._exit(0)
        os.close(alive)
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, theirs, pid
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
