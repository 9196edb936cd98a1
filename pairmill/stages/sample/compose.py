"""A plan of one epoch that is put together of epochs of other plans: their rows, in a new order.

Each row comes as often as in its parts. The plan is whole: its parts may be deleted. It reads and copies no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pairmill.errors import InputError, UsageError
from pairmill.formats.eligible_rows import DatasetRows
from pairmill.formats.tokens import Dataset
from pairmill.rules.book import Rules
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.exposure.passes import SeenRows
from pairmill.stages.sample.exposure.reading import Reading

_MOST = 255
"""Passes that a byte has: a row that comes n times was seen this often less n."""


@dataclass(frozen=True)
class Parts:
    """The epochs that a plan is put together of."""

    rows: SeenRows

    @classmethod
    def open(cls, config: SampleConfig) -> Parts:
        """Open the plans that ``compose=`` names.

        Raises:
            UsageError: a plan has no such epoch, or options of two plans differ.
            InputError: there is no such plan.
        """
        readings = []
        for text in config.compose:
            reading = Reading.parse(text, "compose", config.root)
            sizes = reading.manifest.ledger.measures["epochs"]
            if reading.rows or reading.epochs >= sizes:
                expected = f"<plan>:<epoch>, an epoch from 0 to {sizes - 1}"
                raise UsageError("not an epoch of the plan", where="compose", got=text, expected=expected)
            readings.append(replace(reading, first=reading.epochs, epochs=reading.epochs + 1))
        for name in ("context_size", "min_resp_length"):
            values = {reading.manifest.options[name]: reading for reading in readings}
            if len(values) > 1:
                got = ", ".join(f"{value} of {reading.uri}" for value, reading in values.items())
                hint = f"plan one of them again with {name}= of the other"
                raise UsageError(f"the plans differ in {name}", where="compose", got=got, hint=hint)
        return cls(SeenRows(readings))

    def applied_to(self, config: SampleConfig) -> SampleConfig:
        """Return the options with those that the plans decide: all but the seed."""
        readings = self.rows.readings
        planned = {name: value for name, value in readings[0].manifest.options.items() if hasattr(config, name)}
        planned |= {"seed": config.seed, "epochs": 1}
        tokens = config.tokenized_path or ",".join(dict.fromkeys(reading.uri for reading in self._of_folders()))
        return replace(config, compose=[], tokenized_path=tokens, **planned)

    def _of_folders(self) -> Sequence[Reading]:
        """Return a plan of each tokenized folder."""
        return [*{_tokenized(reading): reading for reading in reversed(self.rows.readings)}.values()][::-1]

    @property
    def rules(self) -> Rules:
        """What the plans say of their tasks."""
        return ComposedRules(self)

    @property
    def place(self) -> str:
        """What it is made of, as the fingerprint of an input."""
        return " ".join(f"{reading.manifest.fingerprint}:{reading.first}" for reading in self.rows.readings)

    def recorded(self) -> list[dict[str, Any]]:
        """Return what the manifest of the new plan says of it."""
        return [
            {"plan": plan.reading.manifest.fingerprint, "epoch": plan.reading.first, "rows": plan.rows}
            for plan in self.rows.plans
        ]

    @cached_property
    def _counts(self) -> dict[str, int]:
        """How many rows the epoch has of each task, by its key."""
        counts = dict[str, int]()
        for plan in self.rows.plans:
            for key in plan.places:
                counts[key] = counts.get(key, 0) + int(plan.of_task(key).sum(dtype=np.int64))
        return counts

    def refuse_missing(self, tasks: Sequence[Dataset], where: str) -> None:
        """Raise InputError if a task of the parts is not among these."""
        here = {task.key for task in tasks}
        sources = (source for reading in self.rows.readings for source in reading.result.sources)
        missing = {source["key"]: source["name"] for source in sources if source["key"] not in here}
        if names := [name for key, name in missing.items() if self._counts[key]]:
            raise InputError(
                f"{len(names):,} tasks of the plans are not in the tokenized folder, or changed there",
                where=where,
                got=", ".join(names[:5]) + (" and more" if names[5:] else ""),
                expected="every task of all plans",
                hint="name all their folders: tokenized_path=a=<folder>,b=<folder>",
            )

    def rule_of(self, task: Dataset, key: str, rule: Rule) -> Rule:
        """Return what is drawn of a task; of two tasks of one content the first has the rows.

        Args:
            task: the data set.
            key: of it in the plan, which tells it from others of the same content.
            rule: that the plans have of it.
        """
        count = self._counts.get(task.key, 0) if key == task.key else 0
        return Rule(long_context=rule.long_context, rows=(count,)) if count else replace(rule, max_per_file=0)

    def put_passes(self, task: Dataset, rows: DatasetRows) -> None:
        """Say of each row how often it comes, as passes that it lacks.

        Raises:
            InputError: the plans have other rows of the task, or a row too often.
        """
        times = self.rows.of_rows(task.key, rows.columns["resp_start"])
        if times.max(initial=0) == _MOST:
            hint = "plan with a smaller repeat"
            raise InputError("a row comes too often", where=f"compose: {task.name}", expected="254 times", hint=hint)
        theirs = sum(
            int((plan.of_task(task.key) * plan.column(task.key, "resp_len")).sum())
            for plan in self.rows.plans
            if task.key in plan.places
        )
        mine = int((times * rows.columns["resp_len"].astype(np.int64)).sum())
        if (int(times.sum(dtype=np.int64)), mine) != (self._counts[task.key], theirs):
            raise InputError(
                "plans do not cut the rows of a task in the same way",
                where=f"compose: {task.name}",
                got=f"{mine:,} response tokens by long_context: {rows.rule.long_context}",
                expected=f"{theirs:,}",
                hint="give both plans the same long_context for it",
            )
        rows.passes = _MOST - times


class ComposedRules(Rules):
    """What the parts of a plan say of tasks: what becomes of long rows, and names of rules and groups."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(where="the rules of the plans")
        self._of: dict[str, tuple[Rule, str | None, str | None]] = {}
        for reading in parts.rows.readings:
            result = reading.result
            for source in result.sources:
                name = source["name"]
                rule = Rule(long_context=result.rules[name]["long_context"])
                self._of.setdefault(name, (rule, result.prefixes.get(name), result.group_of_task.get(name)))

    def match(self, task: str) -> tuple[Rule, bool]:
        return self._of.get(task, (Rule(), None, None))[0], False

    def label_of(self, task: str) -> str | None:
        return self._of.get(task, (None, None, None))[1]

    def group_of(self, task: str) -> str | None:
        return self._of.get(task, (None, None, None))[2]


def _tokenized(reading: Reading) -> str:
    return next(ref.fingerprint for ref in reading.manifest.inputs if ref.role == "tokenized")
