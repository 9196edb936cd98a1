"""Columns of a user's own beside rows: a folder of ``<task>.parquet``, or one file with the columns task and ordinal.

A column ``ordinal`` names rows by the number that they had in the file that curate was given, or have in theirs; rows
that it does not name have null. Without that column, the rows are those of the task, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.select.columns import column_slices, joined, no_column
from components.select.inputs import Rows, Slice
from pairmill.engine import inputs
from pairmill.engine.inputs import InputFile
from pairmill.errors import InputError
from pairmill.formats.row_files import RowFile
from pairmill.formats.rows import BATCH_ROWS, open_parquet, parquet_batches

SIDECAR: Final = "sidecar"
_ENDING: Final = ".parquet"
_KEYS: Final = ("task", "ordinal")


def sidecars(uri: str, rows: Rows) -> Rows:
    """The rows, each training task with its file of a sidecar.

    Raises:
        InputError: nothing is there, or a task has no file.
    """
    found = inputs.discover([uri], ("parquet",), SIDECAR, verify=False)
    files = {file.task.removesuffix(_ENDING): file for file in found.files}
    single = found.files[0] if len(found.files) == 1 and _has_tasks(found.files[0]) else None
    new: dict[str, RowFile] = {}
    for task in rows.training:
        file = single or files.get(task.name)
        if file is None:
            raise InputError(
                "no file of the sidecar for a task",
                where=f"sidecar={uri}",
                got=", ".join(sorted(files)[:5]),
                expected=f"{task.name}{_ENDING}",
                hint="a file is named after its task; a single file for all tasks has the columns task and ordinal",
            )
        new[task.name] = replace(task, beside={**task.beside, SIDECAR: file})
    blocks = [
        replace(block, slices=tuple(replace(one, task=new[one.task.name]) for one in block.slices))
        for block in rows.blocks
    ]
    return Rows([new.get(task.name, task) for task in rows.tasks], blocks, rows.found)


@dataclass(frozen=True)
class Sidecar:
    """The file of a sidecar that a task's rows are in."""

    file: InputFile
    task: str

    @classmethod
    def of(cls, task: RowFile) -> Sidecar:
        """That of a task, which has one."""
        return cls(task.beside[SIDECAR], task.name)

    def schema(self) -> pa.Schema:
        """Its columns without task and ordinal."""
        with open_parquet(self.file.uri, self.file.content) as parquet:
            schema = parquet.schema_arrow
        return pa.schema([field for field in schema if field.name not in _KEYS])

    def columns(self, one: Slice, columns: Sequence[str], ordinals: NDArray[np.int64]) -> list[pa.Array]:
        """The columns for the rows of a slice.

        Args:
            one: the slice.
            columns: by name.
            ordinals: of its rows, as above, ascending.

        Raises:
            InputError: a column is absent, a row is named twice, or a file without ordinals has other rows.
        """
        with open_parquet(self.file.uri, self.file.content) as parquet:
            names = parquet.schema_arrow.names
            for name in columns:
                if name not in names:
                    raise no_column(self.file.uri, name, names)
            if "ordinal" not in names:
                whole = one.part.stop is None
                return column_slices(
                    self.file.uri, self.file.content, columns, one.part.first, len(ordinals), whole=whole
                )
            table = self._table(parquet, names, columns, ordinals)
        return self._matched(table, columns, ordinals)

    def _table(
        self, parquet: object, names: Sequence[str], columns: Sequence[str], ordinals: NDArray[np.int64]
    ) -> pa.Table:
        """The rows of the sidecar that may be rows of the slice."""
        keys = [name for name in _KEYS if name in names]
        wanted = [*keys, *columns]
        held: list[pa.RecordBatch] = []
        least, most = (int(ordinals[0]), int(ordinals[-1])) if len(ordinals) else (0, -1)
        for batch in parquet_batches(self.file.uri, parquet, wanted, None, BATCH_ROWS):
            ordinal = batch.column("ordinal")
            mask = pc.and_(pc.greater_equal(ordinal, least), pc.less_equal(ordinal, most))
            if "task" in keys:
                mask = pc.and_(mask, pc.equal(batch.column("task").cast(pa.string()), self.task))
            held.append(batch.filter(mask))
        schema = held[0].schema if held else parquet.schema_arrow.remove_metadata()  # type: ignore[attr-defined]
        return pa.Table.from_batches(held, schema)

    def _matched(self, table: pa.Table, columns: Sequence[str], ordinals: NDArray[np.int64]) -> list[pa.Array]:
        given = joined(table["ordinal"]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        order = np.argsort(given, kind="stable")
        given = given[order]
        twice = np.flatnonzero(given[1:] == given[:-1])
        if len(twice):
            raise InputError(
                "a row is named twice",
                where=self.file.uri,
                got=f"{self.task}:{given[twice[0]]}",
                expected="each row at most once",
            )
        at = np.searchsorted(given, ordinals)
        at = np.minimum(at, max(len(given) - 1, 0))
        # That no row of a slice is named says nothing: where slices begin must not decide.
        absent = given[at] != ordinals if len(given) else np.ones(len(ordinals), np.bool_)
        place = pa.array(order[at] if len(given) else at, mask=absent)
        return [joined(table[name]).take(place) for name in columns]


def _has_tasks(file: InputFile) -> bool:
    with open_parquet(file.uri, file.content) as parquet:
        return all(name in parquet.schema_arrow.names for name in _KEYS)
