"""Reads Arrow IPC files and streams, as pyarrow, pandas (feather) and ``datasets`` write them, batch by batch.

A file is a stream after eight bytes, and its footer is not needed. A message is looked at before it is decoded: what a
few compressed bytes would become is bounded, as in Parquet. Source of the format: arrow.apache.org/docs/format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from pairmill.errors import InputError
from pairmill.formats import limits

_MAGIC, _MAGIC_BYTES = b"ARROW1", 8
_GOES_ON = b"\xff\xff\xff\xff"
_END = _GOES_ON + bytes(4)
_MAX_METADATA = 64 << 20
_DICTIONARY, _BATCH = 2, 3
# Fields of the tables of the metadata: of a message its header and the length of its body; of a batch rows, buffers,
# compression; of a dictionary its batch.
_TYPE, _HEADER, _BODY = 1, 2, 3
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_DATA = 1


class Message(NamedTuple):
    """A message as it is in the file: whether it has rows, or a dictionary that later rows refer to."""

    data: bytes
    rows: int
    is_batch: bool
    is_dictionary: bool


class Head(NamedTuple):
    """What is before the rows: the schema and dictionaries, and the byte after them."""

    data: bytes
    stop: int


def messages(uri: str, file: BinaryIO, longest: int, number: int = 0) -> Iterator[Message]:
    """Yield the messages from the position of a file on, up to the end of the stream.

    Args:
        uri: for messages.
        file: at its beginning, or between two messages.
        longest: bytes of the longest record.
        number: of the next row, for messages.

    Raises:
        InputError: not an Arrow file, a damaged one, or a batch is too large.
    """
    most = limits.PAGE_RECORDS * max(longest, limits.RECORD_BYTES)
    where = f"{uri} row {number + 1} or later"
    prefix = file.read(4)
    if prefix == _MAGIC[:4]:
        file.read(_MAGIC_BYTES - 4)
        prefix = file.read(4)
    try:
        while prefix:
            if prefix == _GOES_ON:
                prefix += file.read(4)
            (size,) = struct.unpack("<i", prefix[-4:])
            if size == 0:
                return
            if not 0 < size <= _MAX_METADATA:
                raise _damaged(where, "no message where one begins")
            table = _Table.root(metadata := file.read(size))
            header, length = table.table(_HEADER), table.number(_BODY)
            kind = table.byte(_TYPE)
            if not 0 <= length <= most:
                raise _too_large(where, length, most)
            body = file.read(length)
            if len(metadata) < size or len(body) < length:
                raise _damaged(where, "the file ends within a batch")
            batch = header.table(_DATA) if kind == _DICTIONARY else header
            if kind in (_DICTIONARY, _BATCH) and batch.has(_COMPRESSION):
                unpacked = sum(struct.unpack_from("<q", body, at)[0] for at, size in batch.pairs(_BUFFERS) if size)
                if unpacked > most:
                    raise _too_large(where, unpacked, most)
            rows = header.number(_ROWS) if kind == _BATCH else 0
            yield Message(prefix + metadata + body, rows, kind == _BATCH, kind == _DICTIONARY)
            number += rows
            where = f"{uri} row {number + 1} or later"
            prefix = file.read(4)
    except struct.error as error:
        raise _damaged(where, str(error)) from error


def head_of(uri: str, file: BinaryIO, longest: int) -> Head:
    """Read what is before the first rows. Raises InputError as :func:`messages`, and for a file without a schema."""
    is_file = file.read(len(_MAGIC)) == _MAGIC
    file.seek(0)
    parts, stop = [], _MAGIC_BYTES * is_file
    for message in messages(uri, file, longest):
        if message.is_batch:
            break
        parts.append(message.data)
        stop += len(message.data)
    if not parts:
        raise _damaged(uri, "no schema")
    return Head(b"".join(parts), stop)


def schema_of(uri: str, head: Head) -> pa.Schema:
    """Return the schema of a file. Raises InputError for one that cannot be read."""
    return next(_opened(uri, head.data))


def batches(uri: str, head: Head, some: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    """Decode messages to record batches, one after another.

    Args:
        uri: for messages.
        head: of the file.
        some: messages of :func:`messages`; dictionaries among them count for what follows.

    Raises:
        InputError: a batch does not decode.
    """
    before = head.data
    for message in some:
        if message.is_batch:
            result = _opened(uri, before + message.data)
            next(result)
            yield next(result)
        elif message.is_dictionary:
            before += message.data


def _opened(uri: str, data: bytes) -> Iterator[Any]:
    """Yield the schema of a stream, and its first batch."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(data + _END)) as reader:
            yield reader.schema
            batch = reader.read_next_batch()
            try:
                # Offsets that lead out of the file would crash the process when values are read.
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                if "UTF8" not in str(error):
                    raise
            yield batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(uri, str(error).splitlines()[0]) from error


class _Table(NamedTuple):
    """A table of a flatbuffer: its bytes, and where it is in them. Raises struct.error outside of them."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, cls._read("I", data, 0))

    @staticmethod
    def _read(kind: str, data: bytes, at: int) -> int:
        if at < 0:
            raise struct.error("a place before the message")
        result: int = struct.unpack_from(f"<{kind}", data, at)[0]
        return result

    def _field(self, number: int) -> int:
        """Return where a field is; 0 if it has its default."""
        fields = self.at - self._read("i", self.data, self.at)
        place = 4 + 2 * number
        offset = self._read("H", self.data, fields + place) if place < self._read("H", self.data, fields) else 0
        return self.at + offset if offset else 0

    def has(self, number: int) -> bool:
        return bool(self._field(number))

    def byte(self, number: int) -> int:
        return self._read("B", self.data, place) if (place := self._field(number)) else 0

    def number(self, number: int) -> int:
        return self._read("q", self.data, place) if (place := self._field(number)) else 0

    def table(self, number: int) -> _Table:
        place = self._field(number)
        return _Table(self.data, place + self._read("I", self.data, place))

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of numbers of a vector: places and lengths of buffers."""
        place = self._field(number)
        place += self._read("I", self.data, place)
        for at in range(self._read("I", self.data, place)):
            first, second = struct.unpack_from("<qq", self.data, place + 4 + 16 * at)
            yield first, second


def _damaged(where: str, got: str) -> InputError:
    return InputError("not a readable Arrow file", where=where, got=got, hint="copy it again; it may be truncated")


def _too_large(where: str, size: int, most: int) -> InputError:
    return InputError(
        "a batch is too large",
        where=where,
        got=f"{size:,} bytes",
        expected=f"at most {most:,}, {limits.PAGE_RECORDS} times max_record_bytes",
        hint="write it in smaller batches: pyarrow.ipc.new_file(…).write_table(table, max_chunksize=1000)",
    )
