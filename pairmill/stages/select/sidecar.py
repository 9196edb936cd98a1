"""Columns of a user's own beside rows: a folder of ``<task>.parquet``, or one file with the columns task and ordinal.

A column ``ordinal`` names rows by the number that they had in the file that curate was given, or have in theirs; rows
that it does not name have null. Without that column, the rows are those of the task, in order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import arrow_compute as pc
from pairmill.engine import inputs
from pairmill.engine.inputs import InputFile
from pairmill.errors import InputError
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.rows import BATCH_ROWS
from pairmill.rowstage import Rows, Slice
from pairmill.rowstage.columns import combine, no_column

SIDECAR: Final = "sidecar"
_ENDING: Final = ".parquet"
KEYS: Final = ("task", "ordinal")


def sidecar_files(uri: str) -> Sequence[InputFile]:
    """Find the files of a sidecar. Raises InputError if nothing is there."""
    return inputs.discover([uri], ("parquet",), SIDECAR, verify=False).files


def with_sidecars(uri: str, rows: Rows) -> Rows:
    """Return the rows, each training task with its file of a sidecar.

    Raises:
        InputError: nothing is there, or a task has no file.
    """
    given = sidecar_files(uri)
    files = {file.task.removesuffix(_ENDING): file for file in given}
    single = given[0] if len(given) == 1 and _has_tasks(given[0]) else None
    tasks = list(rows.tasks)
    for at, task in enumerate(tasks):
        file = single or files.get(task.name)
        if task.held_out:
            continue
        if file is None:
            raise InputError(
                "no file of the sidecar for a task",
                where=f"sidecar={uri}",
                got=", ".join(sorted(files)[:5]),
                expected=f"{task.name}{_ENDING}",
                hint="a file is named after its task; a single file for all tasks has the columns task and ordinal",
            )
        tasks[at] = replace(task, beside={**task.beside, SIDECAR: file})
    return Rows(tasks, rows.inputs)


def read_columns(piece: Slice, columns: Sequence[str], ordinals: NDArray[np.int64]) -> list[pa.Array]:
    """Read columns of a task's sidecar for the rows of a slice.

    Args:
        columns: by name.
        ordinals: of its rows, as above, ascending.

    Raises:
        InputError: a column is absent, a row is named twice, or a file without ordinals has other rows.
    """
    file = piece.attributes[SIDECAR]
    with open_parquet(file.uri, file.content) as parquet:
        names = parquet.schema_arrow.names
        for name in columns:
            if name not in names:
                raise no_column(file.uri, name, names)
        if "ordinal" not in names:
            return piece.read_columns(file, columns, len(ordinals))
        table = _read_near(parquet, file.uri, piece.task, columns, ordinals)
    return _match(table, columns, ordinals, file.uri, piece.task)


def _read_near(parquet: Any, uri: str, task: str, columns: Sequence[str], ordinals: NDArray[np.int64]) -> pa.Table:
    """Read the rows of a sidecar that may be rows of the slice."""
    keys = [name for name in KEYS if name in parquet.schema_arrow.names]
    held: list[pa.RecordBatch] = []
    least, most = (int(ordinals[0]), int(ordinals[-1])) if len(ordinals) else (0, -1)
    for batch in parquet_batches(uri, parquet, [*keys, *columns], None, BATCH_ROWS):
        ordinal = batch.column("ordinal")
        mask = pc.and_(pc.greater_equal(ordinal, least), pc.less_equal(ordinal, most))
        if "task" in keys:
            mask = pc.and_(mask, pc.equal(batch.column("task").cast(pa.string()), task))
        held.append(batch.filter(mask))
    return pa.Table.from_batches(held, held[0].schema if held else parquet.schema_arrow.remove_metadata())


def _match(table: pa.Table, columns: Sequence[str], ordinals: NDArray[np.int64], uri: str, task: str) -> list[pa.Array]:
    """Put rows of a sidecar in the order of the slice's rows; a row that it does not name has nulls."""
    given = combine(table["ordinal"]).cast(pa.int64()).to_numpy(zero_copy_only=False)
    order = np.argsort(given, kind="stable")
    given = given[order]
    twice = np.flatnonzero(given[1:] == given[:-1])
    if len(twice):
        raise InputError(
            "a row is named twice", where=uri, got=f"{task}:{given[twice[0]]}", expected="each row at most once"
        )
    at = np.minimum(np.searchsorted(given, ordinals), max(len(given) - 1, 0))
    # That no row of a slice is named says nothing: where slices begin must not decide.
    absent = given[at] != ordinals if len(given) else np.ones(len(ordinals), np.bool_)
    place = pa.array(order[at] if len(given) else at, mask=absent)
    return [combine(table[name]).take(place) for name in columns]


def _has_tasks(file: InputFile) -> bool:
    with open_parquet(file.uri, file.content) as parquet:
        return all(name in parquet.schema_arrow.names for name in KEYS)
