"""Some rows of a row file in a file of the same format, and the attributes of these rows.

A row group has at most BATCH_ROWS rows and about BATCH_BYTES bytes of text. Files of attributes have the same row
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.engine.content import UNKNOWN, Content, pinned
from pairmill.engine.inputs import InputFile
from pairmill.errors import InputError
from pairmill.formats import attributes, rows, uses
from pairmill.formats.attributes import AttributesWriter
from pairmill.formats.limits import RECORD_BYTES
from pairmill.formats.parquet_reader import BATCH_BYTES, open_parquet, parquet_batches
from pairmill.formats.rows import BATCH_ROWS, ParquetWriter, Row, writer_for
from pairmill.formats.slices import FileSlice

_ORIGIN_TYPES: Final = {"ordinal": "integer"}

_TIMES = 4

Texts: TypeAlias = list[pa.Array]
"""Condition, instruction and response of consecutive rows; of prompts and pairs their further columns too."""


def write(
    file: InputFile,
    batches: Iterable[rows.Batch],
    removed: NDArray[np.uint32],
    path: str,
    opened: BinaryIO,
    change: Callable[[Texts], Texts] | None = None,
    part: FileSlice | None = None,
    longest: int = RECORD_BYTES,
) -> tuple[int, list[int]]:
    """Write rows but those that go; returns how many were read, and the rows of each row group.

    The further columns of prompts and pairs (:mod:`pairmill.formats.uses`) are written too.

    Args:
        file: which the rows are of: what is written has its columns in their order.
        batches: of the file.
        removed: ordinals that go, ascending.
        path: of the new file, whose extension says the format.
        opened: the new file.
        change: makes new texts of those that stay.
        part: the row groups that the batches are of; None = all.
        longest: bytes of the longest row.

    Raises:
        InputError: texts of prompts or pairs would change, and not the messages that they are of.
    """
    count, sizes = 0, list[int]()
    further = _further_in(file)
    if further and change is not None:
        what = "prompts and pairs are kept or dropped, and their texts are not changed"
        raise InputError(what, where=file.uri, hint="give the operation that changes texts mode: drop, report or off")
    beside = _InStep(_read_further(file, further, part, longest))
    with _writer(file, path, opened) as writer:
        groups = _Groups(writer, sizes, further)
        for batch in batches:
            start, stop = np.searchsorted(removed, [batch.start, batch.start + len(batch)])
            keep = np.ones(len(batch), np.bool_)
            keep[removed[start:stop].astype(np.int64) - batch.start] = False
            count += len(batch)
            texts = [column.filter(pa.array(keep)) for column in (batch.condition, batch.instruction, batch.response)]
            if further:
                texts += [column.combine_chunks() for column in beside.take(len(batch)).filter(pa.array(keep)).columns]
            groups.add(texts if change is None else change(texts))
        groups.flush()
    return count, sizes


class _Groups:
    """Collects rows and writes them as row groups."""

    def __init__(self, writer: Any, sizes: list[int], further: Sequence[str] = ()) -> None:
        self._writer, self._sizes, self._further = writer, sizes, further
        self._held: list[Texts] = []
        self._rows = self._bytes = 0

    def add(self, texts: Texts) -> None:
        if not len(texts[0]):
            return
        size = sum(rows.text_bytes(column) for column in texts[:3]) + sum(column.nbytes for column in texts[3:])
        if self._held and (self._rows + len(texts[0]) > BATCH_ROWS or self._bytes + size > BATCH_BYTES):
            self.flush()
        self._held.append(texts)
        self._rows += len(texts[0])
        self._bytes += size

    def flush(self) -> None:
        if not self._held:
            return
        if isinstance(self._writer, ParquetWriter):
            kind = self._writer.type
            joined = [pa.concat_arrays([item[at].cast(kind) for item in self._held]) for at in range(3)]
            columns = dict(zip(rows.FIELDS, joined, strict=True))
            for at, name in enumerate(self._further, 3):
                columns[name] = pa.concat_arrays([item[at] for item in self._held]).cast(uses.TYPES[name])
            self._writer.write_arrays(columns)
        else:
            for item in self._held:
                self._writer.write(list(map(Row, *(column.to_pylist() for column in item))))
        self._sizes.append(self._rows)
        self._held, self._rows, self._bytes = [], 0, 0


class _InStep:
    """Batches of some columns, taken in step with others of the same rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: list[pa.RecordBatch] = []

    def take(self, count: int) -> pa.Table:
        """Return the next ``count`` rows."""
        parts = []
        while count:
            batch = self._left.pop() if self._left else next(self._batches)
            parts.append(batch.slice(0, count))
            if len(batch) > count:
                self._left.append(batch.slice(count))
            count -= len(parts[-1])
        return pa.Table.from_batches(parts)


def _further_in(file: InputFile) -> list[str]:
    """Return the columns of prompts or pairs beside the three of a row; none of any other file."""
    if file.kind != "parquet":
        return []
    with open_parquet(file.uri, file.content) as parquet:
        return uses.further_columns(parquet.schema_arrow.names)


def _read_further(file: InputFile, names: list[str], part: FileSlice | None, longest: int) -> Iterator[pa.RecordBatch]:
    with open_parquet(file.uri, file.content) as parquet:
        groups = range(part.start, part.stop) if part and part.stop is not None else None
        # The messages of a pair say again what its texts say, and the worse answer.
        yield from parquet_batches(file.uri, parquet, names, groups, longest=_TIMES * longest)


def _writer(file: InputFile, path: str, opened: BinaryIO) -> Any:
    if file.kind != "parquet":
        return writer_for(path, opened)
    with open_parquet(file.uri, file.content) as parquet:
        schema = parquet.schema_arrow
    texts = [name for name in schema.names if name in rows.FIELDS]
    fields = list(schema.names) if _further_in(file) else texts
    return ParquetWriter(opened, fields, large=any(pa.types.is_large_string(schema.field(name).type) for name in texts))


def row_groups(file: InputFile, longest: int) -> list[int]:
    """Return the rows of each row group that attributes of a file's rows have; ``longest`` is a row's limit in
    bytes."""
    if file.kind == "parquet":
        with open_parquet(file.uri, file.content) as parquet:
            metadata = parquet.metadata
            return [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    count = rows.count(file.uri, file.content, longest)
    return [min(BATCH_ROWS, count - at) for at in range(0, count, BATCH_ROWS)]


def write_origin(kept: NDArray[np.int64], groups: Sequence[int], local: Path) -> None:
    """Write the ordinals of kept rows as an attribute."""
    column: Any = pa.array(kept)
    start = 0
    with local.open("wb") as file, AttributesWriter(file, _ORIGIN_TYPES) as writer:
        for size in groups:
            writer.write(pa.table([column.slice(start, size)], attributes.schema_of(_ORIGIN_TYPES)))
            start += size


class Attributes(NamedTuple):
    """Attributes of consecutive rows of a task.

    Args:
        files: URI of each file, and what it has to be; they have the rows one after another.
        first: ordinal of the first row of the first file.
    """

    files: Sequence[tuple[str, Content]]
    first: int = 0

    @classmethod
    def from_uris(cls, uris: Sequence[str], first: int = 0) -> Attributes:
        """Read files that this run wrote."""
        return cls([(uri, UNKNOWN) for uri in uris], first)


def cut(
    source: Attributes,
    kept: NDArray[np.int64],
    rows_: range,
    groups: Sequence[int],
    local: Path,
    *,
    where: str,
    count_means: Callable[[pa.RecordBatch, pa.RecordBatch], None] | None = None,
) -> None:
    """Write the attributes of kept rows.

    Args:
        source: attributes of these rows, and possibly of more.
        kept: ordinals.
        rows_: ordinals of which some are kept.
        groups: rows of each row group.
        local: file to write.
        where: for messages.
        count_means: is given the attributes of some rows, and of those of them that are kept.

    Raises:
        InputError: the files do not have an attribute for each row.
    """
    sizes, count, at = iter(groups), 0, 0
    held: list[pa.RecordBatch] = []
    wanted = next(sizes, 0)
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        start, seen = source.first, 0
        for uri, content in source.files:
            with pinned(uri, content) as opened:
                parquet = pq.ParquetFile(opened)
                if writer is None:
                    schema = parquet.schema_arrow.remove_metadata()
                    statistics = attributes.ordered(schema)
                    writer = stack.enter_context(
                        pq.ParquetWriter(local, schema, compression="zstd", version="2.6", write_statistics=statistics)
                    )
                for first, batch in _batches(parquet, start, rows_):
                    seen += len(batch)
                    end = int(np.searchsorted(kept, first + len(batch)))
                    some = batch.take(pa.array(kept[at:end] - first)).replace_schema_metadata(None)
                    if count_means is not None:
                        count_means(batch, some)
                    at = end
                    if len(some):
                        held.append(some)
                        count += len(some)
                    while wanted and count >= wanted:
                        # Joined: where pages end must not follow from how the rows were read.
                        table = pa.Table.from_batches(held).combine_chunks()
                        writer.write_table(table.slice(0, wanted), row_group_size=max(1, wanted))
                        held, count = table.slice(wanted).to_batches(), count - wanted
                        wanted = next(sizes, 0)
                start += parquet.metadata.num_rows
    if at != len(kept) or count or seen != len(rows_):
        raise InputError(
            "a file of attributes has another number of rows than its task",
            where=where,
            got=f"{seen} of the rows {rows_.start} to {rows_.stop}",
            expected=f"all of them, of which {len(kept)} are kept",
            hint="make the input folder again",
        )


def _batches(parquet: Any, start: int, wanted: range) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a file whose first row has the ordinal ``start`` that have wanted rows, cut to them."""
    metadata = parquet.metadata
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if start < wanted.stop and start + count > wanted.start:
            first = start
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], use_threads=False):
                low, high = max(first, wanted.start), min(first + len(batch), wanted.stop)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                first += len(batch)
        start += count
