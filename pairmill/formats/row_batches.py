"""Rows of a file with all their columns, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pairmill.formats import rows
from pairmill.formats.parquet_reader import open_parquet, parquet_batches

_ROWS = 4096
_BYTES = 1 << 20


def read_batches(uri: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet or JSON Lines file in order, in batches of about 1 MB of text.

    Raises:
        InputError: the file is damaged, or a line is not a row.
    """
    if uri.endswith(".parquet"):
        with open_parquet(uri) as file:
            yield from parquet_batches(uri, file, None, most=_ROWS, size=_BYTES)
        return
    for batch in rows.read(uri):
        columns = [getattr(batch, name) for name in rows.FIELDS]
        yield pa.RecordBatch.from_arrays(columns, names=list(rows.FIELDS))
