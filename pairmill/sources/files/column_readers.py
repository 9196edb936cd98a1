"""Files of columns to records, batch by batch: Parquet, and Arrow IPC files and streams."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from pairmill._native import PlainBatch, RowForm
from pairmill.errors import InputError, did_you_mean
from pairmill.formats import arrow_ipc, limits, rows
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.parquet_reader import expansion_of, open_parquet, parquet_batches, refuse_long
from pairmill.sources.origin import HubRows, Origin
from pairmill.sources.parsed import TOO_LONG, Malformed, Record

OTHERS = 64
"""The most records that are read in the usual way before a plain one is looked for again.

Where hardly any is plain, to look before each takes longer than it saves.
"""


class Tabled(Protocol):
    """What readers of columns ask of a source; its class says what each of them means."""

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def optional(self) -> tuple[str, ...]: ...
    @property
    def counted(self) -> tuple[str, ...]: ...


def check_columns(uri: str, names: Sequence[str], source: Tabled) -> None:
    """Raise InputError if a column that is read is missing or exists twice."""
    for name in source.fields:
        if name not in names:
            raise InputError(
                f"column {name!r} is missing",
                where=uri,
                got=", ".join(names),
                expected=", ".join(source.fields),
                hint=did_you_mean(name, names, f"check that this is the data set of {source.name}"),
            )
    counts = Counter(names)
    for name in (*source.fields, *source.optional) or names:
        if name and counts[name] > 1:
            raise InputError(
                f"column {name!r} exists {counts[name]} times",
                where=uri,
                got=", ".join(names),
                expected="once",
                hint="rename the columns in the file",
            )


def parquet(piece: FileSlice, source: Tabled, form: RowForm | None = None) -> Iterator[Record]:
    """Yield rows as dicts of the source's fields, and as MadeRows those that are plain in a form.

    Raises:
        InputError: the file is damaged or not Parquet, or lacks a column that the source reads.
    """
    with open_parquet(piece.uri, piece.content) as file:
        columns = _columns(piece.uri, file.schema_arrow, source)
        groups = range(piece.start, file.metadata.num_row_groups if piece.stop is None else piece.stop)
        number = piece.first
        expanded = expansion_of(piece.uri, file, groups, piece.expansion)
        for batch in parquet_batches(
            piece.uri, file, columns, groups, longest=piece.longest, expanded=expanded, aside=piece.aside
        ):
            yield from _of_batch(batch, piece, number, form)
            number += len(batch)


def arrow(piece: FileSlice, source: Tabled, form: RowForm | None = None) -> Iterator[Record]:
    """Yield rows of an Arrow IPC file or stream as :func:`parquet` does.

    Raises:
        InputError: the file is damaged, not Arrow, or lacks a column; or a batch or a record is too large.
    """
    with piece.head().opened() as file:
        head = arrow_ipc.head_of(piece.uri, file, piece.longest)
    columns = _columns(piece.uri, arrow_ipc.schema_of(piece.uri, head), source)
    number = piece.first
    with piece.opened() as file:
        if piece.start:
            file.seek(piece.start)
        else:
            file.read(head.stop)
        messages = arrow_ipc.messages(piece.uri, file, piece.longest, number)
        for batch in arrow_ipc.batches(piece.uri, head, _up_to(messages, piece)):
            chosen = batch.select(columns) if columns else batch
            if chosen.nbytes > piece.longest and not piece.aside:
                refuse_long(piece.uri, number, chosen, piece.longest)
            yield from _of_batch(chosen, piece, number, form)
            number += len(chosen)


def _up_to(messages: Iterator[arrow_ipc.Message], piece: FileSlice) -> Iterator[arrow_ipc.Message]:
    """Yield the messages that are within a piece."""
    left = None if piece.stop is None else piece.stop - piece.start
    while (left is None or left > 0) and (message := next(messages, None)) is not None:
        yield message
        left = None if left is None else left - len(message.data)


def _of_batch(batch: pa.RecordBatch, piece: FileSlice, number: int, form: RowForm | None) -> Iterator[Record]:
    for part in _parts(batch):
        plain = form.open(part) if form is not None and part.nbytes <= piece.longest else None
        if plain is not None:
            yield from _made(part, plain, number)
        else:
            yield from enumerate(_without_long(part, piece.longest) if piece.aside else _records(part), number)
        number += len(part)


def _made(batch: pa.RecordBatch, plain: PlainBatch, number: int) -> Iterator[Record]:
    """Yield the records of a batch from ``number`` on, runs of plain ones as MadeRows."""
    start, others = 0, 1
    while start < len(batch):
        made = plain.take(start)
        if made.records:
            yield number + start, made
        start += made.end
        if made.stopped:
            others = 1 if made.records else min(2 * others, OTHERS)
            yield from enumerate(_records(batch.slice(start, others)), number + start)
            start += others


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are not too large as Python's objects."""
    if batch.nbytes <= limits.BATCH_BYTES:
        yield batch
        return
    for start, length in limits.stretches(limits.record_bytes(batch), limits.BATCH_BYTES):
        yield batch.slice(start, length)


def _without_long(batch: pa.RecordBatch, longest: int) -> Iterator[Any]:
    """Yield the records of a batch, TOO_LONG in the place of longer ones."""

    if batch.nbytes <= longest:
        yield from _records(batch)
        return
    long = limits.record_bytes(batch) > longest
    others = _records(batch.filter(pa.array(~long)))
    for is_long in long.tolist():
        yield TOO_LONG if is_long else next(others)


def _columns(uri: str, schema: pa.Schema, source: Tabled) -> list[str] | None:
    if isinstance(source.origin, HubRows):
        # They may have been fetched for another declaration, which did not read all of these columns.
        rows.refuse_mixed(schema, {*source.fields, *source.optional}, uri)
    check_columns(uri, schema.names, source)
    read = {*source.fields, *source.optional, *(name for name in source.counted if schema.names.count(name) == 1)}
    wanted = [name for name in schema.names if name in read] if source.fields or source.optional else []
    return wanted or None  # a batch without columns has no records


def _records(batch: pa.RecordBatch) -> Iterator[Any]:
    names = batch.schema.names
    try:
        columns = [column.to_pylist() for column in batch.columns]
    except UnicodeDecodeError:
        for row in range(len(batch)):
            try:
                yield batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield Malformed("invalid_utf8")
        return
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))
