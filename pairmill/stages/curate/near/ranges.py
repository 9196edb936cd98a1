"""Components and groups of more rows than arrays in memory should have: found range by range, with files for the rest.

A *member* is a row that has an edge, by its number among them. Members are cut into ranges, and an edge waits in the
file of the range of its higher end. Ranges are taken from the last to the first:

1. The edges within a range make parts of it. The *parent* of a part is the smallest member of a lower range that an
   edge joins it with. An edge from the part to any other member becomes one from the parent to that member, which waits
   in the file of a lower range. So what was joined stays joined without the range, and edges never become more.
2. The rows and bytes of a part are carried to its parent. A part without a parent has the smallest member of a
   component, and by then all of its rows and bytes.

Then ranges are taken from the first to the last: the group of a part is that of its parent, which is known by then.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.errors import InputError
from pairmill.stages.curate.near.stored import distinct
from pairmill.stages.curate.near.union import Components
from pairmill.storage.base import translated
from pairmill.storage.partials import scratch

_PAIR = np.dtype([("low", "<u4"), ("high", "<u4")])
_CARRIED = np.dtype([("member", "<u4"), ("rows", "<u4"), ("bytes", "<i8")])
_NUMBER, _BYTES = np.dtype("<u4"), np.dtype("<i8")
_NONE = np.uint32(0xFFFFFFFF)
# Entries of a file that are looked at together.
_BLOCK = 1 << 20


class Ranges:
    """Components of members 0 to ``members`` - 1, dealt into groups; a context, for it has open files.

    First all pairs and sizes are added, then :meth:`group` is called, then answers are read. The files have no names,
    so nothing is left of them however the process ends.

    Attributes:
        components: how many.
        largest: rows of the largest component.
        group_sizes: of each group the bytes of its sketches, int64 [groups].

    Args:
        members: how many.
        most: members of a range; memory has some 60 bytes for each.

    Raises:
        InputError: more members than can be numbered.
        StorageError: here and in all methods: no room for scratch files.
    """

    def __init__(self, members: int, most: int) -> None:
        if members >= _NONE:
            raise InputError(
                "too many rows share a key with another row",
                got=f"{members:,}",
                expected=f"fewer than {int(_NONE):,}",
                hint="curate the files in several runs; index= has the rows of earlier ones",
            )
        self.components = self.largest = 0
        self.group_sizes: NDArray[np.int64] = np.zeros(0, np.int64)
        self._most = most
        self._ranges = [(start, min(members, start + most)) for start in range(0, members, most)]
        self._open = ExitStack()
        self._pairs = self._files()
        self._sizes, self._numbers = _File(self._open), _File(self._open)
        self._given: list[int] = []
        self._answers: list[_File] = []
        self._taken: list[int] = []

    def __enter__(self) -> Ranges:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add_sizes(self, sizes: NDArray[np.uint32]) -> None:
        """Add the bytes of the sketches of the next members, uint32 [n]."""
        self._sizes.append(sizes)

    def add(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
        """Add edges between a[i] and b[i], int64 [n]."""
        self._wait(np.minimum(a, b), np.maximum(a, b))

    def group(self, weight: int, group_size: int) -> None:
        """Find the components, and deal them into groups in the order of their smallest members.

        Args:
            weight: bytes of an edge.
            group_size: bytes of the sketches and edges of a group; a component alone may have more.
        """
        self._given = [file.size // _PAIR.itemsize for file in self._pairs]
        weights = self._contract(weight)
        before, asked, group = 0, -1, -1
        for place, (start, stop) in enumerate(self._ranges):
            parents = self._numbers.read(_NUMBER, start, stop)
            of_roots = weights[place].read(_BYTES)
            weights[place].close()
            wanted = (before + np.cumsum(of_roots) - of_roots) // group_size
            before += int(of_roots.sum())
            # Numbers that a large component jumps over are not groups.
            numbers = group + np.cumsum(np.diff(wanted, prepend=asked) != 0)
            if len(numbers):
                asked, group = int(wanted[-1]), int(numbers[-1])
            groups = self._groups_of(parents, place, numbers)
            self._numbers.write(groups, start)
            self.group_sizes = np.append(self.group_sizes, np.zeros(group + 1 - len(self.group_sizes), np.int64))
            np.add.at(self.group_sizes, groups, self._sizes.read(_NUMBER, start, stop).astype(np.int64))
            answers = _File(self._open)
            for pairs in self._pairs[place].blocks(_PAIR):
                answers.append(groups[pairs["high"] - start])
            self._pairs[place].close()
            self._answers.append(answers)
        self._taken = [0] * len(self._answers)

    def between(self, start: int, stop: int) -> NDArray[np.uint32]:
        """Return the groups of members ``[start, stop)``."""
        return self._numbers.read(_NUMBER, start, stop)

    def next(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the groups of the edges that were added next; they are given again, in the same order; uint32 [n]."""
        owner = np.maximum(a, b) // self._most
        order = np.argsort(owner, kind="stable")
        result = np.empty(len(owner), np.uint32)
        at = 0
        for place, count in enumerate(np.bincount(owner, minlength=len(self._answers)).tolist()):
            taken = self._taken[place]
            result[order[at : at + count]] = self._answers[place].read(_NUMBER, taken, taken + count)
            self._taken[place] += count
            at += count
        return result

    def _contract(self, weight: int) -> list[_File]:
        """Write the parent of each member, itself if it has none; return the bytes of the components of each range."""
        carried, weights = self._files(), self._files()
        for place in reversed(range(len(self._ranges))):
            start, stop = self._ranges[place]
            parts, parents, size = self._parts(place, weight)
            rows = np.ones(stop - start, np.int64)
            size += self._sizes.read(_NUMBER, start, stop)
            for some in carried[place].blocks(_CARRIED):
                np.add.at(rows, some["member"] - start, some["rows"])
                np.add.at(size, some["member"] - start, some["bytes"])
            carried[place].close()
            rows, size = _summed(rows, parts), _summed(size, parts)
            roots = np.flatnonzero(parts == np.arange(stop - start, dtype=np.uint32))
            whole = parents[roots] == _NONE
            ends, roots = roots[whole], roots[~whole]
            weights[place].append(size[ends])
            self.components += len(ends)
            self.largest = max(self.largest, int(rows[ends].max(initial=0)))
            some = np.empty(len(roots), _CARRIED)
            some["member"], some["rows"], some["bytes"] = parents[roots], rows[roots], size[roots]
            self._deal(carried, some["member"] // np.uint32(self._most), some)
            parents = parents[parts]
            self._hand_down(place, parents)
            self._numbers.write(np.where(parents == _NONE, parts + np.uint32(start), parents), start)
        return weights

    def _parts(self, place: int, weight: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int64]]:
        """Return the part of each member of a range, a part's parent at its first member, and the bytes of edges."""
        start, stop = self._ranges[place]
        joined = Components(stop - start)
        parents = np.full(stop - start, _NONE, np.uint32)
        size = np.zeros(stop - start, np.int64)
        left = self._given[place]
        for pairs in self._pairs[place].blocks(_PAIR):
            low, high = pairs["low"], pairs["high"] - np.uint32(start)
            # Only edges that were given have a weight.
            np.add.at(size, high[:left], weight)
            left = max(0, left - len(pairs))
            inside = low >= start
            joined.join(low[inside] - np.uint32(start), high[inside])
            np.minimum.at(parents, high[~inside], low[~inside])
        parts = joined.labels()
        np.minimum.at(parents, parts, parents.copy())
        return parts, parents, size

    def _hand_down(self, place: int, parents: NDArray[np.uint32]) -> None:
        """Give lower ranges the edges that leave a range, but for those to the parent; keep those that were given."""
        start, _ = self._ranges[place]
        for pairs in self._pairs[place].blocks(_PAIR):
            pairs = pairs[pairs["low"] < start]
            low, high = parents[pairs["high"] - np.uint32(start)], pairs["low"]
            other = low != high
            codes = distinct(low[other].astype(np.uint64) << np.uint64(32) | high[other])
            self._wait(codes >> np.uint64(32), codes & np.uint64(_NONE))
        self._pairs[place].shorten(self._given[place] * _PAIR.itemsize)

    def _groups_of(self, parents: NDArray[np.uint32], place: int, numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the group of each member of a range, from its parent, and the groups of its components."""
        start, stop = self._ranges[place]
        own = np.zeros(stop - start, np.uint32)
        own[parents == np.arange(start, stop, dtype=np.uint32)] = numbers
        inside = parents >= start
        groups = np.empty(stop - start, np.uint32)
        groups[inside] = own[parents[inside] - np.uint32(start)]
        for first, end in self._ranges[:place]:
            some = np.flatnonzero((parents >= first) & (parents < end))
            if len(some):
                groups[some] = self._numbers.read(_NUMBER, first, end)[parents[some] - np.uint32(first)]
        return groups

    def _wait(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        pairs = np.empty(len(low), _PAIR)
        pairs["low"], pairs["high"] = low, high
        self._deal(self._pairs, pairs["high"] // np.uint32(self._most), pairs)

    def _deal(self, files: list[_File], owner: NDArray[np.uint32], entries: NDArray[Any]) -> None:
        """Append entries to the files of their ranges, in their order."""
        dealt, counts = _native.curate_near_deal(entries.view(np.uint8), np.ascontiguousarray(owner), len(files))
        ends = np.cumsum(counts * entries.itemsize).tolist()
        for file, first, end in zip(files, [0, *ends], ends, strict=False):
            file.append(dealt[first:end])

    def _files(self) -> list[_File]:
        return [_File(self._open) for _ in self._ranges]


def _summed(values: NDArray[np.int64], parts: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the sum of the values of each part, at its first member."""
    result = np.zeros(len(values), np.int64)
    np.add.at(result, parts, values)
    return result


class _File:
    """A scratch file without a name, which closes with ``stack``; there is none before something is written."""

    def __init__(self, stack: ExitStack) -> None:
        self.size = 0
        self._stack = stack
        self._file: IO[bytes] | None = None

    def append(self, values: NDArray[Any]) -> None:
        """Write values at the end."""
        self._put(values, self.size)

    def write(self, values: NDArray[Any], first: int) -> None:
        """Write values in place of those from the entry ``first`` on."""
        self._put(values, first * values.itemsize)

    def read(self, kind: np.dtype[Any], first: int = 0, end: int | None = None) -> NDArray[Any]:
        """Return the entries ``[first, end)``, not to be changed; ``end`` None = all that there are."""
        at, stop = first * kind.itemsize, self.size if end is None else end * kind.itemsize
        result = np.empty((stop - at) // kind.itemsize, kind)
        left = result.view(np.uint8).data
        with translated(str(scratch())):
            while left:
                assert self._file is not None
                done = os.preadv(self._file.fileno(), [left], at)  # one call reads 2 GiB at most
                if not done:
                    raise OSError(errno.EIO, "a scratch file ends early")
                left, at = left[done:], at + done
        return result

    def blocks(self, kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """Yield all entries, some at a time."""
        count = self.size // kind.itemsize
        for first in range(0, count, _BLOCK):
            yield self.read(kind, first, min(count, first + _BLOCK))

    def shorten(self, size: int) -> None:
        """Cut off all bytes from ``size`` on."""
        if size < self.size and self._file is not None:
            os.ftruncate(self._file.fileno(), size)
            self.size = size

    def close(self) -> None:
        """Give its room back; nothing is read any more."""
        if self._file is not None:
            self._file.close()

    def _put(self, values: NDArray[Any], at: int) -> None:
        left = np.ascontiguousarray(values).view(np.uint8).data
        with translated(str(scratch())):
            while left:
                if self._file is None:
                    file = TemporaryFile(dir=scratch(), buffering=0)  # noqa: SIM115
                    self._file = self._stack.enter_context(file)
                done = os.pwrite(self._file.fileno(), left, at)
                left, at = left[done:], at + done
        self.size = max(self.size, at)
