"""Rows of a file with all their columns, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pairmill.formats import rows
from pairmill.formats.parquet_reader import open_parquet, parquet_batches

_ROWS = 4096
_BYTES = 1 << 20


def read_batches(uri: str, start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a Parquet or JSON Lines file in order, in batches of about 1 MB of text.

    Args:
        uri: of the file.
        start: row groups that end before this row are not read.

    Yields:
        The number of the batch's first row, and the batch.

    Raises:
        InputError: the file is damaged, or a line is not a row.
    """
    first = 0
    if not uri.endswith(".parquet"):
        for batch in rows.read(uri):
            columns = [getattr(batch, name) for name in rows.FIELDS]
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
            yield first, record
            first += len(record)
