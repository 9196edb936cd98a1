"""Bounds of attributes of any operation: the operation ``filter``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from pairmill.fields import COLUMN, NAME, Checked, setting
from pairmill.rowstage import Task
from pairmill.stages.curate.operation import Column, Learned, Mode, Operation, Reasons, Rule, TaskFindings


@dataclass(frozen=True, kw_only=True)
class FilterRule(Checked, any_of=("min", "max", "in_")):
    """Bounds of any attribute."""

    name: str = setting(help="of the rule, in decisions and in the ledger", filled=True, form=NAME)
    attribute: str = setting(help="<operation>.<column>, such as heuristics.r_url_ratio or source.date", form=COLUMN)
    min: float | None = setting(None, help="least value that is kept")
    max: float | None = setting(None, help="greatest value that is kept")
    in_: list[str] | None = setting(None, help="values that are kept")
    mode: Mode | None = setting(None, help="of this rule; null = the filter's")

    def rule(self) -> Rule:
        """Return the same as a rule."""
        return Rule(self.name, self.attribute, self.min, self.max, None if self.in_ is None else tuple(self.in_))


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Checked):
    """Bounds of attributes of any operation."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "rules")

    mode: Mode = setting("report", help="drop, report or off")
    rules: list[FilterRule] = setting(
        [], help="items {name, attribute: <operation>.<column>, min, max, in, mode}", unique="name"
    )


class _Filter(Operation[FilterSettings]):
    def is_idle(self, own: FilterSettings) -> bool:
        return own.mode == "off" or not own.rules

    def bounds(self, own: FilterSettings) -> Iterator[tuple[str, Rule]]:
        yield from ((item.attribute, item.rule()) for item in own.rules)

    def find(self, own: FilterSettings, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        files = learned.attributes(task)
        rules: dict[str, list[tuple[Rule, Column]]] = {"drop": [], "report": []}
        for item in own.rules:
            mode, (operation, _, name) = item.mode or own.mode, item.attribute.partition(".")
            if mode != "off" and operation in files:
                rules[mode].append((item.rule(), Column(files[operation], name)))
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
    name="filter", settings=FilterSettings, help="bounds of any attribute", reasons=Reasons("filter:{rule}")
)
