"""Columns of very many rows, in memory if they are small and else in a scratch file, read and written in parts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.storage.partials import scratch

_HELD: Final = 128 << 20
"""Bytes that memory holds."""


class Table:
    """Columns of ``rows`` values each, zero at first; :func:`open_table` makes one."""

    def __init__(self, rows: int, types: Mapping[str, str], file: BinaryIO | None) -> None:
        self.rows = rows
        self._types = {name: np.dtype(kind) for name, kind in types.items()}
        self._file = file
        sizes = [rows * kind.itemsize for kind in self._types.values()]
        self._starts = dict(zip(types, accumulate(sizes, initial=0), strict=False))
        self._held = {name: np.zeros(rows, kind) for name, kind in self._types.items() if file is None}
        if file is not None:
            file.truncate(sum(sizes))

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` of a column; not to be changed."""
        if self._file is None:
            return self._held[name][start:stop]
        kind = self._types[name]
        self._file.seek(self._starts[name] + start * kind.itemsize)
        values: NDArray[Any] = np.fromfile(self._file, kind, stop - start)
        if len(values) != stop - start:
            raise OSError("a scratch file ends early")
        return values

    def write(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Replace the rows from ``start`` on."""
        if self._file is None:
            self._held[name][start : start + len(values)] = values
            return
        kind = self._types[name]
        self._file.seek(self._starts[name] + start * kind.itemsize)
        self._file.write(np.ascontiguousarray(values, kind).tobytes())


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
        yield Table(rows, types, file)
