"""The shards of :mod:`pairmill.stages.curate.near.exchange`."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import OF_INPUTS, Range, Runs, RunWriter
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.components import EDGES, FAMILIES, MEMBERS, entries
from pairmill.stages.curate.near.records import EDGE, MEMBER
from pairmill.stages.curate.near.stored import distinct
from pairmill.stages.curate.near.union import Components

PAIRS, ASKS, ANSWERS, LABELS = "pairs.bin", "asks.bin", "answers.bin", "labels.bin"
ASK: Final = np.dtype([("rank", "<u8"), ("first", "<u8")])
NAME: Final = np.dtype("<u8")
_PLACES: Final = np.dtype([("low", "<u4"), ("high", "<u4")])
# No rank has all bits: as the first of a component it says that the row is alone there, as an answer that it is ready.
_NONE: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_GROUP: Final = np.uint32(0xFFFFFFFF)
_HALF = np.uint64(32)
# Entries of a file that are looked at together.
_BLOCK = 1 << 21
# Multipliers of splitmix64, and of its constant that each level has a multiple of.
_FACTORS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP: Final = 0x9E3779B97F4A7C15
# No exchange has it, so its order is not one in which names were chosen.
_NO_LEVEL: Final = -1


def drawn(names: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
    """Return numbers that put names into the order of a level; no two have the same; uint64 [n]."""
    result = names ^ _salt(level)
    for factor in _FACTORS:
        result *= np.uint64(factor)
        result ^= result >> _HALF
    return result


def undrawn(numbers: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
    """Return the names that have these numbers on a level, uint64 [n]."""
    result = numbers.copy()
    for factor in reversed(_FACTORS):
        result ^= result >> _HALF
        result *= np.uint64(pow(factor, -1, 1 << 64))
    return result ^ _salt(level)


def _salt(level: int) -> np.uint64:
    return np.uint64((level + 1) * _STEP & int(_NONE))


def _below(hashes: NDArray[np.uint64], count: int) -> NDArray[np.uint32]:
    """Return a number below ``count`` for each hash, from its upper half."""
    return ((hashes >> _HALF) * np.uint64(count) >> _HALF).astype(np.uint32)


@dataclass
class Starts:
    """The data of some records: where each run of the files begins, and the distinct names that were asked for."""

    runs: list[int]
    families: list[int] = field(default_factory=list)
    names: int = 0


@dataclass(frozen=True)
class Scatter(Shard[object], reads=()):
    """Deals pairs into parts, by both rows: one run of ``2 * parts`` parts for each block, families after edges.

    Args:
        inputs: digest of all pairs.
        number: of the shard.
        edges: of some partitions.
        families: of the same.
    """

    work = "deal pairs of similar rows"

    inputs: str
    number: int
    parts: int
    edges: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))
    families: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        with out.create(PAIRS, scratch=True) as local, local.open("wb") as file:
            runs = RunWriter(file, 2 * self.parts)
            for first, ranges in ((0, self.edges), (self.parts, self.families)):
                for pairs in entries(ranges, EDGE, _BLOCK):
                    mixed = (pairs["low"] * np.uint64(_STEP) + pairs["high"]) * np.uint64(_FACTORS[0])
                    part = _below(mixed, self.parts)
                    runs.write(part + np.uint32(first), pairs)
        return ShardResult(Ledger(), asdict(Starts(runs.starts)))


@dataclass
class United:
    """What a part has.

    Args:
        names: rows, or on a later level names, that it asks for.
        edges: distinct ones.
        families: distinct entries.
    """

    names: int
    edges: int = 0
    families: int = 0


@dataclass(frozen=True)
class Unite(Shard[object], reads=()):
    """Finds the distinct pairs of a part, and the components that they make.

    EDGES and FAMILIES have the places of both rows in ASKS.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        pairs: where edges and families are.
        firsts: the first row of each range.
    """

    work = "join similar rows"

    inputs: str
    part: int
    parts: int
    pairs: tuple[Runs, Runs] = field(metadata=unkeyed(OF_INPUTS))
    firsts: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        numbers = [
            drawn(_native.curate_near_distinct(pairs.view(NAME)), 0)
            for number, runs in enumerate(self.pairs)
            for pairs, _ in [runs.rows(self.part + number * self.parts, EDGE)]
        ]
        names = distinct(np.concatenate(numbers))
        places = [_native.curate_near_find(names, ends) for ends in numbers]
        joined = Components(len(names))
        for ends in places:
            joined.join(ends[::2], ends[1::2])
        order = _ask(out, names, joined, 0, self.firsts)
        asked = np.empty(len(names), np.uint32)
        asked[order] = np.arange(len(names), dtype=np.uint32)
        for path, ends in zip((EDGES, FAMILIES), places, strict=True):
            _write(out, path, [asked[ends]])
        counts = [len(ends) // 2 for ends in places]
        return ShardResult(Ledger(), asdict(United(len(names), *counts)))


def _ask(
    out: Writer, names: NDArray[np.uint64], joined: Components, level: int, firsts: Sequence[int]
) -> NDArray[np.int64]:
    """Write what a part asks the ranges for: a run of names, and for each the first of its component.

    Args:
        out: gets ASKS.
        names: numbers of the level, ascending, uint64 [n].
        joined: components, of which the first ``n`` nodes are the names.
        level: of the numbers.
        firsts: the first row of each range.

    Returns:
        The place in ``names`` of each that was written, int64 [n].
    """
    roots = joined.labels()[: len(names)]
    first = names[roots]
    first[np.bincount(roots, minlength=len(names))[roots] == 1] = _NONE
    rank = undrawn(names, level)
    owner = _owners(rank, firsts)
    order = np.argsort(owner, kind="stable")
    asks = np.empty(len(names), ASK)
    asks["rank"], asks["first"] = rank[order], first[order]
    with out.create(ASKS, scratch=True) as local, local.open("wb") as file:
        sizes = np.bincount(owner, minlength=len(firsts)) * ASK.itemsize
        RunWriter(file, len(firsts)).write_bytes(sizes, [asks])
    return order


def _owners(rank: NDArray[np.uint64], firsts: Sequence[int]) -> NDArray[np.integer[Any]]:
    """Return the range of each row, [n], of a type that is sorted fast."""
    owners = np.searchsorted(firsts, ranks.numbers(rank), side="right") - 1
    return owners.astype(np.uint16 if len(firsts) <= 1 << 16 else np.uint32)


@dataclass(frozen=True)
class Agree(Shard[object], reads=()):
    """Answers all parts that ask for a row of a range.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        level: of the asks.
        number: of the range.
        first: its first row.
        stop: one past its last row.
        asks: of all parts, which own the runs.
    """

    work = "agree on names of components"

    inputs: str
    level: int
    number: int
    first: int
    stop: int
    parts: int
    asks: Runs = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        ranges, sizes, owners = self.asks.cells(self.number)
        first = np.full(self.stop - self.first, _NONE)
        asked = np.zeros(len(first), np.bool_)
        for asks in entries(ranges, ASK, _BLOCK):
            places = self._places(asks)
            asked[places] = True
            np.minimum.at(first, places, asks["first"])
        counts = np.zeros(self.parts, np.int64)
        counts[owners] = sizes // ASK.itemsize * NAME.itemsize
        with out.create(ANSWERS, scratch=True) as local, local.open("wb") as file:
            answers = (self._names(first[self._places(asks)]) for asks in entries(ranges, ASK, _BLOCK))
            runs = RunWriter(file, self.parts)
            runs.write_bytes(counts, answers)
        return ShardResult(Ledger(), asdict(Starts(runs.starts, names=int(asked.sum()))))

    def _places(self, asks: NDArray[Any]) -> NDArray[np.int64]:
        return ranks.numbers(asks["rank"]) - self.first

    def _names(self, first: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.where(first == _NONE, _NONE, undrawn(first, self.level))


@dataclass(frozen=True)
class Contract(Shard[object], reads=()):
    """Calls the rows of a part by the names that were agreed on, and asks for these.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        level: that begins.
        asks: what the part asked for on the level before.
        answers: of all ranges.
        firsts: the first row of each range.
    """

    work = "join names of components"

    inputs: str
    level: int
    part: int
    asks: Range = field(metadata=unkeyed(OF_INPUTS))
    answers: Runs = field(metadata=unkeyed(OF_INPUTS))
    firsts: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        first = self.asks.array(ASK)["first"]
        answers, _ = self.answers.rows(self.part, NAME)
        left = answers != _NONE
        numbers, first = drawn(answers[left], self.level), first[left]
        names = distinct(numbers.copy())
        bound = first != _NONE
        components = distinct(first[bound])
        joined = Components(len(names) + len(components))
        joined.join(
            _native.curate_near_find(names, numbers[bound]),
            _native.curate_near_find(components, first[bound]).astype(np.int64) + len(names),
        )
        _ask(out, names, joined, self.level, self.firsts)
        return ShardResult(Ledger(), asdict(United(len(names))))


@dataclass(frozen=True)
class Finish(Shard[object], reads=()):
    """Finds the components of all names that are left: LABELS has that of each ask of each part.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        level: of the asks.
        asks: of each part.
    """

    work = "join the last names"

    inputs: str
    level: int
    asks: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        names = distinct(np.concatenate([np.empty(0, NAME), *(self._numbers(asks) for asks in self._asks())]))
        joined = Components(len(names))
        for asks in self._asks():
            bound = asks[asks["first"] != _NONE]
            ends = (_native.curate_near_find(names, item) for item in (self._numbers(bound), bound["first"].copy()))
            joined.join(*ends)
        labels = undrawn(names[joined.labels()], self.level)
        _write(out, LABELS, (labels[_native.curate_near_find(names, self._numbers(asks))] for asks in self._asks()))
        return ShardResult(Ledger(), asdict(United(len(names))))

    def _asks(self) -> Iterator[NDArray[Any]]:
        return entries(self.asks, ASK, _BLOCK)

    def _numbers(self, asks: NDArray[Any]) -> NDArray[np.uint64]:
        return drawn(asks["rank"], self.level)


@dataclass(frozen=True)
class Allot(Shard[object], reads=()):
    """Writes the pairs of a part by group, and its rows (MEMBER, counted from the first of the range) by range.

    A group is that of a hash of the component's name, so groups are about equally large without a sum of anything.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        pairs: EDGES and FAMILIES of the part.
        asks: of the part, of each level.
        answers: of all ranges, of each level but the last.
        labels: of the asks of the last level.
        firsts: the first row of each range.
    """

    work = "deal similar rows into groups"

    inputs: str
    part: int
    groups: int
    pairs: tuple[Range, Range] = field(metadata=unkeyed(OF_INPUTS))
    asks: tuple[Range, ...] = field(metadata=unkeyed(OF_INPUTS))
    answers: tuple[Runs, ...] = field(metadata=unkeyed(OF_INPUTS))
    labels: Range = field(metadata=unkeyed(OF_INPUTS))
    firsts: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        names, labels = self._labels()
        # A name is the first member in the order of a level: by that order most would be in the first groups.
        group = _below(drawn(labels, _NO_LEVEL), self.groups)
        del labels
        starts = []
        for path, pairs in zip((EDGES, FAMILIES), self.pairs, strict=True):
            with out.create(path, scratch=True) as local, local.open("wb") as file:
                runs = RunWriter(file, self.groups)
                for places in entries([pairs], _PLACES, _BLOCK):
                    ends = np.empty(len(places), EDGE)
                    ends["low"], ends["high"] = names[places["low"]], names[places["high"]]
                    runs.write(group[places["low"]], ends)
                starts.append(runs.starts)
        owner = _owners(names, self.firsts)
        members = np.empty(len(names), MEMBER)
        members["at"] = ranks.numbers(names) - np.array(self.firsts)[owner]
        members["group"] = group
        with out.create(MEMBERS, scratch=True) as local, local.open("wb") as file:
            RunWriter(file, len(self.firsts)).write(owner, members)
        edges, families = starts
        return ShardResult(Ledger(), asdict(Starts(edges, families)))

    def _labels(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the rows of the part and the name of the component of each, uint64 [n]."""
        *above, names = (asks.array(ASK)["rank"] for asks in self.asks)
        labels = self.labels.array(NAME)
        for rows, runs in zip(reversed(above), reversed(self.answers), strict=True):
            answers, _ = runs.rows(self.part, NAME)
            left = answers != _NONE
            order = np.argsort(names)
            result = rows.copy()
            result[left] = labels[order[_native.curate_near_find(names[order], answers[left])]]
            names, labels = rows, result
        return names, labels


@dataclass
class Enrolled:
    """What an :class:`Enrol` shard has made.

    Args:
        slices: of each slice that has members: its place, the first of its MEMBERS, their number, and a digest of them.
    """

    slices: list[tuple[int, int, int, str]]


@dataclass(frozen=True)
class Enrol(Shard[object], reads=()):
    """Lists the members of groups of each slice of a range.

    Args:
        inputs: digest of all pairs, and of how they are cut.
        number: of the range.
        place: of the first slice.
        bases: the number of each slice's first row, and one past the last row.
        members: of all parts, by range.
    """

    work = "list members of groups"

    inputs: str
    number: int
    groups: int
    place: int
    bases: tuple[int, ...]
    members: Runs = field(metadata=unkeyed(OF_INPUTS))

    def run(self, context: object, out: Writer) -> ShardResult:
        group = np.full(self.bases[-1] - self.bases[0], _NO_GROUP)
        ranges, *_ = self.members.cells(self.number)
        for members in entries(ranges, MEMBER, _BLOCK):
            group[members["at"]] = members["group"]
        slices, before = [], 0
        with out.create(MEMBERS, scratch=True) as local, local.open("wb") as file:
            for place, (start, stop) in enumerate(pairwise(self.bases), self.place):
                some = group[start - self.bases[0] : stop - self.bases[0]]
                at = np.flatnonzero(some != _NO_GROUP)
                if len(at):
                    members = np.empty(len(at), MEMBER)
                    members["at"], members["group"] = at, some[at]
                    file.write(members.view(np.uint8).data)
                    digest = hashlib.sha256(members.view(np.uint8).data).hexdigest()[:32]
                    slices.append((place, before, len(at), digest))
                    before += len(at)
        return ShardResult(Ledger(), asdict(Enrolled(slices)))


def _write(out: Writer, path: str, blocks: Iterable[NDArray[Any]]) -> None:
    with out.create(path, scratch=True) as local, local.open("wb") as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block).view(np.uint8).data)
