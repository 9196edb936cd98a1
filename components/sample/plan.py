"""Which rows of which tasks make which epoch, and in which order. Pure: arrays in, arrays out.

The algorithm is data_io's sampler. ``profile="data_io"`` draws exactly as it does; the default profile decides each of
its defects (docs/differences.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from components.sample.config import SampleConfig
from pairmill.errors import InputError
from pairmill.prefixes import Rule
from pairmill.tokens import Ints


@dataclass
class TaskRows:
    """The rows of a task that may be sampled, with what became of the others.

    Arrays are int64 of shape (rows,); spans point into the task's own ``tokens.npy``.
    """

    name: str
    rule: Rule
    total: int
    """Rows before filtering."""
    length: int
    """Tokens of the task."""
    inst_start: Ints
    inst_len: Ints
    resp_start: Ints
    resp_len: Ints
    dropped: dict[str, int]
    truncated: int
    """Rows left whose response was cut."""
    order: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    cursor: int = 0
    coverage: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.inst_len)


def rows_of(name: str, rule: Rule, index: Mapping[str, Ints], config: SampleConfig) -> TaskRows:
    """Filter and truncate the rows of a task."""
    inst_len, resp_len = index["inst_len"], index["resp_len"]
    allowed = config.context_size - np.minimum(inst_len, config.context_size)
    least = config.min_resp_length
    cut = resp_len
    if rule.long_context == "truncate":
        fits = allowed >= 1
        cut = np.minimum(resp_len, allowed)
    else:
        fits = resp_len <= allowed
    # The reference looks at the length before it cuts, so a response cut to one token passes.
    tested = resp_len if config.profile == "data_io" else cut
    short = resp_len < least
    cut_short = ~short & fits & (tested < least)
    keep = fits & ~short & ~cut_short
    dropped = {
        "response_too_short": int(short.sum()),
        "over_context": int((~short & ~fits).sum()),
        "response_too_short_once_cut": int(cut_short.sum()),
    }
    return TaskRows(
        name=name,
        rule=rule,
        total=len(resp_len),
        length=int(inst_len.sum() + resp_len.sum()),
        inst_start=index["inst_start"][keep],
        inst_len=inst_len[keep],
        resp_start=index["resp_start"][keep],
        resp_len=cut[keep],
        dropped={reason: count for reason, count in dropped.items() if count},
        truncated=int((cut[keep] < resp_len[keep]).sum()),
        coverage=np.zeros(int(keep.sum()), np.int64),
    )


@dataclass(frozen=True)
class Epoch:
    """One epoch in training order: for each row its task (index into the tasks) and its place among the task's rows."""

    task: Ints
    row: Ints


class Streams:
    """Random generators. data_io has one for everything, so that adding a task changes all others' rows."""

    def __init__(self, config: SampleConfig) -> None:
        self._seed = config.seed
        self._shared = np.random.Generator(np.random.Philox(config.seed)) if config.profile == "data_io" else None
        self._made: dict[str, np.random.Generator] = {}

    def task(self, name: str) -> np.random.Generator:
        """The generator of a task's permutations."""
        return self._get(f"task\0{name}")

    def epoch(self, number: int) -> np.random.Generator:
        """The generator of an epoch's order."""
        return self._get(f"epoch\0{number}")

    def _get(self, name: str) -> np.random.Generator:
        if self._shared is not None:
            return self._shared
        if name not in self._made:
            words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u4")
            sequence = np.random.SeedSequence([self._seed, *words.tolist()])
            self._made[name] = np.random.Generator(np.random.Philox(sequence))
        return self._made[name]


def epochs(tasks: list[TaskRows], config: SampleConfig) -> Iterator[Epoch]:
    """Draw the epochs one after another from the beginning, counting coverage in the tasks.

    Drawing again gives the same epochs: only one of them need be held at a time, though the layout of the tokens
    depends on all.

    Raises:
        InputError: with ``profile="data_io"``, where the reference overflows its buffers.
    """
    streams = Streams(config)
    for task in tasks:
        task.order, task.cursor = np.empty(0, np.int64), 0
        task.coverage = np.zeros(len(task), np.int64)
    capacity = sum(len(task) for task in tasks)
    for number in range(config.epochs):
        drawn: list[tuple[int, Ints]] = []
        for index, task in enumerate(tasks):
            rows = _draw(task, streams.task(task.name))
            if len(rows):
                drawn.append((index, rows))
        count = sum(len(rows) for _, rows in drawn)
        if config.profile == "data_io" and count > capacity:
            raise InputError(
                "the rules ask for more rows than the reference's buffers hold",
                where=f"epoch {number}",
                got=str(count),
                expected=f"at most {capacity}",
                hint="lower repeat, or use the default profile",
            )
        order = streams.epoch(number).permutation(count)
        task_of = np.repeat(np.array([index for index, _ in drawn], np.int64), [len(rows) for _, rows in drawn])
        row_of = np.concatenate([rows for _, rows in drawn]) if drawn else np.empty(0, np.int64)
        yield Epoch(task_of[order], row_of[order])


def _draw(task: TaskRows, generator: np.random.Generator) -> Ints:
    """Rows of a task for one epoch: on through its permutation, which lives on from epoch to epoch."""
    count = len(task)
    rule = task.rule
    want = (count if rule.max_per_file is None else min(rule.max_per_file, count)) * rule.repeat
    budget = None if rule.max_response_tokens_per_file is None else rule.max_response_tokens_per_file * rule.repeat
    taken: list[Ints] = []
    left = want
    while left > 0:
        if task.cursor == len(task.order):
            task.order = generator.permutation(count)
            task.cursor = 0
        rows = task.order[task.cursor : task.cursor + left]
        if budget is not None:
            spent = np.cumsum(task.resp_len[rows])
            reached = int(np.searchsorted(spent, budget, side="left"))
            if budget <= 0 or reached < len(rows):
                rows = rows[: reached + 1 if budget > 0 else 0]
                left = len(rows)
            else:
                budget -= int(spent[-1])
        task.cursor += len(rows)
        left -= len(rows)
        task.coverage[rows] += 1  # a stretch of one permutation names no row twice
        taken.append(rows)
    return np.concatenate(taken) if taken else np.empty(0, np.int64)
