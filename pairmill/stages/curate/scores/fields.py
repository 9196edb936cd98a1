"""The texts of rows that a model looks at."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from pairmill.formats import rows

Field: TypeAlias = Literal["instruction", "response", "both"]

PREFIX: Final[Mapping[str, str]] = {"instruction": "i", "response": "r", "both": "p"}
"""How the columns of attributes begin."""


def texts_of(batch: rows.Batch, field: Field) -> list[str]:
    """Return the texts of a field; of both, instruction and response with a line feed between them."""
    columns = [column.to_pylist() for column in columns_of(batch, field)]
    return columns[0] if len(columns) == 1 else ["\n".join(pair) for pair in zip(*columns, strict=True)]


def columns_of(batch: rows.Batch, field: Field) -> list[pa.Array]:
    """Return the columns of a field."""
    return [batch.instruction, batch.response] if field == "both" else [getattr(batch, field)]
