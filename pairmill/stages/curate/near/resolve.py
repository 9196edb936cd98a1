"""The sketches of the rows of a group, what becomes of these rows, and the same by slice."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import _native, storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import OF_INPUTS, Range, Runs, RunWriter, read_all, segments
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.records import DECISION, EDGE, GATHERED, MEMBER, located
from pairmill.stages.curate.near.settings import NearSettings, native
from pairmill.stages.curate.near.stored import distinct
from pairmill.storage.partials import scratch

SKETCHES, DECISIONS, TASKS = "sketches.bin", "decisions.bin", "tasks.json"
# Bytes of sketches that are copied together, and that are held in memory for a group.
_BLOCK = 32 << 20
_HELD = 320 << 20
# Pairs of a group after which repetitions are left out.
_CODES = 4 << 20
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass
class Gathered:
    """Where each run of SKETCHES begins. A part of a run: a count (uint64), as many GATHERED rows, their sketches."""

    runs: list[int]


@dataclass(frozen=True)
class Gather(Shard[object], reads=()):
    """Brings the sketches of a slice's members of groups.

    Args:
        signed: key of the slice's sketches.
        chosen: digest of its members.
        members: of the slice.
        rows: the table of its signed rows.
        sketches: of its signed rows.
        base: the number of its first row.
    """

    work = "gather groups of similar rows"

    signed: str
    chosen: str
    members: Range = field(metadata=unkeyed("a place; their digest counts"))
    rows: Range = field(metadata=unkeyed("a place in what is signed"))
    sketches: Range = field(metadata=unkeyed("a place in what is signed"))
    base: int
    groups: int

    def run(self, context: object, out: Writer) -> ShardResult:
        members = self.members.array(MEMBER)
        rows, starts = located(self.rows, members["at"])
        sizes = rows["size"].astype(np.int64)
        far = storage.store_for(self.sketches.uri).seek_cost
        # What is read: the sketches, and gaps that cost less than another request.
        gap = np.diff(starts) - sizes[:-1]
        cost = sizes.copy()
        cost[1:] += np.where(gap > far, 0, gap)
        cuts = [0, *(np.flatnonzero(np.diff(np.cumsum(cost) // _BLOCK)) + 1).tolist(), len(members)]
        with out.create(SKETCHES, scratch=True) as local, local.open("wb") as file:
            runs = RunWriter(file, self.groups)
            for first, stop in itertools.pairwise(cuts):
                some = slice(first, stop)
                self._write(runs, members[some], rows[some], starts[some], far)
        return ShardResult(Ledger(), asdict(Gathered(runs.starts)))

    def _write(
        self, runs: RunWriter, members: NDArray[Any], rows: NDArray[Any], starts: NDArray[np.int64], far: int
    ) -> None:
        data, starts = self._sketches(starts, rows["size"].astype(np.int64), far)
        order = np.argsort(members["group"], kind="stable")
        # take() copies records several times as fast as an index does.
        members, rows, starts = members.take(order), rows.take(order), starts[order]
        result = np.zeros(len(members), GATHERED)
        result["number"] = members["at"].astype(np.uint64) + np.uint64(self.base)
        for name in ("row", "size", "tokens"):
            result[name] = rows[name]
        present, first = np.unique(members["group"], return_index=True)
        stops = [*first[1:].tolist(), len(members)]
        sizes = np.zeros(self.groups, np.int64)
        blocks: list[NDArray[Any]] = []
        chosen = segments(data, starts, result["size"])
        ends = np.concatenate([[0], np.cumsum(result["size"], dtype=np.int64)])
        for group, start, stop in zip(present.tolist(), first.tolist(), stops, strict=True):
            part, of_part = result[start:stop], chosen[ends[start] : ends[stop]]
            blocks += [np.array([stop - start], np.uint64), part, of_part]
            sizes[group] = 8 + part.nbytes + len(of_part)
        runs.write_bytes(sizes, blocks)

    def _sketches(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64], far: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read sketches that begin at ``starts``, ascending; return bytes, and where the sketches begin in them."""
        gap = starts[1:] - (starts[:-1] + sizes[:-1])
        cuts = np.flatnonzero(gap > far) + 1
        firsts, stops = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(starts)]])
        begin = starts[firsts]
        size = starts[stops - 1] + sizes[stops - 1] - begin
        ranges = [
            Range(self.sketches.uri, self.sketches.start + at, length)
            for at, length in zip(begin.tolist(), size.tolist(), strict=True)
        ]
        data = np.frombuffer(b"".join(read_all(ranges)), np.uint8)
        shift = np.repeat(begin - (np.cumsum(size) - size), stops - firsts)
        return data, starts - shift


@dataclass
class Resolved:
    """What a :class:`Resolve` shard has decided.

    Args:
        bounds: the first of DECISIONS of each range of slices, and how many there are.
        rows: looked at.
        removed: of these.
        verifications: pairs that were compared.
        unverified: rows of families that were not compared with all that they resemble.
        edges: pairs to compare.
    """

    bounds: list[int]
    rows: int
    removed: int
    verifications: int
    unverified: int
    edges: int


@dataclass(frozen=True)
class Resolve(Shard[object], reads=()):
    """Refines the families of a group, and decides in rank order.

    Args:
        inputs: digest of the groups, of what was gathered, and of the names of tasks.
        gathered: the sketches of all slices that have members; an owner is the place of its slice.
        edges: of all groups.
        families: of all groups.
        settings: how rows are compared.
        fixed: rows of smaller numbers are never removed, nor compared with each other.
        longest_response: whether the tokens of the response decide a row's rank.
        tasks: of each slice.
        firsts: the ordinal of each slice's first row.
        ranges: the place of the first slice of each range, and one past the last.
        held: bytes of sketches in memory; more are in a temporary file.
    """

    work = "compare similar rows"

    inputs: str
    gathered: Runs = field(metadata=unkeyed(OF_INPUTS))
    group: int
    edges: Runs = field(metadata=unkeyed(OF_INPUTS))
    families: Runs = field(metadata=unkeyed(OF_INPUTS))
    settings: NearSettings
    fixed: int
    longest_response: bool
    tasks: tuple[str, ...] = field(metadata=unkeyed(OF_INPUTS))
    firsts: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))
    ranges: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))
    held: int = field(default=_HELD, metadata=unkeyed("where sketches are held, not what is made of them"))

    def run(self, context: object, out: Writer) -> ShardResult:
        with self._sketches() as (rows, owner, data):
            offsets = np.zeros(len(rows) + 1, np.uint64)
            np.cumsum(rows["size"], out=offsets[1:])
            rank = ranks.ranks(rows["number"], rows["tokens"] if self.longest_response else None, self.fixed)
            order = np.argsort(rank, kind="stable").astype(np.uint32)
            rank = rank[order]
            refined, unverified = self._refined(_codes(self.families, self.group, rank), order, offsets, data)
            codes = _codes(self.edges, self.group, rank)
            if len(refined):
                codes = distinct(np.concatenate([codes, refined]))
            edges = _pairs(codes, order)
            del codes, refined
            fixed = rows["number"] < self.fixed
            row, other, rule, score_i, score_r, verifications = _native.curate_near_resolve(
                offsets, data, order, fixed, edges, native(self.settings)
            )
        result = np.empty(len(row), DECISION)
        result["row"], result["rule"], result["score_i"], result["score_r"] = rows["row"][row], rule, score_i, score_r
        places, place = np.unique(owner[other], return_inverse=True)
        result["other_task"] = place
        firsts = np.array([self.firsts[item] for item in places.tolist()], np.int64)
        result["other_ordinal"] = rows["row"][other] + firsts[place]
        result["place"] = owner[row]  # ascending, as rows are
        _write(out, result, [self.tasks[item] for item in places.tolist()])
        bounds = np.searchsorted(result["place"], np.array(self.ranges, np.uint32)).tolist()
        contained = _native.curate_near_rules().index("contained")
        removed = len(np.unique(row[rule != contained]))
        made = Resolved(
            bounds, len(rows), removed=removed, verifications=verifications, unverified=unverified, edges=len(edges)
        )
        return ShardResult(Ledger(), asdict(made))

    @contextmanager
    def _sketches(self) -> Iterator[tuple[NDArray[Any], NDArray[np.uint32], NDArray[np.uint8]]]:
        """Yield the group's rows (GATHERED [n]) by number, the slice of each (uint32 [n]), and sketches (uint8)."""
        ranges, sizes, numbers = self.gathered.cells(self.group)
        size = int(sizes.sum())
        with ExitStack() as stack:
            # Not every container has room for scratch files: one is made only for what memory must not hold.
            if size > self.held:
                file = stack.enter_context(TemporaryFile(dir=scratch()))
                file.truncate(size)
                data: NDArray[np.uint8] = np.memmap(file, np.uint8, shape=size)
            else:
                data = np.empty(size, np.uint8)
            rows: list[NDArray[Any]] = [np.empty(0, GATHERED)]
            owners: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)]
            at = 0
            cells = zip(np.cumsum(sizes).tolist(), sizes.tolist(), numbers.tolist(), strict=True)
            before = 0
            for item, part in zip(ranges, read_all(ranges), strict=True):
                for end, cell, owner in cells:
                    start = end - before - cell
                    (count,) = np.frombuffer(part, np.uint64, 1, start).tolist()
                    # A view of them would keep the sketches beside them.
                    some = np.frombuffer(part, GATHERED, count, start + 8).copy()
                    sketches = np.frombuffer(part, np.uint8, cell - 8 - some.nbytes, start + 8 + some.nbytes)
                    data[at : at + len(sketches)] = sketches
                    at += len(sketches)
                    rows.append(some)
                    owners.append(np.full(count, owner, np.uint32))
                    if end - before == item.size:
                        break
                before += item.size
            yield np.concatenate(rows), np.concatenate(owners), data[:at]

    def _refined(
        self,
        families: NDArray[np.uint64],
        order: NDArray[np.uint32],
        offsets: NDArray[np.uint64],
        data: NDArray[np.uint8],
    ) -> tuple[NDArray[np.uint64], int]:
        """Return pairs, coded as the entries of families are, and how many rows were not compared with all."""
        if not len(families):
            return families, 0
        member = (families & _LOW).astype(np.uint32)
        inner = np.flatnonzero(np.diff(families >> _HALF)) + 1
        bounds = np.concatenate([[0], inner, [len(families)]]).astype(np.uint64)
        edges, unverified = _native.curate_near_refine(offsets, data, order[member], bounds, native(self.settings))
        low, high = (member[edges[:, side]].astype(np.uint64) for side in (0, 1))
        return distinct(low << _HALF | high), unverified


def _codes(pairs: Runs, group: int, rank: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the distinct pairs of a group, as ``a << 32 | b`` of the places of their ranks in ``rank``; uint64 [n].

    Ascending. Many keys give the same pair: most of a large group's are repetitions, so all of them are never held.
    """
    held, count, most = [np.empty(0, np.uint64)], 0, _CODES
    ranges, *_ = pairs.cells(group)
    for data in read_all(ranges):
        some = np.frombuffer(data, EDGE)
        places = _native.curate_near_find(rank, some.view(np.uint64)).astype(np.uint64)
        held.append(places[::2] << _HALF | places[1::2])
        count += len(some)
        if count > most:
            held = [_settled(held)]
            count = len(held[0])
            most = max(_CODES, 2 * count)
    return _settled(held)


def _settled(held: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return the distinct codes of several arrays, which are let go of."""
    codes = np.concatenate(held)
    held.clear()
    return distinct(codes)


def _pairs(codes: NDArray[np.uint64], order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the rows of coded pairs, uint32 [n, 2]."""
    result = np.empty((len(codes), 2), np.uint32)
    result[:, 0], result[:, 1] = order[codes >> _HALF], order[codes & _LOW]
    return result


def _write(out: Writer, rows: NDArray[Any], tasks: list[str]) -> None:
    """Write DECISIONS and TASKS."""
    with out.create(DECISIONS, scratch=True) as local:
        local.write_bytes(np.ascontiguousarray(rows).view(np.uint8).data)
    with out.create(TASKS, scratch=True) as local:
        local.write_text(json.dumps(tasks), encoding="utf-8")


@dataclass
class Collected:
    """The data of a record of :class:`Collect`: ``bounds`` as :class:`Resolved` has them."""

    bounds: list[int]


@dataclass(frozen=True)
class Collect(Shard[object], reads=()):
    """Brings together what some groups found, if there are many: :class:`Split` reads of fewer files.

    Args:
        groups: their keys.
        parts: of each its DECISIONS and TASKS.
        ranges: the place of the first slice of each range, and one past the last.
    """

    work = "bring parts together"

    groups: tuple[str, ...]
    parts: tuple[tuple[Range, Range], ...] = field(metadata=unkeyed("places in what the groups made"))
    ranges: tuple[int, ...] = field(metadata=unkeyed("the keys of the groups follow from it"))

    def run(self, context: object, out: Writer) -> ShardResult:
        result, names = joined(self.parts)
        result = result[np.argsort(result["place"], kind="stable")]
        _write(out, result, names)
        bounds = np.searchsorted(result["place"], np.array(self.ranges, np.uint32))
        return ShardResult(Ledger(), asdict(Collected(bounds.tolist())))


@dataclass
class BySlice:
    """What a :class:`Split` shard has made.

    Args:
        slices: of each slice with findings: its place, the first of its DECISIONS, their number, a digest of them.
    """

    slices: list[tuple[int, int, int, str]]


@dataclass(frozen=True)
class Split(Shard[object], reads=()):
    """Brings together what all groups found on a range of slices.

    Without it the records of groups would have an entry for each slice and group, which are too many to plan with.

    Args:
        groups: keys of the groups with findings.
        number: of the range of slices.
        parts: of each group its DECISIONS of these slices, and its TASKS.
    """

    work = "share out near duplicates"

    groups: tuple[str, ...]
    number: int
    parts: tuple[tuple[Range, Range], ...] = field(metadata=unkeyed("places in what the groups made"))

    def run(self, context: object, out: Writer) -> ShardResult:
        result, names = joined(self.parts)
        result = result[
            np.lexsort((result["other_ordinal"], result["other_task"], result["rule"], result["row"], result["place"]))
        ]
        _write(out, result, names)
        return ShardResult(Ledger(), asdict(BySlice(_by_slice(result, names))))


def joined(parts: Iterable[tuple[Range, Range]]) -> tuple[NDArray[Any], list[str]]:
    """Return the DECISIONS of several files, and their TASKS in the order of names."""
    ranges = [item for part in parts for item in part]
    data = list(read_all(ranges))
    listed = [json.loads(tasks) for tasks in data[1::2]]
    names = sorted({task for tasks in listed for task in tasks})
    place = {name: at for at, name in enumerate(names)}
    blocks = [np.empty(0, DECISION)]
    for raw, tasks in zip(data[::2], listed, strict=True):
        result = np.frombuffer(raw, DECISION).copy()
        result["other_task"] = np.array([place[task] for task in tasks], np.uint32)[result["other_task"]]
        blocks.append(result)
    return np.concatenate(blocks), names


def _by_slice(rows: NDArray[Any], tasks: list[str]) -> list[tuple[int, int, int, str]]:
    """List the slices of DECISIONS: place, first, count, and a digest without numbers of slices or tasks."""
    names = np.array([int(hashlib.sha256(task.encode()).hexdigest()[:16], 16) for task in tasks], np.uint64)
    slices, first = np.unique(rows["place"], return_index=True)
    stops = [*first[1:].tolist(), len(rows)]
    listed = []
    for place, start, stop in zip(slices.tolist(), first.tolist(), stops, strict=True):
        some = rows[start:stop].copy()
        others = names[some["other_task"]]
        some["other_task"] = some["place"] = 0
        digest = hashlib.sha256(some.view(np.uint8).data)
        digest.update(others.view(np.uint8).data)
        listed.append((place, start, stop - start, digest.hexdigest()[:32]))
    return listed
