"""Limits of memory: the longest record, and the bytes of a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.engine.options import EXPANSION as EXPANSION
from pairmill.engine.options import RECORD_BYTES as RECORD_BYTES
from pairmill.errors import InputError

BATCH_BYTES = 16 << 20
"""Decoded bytes of a batch, unless a single record is longer."""
EXPANDED_BYTES = 256 << 20
"""Bytes of records that any file may have."""
PAGE_RECORDS = 4
"""A page of Parquet, which is decompressed as a whole, may have the bytes of this many longest records."""
_HINT = (
    "shorten the record, or raise max_record_bytes=, which takes several times as much memory; clean puts it aside "
    "with on_long_record=reject"
)


class TooLong(InputError):
    """A record has more bytes than it may have."""


def too_long(where: str, most: int, what: str = "a record", got: str = "") -> TooLong:
    """Return the error for a record of more than ``most`` bytes at ``where`` (file and row)."""
    return TooLong(
        f"{what} is longer than max_record_bytes", where=where, got=got, expected=f"at most {most} bytes", hint=_HINT
    )


class Expansion:
    """Counts what a file expands to, so that a small file cannot fill a disk.

    Args:
        stored: tells its bytes, or those of the part of it that is read; it is asked if there are many records.
        times: the most bytes of records for each of them.
    """

    def __init__(self, where: str, stored: Callable[[], int], times: int) -> None:
        self._where, self._stored, self._times = where, stored, times
        self._most, self._made = EXPANDED_BYTES, 0

    def add(self, size: int) -> None:
        """Count bytes of records. Raises InputError if they are too many."""
        self._made += size
        if self._made > self._most:
            self._refuse_or_go_on()

    def _refuse_or_go_on(self) -> None:
        stored = self._stored()
        self._most = max(EXPANDED_BYTES, self._times * stored)
        if self._made > self._most:
            raise InputError(
                "the records are much longer than their file",
                where=self._where,
                got=f"more than {self._most:,} bytes of {stored:,}",
                expected=f"at most {self._times:,} times as many, max_expansion, or {EXPANDED_BYTES:,}",
                hint="raise max_expansion= if this is the file that was meant",
            )


def is_longer(text: str, most: int) -> bool:
    """Return whether a text has more than ``most`` bytes of UTF-8."""
    if len(text) > most or text.isascii():
        return len(text) > most
    # A character has at most four bytes.
    return 4 * len(text) > most and len(text.encode("utf-8", "surrogatepass")) > most


def record_bytes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the decoded bytes of each row of a batch, shape (rows,)."""
    return _sum(batch.columns, len(batch))


def _sum(columns: Sequence[pa.Array], rows: int) -> NDArray[np.int64]:
    result = np.zeros(rows, np.int64)
    for column in columns:
        result += row_bytes(column)
    return result


def row_bytes(column: pa.Array) -> NDArray[np.int64]:
    """Return the decoded bytes of each value of a column, shape (rows,); nested values count."""
    kind = column.type
    rows = len(column)
    if isinstance(column, pa.ExtensionArray):
        return row_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        entries = np.append(row_bytes(column.dictionary), 0)
        indices = column.indices.fill_null(len(entries) - 1) if column.indices.null_count else column.indices
        return np.take(entries, np.asarray(indices))
    if pa.types.is_struct(kind):
        # flatten() respects the slice and the nulls of the struct.
        return _sum(column.flatten(), rows)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = np.asarray(column.offsets).astype(np.int64)
        values = _values(column)
        ends = np.concatenate(([0], np.cumsum(row_bytes(values.slice(offsets[0], offsets[-1] - offsets[0])))))
        result: NDArray[np.int64] = np.diff(ends[offsets - offsets[0]])
        return result
    if pa.types.is_fixed_size_list(kind):
        if column.null_count or not rows:
            return _even(column)
        return row_bytes(column.flatten()).reshape(rows, -1) @ np.ones(len(column.flatten()) // rows, np.int64)
    if any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_binary)):
        return _lengths(column, np.int32)
    if any(is_kind(kind) for is_kind in (pa.types.is_large_string, pa.types.is_large_binary)):
        return _lengths(column, np.int64)
    return _even(column)


def _values(column: Any) -> Any:
    if pa.types.is_map(column.type):
        return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    return column.values


def _lengths(column: pa.Array, kind: type[np.integer[Any]]) -> NDArray[np.int64]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), np.int64)
    return np.diff(np.frombuffer(buffer, kind, len(column) + 1, column.offset * np.dtype(kind).itemsize)).astype(
        np.int64
    )


def _even(column: pa.Array) -> NDArray[np.int64]:
    """Values of one width, or of a rare type, taken for that."""
    return np.full(len(column), column.nbytes // len(column) if len(column) else 0, np.int64)


def stretches(sizes: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Split rows into consecutive (start, length) of at most ``most`` bytes; a longer row is one of its own."""
    ends = np.cumsum(sizes)
    result = []
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        result.append((start, stop - start))
        start, before = stop, int(ends[stop - 1])
    return result
