"""Files and folders by descriptor: open without following a link, check the owner, write, remove.

Everybody may be able to write to the node's folder (``/dev/shm``). Between two lookups of a path there, another user
can replace a name by a link or by a folder of their own. So a name is opened once, without following a link. Owner and
mode are those of what was opened, and everything after that is relative to its descriptor.
"""

import fcntl
import hashlib
import json
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pairmill.digest import digest_file, digest_files, is_blake3
from pairmill.engine.manifest import File
from pairmill.errors import StorageError, from_os_error

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder on the way to another one: it need not be readable."""
# O_NONBLOCK: opening a FIFO that another user made there must not wait for its writer.
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags that open a file, beside those for reading and writing."""
_OTHERS_WRITE = 0o022
_MAX_LINKS = 40


class OpenFolder(NamedTuple):
    """An open folder.

    Args:
        path: where it is, for messages.
        handle: its descriptor; files are written relative to this.
        durable: whether what is written must survive a power cut: on a disk, not in memory.
    """

    path: Path
    handle: int
    durable: bool = False

    def create(self, name: str, mode: int = 0o644) -> int:
        """Open a new file for writing; the name must not exist."""
        return os.open(name, FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=self.handle)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, or replace it, in one step."""
        hidden = _hidden(name)
        with os.fdopen(self.create(hidden), "wb") as file:
            try:
                file.write(data)
                file.flush()
                if self.durable:
                    os.fsync(file.fileno())
                os.rename(hidden, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
            except BaseException:
                os.unlink(hidden, dir_fd=self.handle)
                raise

    def flush(self) -> None:
        """Make the names of all files and folders below durable, if the folder is."""
        if self.durable:
            for _, _, _, handle in os.fwalk(".", topdown=False, dir_fd=self.handle):
                os.fsync(handle)


def trusted(uid: int) -> bool:
    """Return whether this user could change our files anyway: ourselves and root."""
    return uid in {0, os.geteuid()}


def user(uid: int) -> str:
    """Name a user in messages."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Name this place in errors of the operating system; one by descriptor knows only the last part of its path.

    Raises:
        PairmillError: as :func:`pairmill.errors.from_os_error` translates.
    """
    try:
        yield
    except OSError as error:
        raise from_os_error(OSError(error.errno, error.strerror or str(error)), where) from error


def lstat(parent: int, name: str) -> os.stat_result | None:
    """Stat a name in an open folder without following a link; None if it is absent."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_folder(parent: int, name: str) -> int:
    """Open a folder in an open folder; raises OSError for a link."""
    return os.open(name, _FOLDER, dir_fd=parent)


@contextmanager
def closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def is_at(parent: int, name: str, handle: int) -> bool:
    """Return whether a name in an open folder is (still) the file or folder that ``handle`` has open."""
    result = lstat(parent, name)
    return result is not None and os.path.samestat(result, os.fstat(handle))


def open_path(path: Path, *, make: bool = False) -> int:
    """Open a folder part by part; follow a link only where nobody else can have put it.

    Linux does that itself where ``fs.protected_symlinks`` is 1; this also covers folders without the sticky bit.

    Args:
        path: absolute.
        make: make missing folders.

    Raises:
        StorageError: a part of the path is another user's link.
        OSError: a part is absent (without ``make``), is not a folder, or may not be entered.
    """
    left = [part for part in reversed(path.parts) if part != "/"]
    handle, place, links = os.open("/", STEP), Path("/"), 0
    try:
        while left:
            name = left.pop()
            result = lstat(handle, name)
            if result is None and make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            elif result is not None and stat.S_ISLNK(result.st_mode):
                links += 1
                target = Path(os.readlink(name, dir_fd=handle))
                _refuse_planted(handle, result, place / name, target)
                if links > _MAX_LINKS:
                    raise StorageError("too many links", where=str(path), expected="a folder")
                left += [part for part in reversed(target.parts) if part != "/"]
                if target.is_absolute():
                    handle, place = _instead(handle, os.open("/", STEP)), Path("/")
                continue
            handle, place = _instead(handle, os.open(name, STEP, dir_fd=handle)), place / name
        return open_folder(handle, ".")
    finally:
        os.close(handle)


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _refuse_planted(parent: int, link: os.stat_result, path: Path, target: Path) -> None:
    folder = os.fstat(parent)
    if folder.st_mode & stat.S_IWOTH and not trusted(link.st_uid) and link.st_uid != folder.st_uid:
        raise StorageError(
            f"is a link that {user(link.st_uid)} made in a folder that everybody can write to",
            where=str(path),
            got=f"a link to {target}",
            expected="a folder",
            hint="remove the link, or choose another path",
        )


def _hidden(name: str) -> str:
    """Return a name that nobody can guess."""
    return f".{name}.{os.urandom(8).hex()}.partial"


def move_aside(parent: int, name: str) -> str:
    """Give a file or folder a hidden name, and return that."""
    hidden = _hidden(name)
    os.rename(name, hidden, src_dir_fd=parent, dst_dir_fd=parent)
    return hidden


def make_partial(parent: OpenFolder, name: str) -> OpenFolder:
    """Make an empty folder ``.<name>.<random>.partial`` that nobody else can enter, and lock it.

    Raises:
        StorageError: another process replaced the folder.
    """
    while True:
        hidden = _hidden(name)
        os.mkdir(hidden, 0o700, dir_fd=parent.handle)
        handle = open_folder(parent.handle, hidden)
        try:
            result = os.fstat(handle)
            if result.st_uid != os.geteuid() or result.st_mode & 0o077 or os.listdir(handle):
                raise StorageError(
                    "another process replaced the folder that was just made",
                    where=str(parent.path / hidden),
                    got=f"a folder of {user(result.st_uid)}, mode {result.st_mode & 0o7777:o}",
                    hint="choose a folder that only you can write to",
                )
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Another run of ours may have removed it before it was locked.
            if is_at(parent.handle, hidden, handle):
                return OpenFolder(parent.path / hidden, handle, parent.durable)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def remove(parent: int, name: str, handle: int) -> None:
    """Remove an open folder. Its content goes by descriptor, so a link that takes its name leads nowhere."""
    for entry in os.listdir(handle):
        result = lstat(handle, entry)
        if result is not None and stat.S_ISDIR(result.st_mode):
            shutil.rmtree(entry, ignore_errors=True, dir_fd=handle)
        else:
            with suppress(OSError):
                os.unlink(entry, dir_fd=handle)
    if is_at(parent, name, handle):
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)


def read(parent: int, name: str) -> bytes | None:
    """Read a small file in an open folder; None if it is absent or is not a file."""
    try:
        handle = os.open(name, FILE | os.O_RDONLY, dir_fd=parent)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None


class State(NamedTuple):
    """The files below a folder at one moment.

    Attributes:
        signature: changes with their names, inodes, sizes and times, and with each start of the machine; empty if the
            machine has no identity. Only root can set the time of a change (ctime) back.
        shared: why others could change them; empty if they cannot.
        sizes: by path.
    """

    signature: str
    shared: str
    sizes: dict[str, int]


def state(folder: int, skip: str) -> State:
    """Return the state of an open folder without the file ``skip`` (a path below it)."""
    result: list[tuple[object, ...]] = []
    sizes: dict[str, int] = {}
    shared = _shared(os.fstat(folder), ".")
    for place, folders, files, handle in os.fwalk(".", dir_fd=folder):
        for name in sorted([*folders, *files]):
            path = os.path.normpath(os.path.join(place, name))
            item = lstat(handle, name)
            if item is None:
                continue
            shared = shared or _shared(item, path)
            if not stat.S_ISDIR(item.st_mode) and path != skip:
                sizes[path] = item.st_size
                result.append((path, item.st_ino, item.st_size, item.st_mtime_ns, item.st_ctime_ns))
    digest = hashlib.sha256(json.dumps(sorted(result)).encode(errors="surrogateescape")).hexdigest()
    boot = boot_id()
    return State(f"{boot} {digest}" if boot else "", shared, sizes)


def _shared(status: os.stat_result, path: str) -> str:
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        return f"{path} is neither a file nor a folder"
    if not trusted(status.st_uid):
        return f"{path} belongs to {user(status.st_uid)}"
    return (
        f"{path} may be written by others (mode {status.st_mode & 0o7777:o})" if status.st_mode & _OTHERS_WRITE else ""
    )


def of_other_digest(folder: int, files: Sequence[File], workers: int) -> list[str]:
    """Return the paths of those files below an open folder that are missing or have another digest."""
    with ExitStack() as stack:
        places: dict[str, str] = {}
        for file in files:
            with suppress(FileNotFoundError):
                handle = stack.enter_context(closing(os.open(file.path, FILE | os.O_RDONLY, dir_fd=folder)))
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    places[file.path] = f"/proc/self/fd/{handle}"
        ours = [file.path for file in files if file.path in places and is_blake3(file.digest)]
        digests = dict(zip(ours, digest_files([places[path] for path in ours], workers), strict=True))
        older = [file for file in files if file.path in places and file.path not in digests]
        with ThreadPoolExecutor(workers) as pool:
            digests |= pool.map(lambda file: (file.path, digest_file(places[file.path], like=file.digest)), older)
    return [file.path for file in files if digests.get(file.path) != file.digest]


def boot_id() -> str:
    """Return what identifies this start of the machine; empty if nothing does."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
