"""Writes the rows of a shard: to the one output that it makes, or to segments that a second round merges.

A segment is a small JSON Lines or Parquet file with rows of one label. All segments of a shard are in one object, one
after another, so a shard with a thousand labels still writes one object. The attributes of each segment are a segment
of a second object, the hashes that decide which of its rows are held out are one of a third, and its records one of a
fourth.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pairmill.digest import digest_bytes
from pairmill.engine import inputs
from pairmill.formats import records, rows
from pairmill.formats.attributes import AttributesWriter, table_of
from pairmill.formats.parquet_reader import BATCH_BYTES
from pairmill.formats.records import Places, RecordsWriter
from pairmill.formats.rows import BATCH_ROWS, Batch, Row
from pairmill.sources.source import OutputFormat

SEGMENTS = "_segments"
ATTRIBUTES = "_attributes"
HASHES = "_hashes"
RECORDS = "_records"
SCRATCH = (SEGMENTS, ATTRIBUTES, HASHES, RECORDS)
"""What only the merge reads of a shard's files."""
_FOLDERS = ("data/", "data_clustered/")

# Characters of rows to hold before each label gets a segment: with hundreds of labels, segments must not be tiny.
_HELD = 48 << 20
_HELD_ROWS = 400_000


class Segment(NamedTuple):
    """Bytes [offset, offset + size) of a shard's segments: ``rows`` rows, and the digest of the bytes."""

    offset: int
    size: int
    rows: int
    digest: str

    def identify(self) -> object:
        """Return the digest: the bytes count, whichever shard wrote them."""
        return self.digest


Segments: TypeAlias = "list[Segment]"


def task_of(path: str) -> str:
    """Task name of an output; empty for one whose rows are not trained on."""
    if inputs.use_of(path):
        return ""
    for folder in _FOLDERS:
        path = path.removeprefix(folder)
    return inputs.task_name(path)


@dataclass
class _Held:
    rows: list[Row] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    places: Places = field(default_factory=Places)
    size: int = 0
    parts: list[list[Row] | Batch] = field(default_factory=list)
    """The rows before ``rows``, ``before`` of them."""
    before: int = 0

    @property
    def count(self) -> int:
        return self.before + len(self.rows)

    def add(self, batch: Batch) -> None:
        if self.rows:
            self.parts.append(self.rows)
            self.before, self.rows = self.before + len(self.rows), []
        self.parts.append(batch)
        self.before += len(batch)


class _Segmented:
    """A file of segments."""

    def __init__(self, file: BinaryIO, labels: Sequence[str]) -> None:
        self._file = file
        self.segments: dict[str, Segments] = {label: [] for label in labels}

    def add(self, label: str, data: bytes | memoryview, rows: int) -> None:
        place = Segment(self._file.tell(), len(data), rows, digest_bytes(data))
        self.segments.setdefault(label, []).append(place)
        self._file.write(data)


class Sink:
    """Takes rows label by label, in order. Use as a context manager.

    Args:
        local: file to fill.
        kind: the output's path, whose extension says how rows are written.
        layout: of the output.
        attributes: file for the attributes; None = the rows have none.
        hashes: file for the hashes of rows; None = no row is held out.
        records: file for the records of rows; None = they are not trained on.
        types: of attributes, by name.
        segmented: whether to write segments rather than the output itself (then the label is always empty).
        null_type_if_empty: see :func:`pairmill.formats.rows.writer_for`.
        labels: labels that have an output even without a row.
    """

    def __init__(
        self,
        local: Path,
        kind: str,
        layout: OutputFormat,
        attributes: Path | None,
        hashes: Path | None,
        records: Path | None,
        *,
        types: Mapping[str, str],
        segmented: bool,
        null_type_if_empty: bool,
        labels: Sequence[str],
    ) -> None:
        self._kind, self._layout, self._segmented = kind, layout, segmented
        self._held: dict[str, _Held] = {}
        self._size = self._rows = 0
        self._types = types
        self._closing = ExitStack()
        file = self._create(local)
        others = [None if path is None else self._create(path) for path in (attributes, hashes, records)]
        self._writer: rows.JsonlWriter | rows.ParquetWriter | None = None
        self._attributes: AttributesWriter | None = None
        self._records: RecordsWriter | None = None
        self._rows_of, self._attributes_of, self._hashes_of, self._records_of = (
            _Segmented(item, labels) if segmented and item is not None else None for item in (file, *others)
        )
        if not segmented:
            self._writer = self._open(file, null_type_if_empty=null_type_if_empty)
            self._closing.enter_context(self._writer)
            if others[0] is not None:
                self._attributes = self._closing.enter_context(AttributesWriter(others[0], self._types))
            if others[2] is not None:
                self._records = self._closing.enter_context(RecordsWriter(others[2]))

    def segments(self) -> tuple[list[tuple[str, Segments]] | None, ...]:
        """Segments of rows, of attributes, of hashes and of records by label, in the order in which labels were first
        seen."""
        result = (self._rows_of, self._attributes_of, self._hashes_of, self._records_of)
        return tuple(None if item is None else list(item.segments.items()) for item in result)

    def _create(self, path: Path) -> BinaryIO:
        return self._closing.enter_context(path.open("wb"))

    def _open(self, file: BinaryIO, *, null_type_if_empty: bool = False) -> rows.JsonlWriter | rows.ParquetWriter:
        layout = self._layout
        return rows.writer_for(
            self._kind, file, fields=layout.fields, large=layout.large, null_type_if_empty=null_type_if_empty
        )

    def add(
        self,
        label: str,
        row: Row,
        size: int,
        file: str,
        place: int | str,
        values: tuple[Any, ...] = (),
        hashed: int = 0,
    ) -> None:
        """Take a row of ``size`` characters, those of its attributes included, of the record at a place of a file."""
        held = self._held.get(label) or self._hold(label)
        held.rows.append(row)
        held.places.add(file, place)
        if self._types:
            held.values.append(values)
        if self._hashes_of is not None:
            held.hashes.append(hashed)
        held.size += size
        self._size += size
        self._rows += 1
        if held.size >= BATCH_BYTES or held.before + len(held.rows) >= BATCH_ROWS:
            self._write(label, self._held.pop(label))
        elif self._size >= _HELD or self._rows >= _HELD_ROWS:
            self._flush()

    def add_made(self, batch: Batch, sizes: NDArray[np.int64], file: str, places: NDArray[np.int64]) -> None:
        """Take rows without label, attributes and hashes, as :meth:`add` takes one after another.

        Args:
            batch: the rows.
            sizes: characters of each, int64 [rows].
            file: that they are of.
            places: of the record of each, int64 [rows].
        """
        ends = np.cumsum(sizes)
        start = before = 0
        while start < len(batch):
            held = self._held.get("") or self._hold("")
            last = int(np.searchsorted(ends, BATCH_BYTES - held.size + before))
            stop = min(last + 1, start + BATCH_ROWS - held.count, len(batch))
            columns = (getattr(batch, name).slice(start, stop - start) for name in rows.FIELDS)
            held.add(Batch(batch.start + start, *columns))
            held.places.extend(file, places[start:stop])
            size, before = int(ends[stop - 1]) - before, int(ends[stop - 1])
            held.size += size
            self._size += size
            self._rows += stop - start
            if held.size >= BATCH_BYTES or held.count >= BATCH_ROWS:
                self._write("", self._held.pop(""))
            start = stop

    def _hold(self, label: str) -> _Held:
        held = self._held[label] = _Held()
        if self._rows_of is not None:
            self._rows_of.segments.setdefault(label, [])
        return held

    def _flush(self) -> None:
        held, self._held = self._held, {}
        for label, item in held.items():
            self._write(label, item)

    def _write(self, label: str, held: _Held) -> None:
        self._size -= held.size
        self._rows -= held.count
        if self._writer is not None:
            _write_rows(self._writer, held)
            if self._attributes is not None:
                self._attributes.write(table_of(self._types, held.values))
            if self._records is not None:
                self._records.write(held.places.table())
            return
        count = held.count
        assert self._rows_of is not None
        buffer = io.BytesIO()
        writer: rows.JsonlWriter | rows.ParquetWriter
        with self._open(buffer) as writer:
            _write_rows(writer, held)
        self._rows_of.add(label, buffer.getbuffer(), count)
        if self._attributes_of is not None:
            buffer = io.BytesIO()
            with AttributesWriter(buffer, self._types) as attributes:
                attributes.write(table_of(self._types, held.values))
            self._attributes_of.add(label, buffer.getbuffer(), count)
        if self._hashes_of is not None:
            self._hashes_of.add(label, np.array(held.hashes, "<u8").tobytes(), count)
        if self._records_of is not None:
            self._records_of.add(label, records.pack(held.places.table()), count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._closing:
                self._flush()
        else:
            self._closing.__exit__(kind, error, trace)


def _write_rows(writer: rows.JsonlWriter | rows.ParquetWriter, held: _Held) -> None:
    if held.parts:
        writer.write_parts([*held.parts, held.rows])
    else:
        writer.write(held.rows)
