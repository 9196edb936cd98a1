"""Round 3: rows that edges join, directly or not, and the group in which they are compared."""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import OF_INPUTS, Range, Run, Runs, RunWriter
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.records import EDGE, MEMBER, located
from pairmill.stages.curate.near.union import Components, Marked

MEMBERS, EDGES, FAMILIES = "members.bin", "edges.bin", "families.bin"
# What one shard joins: rows, of two bits each; those with an edge, of 40 bytes; and pairs, which are read three times.
_FEW_ROWS, _FEW_ENDS, _FEW_PAIRS = 1 << 29, 12 << 20, 96 << 20
# Bytes of edges, or of families, that are held: those of neighbouring partitions are a request, or three.
_HELD = 64 << 20
# Edges that are looked at together.
_EDGES = 1 << 20


@dataclass
class Grouped:
    """What a :class:`Join` shard has made.

    Args:
        sizes: bytes of the sketches of each group.
        slices: of each slice that has members: its place, the first of its MEMBERS, their number, and a digest of them.
        edges: where each run of EDGES begins.
        families: where each run of FAMILIES begins.
        rows: members.
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

    Memory: two bits for every row, some 40 bytes for each row that has an edge, and 64 MiB of edges, and of families.

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
        pairs = {path: _blocks(ranges) for path, ranges in ((EDGES, self.edges), (FAMILIES, self.families))}
        marked = Marked(self.bases[-1])
        for edge in chain(*pairs.values()):
            marked.add(ranks.numbers(edge["low"]))
            marked.add(ranks.numbers(edge["high"]))
        joined = Components(len(marked))
        weights = np.zeros(len(marked), np.int64)
        for edge in chain(*pairs.values()):
            low, high = (marked.rank(ranks.numbers(edge[name])) for name in ("low", "high"))
            joined.join(low, high)
            np.add.at(weights, low, EDGE.itemsize)
        labels = joined.labels()
        sizes = np.empty(len(labels), np.uint32)
        for _, first, places, table in self._slices(marked):
            sizes[first : first + len(places)] = located(table, places)[0]["size"]
        # A component is known by its smallest member, so components are in rank order (or in that of numbers).
        roots = np.cumsum(labels == np.arange(len(labels), dtype=np.uint32), dtype=np.uint32)
        components = int(roots[-1])
        component = roots[labels] - 1
        weights += sizes
        weight = np.zeros(components, np.int64)
        np.add.at(weight, component, weights)
        del joined, labels, roots, weights
        group = (np.cumsum(weight) - weight) // self.group_size
        group_of = np.cumsum(np.diff(group, prepend=0) > 0, dtype=np.uint32)[component]
        groups = int(group_of.max()) + 1
        group_sizes = np.zeros(groups, np.int64)
        np.add.at(group_sizes, group_of, sizes)
        made = Grouped(
            groups=groups,
            sizes=group_sizes.tolist(),
            slices=self._enrolled(marked, group_of, out),
            edges=_dealt(EDGES, pairs[EDGES], marked, group_of, groups, out),
            families=_dealt(FAMILIES, pairs[FAMILIES], marked, group_of, groups, out),
            rows=len(marked),
            components=components,
            largest=int(np.bincount(component).max()),
        )
        return ShardResult(Ledger(), asdict(made))

    def _slices(self, marked: Marked) -> Iterator[tuple[int, int, NDArray[np.int64], Range]]:
        """Yield the slices with members: place, first member, places of members among signed rows, and their table."""
        first = 0
        for owner, table in enumerate(self.rows):
            places = marked.between(self.bases[owner], self.bases[owner + 1]) - self.bases[owner]
            if len(places):
                yield owner, first, places, table
                first += len(places)

    def _enrolled(self, marked: Marked, group_of: NDArray[np.uint32], out: Writer) -> list[tuple[int, int, int, str]]:
        """Write the members by slice; list them."""
        slices: list[tuple[int, int, int, str]] = []
        with out.create(MEMBERS, scratch=True) as local, local.open("wb") as file:
            for owner, first, places, _ in self._slices(marked):
                members = np.empty(len(places), MEMBER)
                members["at"], members["group"] = places, group_of[first : first + len(places)]
                data = members.view(np.uint8).data
                file.write(data)
                slices.append((owner, first, len(places), hashlib.sha256(data).hexdigest()[:32]))
        return slices


def _dealt(
    path: str,
    pairs: Iterable[NDArray[Any]],
    marked: Marked,
    group_of: NDArray[np.uint32],
    groups: int,
    out: Writer,
) -> list[int]:
    """Write pairs by group; return where each run begins."""
    with out.create(path, scratch=True) as local, local.open("wb") as file:
        runs = RunWriter(file, groups)
        for block in pairs:
            runs.write(group_of[marked.rank(ranks.numbers(block["low"]))], block)
    return runs.starts


class Candidates(NamedTuple):
    """Pairs of rows that may be alike.

    Args:
        inputs: digest of all that they follow from.
        edges: of neighbouring partitions of the keys, pairs to compare: EDGEs.
        families: of the same, anchors and members: EDGEs.
        rows: the table of signed rows of each slice.
        bases: the number of each slice's first row, and one past the last row.
        sketches: bytes of those of all rows.
        group_size: bytes of the sketches and edges of a group; a component alone may have more.
    """

    inputs: str
    edges: tuple[Range, ...]
    families: tuple[Range, ...]
    rows: tuple[Range, ...]
    bases: tuple[int, ...]
    sketches: int
    group_size: int

    @property
    def size(self) -> int:
        """Bytes of all pairs."""
        return sum(item.size for item in (*self.edges, *self.families))

    @property
    def few(self) -> bool:
        """Whether one shard joins them."""
        rows, pairs = self.bases[-1], self.size // EDGE.itemsize
        return not pairs or (rows <= _FEW_ROWS and pairs <= _FEW_PAIRS and min(rows, 2 * pairs) <= _FEW_ENDS)


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
    if not given.size:
        yield []
        return [], None
    join = Join(
        inputs=given.inputs,
        edges=given.edges,
        families=given.families,
        rows=given.rows,
        bases=given.bases,
        group_size=given.group_size,
        name="near components",
        size=given.size,
    )
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
        for path, starts, pairs in ((EDGES, result.edges, given.edges), (FAMILIES, result.families, given.families))
    )
    return records, Groups(record.key, result.sizes, members, edges, families)


def _blocks(pairs: tuple[Range, ...]) -> Iterable[NDArray[Any]]:
    """Return pairs in blocks; they are read again each time, unless they are few."""
    blocks = _Blocks(pairs)
    return list(blocks) if sum(item.size for item in pairs) <= _HELD else blocks


@dataclass(frozen=True)
class _Blocks:
    pairs: tuple[Range, ...]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return entries(self.pairs, EDGE, _EDGES)


def entries(ranges: Iterable[Range], kind: np.dtype[Any], some: int) -> Iterator[NDArray[Any]]:
    """Yield the entries of all ranges, in order, about ``some`` at a time."""
    held: list[NDArray[Any]] = []
    size = 0
    for item in ranges:
        for data in item.blocks(some * kind.itemsize):
            held.append(np.frombuffer(data, kind))
            size += len(held[-1])
            if size >= some:
                yield np.concatenate(held)
                held, size = [], 0
    if held:
        yield np.concatenate(held)
