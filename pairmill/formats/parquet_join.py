"""Joins Parquet files of one writer: their row groups are copied as they are, under a new footer.

The result has the bytes that this writer would have written with the row groups of all files. Nothing is decoded, so
it takes as long as a copy. pyarrow cannot do it, and writing the rows again takes as long as making the parts did
(docs/decisions/0039).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pairmill import storage
from pairmill.errors import InternalError
from pairmill.formats.parquet import MAGIC, Compact, footer_of, varint

_ROWS, _ROW_GROUPS = 3, 4
_STRUCT = 12
# The fields of a row group, its columns and their metadata that are positions in the file.
_METADATA: Final = dict.fromkeys((9, 10, 11))
_COLUMN: Final = {2: None, 3: _METADATA}
_GROUP: Final[Mapping[int, Any]] = {1: _COLUMN, 5: None}
# A column's page index and bloom filter: the index has positions of its own.
_INDEX: Final = (4, 6)
_BLOOM: Final = 14


def join(parts: Sequence[str], finish: Callable[[bytes], bytes] = bytes) -> list[bytes | storage.Span]:
    """Return the pieces of one file with the row groups of others, in order.

    Args:
        parts: URIs of one or more files, whose footers are read.
        finish: makes the footer that is written of the footer.

    Raises:
        InternalError: the files have different columns or writers, or an index of pages.
    """
    around: tuple[bytes, bytes, bytes] | None = None
    groups: list[bytes] = []
    spans: list[storage.Span] = []
    place, rows, count = len(MAGIC), 0, 0
    for uri in parts:
        with storage.store_for(uri).open(uri) as part:
            footer, end = footer_of(part)
        if not footer:
            raise InternalError("a part of a Parquet file is truncated", where=uri)
        mine, own_rows, own_count, own_groups = _taken_apart(footer, place - len(MAGIC))
        if around is not None and mine != around:
            raise InternalError("the parts of a Parquet file differ in more than their rows", where=uri)
        around = mine
        if end > len(MAGIC):
            spans.append(storage.Span(uri, len(MAGIC), end))
        place += end - len(MAGIC)
        groups.append(own_groups)
        rows, count = rows + own_rows, count + own_count
    assert around is not None, "no part"
    header = bytes([count << 4 | _STRUCT]) if count < 15 else bytes([15 << 4 | _STRUCT]) + varint(count)
    before, between, after = around
    footer = finish(b"".join([before, varint(rows << 1), between, header, *groups, after]))
    return [MAGIC, *spans, footer + len(footer).to_bytes(4, "little") + MAGIC]


def _taken_apart(footer: bytes, moved: int) -> tuple[tuple[bytes, bytes, bytes], int, int, bytes]:
    """Return what is before, between and after number of rows and row groups; both; row groups that many bytes
    later."""
    compact = Compact(footer)
    cuts = [0]
    rows = count = 0
    groups = b""
    for field, kind in compact.fields():
        start = compact.at
        if field == _ROWS:
            rows = compact.value(kind)
        elif field == _ROW_GROUPS:
            count = compact.items()[1]
            first = compact.at
            places = [place for _ in range(count) for place in _places(compact, _GROUP)]
            groups = _moved(footer, first, compact.at, places, moved)
        else:
            compact.value(kind)
            continue
        cuts += [start, compact.at]
    before, between, after = (footer[start:stop] for start, stop in zip(cuts[::2], [*cuts[1::2], None], strict=True))
    return (before, between, after), rows, count, groups


def _places(compact: Compact, known: Mapping[int, Any]) -> Iterator[tuple[int, int, int]]:
    """Start, end and value of each position that a struct has; 0 stands for none."""
    for field, kind in compact.fields():
        if (known is _COLUMN and field in _INDEX) or (known is _METADATA and field == _BLOOM):
            raise InternalError("a Parquet file with a page index or bloom filter cannot be joined")
        inner = known.get(field)
        if inner is not None:
            for _ in range(1 if kind == _STRUCT else compact.items()[1]):
                yield from _places(compact, inner)
            continue
        start = compact.at
        value = compact.value(kind)
        if field in known and value:
            yield start, compact.at, value


def _moved(footer: bytes, start: int, stop: int, places: list[tuple[int, int, int]], by: int) -> bytes:
    made = []
    for first, end, value in places:
        made += [footer[start:first], varint(value + by << 1)]
        start = end
    return b"".join([*made, footer[start:stop]])
