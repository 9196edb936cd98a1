"""The process that a nursery forks from.

    python -m tests.support.processes.fork_server <module> … <descriptor of a socket>

Each request is a socket of its own, which comes with the streams of the program. The program says its number and runs
its module; this process says how it ended.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn

from tests.support.processes.forked_workers import fork_workers_of_a_fork
from tests.support.processes.kill_points import die_before, note_changes

# A process that may use one core starts no processes of its own, unless it is told to.
os.sched_getaffinity = lambda pid: {0}


def main() -> None:
    """Import, and fork until the socket's other end is closed."""
    door = socket.socket(fileno=int(sys.argv[-1]))
    for name in sys.argv[1:-1]:
        importlib.import_module(name)
    # To look for garbage among all that was imported would touch every page and copy it.
    gc.collect()
    gc.freeze()
    living: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([door, *living], [], [])
        for ended in {*ready} - {door}:
            child, talk = living.pop(ended)
            os.close(ended)
            with talk, suppress(OSError):  # the other end may be closed
                talk.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if door not in ready:
            continue
        said, descriptors, *_ = socket.recv_fds(door, 1, 8)
        if not said:
            os._exit(0)
        talk, streams, others = socket.socket(fileno=descriptors[0]), descriptors[1:4], descriptors[4:]
        with talk.makefile() as file:
            given = json.loads(file.readline())
        # No thread runs here but the allocator's, which minds forks.
        child = os.fork()
        if not child:
            os.setsid()
            talk.sendall(b"%d\n" % os.getpid())
            for each in (door, talk, *(other for _, other in living.values())):
                each.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for descriptor in (*streams, *living):
                os.close(descriptor)
            given["arguments"] += map(str, others)
            _begin(given)
        living[os.pidfd_open(child)] = child, talk
        for descriptor in descriptors[1:]:
            os.close(descriptor)


def _begin(given: dict[str, Any]) -> NoReturn:
    if given["mounts"]:
        _mount(given["mounts"])
    os.environ.clear()
    os.environ.update(given["environment"])
    if given["folder"]:
        os.chdir(given["folder"])
    # What an interpreter of its own would find there.
    sys.path += [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in {"", *sys.path}]
    if given["arguments"][:1] == ["run"] or given["arguments"][:2] == ["stage", "chain"]:
        # Stages run other programs, which are not ours.
        importlib.import_module("pairmill.interface.chain").subprocess = SimpleNamespace(  # type: ignore[attr-defined]
            run=_run, DEVNULL=subprocess.DEVNULL
        )
    if given["die_before"]:
        die_before(given["die_before"])
    if given["changes"]:
        note_changes(given["changes"])
    _end(given["module"], given["arguments"])


def _mount(mounts: Sequence[tuple[str, str, str]]) -> None:
    """Mounts that no other process sees."""
    system = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: Any) -> None:
        if getattr(system, name)(*arguments):
            raise OSError(ctypes.get_errno(), name)

    call("unshare", 0x20000)  # CLONE_NEWNS
    call("mount", b"none", b"/", None, ctypes.c_ulong(0x44000), None)  # MS_REC | MS_PRIVATE
    for source, place, options in mounts:
        kind, flags = (b"tmpfs", 0) if options else (None, 0x1000)  # MS_BIND
        call("mount", source.encode(), place.encode(), kind, ctypes.c_ulong(flags), options.encode() or None)


def _end(module: str, arguments: Sequence[str]) -> NoReturn:
    """Run a module and end, without taking down what was imported, page by page."""
    sys.argv[1:] = arguments
    if any(given.startswith("workers=") and given[8:] not in {"0", "1"} for given in arguments):
        fork_workers_of_a_fork()
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(
    command: Sequence[str], stdout: int, check: bool, env: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    """``subprocess.run`` of the line on this machine, and of a chain in a pod: their tasks are forked too."""
    sys.stderr.flush()
    child = os.fork()
    if not child:
        # Folders that go with the line are not the task's to remove.
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]
        os.dup2(os.open(os.devnull, os.O_WRONLY) if stdout == subprocess.DEVNULL else stdout, 1)
        os.environ.update(env)
        sys.stdout = sys.__stdout__
        _end(command[2], command[3:])
    _, status = os.waitpid(child, 0)
    return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
