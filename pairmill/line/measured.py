"""What processes that are started here take: CPU seconds, memory, disk; their messages are kept apart."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAUSE: Final = 0.05
"""Seconds between two looks at memory."""


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def disk_bytes(folder: Path) -> int:
    """Return the bytes that a folder takes; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            entry = path.lstat()
            seen[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return sum(seen.values())


@contextmanager
def quiet(top: Path) -> Iterator[None]:
    """Keep what tasks log: of a sample it would be taken for the run's. It is shown if a task fails."""
    top.mkdir()
    kept = os.dup(2)
    try:
        with (top / "log").open("w+b") as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            except BaseException:
                file.seek(0)
                os.write(kept, file.read()[-1 << 16 :])
                raise
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


@dataclass(frozen=True)
class MemoryUsed:
    """The most bytes that a task had: all its processes at once, its first process, any of the others."""

    whole: int = 0
    first: int = 0
    worker: int = 0


class Memory(threading.Thread):
    """Watches the memory of the processes below this one (on Linux; elsewhere it stays 0)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._used = MemoryUsed()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def take(self) -> MemoryUsed:
        """Return what was used since the last call."""
        used, self._used = self._used, MemoryUsed()
        return used

    def run(self) -> None:
        while not self._ended.wait(_PAUSE):
            firsts = list(_children(os.getpid()))
            first = sum(map(_memory_of, firsts))
            workers = [_memory_of(pid) for child in firsts for pid in _below(child)]
            self._used = MemoryUsed(
                max(self._used.whole, first + sum(workers)),
                max(self._used.first, first),
                max(self._used.worker, *workers, 0),
            )


def _children(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, path.read_text().split())


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and theirs."""
    for child in _children(pid):
        yield child
        yield from _below(child)


def _memory_of(pid: int) -> int:
    """Return bytes of a process; of pages that it shares its part."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
