"""Requests, bytes, memory and CPU of curate by round, as the rows grow: docs/scale.md.

    python tests/bench/bench_shuffle.py FOLDER ROWS [WORDS]

Runs exact and near deduplication of generated rows (curate_rows.py) in this process, over a store that counts. Slices,
partitions, groups and blocks are a sixteenth of the shipped ones, so that 10^7 rows are cut as 1.6 x 10^8 are. With
WORDS texts are cut to so many words each. Prints JSON: of each kind of shard what it took.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pairmill.engine import runner, shuffle
from pairmill.formats.slices import Slicing
from pairmill.stages.curate import exact_files
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from pairmill.stages.curate.near import core
from tests.bench import curate_rows
from tests.support.counted_store import CountedStore, counted

SMALLER = 16
SLICE = 62_500 // SMALLER
SIZES = (
    *((core, name) for name in ("_KEYS", "_MOST_KEYS", "_GROUP", "_MOST_GROUP")),
    *((shuffle, name) for name in ("_BLOCK", "_FILE", "_CHUNK", "_PER_REQUEST", "_COPIED")),
    (exact_files, "_PARTITION_BYTES"),
)
SETTINGS = """
exact: {mode: drop}
near: {mode: drop}
heuristics: {mode: off}
decontaminate: {mode: off}
"""


def make(folder: Path, rows: int, words: int) -> None:
    """Write the rows as files of a slice each."""
    folder.mkdir(parents=True, exist_ok=True)
    made = curate_rows.Words()
    for number, first in enumerate(range(0, rows, SLICE)):
        table = curate_rows.block(made, first, min(SLICE, rows - first), rows)
        if words:
            for name in ("instruction", "response"):
                cut = pc.replace_substring_regex(table[name], rf"^((?:\S+\s+){{0,{words - 1}}}\S+).*$", r"\1")
                table = table.set_column(table.schema.get_field_index(name), name, cut)
        pq.write_table(table, folder / f"part-{number:06}.parquet", use_dictionary=["condition"])


def peak() -> int:
    """Bytes of this process since the last call."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) << 10  # type: ignore[index]


def cpu() -> float:
    """Seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(store: CountedStore) -> tuple[dict[str, dict[str, float]], Callable[..., Any]]:
    """What each kind of shard took, and a function that runs a round and notes it."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    inner = runner._run_round

    def now() -> dict[str, float]:
        return {
            "requests": store.requests.total(),
            "read": store.received,
            "written": store.sent,
            "cpu": cpu(),
            "seconds": time.monotonic(),
        }

    last = now()

    def run_round(job: Any, pool: Any, todo: Any) -> Any:
        nonlocal last
        peak()
        records = inner(job, pool, todo)
        kinds = {type(shard).__name__ for shard in todo.planned}
        if kinds:
            name, after = "+".join(sorted(kinds)), now()
            for key, value in after.items():
                found[name][key] += value - last[key]
            found[name]["shards"] += len(todo.planned)
            found[name]["memory"] = max(found[name]["memory"], peak())
            last = after
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
        return records

    return found, run_round


def main() -> None:
    """Run and print."""
    folder, rows, words = Path(sys.argv[1]), int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    source = folder / f"rows-{rows}-{words}"
    if not source.exists():
        make(source, rows, words)
    for module, name in SIZES:
        setattr(module, name, getattr(module, name) // SMALLER)
    # Slices times parts of as many rows are more by the square.
    shuffle._FEW //= SMALLER**2
    settings = folder / "curate.yaml"
    settings.write_text(SETTINGS)
    shutil.rmtree(folder / "store", ignore_errors=True)
    (folder / "store" / "bucket").mkdir(parents=True)
    with counted(folder / "store") as store:
        found, runner._run_round = measured(store)
        config = CurateConfig(rows=[str(source)], root="s3://bucket/root", workers=1, curate_config=str(settings))
        start, began = cpu(), time.monotonic()
        result = runner.run(Curate(), config)
        total = {
            "rows": rows,
            "cpu": cpu() - start,
            "seconds": time.monotonic() - began,
            "requests": dict(store.requests),
            "read": store.received,
            "written": store.sent,
            "kept": result.manifest.ledger.rows_out,
        }
    print(json.dumps({"total": total, "rounds": found}))
    shutil.rmtree(folder / "store", ignore_errors=True)


if __name__ == "__main__":
    assert Slicing
    main()
