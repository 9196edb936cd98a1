"""Exact deduplication: rows whose pair, instruction or response is equal, found by keys of 128 bits.

    ReadKeys(slice)        an entry for each row and kind of key, by key
    DealKeys(slices)       the entries of some slices together, if there are many slices
    FindEqual(kind, part)  the entries of one range of keys, of all slices: which rows repeat which
    CollectEqual(parts)    what some of them found, if there are many
    SplitShard(tasks)      what was found, for each task

Where instructions or responses remove rows and another kind of key is looked at too, FindEqual only makes groups, and
:mod:`pairmill.stages.curate.exact_by_rank` decides.

A row is known by ``number << 32 | row``: slices are numbered in rank order, after the tasks of an index.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine import shuffle
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.rounds import abreast
from pairmill.engine.runs import Range, Runs, read_all
from pairmill.engine.shuffle import Shuffled
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import rows
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.rows import Batch
from pairmill.formats.slices import FileSlice
from pairmill.rowstage import Slice
from pairmill.stages.curate import exact_by_rank
from pairmill.stages.curate.exact_by_rank import DecideByRank, DecidedByRank, Links, links_of
from pairmill.stages.curate.exact_files import ENTRY, INDEXED, KeyedFiles, SortedKeys
from pairmill.stages.curate.exact_settings import KINDS, ExactSettings, Kind, actions, is_on
from pairmill.stages.curate.found import DROP, LAYOUT, PLACE, SplitShard, Stored, stored

_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    "pair": ("instruction", "response"),
    "instruction": ("instruction",),
    "response": ("response",),
}

# So many rows of a slice make a further bit of its bounds: a record stays small, and a range is rarely read in vain.
_ROWS_PER_BOUND = 1024
_MOST_BITS = 8
_TASKS_PER_SPLIT = 256


@dataclass(frozen=True)
class Keying:
    """What the keys of rows follow from beside the rows.

    Args:
        kinds: the keys that are made.
        light: of the light form.
        conditions: whether the condition is part of each key.
        tokens: whether the tokens of responses are counted.
    """

    kinds: tuple[Kind, ...]
    light: bool
    conditions: bool
    tokens: bool

    @classmethod
    def from_settings(cls, variants: Sequence[ExactSettings], *, longest: bool, conditions: bool) -> Keying:
        """Choose the keys that any task needs."""
        wanted = tuple(kind for kind in KINDS if any(is_on(variant, kind) for variant in variants))
        return cls(wanted, variants[0].form == "light", conditions, longest and bool(wanted))

    def identify(self) -> object:
        """Return what the entries follow from beside the rows."""
        return [_native.curate_unicode(), *asdict(self).values()]


def _is_by_rank(variants: Iterable[ExactSettings], kinds: Sequence[Kind]) -> bool:
    """Tell whether one kind of key can remove a row that another kind would name."""
    removing = {kind for variant in variants for kind in actions(variant)}
    return len(kinds) > 1 and bool(removing - {"pair"})


@dataclass
class KeysRead:
    """The data of a record.

    Args:
        rows: of the slice.
        text_bytes: of instructions and responses; 0 if no text was read.
        bounds: by kind, where the entries of each of 2^n equal ranges of keys begin, and where the last ends.
    """

    rows: int
    text_bytes: int = 0
    bounds: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadKeys(Shard[object], reads=()):
    """Reads the keys of the rows of a slice; without a kind of key it counts the rows."""

    work = "read and score rows"

    piece: Slice
    keying: Keying

    def random_access(self) -> dict[str, Content]:
        return self.piece.part.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        if not self.keying.kinds:
            return ShardResult(Ledger(), asdict(KeysRead(_count(self.piece.part))))
        result: dict[Kind, list[NDArray[Any]]] = {kind: [] for kind in self.keying.kinds}
        count = text_bytes = 0
        part = self.piece.part
        for batch in rows.read(part.uri, part, checked=False, content=part.content, longest=part.longest):
            rows.refuse_nulls(batch, part.uri)
            # The Rust module checks what it is given.
            rows.refuse_not_utf8(batch, part.uri, ["condition"])
            with rows.texts_named(batch, part.uri):
                for kind, entries in _entries(batch, self.keying, count):
                    result[kind].append(entries)
            count += len(batch)
            text_bytes += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
        data = KeysRead(count, text_bytes)
        for kind, parts in result.items():
            joined = np.concatenate(parts) if parts else np.empty(0, ENTRY)
            data.bounds[kind] = _write(out, kind, joined)
        return ShardResult(Ledger(), asdict(data))


def _count(part: FileSlice) -> int:
    if part.stop is None:
        return rows.count(part.uri, part.content, part.longest)
    with open_parquet(part.uri, part.content) as file:
        return sum(file.metadata.row_group(group).num_rows for group in range(part.start, part.stop))


def _entries(batch: Batch, keying: Keying, start: int) -> Iterator[tuple[Kind, NDArray[Any]]]:
    """Yield the entries of a batch whose first row has this number in the slice."""
    numbers = np.arange(start, start + len(batch), dtype=np.uint32)
    tokens = np.zeros(len(batch), np.uint32)
    if keying.tokens:
        tokens[:] = np.diff(pa.array(_native.curate_forms(batch.response)[1]).offsets.to_numpy())
    before = [batch.condition] if keying.conditions else []
    pairs = _native.curate_exact_keys([*before, batch.instruction, batch.response], keying.light)
    for kind in keying.kinds:
        columns = [getattr(batch, name) for name in _FIELDS[kind]]
        keys = pairs if kind == "pair" else _native.curate_exact_keys([*before, *columns], keying.light)
        made = np.empty(len(batch), ENTRY)
        made["high"], made["low"], made["pair"] = keys[:, 0], keys[:, 1], pairs[:, 1]
        made["row"], made["tokens"] = numbers, tokens
        if kind != "pair":  # documents have no instruction, and are not answers to one question
            nothing = _native.curate_exact_keys([pa.array([""])], keying.light)[0]
            alone = keys if not before else _native.curate_exact_keys(columns, keying.light)
            made = made[(alone != nothing).any(axis=1)]
        yield kind, made


def _write(out: Writer, path: str, entries: NDArray[Any], *, scratch: bool = True) -> list[int]:
    """Write entries by key; return their bounds."""
    entries = entries.take(_by_key(entries))
    with out.create(path, scratch=scratch) as local:
        entries.tofile(local)
    return _bounds(entries["high"])


def _by_key(entries: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order of entries by key and row, int64 [n]."""
    order, tied = _by_high(entries["high"])
    some = order[tied]
    ties = entries.take(some)
    order[tied] = some[np.lexsort((ties["row"], ties["low"], ties["high"]))]
    return order


def _by_high(high: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the order of upper halves of keys, int64 [n], and whether the one at each place is there twice, bool [n].

    It tells nearly all keys apart, and NumPy sorts one column several times as fast as two.
    """
    high = np.ascontiguousarray(high)
    order: NDArray[np.int64] = np.argsort(high)
    high = high[order]
    same = high[1:] == high[:-1]
    tied = np.zeros(len(high), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    return order, tied


def _bounds(high: NDArray[np.uint64]) -> list[int]:
    bits = min(_MOST_BITS, max(0, (len(high) // _ROWS_PER_BOUND).bit_length()))
    if not bits:
        return [0, len(high)]
    starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return [*np.searchsorted(high, starts).tolist(), len(high)]


@dataclass
class EqualFound:
    """The data of a record of :class:`FindEqual`, which has of these what it found.

    Args:
        bounds: where the findings of each group of tasks begin, and where the last end.
        groups: of equal rows, if they are decided by rank.
        links: of rows to their groups, if they are decided by rank.
        index: bounds of the entries of a new index; None without.
    """

    bounds: list[int] = field(default_factory=list)
    groups: int = 0
    links: int = 0
    index: list[int] | None = None


@dataclass(frozen=True)
class Finding:
    """How rows of a kind are found.

    Args:
        kind: of the keys.
        keep: how many rows of a group stay.
    """

    kind: Kind
    keep: int


@dataclass(frozen=True)
class FindEqual(Shard[object], reads=()):
    """Finds which rows repeat which, in one range of keys.

    Args:
        content: digest of what the files hold.
        files: of all slices, in rank order.
        dealt: the entries of those that are not an index's, by their places among the files; None = they are read as
            they are.
        ranges: the number of the first slice of each group of tasks, and one past the last.
        write_index: make the entries of a new index.
        first_free: the number of the first slice that is not held out, if groups are decided by rank; None = here.
    """

    work = "find exact duplicates"

    content: str
    files: tuple[SortedKeys, ...] = field(metadata=PLACE)
    dealt: Runs | None = field(metadata=PLACE)
    finding: Finding
    part: int
    bits: int
    ranges: tuple[int, ...]
    write_index: bool
    first_free: int | None = None

    def run(self, context: object, out: Writer) -> ShardResult:
        kind = self.finding.kind
        keys, ids, fixed, held, once = self._read()
        if not self.write_index:
            # Whoever is alone with a key stays.
            order, tied = _by_high(keys["high"])
            some = order[tied]
            keys, ids, fixed, held, once = keys.take(some), ids[some], fixed[some], held[some], once[some]
        # Fixed rows first, then longer responses where those are preferred, then rank.
        shorter = ~keys["tokens"]
        order = np.lexsort((ids, shorter, ~fixed, keys["low"], keys["high"]))
        keys, ids, fixed, held, once = keys.take(order), ids[order], fixed[order], held[order], once[order]
        if kind != "pair":
            stays = ~held
            if once.any():
                stays &= ~once | _first_of_pair(keys)
            keys, ids, fixed = keys[stays], ids[stays], fixed[stays]
        begins = np.ones(len(keys), np.bool_)
        begins[1:] = (keys["high"][1:] != keys["high"][:-1]) | (keys["low"][1:] != keys["low"][:-1])
        if self.first_free is not None:
            links, groups = links_of(ids, ~keys["tokens"], begins, self.first_free)
            with out.create("links", scratch=True) as local:
                links.tofile(local)
            made: dict[str, Any] = {"groups": groups, "links": len(links)}
            if self.write_index:
                made["index"] = self._write_index(out, keys, ids, scratch=True)
            return ShardResult(Ledger(), made)
        starts = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        place = np.arange(len(keys)) - starts[group] if len(keys) else np.empty(0, np.int64)
        removed = (place >= self.finding.keep) & ~fixed
        result = np.empty(int(removed.sum()), DROP)
        result["row"], result["other"] = ids[removed], ids[starts[group[removed]]]
        result["rule"], result["score_i"], result["score_r"] = KINDS.index(kind), np.nan, np.nan
        data: dict[str, Any] = {"bounds": _write_found(out, result, self.ranges)}
        if self.write_index:
            stays = ~removed if kind == "pair" else np.ones(len(keys), np.bool_)
            data["index"] = self._write_index(out, keys[stays], ids[stays])
        return ShardResult(Ledger(), data)

    def _read(self) -> tuple[NDArray[Any], NDArray[np.uint64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return entries, and of each its id, and whether its file is fixed, held out, and has repeated pairs once."""
        names = list(ENTRY.names or ())
        keys, owners = [np.empty(0, ENTRY)], [np.empty(0, np.uint32)]
        tasks = [np.empty(0, np.uint64)]
        if self.dealt is not None:
            rows, owner = self.dealt.rows(self.part, ENTRY)
            keys, owners, tasks = [rows], [owner], [np.zeros(len(rows), np.uint64)]
        for place, file in enumerate(self.files):
            if self.dealt is None or file.indexed:
                some = file.read(self.part, self.bits)
                keys.append(some[names])
                owners.append(np.full(len(some), place, np.uint32))
                tasks.append(some["task"].astype(np.uint64) if file.indexed else np.zeros(len(some), np.uint64))
        joined = np.empty(sum(map(len, keys)), ENTRY)
        at = 0
        for item in keys:
            joined[at : at + len(item)] = item
            at += len(item)
        owner = np.concatenate(owners)
        facts = [(file.number, file.fixed, file.fixed and not file.indexed, file.once) for file in self.files]
        # Of held-out rows a cap counts none; of rows of an index it does.
        number, fixed, held, once = (np.array(values)[owner] for values in zip(*facts, strict=True))
        ids = number.astype(np.uint64) + np.concatenate(tasks) << np.uint64(32) | joined["row"]
        return joined, ids, fixed, held, once

    def _write_index(
        self, out: Writer, keys: NDArray[Any], ids: NDArray[np.uint64], *, scratch: bool = False
    ) -> list[int]:
        """Write the entries of rows that stay by slice number; names of tasks are put in when the index is read."""
        made = np.empty(len(keys), INDEXED)
        for name in ENTRY.names or ():
            made[name] = keys[name]
        made["task"], made["row"] = ids >> np.uint64(32), ids & np.uint64(0xFFFFFFFF)
        order = np.lexsort((made["row"], made["task"], made["low"], made["high"]))
        made = made[order]
        with out.create("index", scratch=scratch) as local:
            made.tofile(local)
        return _bounds(made["high"])


def _write_found(out: Writer, drops: NDArray[Any], ranges: Sequence[int]) -> list[int]:
    """Write findings by row; return where those of each range of slices begin, and where the last end."""
    drops = drops[np.argsort(drops["row"], kind="stable")]
    with out.create("found", scratch=True) as local:
        drops.tofile(local)
    bounds: list[int] = np.searchsorted(drops["row"], np.array(ranges, np.uint64) << np.uint64(32)).tolist()
    return bounds


@dataclass(frozen=True)
class CollectEqual(Shard[object], reads=()):
    """Brings together what was found in some ranges of keys: :class:`SplitShard` reads of fewer files.

    Args:
        keys: of the shards that found it.
        parts: of each its findings.
        ranges: as those shards have them.
    """

    work = "bring parts together"

    keys: tuple[str, ...]
    parts: tuple[Range, ...] = field(metadata=PLACE)
    ranges: tuple[int, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        drops = np.frombuffer(b"".join(read_all(self.parts)), DROP)
        return ShardResult(Ledger(), asdict(EqualFound(_write_found(out, drops, self.ranges))))


def _first_of_pair(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which entries, in rank order within each group, are the first of their pair."""
    order = np.lexsort((np.arange(len(keys)), keys["pair"], keys["low"], keys["high"]))
    some = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = (
        (some["high"][1:] != some["high"][:-1])
        | (some["low"][1:] != some["low"][:-1])
        | (some["pair"][1:] != some["pair"][:-1])
    )
    result = np.empty(len(keys), np.bool_)
    result[order] = first
    return result


class ExactInput(NamedTuple):
    """What exact deduplication compares.

    Args:
        settings: those that no override changes.
        by_slice: of each slice.
        keying: as the records were made.
        slices: all, in rank order.
        records: of ReadKeys, of each slice.
        indexed: files of an index; their tasks have the numbers before ``first_slice``.
        first_slice: the number of the first slice.
        indexed_by: identity of the index, for the keys of what names its tasks.
        write_index: make the files of a new index.
    """

    settings: ExactSettings
    by_slice: Sequence[ExactSettings]
    keying: Keying
    slices: Sequence[Slice]
    records: Sequence[ShardRecord]
    indexed: Sequence[tuple[Kind, SortedKeys]] = ()
    first_slice: int = 0
    indexed_by: str = ""
    write_index: bool = False


class ExactFound(NamedTuple):
    """What was found.

    Args:
        tasks: where the decisions are, by task; one without a finding is not in it.
        records: of all rounds.
        index_files: of a new index: record, path in its folder, kind, bounds.
    """

    tasks: dict[str, Stored]
    records: list[ShardRecord]
    index_files: list[tuple[ShardRecord, str, Kind, list[int]]]


def rounds(given: ExactInput) -> Generator[list[Shard[Any]], list[ShardRecord], ExactFound]:
    """Yield four rounds: two that bring keys together, groups of equal keys, and what was found by task.

    Of very many ranges of keys and tasks there is one more, before the last.
    """
    offset = given.first_slice
    ranges = tuple(offset + number for number in _ranges(given.slices))
    by_rank = _is_by_rank([given.settings, *given.by_slice], given.keying.kinds)
    free = next((item.number for item in given.slices if not item.fixed), len(given.slices))
    read = [record.read(KeysRead).bounds for record in given.records]
    keyed = [KeyedFiles(kind, tuple(_files(kind, given, read, by_rank))) for kind in given.keying.kinds]
    dealt = yield from abreast(*(item.rounds() for item in keyed))
    shards = [
        shard
        for item, runs in zip(keyed, dealt, strict=True)
        for shard in _partitions(item, runs, given, ranges, offset + free if by_rank else None)
    ]
    result = yield list(shards)
    merged = [record for runs in dealt if runs is not None for record in runs.records]
    if by_rank:
        return (yield from _by_rank(given, ranges, offset + free, shards, [*merged, *result]))
    named = content_key(given.indexed_by, [[item.task, item.part.first] for item in given.slices])
    equal = [record.read(EqualFound) for record in result]
    collected = yield from _collected(result, equal, ranges)
    read_from = [(record.uri("found"), record.read(EqualFound).bounds) for record in collected or result]
    splits: list[SplitShard] = []
    for at in range(len(ranges) - 1):
        places = ((uri, bounds[at], bounds[at + 1]) for uri, bounds in read_from)
        parts = [(uri, start, stop) for uri, start, stop in places if start < stop]
        if parts:
            keys = [[item.key, some.bounds[at : at + 2]] for item, some in zip(result, equal, strict=True)]
            content = content_key(named, keys, LAYOUT)
            size = sum(stop - start for _, start, stop in parts) * DROP.itemsize
            splits.append(SplitShard(content, tuple(parts), tuple(KINDS), name=f"exact {at:05}", size=size))
    split = yield list(splits)
    index = [
        (record, "index", shard.finding.kind, some.index)
        for shard, record, some in zip(shards, result, equal, strict=True)
        if some.index is not None
    ]
    return ExactFound(stored(split), [*merged, *result, *collected, *split], index)


def _collected(
    records: Sequence[ShardRecord], equal: Sequence[EqualFound], ranges: tuple[int, ...]
) -> Generator[list[Shard[Any]], list[ShardRecord], list[ShardRecord]]:
    """Yield a round that brings findings together, if they are in many files; return its records."""
    sizes = np.array([some.bounds[-1] * DROP.itemsize for some in equal], np.int64)
    together = shuffle.gathered(sizes, len(ranges) - 1)
    if not together:
        return []
    files = [Range(record.uri("found"), 0, size) for record, size in zip(records, sizes.tolist(), strict=True)]
    return (
        yield [
            CollectEqual(
                keys=tuple(record.key for record in records[start:stop]),
                parts=tuple(files[start:stop]),
                ranges=ranges,
                name=f"exact findings {number:05}",
                size=int(sizes[start:stop].sum()),
            )
            for number, (start, stop) in enumerate(together)
        ]
    )


def _by_rank(
    given: ExactInput, ranges: tuple[int, ...], free: int, shards: Sequence[FindEqual], records: Sequence[ShardRecord]
) -> Generator[list[Shard[Any]], list[ShardRecord], ExactFound]:
    """Yield the last round where rules meet: one shard decides about all groups.

    ``records`` are those of all rounds before, the last of them those of ``shards``.
    """
    links = []
    last = records[len(records) - len(shards) :]
    for equal, record in zip(shards, last, strict=True):
        data = record.read(EqualFound)
        bounds = tuple(data.index or ())
        entries = Range(record.uri("index"), 0, bounds[-1] * INDEXED.itemsize) if bounds else None
        size = data.links * exact_by_rank.LINK.itemsize
        kind = KINDS.index(equal.finding.kind)
        links.append(Links(kind, data.groups, Range(record.uri("links"), 0, size), entries, bounds))
    keep = tuple((given.settings.cap(kind) if kind != "pair" else None) or 1 for kind in KINDS)
    drops, looks = [], []
    for own in given.by_slice:
        drops.append(sum(1 << KINDS.index(kind) for kind in actions(own)))
        looks.append(sum(1 << KINDS.index(kind) for kind in KINDS if is_on(own, kind)))
    rows_of = (record.read(KeysRead).rows for record in given.records)
    bases = tuple(accumulate(rows_of, initial=0))
    places = [given.indexed_by, [[item.task, item.part.first] for item in given.slices]]
    size = sum(item.found.size for item in links)
    shard = DecideByRank(
        content=content_key(places, [item.key for item in last], LAYOUT),
        links=tuple(links),
        rules=tuple(KINDS),
        keep=keep,
        drops=tuple(drops),
        looks=tuple(looks),
        first_slice=given.first_slice,
        first_free=free,
        ranges=ranges,
        bases=bases,
        entry=INDEXED,
        name="exact by rank",
        size=size,
    )
    (record,) = yield [shard]
    kept = record.read(DecidedByRank).index
    index = [
        (record, f"index-{number:05}", item.finding.kind, bounds)
        for number, (item, bounds) in enumerate(zip(shards, kept, strict=True))
        if bounds
    ]
    return ExactFound(exact_by_rank.stored(record), [*records, record], index)


def _ranges(slices: Sequence[Slice]) -> list[int]:
    """Return the numbers of the slices with which groups of 256 tasks begin, and one past the last."""
    firsts = [item.number for before, item in zip([None, *slices], slices, strict=False) if _begins(before, item)]
    return [*firsts[::_TASKS_PER_SPLIT], len(slices)]


def _begins(before: Slice | None, item: Slice) -> bool:
    return before is None or before.task != item.task


def _files(kind: Kind, given: ExactInput, read: Sequence[dict[str, list[int]]], by_rank: bool) -> Iterator[SortedKeys]:
    """Yield the files of a kind of key, in rank order."""
    yield from (item for indexed, item in given.indexed if indexed == kind)
    for item, record, every, own in zip(given.slices, given.records, read, given.by_slice, strict=True):
        bounds = tuple(every[kind])
        if bounds[-1]:
            yield SortedKeys(
                uri=record.uri(kind),
                bounds=bounds,
                number=given.first_slice + item.number,
                fixed=item.fixed,
                indexed=False,
                key=record.key,
                once=not by_rank and kind != "pair" and "pair" in actions(own),
            )


def _partitions(
    keyed: KeyedFiles, dealt: Shuffled | None, given: ExactInput, ranges: tuple[int, ...], first_free: int | None
) -> list[FindEqual]:
    kind, files = keyed.kind, keyed.files
    cap = given.settings.cap(kind) if kind != "pair" else None
    content = content_key([[item.key, item.number, item.fixed, item.indexed, item.once] for item in files])
    if dealt is not None:  # what is read is in the runs
        files = tuple(item if item.indexed else replace(item, uri="", bounds=()) for item in files)
    return [
        FindEqual(
            content=content,
            files=files,
            dealt=dealt.runs(part) if dealt is not None else None,
            finding=Finding(kind, cap or 1),
            part=part,
            bits=keyed.bits,
            ranges=ranges,
            write_index=given.write_index,
            first_free=first_free,
            name=f"{kind} {part:05}",
            size=keyed.size >> keyed.bits,
        )
        for part in range(1 << keyed.bits if files else 0)
    ]
