"""What a storage backend is."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import BinaryIO, ClassVar, TypeVar

from pairmill.errors import Changed, from_os_error
from pairmill.retry import raced

T = TypeVar("T")
R = TypeVar("R")

# Times that an object is read for its digest if it changes each time.
_TRIED = 5


@dataclass(frozen=True)
class Entry:
    """One object: its path relative to the listed prefix (``/`` separated), its size in bytes, and its stamp."""

    path: str
    size: int
    stamp: str = field(default="", compare=False)


@dataclass(frozen=True)
class Digest:
    """Hexadecimal sha256 of an object's bytes, how many they are, and the stamp that the object had meanwhile."""

    sha256: str
    size: int
    stamp: str


class Store(ABC):
    """The behaviour every backend has. All methods take full URIs of the backend's own scheme; threads may share one.

    A request that fails in a way that may pass is made again, for a bounded time. Whatever else refuses is a
    StorageError; that an object is not there is an InputError.
    """

    seek_cost: ClassVar[int]
    """Bytes that are read in the time that it takes to begin reading elsewhere: gaps of fewer are read along."""
    at_once: ClassVar[int | None] = None
    """Objects of which many are read at the same time; None leaves that to the number of cores."""

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
    def folders(self, prefix: str) -> Sequence[str]:
        """Names right below ``prefix`` that objects are below, sorted by code point, without a listing of those."""

    @abstractmethod
    def read(self, uri: str) -> bytes:
        """The whole object. Raises InputError if there is none."""

    @abstractmethod
    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the object ends before."""

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """A seekable binary reader. It gives the bytes of one object even if that is replaced meanwhile, or fails."""

    @abstractmethod
    def stamp(self, uri: str) -> str:
        """What changes whenever the object's bytes do, and is had without reading them. Raises InputError if absent.

        Of a file device, inode, size and time of the last change; in a bucket size and ETag or generation.
        """

    @abstractmethod
    def pinned(self, uri: str, stamp: str) -> AbstractContextManager[BinaryIO]:
        """As ``open``, of the object that had this stamp, until the block ends.

        Raises:
            Changed: it has another stamp when it is opened, or on the way, or when the block ends.
        """

    def file(self, uri: str) -> Path | None:
        """The file that the object is, where it is one of this machine: native code can read that by itself."""
        return None

    @abstractmethod
    def create(self, uri: str, *, durable: bool = True, final: bool = False) -> Creation:
        """Context manager: a local path to fill; on a clean exit the object appears whole, on an exception not at all.

        An object that stands there already is replaced as one step. Two writers of one URI both succeed. One that is
        not ``durable`` may be found shorter than it was, if at all, after the machine itself went down. One that is
        ``final`` is read-only where there are modes: it is replaced and deleted like any other, and never changed.
        """

    @abstractmethod
    def commit(self, uri: str, data: bytes) -> bytes:
        """Create the object with these bytes unless one stands there; the bytes that stand there now.

        Of several writers, in whatever process or machine, one wins, and all are told what it wrote.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Make ``target`` an object with the bytes of ``source`` without moving them through this process.

        The source is an object of this store, or a file of this machine, whose bytes have to move.
        """

    @abstractmethod
    def delete(self, uri: str) -> None:
        """Remove the object; nothing happens if there is none."""

    def write(self, uri: str, data: bytes) -> None:
        """Create the object with these bytes, in place of one that stands there."""
        with self.create(uri) as path, translated(uri):
            path.write_bytes(data)

    def digest(self, uri: str) -> str:
        """Hexadecimal sha256 of the object's bytes."""
        return self.digests([uri])[0]

    def digests(self, uris: Sequence[str]) -> Sequence[str]:
        """Hexadecimal sha256 of each object's bytes; several are read at once."""
        return [one.sha256 for one in self.digested(uris)]

    def digested(self, uris: Sequence[str]) -> Sequence[Digest]:
        """Digests of objects, each with the stamp that belongs to it; several are read at once.

        Raises:
            Changed: an object is written to all the time.
        """
        return each(self.digest_of, uris, self.at_once)

    def digest_of(self, uri: str, stop: Event) -> Digest:
        """As ``digested``, of one object; the event stops it."""

        def digest() -> Digest:
            stamp = self.stamp(uri)
            found, size = hashlib.sha256(), 0
            # Not hashlib.file_digest: the end of the process waits for its threads, and after Ctrl-C nobody wants to.
            with self.pinned(uri, stamp) as file:
                while not stop.is_set() and (data := file.read(1 << 20)):
                    found.update(data)
                    size += len(data)
            return Digest(found.hexdigest(), size, stamp)

        try:
            return raced(digest, Changed, _TRIED)
        except Changed as error:
            hint = "run the same command when its writer has ended"
            raise Changed("is written to all the time", where=uri, hint=hint) from error


class Creation(ABC):
    """The object while it is written."""

    @abstractmethod
    def __enter__(self) -> Path: ...

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...


def each(work: Callable[[T, Event], R], items: Iterable[T], threads: int | None) -> tuple[R, ...]:
    """What ``work`` makes of each item, in their order, several at once.

    The first failure, or Ctrl-C, sets the event for the others and waits for them.
    """
    stop = Event()
    pool = ThreadPoolExecutor(threads)
    try:
        return tuple(pool.map(lambda item: work(item, stop), items))
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Errors of the operating system as ours."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, where) from error
