"""One side of a merged output, for training or held out: a file of rows, one of their attributes, one of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, records
from pairmill.formats.attributes import AttributesWriter
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.parquet_reader import BATCH_BYTES
from pairmill.formats.records import RecordsWriter
from pairmill.formats.rows import BATCH_ROWS, ParquetWriter, writer_for
from pairmill.sources.source import OutputFormat


class Group(NamedTuple):
    """Consecutive rows of an output: lines of JSON, or a table; and tables of their attributes and of their records, if
    they have any."""

    rows: bytes | pa.Table
    beside: pa.Table | None
    records: pa.Table | None
    number: int

    @property
    def size(self) -> int:
        """Bytes of both."""
        rows = len(self.rows) if isinstance(self.rows, bytes) else self.rows.nbytes
        return int(rows + (0 if self.beside is None else self.beside.nbytes))

    def filter(self, chosen: NDArray[np.bool_]) -> Group:
        """Return the rows that are chosen."""
        mask = pa.array(chosen)
        if isinstance(self.rows, bytes):
            texts = zip(self.rows.split(b"\n"), chosen, strict=False)
            rows = b"".join(text + b"\n" for text, take in texts if take)
        else:
            rows = self.rows.filter(mask)
        beside, lines = (None if table is None else table.filter(mask) for table in (self.beside, self.records))
        return Group(rows, beside, lines, int(chosen.sum()))


class Side:
    """Takes groups of rows in order; each becomes a row group.

    Args:
        write_rows: appends rows.
        write_attributes: appends attributes; None = the rows have none.
        write_records: appends records; None = the rows have none.
        few: hold the groups until they are worth a row group: what is held out of each is little.
    """

    def __init__(self, write_rows: Any, write_attributes: Any, write_records: Any, *, few: bool) -> None:
        self.rows = 0
        self._write_rows, self._write_attributes, self._few = write_rows, write_attributes, few
        self._write_records = write_records
        self._waiting: list[Group] = []
        self._size = self._number = 0

    def add(self, group: Group) -> None:
        """Take the next rows."""
        if not group.number:
            return
        self.rows += group.number
        self._waiting.append(group)
        self._number += group.number
        self._size += group.size
        if not self._few or self._number >= BATCH_ROWS or self._size >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        waiting, self._waiting, self._size, self._number = self._waiting, [], 0, 0
        if not waiting:
            return
        rows = [item.rows for item in waiting]
        self._write_rows(b"".join(rows) if isinstance(rows[0], bytes) else pa.concat_tables(rows))
        if self._write_attributes is not None:
            self._write_attributes(pa.concat_tables([item.beside for item in waiting]))
        if self._write_records is not None:
            self._write_records(pa.concat_tables([item.records for item in waiting]))


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
            write_records = None
            if task:
                lines_file = writers.enter_context(files.enter_context(out.create(records.path_of(task))).open("wb"))
                write_records = writers.enter_context(RecordsWriter(lines_file)).write
            file = writers.enter_context(local.open("wb"))
            write_rows: Any = file.write
            if not lines:
                writer: Any = writers.enter_context(writer_for(path, file, fields=layout.fields, large=layout.large))
                write_rows = partial(_write_group, writer)
            side = Side(write_rows, write_attributes, write_records, few=few)
            yield side
            side.flush()
        if side.rows and not lines:
            number_row_groups(local)


def _write_group(writer: ParquetWriter, rows: pa.Table) -> None:
    writer.write_arrays({name: rows[name] for name in rows.column_names})


def read_tables(files: Sequence[bytes]) -> pa.Table:
    """Return the rows of Parquet files, one after another."""
    return pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in files])
