"""What attributes say of rows: who is a candidate, what is scored, and in which group each row is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.select.columns import column_slices
from components.select.inputs import Rows, Slice
from components.select.settings import Bound, Settings
from components.select.shapes import Looked
from components.select.sidecar import SIDECAR, Sidecar
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats import rows as row_files
from pairmill.formats.attributes import unknown
from pairmill.formats.row_files import ORIGIN, RowFile
from pairmill.formats.rows import open_parquet

ROW: Final = "row"
SOURCE: Final = "source"
"""What a data set itself says of its rows."""
CONDITION: Final = "row.condition"
"""The one column of the rows themselves that can be asked for."""
_YEAR: Final = 365.2425 * 86_400_000_000
"""Microseconds."""


@dataclass(frozen=True)
class Wanted:
    """What is read of attributes.

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
    def of(cls, settings: Settings) -> Wanted:
        """What these settings read; nothing of what the method does not use."""
        own = settings.attributes
        scored = settings.uses_score
        where = own.where if settings.method != "dsir" else []
        return cls(
            tuple(where),
            tuple(one.attribute for one in own.score) if scored else (),
            (own.group_by or "") if scored else "",
            tuple(own.edges or ()) if scored else (),
            _reference(settings.reference_date),
        )

    @property
    def names(self) -> list[str]:
        """Of all attributes that are read, each once."""
        every = [*(one.attribute for one in self.where), *self.terms, *filter(None, [self.group_by])]
        return list(dict.fromkeys(every))

    @property
    def operations(self) -> set[str]:
        """The operations whose files are read."""
        found = {name.partition(".")[0] for name in self.names} - {ROW}
        # A sidecar is joined by the ordinals that rows had at first.
        return found | ({ORIGIN} if SIDECAR in found else set())

    def identity(self) -> list[Any]:
        """JSON-like: all that what is read follows from, besides the files."""
        bounds = [[one.attribute, one.min, one.max, one.in_] for one in self.where]
        return [bounds, list(self.terms), self.group_by, list(self.edges), self.reference]

    def refuse_unknown(self, rows: Rows) -> None:
        """Compare what is wanted with the files; of each operation the columns of one file are read.

        What a data set says of its rows (``source``) is different for each: one that lacks an attribute has nulls.

        Raises:
            UsageError: no file has the attribute, or it has the wrong type.
            InputError: a task lacks the file of an operation that others have.
        """
        if CONDITION not in self.names and any(name.startswith(f"{ROW}.") for name in self.names):
            wrong = next(name for name in self.names if name.startswith(f"{ROW}."))
            raise UsageError("rows have one such column", where=self._place(wrong), got=wrong, expected=CONDITION)
        every = {name for task in rows.training for name in task.beside}
        columns: dict[str, pa.Schema] = {}
        for name in self.names:
            operation, _, column = name.partition(".")
            if operation == ROW:
                self._check(name, pa.string())
                continue
            if operation not in every:
                raise _unknown(name, self._place(name), _offered(rows, every))
            if operation not in columns and operation == SOURCE:
                columns[operation] = _of_sources(rows)
            if operation not in columns:
                lacking = next((task for task in rows.training if operation not in task.beside), None)
                if lacking is not None:
                    raise _missing(operation, lacking)
                columns[operation] = _schema(rows.training[0], operation)
            schema = columns[operation]
            if column not in schema.names:
                offered = [f"{operation}.{one}" for one in schema.names]
                raise _unknown(name, self._place(name), offered)
            self._check(name, schema.field(column).type)

    def _place(self, name: str) -> str:
        """Where the settings name an attribute."""
        if any(one.attribute == name for one in self.where):
            return "attributes.where"
        return "attributes.score" if name in self.terms else "attributes.group_by"

    def _check(self, name: str, kind: pa.DataType) -> None:
        """Raise UsageError if an attribute of this type cannot be what it is wanted for."""
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


def read(wanted: Wanted, one: Slice, rows: int) -> Looked:
    """What the attributes of the rows of a slice say.

    Args:
        wanted: what is read.
        one: the slice.
        rows: of the slice.

    Raises:
        InputError: a file lacks a column or rows; a sidecar is of other rows.
    """
    columns: dict[str, pa.Array | None] = {}
    for operation in sorted({name.partition(".")[0] for name in wanted.names}):
        mine = [name for name in wanted.names if name.partition(".")[0] == operation]
        columns.update(zip(mine, _read(one, operation, mine, rows), strict=True))
    passes = np.ones(rows, np.bool_)
    for bound in wanted.where:
        if (column := columns[bound.attribute]) is None:
            passes[:] = False
            continue
        wanted._check(bound.attribute, column.type)
        passes &= within(bound, column, wanted.reference)
    values = np.full((len(wanted.terms), rows), np.nan)
    for at, name in enumerate(wanted.terms):
        if (column := columns[name]) is not None:
            wanted._check(name, column.type)
            values[at] = numbers(column, wanted.reference)
    groups = columns[wanted.group_by] if wanted.group_by else None
    if groups is None:
        return Looked(passes, values, np.zeros(rows, np.int32), [""])
    wanted._check(wanted.group_by, groups.type)
    codes, names = grouped(groups, wanted.edges, wanted.reference)
    return Looked(passes, values, codes, names)


def numbers(column: pa.Array, reference: int | None) -> NDArray[np.float64]:
    """Values as float64, NaN for null and for what is not finite; of a date its age in years."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        assert reference is not None
        stamps = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        ages = (reference - stamps.fill_null(0).to_numpy(zero_copy_only=False)) / _YEAR
        return np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, ages)
    made = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(made), made, np.nan)


def within(bound: Bound, column: pa.Array, reference: int | None) -> NDArray[np.bool_]:
    """Which values are within bounds (bool [rows]); null is not."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    found = np.ones(len(column), np.bool_)
    if bound.min is not None or bound.max is not None or (bound.in_ is not None and is_number(column.type)):
        values = numbers(column, reference)
        found &= ~np.isnan(values)
        if bound.min is not None:
            found &= values >= bound.min
        if bound.max is not None:
            found &= values <= bound.max
    if bound.in_ is not None:
        allowed = _values(bound, column.type)
        if is_number(column.type):
            found &= np.isin(values, np.array(allowed, np.float64))
        else:
            made = pc.is_in(column, value_set=pa.array(allowed, column.type))
            found &= made.to_numpy(zero_copy_only=False) & ~column.is_null().to_numpy(zero_copy_only=False)
    return found


def grouped(column: pa.Array, edges: Sequence[float], reference: int | None) -> tuple[NDArray[np.int32], list[str]]:
    """The group of each row: a code (int32 [rows]) into names, by code point; null is in the group "".

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
    """The names of the groups between edges: one more than there are edges."""
    shown = [f"{edge:.12g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(shown)]
    return [f"below {shown[0]}", *between, f"{shown[-1]} and above"]


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers; true and false are 1 and 0."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(one(kind) for one in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values(bound: Bound, kind: pa.DataType) -> list[Any]:
    """The values of ``in`` for a column of this type. Raises UsageError if one is of another."""
    allowed = bound.in_ or []
    if pa.types.is_boolean(kind):
        right, expected = all(isinstance(one, bool) for one in allowed), "true or false"
    elif is_number(kind):
        right = all(isinstance(one, int | float) and not isinstance(one, bool) for one in allowed)
        expected = "numbers"
    elif _is_text(kind):
        right, expected = all(isinstance(one, str) for one in allowed), "texts"
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


def _reference(date: str | None) -> int | None:
    if date is None:
        return None
    day = datetime.fromisoformat(date)
    return int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000


def _read(one: Slice, operation: str, names: Sequence[str], rows: int) -> Iterator[pa.Array | None]:
    """The columns of these attributes for the rows of a slice; None for what the data set does not say."""
    columns = [name.partition(".")[2] for name in names]
    if operation == ROW:
        part = one.part
        batches = row_files.read(part.uri, part, content=part.content, longest=part.longest)
        yield from [pa.concat_arrays([batch.condition.cast(pa.large_string()) for batch in batches] or [pa.nulls(0)])]
        return
    if operation == SIDECAR:
        yield from Sidecar.of(one.task).columns(one, columns, one.ordinals(rows))
        return
    file = one.task.beside.get(operation)
    there = columns
    if operation == SOURCE:
        known = _schema(one.task, operation).names if file is not None else []
        there = [name for name in columns if name in known]
    elif file is None:
        raise _missing(operation, one.task)
    found: dict[str, pa.Array] = {}
    if file is not None and there:
        whole = one.part.stop is None
        read = column_slices(file.uri, file.content, there, one.part.first, rows, whole=whole)
        found = dict(zip(there, read, strict=True))
    yield from (found.get(name) for name in columns)


def _of_sources(rows: Rows) -> pa.Schema:
    """The attributes that any data set says of its rows: those of the first task of each."""
    first: dict[str, RowFile] = {}
    for task in rows.training:
        if SOURCE in task.beside:
            first.setdefault(task.source, task)
    fields: dict[str, pa.Field] = {}
    for task in first.values():
        for field in _schema(task, SOURCE):
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))


def _schema(task: RowFile, operation: str) -> pa.Schema:
    if operation == SIDECAR:
        return Sidecar.of(task).schema()
    file = task.beside[operation]
    with open_parquet(file.uri, file.content) as parquet:
        return parquet.schema_arrow


def _offered(rows: Rows, operations: set[str]) -> list[str]:
    """All attributes of the first task that has each operation."""
    found = [CONDITION]
    for operation in sorted(operations):
        task = next(task for task in rows.training if operation in task.beside)
        found += [f"{operation}.{column}" for column in _schema(task, operation).names]
    return found


def _unknown(name: str, where: str, offered: Sequence[str]) -> PairmillError:
    hint = "curate makes attributes; sidecar: names a folder with your own"
    return unknown("no such attribute beside the rows", name, where, offered, hint)


def _missing(operation: str, task: RowFile) -> InputError:
    return InputError(
        f"the rows have no attributes of {operation}",
        where=task.name,
        got=", ".join(sorted(task.beside)) or "none",
        expected=operation,
        hint=f"make the attributes of {operation} for every task, or leave that task's rows out of rows=",
    )
