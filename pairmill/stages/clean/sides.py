"""One side of a merged output, for training or held out: a file of rows, and one of their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.writer import Writer
from pairmill.formats import attributes
from pairmill.formats.attributes import AttributesWriter
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.parquet_reader import BATCH_BYTES
from pairmill.formats.rows import BATCH_ROWS, ParquetWriter
from pairmill.sources.source import OutputFormat

Rows: TypeAlias = "bytes | pa.Table"
"""Lines of JSON, or a table."""


class Side:
    """Takes groups of rows in order; each becomes a row group.

    Args:
        write_rows: appends rows.
        write_attributes: appends attributes; None = the rows have none.
        lines: whether rows are lines of JSON.
        few: hold the groups until they are worth a row group: what is held out of each is little.
    """

    def __init__(self, write_rows: Any, write_attributes: Any, *, lines: bool, few: bool) -> None:
        self.rows = 0
        self._lines = lines
        self._write_rows, self._write_attributes, self._few = write_rows, write_attributes, few
        self._waiting: list[tuple[Rows, pa.Table | None]] = []
        self._size = self._count = 0

    def joined(self, rows: Sequence[bytes], beside: Sequence[bytes]) -> tuple[Rows, pa.Table | None]:
        """Segments as one group: rows, and attributes if there are any."""
        return b"".join(rows) if self._lines else _table(rows), _table(beside) if beside else None

    @staticmethod
    def filtered(rows: Rows, beside: pa.Table | None, chosen: NDArray[np.bool_]) -> tuple[Rows, pa.Table | None, int]:
        """Return what is chosen of a group."""

        mask = pa.array(chosen)
        if isinstance(rows, bytes):
            lines = rows.split(b"\n")
            some: Rows = b"".join(line + b"\n" for line, take in zip(lines, chosen, strict=False) if take)
        else:
            some = rows.filter(mask)
        return some, None if beside is None else beside.filter(mask), int(chosen.sum())

    def add(self, rows: Rows, beside: pa.Table | None, count: int) -> None:
        """Take the next ``count`` rows."""
        if not count:
            return
        self.rows += count
        self._waiting.append((rows, beside))
        self._count += count
        self._size += len(rows) if isinstance(rows, bytes) else rows.nbytes
        self._size += 0 if beside is None else beside.nbytes
        if not self._few or self._count >= BATCH_ROWS or self._size >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""

        waiting, self._waiting, self._size, self._count = self._waiting, [], 0, 0
        if not waiting:
            return
        rows = [item for item, _ in waiting]
        self._write_rows(b"".join(rows) if isinstance(rows[0], bytes) else pa.concat_tables(rows))
        if self._write_attributes is not None:
            self._write_attributes(pa.concat_tables([beside for _, beside in waiting]))


@contextmanager
def opened(
    out: Writer, path: str, task: str, layout: OutputFormat, types: Mapping[str, str], *, few: bool = False
) -> Iterator[Side]:
    """Yield a side of an output at ``path``, whose files appear if the block ends without an exception."""
    with ExitStack() as files:
        local = files.enter_context(out.create(path, task=task))
        lines = path.endswith(".jsonl")
        with ExitStack() as writers:
            write_attributes = None
            if types:
                held = HELD_OUT if task.startswith(HELD_OUT) else ""
                name = held + attributes.path_of(task.removeprefix(held))
                beside = writers.enter_context(files.enter_context(out.create(name)).open("wb"))
                write_attributes = writers.enter_context(AttributesWriter(beside, types)).write
            file = writers.enter_context(local.open("wb"))
            write_rows: Any = file.write
            if not lines:
                write_rows = partial(_write_group, writers.enter_context(ParquetWriter(file, **_layout(layout))))
            side = Side(write_rows, write_attributes, lines=lines, few=few)
            yield side
            side.flush()
        if side.rows and not lines:
            number_row_groups(local)


def _write_group(writer: ParquetWriter, rows: pa.Table) -> None:
    writer.write_arrays({name: rows[name] for name in rows.column_names})


def _table(files: Sequence[bytes]) -> pa.Table:

    return pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in files])


def _layout(layout: OutputFormat) -> dict[str, Any]:
    return {"large": layout.large} | ({"fields": layout.fields} if layout.fields else {})
