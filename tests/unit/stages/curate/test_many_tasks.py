"""Rounds of very many tasks: planning them is linear, and takes neither long nor much memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pairmill.engine.inputs import InputFile, Inputs
from pairmill.engine.manifest import File, Ledger
from pairmill.engine.rounds import rounds_of
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.formats.slices import FileSlice
from pairmill.leaks.index import LeakPlan
from pairmill.rowstage import Rows, Slice, Task
from pairmill.rowstage.write import WriteRows, Written
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate, CuratePlan
from pairmill.stages.curate.decide import TALLY, Decide, Decided
from pairmill.stages.curate.exact import FindEqual, KeysRead, ReadKeys
from pairmill.stages.curate.found import Split, SplitShard
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.totals import TOTALS
from tests.support.helpers import PATIENCE, REPOSITORY

TASKS = int(os.environ.get("PAIRMILL_CURATE_TASKS", "5000"))
"""`make test-long` plans twenty times as many."""


def plan(settings: Settings) -> CuratePlan:
    """Of tasks that nobody reads."""
    tasks = []
    for number in range(TASKS):
        name = f"set{number % 50}__{number:06}.parquet"
        file = InputFile(f"/rows/{name}", name, 1 << 20, f"{number:064x}")
        part = FileSlice(name, file.uri, size=file.size)
        tasks.append(Task(file, name, {}, (Slice(part, (file.digest, "parquet"), number, False, name),)))
    return CuratePlan(
        inputs=[],
        build_context=list,
        rows=Rows(tasks, Inputs([], [], None)),
        settings=settings,
        scorers=[],
        leaks=LeakPlan(),
        index=None,
        write_index=False,
    )


def record_of(shard: Shard[Any]) -> ShardRecord:
    """What a shard would have made of a thousand rows."""
    files = [File(path, 100, shard.key) for path in ("found", TALLY, TOTALS)]
    data: dict[str, Any] = {}
    if isinstance(shard, ReadKeys):
        data = vars(KeysRead(1000, 1 << 20, {key: [0, 1000] for key in shard.keying.kinds}))
    elif isinstance(shard, FindEqual):
        data = {"bounds": [10 * at for at in range(len(shard.ranges))]}
    elif isinstance(shard, SplitShard):
        data = vars(Split({f"set{at}__{at:06}.parquet": ("00000", ("0" * 64, {}, 0, 99, 1)) for at in range(256)}))
    elif isinstance(shard, Decide):
        data = vars(Decided(1000, 990, slices=[(1000, 10, "0" * 64, {"dup_exact": 10})]))
    elif isinstance(shard, WriteRows):
        data = vars(Written(shard.file.task))
    return ShardRecord(shard.name, shard.key, "/cache", ledger=Ledger(), files=files, data=data)


def main() -> None:
    """Plan all rounds; print the shards of each, seconds of processor time and the KiB of memory that they add."""
    before = resident("VmRSS")
    config = CurateConfig(rows=["/rows"], root="/root", profile="pairmill")
    start = time.process_time()
    rounds = rounds_of(Curate(), config, plan(Settings.parse("near: off\nheuristics: off\n")))
    counts = []
    shards = next(rounds)
    try:
        while True:
            counts.append(len(shards))
            assert len({shard.key for shard in shards}) == len(shards)
            # What shards leave is made here in their place: in a run, by its workers.
            begun = time.process_time()
            records = [record_of(shard) for shard in shards]
            start += time.process_time() - begun
            shards = rounds.send(records)
    except StopIteration:
        pass
    took = time.process_time() - start
    print(json.dumps([counts, took, resident("VmHWM") - before]))


def resident(name: str) -> int:
    """KiB of this process by a field of the kernel; not ru_maxrss, which counts the process that it was forked from."""
    kib = re.search(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())
    assert kib is not None
    return int(kib[1])


def test_very_many_tasks_are_planned_in_bounded_time_and_memory() -> None:
    # In a process of its own: the peak is that of all that a process ever did.
    made = subprocess.run(
        [sys.executable, "-m", __name__], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    counts, took, added = json.loads(made.stdout)
    found, decided, written, _ = counts[4], *counts[-3:]
    groups = -(-TASKS // 256)
    assert (counts[0], decided, written) == (TASKS, TASKS, TASKS + groups)
    assert found == groups
    assert counts[-1] == 1
    # For 100,000 tasks: a minute, and less than a gigabyte.
    assert took < TASKS * 60 / 100_000
    # Beside the interpreter and what it imports.
    assert added < TASKS * (1 << 20) / 100_000, counts


if __name__ == "__main__":
    main()
