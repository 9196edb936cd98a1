"""What attributes say of rows: who is within the bounds, what is scored, and in which group each row is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import arrow_compute as pc
from pairmill.engine.inputs import InputFile
from pairmill.errors import InputError, UsageError
from pairmill.formats.attributes import unknown
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.row_files import ORIGIN
from pairmill.rowstage import Rows, Slice, Task
from pairmill.stages.select import sidecar
from pairmill.stages.select.settings import Bound, Settings
from pairmill.stages.select.sidecar import SIDECAR

ROW: Final = "row"
SOURCE: Final = "source"
"""What a data set itself says of its rows."""
CONDITION: Final = "row.condition"
"""The one column of the rows themselves that can be read."""
_UNKNOWN: Final = "no such attribute beside the rows"
_HINT: Final = "curate makes attributes; sidecar: names a folder with your own"
_YEAR: Final = 365.2425 * 86_400_000_000
"""Microseconds."""


@dataclass(frozen=True)
class AttributeValues:
    """Attributes of consecutive rows.

    Args:
        passes: whether the row is within all bounds of ``attributes.where``; bool [rows].
        values: of ``attributes.score``, in its order; NaN = null. float64 [terms, rows]. A date is its age in years.
        groups: codes into ``names``; int32 [rows]. All 0 without group_by.
        names: of the groups that occur; [""] without group_by.
    """

    passes: NDArray[np.bool_]
    values: NDArray[np.float64]
    groups: NDArray[np.int32]
    names: list[str]


@dataclass(frozen=True)
class AttributeQuery:
    """Attributes that are read.

    Args:
        where: bounds of candidates.
        terms: attributes that are scored.
        group_by: attribute whose values are the groups; empty = one group.
        edges: of groups of a number, ascending.
        reference: from which ages of dates are counted, microseconds since 1970; None = no date is read.
    """

    where: tuple[Bound, ...]
    terms: tuple[str, ...]
    group_by: str
    edges: tuple[float, ...]
    reference: int | None

    @classmethod
    def from_settings(cls, settings: Settings) -> AttributeQuery:
        """Read nothing that the method does not use."""
        own = settings.attributes
        where = tuple(own.where) if settings.selector.where else ()
        day = settings.reference_date
        reference = (
            None if day is None else int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1_000_000
        )
        if not settings.selector.score:
            return cls(where, (), "", (), reference)
        terms = tuple(term.attribute for term in own.score)
        return cls(where, terms, own.group_by or "", tuple(own.edges or ()), reference)

    @property
    def names(self) -> list[str]:
        """Attributes that are read, each once."""
        names = [*(bound.attribute for bound in self.where), *self.terms, *filter(None, [self.group_by])]
        return list(dict.fromkeys(names))

    @property
    def operations(self) -> set[str]:
        """Operations whose files are read."""
        operations = {name.partition(".")[0] for name in self.names} - {ROW}
        # A sidecar is joined by the ordinals that rows had at first.
        return operations | ({ORIGIN} if SIDECAR in operations else set())

    def refuse_unknown(self, rows: Rows) -> None:
        """Compare the query with the files; of each operation the columns of one file are read.

        What a data set says of its rows (``source``) is different for each: one that lacks an attribute has nulls.

        Raises:
            UsageError: no file has the attribute, or it has the wrong type.
            InputError: a task lacks the file of an operation that others have.
        """
        if CONDITION not in self.names and any(name.startswith(f"{ROW}.") for name in self.names):
            wrong = next(name for name in self.names if name.startswith(f"{ROW}."))
            raise UsageError("rows have one such column", where=self._place(wrong), got=wrong, expected=CONDITION)
        operations = {name for task in rows.training for name in task.beside}
        columns: dict[str, pa.Schema] = {}
        for name in self.names:
            operation, _, column = name.partition(".")
            if operation == ROW:
                self._check(name, pa.string())
                continue
            if operation not in operations:
                raise unknown(_UNKNOWN, name, self._place(name), _list_offered(rows, operations), _HINT)
            if operation not in columns and operation == SOURCE:
                columns[operation] = _merge_source_schemas(rows)
            if operation not in columns:
                lacking = next((task for task in rows.training if operation not in task.beside), None)
                if lacking is not None:
                    raise _missing(operation, lacking.name, lacking.beside)
                columns[operation] = _read_schema(rows.training[0].beside[operation], operation)
            schema = columns[operation]
            if column not in schema.names:
                offered = [f"{operation}.{column}" for column in schema.names]
                raise unknown(_UNKNOWN, name, self._place(name), offered, _HINT)
            self._check(name, schema.field(column).type)

    def _place(self, name: str) -> str:
        """Name the setting that an attribute is in."""
        if any(bound.attribute == name for bound in self.where):
            return "attributes.where"
        return "attributes.score" if name in self.terms else "attributes.group_by"

    def _check(self, name: str, kind: pa.DataType) -> None:
        """Raise UsageError if an attribute of this type cannot be what it is read for."""
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_null(kind):  # a column of which no row has a value
            return
        number = is_number(kind)
        date = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        if date and self.reference is None:
            raise UsageError(
                "the age of a date needs a day from which it is counted",
                where="reference_date",
                got="null",
                expected="YYYY-MM-DD",
                hint=f"{name} is a date",
            )
        if name in self.terms and not (number or date):
            raise UsageError("not a number or a date", where="attributes.score", got=f"{name}: {kind}")
        for bound in self.where:
            if bound.attribute != name:
                continue
            if (bound.min is not None or bound.max is not None) and not (number or date):
                raise UsageError(
                    "not a number or a date", where="attributes.where", got=f"{name}: {kind}", expected="in: [value, …]"
                )
            _values(bound, kind)
        if name == self.group_by:
            if self.edges and not (number or date):
                raise UsageError("not a number or a date", where="attributes.group_by", got=f"{name}: {kind}")
            if not self.edges and (date or pa.types.is_floating(kind)):
                raise UsageError(
                    "each value would be a group of its own",
                    where="attributes.group_by",
                    got=f"{name}: {kind}",
                    expected="edges: [number, …]",
                )
            if pa.types.is_list(kind):
                raise UsageError("a row has several", where="attributes.group_by", got=f"{name}: {kind}")


def read(query: AttributeQuery, piece: Slice, rows: int) -> AttributeValues:
    """Read the attributes of the rows of a slice.

    Args:
        query: what is read.
        rows: of the slice.

    Raises:
        InputError: a file lacks a column or rows; a sidecar is of other rows.
    """
    columns: dict[str, pa.Array | None] = {}
    for operation in sorted({name.partition(".")[0] for name in query.names}):
        mine = [name for name in query.names if name.partition(".")[0] == operation]
        columns.update(zip(mine, _read_columns(piece, operation, mine, rows), strict=True))
    passes = np.ones(rows, np.bool_)
    for bound in query.where:
        if (column := columns[bound.attribute]) is None:
            passes[:] = False
            continue
        query._check(bound.attribute, column.type)
        passes &= within(bound, column, query.reference)
    values = np.full((len(query.terms), rows), np.nan)
    for at, name in enumerate(query.terms):
        if (column := columns[name]) is not None:
            query._check(name, column.type)
            values[at] = numbers(column, query.reference)
    groups = columns[query.group_by] if query.group_by else None
    if groups is None:
        return AttributeValues(passes, values, np.zeros(rows, np.int32), [""])
    query._check(query.group_by, groups.type)
    codes, names = grouped(groups, query.edges, query.reference)
    return AttributeValues(passes, values, codes, names)


def numbers(column: pa.Array, reference: int | None) -> NDArray[np.float64]:
    """Return values as float64, NaN for null and for what is not finite; of a date its age in years."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        assert reference is not None
        stamps = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        ages = (reference - stamps.fill_null(0).to_numpy(zero_copy_only=False)) / _YEAR
        return np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, ages)
    made = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(made), made, np.nan)


def within(bound: Bound, column: pa.Array, reference: int | None) -> NDArray[np.bool_]:
    """Return which values are within bounds (bool [rows]); null is not."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    inside = np.ones(len(column), np.bool_)
    if bound.min is not None or bound.max is not None or (bound.in_ is not None and is_number(column.type)):
        values = numbers(column, reference)
        inside &= ~np.isnan(values)
        if bound.min is not None:
            inside &= values >= bound.min
        if bound.max is not None:
            inside &= values <= bound.max
    if bound.in_ is not None:
        allowed = _values(bound, column.type)
        if is_number(column.type):
            inside &= np.isin(values, np.array(allowed, np.float64))
        else:
            equal = pc.is_in(column, value_set=pa.array(allowed, column.type))
            inside &= equal.to_numpy(zero_copy_only=False) & ~column.is_null().to_numpy(zero_copy_only=False)
    return inside


def grouped(column: pa.Array, edges: Sequence[float], reference: int | None) -> tuple[NDArray[np.int32], list[str]]:
    """Return the group of each row as a code (int32 [rows]) into names, by code point; null is in the group "".

    With edges, a group is a half-open range: from an edge on, to below the next.
    """
    if edges:
        values = numbers(column, reference)
        place = np.searchsorted(np.array(edges, np.float64), values, side="right") + 1
        place[np.isnan(values)] = 0
        names = ["", *names_of(edges)]
    else:
        text = column if _is_text(column.type) else column.cast(pa.string())
        encoded = text.fill_null("").dictionary_encode()
        place = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        names = encoded.dictionary.to_pylist()
    used = np.unique(place).tolist()
    order = sorted(used, key=lambda at: names[at])
    code = np.zeros(max(used, default=0) + 1, np.int32)
    code[order] = np.arange(len(order), dtype=np.int32)
    return code[place], [names[at] for at in order]


def names_of(edges: Sequence[float]) -> list[str]:
    """Name the groups between edges: one more than there are edges."""
    shown = [f"{edge:.12g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(shown)]
    return [f"below {shown[0]}", *between, f"{shown[-1]} and above"]


def is_number(kind: pa.DataType) -> bool:
    """Return whether values are numbers; true and false are 1 and 0."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values(bound: Bound, kind: pa.DataType) -> list[Any]:
    """Return the values of ``in`` for a column of this type. Raises UsageError if one has another type."""
    allowed = bound.in_ or []
    if pa.types.is_boolean(kind):
        right, expected = all(isinstance(value, bool) for value in allowed), "true or false"
    elif is_number(kind):
        right = all(isinstance(value, int | float) and not isinstance(value, bool) for value in allowed)
        expected = "numbers"
    elif _is_text(kind):
        right, expected = all(isinstance(value, str) for value in allowed), "texts"
    else:
        right, expected = not allowed, "min and max"
    if not right:
        raise UsageError(
            f"{bound.attribute} has values of another type",
            where="attributes.where",
            got=str(allowed),
            expected=expected,
        )
    return list(allowed)


def _read_columns(piece: Slice, operation: str, names: Sequence[str], rows: int) -> Iterator[pa.Array | None]:
    """Read the columns of these attributes for the rows of a slice; None for what the data set does not say."""
    columns = [name.partition(".")[2] for name in names]
    if operation == ROW:
        columns_read = [batch.condition.cast(pa.large_string()) for batch in piece.batches(())]
        yield pa.concat_arrays(columns_read or [pa.nulls(0)])
        return
    if operation == SIDECAR:
        yield from sidecar.read_columns(piece, columns, piece.ordinals(rows))
        return
    file = piece.attributes.get(operation)
    there = columns
    if operation == SOURCE:
        known = _read_schema(file, operation).names if file is not None else []
        there = [name for name in columns if name in known]
    elif file is None:
        raise _missing(operation, piece.task, piece.attributes)
    arrays: dict[str, pa.Array] = {}
    if file is not None and there:
        arrays = dict(zip(there, piece.read_columns(file, there, rows), strict=True))
    yield from (arrays.get(name) for name in columns)


def _merge_source_schemas(rows: Rows) -> pa.Schema:
    """Merge the attributes that data sets say of their rows: those of the first task of each."""
    first: dict[str, Task] = {}
    for task in rows.training:
        if SOURCE in task.beside:
            first.setdefault(task.source, task)
    fields: dict[str, pa.Field] = {}
    for task in first.values():
        for field in _read_schema(task.beside[SOURCE], SOURCE):
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))


def _read_schema(file: InputFile, operation: str) -> pa.Schema:
    with open_parquet(file.uri, file.content) as parquet:
        schema = parquet.schema_arrow
    return pa.schema([field for field in schema if operation != SIDECAR or field.name not in sidecar.KEYS])


def _list_offered(rows: Rows, operations: set[str]) -> list[str]:
    """List the attributes of the first task that has each operation."""
    offered = [CONDITION]
    for operation in sorted(operations):
        task = next(task for task in rows.training if operation in task.beside)
        offered += [f"{operation}.{column}" for column in _read_schema(task.beside[operation], operation).names]
    return offered


def _missing(operation: str, task: str, beside: Iterable[str]) -> InputError:
    return InputError(
        f"the rows have no attributes of {operation}",
        where=task,
        got=", ".join(sorted(beside)) or "none",
        expected=operation,
        hint=f"make the attributes of {operation} for every task, or leave that task's rows out of rows=",
    )
