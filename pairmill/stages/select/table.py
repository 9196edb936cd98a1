"""Columns of very many rows, in memory if they are small and else in a scratch file, read and written in parts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.storage.partials import scratch

_HELD: Final = 128 << 20
"""Bytes that memory holds."""


class Table:
    """Columns of ``rows`` values each, zero at first; :func:`open_table` makes one."""

    def __init__(self, rows: int, types: Mapping[str, str], file: int | None) -> None:
        self.rows = rows
        self._types = {name: np.dtype(kind) for name, kind in types.items()}
        self._file = file
        self._starts: dict[str, int] = {}
        self._held: dict[str, NDArray[Any]] = {}
        at = 0
        for name, kind in self._types.items():
            self._starts[name] = at
            at += rows * kind.itemsize
            if file is None:
                self._held[name] = np.zeros(rows, kind)
        if file is not None:
            os.ftruncate(file, at)

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` of a column; not to be changed."""
        if self._file is None:
            return self._held[name][start:stop]
        kind = self._types[name]
        size, at = (stop - start) * kind.itemsize, self._starts[name] + start * kind.itemsize
        parts = []
        while size:
            part = os.pread(self._file, size, at)
            if not part:
                raise OSError("a scratch file ends early")
            parts.append(part)
            size, at = size - len(part), at + len(part)
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), kind)

    def write(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Replace the rows from ``start`` on."""
        if self._file is None:
            self._held[name][start : start + len(values)] = values
            return
        kind = self._types[name]
        left = memoryview(np.ascontiguousarray(values, kind).tobytes())
        at = self._starts[name] + start * kind.itemsize
        while left:
            size = os.pwrite(self._file, left, at)
            left, at = left[size:], at + size


@contextmanager
def open_table(rows: int, types: Mapping[str, str], held: int = _HELD) -> Iterator[Table]:
    """Open a table of these columns.

    Args:
        rows: of each column.
        types: of columns by name, as NumPy names them.
        held: bytes up to which it is in memory.
    """
    if rows * sum(np.dtype(kind).itemsize for kind in types.values()) <= held:
        yield Table(rows, types, None)
        return
    with TemporaryFile(dir=scratch()) as file:
        yield Table(rows, types, file.fileno())
