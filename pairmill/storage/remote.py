"""The common part of object stores: retries, ranged reads, reading ahead, and the scratch file of a write.

A backend makes single requests and classifies their failures.
"""

from __future__ import annotations

import functools
import io
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar, cast

from pairmill.digest import Digest
from pairmill.errors import SPACE, Changed, InputError, PairmillError, StorageError, from_os_error
from pairmill.retry import TRANSIENT, Again, asked_pause, raced, retried
from pairmill.storage import partials
from pairmill.storage.base import Digested, Entry, Store, each
from pairmill.storage.uris import bucket_and_key, join, local_path, scheme

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
Fetch = Callable[[int, int, Event], memoryview]
"""Returns bytes ``[start, end)`` of an object; the event ends its retries."""

PART = 8 << 20
"""Larger objects, in bytes, are written in parts."""
PARTS_AT_ONCE = 4
"""Parts of one object that are in memory and being sent at the same time."""
FIRST = 256 << 10
"""Bytes of a reader's first request: enough for a Parquet footer, and as fast as one byte."""
BLOCK = 4 << 20
"""Bytes of a reader's request once it has read sequentially for a while."""
AHEAD = 4
"""Blocks that a sequential reader keeps fetched or requested."""
RUNS = 4
"""Positions of an object that one reader can read from sequentially in turns."""
KEPT = 8
"""Blocks that a reader holds in all."""
WHOLE = 1 << 20
"""Objects of at most as many bytes are read in one request."""
READERS = 32
_PIECE = 128 << 10
_QUOTE = '"'
_TRIED = 10
_HEAD = "pairmill-"


class Absent(InputError):
    """There is no such object."""


class Replaced(Changed):
    """The object was replaced while it was read."""


class Taken(StorageError):
    """The condition of a request failed: the object is not the expected one."""


@dataclass(frozen=True)
class Place:
    """An object; or all objects whose keys start with ``key``."""

    uri: str
    bucket: str
    key: str

    @classmethod
    def from_uri(cls, uri: str) -> Place:
        """Return the object of a URI."""
        return cls(uri, *bucket_and_key(uri))

    @classmethod
    def below(cls, uri: str) -> Place:
        """Return the objects below a URI, which is taken as a folder."""
        bucket, key = bucket_and_key(uri)
        return cls(uri, bucket, key and key + "/")


@dataclass(frozen=True)
class Stat:
    """Size in bytes, the backend's name of this content (an ETag, a generation), and when it was written."""

    size: int
    version: str
    written: datetime | None = field(default=None, compare=False)

    @property
    def stamp(self) -> str:
        """Both as one text; empty if the backend gives no version."""
        # Some stores list ETags without quotes.
        return self.version and f"{self.size} {self.version.strip(_QUOTE)}"


class Body:
    """The bytes of an object received so far; ``version`` is empty until the backend has told it.

    They are kept as they come: a copy of each byte, into memory that is new, takes as long as receiving it.
    """

    def __init__(self, version: str = "", digest: Digest | None = None) -> None:
        self.version, self.tries, self.length = version, 0, 0
        self._digest = digest
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Take the next bytes. What is digested is not kept."""
        if self._digest is not None:
            self._digest.update(data)
        else:
            self._pieces.append(data)
        self.length += len(data)

    def piece(self, size: int) -> int:
        """Return how many of ``size`` bytes to read at a time: a cut loses the piece that was being read."""
        return size if self.tries == 1 and size <= BLOCK else _PIECE

    def begin_again(self) -> None:
        """Forget all bytes: the object may be another one by now."""
        self._pieces, self.length = [], 0

    def all(self) -> bytes:
        """Return all bytes."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _replaced(uri: str, got: str, expected: str) -> Replaced:
    hint = "run the same command when nothing writes to it any more"
    return Replaced("changed while it was read", where=uri, got=got, expected=expected, hint=hint)


def _require_all(uri: str, got: int, size: int) -> None:
    if got != size:
        raise StorageError("is shorter than its store says", where=uri, got=f"{got} bytes", expected=f"{size} bytes")


class RemoteStore(Store):
    """An object store. A backend makes single requests and raises Again for failures that may pass."""

    # In a cluster the first byte takes 20 to 50 ms, in which a connection of 50 to 100 MB/s brings 1 to 5 MB.
    seek_cost = 2 << 20
    at_once = 8
    loggers: ClassVar[tuple[str, ...]]
    """Loggers of the client that repeat what is logged here."""

    def __init__(self, kind: str) -> None:
        self._kind, self._making = kind, Lock()

    # --- what a backend implements ---

    @abstractmethod
    def _connected(self) -> Any:
        """Make the client."""

    @abstractmethod
    def _failures(self, place: Place) -> AbstractContextManager[None]:
        """Translate the client's exceptions into Again, Absent, Taken or a PairmillError, without secrets."""

    @abstractmethod
    def _stat(self, place: Place) -> Stat: ...

    @abstractmethod
    def _get(self, place: Place, start: int, end: int, body: Body) -> None:
        """Append bytes ``[start, end)`` to the body as they arrive, from its version if it has one."""

    @abstractmethod
    def _page(self, place: Place, token: str, most: int) -> tuple[list[tuple[str, Stat]], str]:
        """At most ``most`` keys that start with the place's, and the token of the next page or ``""``."""

    @abstractmethod
    def _folders(self, place: Place, token: str) -> tuple[list[str], str]:
        """Prefixes of keys, each up to the next slash, and the token of the next page or ``""``."""

    @abstractmethod
    def _put(self, place: Place, data: bytes, *, replace: bool) -> None:
        """Write the object in one request. Raises Taken if it exists and may not be replaced."""

    @abstractmethod
    def _put_large(self, place: Place, path: Path) -> None:
        """Write a file of more than PART bytes, with its own retries."""

    @abstractmethod
    def _copy(self, source: Place, target: Place, stat: Stat) -> None:
        """Copy within the store, with its own retries. Raises Taken if the source has another version now."""

    @abstractmethod
    def _delete(self, place: Place) -> None: ...

    # --- the interface ---

    def exists(self, uri: str) -> bool:
        try:
            self._head(uri)
        except Absent:
            return False
        return True

    def size(self, uri: str) -> int:
        return self._head(uri).size

    def list(self, prefix: str) -> list[Entry]:
        return sorted(self.scan(prefix, ""), key=lambda entry: entry.path)

    def scan(self, prefix: str, start: str) -> Iterator[Entry]:
        below, token = Place.below(prefix), ""
        place = replace(below, key=below.key + start)
        while True:
            page, token = self._ask(place, functools.partial(self._page, place, token, 1000))
            for key, stat in page:
                # Consoles of object stores create an empty object with a slash at its end to show a folder.
                if stat.size or not key.endswith("/"):
                    written = stat.written.timestamp() if stat.written else 0.0
                    yield Entry(key[len(below.key) :], stat.size, stat.stamp, written)
            if not token:
                return

    def folders(self, prefix: str) -> Sequence[str]:
        return sorted({name for page, _ in self._pages_of_folders(prefix) for name in page})

    def few_folders(self, prefix: str) -> Sequence[str] | None:
        page, more = next(self._pages_of_folders(prefix))
        return None if more else page

    def _pages_of_folders(self, prefix: str) -> Iterator[tuple[Sequence[str], str]]:
        """Yield the names of each page, and what the next one is asked with; empty after the last."""
        place, token = Place.below(prefix), ""
        while True:
            page, token = self._ask(place, functools.partial(self._folders, place, token))
            yield sorted({start[len(place.key) : -1] for start in page} - {""}), token
            if not token:
                return

    def read(self, uri: str) -> bytes:
        begin = self.read_range(uri, 0, WHOLE)
        if len(begin) < WHOLE:
            return begin
        with self.open(uri) as file:
            return file.read()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        if length > BLOCK:
            with self.open(uri, start + length) as file:
                file.seek(start)
                return file.read(length)
        return self._fetch(Place.from_uri(uri), start, start + length, "", Event())

    def open(self, uri: str, end: int | None = None) -> BinaryIO:
        # An object may be replaced between the question for its size and that for its bytes.
        return raced(lambda: self._open(uri, end=end), Replaced, _TRIED)

    def stamp(self, uri: str) -> str:
        return self._head(uri).stamp

    def stamps(self, uris: Sequence[str]) -> Sequence[str]:
        return each(lambda uri, _: self.stamp(uri), uris, READERS)

    def modified(self, uri: str) -> datetime | None:
        with suppress(Absent):
            return self._head(uri).written
        return None

    @contextmanager
    def pinned(self, uri: str, stamp: str) -> Iterator[BinaryIO]:
        # Each request of a reader has the condition that the object still has the version that was opened.
        with self._open(uri, stamp) as file:
            yield file

    def _open(self, uri: str, stamp: str = "", end: int | None = None) -> BinaryIO:
        place = Place.from_uri(uri)
        stat = self._head(uri)
        if stamp and stat.stamp != stamp:
            raise _replaced(uri, f"bytes and version {stat.stamp}", stamp)

        def fetch(start: int, end: int, stop: Event) -> memoryview:
            data = self._fetch(place, start, end, stat.version, stop)
            _require_all(uri, start + len(data), end)
            return memoryview(data)

        # typeshed has BufferedReader apart from BinaryIO, which it is.
        return cast(BinaryIO, io.BufferedReader(Reader(fetch, min(stat.size, end or stat.size), self._readers), FIRST))

    @contextmanager
    def create(self, uri: str, *, durable: bool = True, final: bool = False) -> Iterator[Path]:
        place, folder = Place.from_uri(uri), partials.scratch()
        _sweep(folder)
        try:
            handle, path = partials.make(folder, _HEAD)
        except OSError as error:
            raise _full(folder, error) if error.errno in SPACE else from_os_error(error, str(folder)) from error
        try:
            try:
                yield path
            except OSError as error:
                if error.errno in SPACE and not error.filename:
                    raise _full(folder, error) from error
                if isinstance(error, FileNotFoundError) and error.filename == str(path):
                    raise partials.removed(path) from error
                raise
            self._send(place, partials.written(path, handle))
        finally:
            partials.remove(path)
            os.close(handle)

    def write(self, uri: str, data: bytes) -> None:
        if len(data) > PART:
            super().write(uri, data)
        else:
            self._write(Place.from_uri(uri), data)

    def commit(self, uri: str, data: bytes) -> bytes:
        place = Place.from_uri(uri)
        try:
            self._ask(place, lambda: self._put(place, data, replace=False))
        except Taken:
            # The winner may be ourselves, in a try whose answer was lost: the bytes tell.
            return self.read(uri)
        return data

    def copy(self, source: str, target: str) -> None:
        if scheme(source) == "file":
            self._send(Place.from_uri(target), local_path(source))
            return
        start, end = Place.from_uri(source), Place.from_uri(target)
        if (start.bucket, start.key) == (end.bucket, end.key):
            self._head(source)
        else:
            self._copy_whole(start, end)

    @contextmanager
    def attempt(self, folder: str) -> Iterator[str]:
        # Nothing tells a dead writer from a slow one.
        yield join(folder, os.urandom(8).hex())

    def forget_attempts(self, folder: str) -> None:
        pass

    def settle(self, attempt: str, name: str) -> str:
        return attempt

    def delete(self, uri: str) -> None:
        place = Place.from_uri(uri)
        with suppress(Absent):
            self._ask(place, lambda: self._delete(place))

    # --- implementation ---

    def digest_of(self, uri: str, like: str, stop: Event) -> Digested:
        # From the stream of one request: a reader of blocks copies each byte twice.
        def digest() -> Digested:
            stat, result = self._head(uri), Digest(like=like)
            body = Body(stat.version, result)
            self._fill(body, Place.from_uri(uri), 0, stat.size, stop)
            _require_all(uri, body.length, stat.size)
            return Digested(result.text(), stat.size, stat.stamp)

        return raced(digest, Replaced, _TRIED)

    @property
    def _client(self) -> Any:
        # Clients of both libraries can be shared by threads, but not created by two at once.
        with self._making:
            return self._made

    @functools.cached_property
    def _made(self) -> Any:
        for name in self.loggers:
            # A logger without a handler prints to stderr.
            logging.getLogger(name).addHandler(logging.NullHandler())
        return self._connected()

    @functools.cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS, thread_name_prefix="storage")

    def _head(self, uri: str) -> Stat:
        place = Place.from_uri(uri)
        return self._ask(place, lambda: self._stat(place))

    def _ask(
        self, place: Place, work: Callable[[], T], got: Callable[[], int] = lambda: 0, stop: Event | None = None
    ) -> T:
        """Make a request, with retries."""

        def once() -> T:
            with self._failures(place):
                return work()

        try:
            return retried(place.uri, once, got, stop)
        except Absent:
            self._require_bucket(place)
            raise

    def _require_bucket(self, place: Place) -> None:
        # A 404 to HEAD has no body, so it does not tell an absent bucket from an absent object.
        if place.bucket in self._buckets:
            return
        bucket = Place(f"{place.uri.partition('://')[0]}://{place.bucket}", place.bucket, "")

        def look() -> None:
            with self._failures(bucket):
                self._page(bucket, "", 1)

        try:
            retried(bucket.uri, look)
        except Absent:
            raise StorageError(
                "the bucket does not exist", where=bucket.uri, hint="check its name, the endpoint and the account"
            ) from None
        self._buckets.add(place.bucket)

    @functools.cached_property
    def _buckets(self) -> set[str]:
        return set()

    def _fetch(self, place: Place, start: int, end: int, version: str, stop: Event) -> bytes:
        """Return bytes ``[start, end)``."""
        body = Body(version)
        self._fill(body, place, start, end, stop)
        return body.all()

    def _fill(self, body: Body, place: Place, start: int, end: int, stop: Event) -> None:
        """Fetch bytes ``[start, end)`` into a body; after a cut the fetch continues where it ended."""

        def go_on() -> None:
            body.tries += 1
            if not body.version:
                body.begin_again()
            if start + body.length < end:
                self._get(place, start + body.length, end, body)

        try:
            self._ask(place, go_on, lambda: body.length if body.version else 0, stop)
        except (Absent, Taken):
            if not body.version:
                raise
            raise _replaced(place.uri, "another version, or none", body.version) from None

    def _copy_whole(self, source: Place, target: Place) -> None:
        """Copy an object, also when another writer replaces it with the same bytes under another version."""
        first = stat = self._head(source.uri)
        for _ in range(_TRIED):
            try:
                self._copy(source, target, stat)
                return
            except Taken:
                stat = self._head(source.uri)
            if stat.size != first.size:
                break
        raise StorageError(
            "another object replaced it while it was copied",
            where=source.uri,
            got=f"{stat.size} bytes",
            expected=f"{first.size} bytes, of one version",
            hint="stop whatever else writes it, then run the same command",
        )

    def _write(self, place: Place, data: bytes) -> None:
        self._ask(place, lambda: self._put(place, data, replace=True))

    def _send(self, place: Place, path: Path) -> None:
        """Upload a file."""
        if path.stat().st_size > PART:
            self._put_large(place, path)
        else:
            self._write(place, path.read_bytes())


@dataclass(eq=False)
class _Run:
    """A sequence of blocks: where the first begins, where the next will begin, and the size of the next."""

    first: int
    next: int
    width: int


@dataclass(frozen=True, eq=False)
class _Block:
    start: int
    end: int
    data: Future[memoryview]
    run: _Run


class Reader(io.RawIOBase):
    """An object as a seekable stream. Sequential reads are prefetched in growing blocks; a seek asks for little.

    Several positions can be read sequentially in turns (the columns of a Parquet file); each has its own prefetch.
    """

    def __init__(self, fetch: Fetch, size: int, pool: ThreadPoolExecutor) -> None:
        self._fetch, self._size, self._pool = fetch, size, pool
        self._position = 0
        self._start, self._data = 0, memoryview(b"")
        self._blocks: list[_Block] = []  # in order of their last use
        self._runs: list[_Run] = []
        self._stop = Event()
        if 0 < size <= FIRST:
            # Small objects are fetched on open, so a concurrent overwrite cannot affect the reader.
            self._move(0, size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise ValueError(f"negative position {position}")
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        if self._position >= self._size or not target:
            return 0
        if not self._start <= self._position < self._start + len(self._data):
            self._move(self._position, len(target))
        piece = self._data[self._position - self._start :][: len(target)]
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def readall(self) -> bytes:
        result = bytearray(max(0, self._size - self._position))
        view, filled = memoryview(result), 0
        while filled < len(result):
            filled += self.readinto(view[filled:])
        return bytes(result)

    def close(self) -> None:
        self._stop.set()
        self._data = memoryview(b"")
        for block in self._blocks:
            block.data.cancel()
        self._blocks.clear()
        super().close()

    def _move(self, position: int, wanted: int) -> None:
        """Make the block at ``position`` the current one; the caller wants at least ``wanted`` bytes from there."""
        self._data = memoryview(b"")
        block = self._at(position)
        if block is None:
            run = next((run for run in self._runs if run.next == position), None)
            begun = run is not None
            if run is None:
                run = _Run(position, position, max(FIRST, min(wanted // AHEAD, BLOCK)))
                self._runs = [*self._runs[1 - RUNS :], run]
            self._order(run, position, AHEAD if begun or wanted > FIRST else 1)
            block = self._at(position)
            assert block is not None
        elif block.start != block.run.first:
            self._order(block.run, position, AHEAD)
        # The least recently used block goes first. A reader may return to a block, where another column ends.
        self._runs = [*(run for run in self._runs if run is not block.run), block.run]
        self._blocks = [*(item for item in self._blocks if item is not block), block]
        spare = len(self._blocks) - KEPT
        old = [item for item in self._blocks if item.run is not block.run or item.end <= position]
        for item in old[: max(spare, 0)]:
            item.data.cancel()
            self._blocks.remove(item)
        self._start = block.start
        self._data = block.data.result()

    def _at(self, position: int) -> _Block | None:
        return next((block for block in self._blocks if block.start <= position < block.end), None)

    def _order(self, run: _Run, position: int, most: int) -> None:
        """Request blocks of a run until ``most`` of them, from ``position`` on, are fetched or requested."""
        there = sum(block.run is run and block.end > position for block in self._blocks)
        while there < most and run.next < self._size:
            end = min(run.next + run.width, self._size)
            data = self._pool.submit(self._fetch, run.next, end, self._stop)
            self._blocks.append(_Block(run.next, end, data, run))
            run.next, run.width = end, min(2 * run.width, BLOCK)
            there += 1


@functools.cache
def _sweep(folder: Path) -> None:
    """Remove the scratch files of killed writers, once a process."""
    partials.sweep_folder(folder, _HEAD)


def _full(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        "no space left for the scratch file of a write",
        where=f"TMPDIR={folder}",
        got=error.strerror or str(error),
        hint="set TMPDIR to a larger volume, or lower workers=, then run the same command",
    )


def refusal(place: Place, status: int, detail: str, headers: Mapping[str, str]) -> Exception:
    """Return the exception for an HTTP status; ``detail`` is the server's message, without the request."""
    got = f"{status} {detail}".strip()
    if status in TRANSIENT:
        return Again(got, asked_pause(headers))
    if status == 404:
        return Absent("does not exist", where=place.uri, hint="check the path")
    if status == 412:
        return Taken("not the object that was expected", where=place.uri, got=got)
    if status in {401, 403}:
        return StorageError(
            "storage refused", where=place.uri, got=got, hint="check what the credentials of this process may do"
        )
    return StorageError("storage failed", where=place.uri, got=got)


def no_credentials(place: Place, got: str, hint: str) -> PairmillError:
    """Return the platform gives this process no usable credentials."""
    return StorageError("no usable credentials", where=place.uri, got=got, hint=hint)
