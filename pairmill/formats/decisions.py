"""Decisions on rows: what an operation found, in a file beside a task's rows (docs/format.md).

A file has only the rows with a finding, by ordinal. A decision can be checked from the two rows that it names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.errors import InputError
from pairmill.formats.parquet_reader import open_parquet

_NAME: Final = pa.dictionary(pa.int32(), pa.string())

SCHEMA: Final = pa.schema(
    [
        pa.field("ordinal", pa.uint32(), nullable=False),
        pa.field("rule", _NAME, nullable=False),
        pa.field("action", _NAME, nullable=False),
        ("other_task", _NAME),
        ("other_ordinal", pa.uint32()),
        ("benchmark", _NAME),
        ("item", pa.string()),
        ("score_i", pa.float32()),
        ("score_r", pa.float32()),
        ("detail", pa.string()),
    ]
)
"""``ordinal`` is the row's number in its file, from 0; ``other_…`` is the kept row that it repeats; ``score_i`` and
``score_r`` are the scores of instruction and response, whose meaning is the rule's."""

ACTIONS: Final = ("drop", "report", "cap", "redact")


def path_of(operation: str, task: str) -> str:
    """Return path of a task's decisions below a finished folder."""
    return f"decisions/{operation}/{task}.parquet"


def table_of(columns: Mapping[str, Sequence[Any] | pa.Array], rows: int) -> pa.Table:
    """Return a table of decisions; columns that are not given are null.

    Args:
        columns: by name, each of ``rows`` values: an Arrow or NumPy array, or Python values.
        rows: how many decisions there are.
    """
    made = []
    for field in SCHEMA:
        values = columns.get(field.name)
        made.append(pa.nulls(rows, field.type) if values is None else _array(values, field.type))
    return pa.table(made, SCHEMA)


def _array(values: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values, kind.value_type if kind == _NAME else kind)
    if array.type == kind:
        return array
    return array.dictionary_encode().cast(kind) if kind == _NAME else array.cast(kind)


def empty() -> pa.Table:
    """Return no decision."""
    return table_of({}, 0)


def names_of(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different texts of a dictionary column, and the number of each row's; -1 is null."""
    if not len(column):
        return [], np.empty(0, np.int64)
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    codes: NDArray[np.int64] = array.indices.fill_null(-1).to_numpy().astype(np.int64)
    return array.dictionary.to_pylist(), codes


def write(path: Path, table: pa.Table) -> None:
    """Write decisions to a local file."""
    pq.write_table(table, path, compression="zstd", version="2.6")


def read(uri: str) -> pa.Table:
    """Return the decisions of a file.

    Raises:
        InputError: it is not a file of decisions.
    """
    with open_parquet(uri) as file:
        table = file.read(use_threads=False)
    if table.schema.names != SCHEMA.names:
        got, expected = ", ".join(table.schema.names), ", ".join(SCHEMA.names)
        raise InputError("not a file of decisions", where=uri, got=got, expected=expected)
    return table
