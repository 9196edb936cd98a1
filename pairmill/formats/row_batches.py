"""Rows of a file with all their columns, as Arrow batches."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.formats import rows
from pairmill.formats.parquet_reader import open_parquet, parquet_batches

_ROWS = 4096
_BYTES = 1 << 20


def read_batches(uri: str, start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a Parquet or JSON Lines file in order, in batches of about 1 MB of text.

    Their columns are condition, instruction and response, then all others by name; texts are of the type string.

    Args:
        start: row groups that end before this row are not read.

    Yields:
        The number of the batch's first row, and the batch.

    Raises:
        InputError: the file is damaged, or a line is not a row.
    """
    first = 0
    if not uri.endswith(".parquet"):
        for batch in rows.read(uri):
            columns = [_as_string(getattr(batch, name)) for name in rows.FIELDS]
            yield batch.start, pa.RecordBatch.from_arrays(columns, names=list(rows.FIELDS))
        return
    with open_parquet(uri) as file:
        group = 0
        while group < file.metadata.num_row_groups:
            size = file.metadata.row_group(group).num_rows
            if first + size > start:
                break
            first, group = first + size, group + 1
        groups = range(group, file.metadata.num_row_groups)
        for record in parquet_batches(uri, file, None, groups, most=_ROWS, size=_BYTES):
            names = sorted(record.schema.names, key=lambda name: (name not in rows.FIELDS, name))
            columns = [_as_string(record.column(name)) for name in names]
            yield first, pa.RecordBatch.from_arrays(columns, names=names)
            first += len(record)


def _as_string(column: pa.Array) -> pa.Array:
    """Return a column of large_string as one of string, so that batches of all files go into one table."""
    if not pa.types.is_large_string(column.type):
        return column
    if column.null_count:
        return column.cast(pa.string())
    offsets = rows.text_offsets(column).astype(np.int32)
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), column.buffers()[2])


def first_lengths(uri: str, most: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield bytes of instructions and of responses of the first rows of a file, int64 [rows], batch by batch."""
    count = 0
    for batch in rows.read(uri):
        for name in ("instruction", "response"):
            yield name, rows.text_lengths(getattr(batch, name))
        count += len(batch)
        if count >= most:
            return


def count_rows(uri: str) -> int:
    """Return the rows of a file."""
    return rows.count(uri)
