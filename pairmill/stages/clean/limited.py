"""The first records of a source: which files have them, and how many of each are read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, cast

from pairmill._native import RowForm
from pairmill.engine.content import Borrowed, pinned
from pairmill.engine.options import Profile
from pairmill.errors import InputError
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.slices import FileSlice
from pairmill.sources.files.card import suffix_of
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.files.readers import read
from pairmill.sources.parsed import Record
from pairmill.sources.source import Source, Unit


@dataclass(frozen=True)
class Beginning(FileSlice):
    """The first ``records`` records of a file."""

    records: int = 0

    def identify(self) -> object:
        return [super().identify(), self.records]

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        # Not digested on the way: that would read the file to its end.
        with pinned(self.uri, self.content) as file:
            yield cast(BinaryIO, Borrowed(file))


def records_of(piece: FileSlice, source: Source, profile: Profile, form: RowForm | None = None) -> Iterator[Record]:
    """Return the records of a piece; of a :class:`Beginning` those that are wanted, and nothing after them is read.

    With a form, as :func:`pairmill.sources.files.readers.read` gives them.
    """
    if not isinstance(piece, Beginning):
        return source.read(piece, profile) if form is None else read(piece, source, form)
    return _first(piece, source, profile)


def _first(piece: Beginning, source: Source, profile: Profile) -> Iterator[Record]:
    reading: Any = source.read(piece, profile)
    with closing(reading):
        yield from islice(reading, piece.records)


def count_records(piece: FileSlice, source: Source, profile: Profile) -> int:
    """Return how many records a piece has: from the footer of a Parquet file; others are read."""
    if source.whole_files:
        return 1
    if suffix_of(piece.path) != ".parquet":
        return sum(1 for _ in records_of(piece, source, profile))
    with open_parquet(piece.uri, piece.content) as file:
        metadata = file.metadata
        stop = metadata.num_row_groups if piece.stop is None else piece.stop
        count: int = sum(metadata.row_group(group).num_rows for group in range(piece.start, stop))
    return min(count, piece.records) if isinstance(piece, Beginning) else count


def first_of(
    units: Sequence[Unit], folder: RawFolder, source: Source, profile: Profile, limit: int
) -> tuple[list[Unit], Mapping[str, int]]:
    """Return the units with the files of the first ``limit`` records only, and how many of which file; 0 = all of it.

    Of the files that are withheld, which are counted and dropped, the first ``limit`` records are taken too.

    Raises:
        InputError: the folder is an extract that does not hold all of these files.
    """
    wanted = _taken((path for unit in units for path in unit.files), folder, source, profile, limit)
    aside = _taken((path for unit in units for path in unit.withheld), folder, source, profile, limit)
    result = [
        unit._replace(
            files=tuple(path for path in unit.files if path in wanted),
            withheld=tuple(path for path in unit.withheld if path in aside),
        )
        for unit in units
    ]
    return result, {**aside, **wanted}


def _taken(paths: Iterable[str], folder: RawFolder, source: Source, profile: Profile, limit: int) -> dict[str, int]:
    result: dict[str, int] = {}
    ordered = list(dict.fromkeys(paths))
    for path in ordered:
        if path not in folder.sizes:
            raise InputError(
                f"the extract of {source.name} has not all of the records that are asked for",
                where=folder.uri,
                got=f"no {path}",
                hint="run fetch again with the same limit=, or clean with the options of the source that fetch knew",
            )
        piece = Beginning(path, folder.uri_of(path), size=folder.sizes[path], records=limit)
        # How many records the last file has is not needed.
        there = limit if path == ordered[-1] else count_records(piece, source, profile)
        result[path] = limit if there == limit else 0
        limit -= there
        if not limit:
            break
    return result
