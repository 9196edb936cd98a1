"""Requests, bytes, memory and CPU of curate by round, as the rows grow: docs/scale.md.

    python -m tests.bench.bench_shuffle FOLDER ROWS [WORDS [PROCESSES [SMALLER]]]

Runs exact and near deduplication of generated rows (curate_rows.py) over a store that counts. With WORDS texts are cut
to so many words each. Slices, partitions, groups and blocks are those that are shipped divided by SMALLER: with 16, the
default, 10^7 rows are cut as 1.6 × 10^8 are. A larger SMALLER replaces rows: with 1600, 10^5 are cut as 10^7 are with
16, and what a shard may hold at most is a hundredth too. Prints JSON: what each kind of shard took. A process has been
forked from the one that plans, so its memory has that one's too.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairmill.engine import runner, shuffle
from pairmill.engine.shards import run_shard
from pairmill.engine.shuffle import Merge
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.stages.curate import exact_files
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from pairmill.stages.curate.near import components, core, exchange
from pairmill.stages.curate.near.buckets import Buckets
from pairmill.stages.curate.near.resolve import Gather
from tests.bench import curate_rows
from tests.support.objectstores.counted import CountedStore, counted

ROWS_OF_SLICE, ROWS_OF_BLOCK = 62_500, 8_192
SIZES = (
    *((core, name) for name in ("_KEYS", "_MOST_KEYS", "_GROUP", "_MOST_GROUP")),
    *((shuffle, name) for name in ("_BLOCK", "_FILE", "_GATHERED", "_CHUNK", "_PER_REQUEST", "_COPIED")),
    *((exact_files, name) for name in ("_PARTITION_BYTES", "_DEALT_BYTES", "_LEAST_FILE")),
)
HELD = (
    *((components, name) for name in ("_FEW_ROWS", "_FEW_ENDS", "_FEW_PAIRS", "_HELD")),
    *((exchange, name) for name in ("_PAIRS", "_ROWS", "_FEW", "_SCATTERED")),
)
# Not near deduplication, nor merging for it.
OTHERS = ("ReadKeys", "DealKeys", "FindEqual", "SplitShard", "Decide", "WriteRows", "AddUp", "Summarise", "planning,")
SETTINGS = """
exact: {mode: drop}
near: {mode: drop}
heuristics: {mode: off}
decontaminate: {mode: off}
"""


def make(folder: Path, rows: int, words: int, processes: int, smaller: int) -> None:
    """Write the rows as files of a slice each."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = curate_rows.Words()
    if words:  # what would be cut off need not be made
        vocabulary.lengths = np.minimum(vocabulary.lengths, 2 * words).astype(np.uint16)
    each = ROWS_OF_SLICE // smaller
    Job.context = vocabulary, folder, rows, words, each
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as executor:
        list(executor.map(make_file, range(-(-rows // each)), chunksize=8))


def make_file(number: int) -> None:
    """Write one of the files."""
    vocabulary, folder, rows, words, each = Job.context
    path, first = folder / f"part-{number:06}.parquet", number * each
    if path.exists():
        return
    # Some at a time: arrays of all are larger than a cache, and take three times as long.
    stop = min(first + each, rows)
    starts = range(first, stop, ROWS_OF_BLOCK)
    table = pa.concat_tables(
        curate_rows.block(vocabulary, start, min(ROWS_OF_BLOCK, stop - start), rows) for start in starts
    )
    if words:
        for name in ("instruction", "response"):
            cut = pc.binary_join(pc.list_slice(pc.split_pattern(table[name], " ", max_splits=words), 0, words), " ")
            table = table.set_column(table.schema.get_field_index(name), name, cut)
    pq.write_table(table, path.with_suffix(".part"), use_dictionary=["condition"])
    path.with_suffix(".part").rename(path)


def peak() -> int:
    """Bytes of this process since the last call."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) << 10  # type: ignore[index]


class Job:
    """What the processes of a round were forked with."""

    store: CountedStore
    cache: str
    context: Any
    shards: Sequence[Shard[Any]]  # not sent one by one: those of a process share what they share


def work(place: int) -> tuple[ShardRecord, dict[str, float]]:
    """Run a shard in a process of the pool; return what it took."""
    store, shard = Job.store, Job.shards[place]
    peak()
    before, start = cost(store), time.monotonic()
    record = run_shard("curate", shard, Job.context, Job.cache)()
    took = {name: value - before[name] for name, value in cost(store).items()}
    return record, {**took, "seconds": time.monotonic() - start, "memory": peak()}


def cost(store: CountedStore) -> dict[str, float]:
    """What this process has taken so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = {"cpu": used.ru_utime + used.ru_stime, "system": used.ru_stime}
    return {"requests": store.requests.total(), "read": store.received, "written": store.sent, **seconds}


class Rounds:
    """Runs rounds in processes, and adds up what each kind of shard took.

    Attributes:
        took: by kind of shard: requests, bytes read and written, CPU, the most memory of a process, shards.
    """

    def __init__(self, processes: int, folder: Path) -> None:
        self.took: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._processes, self._folder = processes, folder

    def run(self, job: Any, pool: object, todo: Any, see: Callable[[ShardRecord], None]) -> list[ShardRecord]:
        """Run what is left of a round: in place of ``runner._run_round``."""
        Job.cache, Job.context, Job.shards = job.cache, job.plan.context, todo.left
        with ProcessPoolExecutor(self._processes, multiprocessing.get_context("fork")) as executor:
            results = executor.map(work, range(len(todo.left)), chunksize=4)
            for shard, (record, took) in zip(todo.left, results, strict=True):
                todo.done[shard.name] = record
                see(record)
                kind = type(shard).__name__
                of_kind = self.took[f"{kind} {shard.name.rsplit(' ', 3)[0]}" if kind == "Merge" else kind]
                for name, value in took.items():
                    of_kind[name] = max(of_kind[name], value) if name == "memory" else of_kind[name] + value
                of_kind["shards"] += 1
        self._forget(todo.planned)
        print({name: dict(took) for name, took in self.took.items()}, file=sys.stderr, flush=True)
        records: list[ShardRecord] = todo.records()
        return records

    def _forget(self, shards: Sequence[Shard[Any]]) -> None:
        """Delete what no later round reads: the disk of a bench is small."""
        dead = {run.uri for shard in shards if isinstance(shard, Merge) for run in shard.runs.runs}
        dead |= {run.uri for shard in shards if isinstance(shard, Buckets) for run in shard.keys.runs}
        dead |= {shard.sketches.uri for shard in shards if isinstance(shard, Gather)}
        for uri in dead:
            (self._folder / uri.removeprefix("s3://")).unlink(missing_ok=True)


def main() -> None:
    """Run and print."""
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    words, processes, smaller = map(int, [*sys.argv[3:], *("0", "1", "16")[len(sys.argv) - 3 :]])
    source = folder / f"rows-{rows}-{words}-{smaller}"
    make(source, rows, words, processes, smaller)
    for module, name in SIZES:
        setattr(module, name, getattr(module, name) // smaller)
    for module, name in HELD:
        setattr(module, name, getattr(module, name) // max(1, smaller // 16))
    # Slices times parts of as many rows are more by the square.
    shuffle._FEW //= min(smaller, 16) ** 2
    settings = folder / "curate.yaml"
    settings.write_text(SETTINGS)
    shutil.rmtree(folder / "store", ignore_errors=True)
    (folder / "store" / "bucket").mkdir(parents=True)
    with counted(folder / "store") as store:
        Job.store, rounds = store, Rounds(processes, folder / "store")
        runner._run_round = rounds.run
        config = CurateConfig(rows=[str(source)], root="s3://bucket/root", workers=1, curate_config=str(settings))
        start = cost(store)
        result = runner.run(Curate(), config)
        took = {name: value - start[name] for name, value in cost(store).items()}
        rounds.took["planning, look-ups, end"] = {**took, "memory": peak()}
    every = {name: sum(took[name] for took in rounds.took.values()) for name in start}
    near = [took for name, took in rounds.took.items() if name.split()[0] not in OTHERS]
    total = {
        **every,
        "rows": rows,
        "kept": result.manifest.ledger.rows_out,
        "requests a row": every["requests"] / rows,
        "near rows per CPU second": rows / sum(took["cpu"] for took in near),
        "memory": max(took["memory"] for took in rounds.took.values()),
    }
    print(json.dumps({"total": total, "rounds": rounds.took}, indent=1))
    shutil.rmtree(folder / "store", ignore_errors=True)


if __name__ == "__main__":
    main()
