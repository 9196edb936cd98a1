"""Attributes of rows: typed columns in a file of their own beside a task's rows, one value a row (docs/format.md).

A row group of such a file has the rows of one row group of the task's file. Any value may be null.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.errors import PairmillError, UsageError, nearest_name

FOLDER: Final = "attributes"
"""Of a finished folder."""
TYPES: Final = ("text", "integer", "number", "boolean", "date", "texts")
"""A date is a time in UTC to the microsecond, texts are a list."""

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us", "UTC"),
    "texts": pa.list_(pa.string()),
}
_SHOWN = 20
# Least and greatest values help to choose by them; of texts they would only be long.
_ORDERED = ("integer", "number", "date")


def path_of(task: str, operation: str = "source") -> str:
    """Return path of a task's attributes below a finished folder; ``source`` is what the data set itself says of its
    rows."""
    return f"{FOLDER}/{operation}/{task}.parquet"


def unknown(
    what: str,
    name: str,
    where: str,
    offered: Iterable[str],
    otherwise: str = "",
    error: type[PairmillError] = UsageError,
) -> PairmillError:
    """Return the error for an attribute that does not exist.

    Args:
        what: what is wrong.
        name: ``<operation>.<column>``, as it was given.
        where: it was given.
        offered: the attributes that exist; those of the operation, or of one with the column's name, are shown first.
        otherwise: the hint if none is spelled like it.
        error: its class.
    """
    parts = name.split(".", 1)
    shown = sorted(offered, key=lambda column: column.partition(".")[0] not in parts)
    first = [column for column in shown if column.partition(".")[0] in parts]
    near = nearest_name(name, first) or nearest_name(name, shown) or (first[0] if len(first) == 1 else None)
    more = f" and {len(shown) - _SHOWN:,} more" if len(shown) > _SHOWN else ""
    return error(
        what,
        where=where,
        got=name,
        expected=", ".join(shown[:_SHOWN]) + more or "attributes beside the rows, of which there are none",
        hint=otherwise if near is None else f"write {near}",
    )


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """Return the columns of attributes, given their types by name."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])


def ordered(schema: pa.Schema) -> list[str]:
    """Return the columns of which row groups say the least and the greatest value."""
    kinds = [_ARROW[kind] for kind in _ORDERED]
    return [column.name for column in schema if column.type in kinds]


def table_of(types: Mapping[str, str], values: Sequence[Sequence[Any]]) -> pa.Table:
    """Return the attributes of rows: of each row its values in the order of ``types``."""
    schema = schema_of(types)
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


class AttributesWriter:
    """Writes a file of attributes; each ``write`` makes a row group.

    Args:
        file: open for writing; the caller closes it.
        types: by name, in the order of the columns.
    """

    def __init__(self, file: BinaryIO, types: Mapping[str, str]) -> None:
        schema = schema_of(types)
        self._writer = pq.ParquetWriter(
            file, schema, compression="zstd", version="2.6", write_statistics=ordered(schema)
        )

    def write(self, table: pa.Table) -> None:
        """Append rows as one row group."""
        if len(table):
            self._writer.write_table(table, row_group_size=len(table))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
