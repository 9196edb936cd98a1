"""Which record of which raw file each row of clean is made of, in a file beside a task's rows (docs/format.md).

Lines are stored as differences, so that rows in the order of their records cost next to nothing.
"""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.engine.inputs import HELD_OUT
from pairmill.errors import UsageError
from pairmill.formats.decisions import names_of
from pairmill.formats.row_groups import RowGroups

FOLDER: Final = "records"
"""Of a finished folder of clean."""
SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        ("member", pa.string()),
    ]
)
"""``file`` is the source and the path of its raw file, ``line`` the line or row in it from 1, or 0 if the record is a
``member`` of an archive."""
_GROUP: Final = 1 << 15
"""Rows of a row group: one is decoded in a millisecond, which is what a single row costs."""
_NUMBER: Final = re.compile("[1-9][0-9]{0,17}")


@dataclass(frozen=True, order=True)
class RecordId:
    """A record by name, ``<source>/<path>:<line>``, or ``:<member>`` of an archive.

    Args:
        file: source and path of the raw file.
        line: line or row in it from 1; 0 of a member.
        member: its name in the archive.
    """

    file: str
    line: int
    member: str = ""

    @classmethod
    def parse(cls, text: str, option: str = "record") -> Self:
        """Read a name. Raises UsageError, which names the option, if it is not one."""
        file, separator, place = text.rpartition(":")
        if not separator or not place or "/" not in file:
            raise UsageError(
                "not a record",
                where=option,
                got=repr(text),
                expected="<source>/<path of its raw file>:<line from 1>, as in gsm8k/train.jsonl:17",
            )
        return cls(file, int(place)) if _NUMBER.fullmatch(place) else cls(file, 0, place)

    @property
    def source(self) -> str:
        """The source of its file."""
        return self.file.partition("/")[0]

    @property
    def path(self) -> str:
        """The path of its file below the source's folder."""
        return self.file.partition("/")[2]

    def __str__(self) -> str:
        return f"{self.file}:{self.member or self.line}"


def path_of(task: str) -> str:
    """Return the path of a task's records below a finished folder; no program takes the ending for one of rows."""
    top = HELD_OUT if task.startswith(HELD_OUT) else ""
    return f"{top}{FOLDER}/{task.removeprefix(top)}.pq"


class Places:
    """Collects the records of consecutive rows."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._starts: list[int] = []
        self._places: list[int | str] = []

    def add(self, file: str, place: int | str) -> None:
        """Take the record of the next row: its file, and as readers say it the line from 0 or the name of a member."""
        if not self._files or self._files[-1] is not file:
            self._files.append(file)
            self._starts.append(len(self._places))
        self._places.append(place)

    def extend(self, file: str, places: NDArray[np.int64]) -> None:
        """Take the records of the next rows, lines of one file, int64 [rows]."""
        self.add(file, int(places[0]))
        self._places += places[1:].tolist()

    def table(self) -> pa.Table:
        """Return them in the columns of :data:`SCHEMA`."""
        names = list(dict.fromkeys(self._files))
        numbers = {name: number for number, name in enumerate(names)}
        codes = np.array([numbers[name] for name in self._files], np.int32)
        counts = np.diff([*self._starts, len(self._places)])
        data = [name.encode("utf-8", "backslashreplace") for name in names]
        offsets = np.cumsum([0, *map(len, data)], dtype=np.int32)
        texts = pa.StringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(b"".join(data)))
        file = pa.DictionaryArray.from_arrays(_array(np.repeat(codes, counts), pa.int32()), texts)
        places = np.array(self._places)
        if places.dtype.kind == "i":
            return pa.table([file, _array(places + 1, pa.int64()), pa.nulls(len(places), pa.string())], SCHEMA)
        line = pa.array([0 if isinstance(place, str) else place + 1 for place in self._places], pa.int64())
        members = [place if isinstance(place, str) else None for place in self._places]
        member = pa.array([name and name.encode("utf-8", "backslashreplace") for name in members], pa.binary())
        return pa.table([file, line, member.cast(pa.string())], SCHEMA)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array; pyarrow.array would import pandas, which takes a process a second."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def pack(table: pa.Table) -> memoryview:
    """Return records as bytes, for the next round of shards."""
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, SCHEMA) as writer:
        writer.write_table(table)
    return buffer.getbuffer()


def unpack(parts: Iterable[bytes]) -> pa.Table:
    """Return the records that :func:`pack` made bytes of, one part after another."""
    return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts])


class RecordsWriter:
    """Writes a file of records. Use as a context manager.

    Args:
        file: open for writing; the caller closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._writer = pq.ParquetWriter(
            file,
            SCHEMA,
            compression="zstd",
            version="2.6",
            use_dictionary=["file", "member"],
            column_encoding={"line": "DELTA_BINARY_PACKED"},
            write_statistics=["file", "line"],
        )
        self._held: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Append the records of the next rows."""
        self._held.append(table)
        self._rows += len(table)
        while self._rows >= _GROUP:
            self._flush(_GROUP)

    def _flush(self, rows: int) -> None:
        table = pa.concat_tables(self._held).unify_dictionaries()
        # Joined: where pages end must not follow from how the rows came.
        self._writer.write_table(_compact(table.slice(0, rows)), row_group_size=_GROUP)
        self._held, self._rows = [table.slice(rows)], self._rows - rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._rows:
            self._flush(self._rows)
        self._writer.close()


def _compact(table: pa.Table) -> pa.Table:
    """Return a table of one chunk whose dictionary has the files of its rows alone, in their order."""
    file = table["file"].combine_chunks()
    # Of the buffer: to_numpy, and take, import pandas.
    codes = np.frombuffer(file.indices.buffers()[1], np.int32)[file.indices.offset :][: len(file)]
    # Rows of a file come one after another: of a million rows there are a few runs.
    runs = codes[np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])] if len(codes) else codes
    used = list(dict.fromkeys(runs.tolist()))
    numbers = np.zeros(len(file.dictionary), np.int32)
    numbers[used] = np.arange(len(used))
    names = pa.concat_arrays([file.dictionary.slice(number, 1) for number in used] or [file.dictionary.slice(0, 0)])
    file = pa.DictionaryArray.from_arrays(_array(numbers[codes], pa.int32()), names)
    others = [table[name].combine_chunks() for name in SCHEMA.names[1:]]
    return pa.table([file, *others], SCHEMA)


class RecordsFile(RowGroups):
    """An open file of records."""

    def read(self, ordinals: NDArray[np.int64]) -> list[RecordId]:
        """Return the records of the rows with these ordinals (int64 [rows]), in the order of them."""
        return _ids(self.take(ordinals, SCHEMA.names))

    def search(self, wanted: Iterable[RecordId]) -> Iterator[tuple[int, RecordId]]:
        """Yield the rows of records, as ordinals with the record, ascending."""
        known = {*wanted}
        names = {record.file for record in known}
        lines = np.unique(np.array([record.line for record in known], np.int64))
        for group in self._holding("line", lines):
            first, last = self._bounds(group, "file") or ("", "\U0010ffff")
            if not any(first <= name <= last for name in names):
                continue
            table = self._table(group, SCHEMA.names)
            files, codes = names_of(table["file"])
            mine = np.isin(codes, [code for code, name in enumerate(files) if name in names])
            places = np.flatnonzero(mine & np.isin(table["line"].to_numpy(), lines))
            for place, record in zip(places.tolist(), _ids(table.take(pa.array(places))), strict=True):
                if record in known:
                    yield int(self._starts[group]) + place, record

    def last_lines(self) -> dict[str, int]:
        """Return the last line of each raw file of which there is a row; 0 of archives."""
        result: dict[str, int] = {}
        for group in range(len(self._starts) - 1):
            files, lines = self._bounds(group, "file"), self._bounds(group, "line")
            if files is not None and lines is not None and files[0] == files[1]:
                result[files[0]] = max(result.get(files[0], 0), lines[1])
                continue
            table = self._table(group, ["file", "line"])
            names, codes = names_of(table["file"])
            last = np.zeros(len(names), np.int64)
            np.maximum.at(last, codes, table["line"].to_numpy())
            for name, line in zip(names, last.tolist(), strict=True):
                result[name] = max(result.get(name, 0), line)
        return result


def _ids(table: pa.Table) -> list[RecordId]:
    columns = (table[name].to_pylist() for name in SCHEMA.names)
    return [RecordId(file, line, member or "") for file, line, member in zip(*columns, strict=True)]
