"""Checks that the bytes that are read are those that were digested: a shard's key names them, or the shard fails.

The digest comes from the plan of the run or from a manifest. The bytes are read later, often by another process.
:func:`whole` digests a file again while it is read from end to end. :func:`pinned` is for random access, as in Parquet:
it compares the object's stamp when the file is opened and when it is closed. If only a manifest has the digest of such
a file, :func:`broken` compares it once before.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, cast

from pairmill import storage
from pairmill.digest import Digest, shown
from pairmill.errors import Changed, InputError, PairmillError
from pairmill.storage.base import each

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_BLOCK = 1 << 20
# After a reader complains, at most this many bytes are read to find out whether the file changed.
_LOOKED_AT = 64 << 20


@dataclass(frozen=True)
class Content:
    """The expected bytes of an object, or of a part of it.

    Args:
        digest: with its algorithm (:mod:`pairmill.digest`); empty = unknown, and not compared.
        stamp: of the object, as :meth:`Store.stamp` returns it; empty = unknown.
        promised: whether the digest is from a manifest and has not been compared yet.
        size: of the object, in bytes; -1 = unknown.
    """

    digest: str = ""
    stamp: str = ""
    promised: bool = False
    size: int = -1

    def identify(self) -> object:
        """Return the digest, which is what a shard that reads the object is keyed by."""
        return self.digest

    def require(self, uri: str, digest: str) -> None:
        """Raise Changed unless the object's digest is this, which was made like the content's."""
        if digest == self.digest:
            return
        got, expected = shown(digest), shown(self.digest)
        if self.promised:
            raise Changed(
                "is not what its manifest says, or changed while it was read",
                where=uri,
                got=got,
                expected=expected,
                hint="run the stage that made it again with verify=true, which finds and replaces damaged files",
            )
        raise Changed(
            "changed while it was read",
            where=uri,
            got=got,
            expected=expected,
            hint="run the same command once nothing writes to it any more",
        )


UNKNOWN = Content()


@contextmanager
def whole(uri: str, content: Content, start: int = 0, stop: int | None = None) -> Iterator[BinaryIO]:
    """Open the object to read bytes ``[start, stop)`` from the first to the last; the file can seek.

    ``content`` is that of these bytes. Bytes that were not read when the block ends are read then.

    Raises:
        Changed: the bytes differ. Raised when the block ends, so commit nothing before.
    """
    store = storage.store_for(uri)
    if not content.digest:
        with store.open(uri) as file:
            yield file
        return
    with store.open(uri) as file:
        stream = _Digesting(file, start, stop, content.digest)
        try:
            yield cast(BinaryIO, stream)
        except InputError:
            # A reader may report any error about a file that changed.
            if stream.left() <= _LOOKED_AT:
                content.require(uri, stream.digest())
            raise
        content.require(uri, stream.digest())


@contextmanager
def pinned(uri: str, content: Content) -> Iterator[BinaryIO]:
    """Open the object for random access.

    Raises:
        Changed: its stamp and its bytes differ, or its stamp differs when the block ends.
    """
    store = storage.store_for(uri)
    with ExitStack() as stack:
        if not content.stamp:
            yield stack.enter_context(store.open(uri))
            return
        try:
            file = stack.enter_context(store.pinned(uri, content.stamp))
        except Changed:
            if not content.digest:
                raise
            # The bytes may be the same under another stamp: a copy, a remount, a second task that wrote them.
            again = store.digested([uri], [content.digest])[0]
            content.require(uri, again.digest)
            file = stack.enter_context(store.pinned(uri, again.stamp))
        yield file


def require_unchanged(uri: str, content: Content) -> None:
    """Raise Changed if the object's stamp and bytes differ now; for code that opens the object itself."""
    store = storage.store_for(uri)
    if content.stamp and store.stamp(uri) != content.stamp:
        content.require(uri, store.digest(uri, content.digest))


def broken(contents: Mapping[str, Content]) -> dict[str, PairmillError]:
    """Read all objects; return the error for each, by URI, that differs from its content."""

    def look(uri: str, stop: Event) -> PairmillError | None:
        try:
            known = contents[uri]
            known.require(uri, storage.store_for(uri).digest_of(uri, known.digest, stop).digest)
        except PairmillError as error:
            return error
        return None

    result = zip(contents, each(look, contents, None), strict=True)
    return {uri: error for uri, error in result if error is not None}


class Borrowed(io.RawIOBase):
    """A file that its reader may close, and that stays open: readers of compressed data and of JSON close theirs."""

    def __init__(self, file: BinaryIO) -> None:
        self._borrowed = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._borrowed.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._borrowed.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer) -> int:
        return cast(io.BufferedIOBase, self._borrowed).readinto(buffer)


class _Digesting(io.RawIOBase):
    """Digests bytes ``[start, stop)`` of a file as they are read for the first time.

    It does not close the file: readers of compressed data would close it too early.
    """

    def __init__(self, file: BinaryIO, start: int, stop: int | None, like: str) -> None:
        self._file, self._stop = file, stop
        self._position, self._next = 0, start
        self._digest = Digest(like=like)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = self._file.seek(offset, whence)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        data = self._file.read(-1 if size is None else size)
        self._take(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        length = cast(io.BufferedIOBase, self._file).readinto(view)
        self._take(view[:length])
        return length

    def left(self) -> int:
        """Return bytes that have not been read."""
        end = self._file.seek(0, io.SEEK_END) if self._stop is None else self._stop
        return end - self._next

    def digest(self) -> str:
        """Read the rest; return the digest of all bytes."""
        self._position = self._file.seek(self._next)
        while data := self._file.read(_BLOCK if self._stop is None else min(_BLOCK, self._stop - self._next)):
            self._take(data)
        return self._digest.text()

    def _take(self, data: ReadableBuffer) -> None:
        view = memoryview(data)
        begin, self._position = self._position, self._position + len(view)
        if begin <= self._next < self._position:
            end = self._position if self._stop is None else min(self._position, self._stop)
            self._digest.update(view[self._next - begin : max(end, self._next) - begin])
            self._next = max(end, self._next)
