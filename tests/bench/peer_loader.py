"""HRM-Text's loader and KempnerForge's windows after their descriptions: the peers of pairmill.loader.

    python peer_loader.py FOLDER RANKS SLOTS

Allocation is compiled by numba, as the original's is; a batch is gathered row by row. Left out, to its advantage:
torch, and the worker process that batches come from. The first batch is made at once and its times are printed. Then a
line of JSON ``["batches", ranks, slots, seconds]``, ``["allocations", …]``, ``["plain", windows, slots, seconds]`` or
``["packed", …]`` is answered by a line ``[how many, seconds, seconds of processor]``, and an empty one by an empty one
once 100 more batches are made.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INDEX = ("inst_start", "inst_len", "resp_start", "resp_len")
WARM = 3
EOS = 1


def timed(make: Callable[[], Iterator[object]], seconds: float) -> tuple[int, float, float]:
    """Take what an iterator gives, from its beginning again at its end; how many, and seconds of wall and processor.

    The first few of each round are not counted.
    """
    count, wall, processor = 0, 0.0, 0.0
    while wall < seconds:
        things = make()
        for _ in range(WARM):
            next(things)
        start, spent = time.perf_counter(), time.process_time()
        for count, _ in enumerate(things, count + 1):  # noqa: B007, B020
            if wall + time.perf_counter() - start >= seconds:
                break
        wall += time.perf_counter() - start
        processor += time.process_time() - spent
        del things
    return count, wall, processor


def anonymous(pid: int | str = "self") -> float:
    """MiB of a process's memory that are no pages of files or of a tmpfs."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


class Loader:
    """The first rank's batches of epoch 0."""

    def __init__(self, folder: Path) -> None:
        self.tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        self.index = [np.load(folder / "epoch_0" / f"{name}.npy", mmap_mode="r") for name in INDEX]
        self.lengths = self.index[1].astype(np.int64) + self.index[3] - 1

    def allocations(self, ranks: int, slots: int) -> Iterator[NDArray[np.int64]]:
        start = 0
        while True:
            count, order, dealt = allocate(self.lengths, start, ranks, slots)
            start += count
            if count < ranks or start >= len(self.lengths):
                return
            yield order[dealt == 0]

    def batches(self, ranks: int, slots: int) -> Iterator[dict[str, Any]]:
        for rows in self.allocations(ranks, slots):
            yield batch(self.tokens, self.index, rows, slots)

    def plain(self, windows: int, slots: int) -> Iterator[tuple[NDArray[np.int64], ...]]:
        for start in range(0, len(self.tokens) - windows * (slots + 1), windows * (slots + 1)):
            made = [
                self.tokens[first : first + slots + 1].astype(np.int64)
                for first in range(start, start + windows * (slots + 1), slots + 1)
            ]
            yield np.stack([window[:-1] for window in made]), np.stack([window[1:] for window in made])

    def packed(self, windows: int, slots: int) -> Iterator[tuple[NDArray[np.int64], ...]]:
        for inputs, labels in self.plain(windows, slots):
            documents = np.zeros_like(inputs)
            # In NumPy: the original walks over the tokens in Python.
            for numbers, label, tokens in zip(documents, labels, inputs, strict=True):
                ends = tokens == EOS
                np.cumsum(ends[:-1], out=numbers[1:])
                label[ends] = -100
            yield inputs, labels, documents


def main() -> None:
    """Make the first batch, then what is asked for."""
    folder, ranks, slots = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    loader = Loader(folder)
    imported = time.perf_counter()
    batches = loader.batches(ranks, slots)
    next(batches)
    print(json.dumps([time.perf_counter() - imported, time.process_time()]), flush=True)
    for line in sys.stdin:
        if not line.strip():
            for _ in range(100):
                next(batches)
            print(flush=True)
            continue
        what, size, slots, seconds = json.loads(line)
        make = getattr(loader, what)
        print(json.dumps(timed(lambda make=make, size=size, slots=slots: make(size, slots), seconds)), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.definitions.multipack import allocate, batch

    main()
