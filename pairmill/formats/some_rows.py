"""Single rows of a row file by ordinal, for reports and for questions about one row.

Of Parquet only the row groups that hold a wanted row are read. JSON Lines are read up to the last wanted row, or to
the end if the file's digest has to be compared. Memory follows the wanted rows, not the file.
"""

from collections.abc import Generator, Iterable, Iterator
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
    result: dict[int, Row] = {}
    parts = _row_groups(part, wanted) if part.uri.endswith(".parquet") else [(part, wanted)]
    for item, some in parts:
        result.update(_pick(item, some))
    missing = [ordinal for ordinal in wanted if ordinal not in result]
    if missing:
        raise InputError(
            "the file does not have this row",
            where=f"{part.uri} row {missing[0] + 1}",
            got=f"ordinal {missing[0]}",
            hint="the file may have been made again since: give the one that was read",
        )
    return result


def _row_groups(part: FileSlice, wanted: list[int]) -> Iterator[tuple[FileSlice, list[int]]]:
    """Run of successive row groups that hold wanted rows, with those rows."""
    with open_parquet(part.uri, part.content) as parquet:
        metadata = parquet.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    run: FileSlice | None = None
    held: list[int] = []
    first, at = part.first, 0
    while at < len(wanted) and wanted[at] < first:
        at += 1  # before the slice
    for group in range(part.start, len(counts) if part.stop is None else part.stop):
        end = first + counts[group]
        start = at
        while at < len(wanted) and wanted[at] < end:
            at += 1
        if at > start:
            held += wanted[start:at]
            begin = run or FileSlice(
                part.path, part.uri, start=group, first=first, content=part.content, longest=part.longest
            )
            run = replace(begin, stop=group + 1)
        elif run is not None:
            yield run, held
            run, held = None, []
        first = end
    if run is not None:
        yield run, held


def _pick(part: FileSlice, wanted: list[int]) -> dict[int, Row]:
    result: dict[int, Row] = {}
    parquet = part.uri.endswith(".parquet")
    # The digest of a file of lines is compared at its end.
    to_the_end = not parquet and bool(part.content.digest)
    at = 0
    with closing(_batches(part)) as batches:
        for batch in batches:
            while at < len(wanted) and wanted[at] < batch.start + len(batch):
                index = wanted[at] - batch.start
                if index >= 0:
                    texts = (batch.condition, batch.instruction, batch.response)
                    result[wanted[at]] = Row(*(column[index].as_py() for column in texts))
                at += 1
            if at == len(wanted) and not to_the_end:
                break
    return result


def _batches(part: FileSlice) -> Generator[rows.Batch, None, None]:
    cut = part if part.uri.endswith(".parquet") else None
    yield from rows.read(part.uri, cut, content=part.content, longest=part.longest)
