"""Columns of files of attributes: some rows of them, joined into one array each."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from pairmill.engine.content import Content
from pairmill.errors import InputError
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.rows import BATCH_ROWS

_SHOWN: Final = 20


def column_slices(
    uri: str, content: Content, columns: Sequence[str], first: int, rows: int, *, whole: bool
) -> list[pa.Array]:
    """Read rows ``[first, first + rows)`` of columns of a file of attributes; only their row groups are read.

    Args:
        content: what it has to be.
        columns: by name.
        first: number of the first row.
        rows: how many rows there are.
        whole: whether these are all rows of the file, so that another number is an error.
    """
    held: list[pa.RecordBatch] = []
    with open_parquet(uri, content) as parquet:
        schema = parquet.schema_arrow
        for name in columns:
            if name not in schema.names:
                raise no_column(uri, name, schema.names)
        count = parquet.metadata.num_rows
        if count < first + rows or (whole and not first and count != rows):
            raise other_rows(uri, f"{count:,} rows", f"{first + rows:,}")
        start = 0
        for group in range(parquet.metadata.num_row_groups):
            size = parquet.metadata.row_group(group).num_rows
            if start < first + rows and start + size > first:
                low, high = max(first - start, 0), min(first + rows - start, size)
                at = 0
                for batch in parquet_batches(uri, parquet, list(columns), range(group, group + 1), BATCH_ROWS):
                    begin, end = max(low - at, 0), min(high - at, len(batch))
                    if begin < end:
                        held.append(batch.slice(begin, end - begin))
                    at += len(batch)
            start += size
        table = pa.Table.from_batches(held, pa.schema([schema.field(name) for name in columns]).remove_metadata())
    return [combine(table[name]) for name in columns]


def combine(column: pa.ChunkedArray) -> pa.Array:
    """Combine a column into one piece, without a dictionary."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def other_rows(where: str, got: str, expected: str) -> InputError:
    """Make the error for a file of attributes that is of other rows."""
    return InputError(
        "a file of attributes has other rows than its task",
        where=where,
        got=got,
        expected=expected,
        hint="make it again from these rows",
    )


def no_column(uri: str, name: str, names: Sequence[str]) -> InputError:
    """Make the error for a column that a file of attributes lacks."""
    near = get_close_matches(name, names, 1)
    return InputError(
        f"no attribute {name!r}",
        where=uri,
        got=", ".join(names[:_SHOWN]),
        expected=name,
        hint=f"did you mean {near[0]!r}?" if near else "make the attributes of all tasks with the same settings",
    )
