"""Near deduplication out of core: its rounds.

    Sign(slice)         the sketch and the band keys of each row, the keys in partitions
    Buckets(partitions) rows with an equal key: candidate pairs, and families of many rows
    Join(one)           the components that pairs make, dealt into groups; of very many pairs :mod:`.exchange` does it
    Gather(slice)       the sketches of the rows of a component, by group
    Resolve(group)      refines the families, verifies the pairs, and decides in rank order
    Collect(groups)     what some groups found, if there are many
    Split(slices)       what all groups found on some slices
    Retain(slice)       the keys and sketches of the retained rows, if an index is wanted

All files are scratch, except the index. Rows are numbered in the order of the slices; ``ranks`` makes ranks of numbers.
Decisions name rows by task and ordinal, so they do not depend on how files are cut.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

import numpy as np

from pairmill.digest import split
from pairmill.engine import shuffle
from pairmill.engine.manifest import content_key
from pairmill.engine.rounds import abreast
from pairmill.engine.runs import Range, Run, Runs
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.stages.curate.near import buckets, components, exchange, index, sign
from pairmill.stages.curate.near.buckets import Buckets, Paired
from pairmill.stages.curate.near.components import Candidates, Groups
from pairmill.stages.curate.near.decided import Decided, DecidedTask
from pairmill.stages.curate.near.given import Dropped, NearInput, NearSlice, NothingDropped
from pairmill.stages.curate.near.index import Deal, Dealt, Indexed, NearFound, NewIndex, Retain, Retained, Source
from pairmill.stages.curate.near.records import DECISION, EDGE, KEY, KEY_OF_LONGEST, KEYS, ROW
from pairmill.stages.curate.near.resolve import (
    DECISIONS,
    SKETCHES,
    TASKS,
    BySlice,
    Collect,
    Collected,
    Gather,
    Gathered,
    Resolve,
    Resolved,
    Split,
)
from pairmill.stages.curate.near.settings import NearSettings
from pairmill.stages.curate.near.sign import Sign, Signed
from pairmill.stages.curate.operation import Decisions

__all__ = ["Dropped", "NearFound", "NearInput", "NearSlice", "NothingDropped", "rounds"]

# Settings that do not count in a round that does not read them.
_UNUSED = NearSettings()
# Keys of a partition: 16 bytes each, and some 40 while they are sorted. With few partitions each is smaller.
_KEYS, _MOST_KEYS = 1 << 22, 1 << 23
_MANY = 256
# Partitions that a shard reads with the requests of one, and their bytes, at most; shards there are then at least.
_TOGETHER, _READ, _PARALLEL = 4, 256 << 20, 8
# Bytes of text for which a document has one more key: that of a sampled gram.
_BYTES_OF_KEY = 64
# Bytes of the sketches and edges of a group; with few groups each is smaller.
_GROUP, _MOST_GROUP = 64 << 20, 256 << 20
# Slices whose findings are brought together.
_SLICES = 256


def rounds(given: NearInput) -> Generator[list[Shard[Any]], list[ShardRecord], NearFound]:
    """Yield the shards of each round and return what they found; the caller delegates with ``yield from``.

    Raises:
        InputError: an index that is absent, or of another format, version or settings.
    """
    settings = _byte_settings(given)
    old = [(folder, index.load(folder, settings)) for folder in given.index]
    count = partitions(given, old)
    signed, sources = yield from _signed(given, old, settings, count)
    # Rows are numbered in the order of the sources.
    bases = tuple(accumulate((item.rows for item in sources), initial=0))
    fixed = bases[next((place for place, item in enumerate(sources) if not item.fixed), len(sources))]
    inputs = content_key(settings, count, [[item.key, item.rows] for item in sources])
    width = (KEY_OF_LONGEST if given.longest_response else KEY).itemsize
    keys = Runs(
        count,
        tuple(
            Run(item.keys_uri, start, (place,), f"{item.key} {item.longest}")
            for place, item in enumerate(sources)
            for start in item.runs
        ),
        size=width * sum(item.keys for item in sources),
    )
    costs = {
        "rows": sum(item.rows for item in sources if not item.fixed),
        "fixed_rows": fixed,
        "keys": sum(item.keys for item in sources),
        "sketch_bytes": sum(item.sketches.size for item in sources),
    }

    fresh = fixed < bases[-1]
    together = max(1, min(_TOGETHER, count // _PARALLEL, _READ * count // max(1, keys.size)))
    shuffled = yield from shuffle.rounds("near keys", keys if fresh else Runs(count, ()), together=together)
    # Sliced once: of each partition its own copy would take 8 bytes for each slice and partition.
    firsts = bases[:-1]
    paired = yield [
        Buckets(
            inputs=inputs,
            keys=runs,
            first=start,
            stop=stop,
            bases=firsts,
            fixed=fixed,
            longest_response=given.longest_response,
            refine=given.settings.refine,
            keep=given.settings.max_similar or 1,
            name=f"near buckets {start:05}",
            size=keys.size * (stop - start) // count,
        )
        for start, stop, runs in (shuffled.neighbours(together) if fresh else ())
    ]
    pairs = [record.read(Paired) for record in paired]
    costs["candidates"] = sum(item.edges for item in pairs)
    costs["family_entries"] = sum(item.families for item in pairs)

    edges, families = (
        tuple(
            Range(record.uri(path), 0, getattr(item, name) * EDGE.itemsize)
            for record, item in zip(paired, pairs, strict=True)
        )
        for path, name in ((buckets.EDGES, "edges"), (buckets.FAMILIES, "families"))
    )
    candidates = Candidates(
        inputs=content_key(inputs, fixed, given.settings.refine, given.settings.max_similar),
        edges=edges,
        families=families,
        rows=tuple(item.table for item in sources),
        bases=bases,
        sketches=costs["sketch_bytes"],
        group_size=min(_MOST_GROUP, max(_GROUP, costs["sketch_bytes"] // _MANY)),
    )
    joined, groups = yield from (components if candidates.few else exchange).joined(candidates)
    gathered, resolved = yield from _decided(given, sources, groups, bases, fixed)
    results = [record.read(Resolved) for record in resolved]
    for name in ("removed", "verifications", "unverified", "edges"):
        costs[name] = sum(getattr(item, name) for item in results)
    costs["compared_rows"] = sum(item.rows for item in results)

    collected, bounds = yield from _collected(resolved, [item.bounds for item in results], _ranges(sources))
    split = yield [
        Split(
            groups=tuple(record.key for record, _ in some),
            number=number,
            parts=tuple(part for _, part in some),
            name=f"near split {number:05}",
            size=sum(decisions.size for _, (decisions, _) in some),
        )
        for number, some in _findings_by_range(collected, bounds)
    ]
    decided = _by_source(sources, split)
    retained = yield from _retained(given, sources, decided, old, settings)
    records = [*signed, *shuffled.records, *paired, *joined, *gathered, *resolved, *split]
    records += collected if collected is not resolved else []
    costs["scratch_bytes"] = sum(file.size for record in records for file in record.files)
    return NearFound(_tasks(given.slices, sources, decided), costs, retained)


def partitions(given: NearInput, old: Sequence[tuple[str, Sequence[Indexed]]] = ()) -> int:
    """Return how many partitions the keys are in: a power of two, so that one row more rarely changes it."""
    settings = given.settings
    rows = sum(item.rows for item in given.slices)
    keys = rows * (settings.bands + 1) + sum(item.part.size for item in given.slices) // _BYTES_OF_KEY
    keys += sum(item.keys for _, slices in old for item in slices)
    # The nearest one: of more, half as full, a row takes twice the requests.
    few = min(1 << max(0, round(math.log2(max(1, keys) / _KEYS))), _MANY)
    return max(few, _power_of_two(-(-keys // _MOST_KEYS)))


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


def _byte_settings(given: NearInput) -> dict[str, Any]:
    """Return the settings from which sketches and keys follow."""
    settings = asdict(given.settings)
    # None changes what is signed; the last two are in the keys of the rounds that they change.
    del settings["mode"], settings["refine"], settings["max_similar"]
    return {**settings, "same_condition_only": given.same_condition_only}


def _signed(
    given: NearInput, old: Sequence[tuple[str, Sequence[Indexed]]], settings: dict[str, Any], count: int
) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], list[Source]]]:
    """Yield round 1: the signed rows, those of indexes first."""
    longest = given.longest_response
    signing = replace(given.settings, mode=_UNUSED.mode, refine=_UNUSED.refine, max_similar=_UNUSED.max_similar)
    indexed = [item.source(folder) for folder, slices in old for item in slices]
    others = [item for item in indexed if item.partitions != count or longest]
    deal: list[Shard[Any]] = [
        Deal(item, count, longest, name=f"near index {place:06}", size=12 * item.keys)
        for place, item in enumerate(others)
    ]
    sign_: list[Shard[Any]] = [
        Sign(item, signing, count, given.same_condition_only, longest, name=f"near {_name(item)}", size=item.part.size)
        for item in given.slices
    ]
    records = yield [*deal, *sign_]
    dealt = iter(records[: len(deal)])
    sources = []
    for item in indexed:
        if item.partitions != count or longest:
            record = next(dealt)
            runs = tuple(record.read(Dealt).runs)
            uri = record.uri(KEYS)
            item = replace(item, partitions=count, longest=longest, runs=runs, keys_uri=uri)
        sources.append(item)
    for part, record in zip(given.slices, records[len(deal) :], strict=True):
        made = record.read(Signed)
        sources.append(
            Source(
                task=part.task,
                first=part.part.first,
                fixed=part.fixed,
                key=record.key,
                rows=made.rows,
                keys=made.keys,
                partitions=count,
                longest=longest,
                runs=tuple(made.runs),
                keys_uri=record.uri(KEYS),
                table=Range(record.uri(sign.ROWS), 0, made.rows * ROW.itemsize),
                sketches=Range(record.uri(sign.SKETCHES), 0, made.size),
            )
        )
    return records, sources


def _name(item: NearSlice) -> str:
    return f"{item.task} {item.part.first:012}"


def _decided(
    given: NearInput, sources: Sequence[Source], groups: Groups | None, bases: Sequence[int], fixed: int
) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], list[ShardRecord]]]:
    """Yield rounds 4 and 5 and the shuffle between them, which are empty without components.

    Returns the records of the first and the shuffle, and those of the second.
    """
    if groups is None:
        for _ in range(2 + shuffle.LEVELS):
            yield []
        return [], []
    gathered = yield [
        Gather(
            signed=sources[place].key,
            chosen=digest,
            members=members,
            rows=sources[place].table,
            sketches=sources[place].sketches,
            base=bases[place],
            groups=groups.count,
            name=f"near gather {place:06}",
            size=sources[place].sketches.size,
        )
        for place, members, digest in groups.members
    ]
    owners = [place for place, *_ in groups.members]
    sketches = Runs(
        groups.count,
        tuple(
            Run(record.uri(SKETCHES), start, (place,), record.key)
            for place, record in zip(owners, gathered, strict=True)
            for start in record.read(Gathered).runs
        ),
        size=sum(groups.sizes),
    )
    shuffled = yield from abreast(
        shuffle.rounds("near sketches", sketches),
        shuffle.rounds("near edges", groups.edges),
        shuffle.rounds("near families", groups.families),
    )
    ranges = _ranges(sources)
    # A task may have another name than in an earlier run, with the same bytes.
    named = [[sources[place].task, sources[place].first] for place in owners]
    inputs = content_key(groups.key, ranges, [record.key for record in gathered], named)
    tasks, firsts = tuple(item.task for item in sources), tuple(item.first for item in sources)
    resolved = yield [
        Resolve(
            inputs=inputs,
            gathered=shuffled[0].runs(group),
            group=group,
            edges=shuffled[1].runs(group),
            families=shuffled[2].runs(group),
            settings=replace(given.settings, mode=_UNUSED.mode),
            fixed=fixed,
            longest_response=given.longest_response,
            tasks=tasks,
            firsts=firsts,
            ranges=ranges,
            name=f"near resolve {group:05}",
            size=size,
        )
        for group, size in enumerate(groups.sizes)
    ]
    return [*gathered, *(record for item in shuffled for record in item.records)], resolved


def _ranges(sources: Sequence[Source]) -> tuple[int, ...]:
    """Return the place of the first source of each range of them, and one past the last."""
    return (*range(0, len(sources), _SLICES), len(sources))


def _collected(
    resolved: Sequence[ShardRecord], bounds: list[list[int]], ranges: tuple[int, ...]
) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[Sequence[ShardRecord], list[list[int]]]]:
    """Yield the shards that bring together what groups found, if there are many; return records and their bounds."""
    sizes = np.array([record.file(DECISIONS).size for record in resolved], np.int64)
    bounds_of_files = shuffle.gathered(sizes, len(ranges) - 1)
    if not bounds_of_files:
        yield []
        return resolved, bounds
    records = yield [
        Collect(
            groups=tuple(record.key for record in resolved[start:stop]),
            parts=tuple((_whole(record, DECISIONS), _whole(record, TASKS)) for record in resolved[start:stop]),
            ranges=ranges,
            name=f"near findings {number:05}",
            size=int(sizes[start:stop].sum()),
        )
        for number, (start, stop) in enumerate(bounds_of_files)
    ]
    return records, [record.read(Collected).bounds for record in records]


def _whole(record: ShardRecord, path: str) -> Range:
    return Range(record.uri(path), 0, record.file(path).size)


def _findings_by_range(
    resolved: Sequence[ShardRecord], bounds: Sequence[list[int]]
) -> Iterator[tuple[int, list[tuple[ShardRecord, tuple[Range, Range]]]]]:
    """Yield for each range of slices with findings its number, and of each record with some where they are."""
    tasks = [_whole(record, TASKS) for record in resolved]
    for number in range(len(bounds[0]) - 1 if bounds else 0):
        some = []
        for record, firsts, names in zip(resolved, bounds, tasks, strict=True):
            start, stop = firsts[number : number + 2]
            if start < stop:
                width = DECISION.itemsize
                collected = Range(record.uri(DECISIONS), start * width, (stop - start) * width)
                some.append((record, (collected, names)))
        if some:
            yield number, some


def _by_source(sources: Sequence[Source], split: Sequence[ShardRecord]) -> list[list[tuple[str, Decided]]]:
    """Return for each source a digest and the place of the decisions on it."""
    parts: list[list[tuple[str, Decided]]] = [[] for _ in sources]
    for record in split:
        sizes = {file.path: file.size for file in record.files}
        tasks = Range(record.uri(TASKS), 0, sizes[TASKS])
        for place, first, count, digest in record.read(BySlice).slices:
            result = Range(record.uri(DECISIONS), first * DECISION.itemsize, count * DECISION.itemsize)
            parts[place].append((digest, Decided(result, tasks, sources[place].first)))
    return parts


def _retained(
    given: NearInput,
    sources: Sequence[Source],
    decided: Sequence[Sequence[tuple[str, Decided]]],
    old: Sequence[tuple[str, Sequence[Indexed]]],
    settings: dict[str, Any],
) -> Generator[list[Shard[Any]], list[ShardRecord], NewIndex | None]:
    """Yield round 6: the retained rows of this run's slices, if an index is wanted."""
    before = len(sources) - len(given.slices)
    wanted = range(before, len(sources)) if given.write_index else range(0)
    records = yield [
        Retain(
            source=sources[place],
            decisions=tuple(digest for digest, _ in decided[place]),
            decided=tuple(item.found for _, item in decided[place]),
            name=f"near index of {_name(given.slices[place - before])}",
            size=sources[place].sketches.size,
        )
        for place in wanted
    ]
    if not given.write_index:
        return None
    new = []
    for place, record in zip(wanted, records, strict=True):
        (file,) = record.files
        made, source = record.read(Retained), sources[place]
        item = Indexed(
            task=source.task,
            first=source.first,
            path=f"{split(file.digest)[1][:32]}.bin",
            size=file.size,
            digest=file.digest,
            rows=made.rows,
            keys=made.keys,
            sketches=made.sketches,
            partitions=source.partitions,
            runs=made.runs,
        )
        new.append((record, item))
    return NewIndex(settings, tuple((folder, tuple(slices)) for folder, slices in old), tuple(new))


def _tasks(
    slices: Sequence[NearSlice], sources: Sequence[Source], decided: Sequence[Sequence[tuple[str, Decided]]]
) -> dict[str, Decisions]:
    """Return where the decisions on each task of this run are."""
    parts: dict[str, list[tuple[str, Decided]]] = {item.task: [] for item in slices}
    for item, result in zip(slices, decided[len(sources) - len(slices) :], strict=True):
        parts[item.task] += result
    return {
        task: DecidedTask(
            content_key("near decisions", [[digest, part.first] for digest, part in result]),
            tuple(part for _, part in result),
        )
        for task, result in parts.items()
    }
