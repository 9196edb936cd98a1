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

from tests.support.processes import nursery

_server: Any = forkserver._forkserver  # type: ignore[attr-defined]


def fork_workers() -> None:
    """From now on processes of this one that are to be spawned are forked from a fork of a nursery."""

    def serve(listener: int, alive: int) -> None:
        module = "tests.support.processes.worker_server"
        others = (listener, alive)
        nursery.shared(number=1).start(module, (), os.environ, (1, 2), others=others)

    _fork_from(serve)


def fork_workers_of_a_fork() -> None:
    """From now on processes of this one that are to be spawned are forked from one that is forked now.

    They are of its group, see its mounts, and hash like it.
    """

    def serve(listener: int, alive: int) -> None:
        if not os.fork():
            try:
                os.close(_server._forkserver_alive_fd)
                serve_forks(listener, alive)
            finally:
                os._exit(0)

    _listen(serve)
    _fork_from(serve)


def serve_forks(listener: int, alive: int) -> None:
    """Fork a process for each request of ``multiprocessing``'s protocol, until the other end of ``alive`` is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.main(listener, alive, [])


def _fork_from(serve: Callable[[int, int], object]) -> None:
    """Fork what is to be spawned from a process that ``serve`` starts, when the first is, if not before."""
    _server.ensure_running = lambda: None
    SpawnProcess._Popen = staticmethod(partial(_start, os.getpid(), serve))  # type: ignore[assignment,method-assign]


def _start(
    owner: int, serve: Callable[[int, int], object], process: Any
) -> popen_forkserver.Popen | popen_spawn_posix.Popen:
    if os.getpid() != owner:  # a fork of this process, which the server does not know
        return popen_spawn_posix.Popen(process)
    with _server._lock:
        if _server._forkserver_address is None:
            _listen(serve)
    target, process._target = process._target, partial(_within, dict(os.environ), process._target)
    try:
        return popen_forkserver.Popen(process)
    finally:
        process._target = target


def _listen(serve: Callable[[int, int], object]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0pairmill-workers-{os.getpid()}")
        listener.listen()
        alive, _server._forkserver_alive_fd = os.pipe()
        serve(listener.fileno(), alive)
        os.close(alive)
    _server._forkserver_address = f"\0pairmill-workers-{os.getpid()}"


def _within(environment: Mapping[str, str], target: Callable[..., object], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
