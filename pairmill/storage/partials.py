"""Partial files: hidden siblings of the target, each locked by the process that writes it.

The kernel releases the lock of a killed process, so an unlocked partial file is a leftover. But on many mounted
buckets, and on some mounts of NFS and Lustre, a lock is visible to one machine only. Names therefore contain the
writer's machine: ``.<name>.<machine>-<process>-<random>.partial``. A leftover of this machine is removed when it is not
locked, one of another machine when it was not written for :data:`ABANDONED` seconds.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pairmill.errors import StorageError
from pairmill.log import event

ABANDONED = 24 * 3600.0
"""Seconds without a write after which a partial file of another machine is a leftover."""
TRIED = 16
"""How often a file is written again because others removed it."""
_MARKED = re.compile(r"[.-](?P<machine>[0-9a-f]{8})-(?P<process>[0-9a-f]+)-[^.-]+\.partial$")
_LONGEST = 80  # bytes of the target's name in a partial's name, so that it fits every file system's limit
_END = ".partial"
_LOCKLESS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EBADF}
"""The last one is of a folder on NFS, which locks only what is open for writing."""


def hold(make: Callable[[], tuple[int, Path]]) -> tuple[int, Path]:
    """Lock the file or folder that ``make`` creates (an open descriptor and its path). Waits for another holder."""
    while True:
        handle, path = make()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            # Without locks, only its age tells a leftover.
            if error.errno not in _LOCKLESS:
                os.close(handle)
                raise
        # Another process may have removed or renamed it before it was locked.
        if names(path, handle):
            return handle, path
        os.close(handle)


def names(path: Path, handle: int) -> bool:
    """Return whether ``path`` is (still) the file that ``handle`` has open."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(handle).st_ino
    return False


def make(folder: Path, head: str) -> tuple[int, Path]:
    """Create an empty, locked, private file whose name starts with ``head``; its descriptor can read and write."""

    def once() -> tuple[int, Path]:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f"{head}{mark()}-", suffix=_END)
        return handle, Path(name)

    return hold(once)


def adopt(path: Path, folder: Path, head: str) -> tuple[int, Path]:
    """Lock a partial file that its writer has left, and give it a name as from :func:`make`.

    Raises:
        OSError: it was removed, or somebody is about to remove it.
    """
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _LOCKLESS:
                raise
        mine = folder / f"{head}{mark()}-{os.urandom(4).hex()}{_END}"
        path.rename(mine)
    except BaseException:
        os.close(handle)
        raise
    return handle, mine


def make_folder(folder: Path, head: str) -> tuple[int, Path]:
    """Make an empty folder as :func:`make` does; makes the folder above it too."""

    def once() -> tuple[int, Path]:
        for _ in range(TRIED):
            # Other processes remove empty folders, and take one that is not locked yet for a leftover.
            with suppress(FileNotFoundError):
                folder.mkdir(parents=True, exist_ok=True)
                path = Path(tempfile.mkdtemp(dir=folder, prefix=f"{head}{mark()}-", suffix=_END))
                return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path
        raise removed(folder)

    return hold(once)


def link(source: Path, folder: Path, head: str) -> Path:
    """Make a hard link to the source, with a name as from :func:`make`. It is not locked."""
    path = folder / f"{head}{mark()}-{os.urandom(4).hex()}{_END}"
    os.link(source, path)
    return path


def mark() -> str:
    """Machine and process, as they are part of a partial's name."""
    return f"{machine()}-{os.getpid():x}"


def head_of(target: Path) -> str:
    """Return the start of the names of all partials of a target; the same on every machine."""
    name = os.fsencode(target.name)
    if len(name) <= _LONGEST:
        return f".{target.name}."
    # The first characters are for people. No dot follows them, so that no short name has the same head.
    digest = hashlib.sha256(name).hexdigest()[:32]
    return f".{name[: _LONGEST - len(digest) - 1].decode(errors='ignore')}~{digest}."


def sweep_folder(folder: Path, head: str) -> None:
    """Remove the leftovers whose names start with ``head``, and everything that was abandoned in this folder."""
    result = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(_END):
                continue
            rest = name.removeprefix(head).removesuffix(_END) if name.startswith(head) else ""
            # With a dot in the rest it is a partial of another target.
            ours = bool(rest) and "." not in rest
            if ours or (_MARKED.search(name) and _abandoned(entry.stat(follow_symlinks=False))):
                result.append(Path(entry.path))
    for _ in sweep(result):
        pass


def sweep(leftovers: Iterable[Path]) -> Iterator[Path]:
    """Remove those of these files and folders that no process is writing; yields each that was removed.

    A name without a machine counts as this machine's.
    """
    for entry in leftovers:
        with suppress(OSError):
            told = _MARKED.search(entry.name)
            # Some file systems only pretend to lock; a file that its writer has open must survive that.
            if told and told["machine"] == machine() and _has_open(int(told["process"], 16), entry.name):
                continue
            # TMPDIR may contain anything: opening a FIFO would block.
            handle = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                result = os.fstat(handle)
                foreign = told is not None and told["machine"] != machine()
                if not _is_ours(result, entry.parent) or (foreign and not _abandoned(result)):
                    continue
                if not _lock(handle, result):
                    continue
                shutil.rmtree(entry) if stat.S_ISDIR(result.st_mode) else entry.unlink(missing_ok=True)
                yield entry
            finally:
                os.close(handle)


def remove(path: Path) -> None:
    """Remove a partial file if it exists. A failure is only logged: the file is a leftover then."""
    for last in (False, True):
        try:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            if last:
                event(f"{path} could not be removed ({error.strerror}); the next writer of its target will remove it")


def written(path: Path, handle: int) -> Path:
    """Return a path to read a partial file from: its own, or if it was removed, that of its open descriptor.

    Raises:
        StorageError: it was removed and is empty, so it may have been removed before it was written.
    """
    if path.exists():
        return path
    if not os.fstat(handle).st_size:
        raise removed(path)
    return Path(f"/proc/self/fd/{handle}")


def removed(path: Path) -> StorageError:
    """Another process removed a file that was being written."""
    return StorageError(
        "was removed while it was written",
        where=str(path),
        hint="stop whatever else removes files there, then run the same command: what is done is kept",
    )


@functools.cache
def machine() -> str:
    """8 hexadecimal digits that identify this machine since its last boot."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{boot.strip()} {os.uname().nodename}".encode()).hexdigest()[:8]


def scratch() -> Path:
    """Return the folder of scratch files and downloads: TMPDIR."""
    # gettempdir() alone falls back to /tmp if TMPDIR is full, and would fill the disk of a node.
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def own(folder: Path) -> None:
    """Make a folder with a predictable name, where another user may have made one before.

    Raises:
        StorageError: there is something else than a folder of this user.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    result = folder.lstat()
    if not (stat.S_ISDIR(result.st_mode) and _is_ours(result, folder.parent)):
        raise StorageError(
            "not a folder of this user",
            where=str(folder),
            got=f"{stat.filemode(result.st_mode)} of user {result.st_uid}",
            hint="remove it, or set TMPDIR to a folder of your own",
        )


def _abandoned(status: os.stat_result) -> bool:
    # A link has the modification time of its source.
    linked = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    return time.time() - (status.st_ctime if linked else status.st_mtime) > ABANDONED


def _is_ours(status: os.stat_result, folder: Path) -> bool:
    # Some mounts and servers give all files to one user, who then owns the folder as well.
    mine = status.st_uid in {os.geteuid(), folder.stat().st_uid}
    return mine and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def _lock(handle: int, status: os.stat_result) -> bool:
    # NFS needs write access for an exclusive lock; a shared one conflicts with the writer's just as well.
    how = fcntl.LOCK_EX if stat.S_ISDIR(status.st_mode) else fcntl.LOCK_SH
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _LOCKLESS and _abandoned(status)
    return True


def _has_open(process: int, name: str) -> bool:
    """Return whether a process, if it is visible from here, has a file of this name open."""
    folder = f"/proc/{process}/fd"
    with suppress(OSError):
        for descriptor in os.listdir(folder):
            with suppress(OSError):
                if os.path.basename(os.readlink(f"{folder}/{descriptor}")) == name:
                    return True
    return False
