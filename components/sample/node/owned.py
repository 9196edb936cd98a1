"""Folders by descriptor: whose they are, what is in them, and removing them without following a link.

The folder of a node may be one that everybody writes to (``/dev/shm``). Whatever name is looked up there by its path,
somebody else can put a link or a folder of their own under it between two looks. So a name is opened once, without
following a link; owner and mode are those of what was opened; and all that follows is relative to its descriptor.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pairmill.engine.manifest import File
from pairmill.errors import StorageError, from_os_error

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder on the way to another one: it need not be readable."""
# O_NONBLOCK: opening a FIFO that somebody put there does not wait for its writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS_WRITE = 0o022
_MOST_LINKS = 40


@dataclass(frozen=True)
class Folder:
    """An open folder.

    Args:
        path: where it is, for people and for what only looks.
        handle: its descriptor; what is written to it is written relative to this.
        durable: whether what is written has to outlast a power cut: on a disk, not in memory.
    """

    path: Path
    handle: int
    durable: bool = False

    def create(self, name: str, mode: int = 0o644) -> int:
        """Open a new file that is to be written; nothing may have its name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=self.handle)

    def settle(self) -> None:
        """Where it has to be durable, the names of all files and folders below are."""
        if self.durable:
            for _, _, _, handle in os.fwalk(".", topdown=False, dir_fd=self.handle):
                os.fsync(handle)


def trusted(uid: int) -> bool:
    """Whether this user could change what we do anyway: ourselves and root."""
    return uid in {0, os.geteuid()}


def whose(uid: int) -> str:
    """A user, for people."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


@contextmanager
def errors_name(where: str) -> Iterator[None]:
    """Errors of the operating system name this place: one by descriptor knows a part of its path at most.

    Raises:
        PairmillError: as :func:`pairmill.errors.from_os_error` translates.
    """
    try:
        yield
    except OSError as error:
        raise from_os_error(OSError(error.errno, error.strerror or str(error)), where) from error


def look(parent: int, name: str) -> os.stat_result | None:
    """What has this name in an open folder, a link itself; None if nothing has."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_folder(parent: int, name: str) -> int:
    """Open a folder in an open folder; a link is an OSError."""
    return os.open(name, _FOLDER, dir_fd=parent)


def leads(parent: int, name: str, handle: int) -> bool:
    """Whether a name in an open folder (still) is that of what ``handle`` has open."""
    found = look(parent, name)
    return found is not None and os.path.samestat(found, os.fstat(handle))


def walk(path: Path, *, make: bool = False) -> int:
    """Open a folder component by component; a link is followed only where nobody else can have put it.

    That is what Linux does by itself where ``fs.protected_symlinks`` is 1, and in folders without the sticky bit too.

    Args:
        path: absolute.
        make: make the folders that are absent.

    Raises:
        StorageError: a link of somebody else is in the way.
        OSError: a component is absent (without ``make``), or is not a folder, or is closed to us.
    """
    left = [part for part in reversed(path.parts) if part != "/"]
    handle, place, links = os.open("/", STEP), Path("/"), 0
    try:
        while left:
            name = left.pop()
            found = look(handle, name)
            if found is None and make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            elif found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                aim = Path(os.readlink(name, dir_fd=handle))
                _refuse_planted(handle, found, place / name, aim)
                if links > _MOST_LINKS:
                    raise StorageError("too many links", where=str(path), expected="a folder")
                left += [part for part in reversed(aim.parts) if part != "/"]
                if aim.is_absolute():
                    handle, place = _instead(handle, os.open("/", STEP)), Path("/")
                continue
            handle, place = _instead(handle, os.open(name, STEP, dir_fd=handle)), place / name
        return open_folder(handle, ".")
    finally:
        os.close(handle)


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _refuse_planted(parent: int, link: os.stat_result, path: Path, aim: Path) -> None:
    folder = os.fstat(parent)
    if folder.st_mode & stat.S_IWOTH and not trusted(link.st_uid) and link.st_uid != folder.st_uid:
        raise StorageError(
            f"is a link that {whose(link.st_uid)} put into a folder that everybody writes to",
            where=str(path),
            got=f"a link to {aim}",
            expected="a folder",
            hint="remove the link, or choose another place",
        )


def make(parent: Folder, name: str) -> Folder:
    """Make an empty folder ``.<name>.<random>.partial`` that nobody else can enter, and lock it.

    Raises:
        StorageError: what has its name then is not what was made.
    """
    while True:
        hidden = f".{name}.{secrets.token_hex(8)}.partial"
        os.mkdir(hidden, 0o700, dir_fd=parent.handle)
        handle = open_folder(parent.handle, hidden)
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077 or os.listdir(handle):
                raise StorageError(
                    "somebody put another folder into the place of the one that was made",
                    where=str(parent.path / hidden),
                    got=f"a folder of {whose(found.st_uid)}, mode {found.st_mode & 0o7777:o}",
                    hint="choose a place that only you write to",
                )
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Before it was locked, another run of ours may have swept it away.
            if leads(parent.handle, hidden, handle):
                return Folder(parent.path / hidden, handle, parent.durable)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def remove(parent: int, name: str, handle: int) -> None:
    """Remove a folder that is open: what is in it by its descriptor, so no link that takes its name leads elsewhere."""
    for entry in os.listdir(handle):
        found = look(handle, entry)
        if found is not None and stat.S_ISDIR(found.st_mode):
            shutil.rmtree(entry, ignore_errors=True, dir_fd=handle)
        else:
            with suppress(OSError):
                os.unlink(entry, dir_fd=handle)
    if leads(parent, name, handle):
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)


def read(parent: int, name: str) -> bytes | None:
    """The bytes of a small file in an open folder; None if it is absent, or is not a file."""
    try:
        handle = os.open(name, _FILE, dir_fd=parent)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None


def write(parent: Folder, name: str, data: bytes) -> None:
    """Write a new file, or put it into the place of one that is there."""
    hidden = f".{name}.{secrets.token_hex(8)}.partial"
    with os.fdopen(parent.create(hidden), "wb") as file:
        try:
            file.write(data)
            file.flush()
            if parent.durable:
                os.fsync(file.fileno())
            os.rename(hidden, name, src_dir_fd=parent.handle, dst_dir_fd=parent.handle)
        except BaseException:
            os.unlink(hidden, dir_fd=parent.handle)
            raise


def state(folder: int, but: Sequence[str] = ()) -> tuple[str, str]:
    """What identifies the files below an open folder at this moment, and why they are not ours alone, if so.

    The first is a digest of names, inodes, sizes and times; nobody but root can set the time of a change (ctime) back.

    Args:
        folder: its descriptor.
        but: names that are not part of it.
    """
    found: list[tuple[object, ...]] = []
    wrong = _shared(os.fstat(folder), ".")
    for place, folders, files, handle in os.fwalk(".", dir_fd=folder):
        for name in sorted([*folders, *files]):
            path = os.path.normpath(os.path.join(place, name))
            one = look(handle, name)
            if one is None or path in but:
                continue
            wrong = wrong or _shared(one, path)
            if not stat.S_ISDIR(one.st_mode):
                found.append((path, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns))
    return hashlib.sha256(json.dumps(sorted(found)).encode(errors="surrogateescape")).hexdigest(), wrong


def _shared(one: os.stat_result, path: str) -> str:
    if not stat.S_ISDIR(one.st_mode) and not stat.S_ISREG(one.st_mode):
        return f"{path} is neither file nor folder"
    if not trusted(one.st_uid):
        return f"{path} belongs to {whose(one.st_uid)}"
    return f"{path} may be written by others (mode {one.st_mode & 0o7777:o})" if one.st_mode & _OTHERS_WRITE else ""


def unlike(folder: int, files: Sequence[File], workers: int) -> list[str]:
    """Those of the files below an open folder that have another digest, or are gone."""

    def digest(file: File) -> str:
        with suppress(FileNotFoundError), os.fdopen(os.open(file.path, _FILE, dir_fd=folder), "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
        return ""

    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(digest, files)
        return [file.path for file, one in zip(files, found, strict=True) if one != file.sha256]


def boot() -> str:
    """Identity of this start of the machine; empty where it has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
