"""The rounds of curate, planned for many slices without a row: each shard gets a record such as it would write.

    python -m tests.support.stages.curate_rounds SLICES ROWS_OF_A_SLICE GROUPS

Prints JSON: seconds, those of planning alone (the others make records), bytes of the process at its peak, and the
shards of each round by kind.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pairmill.engine.inputs import InputFile, Inputs
from pairmill.engine.manifest import File, Ledger
from pairmill.engine.rounds import rounds_of
from pairmill.engine.shuffle import MERGED, Merge, Merged
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.formats.slices import FileSlice
from pairmill.leaks.index import LeakPlan
from pairmill.rowstage import Rows, Slice, Task
from pairmill.rowstage.scorer import ATTRIBUTES, HISTOGRAMS, Score, ScoredSlice
from pairmill.rowstage.write import WriteRows, Written
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate, CuratePlan
from pairmill.stages.curate.decide import REMOVED, TALLY, Decide, Decided
from pairmill.stages.curate.exact import CollectEqual, FindEqual, KeysRead, ReadKeys
from pairmill.stages.curate.found import Split, SplitShard
from pairmill.stages.curate.near.buckets import Buckets, Paired
from pairmill.stages.curate.near.components import Grouped, Join
from pairmill.stages.curate.near.parts import (
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
from pairmill.stages.curate.near.records import DECISION
from pairmill.stages.curate.near.resolve import (
    DECISIONS,
    TASKS,
    BySlice,
    Collect,
    Collected,
    Gather,
    Gathered,
    Resolve,
    Resolved,
)
from pairmill.stages.curate.near.resolve import Split as NearSplit
from pairmill.stages.curate.near.sign import Sign, Signed
from pairmill.stages.curate.scores.heuristics import HEURISTICS
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.totals import TOTALS, AddUp

HOME = "s3://a-bucket-of-some-length/projects/a-project/curate/shards"
KEYS_OF_ROW, SKETCH, DUPLICATES = 33, 750, 0.2
_TASKS_OF_SPLIT = 256


def digest(text: str) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_of(slices: int, rows: int) -> tuple[CurateConfig, CuratePlan]:
    """The plan of as many tasks of one slice each, with the settings that are shipped."""
    tasks = []
    for number in range(slices):
        name = f"data_clustered__set{number % 50:02}__part-{number:06}.parquet"
        file = InputFile(f"s3://a-bucket-of-some-length/rows/{name}", name, rows * 400, digest(name), promised=True)
        part = FileSlice(name, file.uri, size=file.size, content=file.content)
        one = Slice(part, (file.digest, file.kind), number, False, name)
        tasks.append(Task(file, name.replace("__", "/"), {}, (one,)))
    settings = Settings.parse("")
    config = CurateConfig(rows=["s3://a-bucket-of-some-length/rows"], root=HOME.rsplit("/", 2)[0])
    vars(config)["settings"] = settings
    found = Inputs([task.file for task in tasks], [], slices * rows)
    plan = CuratePlan(
        inputs=[],
        build_context=list,
        rows=Rows(tasks, found),
        settings=settings,
        scorers=settings.own(HEURISTICS).scorers(""),
        leaks=LeakPlan(),
        index=None,
        write_index=False,
    )
    return config, plan


class Fakes:
    """Records of shards.

    Args:
        slices: how many.
        rows: of each.
        groups: in which near deduplication compares rows.

    Attributes:
        planning: seconds of processor time that the rounds took to yield their shards.
    """

    def __init__(self, slices: int, rows: int, groups: int) -> None:
        self.slices, self.rows, self.groups = slices, rows, groups
        self.planning = 0.0
        self._made: dict[type[Shard[Any]], Callable[[Any], tuple[Any, dict[str, int]]]] = {
            ReadKeys: self._keys,
            Score: lambda shard: (ScoredSlice(rows), {ATTRIBUTES: rows * 80, HISTOGRAMS: 9_000}),
            FindEqual: self._equal,
            CollectEqual: self._equal,
            SplitShard: self._split,
            Sign: self._signed,
            Merge: lambda shard: (Merged(1 << 29), {MERGED: 1 << 29}),
            Buckets: self._paired,
            Join: self._joined,
            Scatter: lambda shard: (Starts([0]), {"pairs.bin": shard.size}),
            Unite: self._united,
            Agree: lambda shard: (Starts([0], names=(shard.stop - shard.first) * 45 // 100), {"answers.bin": 8}),
            # One of two names is ready or another's on the next level.
            Contract: lambda shard: (United(shard.asks.size // 32), {"asks.bin": shard.asks.size // 2}),
            Finish: lambda shard: (United(shard.size // 32), {"labels.bin": shard.size // 2}),
            Allot: lambda shard: (
                Starts([0], [0]),
                {"edges.bin": 8, "families.bin": 8, "members.bin": shard.size // 2},
            ),
            Enrol: self._enrolled,
            Gather: lambda shard: (Gathered([0]), {"sketches.bin": self._members * SKETCH}),
            Resolve: self._resolved,
            Collect: self._collected,
            NearSplit: self._by_slice,
            Decide: self._decided,
            AddUp: lambda shard: ({}, {TOTALS: 90_000}),
            WriteRows: lambda shard: (Written(shard.file.task), {"rows.parquet": rows * 300}),
        }
        self._members = int(rows * 0.4)

    def record(self, shard: Shard[Any]) -> ShardRecord:
        """What a shard would have committed."""
        make: Callable[[Any], tuple[Any, dict[str, int]]] = self._made.get(type(shard), _nothing)
        data, files = make(shard)
        listed = [File(path, size, "") for path, size in files.items()]
        ledger = Ledger(self.rows, self.rows, self.rows) if isinstance(shard, WriteRows) else Ledger()
        # As from a file: no text is shared with another record.
        said = json.loads(json.dumps(data if isinstance(data, dict) else asdict(data)))
        return ShardRecord(shard.name, shard.key, HOME, ledger=ledger, files=listed, data=said)

    def _keys(self, shard: ReadKeys) -> tuple[KeysRead, dict[str, int]]:
        bits = (self.rows // 1024).bit_length()
        bounds = [self.rows * at >> bits for at in range((1 << bits) + 1)]
        kinds = shard.keying.kinds
        return KeysRead(self.rows, self.rows * 1_000, dict.fromkeys(kinds, bounds)), dict.fromkeys(
            kinds, self.rows * 32
        )

    def _equal(self, shard: FindEqual | CollectEqual) -> tuple[Any, dict[str, int]]:
        return {"bounds": [100 * at for at in range(len(shard.ranges))]}, {"found": 2_900 * len(shard.ranges)}

    def _split(self, shard: SplitShard) -> tuple[Split, dict[str, int]]:
        first = int(shard.name.split()[-1]) * _TASKS_OF_SPLIT
        some = range(first, min(first + _TASKS_OF_SPLIT, self.slices))
        names = [f"data_clustered__set{number % 50:02}__part-{number:06}.parquet" for number in some]
        files = {f"{at:05}": 30_000 for at in range(len(names))}
        data = {name: (digest(name), {"pair": digest(name)}, 0, 29_900, 100) for name in names}
        return Split({name: (f"{at:05}", data[name]) for at, name in enumerate(names)}), files

    def _signed(self, shard: Sign) -> tuple[Signed, dict[str, int]]:
        made = Signed(self.rows, self.rows * KEYS_OF_ROW, [0], self.rows * SKETCH)
        return made, {"keys.bin": made.keys * 12, "rows.bin": made.rows * 12, "sketches.bin": made.size}

    def _paired(self, shard: Buckets) -> tuple[Paired, dict[str, int]]:
        edges = int(shard.size / 12 / KEYS_OF_ROW * DUPLICATES * 20) or 1
        return Paired(edges, edges // 4), {"edges.bin": 16 * edges, "families.bin": 4 * edges}

    def _joined(self, shard: Join) -> tuple[Grouped, dict[str, int]]:
        many = self._members
        slices = [(at, at * many, many, digest(str(at))[:32]) for at in range(self.slices)]
        blocks = sum(one.size for one in shard.edges) // (16 << 20) + len(shard.edges)
        runs = [at * 16 << 20 for at in range(blocks)]
        sizes = [many * self.slices * SKETCH // self.groups] * self.groups
        return Grouped(self.groups, sizes, slices, runs, runs, many * self.slices, self.slices, 1000), {
            "members.bin": 8,
        }

    def _united(self, shard: Unite) -> tuple[United, dict[str, int]]:
        # A pair comes ten times, and a row has two pairs.
        edges, families = (shard.size // 16 * many // 50 for many in (4, 1))
        names = edges + families
        sizes = {"asks.bin": 16 * names, "edges.bin": 8 * edges, "families.bin": 8 * families}
        return United(names, edges, families), sizes

    def _enrolled(self, shard: Enrol) -> tuple[Enrolled, dict[str, int]]:
        many = self._members
        places = enumerate(range(shard.place, shard.place + len(shard.bases) - 1))
        slices = [(place, at * many, many, digest(str(place))[:32]) for at, place in places]
        return Enrolled(slices), {"members.bin": 8 * many * len(slices)}

    def _resolved(self, shard: Resolve) -> tuple[Resolved, dict[str, int]]:
        # A component has rows of any slices, so each group finds something in each range of them.
        many = max(len(shard.ranges), int(self.rows * DUPLICATES) * self.slices // self.groups)
        bounds = [many * at // (len(shard.ranges) - 1) for at in range(len(shard.ranges))]
        return Resolved(bounds, 2 * many, many, 3 * many, 0, 2 * many), {
            DECISIONS: many * DECISION.itemsize,
            TASKS: 5_000,
        }

    def _collected(self, shard: Collect) -> tuple[Collected, dict[str, int]]:
        size = sum(decisions.size for decisions, _ in shard.parts)
        ranges = len(shard.ranges) - 1
        bounds = [size // DECISION.itemsize * at // ranges for at in range(ranges + 1)]
        return Collected(bounds), {DECISIONS: size, TASKS: 500_000}

    def _by_slice(self, shard: NearSplit) -> tuple[BySlice, dict[str, int]]:
        first = int(shard.name.split()[-1]) * _TASKS_OF_SPLIT
        each = int(self.rows * DUPLICATES)
        some = enumerate(range(first, min(first + _TASKS_OF_SPLIT, self.slices)))
        slices = [(place, at * each, each, digest(f"split {place}")[:32]) for at, place in some]
        return BySlice(slices), {DECISIONS: each * len(slices) * DECISION.itemsize, TASKS: 500_000}

    def _decided(self, shard: Decide) -> tuple[Decided, dict[str, int]]:
        gone = int(shard.rows * DUPLICATES)
        dropped = {"dup_near": gone}
        some = [(shard.rows, gone, digest(shard.task), dropped)]
        found = Decided(shard.rows, shard.rows - gone, dropped, {"near": "near.parquet"}, some)
        return found, {REMOVED: gone * 4, TALLY: 9_000, "near.parquet": gone * 12}


def _nothing(shard: Shard[Any]) -> tuple[Any, dict[str, int]]:
    return {}, {}


def peak() -> int:
    """Bytes of this process at its peak."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]


def planned(fakes: Fakes, say: Callable[[str], None]) -> list[dict[str, int]]:
    """The shards of each round, by kind."""
    config, plan = plan_of(fakes.slices, fakes.rows)
    rounds = rounds_of(Curate(), config, plan)
    found: list[dict[str, int]] = []
    kept: list[Sequence[ShardRecord]] = []
    records: list[ShardRecord] = []
    started = False
    while True:
        start = time.process_time()
        try:
            shards = rounds.send(records) if started else next(rounds)
        except StopIteration:
            return found
        started = True
        took = time.process_time() - start
        fakes.planning += took
        assert len({shard.name for shard in shards}) == len(shards)
        found.append(dict(Counter(type(shard).__name__ for shard in shards)))
        records = [fakes.record(shard) for shard in shards]
        del shards
        kept.append(records)  # the runner keeps all records until the stage ends
        say(f"{found[-1]}: {took:.1f} s, {peak() >> 20} MiB")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Plan, and print what it took."""
    fakes = Fakes(*map(int, sys.argv[1:4]))
    start = time.process_time()
    found = planned(fakes, _say)
    took = time.process_time() - start
    print(json.dumps({"seconds": took, "planning": fakes.planning, "peak": peak(), "rounds": found}))


if __name__ == "__main__":
    main()
