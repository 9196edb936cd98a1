"""The interface of a storage backend."""

from __future__ import annotations

import io
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import BinaryIO, ClassVar, NamedTuple, TypeVar, cast

from pairmill.digest import Digest
from pairmill.errors import Changed, StorageError, from_os_error
from pairmill.retry import raced

T = TypeVar("T")
R = TypeVar("R")

# Requests for times of objects that are under way at once.
_ASKED = 32
# Bytes that are read at a time of what is joined.
_BLOCK = 2 << 20
# Bytes of a small span, and how many of those are read at a time.
_SMALL, _SPANS = 1 << 20, 8
# How often an object that keeps changing is read for its digest.
_TRIED = 5


@dataclass(frozen=True)
class Entry:
    """One object: its path relative to the listed prefix, its size in bytes, its stamp, and when it was written.

    The time is in seconds since 1970, by the clock of the store; 0 = the store does not say.
    """

    path: str
    size: int
    stamp: str = field(default="", compare=False)
    written: float = field(default=0.0, compare=False)


class Digested(NamedTuple):
    """Digest of an object's bytes, their number, and the object's stamp while they were read."""

    digest: str
    size: int
    stamp: str = ""


class Span(NamedTuple):
    """Bytes ``[start, stop)`` of an object."""

    uri: str
    start: int
    stop: int


class Begun(NamedTuple):
    """The beginning of an object that is joined: a file that its writer has left, for :meth:`Store.join` to go on with.

    Args:
        path: of the file, whose first ``place`` bytes are not written yet.
        place: where the first span is.
        spans: the spans that it has, in order, and the stamp of each one's object while it was copied.
        digested: of its pieces of 1 MiB those that were digested on the way, as
            :func:`pairmill.digest.digest_joined` knows them.
    """

    path: Path
    place: int
    spans: tuple[tuple[Span, str], ...]
    digested: tuple[tuple[int, bytes], ...]


class Beginning(ABC):
    """A file that gets the first spans of an object, before all of its pieces are known."""

    @abstractmethod
    def append(self, span: Span, stop: Event) -> None:
        """Copy the next span, or no more of it once the event is set. After that or an error the file is of no use."""

    @abstractmethod
    def leave(self) -> Begun:
        """Return what is there, for :meth:`Store.join` to go on with; until it does, the file counts as a leftover."""

    @abstractmethod
    def close(self) -> None:
        """Remove the file, unless another object was made of it."""


class Store(ABC):
    """The behaviour of every backend. All methods take full URIs of the backend's own scheme; threads may share one.

    Transient failures are retried for a bounded time. An absent object is an InputError, any other failure a
    StorageError.
    """

    seek_cost: ClassVar[int]
    """Bytes that can be read in the time that a seek takes. Readers read across smaller gaps."""
    at_once: ClassVar[int | None] = None
    """Number of objects read at the same time where there are many; None: it follows the number of cores."""

    @abstractmethod
    def exists(self, uri: str) -> bool:
        """Return whether there is an object at exactly this URI (a prefix of objects is not one)."""

    @abstractmethod
    def size(self, uri: str) -> int:
        """Size of the object in bytes. Raises InputError if it is absent."""

    @abstractmethod
    def list(self, prefix: str) -> list[Entry]:
        """Return all objects below ``prefix``, which is taken as a folder, sorted by path by code point.

        Objects that are being written are not listed. An absent prefix gives an empty list.
        """

    def scan(self, prefix: str, start: str) -> Iterator[Entry]:
        """Yield the objects of the folders below ``prefix`` whose names begin with ``start``, those of each together.

        Of millions of objects it holds a page at a time.
        """
        yield from (entry for entry in self.list(prefix) if entry.path.startswith(start))

    @abstractmethod
    def folders(self, prefix: str) -> Sequence[str]:
        """Return names of the folders directly below ``prefix``, sorted by code point. The objects in them are not
        listed."""

    def few_folders(self, prefix: str) -> Sequence[str] | None:
        """Return what :meth:`folders` does with one request; None where there are more than it lists."""
        return self.folders(prefix)

    def list_with_links(self, prefix: str, *, follow: bool = False) -> tuple[Sequence[Entry], Sequence[str]]:
        """Return what ``list`` does, and the paths of the symbolic links that it leaves out, sorted.

        A link to a folder ends with ``/``. With ``follow`` the objects that links lead to are listed, and none is left
        out.
        """
        return self.list(prefix), []

    @abstractmethod
    def read(self, uri: str) -> bytes:
        """Return all bytes of the object. Raises InputError if it is absent."""

    @abstractmethod
    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Return bytes ``[start, start + length)``; fewer if the object ends before."""

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """Return a seekable binary reader. If the object is replaced, it reads the old bytes on or fails; it never
        mixes."""

    @abstractmethod
    def stamp(self, uri: str) -> str:
        """Return a text that changes whenever the object's bytes do, known without reading them. Raises InputError if
        absent.

        For a file: device, inode, size and time of the last change. In a bucket: size and ETag or generation.
        """

    def stamps(self, uris: Sequence[str]) -> Sequence[str]:
        """Return the stamps of objects."""
        return [self.stamp(uri) for uri in uris]

    @abstractmethod
    def modified(self, uri: str) -> datetime | None:
        """Return when an object was written; None if there is none, or the store does not say."""

    def dated(self, prefix: str, name: str) -> Mapping[str, datetime | None]:
        """Return the folders directly below ``prefix``, sorted, and when the object ``name`` in each was written.

        None in place of a time: there is no such object in it.
        """
        names = self.folders(prefix)
        uris = [f"{prefix}/{folder}/{name}" for folder in names]
        return dict(zip(names, each(lambda uri, _: self.modified(uri), uris, _ASKED), strict=True))

    @abstractmethod
    def pinned(self, uri: str, stamp: str) -> AbstractContextManager[BinaryIO]:
        """Open as ``open`` does, for the object that had this stamp.

        Raises:
            Changed: the stamp is another one when the object is opened, while it is read, or when the block ends.
        """

    def file(self, uri: str) -> Path | None:
        """Return the object's file, if it is one of this machine: native code can read that by itself."""
        return None

    @abstractmethod
    def create(self, uri: str, *, durable: bool = True, final: bool = False) -> AbstractContextManager[Path]:
        """Yield a local path to fill. The object appears at a clean exit, complete, or not at all.

        An object that exists is replaced atomically. Two writers of one URI both succeed. After a crash of the machine
        an object that is not ``durable`` may be shorter, or gone. A ``final`` object is read-only where files have
        modes; it can still be replaced and deleted.
        """

    @abstractmethod
    def commit(self, uri: str, data: bytes) -> bytes:
        """Create the object unless it exists, and return the bytes that it then has.

        Of several writers, in any process on any machine, exactly one wins, and all get what it wrote.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Make ``target`` an object with the bytes of ``source``.

        The source is an object of this store, which is copied by the store itself, or a local file.
        """

    def begin_join(self, folder: str, place: int) -> Beginning | None:
        """Begin to join an object whose first ``place`` bytes come last; None where the store has no such files.

        Until it is one it is an attempt below this folder: :meth:`forget_attempts` removes what killed processes left.
        """
        return None

    def join(
        self, uri: str, pieces: Sequence[bytes | Span], *, final: bool = False, begun: Begun | None = None
    ) -> Digested:
        """Create an object, as :meth:`create` does, of bytes and of spans of this store's objects, in order.

        Args:
            uri: of the object.
            pieces: the bytes and the spans.
            final: as of :meth:`create`.
            begun: a file to go on with, if it has the first spans and none of their objects has changed.

        Returns:
            Its digest and size. A store that can copies spans by itself; they are read once, for the digest.

        Raises:
            Changed: an object was replaced meanwhile.
            StorageError: an object ends before its span does.
        """
        with self.create(uri, final=final) as path, translated(uri), path.open("wb") as file:
            return self._digest_pieces(pieces, file.write, Event())

    @abstractmethod
    def attempt(self, folder: str) -> AbstractContextManager[str]:
        """Yield the URI of a folder below this one, in which no other process writes.

        What is left there when the block ends is removed; what a killed process left, by :meth:`forget_attempts`.
        """

    @abstractmethod
    def forget_attempts(self, folder: str) -> None:
        """Remove the attempts below this folder that no process works on, where the store tells them from others."""

    def leftovers(self, prefix: str) -> Sequence[Entry]:
        """Return what writers below a folder have begun and not made an object of, whether they are alive or not.

        The stamp says which of several with one path it is. None where the store keeps what it has of an upload to
        itself, as Google Cloud Storage does for a week.
        """
        return []

    def drop_leftovers(self, prefix: str, leftovers: Iterable[Entry]) -> None:
        """Remove what :meth:`leftovers` returned; on a file system only what no process is writing."""

    def drop_empty(self, folders: Iterable[str]) -> None:
        """Remove these folders if no object is in them, where the store has empty folders."""

    @abstractmethod
    def settle(self, attempt: str, name: str) -> str:
        """Give the objects of an attempt their lasting place, and return its URI.

        On a file system it is the folder ``name`` beside the attempt; objects that are there already are replaced, so
        equal names must mean equal bytes. A store that cannot rename leaves them where they are.
        """

    @abstractmethod
    def delete(self, uri: str) -> None:
        """Remove the object if it exists."""

    def write(self, uri: str, data: bytes) -> None:
        """Create the object with these bytes, or replace it."""
        with self.create(uri) as path, translated(uri):
            path.write_bytes(data)

    def digest(self, uri: str, like: str = "") -> str:
        """Digest the object as ``digested`` does."""
        return self.digests([uri], [like])[0]

    def digests(self, uris: Sequence[str], like: Sequence[str] = ()) -> Sequence[str]:
        """Digest each object as ``digested`` does."""
        return [item.digest for item in self.digested(uris, like)]

    def digested(self, uris: Sequence[str], like: Sequence[str] = ()) -> Sequence[Digested]:
        """Digests of objects with their stamps; several objects are read at once.

        Args:
            uris: of the objects.
            like: for each object a digest, whose algorithm is used (:class:`pairmill.digest.Digest`); none = BLAKE3.

        Raises:
            Changed: an object keeps changing.
        """
        return each(lambda item, stop: self.digest_of(*item, stop), zip_longest(uris, like, fillvalue=""), self.at_once)

    def _digest_pieces(
        self,
        pieces: Sequence[bytes | Span],
        write: Callable[[memoryview], object],
        stop: Event,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> Digested:
        """Read pieces, hand them on, and digest them. A thread reads and digests one block while another is written.

        ``known`` are the stamps of objects, by URI.
        """
        uris = [*dict.fromkeys(piece.uri for piece in pieces if isinstance(piece, Span) and piece.uri not in known)]
        stamps = {**known, **dict(zip(uris, self.stamps(uris), strict=True))}
        digest, size = Digest(), 0

        def blocks_of(piece: Span, buffers: Iterator[memoryview]) -> Iterator[memoryview]:
            place = piece.start
            with self.pinned(piece.uri, stamps[piece.uri]) as file:
                file.seek(place)
                while place < piece.stop and not stop.is_set():
                    block = next(buffers)[: piece.stop - place]
                    block = block[: cast(io.BufferedIOBase, file).readinto(block)]
                    if not block:
                        got, expected = f"{place} bytes", f"{piece.stop} bytes"
                        raise StorageError("ends too early", where=piece.uri, got=got, expected=expected)
                    place += len(block)
                    yield block

        # New memory for each block would take as long as reading does.
        buffers = itertools.cycle([memoryview(bytearray(_BLOCK)) for _ in range(2)])

        def fetch(piece: bytes | Span) -> Iterable[memoryview]:
            if isinstance(piece, bytes):
                return [memoryview(piece)]
            size = piece.stop - piece.start
            if size > _SMALL:
                return blocks_of(piece, buffers)
            # A store answers several requests as fast as one.
            return [*blocks_of(piece, (memoryview(bytearray(size)) for _ in itertools.count()))]

        def read() -> Generator[memoryview, None, None]:
            with ThreadPoolExecutor(_SPANS) as pool:
                for block in itertools.chain.from_iterable(map_ahead(pool, fetch, pieces, _SPANS)):
                    digest.update(block)
                    yield block

        with closing(read()) as blocks, ThreadPoolExecutor(1) as ahead:
            pending = ahead.submit(next, blocks, None)
            while (block := pending.result()) is not None:
                pending = ahead.submit(next, blocks, None)
                write(block)
                size += len(block)
        return Digested(digest.text(), size)

    def digest_of(self, uri: str, like: str, stop: Event) -> Digested:
        """Digest as ``digested`` does, for one object; the event stops it."""

        def digest() -> Digested:
            stamp = self.stamp(uri)
            result, size = Digest(like=like), 0
            # Not hashlib.file_digest, which cannot be stopped: after Ctrl-C the process would wait for it.
            with self.pinned(uri, stamp) as file:
                while not stop.is_set() and (data := file.read(1 << 20)):
                    result.update(data)
                    size += len(data)
            return Digested(result.text(), size, stamp)

        try:
            return raced(digest, Changed, _TRIED)
        except Changed as error:
            hint = "run the same command when nothing writes to it any more"
            raise Changed(f"changed during each of {_TRIED} reads", where=uri, hint=hint) from error


def each(work: Callable[[T, Event], R], items: Iterable[T], threads: int | None) -> tuple[R, ...]:
    """Map ``work`` over the items in threads; results are in the items' order.

    The first failure, or Ctrl-C, sets the event for the others and waits for them.
    """
    stop = Event()
    pool = ThreadPoolExecutor(threads)
    try:
        return tuple(pool.map(lambda item: work(item, stop), items))
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def map_ahead(pool: ThreadPoolExecutor, work: Callable[[T], R], items: Iterable[T], most: int) -> Iterator[R]:
    """Yield what ``work`` makes of each item, in order; ``pool`` works on ``most`` further ones meanwhile."""
    coming: deque[Future[R]] = deque()
    for item in items:
        coming.append(pool.submit(work, item))
        if len(coming) > most:
            yield coming.popleft().result()
    yield from (item.result() for item in coming)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of the operating system into ours."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, where) from error
