"""A piece of a file that is read by itself, and the endings of the files that can be cut."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import BinaryIO

from pairmill.engine.content import UNKNOWN, Content, pinned, whole
from pairmill.engine.options import EXPANSION, RECORD_BYTES

ARROW = (".arrow", ".feather")
LINES = (".jsonl", ".csv", ".tsv", ".txt")
DATABASES = (".sqlite", ".sqlite3", ".db")
WORKBOOKS = (".xlsx",)
RANDOM_ACCESS = (".parquet", *DATABASES, *WORKBOOKS)
"""Files that are read in parts, so that their digest cannot be compared on the way."""


@dataclass(frozen=True)
class FileSlice:
    """Consecutive records of a file: row groups of Parquet, bytes of an Arrow file or a file of lines, or all of it.

    Args:
        path: below the source's raw folder; of a row file its task.
        start: first row group of Parquet, first byte of an Arrow file or a file of lines.
        stop: one past the last; None = to the end.
        first: number of the first row or line, from 0.
        size: bytes.
        content: what the whole file has to be.
        digest: of the slice's own bytes, where they are not all of the file and are read as they are.
        longest: bytes of the longest record that is read of it.
        expansion: the most bytes of records for each byte of the file.
        aside: whether a longer record is malformed, and not an error.
    """

    path: str
    uri: str
    start: int = 0
    stop: int | None = None
    first: int = 0
    size: int = 0
    content: Content = UNKNOWN
    digest: str = ""
    longest: int = RECORD_BYTES
    expansion: int = EXPANSION
    aside: bool = False

    def identify(self) -> object:
        """Return what a shard that reads the slice is keyed by. Of the path only its ending counts, as the format."""
        suffix = PurePosixPath(self.path).suffix
        return [suffix, self.content.digest, self.start, self.stop, self.first, self.longest if self.aside else None]

    @property
    def random_access(self) -> dict[str, Content]:
        """The file, if it is read in parts, so that its digest cannot be compared on the way."""
        return {self.uri: self.content} if PurePosixPath(self.path).suffix in RANDOM_ACCESS else {}

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """Return the file, to be read from the slice's first byte to its last. Not for Parquet.

        Raises:
            Changed: when the block ends; what was read is not what was digested.
        """
        return whole(self.uri, replace(self.content, digest=self.digest or self.content.digest), self.start, self.stop)

    def head(self) -> FileSlice:
        """Return the beginning of the file, for a reader that may stop early."""
        return _Head(self.path, self.uri, content=self.content, longest=self.longest)


class _Head(FileSlice):
    def opened(self) -> AbstractContextManager[BinaryIO]:
        return pinned(self.uri, self.content)
