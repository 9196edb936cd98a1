"""Which rows of a task make which epoch. Pure: arrays in, arrays out.

``profile="data_io"`` draws exactly as data_io's sampler does, from one stream; the default profile gives each task, and
each epoch's order, a stream of its own, so that another task changes none of their rows.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample.row_filter import TaskRows
from pairmill._native import Philox

Rows = NDArray[np.uint32]


class Stream:
    """Random numbers: numpy's Philox of a seed, or of a seed and a name.

    The generator is our own, bit for bit numpy's: its draws are part of what a sample is, and numpy promises them for
    no other version than its own.
    """

    def __init__(self, seed: int, name: str = "") -> None:
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u4").tolist() if name else []
        key = np.random.SeedSequence([seed, *words] if words else seed).generate_state(2, np.uint64)
        self._random = Philox(*key.tolist())

    def permutation(self, count: int) -> Rows:
        """The numbers below ``count`` in random order."""
        values = np.arange(count, dtype=np.uint32)
        self.shuffle(values)
        return values

    def shuffle(self, values: Rows) -> None:
        """Put ``values`` in the order of ``permutation(len(values))``, in place."""
        self._random.shuffle(values)


class Walk:
    """A task's way through its rows: one permutation after another, read on from epoch to epoch."""

    def __init__(self, rows: TaskRows, stream: Stream) -> None:
        self._rows, self._stream = rows, stream
        self._order = np.empty(0, np.uint32)
        self._cursor = 0
        self.coverage = np.zeros(len(rows), np.uint32)
        """How often each row was taken so far."""

    def epoch(self) -> Rows:
        """The rows of the next epoch, in the order in which they are drawn."""
        count, rule = len(self._rows), self._rows.rule
        left = (count if rule.max_per_file is None else min(rule.max_per_file, count)) * rule.repeat
        budget = None if rule.max_response_tokens_per_file is None else rule.max_response_tokens_per_file * rule.repeat
        taken: list[Rows] = []
        while left > 0:
            if self._cursor == len(self._order):
                self._order = self._stream.permutation(count)
                self._cursor = 0
            rows = self._order[self._cursor : self._cursor + left]
            if budget is not None:
                spent = np.cumsum(self._rows.resp_len[rows], dtype=np.int64)
                reached = int(np.searchsorted(spent, budget, side="left"))
                if budget <= 0 or reached < len(rows):
                    rows = rows[: reached + 1 if budget > 0 else 0]
                    left = len(rows)
                else:
                    budget -= int(spent[-1])
            self._cursor += len(rows)
            left -= len(rows)
            self.coverage[rows] += 1  # a stretch of one permutation names no row twice
            taken.append(rows)
        return np.concatenate(taken) if taken else np.empty(0, np.uint32)


def ranks(coverage: NDArray[Any]) -> Rows:
    """For each row that was taken its place among those that were; for others no number that means anything."""
    return np.cumsum(coverage > 0, dtype=np.uint32) - np.uint32(1)
