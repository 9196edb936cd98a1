"""Single rows of a plan, by epoch and place, without reading the others; also of a plan that adds tasks to another."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.errors import UsageError
from pairmill.formats.opened import OpenResult, RangedTokens, open_result
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER, find_base
from pairmill.formats.tokens import INDEX, Array

Ints = NDArray[np.int64]

_PLACES = "places_{}"
_AT_ONCE: Final = 1 << 9
"""Rows that are looked up in a mapped array before its pages are given back: each page may bring 64 KiB into memory."""


class PlanRows:
    """The rows of a plan. A row's number is counted through all tasks in the plan's order.

    Args:
        result: a plan.

    Attributes:
        base: of the plan that it adds to; None = it adds to none.
        count: rows that are taken, those of the base included.
    """

    def __init__(self, result: OpenResult) -> None:
        self._plan = result
        base = find_base(result.uri, result.manifest) if result.manifest is not None else None
        self.base = PlanRows(open_result(base.uri)) if base is not None else None
        self.index = [result.plan_array(name) for name in INDEX]
        self._first = self.base.count if self.base is not None else 0
        self.count: int = self._first + len(self.index[0])
        self._files: dict[str, RangedTokens] = {}

    def __iter__(self) -> Iterator[PlanRows]:
        """Yield the plans that it is of, each with what it adds alone."""
        if self.base is not None:
            yield from self.base
        yield self

    @cached_property
    def tasks(self) -> list[tuple[str, int, int]]:
        """Names of tasks, and the numbers of the first of its rows and of the row after the last; a name may come
        again."""
        assert self._plan.manifest is not None
        sizes = [(item["name"], item["rows"]) for item in SampleResult.from_manifest(self._plan.manifest).sources]
        ends = np.cumsum([rows for _, rows in sizes]).tolist()
        return [(name, end - rows, end) for (name, rows), end in zip(sizes, ends, strict=True)]

    def task_of(self, row: int) -> str:
        """Return the task of a row."""
        ends = [end for *_, end in self.tasks]
        return self.tasks[min(int(np.searchsorted(ends, row, "right")), len(ends) - 1)][0]

    def order(self, epoch: int) -> NDArray[np.uint32]:
        """Return what it adds to an epoch, as places in :attr:`index`, in training order; uint32 [rows].

        Raises:
            UsageError: there is no such epoch.
        """
        self._check(epoch)
        return self._plan.plan_array(f"epoch_{epoch}")

    def length(self, epoch: int) -> int:
        """Return the rows of an epoch."""
        self._check(epoch)
        return sum(len(part.file(f"epoch_{epoch}")) for part in self)

    def at(self, epoch: int, place: int) -> int:
        """Return the number of the row at a place of an epoch."""
        return int(self.numbers(epoch, place, place + 1)[0])

    def numbers(self, epoch: int, start: int, stop: int) -> NDArray[np.uint32]:
        """Return the numbers of the rows at places of an epoch, uint32 [stop - start]; nothing is mapped."""
        order = self.file(f"epoch_{epoch}")
        if self.base is None:
            return order[start:stop].astype(np.uint32, copy=False)
        places = self._plan.plan_array(_PLACES.format(epoch))
        low, high = (search(places, at, "left") for at in (start, stop))
        kept = np.ones(stop - start, bool)
        kept[places[low:high] - np.uint32(start)] = False
        result = np.empty(stop - start, np.uint32)
        result[~kept] = order[low:high] + np.uint32(self._first)
        result[kept] = self.base.numbers(epoch, start - low, stop - high)
        return result

    def columns(self, rows: NDArray[np.uint32]) -> list[Ints]:
        """Return start and length of the instruction and of the response of rows, in their tasks' tokens.

        Returns:
            int64 [rows], in the order of ``INDEX``.
        """
        mine = rows >= self._first
        taken = [_gather(values, rows[mine] - np.uint32(self._first)) for values in self.index]
        if self.base is None or mine.all():
            return taken
        result = [np.empty(len(rows), np.int64) for _ in INDEX]
        for out, own, under in zip(result, taken, self.base.columns(rows[~mine]), strict=True):
            out[mine], out[~mine] = own, under
        return result

    def rows_between(self, rows: tuple[int, int], first: int, end: int) -> range:
        """Return which of some rows of one task have responses that begin between two of its tokens.

        Args:
            rows: numbers of the first and after the last, as in :attr:`tasks`.
            first, end: of the task's tokens, the first and the one after the last.
        """
        if self.base is not None and rows[1] <= self._first:
            return self.base.rows_between(rows, first, end)
        starts = self.index[2][rows[0] - self._first : rows[1] - self._first]
        low, high = (rows[0] + search(starts, at, "left") for at in (first, end))
        return range(low, high)

    def spans(self, row: int) -> list[int]:
        """Return start and length of the instruction and of the response of a row, in its task's tokens."""
        return [int(values[0]) for values in self.columns(np.array([row], np.uint32))]

    def file(self, name: str) -> RangedTokens:
        """Return an array of this plan alone, of which slices are read, and none is mapped."""
        if name not in self._files:
            uri = storage.join(self._plan.uri, FOLDER.rstrip("/"), f"{name}.npy")
            self._files[name] = RangedTokens([Array.open(uri)])
        return self._files[name]

    def _check(self, epoch: int) -> None:
        if not 0 <= epoch < self._plan.epochs:
            expected = f"0 to {self._plan.epochs - 1}"
            raise UsageError("no such epoch", where=f"epoch of {self._plan.uri}", got=str(epoch), expected=expected)


def search(values: NDArray[Any], value: int, side: Literal["left", "right"]) -> int:
    """Return where a number belongs in ascending ones of any type, of which no copy is made."""
    most = int(np.iinfo(values.dtype).max)
    return len(values) if value > most else int(np.searchsorted(values, values.dtype.type(value), side))


def last_not_above(values: NDArray[Any], wanted: Ints) -> Ints:
    """Return for each number the place of the last of ascending values that is not above it, int64; -1 = none is."""
    return _by_pieces(values, wanted, lambda some: np.searchsorted(values, some.astype(values.dtype), "right") - 1)


def _gather(values: NDArray[Any], rows: NDArray[np.uint32]) -> Ints:
    return _by_pieces(values, rows, lambda some: values[some])


def _by_pieces(values: NDArray[Any], wanted: NDArray[Any], look: Callable[[NDArray[Any]], NDArray[Any]]) -> Ints:
    """Look up some numbers at a time in an array, and give its pages back after each time if it is mapped."""
    mapped = getattr(values, "_mmap", None)
    result = np.empty(len(wanted), np.int64)
    for first in range(0, len(wanted), _AT_ONCE):
        result[first : first + _AT_ONCE] = look(wanted[first : first + _AT_ONCE])
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)
    return result
