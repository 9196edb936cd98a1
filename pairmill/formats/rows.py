"""Cleaned rows ``{condition, instruction, response}``: writers, and readers with bounded batches.

The files are those of data_io: JSON Lines, or Parquet with string columns. Readers yield Arrow batches of about 1 MB of
text, so memory follows neither the file nor its row groups.

The Rust module parses JSON Lines. At the first row that it does not accept, Python's reader takes over, so that one
reader decides what a row is and words the error.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import UNKNOWN, Content, whole
from pairmill.errors import InputError
from pairmill.formats import jsonstream, limits, uses
from pairmill.formats.limits import EXPANSION, RECORD_BYTES
from pairmill.formats.parquet_reader import expansion_of, open_parquet, parquet_batches
from pairmill.formats.row import RenderedRow as RenderedRow
from pairmill.formats.row import Row as Row
from pairmill.formats.slices import FileSlice

FIELDS = ("condition", "instruction", "response")
EXTENSIONS = ("jsonl", "parquet")
BATCH_ROWS = 16_384
# With fewer rows to a batch, short rows take a third longer to read.
_ARROW_ROWS = 4096
# Bytes of text in a batch. Larger batches are not faster, and processing takes several times their memory.
_ARROW_BYTES = 1 << 20


class WideRow(Row):
    """A row of a file with further columns (:mod:`pairmill.formats.uses`).

    Attributes:
        columns: their values by name.
        size: their characters as JSON.
    """

    columns: Mapping[str, Any]
    size: int

    def __new__(cls, row: Row, columns: Mapping[str, Any], size: int) -> Self:
        made = super().__new__(cls, *row)
        made.columns, made.size = columns, size
        return made


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one file: three equally long arrays of type string or large_string, which may have nulls.

    ``start`` is the index of the first row in the file, from 0.
    """

    start: int
    condition: pa.Array
    instruction: pa.Array
    response: pa.Array

    def __len__(self) -> int:
        return len(self.condition)


def refuse_nulls(batch: Batch, uri: str, names: Sequence[str] = FIELDS) -> None:
    """Raise InputError, with the row, if one of these columns has a null."""
    for name in names:
        column = getattr(batch, name)
        if column.null_count:
            row = batch.start + column.is_null().index(True).as_py()
            raise InputError(
                f"{name} is null", where=f"{uri} row {row + 1}", expected="text", hint="clean the data set again"
            )


_NULL = "null"


def refuse_not_utf8(batch: Batch, uri: str, names: Sequence[str] = FIELDS) -> None:
    """Raise InputError, with the row, if one of these columns has a text that is not UTF-8."""
    for name in names:
        column = getattr(batch, name)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row in range(len(column)):
                try:
                    column[row].as_py()
                except UnicodeDecodeError as error:
                    where = f"{uri} row {batch.start + row + 1}"
                    raise InputError(f"{name} is not UTF-8", where=where, got=str(error)) from error
            raise


@contextmanager
def texts_named(batch: Batch, uri: str) -> Iterator[None]:
    """Name file, row and column where the Rust module refuses a text of ``batch``, which was read unchecked.

    Raises:
        InputError: a text is not UTF-8.
    """
    try:
        yield
    except ValueError:
        refuse_not_utf8(batch, uri)
        raise


class JsonlWriter:
    """Writes JSON Lines as data_io does: compact, non-ASCII raw, a line feed after every row (docs/format.md, 3)."""

    def __init__(self, file: BinaryIO, fields: Sequence[str] = FIELDS) -> None:
        self._file, self._fields = file, fields

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        # A third faster than json.dumps, which builds an encoder for every object.
        quoted = json.encoder.encode_basestring
        places = [FIELDS.index(name) for name in self._fields]
        form = "{" + ",".join(f"{quoted(name)}:%s" for name in self._fields) + "}\n"
        columns = list(zip(*rows, strict=True))
        written = ([_NULL if text is None else quoted(text) for text in columns[at]] for at in places if rows)
        self._file.write("".join([form % texts for texts in zip(*written, strict=True)]).encode())

    def write_parts(self, parts: Sequence[Sequence[Row] | Batch]) -> None:
        """Append rows, some of them as batches without nulls."""
        for part in parts:
            if isinstance(part, Batch):
                columns = [getattr(part, name) for name in self._fields]
                self._file.write(_native.json_lines(list(self._fields), columns))
            else:
                self.write(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is buffered; the caller closes the file."""


class ParquetWriter:
    """Writes Parquet for data_io's readers: string columns, format 2.6, no statistics (useless for texts).

    Each ``write`` makes a row group, so a reader's memory is bounded by the writer's batch.

    Args:
        file: open for writing; the caller closes it.
        fields: order of the columns.
        large: large_string and Zstandard, as in the reference's one Polars source.
        null_type_if_empty: give a file without rows columns of Arrow's null type, as data_io's writer does.
    """

    def __init__(
        self,
        file: BinaryIO,
        fields: Sequence[str] = ("instruction", "response", "condition"),
        *,
        large: bool = False,
        null_type_if_empty: bool = False,
    ) -> None:
        self._file, self._fields = file, fields
        self.type = pa.large_string() if large else pa.string()
        self._compression = "zstd" if large else "snappy"
        self._writer: Any = None
        self._null_type_if_empty = null_type_if_empty

    def _open(self, kind: pa.DataType) -> None:
        self._writer = pq.ParquetWriter(
            self._file,
            pa.schema([(name, uses.TYPES.get(name, kind)) for name in self._fields]),
            compression=self._compression,
            version="2.6",
            use_dictionary=["condition"],
            write_statistics=False,
        )

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows as one row group."""
        if rows:
            columns = self._texts(rows)
            for name in self._fields:
                if name not in columns:
                    values = [row.columns[name] if isinstance(row, WideRow) else None for row in rows]
                    columns[name] = pa.array(values, uses.TYPES[name])
            self.write_arrays(columns)

    def write_parts(self, parts: Sequence[Sequence[Row] | Batch]) -> None:
        """Append rows without further columns, some of them as batches, as one row group."""
        made = [vars(part) if isinstance(part, Batch) else self._texts(part) for part in parts if len(part)]
        # Joined: where pages end must not follow from how the rows came.
        self.write_arrays({name: pa.concat_arrays([columns[name] for columns in made]) for name in FIELDS})

    def _texts(self, rows: Sequence[Row]) -> dict[str, pa.Array]:
        texts = zip(FIELDS, zip(*rows, strict=True), strict=True)
        return {name: pa.array(column, self.type) for name, column in texts}

    def write_arrays(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> None:
        """Append columns by name, of the writer's type, as one row group."""
        if self._writer is None:
            self._open(self.type)
        table = pa.table([columns[name] for name in self._fields], schema=self._writer.schema)
        self._writer.write_table(table, row_group_size=max(1, len(table)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None and kind is None:
            self._open(pa.null() if self._null_type_if_empty else self.type)
        if self._writer is not None:
            self._writer.close()


def writer_for(
    path: str, file: BinaryIO, *, fields: Sequence[str] = (), large: bool = False, null_type_if_empty: bool = False
) -> JsonlWriter | ParquetWriter:
    """Return the writer for the extension of ``path``; empty ``fields`` mean data_io's usual order."""
    given = {"fields": tuple(fields)} if fields else {}
    if path.endswith(".jsonl"):
        return JsonlWriter(file, **given)
    return ParquetWriter(file, **given, large=large, null_type_if_empty=null_type_if_empty)


def count(uri: str, content: Content = UNKNOWN, longest: int = RECORD_BYTES) -> int:
    """Return number of rows of a row file. A Parquet file's footer says it; JSON Lines are read through.

    Args:
        content: what the file has to be.
        longest: bytes of the longest row of JSON.
    """
    if uri.endswith(".parquet"):
        with open_parquet(uri, content) as file:
            return int(file.metadata.num_rows)
    with whole(uri, content) as lines:
        return sum(1 for _ in jsonstream.objects(uri, longest=longest, file=lines))


def read(
    uri: str,
    part: FileSlice | None = None,
    *,
    checked: bool = True,
    content: Content = UNKNOWN,
    longest: int = RECORD_BYTES,
    to_train: bool = False,
) -> Generator[Batch, None, None]:
    """Yield the rows of a ``.parquet`` or ``.jsonl`` file in order.

    Nulls in Parquet are kept. In JSON Lines they raise, as in the reference.

    Args:
        part: row groups to read of a Parquet file; None = all.
        checked: refuse Parquet texts that are not UTF-8. Not needed for batches that go to the Rust module, which
            checks them itself.
        content: the expected content of the file.
        longest: maximum bytes of a row, as text or as JSON.
        to_train: refuse files of prompts and pairs.

    Raises:
        Changed: the file has another content; raised after the last row at the latest.
        InputError: with file and row: truncated Parquet, a missing column or one that is not text, malformed JSON, a
            field that is missing, null, duplicate or not text, or too long a row.
    """
    parquet = uri.endswith(".parquet")
    if parquet:
        with open_parquet(uri, content) as file:
            yield from read_open(uri, file, part, checked=checked, longest=longest, to_train=to_train)
    else:
        yield from _read_jsonl(uri, content, longest)


def text_bytes(column: pa.Array) -> int:
    """Return bytes of UTF-8 in a column of a batch."""
    offsets = text_offsets(column)
    return int(offsets[-1]) - int(offsets[0])


def text_lengths(column: pa.Array) -> NDArray[np.int64]:
    """Return bytes of UTF-8 of each text in a column of a batch; int64 [rows]."""
    offsets = text_offsets(column).astype(np.int64)
    return offsets[1:] - offsets[:-1]


def is_empty(column: pa.Array) -> NDArray[np.bool_]:
    """Return which texts of a column of a batch are empty; bool [rows]."""
    result: NDArray[np.bool_] = np.diff(text_offsets(column)) == 0
    return result


def _joined(batches: Iterator[pa.RecordBatch], most: int, size: int) -> Iterator[pa.RecordBatch]:
    """Join consecutive small batches: each batch has a cost for its reader."""
    held: list[pa.RecordBatch] = []
    rows = taken = 0
    for batch in batches:
        bytes_ = batch.nbytes
        if held and (rows + len(batch) > most or taken + bytes_ > size):
            yield pa.concat_batches(held) if len(held) > 1 else held[0]
            held, rows, taken = [], 0, 0
        held.append(batch)
        rows += len(batch)
        taken += bytes_
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


def _slices(columns: Sequence[pa.Array]) -> Iterator[tuple[int, int]]:
    """Split rows into consecutive (start, length) of about _ARROW_BYTES of text."""
    ends = sum(offsets[1:].astype(np.int64) - offsets[0] for offsets in map(text_offsets, columns))
    block = ends // _ARROW_BYTES
    starts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        yield start, end - start


def text_offsets(column: pa.Array) -> NDArray[np.integer[Any]]:
    """Offsets of the texts of a string or large_string column in its buffer, shape (rows + 1,).

    Arrow's own functions import ``pyarrow.compute`` and pandas, a quarter of a second in every process.
    """
    kind: type[np.integer[Any]] = np.int64 if pa.types.is_large_string(column.type) else np.int32
    width = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column) + 1, column.offset * width)


def read_open(
    uri: str,
    file: Any,
    part: FileSlice | None = None,
    *,
    checked: bool = True,
    longest: int = RECORD_BYTES,
    to_train: bool = False,
) -> Iterator[Batch]:
    """Yield the rows of a Parquet file from :func:`open_parquet`, as :func:`read` does."""
    schema = file.schema_arrow
    if to_train and uses.further_columns(schema.names):
        hint = "leave the folder out, or describe its source without use:"
        raise InputError("prompts and pairs are not rows to train on", where=uri, hint=hint)
    missing = [name for name in FIELDS if name not in schema.names]
    if missing:
        raise InputError(
            f"column {missing[0]!r} is missing", where=uri, got=", ".join(schema.names), expected=", ".join(FIELDS)
        )
    for name in FIELDS:
        if schema.names.count(name) > 1:
            raise InputError(f"column {name!r} exists twice", where=uri, expected=", ".join(FIELDS))
        kind = schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not text and not pa.types.is_null(kind):
            raise InputError(f"column {name!r} is not text", where=uri, got=str(kind), expected="string")
    start = part.first if part else 0
    groups = range(part.start, part.stop) if part and part.stop is not None else None
    some = range(file.metadata.num_row_groups) if groups is None else groups
    expanded = expansion_of(uri, file, some, part.expansion if part else EXPANSION)
    batches = parquet_batches(
        uri, file, list(FIELDS), some, most=_ARROW_ROWS, size=_ARROW_BYTES, longest=longest, expanded=expanded
    )
    for batch in _joined(batches, _ARROW_ROWS, _ARROW_BYTES):
        texts = [_as_text(batch.column(name)) for name in FIELDS]
        if checked:
            refuse_not_utf8(Batch(start, *texts), uri)
        for first, length in _slices(texts):
            yield Batch(start + first, *(column.slice(first, length) for column in texts))
        start += len(batch)


def _as_text(column: pa.Array) -> pa.Array:
    plain = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column if plain else column.cast(pa.large_string())


def _read_jsonl(uri: str, content: Content, longest: int) -> Iterator[Batch]:
    start = offset = 0
    data = b""
    ended = refused = False
    with whole(uri, content) as file:
        while not ended and not refused and len(data) <= longest:
            more = file.read(max(_ARROW_BYTES, min(len(data), longest + 1 - len(data))))
            data += more
            ended = not more
            *columns, used, refused = _native.json_rows(data, ended)
            if len(columns[0]):
                batch = Batch(start, *(pa.array(column) for column in columns))
                if used > longest:
                    _refuse_long_texts(uri, batch, longest)
                yield batch
            start += len(columns[0])
            offset += used
            data = data[used:]
        if not ended or refused:
            data = b""  # the other reader needs as much memory
            yield from _read_jsonl_on(uri, offset, start, longest, file)


def _refuse_long_texts(uri: str, batch: Batch, longest: int) -> None:
    sizes = limits.row_bytes(batch.condition) + limits.row_bytes(batch.instruction) + limits.row_bytes(batch.response)
    row = int(sizes.argmax())
    if sizes[row] > longest:
        raise limits.too_long(f"{uri} row {batch.start + row + 1}", longest, got=f"{sizes[row]} bytes")


def _read_jsonl_on(uri: str, offset: int, start: int, longest: int, file: BinaryIO) -> Iterator[Batch]:
    """Yield the rows after the first ``offset`` bytes, which have ``start`` rows, with Python's reader."""
    rows: list[Row] = []
    size = 0
    for index, item in enumerate(jsonstream.objects(uri, offset, start, longest, file), start):
        row = _row_of(item, f"{uri} row {index + 1}")
        rows.append(row)
        size += len(row.instruction or "") + len(row.response or "")
        if size >= _ARROW_BYTES or len(rows) >= BATCH_ROWS:
            yield _batch(uri, start, rows)
            start, rows, size = index + 1, [], 0
    if rows:
        yield _batch(uri, start, rows)


def _batch(uri: str, start: int, rows: list[Row]) -> Batch:
    try:
        return Batch(start, *(pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)))
    except UnicodeEncodeError as error:
        for index, row in enumerate(rows):
            if any("\ud800" <= character <= "\udfff" for character in "".join(map(str, row))):
                raise InputError("an unpaired surrogate is not text", where=f"{uri} row {start + index + 1}") from error
        raise


def _row_of(item: object, where: str) -> Row:
    if isinstance(item, jsonstream.Pairs):
        pairs: list[tuple[str, Any]] = item
    elif isinstance(item, list) and len(item) == 3:  # the reference accepts an array of three texts as well
        pairs = list(zip(FIELDS, item, strict=True))
    else:
        raise InputError("not a JSON object", where=where, got=type(item).__name__, expected=", ".join(FIELDS))
    result: dict[str, str] = {}
    for key, value in pairs:
        if key in FIELDS:
            if key in result:
                raise InputError(f"{key} is given twice", where=where)
            if not isinstance(value, str):
                got = "null" if value is None else type(value).__name__
                raise InputError(f"{key} is not text", where=where, got=got, expected="a string")
            result[key] = value
    missing = [name for name in FIELDS if name not in result]
    if missing:
        raise InputError(f"{missing[0]} is missing", where=where, expected=", ".join(FIELDS))
    return Row(**result)


def refuse_mixed(schema: pa.Schema, fields: Collection[str], where: str) -> None:
    """Raise InputError if one of these columns (or any, if none are given) was mixed and ``datasets`` made it JSON.

    If a JSON column has texts and other values, datasets 5.2 turns all of them into JSON, with texts in quotes.
    """
    for column in schema:
        if isinstance(column.type, pa.JsonType) and (not fields or column.name in fields):
            raise InputError(
                "datasets turns a column of several types into JSON texts",
                where=where,
                got=column.name,
                hint="fetch the files directly, without via: datasets",
            )
