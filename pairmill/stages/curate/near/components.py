"""Round 3: rows that edges join, directly or not, and the group in which they are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import OF_INPUTS, Range, Run, Runs, RunWriter
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.ranges import Ranges
from pairmill.stages.curate.near.records import EDGE, MEMBER, ROW
from pairmill.stages.curate.near.union import Components, Marked

MEMBERS, EDGES, FAMILIES = "members.bin", "edges.bin", "families.bin"
# Rows with an edge of which all arrays are in memory: 2 GiB. Of more, those of a range are: 0.5 GiB.
_HELD, _RANGE = 50 << 20, 8 << 20
# Edges that are looked at together, and rows of a slice.
_EDGES = 1 << 20
_ROWS = 1 << 20


@dataclass
class Grouped:
    """What a :class:`Join` shard has made.

    Args:
        groups: how many.
        sizes: bytes of the sketches of each group.
        slices: of each slice that has members: its place, the first of its MEMBERS, their number, and a digest of them.
        edges: where each run of EDGES begins.
        families: where each run of FAMILIES begins.
        rows: members.
        components: how many.
        largest: rows of the largest component.
    """

    groups: int
    sizes: list[int]
    slices: list[tuple[int, int, int, str]]
    edges: list[int]
    families: list[int]
    rows: int
    components: int
    largest: int


@dataclass(frozen=True)
class Join(Shard[object], reads=()):
    """Finds the components, and deals them into groups.

    Memory: two bits for every row, and some 40 bytes for each row that has an edge, but 2 GiB at most. Of more such
    rows there are files: 8 bytes an edge and 20 such a row, on the disk of this process.

    Args:
        inputs: digest of all that is signed, and the number of partitions.
        edges: of all partitions.
        families: of all partitions.
        rows: the table of signed rows of each slice.
        bases: the number of each slice's first row, and one past the last row.
        group_size: bytes of the sketches and edges of a group; a component alone may have more.
    """

    work = "join similar rows into groups"

    inputs: str
    edges: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))
    families: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))
    rows: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))
    bases: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))
    group_size: int

    def run(self, context: object, out: Writer) -> ShardResult:
        marked = Marked(self.bases[-1])
        for edge in self._all():
            marked.add(ranks.numbers(edge["low"]))
            marked.add(ranks.numbers(edge["high"]))
        if len(marked) > _HELD:
            with Ranges(len(marked), _RANGE) as ranges:
                return self._written(marked, self._far(marked, ranges), out)
        return self._written(marked, self._near(marked), out)

    def _all(self) -> Iterator[NDArray[Any]]:
        yield from _blocks(self.edges)
        yield from _blocks(self.families)

    def _near(self, marked: Marked) -> _Groups:
        """Return the groups, from arrays in memory."""
        joined = Components(len(marked))
        weights = np.zeros(len(marked), np.int64)
        for low, high in self._ends(marked):
            joined.join(low, high)
            np.add.at(weights, low, EDGE.itemsize)
        labels = joined.labels()
        sizes = np.empty(len(labels), np.uint32)
        for _, first, places, rows in self._slices(marked):
            sizes[first : first + len(places)] = rows["size"]
        # A component is known by its smallest member, so components are in rank order (or in that of numbers).
        roots = np.flatnonzero(labels == np.arange(len(labels), dtype=np.uint32))
        component = np.searchsorted(roots, labels).astype(np.uint32)
        weights += sizes
        weight = np.zeros(len(roots), np.int64)
        np.add.at(weight, component, weights)
        group = (np.cumsum(weight) - weight) // self.group_size
        names, group = np.unique(group, return_inverse=True)
        group_of = group.astype(np.uint32)[component]
        group_sizes = np.zeros(len(names), np.int64)
        np.add.at(group_sizes, group_of, sizes.astype(np.int64))
        return _Groups(
            sizes=group_sizes,
            components=len(roots),
            largest=int(np.bincount(component).max(initial=0)) if len(component) else 0,
            between=lambda start, stop: group_of[start:stop],
            next=lambda edge: group_of[marked.rank(ranks.numbers(edge["low"]))],
        )

    def _far(self, marked: Marked, ranges: Ranges) -> _Groups:
        """Return the same groups, from files."""
        for _, _, _, rows in self._slices(marked):
            ranges.add_sizes(rows["size"])
        for low, high in self._ends(marked):
            ranges.add(low, high)
        ranges.group(EDGE.itemsize, self.group_size)
        return _Groups(
            sizes=ranges.group_sizes,
            components=ranges.components,
            largest=ranges.largest,
            between=ranges.between,
            next=lambda edge: ranges.next(*_members(marked, edge)),
        )

    def _ends(self, marked: Marked) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for edge in self._all():
            yield _members(marked, edge)

    def _written(self, marked: Marked, groups: _Groups, out: Writer) -> ShardResult:
        slices: list[tuple[int, int, int, str]] = []
        with out.create(MEMBERS, scratch=True) as local, local.open("wb") as file:
            for owner, first, places, _ in self._slices(marked, read=False):
                members = np.empty(len(places), MEMBER)
                members["at"], members["group"] = places, groups.between(first, first + len(places))
                data = members.view(np.uint8).data
                file.write(data)
                slices.append((owner, first, len(places), hashlib.sha256(data).hexdigest()[:32]))
        edges = self._deal(EDGES, self.edges, marked, groups, out)
        families = self._deal(FAMILIES, self.families, marked, groups, out)
        count, sizes = len(groups.sizes), groups.sizes.tolist()
        made = Grouped(
            groups=count,
            sizes=sizes,
            slices=slices,
            edges=edges,
            families=families,
            rows=len(marked),
            components=groups.components,
            largest=groups.largest,
        )
        return ShardResult(Ledger(), asdict(made))

    def _slices(
        self, marked: Marked, *, read: bool = True
    ) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[Any]]]:
        """Yield the slices with members: place, first member, places of members among signed rows, and their ROWs."""
        first = 0
        for owner, table in enumerate(self.rows):
            places = marked.between(self.bases[owner], self.bases[owner + 1]) - self.bases[owner]
            if len(places):
                rows = _chosen(table, places) if read else np.empty(0, ROW)
                yield owner, first, places, rows
                first += len(places)

    def _deal(self, path: str, pairs: tuple[Range, ...], marked: Marked, groups: _Groups, out: Writer) -> list[int]:
        """Write pairs by group; return where each run begins."""
        with out.create(path, scratch=True) as local, local.open("wb") as file:
            runs = RunWriter(file, len(groups.sizes))
            for block in _blocks(pairs):
                runs.write(groups.next(block), block)
        return runs.starts


@dataclass(frozen=True)
class _Groups:
    """Where members are.

    Args:
        sizes: bytes of the sketches of each group, int64 [groups].
        components: how many.
        largest: rows of the largest component.
        between: the groups of some members, by the first and one past the last.
        next: the groups of some edges; all are given once, in the order of :meth:`Join._all`.
    """

    sizes: NDArray[np.int64]
    components: int
    largest: int
    between: Callable[[int, int], NDArray[np.uint32]]
    next: Callable[[NDArray[Any]], NDArray[np.uint32]]


@dataclass(frozen=True)
class Candidates:
    """Pairs of rows that may be alike.

    Args:
        inputs: digest of all that they follow from.
        edges: of each partition of the keys, pairs to compare: EDGEs.
        families: of each partition, anchors and members: EDGEs.
        rows: the table of signed rows of each slice.
        bases: the number of each slice's first row, and one past the last row.
        group_size: bytes of the sketches and edges of a group; a component alone may have more.
    """

    inputs: str
    edges: tuple[Range, ...]
    families: tuple[Range, ...]
    rows: tuple[Range, ...]
    bases: tuple[int, ...]
    group_size: int


@dataclass(frozen=True)
class Groups:
    """Which rows are compared together: whole components.

    Args:
        key: identity of the groups.
        sizes: bytes of the sketches of each group, about.
        members: of each slice that has members of groups: its place, its MEMBERs, and a digest of them.
        edges: EDGEs, by group.
        families: EDGEs, by group.
    """

    key: str
    sizes: Sequence[int]
    members: Sequence[tuple[int, Range, str]]
    edges: Runs
    families: Runs

    @property
    def count(self) -> int:
        """How many."""
        return len(self.sizes)


def joined(
    given: Candidates,
) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], Groups | None]]:
    """Yield the shards that deal the ends of pairs into groups; return their records, and None if there is no pair."""
    size = sum(item.size for item in (*given.edges, *given.families))
    if not size:
        yield []
        return [], None
    join = Join(**vars(given), name="near components", size=size)
    (record,) = records = yield [join]
    result, width = record.read(Grouped), MEMBER.itemsize
    members = [
        (place, Range(record.uri(MEMBERS), first * width, count * width), digest)
        for place, first, count, digest in result.slices
    ]
    edges, families = (
        Runs(
            result.groups,
            tuple(Run(record.uri(path), start, key=f"{record.key} {path}") for start in starts),
            size=sum(item.size for item in pairs),
        )
        for path, starts, pairs in (
            (EDGES, result.edges, given.edges),
            (FAMILIES, result.families, given.families),
        )
    )
    return records, Groups(record.key, result.sizes, members, edges, families)


def _members(marked: Marked, edge: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ends of edges, as places among the rows that have one."""
    return marked.rank(ranks.numbers(edge["low"])), marked.rank(ranks.numbers(edge["high"]))


def _blocks(pairs: tuple[Range, ...]) -> Iterator[NDArray[Any]]:
    for item in pairs:
        for data in item.blocks(_EDGES * EDGE.itemsize):
            yield np.frombuffer(data, EDGE)


def _chosen(table: Range, places: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ROWs at these places of a slice's table."""
    result = np.empty(len(places), ROW)
    width = ROW.itemsize
    for start in range(0, table.size // width, _ROWS):
        first, stop = np.searchsorted(places, (start, start + _ROWS))
        if first < stop:
            size = min(_ROWS * width, table.size - start * width)
            block = Range(table.uri, table.start + start * width, size).array(ROW)
            result[first:stop] = block[places[first:stop] - start]
    return result
