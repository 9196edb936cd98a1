"""Bounds of attributes of any operation: the part ``filter`` of curate_config.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pairmill.errors import UsageError
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
