"""Work in progress on a file system: hidden siblings of the target, each locked by the process that writes it.

A lock dies with its holder, however that is killed. So what nobody holds is a leftover that may go, and what somebody
holds is never touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def hold(make: Callable[[], tuple[int, Path]]) -> tuple[int, Path]:
    """Make a file or folder with ``make`` (an open descriptor and its path) and lock it, waiting for another holder."""
    while True:
        handle, path = make()
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Between its making and its locking another process may have removed or renamed it.
        if names(path, handle):
            return handle, path
        os.close(handle)


def names(path: Path, handle: int) -> bool:
    """Whether ``path`` (still) leads to what ``handle`` has open."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(handle).st_ino
    return False


def sweep(leftovers: Iterable[Path]) -> Iterator[Path]:
    """Remove those of these files and folders that nobody holds; gives each that was removed."""
    for entry in leftovers:
        with suppress(OSError):
            handle = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
                yield entry
            finally:
                os.close(handle)


def scratch() -> Path:
    """Where what is written stands until it is stored, and downloads grow: below TMPDIR."""
    # gettempdir() alone goes on to /tmp where TMPDIR is full: that would fill the disk of a node.
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
