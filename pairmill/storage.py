"""URIs and the objects behind them: the only module that knows ``file://`` (later ``gs://`` and ``s3://``).

A :class:`Store` is a flat space of immutable objects addressed by URI. Every backend passes
``tests/contract/test_storage.py``, which is the definition of the behaviour below.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar
from urllib.parse import quote, unquote, urlsplit

from pairmill import partials
from pairmill.errors import InputError, StorageError, UsageError, from_os_error
from pairmill.log import event

_PARTIAL = re.compile(r"^\..+\.[^.]+\.partial$")


@dataclass(frozen=True)
class Entry:
    """One object: its path relative to the listed prefix (``/`` separated) and its size in bytes."""

    path: str
    size: int


class Store(ABC):
    """The behaviour every backend has. All methods take full URIs of the backend's own scheme."""

    seek_cost: ClassVar[int]
    """Bytes that are read in the time that it takes to begin reading elsewhere: gaps of fewer are read along."""

    @abstractmethod
    def exists(self, uri: str) -> bool:
        """Whether an object stands at exactly this URI (a mere prefix does not count)."""

    @abstractmethod
    def size(self, uri: str) -> int:
        """Size of the object in bytes. Raises InputError if there is none."""

    @abstractmethod
    def list(self, prefix: str) -> list[Entry]:
        """All objects below ``prefix`` taken as a folder, sorted by path by code point.

        Objects being written are never listed. An absent prefix gives an empty list.
        """

    @abstractmethod
    def read(self, uri: str) -> bytes:
        """The whole object. Raises InputError if there is none."""

    @abstractmethod
    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the object ends before."""

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """A seekable binary reader."""

    def file(self, uri: str) -> Path | None:
        """The file that the object is, where it is one of this machine: native code can read that by itself."""
        return None

    @abstractmethod
    def create(self, uri: str, *, durable: bool = True) -> _Creation:
        """Context manager: a local path to fill; on a clean exit the object appears whole, on an exception not at all.

        An object that stands there already is replaced as one step. Two writers of one URI both succeed. One that is
        not ``durable`` may be found shorter than it was, if at all, after the machine itself went down.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Make ``target`` an object with the bytes of ``source`` without moving them through this process."""

    @abstractmethod
    def delete(self, uri: str) -> None:
        """Remove the object; nothing happens if there is none."""

    def write(self, uri: str, data: bytes) -> None:
        """Create the object with these bytes."""
        with self.create(uri) as path, _translated(uri):
            path.write_bytes(data)

    def commit(self, uri: str, data: bytes) -> bytes:
        """TEMPORARY until the package lands."""
        self.write(uri, data)
        return data

    def digest(self, uri: str) -> str:
        """Hexadecimal sha256 of the object's bytes."""
        return self.digests([uri])[0]

    def digests(self, uris: Sequence[str]) -> Sequence[str]:
        """Hexadecimal sha256 of each object's bytes; several are read at once."""
        from concurrent.futures import ThreadPoolExecutor

        stop = threading.Event()

        def digest(uri: str) -> str:
            found = hashlib.sha256()
            # Not hashlib.file_digest: the end of the process waits for its threads, and after Ctrl-C nobody wants to.
            with self.open(uri) as file:
                while not stop.is_set() and (data := file.read(1 << 20)):
                    found.update(data)
            return found.hexdigest()

        pool = ThreadPoolExecutor()
        try:
            return tuple(pool.map(digest, uris))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


class _Creation(ABC):
    @abstractmethod
    def __enter__(self) -> Path: ...

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...


class LocalStore(Store):
    """Files below a mounted file system. Accepts plain paths and ``file://`` URIs.

    A file being written is a hidden sibling ``.<name>.<random>.partial`` whose writer holds a lock on it. Whoever
    writes the same name later removes siblings that nobody holds: what a killed writer left goes when its work is
    done again, and a living writer's file is never touched.
    """

    seek_cost = 64 << 10

    def exists(self, uri: str) -> bool:
        return local_path(uri).is_file()

    def size(self, uri: str) -> int:
        path = local_path(uri)
        with _translated(uri):
            if path.is_dir():
                raise InputError("is a folder, no object", where=uri)
            return path.stat().st_size

    def list(self, prefix: str) -> list[Entry]:
        top = local_path(prefix)
        found: list[Entry] = []
        links = 0
        with _translated(prefix):
            stack = [top] if top.is_dir() else []
            while stack:
                with os.scandir(stack.pop()) as entries:
                    for entry in entries:
                        # A link can lead anywhere, and an object store has none: the reference skips them silently.
                        if entry.is_symlink():
                            links += 1
                        elif entry.is_dir():
                            stack.append(Path(entry.path))
                        elif entry.is_file() and not _PARTIAL.match(entry.name):
                            path = os.path.relpath(entry.path, top).replace(os.sep, "/")
                            found.append(Entry(path, entry.stat().st_size))
        if links:
            event(f"{prefix}: {links} symbolic links below it are not followed")
        return sorted(found, key=lambda entry: entry.path)

    def read(self, uri: str) -> bytes:
        with _translated(uri):
            return local_path(uri).read_bytes()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        with _translated(uri), local_path(uri).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def open(self, uri: str) -> BinaryIO:
        with _translated(uri):
            return local_path(uri).open("rb")

    def file(self, uri: str) -> Path | None:
        return local_path(uri)

    def create(self, uri: str, *, durable: bool = True) -> _Creation:
        return _LocalCreation(local_path(uri), durable)

    def copy(self, source: str, target: str) -> None:
        # A hard link is the cheapest copy, and right because objects are only ever replaced, never changed.
        start, end = local_path(source), local_path(target)
        with _translated(target):
            end.parent.mkdir(parents=True, exist_ok=True)
            _sweep(end)
            link = end.with_name(f".{end.name}.{secrets.token_hex(4)}.partial")
            try:
                os.link(start, link)
            except FileNotFoundError:
                # Between its name and its link the source was replaced by another writer, who wrote the same.
                if not start.is_file():
                    raise
                self.copy(source, target)
                return
            except OSError as error:
                if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
                    raise
                with self.create(target) as path:
                    shutil.copyfile(start, path)
                return
            # Where both names are links to one inode rename() does nothing, so the name may have to go by hand; where
            # another writer swept the link away, the same copy stands there already.
            try:
                with suppress(FileNotFoundError):
                    os.replace(link, end)
            finally:
                link.unlink(missing_ok=True)
            if not end.is_file():
                self.copy(source, target)

    def delete(self, uri: str) -> None:
        with _translated(uri):
            local_path(uri).unlink(missing_ok=True)


class _LocalCreation(_Creation):
    def __init__(self, target: Path, durable: bool) -> None:
        self._target, self._durable = target, durable

    def __enter__(self) -> Path:
        target = self._target
        with _translated(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target)
            self._handle, self._path = partials.hold(self._make)
            return self._path

    def _make(self) -> tuple[int, Path]:
        target = self._target
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
        return handle, Path(name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                with _translated(str(self._target)):
                    self._commit()
        finally:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)

    def _commit(self) -> None:
        # mkstemp makes files that nobody else may read; what is committed follows the umask like any other file.
        mask = os.umask(0)
        os.umask(mask)
        self._path.chmod(0o666 & ~mask)
        if self._durable:
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(self._path, self._target)


def _sweep(target: Path) -> None:
    """Remove what killed writers of ``target`` left."""
    for _ in partials.sweep(target.parent.glob(f".{glob.escape(target.name)}.*.partial")):
        pass


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_os_error(error, where) from error


_LOCAL = LocalStore()


def scheme(uri: str) -> str:
    """``file`` for plain paths, else the part before ``://`` in lower case."""
    head, separator, _ = uri.partition("://")
    return head.lower() if separator else "file"


def store_for(uri: str) -> Store:
    """The backend of a URI. Raises UsageError for a scheme that no backend serves."""
    if scheme(uri) == "file":
        return _LOCAL
    raise UsageError(
        "no storage backend for this scheme", where=uri, got=f"{scheme(uri)}://", expected="a path or file://"
    )


def local_path(uri: str) -> Path:
    """The path behind a plain path or ``file://`` URI."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file" or parts.netloc not in {"", "localhost"}:
        raise UsageError("not a local URI", where=uri, expected="a path or file:///…")
    return Path(unquote(parts.path))


def normalise(uri: str, option: str) -> str:
    """The URI as results name it: plain paths made absolute, no slash at the end.

    Raises:
        UsageError: it is empty or of a scheme without a backend; ``option`` is named in the message.
    """
    if not uri:
        raise UsageError("is empty", where=option, expected="a path or URI")
    store_for(uri)
    if "://" not in uri:
        return os.path.abspath(uri)
    return "file://" + quote(os.path.abspath(local_path(uri)))


def join(uri: str, *parts: str) -> str:
    """``uri`` with relative parts below it.

    Raises:
        StorageError: a part is absolute or climbs out (names from datasets and archives are not trusted).
    """
    for part in parts:
        if part.startswith("/") or any(piece in {"", ".", ".."} for piece in part.split("/")) or "\0" in part:
            raise StorageError("unsafe path", where=uri, got=repr(part), expected="a relative path without '..'")
    # In a plain path a '%' is a character; in a file:// URI it starts an escape.
    safe = [quote(part) if "://" in uri else part for part in parts]
    return "/".join([uri.rstrip("/"), *safe])


def name_of(uri: str) -> str:
    """The last part of a URI, unescaped."""
    last = uri.rstrip("/").rsplit("/", 1)[-1]
    return unquote(last) if "://" in uri else last


def parent_of(uri: str) -> str:
    """The URI without its last part."""
    return uri.rstrip("/").rsplit("/", 1)[0]


def is_top(uri: str) -> bool:
    """Whether nothing is above: the top of the file system, or a bucket."""
    if scheme(uri) == "file":
        path = local_path(uri)
        return path.parent == path
    return not uri.partition("://")[2].partition("/")[2]


def require(uri: str, what: str) -> None:
    """Raise InputError unless an object or a non-empty prefix stands at ``uri``."""
    store = store_for(uri)
    if not store.exists(uri) and not store.list(uri):
        raise InputError("is missing or empty", where=uri, expected=what, hint="check the path")
