"""Two things in a Parquet file that pyarrow does not reach: the headers of pages, and the ordinals of row groups.

Both are structs of parquet-format's ``parquet.thrift`` in Thrift's compact protocol.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

# The number of bytes tried for a header: most have ten, but statistics repeat the page's least and greatest value.
_HEADER_BYTES = (1 << 10, 1 << 20)
_PAGE_BYTES, _PAGE_STORED = 2, 3
# The fields of a page's header that describe a data page, a dictionary and a data page of version 2; for each, the
# field with its encoding. Their first field is the number of values.
_PAGE_KINDS = {5: 2, 7: 2, 8: 4}
_DICTIONARY = 7
_ROW_GROUPS = 4
MAGIC = b"PAR1"
_MAX_ORDINALS = 1 << 15


class Page(NamedTuple):
    """The header of a page.

    Args:
        values: number of values, nulls included; of a dictionary, its entries.
        size: bytes before compression.
        encoding: its number in parquet.thrift.
        dictionary: whether the page is a dictionary.
        start: position of the page's bytes in the file, after the header.
        stored: number of those bytes.
    """

    values: int
    size: int
    encoding: int
    dictionary: bool
    start: int
    stored: int


def pages(file: BinaryIO, start: int, length: int, values: int) -> Iterator[Page]:
    """Yield the pages of a column chunk from their headers, up to ``values`` values or the first unreadable header.

    A damaged page is not an error here: decoding it will raise one.

    Args:
        file: seekable.
        start: position of the chunk's first page, which may be a dictionary.
        length: bytes of the chunk.
        values: number of values in the chunk.
    """
    at, end = start, start + length
    while values > 0 and at < end:
        page = _page(file, at)
        if page is None:
            return
        yield page
        at = page.start + page.stored
        values -= 0 if page.dictionary else page.values


def _page(file: BinaryIO, at: int) -> Page | None:
    for length in _HEADER_BYTES:
        file.seek(at)
        compact = Compact(file.read(length))
        try:
            header = compact.struct()
            kind = next(kind for kind in _PAGE_KINDS if kind in header)
            values, encoding = header[kind][1], header[kind][_PAGE_KINDS[kind]]
            size, stored = header[_PAGE_BYTES], header[_PAGE_STORED]
            if min(values, encoding, size, stored) < 0:
                return None
            return Page(values, size, encoding, kind == _DICTIONARY, at + compact.at, stored)
        except IndexError:
            continue  # the header is longer
        except (KeyError, TypeError, ValueError, StopIteration, RecursionError):
            return None
    return None


def number_row_groups(path: Path) -> None:
    """Write the ordinal of each row group into the footer of a file that pyarrow wrote.

    pyarrow writes ordinals into encrypted files only. The files that clean has published since its first version have
    them, and their bytes must not change.
    """
    with path.open("r+b") as file:
        footer, start = footer_of(file)
        footer = numbered(footer)
        file.seek(start)
        file.write(footer + len(footer).to_bytes(4, "little") + MAGIC)


def footer_of(file: BinaryIO) -> tuple[bytes, int]:
    """Return the footer of a file that pyarrow wrote, and its position; empty if the file does not end as Parquet
    does."""
    end = max(0, file.seek(0, os.SEEK_END) - 8)
    file.seek(end)
    length, magic = file.read(4), file.read()
    start = end - int.from_bytes(length, "little")
    if magic != MAGIC or start < len(MAGIC):
        return b"", 0
    file.seek(start)
    return file.read(end - start), start


def numbered(footer: bytes) -> bytes:
    """Return a footer of pyarrow's with the ordinal of each row group."""
    compact = Compact(footer)
    parts, done = [], 0
    for field, kind in compact.fields():
        if field != _ROW_GROUPS:
            compact.value(kind)
            continue
        for ordinal in range(min(compact.items()[1], _MAX_ORDINALS)):
            compact.struct()
            # The last field that pyarrow writes is number 6. Field 7 (one more than 6) is an i16 (type 4), zigzagged.
            end = compact.at - 1
            parts += [footer[done:end], b"\x14", varint(ordinal << 1)]
            done = end
        break
    return b"".join([*parts, footer[done:]])


class Compact:
    """A reader of Thrift's compact protocol. It raises IndexError at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self) -> dict[int, Any]:
        return {field: self.value(kind) for field, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field; the caller reads its value before the next one."""
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            yield field, head & 15

    def items(self) -> tuple[int, int]:
        """Type and number of a list's items."""
        head = self._byte()
        return head & 15, self._unsigned() if head >> 4 == 15 else head >> 4

    def value(self, kind: int, *, item: bool = False) -> Any:
        if kind in (1, 2) and not item:  # a boolean is its type in a field, and a byte in a list
            return kind == 1
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (7, 8):
            size = 8 if kind == 7 else self._unsigned()
            self.at += size
            return self._data[self.at - size : self.at]
        if kind in (9, 10):
            kind, count = self.items()
            return [self.value(kind, item=True) for _ in range(count)]
        if kind == 12:
            return self.struct()
        raise ValueError(f"type {kind}")  # maps are not part of parquet.thrift

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of more than 10 bytes")

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
