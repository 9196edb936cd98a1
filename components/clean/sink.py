"""Writes the rows of a shard: to the one output that it makes, or to segments that a second round merges.

A segment is a small JSON Lines or Parquet file with rows of one label. All segments of a shard are in one object, one
after another, so a shard with a thousand labels still writes one object.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self, TypeAlias

from pairmill.engine import inputs
from pairmill.formats import rows
from pairmill.formats.rows import BATCH_BYTES, BATCH_ROWS, Row
from sources.source import OutputFormat

SEGMENTS = "_segments"
_FOLDERS = ("data/", "data_clustered/")

# Characters of rows to hold before each label gets a segment: with hundreds of labels, segments must not be tiny.
_HELD = 48 << 20
_HELD_ROWS = 400_000


class Segment(NamedTuple):
    """Bytes [offset, offset + size) of a shard's segments: ``rows`` rows, and the digest of the bytes."""

    offset: int
    size: int
    rows: int
    sha256: str = ""
    """Empty in records of older versions."""


Segments: TypeAlias = "list[Segment]"


def task_of(path: str) -> str:
    """Task name of an output."""
    for folder in _FOLDERS:
        path = path.removeprefix(folder)
    return inputs.task_name(path)


@dataclass
class _Held:
    rows: list[Row] = field(default_factory=list)
    size: int = 0


class Sink:
    """Takes rows label by label, in order. Use as a context manager.

    Args:
        local: file to fill.
        kind: the output's path, whose extension says how rows are written.
        layout: of the output.
        segmented: whether to write segments rather than the output itself (then the label is always empty).
        null_type_if_empty: see :func:`pairmill.formats.rows.writer_for`.
        labels: labels that have an output even without a row.
    """

    def __init__(
        self,
        local: Path,
        kind: str,
        layout: OutputFormat,
        *,
        segmented: bool,
        null_type_if_empty: bool = False,
        labels: Sequence[str] = (),
    ) -> None:
        self._kind, self._layout, self._segmented = kind, layout, segmented
        self._held: dict[str, _Held] = {}
        self._size = self._rows = 0
        self.segments: dict[str, list[Segment]] = {label: [] for label in labels}
        """By label, in the order in which labels were first seen."""
        self._closing = ExitStack()
        self._file = self._closing.enter_context(local.open("wb"))
        self._writer: rows.JsonlWriter | rows.ParquetWriter | None = None
        if not segmented:
            self._writer = self._open(self._file, null_type_if_empty=null_type_if_empty)
            self._closing.enter_context(self._writer)

    def _open(self, file: BinaryIO, *, null_type_if_empty: bool = False) -> rows.JsonlWriter | rows.ParquetWriter:
        layout = self._layout
        return rows.writer_for(
            self._kind, file, fields=layout.fields, large=layout.large, null_type_if_empty=null_type_if_empty
        )

    def add(self, label: str, row: Row, size: int) -> None:
        """Take a row of ``size`` characters."""
        held = self._held.get(label)
        if held is None:
            held = self._held[label] = _Held()
            self.segments.setdefault(label, [])
        held.rows.append(row)
        held.size += size
        self._size += size
        self._rows += 1
        if held.size >= BATCH_BYTES or len(held.rows) >= BATCH_ROWS:
            self._write(label, self._held.pop(label))
        elif self._size >= _HELD or self._rows >= _HELD_ROWS:
            self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, {}
        for label, one in held.items():
            self._write(label, one)

    def _write(self, label: str, held: _Held) -> None:
        self._size -= held.size
        self._rows -= len(held.rows)
        if self._writer is not None:
            self._writer.write(held.rows)
            return
        buffer = io.BytesIO()
        writer: rows.JsonlWriter | rows.ParquetWriter
        with self._open(buffer) as writer:
            writer.write(held.rows)
        data = buffer.getbuffer()
        sha256 = hashlib.sha256(data).hexdigest()
        self.segments[label].append(Segment(self._file.tell(), len(data), len(held.rows), sha256))
        self._file.write(data)

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
