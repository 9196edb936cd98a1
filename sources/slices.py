"""Large raw files in pieces, so that one huge file keeps every core busy.

A Parquet file is cut between row groups, a file of lines between lines. What is compressed as a whole, or is one JSON
array, is read from its beginning: one piece.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import BinaryIO, TypeVar

from pairmill import storage
from pairmill.engine.content import UNKNOWN, Content, pinned, whole
from pairmill.formats import rows
from pairmill.formats.limits import RECORD_BYTES

# Bytes of a piece: enough work to be worth a shard, little enough that sixteen cores share a gigabyte.
PIECE_BYTES = 64 << 20
_BLOCK = 1 << 20
# A line of white space, of ASCII or (what begins with C2, E1, E2, E3) beyond it.
_EMPTY_LINE = re.compile(
    rb"\n(?:[ \t\v\f\x1c-\x1f]|\xc2[\x85\xa0]|\xe1\x9a\x80"
    rb"|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*\n"
)
_LONGEST_EMPTY_LINE = 64
LINES = (".jsonl", ".csv", ".txt")


@dataclass(frozen=True)
class Piece:
    """A part of a raw file.

    Args:
        path: below the source's raw folder.
        uri: where it stands.
        start: first row group of Parquet, first byte of a file of lines.
        stop: one past the last; None = to the end.
        first: number of the first row or line, from 0.
        size: bytes.
        content: what the whole file has to be.
        sha256: of the piece's own bytes, where they are not all of the file and are read as they are.
        longest: bytes of the longest record that is read of it.
    """

    path: str
    uri: str
    start: int = 0
    stop: int | None = None
    first: int = 0
    size: int = 0
    content: Content = UNKNOWN
    sha256: str = ""
    longest: int = RECORD_BYTES

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """The file, for who reads all of the piece. Not for Parquet.

        Raises:
            Changed: when the block ends; what was read is not what was digested.
        """
        return whole(self.uri, replace(self.content, sha256=self.sha256 or self.content.sha256), self.start, self.stop)

    def head(self) -> Piece:
        """The beginning of the file, for who does not read on to the end."""
        return _Head(self.path, self.uri, content=self.content, longest=self.longest)


class _Head(Piece):
    def opened(self) -> AbstractContextManager[BinaryIO]:
        return pinned(self.uri, self.content)


def pieces_of(
    path: str, uri: str, size: int, step: int, content: Content = UNKNOWN, longest: int = RECORD_BYTES
) -> list[Piece]:
    """The pieces of a raw file in order.

    Args:
        path: below the source's raw folder.
        uri: where it is.
        size: bytes.
        step: lines that make a record of a file of lines.
        content: what the file has to be.
        longest: bytes of the longest record that is to be read.

    Raises:
        InputError: not a Parquet file under that name; or, as Changed, another file than ``content`` says.
    """
    return [replace(piece, longest=longest) for piece in _cut(path, uri, size, step, content)]


def _cut(path: str, uri: str, size: int, step: int, content: Content) -> list[Piece]:
    suffix = PurePosixPath(path).suffix
    if size >= 2 * PIECE_BYTES:
        if suffix == ".parquet":
            parts = rows.parts(uri, PIECE_BYTES, content)
            return [Piece(path, uri, part.start, part.stop, part.first, part.size, content) for part in parts] or [
                Piece(path, uri, content=content)
            ]
        if suffix in LINES:
            return _lines(path, uri, size, step, content)
    return [Piece(path, uri, size=size, content=content)]


def _lines(path: str, uri: str, size: int, step: int, content: Content) -> list[Piece]:
    """Cut between records behind every ``PIECE_BYTES``; the file is read once, for the numbers of its lines.

    On the way each piece is digested, and all of it where only a manifest has said so far what it is.

    A quote or a carriage return can make a line end that is none, or hide one, and an empty line can put the lines of
    a record out of step: such a CSV or text file is one piece.
    """
    found: list[Piece] = []
    plain = PurePosixPath(path).suffix != ".jsonl"
    start = first = line = place = 0
    tail = b"\n"
    file_is = content if content.stamp else replace(content, stamp=storage.store_for(uri).stamp(uri))
    total, part = hashlib.sha256(), hashlib.sha256()
    with pinned(uri, file_is) as file:
        while block := file.read(_BLOCK):
            if plain and (b'"' in block or b"\r" in block):
                return [Piece(path, uri, size=size, content=content)]
            if step > 1 and _EMPTY_LINE.search(tail + block):
                return [Piece(path, uri, size=size, content=content)]
            tail = (tail + block)[-_LONGEST_EMPTY_LINE:]
            if content.promised:
                total.update(block)
            seen = taken = 0
            while place + len(block) - start >= PIECE_BYTES:
                end = block.find(b"\n", seen) + 1
                if not end:
                    break
                line += 1
                seen = end
                if line % step == 0:
                    part.update(memoryview(block)[taken:end])
                    mine = Piece(path, uri, start, place + end, first, place + end - start, file_is, part.hexdigest())
                    found.append(mine)
                    start, first, taken, part = place + end, line, end, hashlib.sha256()
            part.update(memoryview(block)[taken:])
            line += block.count(b"\n", seen)
            place += len(block)
    if content.promised:
        content.require(uri, total.hexdigest())
    if start < place:
        found.append(Piece(path, uri, start, place, first, place - start, file_is, part.hexdigest()))
    return found


T = TypeVar("T")


def grouped(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int, most: int) -> Iterator[list[T]]:
    """Consecutive items, as many together as make ``most_bytes`` or ``most``; one alone may be larger."""
    group: list[T] = []
    size = 0
    for item in items:
        if group and (size + size_of(item) > most_bytes or len(group) >= most):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group
