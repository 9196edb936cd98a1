"""Single rows of a row file by ordinal, for reports and for questions about one row.

Of Parquet only the row groups that hold a wanted row are read. JSON Lines are read up to the last wanted row, or to
the end if the file's digest has to be compared. Memory follows the wanted rows, not the file.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from pairmill.engine.content import UNKNOWN, Content
from pairmill.errors import InputError
from pairmill.formats import rows
from pairmill.formats.limits import RECORD_BYTES
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.rows import Row
from pairmill.formats.slices import FileSlice


def read(
    file: str | FileSlice, ordinals: Iterable[int], content: Content = UNKNOWN, longest: int = RECORD_BYTES
) -> dict[int, Row]:
    """Return the rows of a ``.parquet`` or ``.jsonl`` file that have these ordinals, in the order of the file.

    Args:
        file: its URI, or a slice of it, whose ``content`` and ``longest`` count instead of the arguments.
        ordinals: 0-based numbers of rows of the whole file, in any order; each has to be in the slice.
        content: what the whole file has to be.
        longest: bytes of the longest row.

    Raises:
        Changed: the file has another content.
        InputError: the file is damaged, or does not have one of the rows.
    """
    part = file if isinstance(file, FileSlice) else FileSlice(file, file, content=content, longest=longest)
    wanted = sorted(set(ordinals))
    if not wanted:
        return {}
    if part.uri.endswith(".parquet"):
        result = _pick_groups(part, wanted)
    else:
        with closing(rows.read(part.uri, content=part.content, longest=part.longest)) as batches:
            result = _pick(batches, wanted, to_the_end=bool(part.content.digest))
    missing = [ordinal for ordinal in wanted if ordinal not in result]
    if missing:
        raise InputError(
            "the file does not have this row",
            where=f"{part.uri} row {missing[0] + 1}",
            got=f"ordinal {missing[0]}",
            hint="the file may have been made again since: give the one that was read",
        )
    return result


def _pick_groups(part: FileSlice, wanted: list[int]) -> dict[int, Row]:
    """Return wanted rows of a Parquet file, which is opened once: a footer of many row groups takes megabytes."""
    result: dict[int, Row] = {}
    with open_parquet(part.uri, part.content) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        for run, held in _runs(part, counts, wanted):
            result |= _pick(rows.read_open(part.uri, file, run, longest=part.longest), held)
    return result


def _runs(part: FileSlice, counts: list[int], wanted: list[int]) -> Iterator[tuple[FileSlice, list[int]]]:
    """Yield each run of successive row groups that hold wanted rows, with those rows."""
    run: FileSlice | None = None
    held: list[int] = []
    first, at = part.first, bisect_left(wanted, part.first)
    for group in range(part.start, len(counts) if part.stop is None else part.stop):
        end = first + counts[group]
        stop = bisect_left(wanted, end, at)
        if stop > at:
            held += wanted[at:stop]
            begin = run or replace(part, start=group, first=first)
            run = replace(begin, stop=group + 1)
        elif run is not None:
            yield run, held
            run, held = None, []
        first, at = end, stop
    if run is not None:
        yield run, held


def _pick(batches: Iterable[rows.Batch], wanted: list[int], *, to_the_end: bool = False) -> dict[int, Row]:
    result: dict[int, Row] = {}
    at = bisect_left(wanted, 0)
    for batch in batches:
        stop = bisect_left(wanted, batch.start + len(batch), at)
        for ordinal in wanted[at:stop]:
            texts = (batch.condition, batch.instruction, batch.response)
            result[ordinal] = Row(*(column[ordinal - batch.start].as_py() for column in texts))
        at = stop
        if at == len(wanted) and not to_the_end:
            break
    return result
