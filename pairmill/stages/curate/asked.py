"""What each operation is asked about a task: where its findings are, and what its rules do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pairmill.engine.manifest import content_key
from pairmill.engine.stage import ShardRecord
from pairmill.stages.curate import exact
from pairmill.stages.curate.decide import Asked, Column
from pairmill.stages.curate.decontaminate.settings import VERDICTS
from pairmill.stages.curate.exact import KINDS, ExactFound
from pairmill.stages.curate.inputs import Task
from pairmill.stages.curate.near.given import NearFound
from pairmill.stages.curate.rules import OPERATIONS, Rule
from pairmill.stages.curate.scorer import ATTRIBUTES, FINDINGS, HISTOGRAMS, Scorer
from pairmill.stages.curate.settings import Settings

NEAR_RULES: Final = ("equal_instruction", "weak_block", "weak_instruction", "strong", "document")
PII_RULES: Final = ("EMAIL", "CARD", "PHONE", "IP")


@dataclass(frozen=True)
class Done:
    """What the rounds learn on the way.

    Args:
        exact: what exact deduplication found.
        near: what near deduplication found.
        leaks: records of the shard that built the index of benchmarks.
        scores: records by scorer's name and number of the slice.
    """

    exact: ExactFound
    near: NearFound
    leaks: Sequence[ShardRecord]
    scores: Mapping[str, Mapping[int, ShardRecord]]

    def of(self, name: str, task: Task) -> list[ShardRecord]:
        """The records of a scorer for a task; none if it was not scored."""
        records = self.scores.get(name, {})
        return [records[one.number] for one in task.slices if one.number in records]

    def columns(self, task: Task) -> dict[str, tuple[Column, list[str]]]:
        """The attributes of a task by operation's name, with the keys of their files: those made, else the input's."""
        found = {name: (Column((file.uri,), ""), [file.sha256]) for name, file in task.beside.items()}
        for name in self.scores:
            mine = self.of(name, task)
            if mine and all(has(record, ATTRIBUTES) for record in mine):
                uris = tuple(record.uri(ATTRIBUTES) for record in mine)
                found[name] = (Column(uris, ""), [record.key for record in mine])
        return found


def has(record: ShardRecord, path: str) -> bool:
    """Whether a shard wrote this file."""
    return any(file.path == path for file in record.files)


def is_wanted(settings: Settings, scorer: Scorer) -> bool:
    """Whether a task's rows are scored."""
    if scorer.operation == "classifiers":
        return any(one.name == scorer.name and one.mode != "off" for one in settings.classifiers)
    return settings.mode_of(scorer.operation) != "off"


def hiding(settings: Settings) -> tuple[str, ...]:
    """The rules of exact deduplication whose rows near deduplication does not see.

    They are those that drop rows; if near deduplication only reports, also those that would.
    """
    if settings.report_all:
        return ()
    hides = settings.exact.mode == "drop" or settings.near.mode == "report"
    return tuple(exact.actions(settings.exact)) if hides else ()


def asked(settings: Settings, task: Task, done: Done) -> list[Asked]:
    """The operations that are not off, in their order."""
    found: list[Asked] = []
    for operation in OPERATIONS:
        if settings.mode_of(operation) == "off":
            continue
        if operation == "exact":
            found += _exact(settings, task, done)
        elif operation == "near":
            if task.name in done.near.tasks:
                does = "drop" if settings.near.max_similar is None else "cap"
                actions = dict.fromkeys(NEAR_RULES, does)
                reports = settings.near.mode == "report"
                found.append(Asked("near", "near", actions, reports, decisions=done.near.tasks[task.name]))
        elif operation == "filter":
            found += _filter(settings, task, done)
        else:
            found += _scored(settings, task, done, operation)
    return found


def _exact(settings: Settings, task: Task, done: Done) -> Iterable[Asked]:
    stored = done.exact.tasks.get(task.name)
    if stored is not None:
        reports = settings.exact.mode == "report"
        kinds = tuple(kind for kind in KINDS if exact.is_on(settings.exact, kind))
        actions = exact.actions(settings.exact)
        reported = tuple(kind for kind in kinds if kind not in actions)
        order = tuple(KINDS)
        yield Asked("exact", "exact", actions, reports, order, decisions=stored, only=kinds, reported=reported)


def _filter(settings: Settings, task: Task, done: Done) -> Iterable[Asked]:
    columns = done.columns(task)
    rules: dict[str, list[tuple[Rule, Column]]] = {"drop": [], "report": []}
    keys: list[list[str]] = []
    for one in settings.filter.rules:
        mode, (operation, _, name) = one.mode or settings.filter.mode, one.attribute.partition(".")
        if mode != "off" and operation in columns:
            column, read = columns[operation]
            rules[mode].append((one.rule(), Column(column.uris, name)))
            keys.append(read)
    if keys:
        every = (*rules["drop"], *rules["report"])
        actions = {rule.name: "drop" for rule, _ in rules["drop"] or every}
        reported = tuple(rule.name for rule, _ in every if rule.name not in actions)
        reports = not rules["drop"]
        yield Asked("filter", "filter", actions, reports, rules=every, key=content_key(keys), reported=reported)


def _scored(settings: Settings, task: Task, done: Done, operation: str) -> Iterable[Asked]:
    parts: list[tuple[str, Any]] = [(operation, getattr(settings, operation))]
    if operation == "classifiers":
        parts = [(one.name, one) for one in settings.classifiers if one.mode != "off"]
    for name, one in parts:
        mine = done.of(name, task)
        findings = tuple(record.uri(FINDINGS) for record in mine if has(record, FINDINGS))
        uris = tuple(record.uri(ATTRIBUTES) for record in mine)
        bounds = one.rules() if mine and operation not in ("decontaminate", "pii") else []
        rules = tuple((rule, Column(uris, rule.attribute)) for rule in bounds)
        if not rules and not findings:
            continue
        actions = {rule.name: "drop" for rule, _ in rules}
        order: tuple[str, ...] = ()
        reported: tuple[str, ...] = ()
        if operation == "decontaminate":
            actions, order = dict.fromkeys(one.drop_on, "drop"), tuple(VERDICTS)
            reported = tuple(rule for rule in VERDICTS if rule not in actions)
        elif operation == "pii":
            actions = dict.fromkeys(PII_RULES, "redact")
        key = content_key([record.key for record in mine])
        yield Asked(
            operation,
            name,
            actions,
            one.mode == "report",
            order,
            findings=findings,
            rules=rules,
            key=key,
            reported=reported,
        )


def tallied(task: Task, done: Done) -> list[tuple[str, str, str]]:
    """Name, key and URI of the histograms of a task's slices."""
    return [
        (name, record.key, record.uri(HISTOGRAMS))
        for name in sorted(done.scores)
        for record in done.of(name, task)
        if has(record, HISTOGRAMS)
    ]
