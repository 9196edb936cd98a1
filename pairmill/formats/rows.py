"""Cleaned rows ``{condition, instruction, response}``: writing them, and reading them back in bounded batches.

The files are those of data_io: JSON Lines, or Parquet with string columns. Readers yield Arrow batches of about a MB of
text, so memory follows neither the file nor its row groups.

JSON Lines are parsed by the Rust module as far as it takes them. What it does not take is judged by Python's reader,
from that row on, so that there is one judge of what a row is and one wording of what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from pairmill.engine.content import UNKNOWN, Content, pinned, whole
from pairmill.errors import InputError
from pairmill.formats import jsonstream, limits, parquet_limits
from pairmill.formats.limits import RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pairmill.formats.slices import FileSlice

FIELDS = ("condition", "instruction", "response")
EXTENSIONS = ("jsonl", "parquet")
BATCH_BYTES = 8 << 20
BATCH_ROWS = 16_384
# A dictionary stores a repeated text once, so a row group's size can say little about its rows': decode few at a time.
_PARQUET_ROWS = 1024
# Arrow rows cost little beside their text; with fewer to a batch, short ones take a third longer to read.
_ARROW_ROWS = 4096
# Text of an Arrow batch: what is made of it takes several times as much, and more text to a batch is no faster.
_ARROW_BYTES = 1 << 20


class Row(NamedTuple):
    """One instruction/response pair. ``condition`` is one or more tags joined by commas.

    A text is None only where data_io's own output holds a null.
    """

    condition: str
    instruction: str | None
    response: str | None


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one file: three arrays of Arrow type string or large_string, equally long.

    They may hold nulls.

    ``start`` is the 0-based index of the first row within the file.
    """

    start: int
    condition: pa.Array
    instruction: pa.Array
    response: pa.Array

    def __len__(self) -> int:
        return len(self.condition)


def refuse_nulls(batch: Batch, uri: str, names: Sequence[str] = FIELDS) -> None:
    """Raise InputError, naming the row, if one of these columns holds a null."""
    for name in names:
        column = getattr(batch, name)
        if column.null_count:
            row = batch.start + column.is_null().index(True).as_py()
            raise InputError(
                f"{name} is null", where=f"{uri} row {row + 1}", expected="text", hint="clean the data set again"
            )


_NULL = "null"


class JsonlWriter:
    """Writes JSON Lines as data_io does: compact, non-ASCII raw, a line feed after every row.

    Source of the byte format: spec of the cleaned data set, docs/format.md section 3.
    """

    def __init__(self, file: BinaryIO, fields: Sequence[str] = FIELDS) -> None:
        self._file, self._fields = file, fields

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        # json.dumps builds an encoder for every object; its function for texts alone does the same a third faster.
        quoted = json.encoder.encode_basestring
        places = [FIELDS.index(name) for name in self._fields]
        form = "{" + ",".join(f"{quoted(name)}:%s" for name in self._fields) + "}\n"
        lines = [form % tuple([_NULL if (text := row[at]) is None else quoted(text) for at in places]) for row in rows]
        self._file.write("".join(lines).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to write; the file is its opener's."""


class ParquetWriter:
    """Writes Parquet that data_io's readers take: string columns, format 2.6, no statistics (of texts, of no use).

    Row groups follow ``write`` calls, so a reader's memory is bounded by the writer's batch.

    Args:
        file: open for writing; its opener closes it.
        fields: order of the columns.
        large: Arrow's large_string and Zstandard, as the reference's one Polars source has them.
        null_type_if_empty: give columns of Arrow's null type to a file without rows, as data_io's writer infers.
    """

    def __init__(
        self,
        file: BinaryIO,
        fields: Sequence[str] = ("instruction", "response", "condition"),
        *,
        large: bool = False,
        null_type_if_empty: bool = False,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa, self._pq, self._file, self._fields = pa, pq, file, fields
        self._type = pa.large_string() if large else pa.string()
        self._compression = "zstd" if large else "snappy"
        self._writer: Any = None
        self._null_type_if_empty = null_type_if_empty

    def _open(self, kind: pa.DataType) -> None:
        self._writer = self._pq.ParquetWriter(
            self._file,
            self._pa.schema([(name, kind) for name in self._fields]),
            compression=self._compression,
            version="2.6",
            use_dictionary=["condition"],
            write_statistics=False,
        )

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows as one row group."""
        if rows:
            columns = dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
            self.write_arrays({name: self._pa.array(column, self._type) for name, column in columns.items()})

    def write_arrays(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> None:
        """Append columns by name, of the writer's type, as one row group."""
        if self._writer is None:
            self._open(self._type)
        table = self._pa.table([columns[name] for name in self._fields], schema=self._writer.schema)
        self._writer.write_table(table, row_group_size=max(1, len(table)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None and kind is None:
            self._open(self._pa.null() if self._null_type_if_empty else self._type)
        if self._writer is not None:
            self._writer.close()


def writer_for(
    path: str,
    file: BinaryIO,
    *,
    fields: Sequence[str] = (),
    large: bool = False,
    null_type_if_empty: bool = False,
) -> JsonlWriter | ParquetWriter:
    """The writer that the extension of ``path`` asks for; empty ``fields`` are data_io's usual order."""
    given = {"fields": tuple(fields)} if fields else {}
    if path.endswith(".jsonl"):
        return JsonlWriter(file, **given)
    return ParquetWriter(file, **given, large=large, null_type_if_empty=null_type_if_empty)


def count(uri: str, content: Content = UNKNOWN, longest: int = RECORD_BYTES) -> int:
    """Number of rows of a row file. A Parquet file's footer says it; JSON Lines are read through.

    Args:
        uri: the file.
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
) -> Iterator[Batch]:
    """The rows of a ``.parquet`` or ``.jsonl`` file in order.

    Nulls are passed on in Parquet; in JSON Lines, where the reference refuses the file, they raise.

    Args:
        uri: the file.
        part: of a Parquet file, what to read; None = all.
        checked: refuse Parquet's texts that are not UTF-8. Whoever gives whole batches to the Rust module, which looks
            for itself and names the row, needs no second look.
        content: what the file has to be.
        longest: bytes of the longest row, as text or as JSON.

    Raises:
        Changed: it is another, which shows at the last row at the latest.
        InputError: naming file and row: truncated Parquet, a column missing or not text, malformed JSON, a field
            missing, null, given twice or not text, a row that is too long.
    """
    parquet = uri.endswith(".parquet")
    yield from _read_parquet(uri, part, checked, content, longest) if parquet else _read_jsonl(uri, content, longest)


def text_bytes(column: pa.Array) -> int:
    """Bytes of UTF-8 in a column of a batch."""
    offsets = text_offsets(column)
    return int(offsets[-1]) - int(offsets[0])


@contextmanager
def open_parquet(uri: str, content: Content = UNKNOWN) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile`` that reads columns in pages rather than whole row groups.

    Its file is its ``source``.

    Raises:
        InputError: it is no Parquet file, or a cut one; or, as Changed, another than ``content`` says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pinned(uri, content) as source:
        try:
            # pre_buffer would keep the bytes of every column chunk that was read.
            file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
            file.source = source
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(
                "is not a readable Parquet file",
                where=uri,
                got=str(error).splitlines()[0],
                hint="copy it again; it may be cut",
            ) from error
        yield file


def parquet_batches(
    uri: str,
    file: Any,
    columns: list[str] | None,
    groups: range | None = None,
    most: int = _PARQUET_ROWS,
    size: int = BATCH_BYTES,
    longest: int = RECORD_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Record batches in order, of at most ``most`` rows, fewer where rows are large.

    What a few bytes of a file can stand for is known before it is decoded: pages by their headers, texts that a
    dictionary repeats by its longest one.

    Args:
        uri: for messages.
        file: from :func:`open_parquet`.
        columns: names of the top-level columns to read; None = all.
        groups: row groups to read; None = all.
        most: rows of a batch.
        size: about as many bytes of a batch, or one row.
        longest: bytes of the longest record.

    Raises:
        InputError: pages do not decode, or a record or a page is too long.
    """
    import pyarrow as pa

    groups = range(file.metadata.num_row_groups) if groups is None else groups
    start = expected = 0
    try:
        for group in groups:
            meta = file.metadata.row_group(group)
            expected += meta.num_rows
            per_row = max(1, meta.total_byte_size // max(1, meta.num_rows))
            wanted = max(1, min(most, size // per_row, meta.num_rows))
            count = parquet_limits.batch_rows(uri, file, group, columns, wanted, longest)
            # Shards are what runs at once; threads would take a third more memory and no less time.
            for batch in file.iter_batches(batch_size=count, row_groups=[group], columns=columns, use_threads=False):
                if batch.nbytes > longest:
                    _refuse_long(uri, start, batch, longest)
                yield batch
                start += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            "is damaged", where=f"{uri} row {start + 1} or later", got=str(error).splitlines()[0], hint="copy it again"
        ) from error
    if start != expected:
        # A damaged footer can end a row group early, and nothing is raised for it.
        raise InputError(
            "is damaged",
            where=f"{uri} row {start + 1}",
            got=f"{start} rows",
            expected=f"{expected} by its footer",
            hint="copy it again",
        )


def _joined(batches: Iterator[pa.RecordBatch], most: int, size: int) -> Iterator[pa.RecordBatch]:
    """Batches that have turned out small, together: whoever reads them pays for every one."""
    import pyarrow as pa

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


def _refuse_long(uri: str, start: int, batch: pa.RecordBatch, longest: int) -> None:
    sizes = limits.record_bytes(batch)
    row = int(sizes.argmax())
    if sizes[row] > longest:
        raise limits.too_long(f"{uri} row {start + row + 1}", longest, got=f"{sizes[row]} bytes")


def _check_utf8(uri: str, start: int, columns: Sequence[pa.Array]) -> None:
    import pyarrow as pa

    for name, column in zip(FIELDS, columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row in range(len(column)):
                try:
                    column[row].as_py()
                except UnicodeDecodeError as error:
                    where = f"{uri} row {start + row + 1}"
                    raise InputError(f"{name} is not UTF-8", where=where, got=str(error)) from error
            raise


def _slices(columns: Sequence[pa.Array]) -> Iterator[tuple[int, int]]:
    """Stretches (start, length) of rows whose texts make about _ARROW_BYTES."""
    import numpy as np

    ends = sum(offsets[1:].astype(np.int64) - offsets[0] for offsets in map(text_offsets, columns))
    block = ends // _ARROW_BYTES
    starts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        yield start, end - start


def text_offsets(column: pa.Array) -> NDArray[np.integer[Any]]:
    """Where the texts of a string or large_string column begin and end in its buffer, shape (rows + 1,).

    Arrow's own functions would bring ``pyarrow.compute`` and, where it is installed, pandas: a quarter of a second of
    every process.
    """
    import numpy as np
    import pyarrow as pa

    kind: type[np.integer[Any]] = np.int64 if pa.types.is_large_string(column.type) else np.int32
    width = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column) + 1, column.offset * width)


def _read_parquet(uri: str, part: FileSlice | None, checked: bool, content: Content, longest: int) -> Iterator[Batch]:
    import pyarrow as pa

    with open_parquet(uri, content) as file:
        schema = file.schema_arrow
        missing = [name for name in FIELDS if name not in schema.names]
        if missing:
            raise InputError(
                f"column {missing[0]!r} is missing", where=uri, got=", ".join(schema.names), expected=", ".join(FIELDS)
            )
        for name in FIELDS:
            if schema.names.count(name) > 1:
                raise InputError(f"column {name!r} is there twice", where=uri, expected=", ".join(FIELDS))
            kind = schema.field(name).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
            if not text and not pa.types.is_null(kind):
                raise InputError(f"column {name!r} is no text", where=uri, got=str(kind), expected="string")
        start = part.first if part else 0
        groups = range(part.start, part.stop) if part and part.stop is not None else None
        batches = parquet_batches(uri, file, list(FIELDS), groups, _ARROW_ROWS, _ARROW_BYTES, longest)
        for batch in _joined(batches, _ARROW_ROWS, _ARROW_BYTES):
            texts = [_as_text(batch.column(name)) for name in FIELDS]
            if checked:
                _check_utf8(uri, start, texts)
            for first, length in _slices(texts):
                yield Batch(start + first, *(column.slice(first, length) for column in texts))
            start += len(batch)


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    plain = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column if plain else column.cast(pa.large_string())


def _read_jsonl(uri: str, content: Content, longest: int) -> Iterator[Batch]:
    import pyarrow as pa

    from pairmill import _native

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
            data = b""  # the other reader holds as much
            yield from _read_jsonl_on(uri, offset, start, longest, file)


def _refuse_long_texts(uri: str, batch: Batch, longest: int) -> None:
    sizes = limits.row_bytes(batch.condition) + limits.row_bytes(batch.instruction) + limits.row_bytes(batch.response)
    row = int(sizes.argmax())
    if sizes[row] > longest:
        raise limits.too_long(f"{uri} row {batch.start + row + 1}", longest, got=f"{sizes[row]} bytes")


def _read_jsonl_on(uri: str, offset: int, start: int, longest: int, file: BinaryIO) -> Iterator[Batch]:
    """The rows behind the first ``offset`` bytes, which hold ``start`` rows, by Python's reader."""
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
    import pyarrow as pa

    try:
        return Batch(start, *(pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)))
    except UnicodeEncodeError as error:
        for index, row in enumerate(rows):
            if any("\ud800" <= character <= "\udfff" for character in "".join(map(str, row))):
                raise InputError("an unpaired surrogate is no text", where=f"{uri} row {start + index + 1}") from error
        raise


def _row_of(item: object, where: str) -> Row:
    if isinstance(item, jsonstream.Pairs):
        pairs: list[tuple[str, Any]] = item
    elif isinstance(item, list) and len(item) == 3:  # the reference takes an array of three texts as well
        pairs = list(zip(FIELDS, item, strict=True))
    else:
        raise InputError("is not a JSON object", where=where, got=type(item).__name__, expected=", ".join(FIELDS))
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in FIELDS:
            if key in found:
                raise InputError(f"{key} is given twice", where=where)
            if not isinstance(value, str):
                got = "null" if value is None else type(value).__name__
                raise InputError(f"{key} is no text", where=where, got=got, expected="a string")
            found[key] = value
    missing = [name for name in FIELDS if name not in found]
    if missing:
        raise InputError(f"{missing[0]} is missing", where=where, expected=", ".join(FIELDS))
    return Row(**found)


def refuse_mixed(schema: pa.Schema, fields: Collection[str], where: str) -> None:
    """Raise InputError if one of these columns, or with none given any, is JSON that ``datasets`` made of mixed values.

    Where JSON has texts and other values in one column, datasets 5.2 makes JSON of them all, texts in quotes.
    """
    import pyarrow as pa

    for column in schema:
        if isinstance(column.type, pa.JsonType) and (not fields or column.name in fields):
            raise InputError(
                "a column has values of several kinds, which datasets makes texts of JSON of",
                where=where,
                got=column.name,
                hint="fetch the files themselves, without via: datasets",
            )
