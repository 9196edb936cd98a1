"""Arrays in scratch files, of which a later round reads ranges: runs of parts.

A *run* is what some owners (slices, mostly one) have for each part of a later round. It is a table, uint64 [parts *
owners + 1], and then the bytes of each part, those of its owners one after another; the table has their ends, from the
end of the table on. A file has one or more runs, one after another. So a shard writes what it has for every part to one
file, and the shard of a part reads one range of each run. Of many runs :mod:`pairmill.engine.shuffle` makes few.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native, storage
from pairmill.errors import StorageError
from pairmill.storage.base import translated

# Ranges of a bucket that are read at the same time, and their bytes; each takes 10 to 100 ms.
_AT_ONCE, _HELD = 16, 128 << 20
# Bytes of cells that are read together, since a merged run may have all of a part; of a request that fills an array.
# The C library keeps as much for each thread that has read.
_PIECE, _FILLED = 4 << 20, 4 << 20
_ENTRY = 8
# Bytes of a run's table that are read with one request, which costs as much for a few; of all tables that are kept.
_TABLE, _TABLES = 64 << 10, 16 << 20
OF_INPUTS: Final = "the digest of inputs names it"
"""Why ranges, and where slices begin, are not in the key of a shard that reads those of very many slices."""


@dataclass(frozen=True)
class Range:
    """Bytes ``[start, start + size)`` of an object."""

    uri: str
    start: int
    size: int

    def read(self) -> bytes:
        """Return the bytes, with one request.

        Raises:
            StorageError: the object is shorter.
        """
        if not self.size:
            return b""
        store = storage.store_for(self.uri)
        file = store.file(self.uri)
        if file is None:
            data = store.read_range(self.uri, self.start, self.size)
        else:
            data = _read_file(file, self.start, self.size)
        if len(data) != self.size:
            raise StorageError(
                "a scratch file is shorter than its record says",
                where=self.uri,
                got=f"{self.start + len(data)} bytes",
                expected=f"{self.start + self.size} or more",
                hint="run the same command with verify=true, which makes damaged files again",
            )
        return data

    def array(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return the bytes as an array, read-only."""
        return np.frombuffer(self.read(), kind)

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes in blocks of ``size``; the last may be smaller."""
        for item in self.cut(size):
            yield item.read()

    def cut(self, size: int) -> Iterator[Range]:
        """Yield ranges of ``size`` bytes, one after another; the last may be smaller."""
        for start in range(0, self.size, size):
            yield Range(self.uri, self.start + start, min(size, self.size - start))


def read_all(ranges: Sequence[Range]) -> Iterator[bytes]:
    """Yield the bytes of each range, in order; of a bucket several at once."""
    if len(ranges) < 2 or storage.scheme(ranges[0].uri) == "file":
        for item in ranges:
            yield item.read()
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Not all at once: what is read and not yet taken is held.
        some: list[Range] = []
        for item in ranges:
            if len(some) == _AT_ONCE or (some and sum(held.size for held in some) + item.size > _HELD):
                yield from pool.map(Range.read, some)
                some = []
            some.append(item)
        yield from pool.map(Range.read, some)


def _read_file(path: Path, start: int, size: int) -> bytes:
    with translated(str(path)):
        handle = os.open(path, os.O_RDONLY)
        try:
            data = os.pread(handle, size, start)
            while len(data) < size:  # one call reads 2 GiB at most
                more = os.pread(handle, size - len(data), start + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(handle)


class RunWriter:
    """Writes runs to an open file.

    Args:
        file: the caller closes it.
        parts: of each run.
        at: bytes that the file has.
    """

    def __init__(self, file: BinaryIO, parts: int, at: int = 0) -> None:
        self.starts: list[int] = []
        """Where each run begins; the shard's record keeps it."""
        self._file, self._parts, self._at = file, parts, at

    def write(self, part: NDArray[np.integer[Any]], rows: NDArray[Any]) -> None:
        """Append a run of rows; those of a part stay in their order.

        Args:
            part: of each row, [n], in any order.
            rows: of any dtype, [n].
        """
        numbers: NDArray[np.uint32] = np.ascontiguousarray(part, np.uint32)
        dealt, counts = _native.curate_near_deal(np.ascontiguousarray(rows).view(np.uint8), numbers, self._parts)
        self.write_bytes(counts * rows.itemsize, [dealt])

    def write_bytes(self, sizes: NDArray[np.integer[Any]], blocks: Iterable[NDArray[Any]]) -> None:
        """Append a run of parts of these sizes in bytes, int [parts], whose bytes are these arrays'."""
        table = np.zeros(self._parts + 1, np.uint64)
        np.cumsum(sizes, out=table[1:])
        if not table[-1]:
            return
        self.starts.append(self._at)
        self._file.write(table.view(np.uint8).data)
        for block in blocks:
            self._file.write(np.ascontiguousarray(block).view(np.uint8).data)
        self._at += table.nbytes + int(table[-1])


@dataclass(frozen=True)
class Run:
    """Where a run is.

    Args:
        start: its first byte.
        owners: numbers of those that it is of.
        key: of the shard that wrote it, for what merges runs.
    """

    uri: str
    start: int
    owners: tuple[int, ...] = (0,)
    key: str = ""


@dataclass(frozen=True)
class Runs:
    """Runs of several shards.

    Args:
        parts: of each run.
        runs: in rank order.
        first: the number of their first part.
        size: bytes of all, without tables, for what merges runs.
    """

    parts: int
    runs: tuple[Run, ...]
    first: int = 0
    size: int = 0

    def identify(self) -> object:
        """Return what the bytes of the parts follow from, for a shard that has no other digest of them."""
        return [self.parts, self.first, [[run.key, run.start] for run in self.runs]]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def tables(self, first: int, stop: int) -> list[NDArray[np.int64]]:
        """Return of each run where the cells of some parts begin, by part and owner, and where the last one ends.

        Bytes after the table, int64 [parts * owners + 1]; one request a run for neighbouring parts, which are kept.
        """
        if not self.runs:
            return []
        owners = [len(run.owners) for run in self.runs]
        nearby = max(1, min(_TABLE // (_ENTRY * max(owners)), _TABLES // (_ENTRY * sum(owners))))
        start = first - (first - self.first) % nearby
        if stop > start + nearby:
            return self._read_tables(first, stop)
        kept: dict[int, list[NDArray[np.int64]]] = vars(self).setdefault("_kept", {})
        if start not in kept:
            if sum(table.nbytes for tables in kept.values() for table in tables) >= _TABLES:
                kept.clear()
            kept[start] = self._read_tables(start, min(start + nearby, self.first + self.parts))
        places = [(n * (first - start), n * (stop - start) + 1) for n in owners]
        return [table[begin:end] for table, (begin, end) in zip(kept[start], places, strict=True)]

    def _read_tables(self, first: int, stop: int) -> list[NDArray[np.int64]]:
        ranges = []
        for run in self.runs:
            width = _ENTRY * len(run.owners)
            at = run.start + width * (first - self.first)
            ranges.append(Range(run.uri, at, width * (stop - first) + _ENTRY))
        return [np.frombuffer(table, np.int64) for table in read_all(ranges)]

    def between(self, run: Run, start: int, stop: int) -> Range:
        """Return where these bytes after a run's table are."""
        return Range(run.uri, run.start + _ENTRY * (self.parts * len(run.owners) + 1) + start, stop - start)

    def cells(self, part: int) -> tuple[list[Range], NDArray[np.int64], NDArray[np.uint32]]:
        """Return where the bytes of a part are, and of each owner that has some: how many, and its number, [n].

        One small request a run. Each range has whole cells, of 4 MiB or little more if no owner has more.
        """
        tables = self.tables(part, part + 1)
        sizes = [np.diff(table) for table in tables]
        owners = [np.array(run.owners, np.uint32)[size > 0] for run, size in zip(self.runs, sizes, strict=True)]
        ranges = []
        for run, table in zip(self.runs, tables, strict=True):
            ends = table[1:][np.diff((table - table[0]) // _PIECE) > 0].tolist()
            bounds = sorted({int(table[0]), *ends, int(table[-1])})
            ranges += [self.between(run, start, stop) for start, stop in pairwise(bounds)]
        none: list[Any] = [np.empty(0, np.int64)]
        counts = np.concatenate([*none, *(size[size > 0] for size in sizes)])
        return ranges, counts, np.concatenate([*none, *owners]).astype(np.uint32)

    def rows(self, part: int, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.uint32]]:
        """Return the rows of a part, and the owner of each, uint32 [n]; one request a run, and one for its table."""
        ranges, sizes, owners = self.cells(part)
        rows = np.empty(int(sizes.sum()) // kind.itemsize, kind)
        fill(rows.view(np.uint8), ranges)
        return rows, np.repeat(owners, sizes // kind.itemsize)

    def rows_by_part(
        self, first: int, stop: int, kind: np.dtype[Any]
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.uint32]]]:
        """Yield what :meth:`rows` returns of each of some parts, with the requests of one; holds the bytes of all."""
        if stop - first == 1:
            yield self.rows(first, kind)
            return
        tables, parts = self.tables(first, stop), stop - first
        data, begins = self.read_cells(tables, parts)
        owners = np.array([owner for run in self.runs for owner in run.owners], np.uint32)
        none = [np.empty((parts, 0), np.int64)]
        sizes = np.concatenate([*none, *(np.diff(table).reshape(parts, -1) for table in tables)], axis=1)
        for places, lengths in zip(begins, sizes, strict=True):
            yield segments(data, places, lengths).view(kind), np.repeat(owners, lengths // kind.itemsize)

    def read_cells(
        self, tables: Sequence[NDArray[np.int64]], parts: int, room: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the bytes of parts, of which these are the tables, and where each cell begins, int64 [parts, owners].

        Args:
            room: an array that is large enough for the bytes, which are then the beginning of it.
        """
        ranges = [self.between(run, int(at[0]), int(at[-1])) for run, at in zip(self.runs, tables, strict=True)]
        size = sum(item.size for item in ranges)
        data = np.empty(size, np.uint8) if room is None else room[:size]
        fill(data, ranges)
        begins, before = [np.empty((parts, 0), np.int64)], 0
        for table, item in zip(tables, ranges, strict=True):
            begins.append((table[:-1] - table[0] + before).reshape(parts, -1))
            before += item.size
        return data, np.concatenate(begins, axis=1)


def fill(data: NDArray[np.uint8], ranges: Sequence[Range]) -> None:
    """Read ranges into an array of their size, one after another."""
    at = 0
    for read in read_all([some for item in ranges for some in item.cut(_FILLED)]):
        data[at : at + len(read)] = np.frombuffer(read, np.uint8)
        at += len(read)


def segments(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Copy segments of a byte array, one after another.

    Args:
        data: uint8.
        starts: of the segments, int64 [n].
        sizes: of the segments, int64 [n].
    """
    return _native.curate_near_segments(data, starts.astype(np.int64, copy=False), sizes.astype(np.int64, copy=False))
