"""Reads Parquet files page by page, in batches whose memory follows neither the file nor its row groups."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine.content import UNKNOWN, Content, pinned
from pairmill.errors import InputError
from pairmill.formats import limits, parquet_limits
from pairmill.formats.limits import RECORD_BYTES

BATCH_BYTES = 8 << 20
# A dictionary stores a repeated text once, so rows can be much larger than their row group. Decode few at a time.
_PARQUET_ROWS = 1024


@contextmanager
def open_parquet(uri: str, content: Content = UNKNOWN) -> Iterator[Any]:
    """Provide a ``pyarrow.parquet.ParquetFile`` that reads pages, not whole row groups; its ``source`` is the open
    file.

    Raises:
        InputError: it is not a Parquet file, or a truncated one; or, as Changed, not of the expected content.
    """
    with pinned(uri, content) as source:
        try:
            # pre_buffer would keep the bytes of all column chunks.
            file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
            file.source = source
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(
                "not a readable Parquet file",
                where=uri,
                got=str(error).splitlines()[0],
                hint="copy it again; it may be truncated",
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
    expanded: limits.Expansion | None = None,
    *,
    aside: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield record batches in order, with bounded memory also for files that expand a few bytes to gigabytes.

    Args:
        uri: for messages.
        file: from :func:`open_parquet`.
        columns: top-level columns to read; None = all.
        groups: row groups to read; None = all.
        most: maximum rows of a batch.
        size: approximate bytes of a batch of more than one row.
        longest: maximum bytes of a record.
        expanded: counts what the rows expand to; None = they may to anything.
        aside: yield longer records too; pages may then be as large as with the default of ``longest``.

    Raises:
        InputError: pages do not decode, a record or a page is too long, or the records are too many times as long as
            the file.
    """
    groups = range(file.metadata.num_row_groups) if groups is None else groups
    start = expected = 0
    try:
        for group in groups:
            meta = file.metadata.row_group(group)
            expected += meta.num_rows
            per_row = max(1, meta.total_byte_size // max(1, meta.num_rows))
            wanted = max(1, min(most, size // per_row, meta.num_rows))
            held = max(longest, RECORD_BYTES) if aside else longest
            count = parquet_limits.batch_rows(uri, file, group, columns, wanted, held)
            # Shards run in parallel already; threads would take a third more memory and save no time.
            for batch in file.iter_batches(batch_size=count, row_groups=[group], columns=columns, use_threads=False):
                if batch.nbytes > longest and not aside:
                    refuse_long(uri, start, batch, longest)
                if expanded is not None:
                    expanded.add(batch.nbytes)
                yield batch
                start += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            "is damaged", where=f"{uri} row {start + 1} or later", got=str(error).splitlines()[0], hint="copy it again"
        ) from error
    if start != expected:
        # pyarrow raises nothing if a damaged footer ends a row group early.
        raise InputError(
            "is damaged",
            where=f"{uri} row {start + 1}",
            got=f"{start} rows",
            expected=f"{expected}, as its footer says",
            hint="copy it again",
        )


def expansion_of(uri: str, file: Any, groups: Iterable[int], times: int) -> limits.Expansion:
    """Return counts what row groups of a file from :func:`open_parquet` expand to: at most ``times`` their stored
    bytes."""

    def stored() -> int:
        some = (file.metadata.row_group(number) for number in groups)
        return sum(item.column(column).total_compressed_size for item in some for column in range(item.num_columns))

    return limits.Expansion(uri, stored, times)


def refuse_long(uri: str, start: int, batch: pa.RecordBatch, longest: int) -> None:
    """Raise InputError for the longest record of a batch, if it is too long."""
    sizes = limits.record_bytes(batch)
    row = int(sizes.argmax())
    if sizes[row] > longest:
        raise limits.too_long(f"{uri} row {start + row + 1}", longest, got=f"{sizes[row]} bytes")
