"""The loader against HRM-Text's and KempnerForge's methods (peer_loader.py): batches, start, memory, packing, windows.

400,000 rows of lognormal length, 118 million tokens. The peer is one process, asked in turn with ours; pages of the
files are mapped in both before anything is measured.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, NamedTuple, Self

import measure
import numpy as np
import peer_loader
from measure import ratio, spread
from peer_loader import anonymous, timed

from pairmill._native import pack_rows
from pairmill.loader import Loader, RowPlan
from pairmill.loader.folder import Epoch
from pairmill.loader.row_plan import Balance
from pairmill.loader.windows import Windows
from tests.support.data import samples
from tests.support.peers.hrm import global_batches

ROWS, MANY, SLOTS, SEQ_LEN, WINDOWS = 400_000, 10_000_000, 24_576, 2048, 8
ROUNDS, SECONDS = 7, 0.3
PEER = [str(measure.ROOT / "build/bench/bin/python"), str(Path(__file__).with_name("peer_loader.py"))]
FIRST = """
import json, sys, time
from pairmill.loader import Loader, RowPlan
folder, ranks, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = time.perf_counter()
batches = iter(Loader(RowPlan(folder), batch_tokens=ranks * slots, ranks=ranks))
next(batches)
print(json.dumps([time.perf_counter() - start, time.process_time()]), flush=True)
for line in sys.stdin:
    for _ in range(100):
        next(batches)
    print(flush=True)
"""

Timed = tuple[int, float, float]


class Side:
    """A process that has made its first batch and waits.

    Attributes:
        seconds: from its start to the first batch.
        first: of these, what reading the plan and making the batch took, compiling included.
        processor: seconds of processor since its start.
    """

    def __init__(self, command: list[str], folder: Path, ranks: int = 8) -> None:
        arguments = [*command, str(folder), str(ranks), str(SLOTS)]
        start = time.perf_counter()
        self._process = subprocess.Popen(
            arguments, cwd=measure.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        said = self._read()
        self.seconds = time.perf_counter() - start
        self.first, self.processor = json.loads(said)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a side of the loader's benchmark ended; see above")
        return line

    def ask(self, *question: object) -> Timed:
        """What the peer answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        count, wall, processor = json.loads(self._read())
        return count, wall, processor

    def memory(self) -> float:
        """The most MiB besides pages of files, from now until 100 more batches are made."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        most = 0.0
        while not select([self._process.stdout], [], [], 0.002)[0]:
            most = max(most, anonymous(self._process.pid))
        self._read()
        return max(most, anonymous(self._process.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


OURS = [sys.executable, "-c", FIRST]


class Rates(NamedTuple):
    """What one side did in each round, a second of wall and a second of processor."""

    wall: list[float]
    processor: list[float]


def compare(sides: dict[str, Callable[[], Timed]], unit: float = 1) -> dict[str, Rates]:
    """Let the sides take turns, after one turn that does not count."""
    found = {name: Rates([], []) for name in sides}
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            count, wall, processor = side()
            if turn:
                found[name].wall.append(count * unit / wall)
                found[name].processor.append(count * unit / processor)
    return found


def cells(found: dict[str, Rates]) -> list[tuple[str, ...]]:
    """Rows of a table, the last side being what the others are compared with."""
    *_, peer = found.values()
    return [
        (
            name,
            spread(rates.wall, ",.0f"),
            "" if rates is peer else ratio(rates.wall, peer.wall),
            f"{statistics.median(rates.processor):,.0f}",
            "" if rates is peer else ratio(rates.processor, peer.processor),
        )
        for name, rates in found.items()
    ]


COLUMNS = "a second (from to)|times the peer|a second of processor|times the peer"


def made(plan: RowPlan, ranks: int, threads: int) -> Callable[[], Timed]:
    """Batches of a rank."""

    def batches() -> Iterator[object]:
        with Loader(plan, batch_tokens=ranks * SLOTS, ranks=ranks, threads=threads) as loader:
            yield from loader

    return lambda: timed(batches, SECONDS)


def allocated(folder: Path, ranks: int, balance: Balance) -> Callable[[], Timed]:
    """Global batches, decided and not made."""
    index = Epoch(folder / "epoch_0").index

    def allocations() -> Iterator[object]:
        start = 0
        while len(window := index.window(start, ranks * SLOTS)):
            count, *_ = made = pack_rows(window, ranks, SLOTS, causal=True, balance=balance)
            start += count
            yield made

    return lambda: timed(allocations, SECONDS)


def bench_batches(folder: Path, peer: Side) -> None:
    """Batches and allocations a second."""
    plan = RowPlan(folder)
    rows = []
    for ranks in (8, 1, 64):
        sides = {f"n = {ranks}, threads={threads}": made(plan, ranks, threads) for threads in (0, 1)}
        sides[f"n = {ranks}, HRM-Text's method"] = lambda ranks=ranks: peer.ask("batches", ranks, SLOTS, SECONDS)
        rows += cells(compare(sides))
    measure.table(f"batches of one rank, {SLOTS:,} slots each, n ranks, median of {ROUNDS}", f"|{COLUMNS}", rows)
    rows = []
    for ranks in (64, 8):
        sides = {
            f"n = {ranks}, {balance}": allocated(folder, ranks, balance)  # type: ignore[arg-type]
            for balance in ("lpt", "quadratic", "quadratic_work")
        }
        sides[f"n = {ranks}, HRM-Text's method"] = lambda ranks=ranks: peer.ask("allocations", ranks, SLOTS, SECONDS)
        rows += cells(compare(sides))
    measure.table(f"allocations of n ranks, median of {ROUNDS}", f"|{COLUMNS}", rows)


def bench_start(folder: Path) -> None:
    """From the start of a process to its first batch, and its memory; of a folder of many rows, which is removed."""
    memory = Path(tempfile.mkdtemp(prefix="pairmill-bench-", dir="/dev/shm"))
    rows = []
    try:
        for path in (folder, samples.overlapping(memory / "many", MANY)):
            count = Epoch(path / "epoch_0").rows
            sides: dict[str, list[Side]] = {"pairmill": [], "HRM-Text's method": []}
            peaks: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(3):
                for (name, started), command in zip(sides.items(), (OURS, PEER), strict=True):
                    with Side(command, path) as side:
                        started.append(side)
                        peaks[name].append(side.memory())
            rows += [
                (
                    f"{name}, {count:,} rows",
                    spread([side.seconds for side in started], ".2f"),
                    f"{statistics.median(side.processor for side in started):.2f}",
                    f"{statistics.median(side.first for side in started):.2f}",
                    spread(peaks[name], ".0f"),
                )
                for name, started in sides.items()
            ]
    finally:
        shutil.rmtree(memory)
    measure.table(
        "start of a process to its first batch, n = 8 (the folders have manifests), median of 3; memory while it makes "
        "batches",
        "|seconds (from to)|of processor|of these plan, compiler and first batch|MiB besides pages of files",
        rows,
    )


def shares(epoch: Epoch, ranks: int, balance: Balance) -> tuple[float, list[float], list[float]]:
    """How full the slots are, and of each batch the heaviest rank by the mean: by length², by attention's work."""
    used, slots, squares, works = 0, 0, [], []
    for _, window, _ in global_batches(epoch, SLOTS, ranks, drop_last=True):
        _, places, ends = pack_rows(window, ranks, SLOTS, causal=True, balance=balance)
        length, square, work = samples.costs(window[places, 2], window[places, 4])
        used, slots = used + int(length.sum()), slots + ranks * SLOTS
        for costs, into in ((square, squares), (work, works)):
            sums = np.add.reduceat(costs, ends[:-1])
            into.append(float(sums.max() / sums.mean()))
    return used / slots, squares, works


def bench_packing(folder: Path) -> None:
    """Print how full and how even batches are."""
    balances: tuple[Balance, ...] = ("lpt", "quadratic", "quadratic_work")
    for share in ((0.25, 0.75), (0.1, 0.9)):
        path = samples.sampled(folder / f"share{share[0]}", [samples.lognormal(ROWS, share=share).tolist()])
        epoch = Epoch(path / "epoch_0")
        rows = []
        for ranks in (8, 64):
            for balance in balances:
                full, squares, works = shares(epoch, ranks, balance)
                means = [f"{statistics.mean(values):.3f} ({max(values):.3f})" for values in (squares, works)]
                rows.append((f"n = {ranks}, {balance}", f"{full:.2%}", *means))
        shutil.rmtree(path)
        measure.table(
            f"packing, instructions of {share[0]:.0%} to {share[1]:.0%} of a row: heaviest rank by the mean of ranks, "
            "mean of batches (worst batch)",
            "|slots used|sum of length²|sum of attention's work",
            rows,
        )


def bench_windows(folder: Path, peer: Side) -> None:
    """Tokens a second of windows of a flat file."""
    rows = []
    for what, eos_id in (("plain", None), ("packed", peer_loader.EOS)):
        windows = Windows.of_files(folder, pattern="tokens.npy", seq_len=SEQ_LEN, eos_id=eos_id)

        def filled(windows: Windows = windows) -> Iterator[Any]:
            for first in range(0, len(windows) - WINDOWS, WINDOWS):
                out = windows.empty(WINDOWS)
                windows.fill(np.arange(first, first + WINDOWS), out)
                yield out

        sides: dict[str, Callable[[], Timed]] = {
            what: lambda filled=filled: timed(filled, SECONDS),
            f"{what}, NumPy": lambda what=what: peer.ask(what, WINDOWS, SEQ_LEN, SECONDS),
        }
        rows += cells(compare(sides, WINDOWS * SEQ_LEN / 1e6))
    measure.table(
        f"windows of {SEQ_LEN:,} tokens, {WINDOWS} at a time, millions of tokens, median of {ROUNDS}",
        f"|{COLUMNS}",
        rows,
    )


def bench() -> None:
    """Print the tables."""
    memory = Path(tempfile.mkdtemp(prefix="pairmill-bench-", dir="/dev/shm"))
    try:
        lengths = samples.lognormal(ROWS)
        data = samples.recorded(samples.sampled(memory / "data", [lengths.tolist()], ids=300))
        inputs = int(lengths.sum()) - ROWS
        print(f"loader: {ROWS:,} rows, {inputs:,} inputs, {os.cpu_count()} cores, Python {platform.python_version()}\n")
        with Side(PEER, data) as peer:
            bench_batches(data, peer)
            bench_windows(data, peer)
        bench_packing(memory)
        bench_start(data)
    finally:
        shutil.rmtree(memory, ignore_errors=True)


if __name__ == "__main__":
    bench()
