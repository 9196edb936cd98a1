"""``mixture.json``: how many rows of each task every epoch has, and the shares that come of it.

The stage ``mix`` writes it and the sampler executes it (docs/format.md section 8). Reading it checks all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

from pairmill.engine.manifest import fingerprint_from
from pairmill.rules import Key

NAME: Final = "mixture.json"
FORMAT: Final = 1
UNIT: Final = "response_tokens"
BUCKETS: Final = "buckets"
"""The folder beside it with one file ``<task>.npy`` for each task with buckets."""
MOST_EPOCHS: Final = 10_000
"""Of a training: a plan says the rows of each task for every epoch, and more is a slip of the hand."""
NO_BUCKET: Final = 65535
"""The code of a row that no bucket has."""


@dataclass(frozen=True)
class PlannedTask:
    """A task in one phase; of a source that is a bucket, the rows of the task in that bucket.

    Attributes:
        rows: n, after the sampler's filter.
        response_tokens: c of these rows, after truncation.
        squares: the sum of their squared response lengths.
        rows_per_epoch: of each epoch of the phase: one number, or one for each epoch.
        bucket: the code in ``buckets/<task>.npy``; None = all rows of the task.
    """

    task: str
    rows: int
    response_tokens: int
    squares: int
    rows_per_epoch: int | tuple[int, ...]
    bucket: int | None = None

    @property
    def key(self) -> Key:
        return self.task, self.bucket

    def wanted(self, epoch: int) -> int:
        """Return rows of an epoch of the phase, counted from 0."""
        return self.rows_per_epoch if isinstance(self.rows_per_epoch, int) else self.rows_per_epoch[epoch]


@dataclass(frozen=True)
class PlannedSource:
    """A source in one phase.

    Attributes:
        phase: name of the phase.
        method: that shared the phase's budget out.
        cap: passes over the source in all phases together; None = no cap.
        tokens: of responses that the phase draws of it.
        share: of all tokens of the phase.
        epochs: passes over the source in the phase: tokens / Σ response_tokens of its tasks.
        tasks: sorted by name.
    """

    name: str
    phase: str
    method: str
    cap: float | None
    tokens: float
    share: float
    epochs: float
    tasks: tuple[PlannedTask, ...]


@dataclass(frozen=True)
class PlannedPhase:
    """A part of the training.

    Attributes:
        name: distinct.
        epochs: the first, and the one after the last. Epochs are numbered on through all phases, from 0.
        share: of the budget.
        exponent: with the method ``exponent``.
    """

    name: str
    epochs: tuple[int, int]
    share: float
    exponent: float | None = None

    @property
    def count(self) -> int:
        """How many epochs it has."""
        return self.epochs[1] - self.epochs[0]


@dataclass(frozen=True)
class Inputs:
    """What the plan was made of.

    Attributes:
        tokenized: fingerprint of the tokenized folder.
        long_rows: digest of what the rules say of the long rows of each task, :func:`long_rows_key`.
        rows: fingerprint of the rows whose attributes make the buckets; empty without buckets.
    """

    tokenized: str
    long_rows: str = ""
    rows: str = ""


@dataclass(frozen=True)
class Mixture:
    """A plan.

    Attributes:
        seed: of the draws.
        epochs: of all phases together.
        context: longest row in tokens; ``context_size`` of the sampler.
        min_resp_length: shortest response in tokens.
        budget: response tokens of the whole training.
        unfilled: what the sources could not give of it.
        phases: in order.
        sources: by phase, in each phase in the order of the settings. A source that has no row is listed too.
        inputs: what it was made of.
        buckets: for each code in ``buckets/<task>.npy`` the name of its source; empty without buckets.
    """

    seed: int
    epochs: int
    context: int
    min_resp_length: int
    budget: float
    unfilled: float
    phases: tuple[PlannedPhase, ...]
    sources: tuple[PlannedSource, ...]
    inputs: Inputs
    buckets: tuple[str, ...] = ()
    unit: str = UNIT
    format: int = FORMAT

    def phase_at(self, epoch: int) -> PlannedPhase:
        """Return the phase of an epoch."""
        return next(phase for phase in self.phases if phase.epochs[0] <= epoch < phase.epochs[1])

    @cached_property
    def by_phase(self) -> dict[str, list[PlannedSource]]:
        """The sources of each phase, by its name."""
        result: dict[str, list[PlannedSource]] = {phase.name: [] for phase in self.phases}
        for source in self.sources:
            result[source.phase].append(source)
        return result

    @cached_property
    def names(self) -> list[str]:
        """The names of all sources, in the order of the settings."""
        return list(dict.fromkeys(source.name for source in self.sources))

    @cached_property
    def source_of(self) -> dict[Key, str]:
        """The source of each task and bucket. All of them are listed, also those of which no row is drawn."""
        return {task.key: source.name for source in self.sources for task in source.tasks}

    @cached_property
    def tasks(self) -> dict[Key, PlannedTask]:
        """Each task and bucket once, as the first phase has it, for its counts."""
        result: dict[Key, PlannedTask] = {}
        for source in self.sources:
            for task in source.tasks:
                result.setdefault(task.key, task)
        return result

    def wants(self) -> dict[Key, list[int]]:
        """Return the rows of each task and bucket in every epoch of the training: lists of :attr:`epochs` numbers."""
        result = {key: [0] * self.epochs for key in self.tasks}
        for phase in self.phases:
            for source in self.by_phase[phase.name]:
                for task in source.tasks:
                    row = result[task.key]
                    for epoch in range(phase.count):
                        row[phase.epochs[0] + epoch] += task.wanted(epoch)
        return result

    def dump(self) -> bytes:
        """Return the file, a task on each line. Equal plans have equal bytes."""
        head = {item.name: getattr(self, item.name) for item in fields(self)}
        head |= {"inputs": vars(self.inputs), "phases": [vars(phase) for phase in self.phases]}
        del head["sources"]
        lines = [f"{_json(name)}:{_json(value)},\n" for name, value in head.items()]
        sources = ",\n".join(map(_source_text, self.sources))
        return ("{" + "".join(lines) + '"sources":[\n' + sources + "]}\n").encode()


def identity(plan: bytes, buckets: Mapping[str, str]) -> str:
    """Return what identifies a plan by content, for fingerprints.

    Args:
        plan: the bytes of :meth:`Mixture.dump`.
        buckets: sha256 of the file of each task that is drawn by buckets.
    """
    parts = [[task, buckets[task]] for task in sorted(buckets)]
    return fingerprint_from("mixture", hashlib.sha256(plan).hexdigest(), parts)


def long_rows_key(long_context: Mapping[str, str]) -> str:
    """Return what :attr:`Inputs.long_rows` is, of the ``long_context`` of each task by name."""
    return fingerprint_from(sorted(long_context.items()))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _source_text(source: PlannedSource) -> str:
    head = {**vars(source)}
    del head["tasks"]
    tasks = ",\n".join(map(_task_text, source.tasks))
    return f'{_json(head)[:-1]},"tasks":[\n{tasks}]}}'


def _task_text(task: PlannedTask) -> str:
    values = vars(task)
    return _json(values if task.bucket is not None else {name: values[name] for name in values if name != "bucket"})
