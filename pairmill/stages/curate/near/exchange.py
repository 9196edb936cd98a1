"""Round 3 of very many pairs: components by an exchange of names between parts of the pairs and ranges of the rows.

    Scatter(pairs)  pairs by a hash of both rows, so that repetitions of a pair meet
    Unite(part)     distinct pairs, and the components that they make by themselves
    Agree(range)    of the names that parts ask for, one for each row
    Contract(part)  each row is called by that name from now on
    Finish          the components of the names that are left
    Allot(part)     pairs by group
    Enrol(range)    the members of groups, by slice

No shard reads all pairs, and none holds more than a part or a range. A part tells the range of each of its rows which
row of its component is first, in an order that is drawn for the level by a hash. The range answers each part with the
first of all that it was told, and the row goes by that name on the next level. So whatever the components look like,
chains and stars too, a level is expected to leave at most 3/4 of the names of a component, and always fewer than before
(randomised contraction: Bögeholz, Brand and Todor, In-database connected component analysis, ICDE 2020). A row that no
part has joined with another is ready. After a few levels, often after none, all that is left is small.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pairmill.engine import shuffle
from pairmill.engine.runs import Range, Run, Runs
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.stages.curate.near.components import EDGES, FAMILIES, MEMBERS, Candidates, Groups
from pairmill.stages.curate.near.parts import (
    ANSWERS,
    ASK,
    ASKS,
    LABELS,
    NAME,
    PAIRS,
    Agree,
    Allot,
    Contract,
    Enrol,
    Enrolled,
    Finish,
    Scatter,
    Starts,
    Unite,
    United,
)
from pairmill.stages.curate.near.records import EDGE, MEMBER

# Pairs of a part, with repetitions; some 80 bytes each. Rows of a range, 12 bytes each.
_PAIRS, _ROWS = 1 << 22, 1 << 24
# Names that one shard joins; some 40 bytes each.
_FEW = 1 << 23
# Bytes of pairs that are dealt together: the more, the fewer runs.
_SCATTERED = 256 << 20


def joined(given: Candidates) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], Groups]]:
    """Yield the rounds that deal the ends of pairs into groups; return their records, and the groups."""
    return (yield from _Exchange(given).rounds())


class _Exchange:
    """The rounds. Their number, and how pairs and rows are cut, follow from the pairs alone."""

    def __init__(self, given: Candidates) -> None:
        self._given = given
        self._parts = math.ceil(given.size / EDGE.itemsize / _PAIRS)
        self._slices = list(shuffle.cuts(np.diff(given.bases), _ROWS))
        self._firsts = tuple(given.bases[start] for start, _ in self._slices)
        # How pairs and rows are cut follows from the pairs, and from these. Records that count no names are older.
        self._inputs = f"{given.inputs} {_PAIRS} {_ROWS} {_FEW} names"
        self._records: list[ShardRecord] = []
        # Rows that have a pair, if ranges were asked for them.
        self._names = 0

    def rounds(self) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], Groups]]:
        united = yield from self._united()
        asks, answers, named = [self._asks(united)], list[shuffle.Shuffled](), united
        while sum(item.size for item in asks[-1]) > _FEW * ASK.itemsize:
            level = len(asks)
            answers.append((yield from self._answers(asks[-1], named, level - 1)))
            named = yield from self._run(
                Contract(
                    inputs=self._inputs,
                    level=level,
                    part=part,
                    asks=item,
                    answers=answers[-1].runs(part),
                    firsts=self._firsts,
                    name=f"near names {level} {part:05}",
                    size=item.size,
                )
                for part, item in enumerate(asks[-1])
            )
            asks.append(self._asks(named))
        size = sum(item.size for item in asks[-1])
        (last,) = yield from self._run(
            [Finish(self._inputs, len(answers), tuple(asks[-1]), name="near last names", size=size)]
        )
        return (yield from self._allotted(united, asks, answers, last))

    def _run(self, shards: Iterable[Shard[Any]]) -> Generator[list[Shard[Any]], list[ShardRecord], list[ShardRecord]]:
        records = yield list(shards)
        self._records += records
        return records

    def _shuffled(self, name: str, runs: Runs) -> Generator[list[Shard[Any]], list[ShardRecord], shuffle.Shuffled]:
        result = yield from shuffle.rounds(f"near {name}", runs)
        self._records += result.records
        return result

    def _united(self) -> Generator[list[Shard[Any]], list[ShardRecord], list[ShardRecord]]:
        given, parts = self._given, self._parts
        sizes = [edges.size + families.size for edges, families in zip(given.edges, given.families, strict=True)]
        scattered = yield from self._run(
            Scatter(
                inputs=self._inputs,
                number=number,
                parts=parts,
                edges=given.edges[start:stop],
                families=given.families[start:stop],
                name=f"near pairs {number:05}",
                size=sum(sizes[start:stop]),
            )
            for number, (start, stop) in enumerate(shuffle.cuts(np.array(sizes), _SCATTERED))
        )
        pairs = yield from self._shuffled("pairs", Runs(2 * parts, _runs(scattered, PAIRS), size=given.size))
        return (
            yield from self._run(
                Unite(
                    inputs=self._inputs,
                    part=part,
                    parts=parts,
                    pairs=(pairs.runs(part), pairs.runs(parts + part)),
                    firsts=self._firsts,
                    name=f"near part {part:05}",
                    size=given.size // parts,
                )
                for part in range(parts)
            )
        )

    def _asks(self, records: Sequence[ShardRecord]) -> list[Range]:
        """Return what each part asks for, without the table."""
        table = NAME.itemsize * (len(self._firsts) + 1)
        return [Range(record.uri(ASKS), table, record.read(United).names * ASK.itemsize) for record in records]

    def _answers(
        self, asks: Sequence[Range], records: Sequence[ShardRecord], level: int
    ) -> Generator[list[Shard[Any]], list[ShardRecord], shuffle.Shuffled]:
        size, stops = sum(item.size for item in asks), [*self._firsts[1:], self._given.bases[-1]]
        asking = [
            Run(item.uri, 0, (part,), record.key)
            for part, (item, record) in enumerate(zip(asks, records, strict=True))
            if item.size
        ]
        asked = yield from self._shuffled(f"asks {level}", Runs(len(stops), tuple(asking), size=size))
        answered = yield from self._run(
            Agree(
                inputs=self._inputs,
                level=level,
                number=number,
                first=first,
                stop=stop,
                parts=self._parts,
                asks=asked.runs(number),
                name=f"near range {level} {number:05}",
                size=size // len(stops),
            )
            for number, (first, stop) in enumerate(zip(self._firsts, stops, strict=True))
        )
        if not level:
            self._names = sum(record.read(Starts).names for record in answered)
        runs = _runs(answered, ANSWERS)
        return (yield from self._shuffled(f"answers {level}", Runs(self._parts, runs, size=size // 2)))

    def _allotted(
        self,
        united: Sequence[ShardRecord],
        asks: Sequence[Sequence[Range]],
        answers: Sequence[shuffle.Shuffled],
        last: ShardRecord,
    ) -> Generator[list[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], Groups]]:
        given = self._given
        rows = sum(item.size for item in asks[0]) // ASK.itemsize
        pairs = [record.read(United) for record in united]
        weight = given.sketches * (self._names or last.read(United).names) / given.bases[-1]
        weight += sum(item.edges + item.families for item in pairs) * EDGE.itemsize
        groups = math.ceil(weight / given.group_size)
        ends = list(accumulate((item.size // ASK.itemsize * NAME.itemsize for item in asks[-1]), initial=0))
        allotted = yield from self._run(
            Allot(
                inputs=self._inputs,
                part=part,
                groups=groups,
                pairs=(
                    Range(record.uri(EDGES), 0, item.edges * NAME.itemsize),
                    Range(record.uri(FAMILIES), 0, item.families * NAME.itemsize),
                ),
                asks=tuple(level[part] for level in asks),
                answers=tuple(level.runs(part) for level in answers),
                labels=Range(last.uri(LABELS), ends[part], ends[part + 1] - ends[part]),
                firsts=self._firsts,
                name=f"near groups {part:05}",
                size=asks[0][part].size,
            )
            for part, (record, item) in enumerate(zip(united, pairs, strict=True))
        )
        runs = [
            Run(record.uri(MEMBERS), 0, (part,), record.key)
            for part, (record, item) in enumerate(zip(allotted, asks[0], strict=True))
            if item.size
        ]
        members = yield from self._shuffled(
            "members", Runs(len(self._firsts), tuple(runs), size=rows * MEMBER.itemsize)
        )
        enrolled = yield from self._run(
            Enrol(
                inputs=self._inputs,
                number=number,
                groups=groups,
                place=start,
                bases=given.bases[start : stop + 1],
                members=members.runs(number),
                name=f"near members {number:05}",
                size=given.bases[stop] - given.bases[start],
            )
            for number, (start, stop) in enumerate(self._slices)
        )
        width = MEMBER.itemsize
        chosen = [
            (place, Range(record.uri(MEMBERS), first * width, count * width), digest)
            for record in enrolled
            for place, first, count, digest in record.read(Enrolled).slices
        ]
        edges, families = (
            Runs(
                groups,
                tuple(
                    Run(record.uri(path), start, (part,), f"{record.key} {path}")
                    for part, record in enumerate(allotted)
                    for start in getattr(record.read(Starts), name)
                ),
                size=sum(getattr(item, path.removesuffix(".bin")) for item in pairs) * EDGE.itemsize,
            )
            for path, name in ((EDGES, "runs"), (FAMILIES, "families"))
        )
        return self._records, Groups(allotted[0].key, [int(weight) // groups] * groups, chosen, edges, families)


def _runs(records: Sequence[ShardRecord], path: str) -> tuple[Run, ...]:
    """Return the runs of a file of each record, which belong to the record's number."""
    return tuple(
        Run(record.uri(path), start, (number,), record.key)
        for number, record in enumerate(records)
        for start in record.read(Starts).runs
    )
