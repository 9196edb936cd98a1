"""One Parquet file out of row groups of others: their bytes are copied as they are, only the footer is written anew.

Nothing is decoded, so joining costs what copying costs. Structures and field numbers are those of parquet-format's
``parquet.thrift``; footers are Thrift's compact protocol.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pairmill import storage
from pairmill.errors import InputError, InternalError

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_COPY_BYTES = 4 << 20
# Most footers come with the first read.
_TAIL_BYTES = 64 << 10
# The most that a footer and a list in it may hold. Arrow reads no longer lists either (thrift_container_size_limit).
_FOOTER_BYTES, _ITEMS = 256 << 20, 1_000_000
_DEPTH = 32
_MAX_I16, _MAX_I64 = (1 << 15) - 1, (1 << 63) - 1

# Thrift types as the compact protocol numbers them.
_BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(3, 14)
_BOOLEANS = (1, 2)
_SIZES = {**dict.fromkeys(_BOOLEANS, 0), _BYTE: 1, _DOUBLE: 8, _UUID: 16}

_FILE_SCHEMA, _FILE_ROWS, _FILE_GROUPS, _FILE_KEY_VALUES, _FILE_CREATED_BY, _FILE_ORDERS, _FILE_ENCRYPTION = range(2, 9)
# A second footer in another encoding may hide here, which says again where things lie (BinaryProtocolExtensions.md).
_EXTENSION = 32767
# What may differ between files that are joined; all else, fields unknown today included, has to be equal.
_OWN = frozenset({1, _FILE_ROWS, _FILE_GROUPS, _FILE_KEY_VALUES, _FILE_CREATED_BY})

_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 2, 3, 5, 7

_CHUNK_PATH, _CHUNK_OFFSET, _CHUNK_META = 1, 2, 3
_CHUNK_PAGE_INDEX = (4, 5, 6, 7)
_CHUNK_ENCRYPTION = (8, 9)

_META_BYTES, _META_DATA, _META_INDEX, _META_DICTIONARY = 7, 9, 10, 11
_META_BLOOM = (14, 15)

_PAGE_BYTES, _PAGE_STORED = 2, 3
# Header of a page by its kind, and in that the field of its encoding; the first is always the number of its values.
_PAGE_KINDS = {5: 2, 7: 2, 8: 4}
_PAGE_DICTIONARY = 7
# Headers have some ten bytes, but hold the least and the greatest value of their page, where a writer says them.
_HEADER_BYTES = (1 << 10, 1 << 20)

_ELEMENT_TYPE, _ELEMENT_REPETITION, _ELEMENT_NAME, _ELEMENT_CHILDREN = 1, 3, 4, 5
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS = ("required", "optional", "repeated")


@dataclass(frozen=True, slots=True)
class Group:
    """One row group: its rows, the size of its pages before compression, and where its bytes lie.

    ``ranges`` are (start, length) in the order of the columns; column chunks that follow each other make one.
    """

    rows: int
    total_byte_size: int
    ranges: tuple[tuple[int, int], ...]
    encoded: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes in the file."""
        return sum(length for _, length in self.ranges)


@dataclass(frozen=True, slots=True)
class Footer:
    """What the end of a Parquet file says. It can be pickled, and takes about the memory of its bytes in the file.

    ``fields`` are those of the file as a whole, by number: type and encoded value.
    """

    uri: str
    groups: tuple[Group, ...]
    num_rows: int
    key_values: Mapping[bytes, bytes]
    created_by: str
    fields: Mapping[int, tuple[int, bytes]]

    @classmethod
    def read(cls, uri: str) -> Self:
        """The footer of the file at ``uri``, checked: every column chunk lies within the file.

        Raises:
            InputError: it is no Parquet file, a cut, damaged or encrypted one, or its columns lie in other files.
        """
        with storage.store_for(uri).open(uri) as file:
            return cls.of(file, uri)

    @classmethod
    def of(cls, file: BinaryIO, uri: str) -> Self:
        """As ``read``, of an open file; ``uri`` is what messages call it."""
        data, end = _footer_bytes(file, uri)
        try:
            return cls._parse(uri, data, end)
        except (_Malformed, IndexError) as error:
            # An IndexError is a read past the end of the footer.
            got = str(error) if isinstance(error, _Malformed) else "a footer that ends early"
            raise InputError("is not a readable Parquet file", where=uri, got=got, hint="copy it again") from error

    @classmethod
    def _parse(cls, uri: str, data: bytes, end: int) -> Self:
        file, at = _Struct.parse(data, 0)
        if _FILE_ENCRYPTION in file:
            raise _encrypted(uri)
        if at != len(data):
            raise _Malformed(f"{len(data) - at} bytes after the footer")
        # The first element is the root, which is no column even without children.
        elements = enumerate(file.structs(_FILE_SCHEMA))
        leaves = sum(not _Element.of(item).children and number > 0 for number, (item, _) in elements)
        groups = tuple(_group(uri, group, encoded, leaves, end) for group, encoded in file.structs(_FILE_GROUPS))
        # Chunks that overlap could make a small file grow without bound.
        if sum(group.size for group in groups) > end:
            raise _Malformed("column chunks that overlap")
        rows = file.count(_FILE_ROWS)
        if rows != sum(group.rows for group in groups):
            raise _Malformed(f"{rows} rows, but {sum(group.rows for group in groups)} in its row groups")
        pairs = file.structs(_FILE_KEY_VALUES) if _FILE_KEY_VALUES in file else ()
        key_values = {pair.binary(1): pair.binary(2) for pair, _ in pairs}
        created_by = file.binary(_FILE_CREATED_BY).decode(errors="replace")
        file.drop(_FILE_GROUPS, _EXTENSION)
        return cls(uri, groups, rows, key_values, created_by, file)


class Stitcher:
    """Writes row groups of other files, in the order of ``append``, as one Parquet file.

    The schema, the key/value metadata and the writer's name are those of the first footer. Page indexes and Bloom
    filters are left out. Without a clean exit the file has no footer; a file without row groups is a whole one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._file.write(_MAGIC)
        self._first: Footer | None = None
        self._groups: list[bytes] = []
        self._rows = 0

    def append(self, footer: Footer, groups: Sequence[int], file: BinaryIO | None = None) -> None:
        """Copy these row groups of the footer's file, given by their index; ``file``: it, if it is open already.

        Raises:
            InputError: the schema is not that of the first footer, or the file is shorter than its footer says.
        """
        if self._first is None:
            self._first = footer
        _refuse_other_schema(footer, self._first)
        chosen = [footer.groups[index] for index in groups]
        at = self._file.tell()
        ranges = _coalesced(part for group in chosen for part in group.ranges)
        if file is not None:
            self._copy(file, footer.uri, ranges)
        else:
            with storage.store_for(footer.uri).open(footer.uri) as opened:
                self._copy(opened, footer.uri, ranges)
        for group in chosen:
            self._groups.append(_moved(group, at, len(self._groups)))
            self._rows += group.rows
            at += group.size

    def _copy(self, source: BinaryIO, uri: str, ranges: Iterable[tuple[int, int]]) -> None:
        for start, length in ranges:
            source.seek(start)
            while length:
                data = source.read(min(length, _COPY_BYTES))
                if not data:
                    raise InputError(
                        "ends within a row group", where=uri, hint="it changed while it was read, or is cut"
                    )
                self._file.write(data)
                length -= len(data)

    def _finish(self) -> None:
        if self._first is None:
            raise InternalError("no footer was appended, so there is no schema", where=str(self._path))
        fields = _Struct(self._first.fields)
        fields[_FILE_ROWS] = _I64, _signed(self._rows)
        fields[_FILE_GROUPS] = _LIST, _list(self._groups)
        data = fields.encode()
        if self._rows > _MAX_I64 or len(self._groups) > _ITEMS or len(data) > _FOOTER_BYTES:
            raise InputError(
                "is too much for one Parquet file",
                where=str(self._path),
                got=f"{len(self._groups)} row groups, {self._rows} rows and a footer of {len(data)} bytes",
                expected=f"at most {_ITEMS} row groups and a footer of {_FOOTER_BYTES} bytes",
                hint="spread them over several files",
            )
        self._file.write(data + struct.pack("<I", len(data)) + _MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._finish()


@dataclass(frozen=True, slots=True)
class Page:
    """What the header of a page says.

    Args:
        values: number of its values, nulls included; of a dictionary, its entries.
        size: bytes before compression.
        encoding: parquet.thrift's number of it.
        dictionary: whether it is one.
        start: where its bytes begin in the file, behind the header.
        stored: bytes that it takes there.
    """

    values: int
    size: int
    encoding: int
    dictionary: bool
    start: int
    stored: int


def pages(file: BinaryIO, start: int, length: int, values: int) -> Iterator[Page]:
    """The pages of a column chunk in order, by their headers alone, until ``values`` are told or no header is there.

    What is wrong with a page is found by whoever decodes it.

    Args:
        file: seekable.
        start: of the first page, be it a dictionary or not.
        length: of the chunk.
        values: of the chunk.
    """
    at, end = start, start + length
    while values > 0 and at < end:
        found = _page(file, at)
        if found is None:
            return
        yield found
        at = found.start + found.stored
        values -= 0 if found.dictionary else found.values


def _page(file: BinaryIO, at: int) -> Page | None:
    for most in _HEADER_BYTES:
        file.seek(at)
        try:
            header, size = _Struct.parse(file.read(most), 0)
            kind = next((kind for kind in _PAGE_KINDS if kind in header), None)
            if kind is None:
                return None
            told = header.struct(kind)
            count, encoding = told.count(1), told.count(_PAGE_KINDS[kind])
            stored = header.count(_PAGE_STORED)
            dictionary = kind == _PAGE_DICTIONARY
            return Page(count, header.count(_PAGE_BYTES), encoding, dictionary, at + size, stored)
        except IndexError:
            continue  # cut
        except _Malformed:
            return None
    return None


def _footer_bytes(file: BinaryIO, uri: str) -> tuple[bytes, int]:
    """The encoded footer and its offset, which is where everything else ends."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    magic = tail[-4:]
    if magic == _ENCRYPTED_MAGIC:
        raise _encrypted(uri)
    if magic != _MAGIC or len(tail) < 12:
        raise InputError(
            "is not a readable Parquet file",
            where=uri,
            got=f"{size} bytes that end with {magic!r}",
            expected=repr(_MAGIC),
            hint="copy it again; it may be cut",
        )
    (length,) = struct.unpack("<I", tail[-8:-4])
    start = size - 8 - length
    if start < len(_MAGIC) or length > _FOOTER_BYTES:
        raise InputError(
            "is not a readable Parquet file",
            where=uri,
            got=f"a footer of {length} bytes",
            expected=f"at most {max(0, min(size - 12, _FOOTER_BYTES))}",
            hint="copy it again",
        )
    if length + 8 <= len(tail):
        return tail[-8 - length : -8], start
    file.seek(start)
    return file.read(length), start


def _encrypted(uri: str) -> InputError:
    return InputError("is encrypted", where=uri, expected="a plain Parquet file", hint="decrypt it first")


def _group(uri: str, group: _Struct, encoded: bytes, leaves: int, end: int) -> Group:
    """The record of a row group. ``leaves``: columns by the schema; ``end``: where the footer begins."""
    extents = []
    for chunk, _ in group.structs(_GROUP_COLUMNS):
        if any(field in chunk for field in _CHUNK_ENCRYPTION):
            raise _encrypted(uri)
        if path := chunk.binary(_CHUNK_PATH):
            got = path.decode(errors="replace")
            raise InputError("has columns in another file", where=uri, got=got, hint="give that file instead")
        start, length = _extent(chunk.struct(_CHUNK_META))
        # A chunk of no bytes lies nowhere: writers say anything.
        if length and (start < len(_MAGIC) or start + length > end):
            raise _Malformed(f"a column chunk at bytes {start} to {start + length}, outside of the data")
        extents.append((start, length))
    if len(extents) != leaves:
        raise _Malformed(f"a row group of {len(extents)} columns under a schema of {leaves}")
    return Group(group.count(_GROUP_ROWS), group.count(_GROUP_BYTES), tuple(_coalesced(extents)), encoded)


def _extent(meta: _Struct) -> tuple[int, int]:
    """Start and length of a column chunk's pages."""
    length = meta.count(_META_BYTES)
    data = meta.count(_META_DATA)
    dictionary = meta.count(_META_DICTIONARY) if _META_DICTIONARY in meta else 0
    # 0 is no offset: a chunk without values may have a dictionary alone, or nothing.
    offsets = [offset for offset in (data, dictionary) if offset]
    start = min(offsets, default=0)
    if max(offsets, default=0) > start + length:
        raise _Malformed("a column chunk whose pages lie apart")
    return start, length


def _coalesced(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same ranges, those that continue the one before joined to it."""
    start = length = 0
    for begin, size in ranges:
        if begin == start + length:
            length += size
        elif size:
            if length:
                yield start, length
            start, length = begin, size
    if length:
        yield start, length


def _moved(group: Group, at: int, ordinal: int) -> bytes:
    """The encoded row group as it has to be where its bytes begin at ``at``."""
    moved, _ = _Struct.parse(group.encoded, 0)
    moved.drop(_GROUP_ORDINAL, _EXTENSION)
    moved[_GROUP_OFFSET] = _I64, _signed(at)
    if ordinal <= _MAX_I16:
        moved[_GROUP_ORDINAL] = _I16, _signed(ordinal)
    chunks = []
    for chunk, _ in moved.structs(_GROUP_COLUMNS):
        meta = chunk.struct(_CHUNK_META)
        start, length = _extent(meta)
        # Nobody writes index pages: the format says nothing of them but that there may be.
        meta.drop(_META_INDEX, *_META_BLOOM, _EXTENSION)
        for field in (_META_DATA, _META_DICTIONARY):
            if field in meta and (offset := meta.count(field)):
                meta[field] = _I64, _signed(offset - start + at)
        chunk.drop(*_CHUNK_PAGE_INDEX, _EXTENSION)
        # By the specification 0: there is no second copy of the metadata outside of the footer.
        chunk[_CHUNK_OFFSET] = _I64, _signed(0)
        chunk[_CHUNK_META] = _STRUCT, meta.encode()
        chunks.append(chunk.encode())
        at += length
    moved[_GROUP_COLUMNS] = _LIST, _list(chunks)
    return moved.encode()


def _refuse_other_schema(footer: Footer, first: Footer) -> None:
    mine, other = footer.fields, first.fields
    for field in sorted((mine.keys() | other.keys()) - _OWN):
        if mine.get(field) == other.get(field):
            continue
        what, got, expected = f"field {field} of the footer differs", "", ""
        if field == _FILE_SCHEMA:
            what = "the schema differs"
            got, expected = _first_difference(mine[field][1], other[field][1])
        elif field == _FILE_ORDERS:
            what = "the sort orders of its columns differ"
        raise InputError(what, where=footer.uri, got=got, expected=f"{expected} as in {first.uri}".lstrip())
    key = b"ARROW:schema"
    if footer.key_values.get(key) != first.key_values.get(key):
        raise InputError("the Arrow schema in its metadata differs", where=footer.uri, expected=f"as in {first.uri}")


def _first_difference(mine: bytes, other: bytes) -> tuple[str, str]:
    left, right = list(_structs(mine)), list(_structs(other))
    for (a, encoded), (b, expected) in zip(left, right, strict=False):
        if encoded != expected:
            got, want = str(_Element.of(a)), str(_Element.of(b))
            return (got, want) if got != want else (got, f"another logical type of {want}")
    return f"{len(left)} schema elements", f"{len(right)}"


@dataclass(frozen=True)
class _Element:
    """A node of the schema, as far as errors name it."""

    name: str
    kind: str
    children: int

    @classmethod
    def of(cls, element: _Struct) -> Self:
        kind = []
        for field, names in ((_ELEMENT_REPETITION, _REPETITIONS), (_ELEMENT_TYPE, _TYPES)):
            if field in element:
                number = element.count(field)
                kind.append(names[number] if number < len(names) else str(number))
        children = element.count(_ELEMENT_CHILDREN) if _ELEMENT_CHILDREN in element else 0
        return cls(element.binary(_ELEMENT_NAME).decode(errors="replace"), " ".join(kind), children)

    def __str__(self) -> str:
        return f"{self.name!r} ({self.kind})" if not self.children else f"{self.name!r} of {self.children}"


# --- Thrift's compact protocol --------------------------------------------------------------------------------------


class _Malformed(Exception):
    """A footer says what cannot be."""


class _Struct(dict[int, tuple[int, bytes]]):
    """A struct: by field number the type and the value, still encoded, so that what is unknown stays as it is."""

    @classmethod
    def parse(cls, data: bytes, at: int) -> tuple[Self, int]:
        """The struct at ``at``, and the position after it. Raises IndexError or _Malformed."""
        found = cls()
        field = 0
        while head := data[at]:
            at += 1
            kind = head & 15
            if head > 15:
                field += head >> 4
            else:
                number, at = _varint(data, at)
                field = number >> 1 ^ -(number & 1)
            if field in found or not -_MAX_I16 <= field <= _MAX_I16:
                raise _Malformed(f"field {field} again or out of range")
            end = _skip(data, at, kind)
            found[field] = kind, data[at:end]
            at = end
        return found, at + 1

    def encode(self) -> bytes:
        """The struct in the compact protocol, its fields in ascending order."""
        parts = []
        last = 0
        for field, (kind, value) in sorted(self.items()):
            delta = field - last
            head = bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + _signed(field)
            parts += [head, value]
            last = field
        return b"".join([*parts, b"\0"])

    def count(self, field: int) -> int:
        """The value of an integer field, which has to be there and not be negative."""
        kind, value = self.get(field, (0, b""))
        if kind not in (_I16, _I32, _I64):
            raise _Malformed(f"no integer in field {field}")
        number, _ = _varint(value, 0)
        # Even numbers are zigzag's encoding of those from 0 on; odd ones are negative.
        if number & 1 or number >> 1 > _MAX_I64:
            raise _Malformed(f"{number >> 1 ^ -(number & 1)} in field {field}")
        return number >> 1

    def binary(self, field: int) -> bytes:
        """The value of a string field, empty if it is not there."""
        kind, value = self.get(field, (_BINARY, b"\0"))
        if kind != _BINARY:
            raise _Malformed(f"no string in field {field}")
        return value[_varint(value, 0)[1] :]

    def struct(self, field: int) -> _Struct:
        """The struct of a field, which has to be there."""
        kind, value = self.get(field, (0, b""))
        if kind != _STRUCT:
            raise _Malformed(f"no struct in field {field}")
        return _Struct.parse(value, 0)[0]

    def structs(self, field: int) -> Iterator[tuple[_Struct, bytes]]:
        """The structs of a list field, which has to be there, one at a time, each with its encoded bytes."""
        kind, value = self.get(field, (0, b""))
        if kind != _LIST:
            raise _Malformed(f"no list in field {field}")
        return _structs(value)

    def drop(self, *fields: int) -> None:
        """Leave these fields out."""
        for field in fields:
            self.pop(field, None)


def _structs(data: bytes) -> Iterator[tuple[_Struct, bytes]]:
    kind, count, at = _list_head(data, 0)
    if count > _ITEMS or (count and kind != _STRUCT):
        raise _Malformed(f"a list of {count} items of type {kind} for one of structs")
    for _ in range(count):
        item, end = _Struct.parse(data, at)
        yield item, data[at:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the position after it."""
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
    raise _Malformed("a number of more than 10 bytes")


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Type and number of a list's items, and where they begin."""
    head = data[at]
    at += 1
    count = head >> 4
    if count == 15:
        count, at = _varint(data, at)
    # Every value in a list takes a byte or more.
    if count > len(data) - at:
        raise _Malformed(f"a list of {count} items in {len(data) - at} bytes")
    return head & 15, count, at


def _skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """The position after the value of a field."""
    if _I16 <= kind <= _I64:
        last = at + 9
        while data[at] > 127:
            if at == last:
                raise _Malformed("a number of more than 10 bytes")
            at += 1
        return at + 1
    if kind == _BINARY:
        size, at = _varint(data, at)
        return _advance(data, at, size)
    if kind in _SIZES:
        return _advance(data, at, _SIZES[kind])
    if depth == _DEPTH:
        raise _Malformed(f"structures more than {_DEPTH} deep")
    if kind == _STRUCT:
        while head := data[at]:
            at += 1
            if head < 16:
                at = _varint(data, at)[1]
            at = _skip(data, at, head & 15, depth + 1)
        return at + 1
    if kind in (_LIST, _SET):
        item, count, at = _list_head(data, at)
        kinds = [item]
    elif kind == _MAP:
        count, at = _varint(data, at)
        if not count:
            return at
        kinds = [data[at] >> 4, data[at] & 15]
        at += 1
    else:
        raise _Malformed(f"a value of the unknown type {kind}")
    # In a field a boolean is its type; in a container it is a byte of its own.
    kinds = [_BYTE if item in _BOOLEANS else item for item in kinds]
    for _ in range(count):
        for item in kinds:
            at = _skip(data, at, item, depth + 1)
    return at


def _advance(data: bytes, at: int, size: int) -> int:
    if size > len(data) - at:
        raise _Malformed(f"a value of {size} bytes where {len(data) - at} are left")
    return at + size


def _unsigned(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _signed(number: int) -> bytes:
    return _unsigned(number << 1 if number >= 0 else ~(number << 1))


def _list(items: Sequence[bytes]) -> bytes:
    """A list of encoded structs."""
    head = bytes([len(items) << 4 | _STRUCT]) if len(items) < 15 else bytes([15 << 4 | _STRUCT]) + _unsigned(len(items))
    return head + b"".join(items)
