"""Bounds of attributes of any operation: the operation ``filter``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pairmill.errors import UsageError
from pairmill.rowstage import Task
from pairmill.stages.curate.operation import Column, Learned, Operation, Reasons, TaskFindings
from pairmill.stages.curate.rules import Mode, Rule


@dataclass(frozen=True, kw_only=True)
class FilterRule:
    """Bounds of any attribute.

    Args:
        name: of the rule, in decisions and in the ledger.
        attribute: <operation>.<column>, such as heuristics.r_url_ratio or source.date.
        min: least value that is kept.
        max: greatest value that is kept.
        in_: values that are kept.
        mode: of this rule; null = the filter's.
    """

    name: str
    attribute: str
    min: float | None = None
    max: float | None = None
    in_: list[str] | None = None
    mode: Mode | None = None

    def __post_init__(self) -> None:
        if not self.name or not all(one.isalnum() or one in "_-." for one in self.name):
            raise UsageError("not a name", where="name", got=repr(self.name), expected="letters, digits, _, - and .")
        operation, dot, column = self.attribute.partition(".")
        if not (operation and dot and column):
            raise UsageError(
                "not an attribute", where="attribute", got=repr(self.attribute), expected="<operation>.<column>"
            )
        if self.min is None and self.max is None and self.in_ is None:
            raise UsageError("the rule has no bound", where="", expected="min, max or in")

    def rule(self) -> Rule:
        """The same as a rule."""
        return Rule(self.name, self.attribute, self.min, self.max, None if self.in_ is None else tuple(self.in_))


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """Bounds of attributes of any operation.

    Args:
        mode: drop, report or off.
        rules: items {name, attribute: <operation>.<column>, min, max, in, mode}.
    """

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "rules")

    mode: Mode = "report"
    rules: list[FilterRule] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [one.name for one in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise UsageError("two rules have one name", where="rules", got=name, expected="a name of its own")


class _Filter(Operation[FilterSettings]):
    def is_idle(self, own: FilterSettings) -> bool:
        return own.mode == "off" or not own.rules

    def bounds(self, own: FilterSettings) -> Iterator[tuple[str, Rule]]:
        yield from ((one.attribute, one.rule()) for one in own.rules)

    def find(self, own: FilterSettings, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        files = learned.attributes(task)
        rules: dict[str, list[tuple[Rule, Column]]] = {"drop": [], "report": []}
        for one in own.rules:
            mode, (operation, _, name) = one.mode or own.mode, one.attribute.partition(".")
            if mode != "off" and operation in files:
                rules[mode].append((one.rule(), Column(files[operation], name)))
        every = (*rules["drop"], *rules["report"])
        if every:
            actions = {rule.name: "drop" for rule, _ in rules["drop"] or every}
            yield TaskFindings(
                self.name,
                actions,
                not rules["drop"],
                self.reasons,
                rules=every,
                reported=tuple(rule.name for rule, _ in every if rule.name not in actions),
            )


FILTER: Final = _Filter(
    name="filter",
    settings=FilterSettings,
    help="bounds of any attribute",
    reasons=Reasons("filter:{rule}"),
)
