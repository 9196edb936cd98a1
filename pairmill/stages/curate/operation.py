"""What an operation of curate is: one object that says all that the stage, its report and its commands ask about it.

A new scorer is a file with its settings, its ``Scorer`` and a ``ScoredOperation`` of both, and an entry in
``operations.py``. ``scores/pii.py`` is the shortest.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.engine.inputs import InputFile
from pairmill.engine.stage import ShardFile, ShardRecord
from pairmill.formats.settings_file import Part
from pairmill.rowstage import Rewrite, Task
from pairmill.rowstage.scorer import ATTRIBUTES, FINDINGS, Scorer

S = TypeVar("S")

Mode: TypeAlias = Literal["drop", "report", "off"]
"""Remove the rows that an operation finds, only report them, or do not run it."""

PiiMode: TypeAlias = Literal["redact", "report", "off"]


@dataclass(frozen=True)
class Rule:
    """Bounds of an attribute. A row breaks the rule if its value is outside; a null breaks no rule.

    Args:
        name: in decisions and in the ledger.
        attribute: the column; of a filter ``<operation>.<column>``.
        min: the least value that is kept; None = no bound.
        max: the greatest value that is kept; None = no bound.
        values: the texts or numbers that are kept; None = any.
        when: another column of the same operation and its least value; rows below, or with a null there, keep the rule.
    """

    name: str
    attribute: str
    min: float | None = None
    max: float | None = None
    values: tuple[str | int | float | bool, ...] | None = None
    when: tuple[str, float] | None = None

    @property
    def bounds(self) -> list[float | None]:
        """Least and greatest value, for a histogram."""
        return [self.min, self.max]

    def broken_by(self, column: pa.Array, when: pa.Array | None = None) -> NDArray[np.bool_]:
        """Return which rows break the rule; bool [rows].

        Args:
            column: the rule's attribute.
            when: the column that ``self.when`` names; it is required if there is one.
        """
        broken = np.zeros(len(column), np.bool_)
        if self.values is not None:
            allowed = set(self.values)
            at = column.dictionary_encode()
            wrong = np.array([item is not None and item not in allowed for item in at.dictionary.to_pylist()], np.bool_)
            codes = at.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            if len(wrong):
                broken |= np.where(codes >= 0, wrong[codes], False)
        if self.min is not None or self.max is not None:
            numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN, which breaks nothing
            with np.errstate(invalid="ignore"):
                broken |= numbers < (-np.inf if self.min is None else self.min)
                broken |= numbers > (np.inf if self.max is None else self.max)
        if self.when is not None:
            assert when is not None, self.when
            condition = when.cast(pa.float64()).to_numpy(zero_copy_only=False)
            with np.errstate(invalid="ignore"):
                broken &= condition >= self.when[1]
        return broken

    def describe(self, value: object) -> str:
        """Describe how a value breaks the rule: the value, rounded for people, and the bound."""
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        if self.values is not None and value not in self.values:
            return f"{shown}, not in {', '.join(map(str, self.values))}"
        if self.min is not None and isinstance(value, int | float) and value < self.min:
            return f"{shown} < {self.min:g}"
        if self.max is not None and isinstance(value, int | float) and value > self.max:
            return f"{shown} > {self.max:g}"
        return shown


class Decisions(Protocol):
    """Where the decisions on a task's rows are that come from comparing rows."""

    def identify(self) -> object:
        """Return what the table follows from."""

    def read(self) -> pa.Table:
        """Read the table, by ordinal."""


@dataclass(frozen=True)
class Column:
    """Where an attribute is: the files of all slices of a task, in order."""

    files: tuple[ShardFile | InputFile, ...]
    name: str


@dataclass(frozen=True)
class Reasons:
    """The ledger reasons of rows that an operation drops, with ``{name}`` and ``{rule}``.

    Args:
        drop: of the action ``drop``.
        cap: of the action ``cap``.
    """

    drop: str = "{name}:{rule}"
    cap: str = "cap_{rule}"

    def reason(self, name: str, rule: str, action: str, *, other_held_out: bool = False) -> str:
        """Return the reason of a row.

        Args:
            name: of the operation's folder.
            rule: of the decision.
            action: of the decision.
            other_held_out: whether the row that it repeats is held out.
        """
        if other_held_out:
            return "held_out"
        return (self.cap if action == "cap" else self.drop).format(name=name, rule=rule)


@dataclass(frozen=True)
class TaskFindings:
    """What one operation finds of the rows of a task, and what is done with it.

    Args:
        name: of its folder: the operation's, or the classifier's.
        actions: what a rule does to the first row that it finds: drop, cap, redact or report. A rule that is not here
            is only reported, and owns no row.
        reports: whether the actions are not carried out: the operation's mode is ``report``.
        reasons: of rows that it drops.
        order: of rules, where several find one row; those that are not here come last.
        decisions: of rows that were compared.
        findings: of each slice that has some.
        rules: bounds, each with its attribute.
        only: rules whose findings count; empty = all.
        reported: rules without an action that could have one. What each would remove is counted, whatever the others of
            them find.
        changes: whether it changes texts and removes no row. It is counted in rows that another operation would remove.
        by_source: whether the sources of both rows of a finding are counted.
    """

    name: str
    actions: Mapping[str, str]
    reports: bool
    reasons: Reasons = Reasons()
    order: tuple[str, ...] = ()
    decisions: Decisions | None = None
    findings: tuple[ShardFile, ...] = ()
    rules: tuple[tuple[Rule, Column], ...] = ()
    only: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    changes: bool = False
    by_source: bool = False


class Learned(NamedTuple):
    """What the rounds learned before rows are decided about.

    Args:
        decisions: of operations that compare rows, by operation and task; a task without any is not in it.
        scores: records of ``Score`` by scorer's name and number of the slice.
    """

    decisions: Mapping[str, Mapping[str, Decisions]]
    scores: Mapping[str, Mapping[int, ShardRecord]]

    def records(self, name: str, task: Task) -> list[ShardRecord]:
        """Return the records of a scorer for a task; none if it was not scored."""
        records = self.scores.get(name, {})
        return [records[piece.number] for piece in task.slices if piece.number in records]

    def attributes(self, task: Task) -> dict[str, tuple[ShardFile | InputFile, ...]]:
        """Return the files of a task's attributes by operation: those made, else the input's."""
        result: dict[str, tuple[ShardFile | InputFile, ...]] = {name: (file,) for name, file in task.beside.items()}
        for name in self.scores:
            records = self.records(name, task)
            if records and all(has_file(record, ATTRIBUTES) for record in records):
                result[name] = tuple(record.file(ATTRIBUTES) for record in records)
        return result


def has_file(record: ShardRecord, path: str) -> bool:
    """Tell whether a shard wrote this file."""
    return any(file.path == path for file in record.files)


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation(Generic[S]):
    """An operation. ``own`` of its methods is its part of the settings.

    Args:
        name: of its key in curate_config.yaml, and of its folders.
        settings: class of its settings, which have a ``mode`` and ``PER_TASK``, the fields that overrides may change.
        help: comment of its key in curate_config.yaml.
        reasons: of rows that it drops.
        meanings: what its rules mean, for people; a rule whose name says it is left out.
        scores: what the scores of its decisions are of; None = of instruction and response, and not shown beside a
            detail.
        counts_shown: what of the counts of its scorer the report shows; None = all.
        private: whether samples of what it finds are shown without texts: a report travels further than the rows.
        changes: whether it changes texts and removes no row.
    """

    name: str
    settings: type[S]
    help: str
    reasons: Reasons = Reasons()
    meanings: Mapping[str, str] = field(default_factory=dict)
    scores: tuple[str, str] | None = None
    counts_shown: Collection[str] | None = None
    private: bool = False
    changes: bool = False

    def field_type(self) -> Any:
        """Return the type of its field in the settings."""
        return self.settings

    def default(self) -> Any:
        """Make its default settings."""
        return self.settings()

    def complete(self, own: Any, part: Part | None) -> Any:
        """Return the settings with what follows from what the file leaves out; ``part`` is None without its key."""
        return own

    def override(self, own: Any, part: Part) -> Any:
        """Return the settings with what an override says: a mode alone, or a mapping."""
        if part.is_scalar():
            return replace(own, mode=part.as_type(get_type_hints(self.settings)["mode"]))
        return part.onto(own, only=getattr(self.settings, "PER_TASK", ("mode",)))

    def parts(self, own: Any) -> list[tuple[str, Any]]:
        """Return what has a folder of its own, by name, with its settings."""
        return [(self.name, own)]

    def mode(self, own: Any) -> Mode:
        """Return the mode, of several parts the strictest; an operation that changes texts reports."""
        modes = {"report" if self.changes and part.mode != "off" else part.mode for _, part in self.parts(own)}
        return "drop" if "drop" in modes else "report" if "report" in modes else "off"

    def is_idle(self, own: Any) -> bool:
        """Tell whether there is nothing to do."""
        return self.mode(own) == "off"

    def rewrite(self, own: Any) -> Rewrite | None:
        """Return what changes the texts of rows that stay, if anything does."""
        return None

    def scorers(self, variants: Sequence[Any], root: str) -> list[Scorer]:
        """Make what scores rows, of the settings of all tasks; the first are those that no override changes."""
        return []

    def bounds(self, own: Any) -> Iterator[tuple[str, Rule]]:
        """Yield its bounds of attributes, with their names ``<operation>.<column>``."""
        yield from ()

    def find(self, own: Any, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        """Yield what it finds of a task; the mode is not ``off``."""
        raise NotImplementedError

    def names_of_scores(self, rule: str) -> tuple[str, str]:
        """Return what the scores of a rule's decisions are of."""
        return self.scores or ("instruction", "response")

    def describe_rule(self, rule: str) -> str:
        """Describe what a rule means; empty if its name says it."""
        return self.meanings.get(rule, "")

    def describe_scores(self, decision: Mapping[str, Any]) -> str:
        """Describe the scores of a decision by their names, but those that are null and those that its detail has."""
        if self.scores is None and decision.get("detail"):
            return ""
        values = decision.get("score_i"), decision.get("score_r")
        scores = zip(self.names_of_scores(str(decision.get("rule"))), values, strict=True)
        return ", ".join(f"{name} {score:.3f}" for name, score in scores if score is not None and not math.isnan(score))

    def describe_needed(self, rule: str, own: Mapping[str, Any]) -> str:
        """Describe what a rule's scores have to reach, by the settings in the manifest; empty if decisions say it."""
        return ""

    def look_at(self, costs: Mapping[str, Any]) -> Iterator[str]:
        """Yield sentences of what is worth a look, by what its rounds counted."""
        yield from ()


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredOperation(Operation[S]):
    """An operation that looks at each row by itself. Its settings have ``scorers(root)`` and ``rules()``.

    Args:
        actions: what rules of its scorer's findings do; bounds drop in any case.
        order: of those rules, where several find one row.
    """

    actions: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def scorers(self, variants: Sequence[Any], root: str) -> list[Scorer]:
        made: list[Scorer] = variants[0].scorers(root)
        return made

    def rules(self, part: Any) -> list[Rule]:
        """Return the bounds of attributes."""
        made: list[Rule] = part.rules()
        return made

    def actions_of(self, part: Any) -> Mapping[str, str]:
        """Return what rules of findings do."""
        return self.actions

    def bounds(self, own: Any) -> Iterator[tuple[str, Rule]]:
        for name, part in self.parts(own):
            for rule in self.rules(part):
                yield f"{name}.{rule.attribute}", rule

    def find(self, own: Any, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        for name, part in self.parts(own):
            records = learned.records(name, task) if part.mode != "off" else []
            findings = tuple(record.file(FINDINGS) for record in records if has_file(record, FINDINGS))
            bounds = self.rules(part) if records else []
            files = tuple(record.file(ATTRIBUTES) for record in records) if bounds else ()
            rules = tuple((rule, Column(files, rule.attribute)) for rule in bounds)
            if not rules and not findings:
                continue
            actions = {**dict.fromkeys((rule.name for rule, _ in rules), "drop"), **self.actions_of(part)}
            yield TaskFindings(
                name,
                actions,
                part.mode == "report",
                self.reasons,
                self.order,
                findings=findings,
                rules=rules,
                reported=tuple(rule for rule in self.order if rule not in actions),
                changes=self.changes,
            )
