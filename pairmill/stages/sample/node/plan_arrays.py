"""Arrays of a plan, which are read in order: in memory, in a file, or put together of a base's and of what is added."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.digest import digest_file
from pairmill.errors import InternalError
from pairmill.formats.tokens import Array, header

HEADER_BYTES = 128
"""Of the header of a one-dimensional ``.npy``."""
_PIECE = 1 << 17


class Values(ABC):
    """A one-dimensional array that is read in order.

    Attributes:
        dtype: of the values.
        folder: of the file that they are in; None if they are in none, or in several.
    """

    dtype: np.dtype[Any]
    folder: Path | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, at most ``size`` at a time."""

    @cached_property
    def max(self) -> int:
        """The largest value; 0 if there is none. All are read for it, once."""
        return max((int(piece.max()) for piece in self.pieces()), default=0)

    def array(self) -> NDArray[Any]:
        """Return all values, for random access."""
        return np.concatenate([np.empty(0, self.dtype), *self.pieces()])

    def replaced(self, pieces: Iterable[NDArray[Any]], length: int) -> PlanArray:
        """Return an array of other values of this type: in memory, or in a file beside where this is in one."""
        if self.folder is None:
            return PlanArray(np.concatenate([np.empty(0, self.dtype), *pieces]))
        handle, path = tempfile.mkstemp(".npy", dir=self.folder)
        with os.fdopen(handle, "wb") as file:
            file.write(header(self.dtype, length))
            for piece in pieces:
                file.write(np.ascontiguousarray(piece, self.dtype).data)
        return PlanArray(Path(path), keep=self)

    def part(self, first: int, stop: int) -> NDArray[Any]:
        """Return the values from ``first`` on and before ``stop``."""
        return self.array()[first:stop]

    def save(self, path: Path) -> None:
        """Write the array as an ``.npy``."""
        with path.open("wb") as file:
            file.write(header(self.dtype, len(self)))
            for piece in self.pieces():
                file.write(piece.data)


class PlanArray(Values):
    """A one-dimensional array of a plan: in memory, or an ``.npy`` on this machine.

    Args:
        values: the array, or the path of its file.
        keep: is kept as long as this is, as the folder of a scratch file.
    """

    def __init__(self, values: NDArray[Any] | Path, keep: object = None) -> None:
        self._file = values if isinstance(values, Path) else None
        self.folder = self._file.parent if self._file is not None else None
        self._values = np.load(values, mmap_mode="r") if isinstance(values, Path) else values
        self._open = values.open("rb", 0) if isinstance(values, Path) else None
        self._keep = keep
        self.dtype: np.dtype[Any] = self._values.dtype

    def __len__(self) -> int:
        return len(self._values)

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, at most ``size`` at a time; those of a file are not kept in memory."""
        for first in range(0, len(self), size):
            yield self.part(first, min(first + size, len(self)))

    def part(self, first: int, end: int) -> NDArray[Any]:
        """Return some values; those of a file are not kept in memory."""
        if self._open is None:
            return self._values[first:end]
        data = bytearray((end - first) * self.dtype.itemsize)
        if os.preadv(self._open.fileno(), [data], HEADER_BYTES + first * self.dtype.itemsize) != len(data):
            raise InternalError("a file of the plan became shorter", where=str(self._file))
        return np.frombuffer(data, self.dtype)

    def array(self) -> NDArray[Any]:
        """Return all values, for random access; those of a file are mapped."""
        return self._values

    def save(self, path: Path) -> None:
        """Write the array as an ``.npy``; a file that is on the same file system becomes this one."""
        if self._file is not None:
            with suppress(OSError):
                os.replace(self._file, path)
                return
        super().save(path)


class StoredArray(Values):
    """An array of a finished plan that is read where it is, and not held.

    When all of it was read, it is compared with what its manifest promises; Changed is raised then.
    """

    def __init__(self, array: Array) -> None:
        self._array = array
        self.dtype = array.dtype

    def __len__(self) -> int:
        return self._array.length

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        return self._array.pieces(size)

    def array(self) -> NDArray[Any]:
        """Return all values, for random access; those of a file of this machine are mapped."""
        place = storage.store_for(self._array.uri).file(self._array.uri)
        if place is None:
            return super().array()
        self._array.content.require(self._array.uri, digest_file(place, like=self._array.content.digest))
        mapped: NDArray[Any] = np.load(place, mmap_mode="r")
        return mapped

    def part(self, first: int, stop: int) -> NDArray[Any]:
        array, width = self._array, self.dtype.itemsize
        data = storage.store_for(array.uri).read_range(array.uri, array.offset + first * width, (stop - first) * width)
        return np.frombuffer(data, self.dtype)


class JoinedArray(Values):
    """One array after another, in a type that holds both."""

    def __init__(self, first: Values, second: Values) -> None:
        self._both = first, second
        self.dtype = np.promote_types(first.dtype, second.dtype)
        self.folder = second.folder

    def __len__(self) -> int:
        return sum(map(len, self._both))

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, each time ``size`` but at the end: columns that are joined keep in step."""
        left = np.empty(0, self.dtype)
        for values in self._both:
            for piece in values.pieces(size):
                whole = np.concatenate([left, piece], dtype=self.dtype)
                if len(whole) >= size:
                    yield whole[:size]
                left = whole[size:] if len(whole) >= size else whole
        if len(left):
            yield left

    def part(self, first: int, stop: int) -> NDArray[Any]:
        under, added = self._both
        edge = len(under)
        parts = [under.part(min(first, edge), min(stop, edge)), added.part(max(first - edge, 0), max(stop - edge, 0))]
        return np.concatenate(parts, dtype=self.dtype)


class NewRows(Values):
    """A column of the rows that a plan adds to its parent's.

    Args:
        column: of all rows that were drawn.
        numbers: of each of them in the plan; uint32.
        first: the number of the first added row, after those of the parent.
        count: of added rows.
    """

    def __init__(self, column: Values, numbers: NDArray[np.uint32], first: int, count: int) -> None:
        self._column, self._numbers, self._first, self._count = column, numbers, first, count
        self.dtype, self.folder = column.dtype, column.folder

    def __len__(self) -> int:
        return self._count

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, at most ``size`` at a time: columns of the same rows keep in step."""
        place = 0
        for piece in self._column.pieces(size):
            mine = piece[self._numbers[place : place + len(piece)] >= self._first]
            place += len(piece)
            if len(mine):
                yield mine


class RenumberedArray(Values):
    """An epoch in the numbers that its rows have in another plan.

    Args:
        order: the epoch; uint32.
        numbers: of each row there; uint32.
    """

    def __init__(self, order: Values, numbers: NDArray[np.uint32]) -> None:
        self._order, self._numbers = order, numbers
        self.dtype = numbers.dtype

    def __len__(self) -> int:
        return len(self._order)

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, at most ``size`` at a time."""
        for piece in self._order.pieces(size):
            yield self._numbers[piece]


class MergedArray(Values):
    """An epoch of a base with rows added.

    Args:
        base: its epoch.
        added: the added rows in their order, as positions among themselves; uint32.
        places: where they come in the epoch, ascending; uint32.
        first: the number of the first added row, after those of the base.
    """

    def __init__(self, base: Values, added: Values, places: Values, first: int) -> None:
        self._base, self._added, self._places, self._first = base, added, places, np.uint32(first)
        self.dtype = base.dtype

    def __len__(self) -> int:
        return len(self._base) + len(self._added)

    def pieces(self, size: int = _PIECE) -> Iterator[NDArray[Any]]:
        """Yield all values in order, ``size`` at a time."""
        base, added, places = (_Reader(values) for values in (self._base, self._added, self._places))
        for begin in range(0, len(self), size):
            end = min(begin + size, len(self))
            here = places.take_below(end, end - begin) - np.uint32(begin)
            result, kept = np.empty(end - begin, self.dtype), np.ones(end - begin, bool)
            kept[here] = False
            result[here] = added.take(len(here)) + self._first
            result[kept] = base.take(end - begin - len(here))
            yield result


class _Reader:
    """Takes values from the front of an array, which is read a piece at a time."""

    def __init__(self, values: Values) -> None:
        self._pieces, self._held = values.pieces(), np.empty(0, values.dtype)

    def take(self, count: int) -> NDArray[Any]:
        """Take this number of values; fewer if there are no more."""
        parts, size = [self._held], len(self._held)
        while size < count and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            size += len(piece)
        held = np.concatenate(parts) if len(parts) > 1 else self._held
        self._held = held[count:]
        return held[:count]

    def take_below(self, end: int, most: int) -> NDArray[Any]:
        """Take the values below ``end``, at most this number, of ascending ones."""
        held = self.take(most)
        count = int(np.searchsorted(held, end))
        self._held = np.concatenate([held[count:], self._held])
        return held[:count]
