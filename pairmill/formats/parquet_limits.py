"""Bounds the rows of a Parquet file that are decoded at once, by headers of pages and the longest dictionary entry.

A kilobyte of Parquet can expand to gigabytes of rows: a dictionary stores a text once that a million rows repeat, and a
page of one letter compresses to nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import storage
from pairmill.errors import InputError
from pairmill.formats import limits, parquet
from pairmill.formats.parquet import Page

_VARIABLE = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
# Bytes of a plainly encoded value; of a text, those of its length.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 4}
_DICTIONARY = (2, 8)
_DELTA_BYTE_ARRAY = 7
# Rows of a page have different sizes: some may have this many times the average.
_UNEVEN = 8
# The headers do not tell how many values each list has. If one row with all values could exceed this, look first.
_LISTED_BYTES = 256 << 20
_LISTED_ROWS = 16
# Dictionaries of at most as many entries are decoded for the length of the longest.
_ENTRIES = 1 << 20


class _Chunk(NamedTuple):
    """A column chunk: its metadata, its pages, and bytes of its dictionary's longest entry."""

    meta: Any
    listed: bool
    pages: Sequence[Page]
    entry: int

    @property
    def data(self) -> list[Page]:
        """The pages without the dictionary; empty if their headers were not read."""
        return [page for page in self.pages if not page.dictionary and page.values]

    @property
    def worth_a_look(self) -> bool:
        """Whether decoding the dictionary costs less than small batches."""
        most = self.repeated * self.entry
        if self.listed or most <= limits.BATCH_BYTES:
            return most > _LISTED_BYTES
        return any(page.dictionary and 2 * page.values <= self.meta.num_values for page in self.pages)

    @property
    def repeated(self) -> int:
        """The maximum of values that refer to the dictionary."""
        data = self.data
        return sum(page.values for page in data if page.encoding in _DICTIONARY) if data else self.meta.num_values


def batch_rows(uri: str, file: Any, group: int, columns: Sequence[str] | None, most: int, longest: int) -> int:
    """Return the number of rows of a row group to decode at once, from 1 to ``most``.

    They decode to at most :data:`pairmill.formats.limits.RECORD_BYTES`, or are of one page.

    Args:
        uri: of the file, for messages.
        file: from :func:`pairmill.formats.parquet_reader.open_parquet`.
        group: number of the row group.
        columns: top-level columns that are read; None = all.
        most: maximum rows.
        longest: maximum bytes of a record.

    Raises:
        InputError: a page or a record is too long.
    """
    where = f"{uri} row group {group}"
    meta = file.metadata.row_group(group)
    rows = meta.num_rows
    if not rows:
        return most
    # In a bucket, each header of a page would be a request.
    chunks = list(_chunks(where, file, meta, columns, longest, near=storage.scheme(uri) == "file"))
    result = most
    for chunk in chunks:
        held = chunk.meta.num_values * _WIDTHS.get(chunk.meta.physical_type, 8)
        if chunk.listed and held // rows > longest:
            what = f"{chunk.meta.num_values} values in {rows} rows of {chunk.meta.path_in_schema}"
            raise limits.too_long(where, longest, got=what)
        if chunk.listed and chunk.repeated * chunk.entry > _LISTED_BYTES:
            result = min(
                result, max(1, limits.BATCH_BYTES // max(1, _longest_listed(where, file, group, chunk, longest)))
            )
    while result > 1 and sum(_most_bytes(chunk, rows, result) for chunk in chunks) > limits.RECORD_BYTES:
        result = max(1, result // 2)
    return result


def _chunks(
    where: str, file: Any, meta: Any, columns: Sequence[str] | None, longest: int, *, near: bool
) -> Iterator[_Chunk]:
    for number in range(meta.num_columns):
        chunk = meta.column(number)
        # A dot may be part of a name as well.
        if columns is not None and not any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns):
            continue
        listed = file.schema.column(number).max_repetition_level > 0
        pages: list[Page] = []
        if near or _can_grow(chunk) or chunk.total_uncompressed_size > longest:
            whole = near or chunk.total_uncompressed_size > longest
            pages = _pages(where, file, chunk, longest, whole=whole)
        result = _Chunk(chunk, listed, pages, _longest_entry(chunk, pages))
        if result.worth_a_look:
            result = result._replace(entry=_longest_by_a_look(file, result))
        yield result


def _can_grow(chunk: Any) -> bool:
    """Return whether a column can decode to more than a batch, by its metadata."""
    grows = chunk.has_dictionary_page and chunk.physical_type in _VARIABLE
    return grows and chunk.num_values * chunk.total_uncompressed_size > limits.BATCH_BYTES


def _pages(where: str, file: Any, chunk: Any, longest: int, *, whole: bool) -> list[Page]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    result = []
    for page in parquet.pages(file.source, start, chunk.total_compressed_size, chunk.num_values):
        if page.size > limits.PAGE_RECORDS * longest:
            raise InputError(
                "a page is too large",
                where=f"{where}, column {chunk.path_in_schema}",
                got=f"{page.size} bytes",
                expected=f"at most {limits.PAGE_RECORDS} times max_record_bytes, {limits.PAGE_RECORDS * longest}",
                hint="write the file with smaller pages, or raise max_record_bytes=, which takes more memory",
            )
        result.append(page)
        if not whole:
            break
    return result


def _longest_entry(chunk: Any, pages: Sequence[Page]) -> int:
    """Return the maximum bytes of a dictionary entry, by its page's size."""
    page = next((page for page in pages if page.dictionary), None)
    if page is None or chunk.physical_type not in _VARIABLE or not page.values:
        return 0
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return page.size // page.values
    return max(0, page.size - 4 * page.values)


def _longest_by_a_look(file: Any, chunk: _Chunk) -> int:
    """Return bytes of the longest dictionary entry, from the decoded dictionary if it is not too large."""
    page = next(page for page in chunk.pages if page.dictionary)
    if page.values > _ENTRIES or chunk.meta.physical_type != "BYTE_ARRAY":
        return chunk.entry
    data = _decompressed(file, chunk.meta.compression, page)
    longest = at = 0
    while data is not None and at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return chunk.entry if data is None else min(longest, chunk.entry)


def _decompressed(file: Any, compression: str, page: Page) -> bytes | None:
    file.source.seek(page.start)
    data: bytes = file.source.read(page.stored)
    if compression == "UNCOMPRESSED":
        return data
    try:
        return pa.Codec(compression.lower()).decompress(data, page.size, asbytes=True)  # type: ignore[no-any-return]
    except (pa.ArrowException, OSError, ValueError):
        return None


def _most_bytes(chunk: _Chunk, rows: int, count: int) -> int:
    """Return the maximum bytes that ``count`` consecutive rows of a chunk decode to, by the headers of its pages."""
    # The headers do not tell the rows of a page of lists: assume equal lengths.
    wanted = count * chunk.meta.num_values / rows
    repeated = min(wanted, chunk.repeated) * chunk.entry
    plain = [page for page in chunk.data if page.encoding not in _DICTIONARY]
    if not plain:
        told = chunk.meta.total_uncompressed_size if not chunk.data else 0
        return int(repeated + told * min(1.0, _UNEVEN * count / rows))
    if sum(page.size for page in plain) <= limits.BATCH_BYTES and _DELTA_BYTE_ARRAY not in {
        page.encoding for page in plain
    }:
        return int(repeated) + sum(page.size for page in plain)
    values = np.array([page.values for page in plain], np.float64)
    sizes = np.array([page.size for page in plain], np.float64)
    share = wanted / values
    held = np.minimum(sizes, _UNEVEN * share * sizes)
    for number, page in enumerate(plain):
        if page.encoding == _DELTA_BYTE_ARRAY:
            held[number] = min(1.0, share[number]) * page.values * page.size
    return int(repeated + _windows(held, values, wanted).max())


def _windows(held: NDArray[np.float64], values: NDArray[np.float64], count: float) -> NDArray[np.float64]:
    """Return, for each page, the sum of ``held`` over all pages that ``count`` values from there on can touch."""
    starts = np.concatenate(([0.0], np.cumsum(values)))
    sums = np.concatenate(([0.0], np.cumsum(held)))
    # They may start with the page's last value.
    last = np.searchsorted(starts[:-1], starts[1:] + count - 1, side="left")
    return sums[last] - sums[:-1]


def _longest_listed(where: str, file: Any, group: int, chunk: _Chunk, longest: int) -> int:
    """Return bytes of the longest row of a column of lists with a dictionary; reads the column without expanding it."""
    path = chunk.meta.path_in_schema
    coded = pq.ParquetFile(
        file.source, metadata=file.metadata, read_dictionary=[path], buffer_size=1 << 20, pre_buffer=False
    )
    result = 0
    for batch in coded.iter_batches(_LISTED_ROWS, row_groups=[group], columns=[path], use_threads=False):
        result = max(result, int(limits.record_bytes(batch).max(initial=0)))
        if result > longest:
            raise limits.too_long(f"{where}, column {path}", longest, got=f"{result} bytes")
    return result
