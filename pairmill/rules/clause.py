"""What a rule file says, rule by rule and group by group. What it means in rows of each task, the solver decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pairmill.engine.expect import Expectation
from pairmill.rules.match import Selector
from pairmill.rules.rule import Rule

Count = Literal["all", "response"]
"""Which tokens of a row count: of prompt and response, or of the response."""
Within = Literal["size", "sqrt", "even", "unimax"]
"""How what a group gets is shared out over its tasks: by their sizes, by the square roots of these, evenly, or as
evenly as their sizes allow."""


class LengthClass(NamedTuple):
    """A class of rows by their length.

    Args:
        upto: the longest row in tokens, prompt and response; None = no limit. It begins after the class before.
        share: of the rows that an epoch has of the task, 0 to 1.
        no_repeat: a row occurs once in an epoch at most, however few the class has.
    """

    upto: int | None
    share: float
    no_repeat: bool = False


class Budget(NamedTuple):
    """Tokens of an epoch: as many as ``tokens``, or ``fraction`` of what the group ``group`` gets.

    Args:
        tokens: None = those of a group.
        fraction: of the group; may be above 1.
        group: a name, or the label of a rule without one.
    """

    tokens: int | None = None
    fraction: float = 1.0
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The tasks of one rule, or of the rules with one ``group:``, and what an epoch has of them before ``repeat``.

    Args:
        name: as the file says it; without, the label of its one rule.
        clauses: places of its rules in :attr:`Rules.clauses`.
        where: file and number of the rule that has its keys, for messages.
        max_rows: the most rows.
        max_tokens: the most tokens, of which ``count`` counts; ``count`` is for nothing else.
        fraction: so much of its rows, 0 to 1.
        passes: rows of an epoch by its rows; with ``share`` or ``tokens`` the largest such number (None = 1).
        share: so much of all tokens of the epoch, prompt and response, 0 to 1.
        tokens: how many, prompt and response.
        within: how it is shared out over its tasks.
        weights: globs of tasks, of which the first that matches gives the factor in the sharing out.
    """

    name: str
    clauses: tuple[int, ...]
    where: str
    max_rows: int | None = None
    max_tokens: int | None = None
    count: Count = "all"
    fraction: float | None = None
    passes: float | None = None
    share: float | None = None
    tokens: Budget | None = None
    within: Within = "size"
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        """Whether it says how much an epoch has of all its tasks together."""
        return any(getattr(self, name) is not None for name in AMOUNTS)


AMOUNTS = ("max_rows", "max_tokens", "fraction", "passes", "share", "tokens")
"""The keys that say how much an epoch has of a group."""


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A rule as its file says it.

    Args:
        number: in its file, from 1.
        where: file and number, for messages.
        who: the tasks that it is for; of rules that are for one task the first counts.
        rule: what each of its tasks has, with the file's defaults.
        max_tokens: of each task, prompt and response; None = no limit.
        fraction: of the rows of each task, 0 to 1; None = all.
        group: place in :attr:`Rules.groups`.
        weight: of each of its tasks when its group is shared out, times that of the group's ``weights``.
        select_rows: URI of the rows that may be drawn, of all its tasks; empty = all rows.
        keep_together: the attribute whose rows with one value are drawn all or none; empty = none.
        lengths: classes of rows by length.
        skip: its tasks are left out on purpose.
        expect: what an epoch has of it.
    """

    number: int
    where: str
    who: Selector
    rule: Rule = Rule()
    max_tokens: int | None = None
    fraction: float | None = None
    group: int = -1
    weight: float = 1.0
    select_rows: str = ""
    keep_together: str = ""
    lengths: tuple[LengthClass, ...] = ()
    skip: bool = False
    expect: Expectation | None = None

    @property
    def needs_solving(self) -> bool:
        """Whether more than ``rule`` says what is drawn of its tasks, its group apart."""
        return bool(
            self.max_tokens is not None
            or self.fraction is not None
            or self.select_rows
            or self.keep_together
            or self.lengths
        )


@dataclass(frozen=True)
class Scale:
    """One factor on all caps, so that an epoch has ``to`` tokens.

    Args:
        where: of the file, for messages.
        to: tokens, of which ``count`` counts.
        keep: what stays as it is: ``repeat`` = tasks of rules with ``repeat`` above 1; otherwise names of groups.
    """

    where: str
    to: int
    count: Count = "all"
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Top:
    """What a rule file says beside its rules.

    Args:
        defaults: of tasks that no rule matches, and of keys that a rule leaves out.
        scale: None = caps count as they are.
        unmatched: what becomes of tasks that no rule matches; empty = the option says it.
        expect: what an epoch has.
        raw: as the file has it, without what decides nothing.
    """

    defaults: Rule = Rule()
    scale: Scale | None = None
    unmatched: Literal["", "take", "leave", "refuse"] = ""
    expect: Expectation | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
