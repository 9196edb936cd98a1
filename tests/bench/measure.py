"""What the benchmarks share: the corpus, one core, processes with their peak memory, medians.

Machines are noisy: the sides take turns, medians and extremes are printed, and a ratio is that of medians.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
TEXTS = ("instruction", "response")


def corpus(folder: Path) -> Path:
    """A folder of row files of about 45 MB of text: ``$PAIRMILL_SHARED/data/corpus``, or else generated ones."""
    shared = (ROOT / os.environ.get("PAIRMILL_SHARED", "../shared")).resolve() / "data" / "corpus"
    if shared.is_dir():
        print(f"corpus: {len(list(shared.glob('*.parquet')))} files of rows\n")
        return shared
    print("corpus: generated (PAIRMILL_SHARED is not there); figures are not those of the README\n")
    sys.path.insert(0, str(ROOT / "examples"))
    from raw.words import word_problem

    rng = random.Random(0)
    questions, answers = zip(*(word_problem(rng) for _ in range(120_000)), strict=True)
    table = pa.table({"condition": ["direct"] * len(questions), "instruction": questions, "response": answers})
    made = folder / "corpus"
    made.mkdir()
    for part in range(4):
        pq.write_table(table.slice(part * 30_000, 30_000), made / f"part-{part}.parquet", row_group_size=10_000)
    return made


def texts(files: list[Path]) -> pa.Array:
    """Instructions and responses of row files, as one array."""
    table = pa.concat_tables(pq.read_table(path, columns=list(TEXTS)) for path in files)
    columns = [column.cast(pa.large_string()) for column in table.columns]
    return pa.concat_arrays([chunk for column in columns for chunk in column.chunks])


def megabytes(strings: pa.Array) -> float:
    """Bytes of UTF-8, in millions."""
    return float(pc.sum(pc.binary_length(strings)).as_py() / 1e6)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and those that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [max(before)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Run(NamedTuple):
    """A process that has ended well: wall time, peak resident MiB, standard output, CPU seconds with its children's."""

    seconds: float
    peak: float
    out: str
    cpu: float


# A small process stands between: what a process counts as its peak begins with that of the one which started it.
_BETWEEN = """
import resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.call(sys.argv[1:])
print()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - start, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def run(command: list[str]) -> Run:
    """Run a program from the repository to its end, on one thread unless it starts more itself."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PAIRMILL_LOG": "json"}
    between = [sys.executable, "-S", "-c", _BETWEEN, *command]
    done = subprocess.run(between, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr}")
    out, _, said = done.stdout.rstrip().rpartition("\n")
    seconds, peak, cpu = map(float, said.split())
    return Run(seconds, peak, out.strip(), cpu)


def stage(name: str, *arguments: str) -> Run:
    """Run a stage as its users do; ``out`` is the folder that it made."""
    return run([sys.executable, "-m", "pairmill", name, *arguments])


def spread(values: list[float], form: str = ".1f") -> str:
    """The median, and from where to where."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratio(one: list[float], other: list[float]) -> str:
    """How many times the median of one is that of the other."""
    return f"{statistics.median(one) / statistics.median(other):.2f}x"


def table(title: str, columns: str, rows: list[tuple[str, ...]]) -> None:
    """Print a table as the README has them; ``columns`` are joined by bars."""
    heads = columns.split("|")
    print(f"{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)
