"""Work in progress on a file system: hidden siblings of the target, each locked by the process that writes it.

A lock dies with its holder, however that is killed, so what nobody holds is a leftover. But on many mounted buckets,
and on NFS and Lustre as some mount them, a lock is seen by one machine alone. Names therefore carry the machine that
wrote them: ``.<name>.<machine>-<process>-<random>.partial``. What this machine left goes once nobody holds it; what
another machine left goes once it has not been written for :data:`ABANDONED` seconds.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
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
"""Seconds after which what another machine wrote, and writes no longer, is a leftover."""
TRIED = 16
"""Times that something is written again because others removed it."""
_MARKED = re.compile(r"[.-](?P<machine>[0-9a-f]{8})-(?P<process>[0-9a-f]+)-[^.-]+\.partial$")
_LONGEST = 80  # bytes of a target's name that are part of a partial's: together fewer than any file system takes
_END = ".partial"
_LOCKLESS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


def hold(make: Callable[[], tuple[int, Path]]) -> tuple[int, Path]:
    """Make a file or folder with ``make`` (an open descriptor and its path) and lock it, waiting for another holder."""
    while True:
        handle, path = make()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            # Without locks a leftover is known by its age alone.
            if error.errno not in _LOCKLESS:
                os.close(handle)
                raise
        # Between its making and its locking another process may have removed or renamed it.
        if names(path, handle):
            return handle, path
        os.close(handle)


def names(path: Path, handle: int) -> bool:
    """Whether ``path`` (still) leads to what ``handle`` has open."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(handle).st_ino
    return False


def make(folder: Path, head: str) -> tuple[int, Path]:
    """An empty file in the folder, locked, its descriptor open for reading and writing; its name begins with ``head``.

    Nobody else may read it.
    """

    def once() -> tuple[int, Path]:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f"{head}{mark()}-", suffix=_END)
        return handle, Path(name)

    return hold(once)


def link(source: Path, folder: Path, head: str) -> Path:
    """A hard link to the source, named as :func:`make` names files; nobody holds it."""
    path = folder / f"{head}{mark()}-{secrets.token_hex(4)}{_END}"
    os.link(source, path)
    return path


def mark() -> str:
    """What the names of this process's partials tell of it."""
    return f"{machine()}-{os.getpid():x}"


def head_of(target: Path) -> str:
    """How the names of all partials of a target begin; the same on every machine."""
    name = os.fsencode(target.name)
    if len(name) <= _LONGEST:
        return f".{target.name}."
    # Its first characters are for people; a dot does not follow them, so that no short name has the same.
    digest = hashlib.sha256(name).hexdigest()[:32]
    return f".{name[: _LONGEST - len(digest) - 1].decode(errors='ignore')}~{digest}."


def sweep_folder(folder: Path, head: str) -> None:
    """Remove the leftovers whose names begin with ``head``, and whatever else was abandoned in this folder."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(_END):
                continue
            rest = name.removeprefix(head).removesuffix(_END) if name.startswith(head) else ""
            # Behind a dot begins the name of another target's.
            ours = bool(rest) and "." not in rest
            if ours or (_MARKED.search(name) and _abandoned(entry.stat(follow_symlinks=False))):
                found.append(Path(entry.path))
    for _ in sweep(found):
        pass


def sweep(leftovers: Iterable[Path]) -> Iterator[Path]:
    """Remove those of these files and folders that nobody works on; gives each that was removed.

    Names without a machine are taken for this machine's.
    """
    for entry in leftovers:
        with suppress(OSError):
            told = _MARKED.search(entry.name)
            # A lock that this machine's file system only pretends to give must not cost what is being written.
            if told and told["machine"] == machine() and _has_open(int(told["process"], 16), entry.name):
                continue
            # Anybody may put anything into TMPDIR: the opening of a FIFO would wait for its other end.
            handle = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(handle)
                foreign = told is not None and told["machine"] != machine()
                if not _is_ours(found, entry.parent) or (foreign and not _abandoned(found)):
                    continue
                if not _lock(handle, found):
                    continue
                shutil.rmtree(entry) if stat.S_ISDIR(found.st_mode) else entry.unlink(missing_ok=True)
                yield entry
            finally:
                os.close(handle)


def remove(path: Path) -> None:
    """Remove a partial file, if it is there. What cannot be removed is a leftover: nothing else must fail for it."""
    for last in (False, True):
        try:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            if last:
                event(f"{path} could not be removed ({error.strerror}): it goes when its target is written again")


def written(path: Path, handle: int) -> Path:
    """Where what was written can be read: at ``path``, or if that was removed, through the descriptor that is open.

    Raises:
        StorageError: it was removed, and perhaps before it was written.
    """
    if path.exists():
        return path
    if not os.fstat(handle).st_size:
        raise removed(path)
    return Path(f"/proc/self/fd/{handle}")


def removed(path: Path) -> StorageError:
    """Somebody else removed what was being written."""
    return StorageError(
        "was removed while it was written",
        where=str(path),
        hint="see what else removes files there, then run the same command: what is done is kept",
    )


@functools.cache
def machine() -> str:
    """8 hexadecimal digits that tell this machine, since it was started, from others."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{boot.strip()} {os.uname().nodename}".encode()).hexdigest()[:8]


def scratch() -> Path:
    """Where what is written stands until it is stored, and downloads grow: below TMPDIR."""
    # gettempdir() alone goes on to /tmp where TMPDIR is full: that would fill the disk of a node.
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def own(folder: Path) -> None:
    """Make a folder of a name that others know, in a place where they may have been first.

    Raises:
        StorageError: what is there is not a folder of this user.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not (stat.S_ISDIR(found.st_mode) and _is_ours(found, folder.parent)):
        raise StorageError(
            "is not a folder of this user",
            where=str(folder),
            got=f"{stat.filemode(found.st_mode)} of user {found.st_uid}",
            hint="remove it, or set TMPDIR to a folder of your own",
        )


def _abandoned(found: os.stat_result) -> bool:
    # The time of a link's bytes is that of what it was made from.
    linked = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return time.time() - (found.st_ctime if linked else found.st_mtime) > ABANDONED


def _is_ours(found: os.stat_result, folder: Path) -> bool:
    # Where a mount or a server gives all files to one user, that one has the folder as well.
    mine = found.st_uid in {os.geteuid(), folder.stat().st_uid}
    return mine and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))


def _lock(handle: int, found: os.stat_result) -> bool:
    # NFS gives no exclusive lock on what is open for reading, and a file's writer holds one that excludes the other.
    how = fcntl.LOCK_EX if stat.S_ISDIR(found.st_mode) else fcntl.LOCK_SH
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _LOCKLESS and _abandoned(found)
    return True


def _has_open(process: int, name: str) -> bool:
    """Whether a process that can be seen from here has a file of this name open."""
    folder = f"/proc/{process}/fd"
    with suppress(OSError):
        for descriptor in os.listdir(folder):
            with suppress(OSError):
                if os.path.basename(os.readlink(f"{folder}/{descriptor}")) == name:
                    return True
    return False
