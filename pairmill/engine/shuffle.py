"""Slices → parts: of many runs few, so that a part is read with few requests, and each level reads the data once.

A part that is read from every slice takes requests that grow with slices × parts. A level merges the runs of
neighbours: what they have for a part is together afterwards. It costs a request for each chunk of bytes. What is merged
follows from the sizes alone: how many runs and parts there are, and bytes. Few runs of few parts are read as they are.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import Run, Runs, RunWriter, segments
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer

LEVELS: Final = 2
"""Of merging, at most: then cells of 30 bytes, as at 100 TB of text, are read in chunks of 0.8 MB."""
MERGED: Final = "merged.bin"
# Runs times parts that are read as they are, whatever that costs.
_FEW = 1 << 13
# Bytes that are merged in memory, and of the file that a shard writes, about; how much more of a block is not a second.
_BLOCK, _FILE, _MORE = 256 << 20, 768 << 20, 1 / 8
# Bytes of files that become one: what brings them together holds them three times.
_GATHERED = 128 << 20
# Bytes of a chunk above which nothing gets cheaper.
_CHUNK = 4 << 20
# Bytes that are read, merged and written for the price of a request, which is that of 25 ms of a core.
_PER_REQUEST = 2 << 20
# Bytes that are copied at once, and cells of a shard: what a run has for a part. Each takes some 40 bytes.
_COPIED, _CELLS = 8 << 20, 4 << 20


def fans(runs: int, parts: int, size: int, levels: int = LEVELS) -> list[int]:
    """Return how many runs each level makes one of; empty = none is merged.

    Args:
        parts: of each.
        size: bytes of all.
        levels: at most.
    """
    if runs * parts <= _FEW or not size:
        return []
    cell = size / runs / parts
    most = min(max(cell, _CHUNK), cell * runs)
    # The more levels, the larger the chunks for which a block has room.
    chunks = [min(most, (cell * _BLOCK**level) ** (1 / (level + 1))) for level in range(levels + 1)]
    costs = [(level + 1) * size / chunk + level * size / _PER_REQUEST for level, chunk in enumerate(chunks)]
    best = costs.index(min(costs))
    return [math.ceil((chunks[best] / cell) ** (1 / best))] * best if best else []


@dataclass
class Merged:
    """The data of a record of :class:`Merge`: bytes of all parts."""

    size: int


@dataclass(frozen=True)
class Merge(Shard[object], reads=()):
    """Makes one run of the parts [first, stop) of several.

    Args:
        runs: their owners become those of one run.
        first: the first part.
        stop: one past the last.
    """

    work = "bring parts together"

    runs: Runs
    first: int
    stop: int

    def run(self, context: object, out: Writer) -> ShardResult:
        tables = self.runs.tables(self.first, self.stop)
        sizes = np.concatenate([np.diff(table).reshape(self.stop - self.first, -1) for table in tables], axis=1)
        with out.create(MERGED, scratch=True) as local, local.open("wb") as file:
            RunWriter(file, sizes.size).write_bytes(sizes.ravel(), self._blocks(tables, sizes))
        return ShardResult(Ledger(), asdict(Merged(int(sizes.sum()))))

    def _blocks(self, tables: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of all parts; ``sizes`` are those of cells, int64 [parts, owners]."""
        runs, parts = self.runs.runs, sizes.sum(axis=1)
        total = int(parts.sum())
        # Equal ones: a small one at the end would take as many requests.
        equal = total // max(1, math.ceil(total / _BLOCK - _MORE)) + int(parts.max())
        most = min(equal, int(_BLOCK * (1 + _MORE)))
        # One array for all blocks: memory that is new costs a fault a page.
        held = np.empty(min(total, most), np.uint8)
        for start, stop in cuts(parts, most):
            places = [
                table[len(run.owners) * start : len(run.owners) * stop + 1]
                for run, table in zip(runs, tables, strict=True)
            ]
            if stop - start == 1:  # its cells are in order, and may be more than a block
                for run, place in zip(runs, places, strict=True):
                    item = self.runs.between(run, int(place[0]), int(place[-1]))
                    yield from (np.frombuffer(data, np.uint8) for data in item.blocks(_BLOCK))
                continue
            block, begins = self.runs.read_cells(places, stop - start, held)
            yield from copied(block, begins, sizes[start:stop])


def copied(
    block: NDArray[np.uint8], begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[NDArray[np.uint8]]:
    """Yield cells of a block in their order, some at a time: where each begins, and its bytes, int64 [parts, n]."""
    for start, stop in cuts(sizes.sum(axis=1), _COPIED):
        yield segments(block, begins[start:stop].ravel(), sizes[start:stop].ravel())


def cuts(sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds [start, stop) of neighbours that have ``most`` bytes or less, or are alone."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start] - sizes[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, stop
        start = stop


def gathered(sizes: NDArray[np.int64], parts: int) -> list[tuple[int, int]]:
    """Return the bounds [start, stop) of neighbouring files, of these bytes, that become one; none if few requests read
    each part of all of them."""
    return list(cuts(sizes, _GATHERED)) if fans(len(sizes), parts, int(sizes.sum())) else []


@dataclass(frozen=True)
class Shuffled:
    """Runs of which parts are read.

    Args:
        stripes: some neighbouring parts each, in order.
        records: of what was merged.
    """

    stripes: tuple[Runs, ...]
    records: tuple[ShardRecord, ...] = ()

    def runs(self, part: int) -> Runs:
        """Return the runs that have a part."""
        after = np.searchsorted([stripe.first for stripe in self.stripes], part, side="right")
        return self.stripes[int(after) - 1]

    def neighbours(self, together: int) -> Iterator[tuple[int, int, Runs]]:
        """Yield the bounds [start, stop) of ``together`` parts in order, or fewer, and the runs that have them."""
        for stripe in self.stripes:
            last = stripe.first + stripe.parts
            for start in range(stripe.first, last, together):
                yield start, min(start + together, last), stripe


def rounds(
    name: str, runs: Runs, levels: int = LEVELS, together: int = 1
) -> Generator[list[Shard[Any]], list[ShardRecord], Shuffled]:
    """Yield ``levels`` rounds, empty where nothing is merged, and return the runs.

    Args:
        name: of what is shuffled, for people.
        runs: with keys and size.
        levels: at most.
        together: parts that are read with one request.
    """
    chosen = fans(len(runs.runs), math.ceil(runs.parts / together), runs.size, levels)
    cell = runs.size / max(1, len(runs.runs) * runs.parts)
    stripes, merged = [runs], list[ShardRecord]()
    for level in range(levels):
        if level >= len(chosen):
            yield []
            continue
        fan = chosen[level]
        cell *= fan
        merging = [
            (start, stop, list(_merging(f"{name} {level + 1}", stripe, start, stop, fan)))
            for stripe in stripes
            for start, stop in _pieces(stripe, fan, cell)
        ]
        made = yield [shard for _, _, shards in merging for shard in shards]
        merged += made
        records = iter(made)
        stripes = [Runs(stop - start, tuple(_made(shards, records)), start) for start, stop, shards in merging]
    return Shuffled(tuple(stripes), tuple(merged))


def _pieces(runs: Runs, fan: int, cell: float) -> Iterator[tuple[int, int]]:
    """Yield the parts [start, stop) of each file that is made; ``cell`` is the bytes that one has for a part."""
    owners = fan * max((len(run.owners) for run in runs.runs), default=1)
    # Equal ones, since each reads as many tables.
    files = max(1, round(runs.parts * cell / _FILE))
    width = max(1, min(math.ceil(runs.parts / files), _CELLS // owners))
    last = runs.first + runs.parts
    for start in range(runs.first, last, width):
        yield start, min(start + width, last)


def _merging(name: str, runs: Runs, start: int, stop: int, fan: int) -> Iterator[Merge]:
    for number, at in enumerate(range(0, len(runs.runs), fan)):
        some = runs.runs[at : at + fan]
        yield Merge(
            runs=replace(runs, runs=some),
            first=start,
            stop=stop,
            name=f"{name} {start:06} {number:05}",
            size=stop - start,
        )


def _made(shards: Sequence[Merge], records: Iterator[ShardRecord]) -> Iterator[Run]:
    """Yield the runs that these shards made, of those with a byte; takes as many records."""
    for shard, record in zip(shards, records, strict=False):
        if record.read(Merged).size:
            owners = tuple(owner for run in shard.runs.runs for owner in run.owners)
            yield Run(record.uri(MERGED), 0, owners, record.key)
