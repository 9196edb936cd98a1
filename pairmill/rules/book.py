"""``prefix_config.yaml``: how much of each task is sampled. The first rule that matches the task's name applies.

Source of the format's first half: data_io's sampler (docs/format.md section 5). It is YAML 1.1, so ``20_000`` is an
integer. What is new in ours, :mod:`pairmill.rules.reading` reads (docs/rules.md).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pairmill import storage
from pairmill.engine.expect import Expectation
from pairmill.engine.manifest import fingerprint_from
from pairmill.engine.options import Profile
from pairmill.errors import InputError, UsageError
from pairmill.log import event
from pairmill.plain_yaml import read_plain
from pairmill.rules import DEFAULT_FILE
from pairmill.rules.clause import AMOUNTS, Clause, Group, Top
from pairmill.rules.match import KEYS, Matcher, Selector
from pairmill.rules.reading import NEW, OF_GROUP, read_clauses, read_top
from pairmill.rules.rule import PER_TASK, Rule

SHIPPED: Final = (
    *("SYNTH__", "flan__cot_", "flan__", "dmmath__", "ampsmathematica__", "tasksource__", "openmathinstruct2__"),
    *("acereason__", "openthoughts2__", "sudoku_extreme__", "Platypus__", "omnimath.jsonl", "gsm8k_train.jsonl"),
    *("math_train.jsonl", "webinstruct_verified.jsonl", "no_robots.jsonl"),
)
"""The prefixes of :data:`DEFAULT` as it ships. Most runs have a few of its data sets: a rule that applies to none of
them is not mistyped."""


class IdleRule(NamedTuple):
    """A rule that applies to no task.

    Args:
        label: what it says of names.
        hidden_by: the label of a rule before it that takes a task that it matches; empty if it matches none.
    """

    label: str
    hidden_by: str = ""


class Rules:
    """An ordered list of rules.

    Args:
        clauses: the rules, in order.
        groups: of the rules; each rule is in one.
        top: what the file says beside them.
        where: the file, for messages.
        raw: the rules as the file has them.
    """

    def __init__(
        self,
        clauses: Sequence[Clause] = (),
        groups: Sequence[Group] = (),
        top: Top | None = None,
        where: str = "",
        raw: Sequence[Any] = (),
    ) -> None:
        self.clauses = tuple(clauses)
        self.groups = tuple(groups)
        self.top = top or Top()
        self.where = where
        self._raw = raw
        self._matcher = Matcher([clause.who for clause in clauses])

    @classmethod
    def from_items(cls, raw: Any, profile: Profile, where: str) -> Rules:
        """Read what a rule file says.

        With ``profile="pairmill"`` everything is checked at once: unknown keys, types, and rules that an earlier
        prefix hides. With ``profile="data_io"`` a rule is checked only when a task reaches it.

        Args:
            raw: a list of rules, or a mapping with ``rules``, as YAML gives it; None has no rules.
            profile: that of the reference knows lists, and its own keys.
            where: the file, for messages.

        Raises:
            UsageError: it is neither, or has a wrong rule.
        """
        top = Top()
        if profile == "pairmill" and isinstance(raw, dict) and not raw.keys() & {*KEYS}:
            top = read_top(raw, where)
            raw = raw.get("rules", raw)
        raw = [] if raw is None else raw
        if not isinstance(raw, list):
            expected = "- prefix: …" if profile == "data_io" else "- prefix: …, or rules: with such a list"
            raise UsageError("not a list of rules", where=where, got=type(raw).__name__, expected=expected)
        if profile == "data_io":
            return ReferenceRules(raw, where)
        clauses, groups = read_clauses(raw, where, top)
        return Rules(clauses, groups, top, where, raw)

    @classmethod
    def load(cls, given: str, profile: Profile, option: str) -> Rules:
        """Read a rule file. Raises UsageError as :func:`read_file` and :meth:`from_items` do."""
        raw, uri = read_file(given, option, repeated=profile == "data_io")
        return cls.from_items(raw, profile, uri)

    def changed(self, group: Group, key: str, value: Any) -> Rules:
        """Return these rules with another value of a key of one of their groups, or with None without the key.

        A key that says what is taken of each task is changed in all rules of the group.

        Raises:
            UsageError: the value is not one of the key, or the group has a key that contradicts it.
        """
        items = [dict(item) for item in self._raw]
        mine = [items[self.clauses[place].number - 1] for place in group.clauses]
        for item in (
            mine if key in PER_TASK else [next((item for item in mine if not {*OF_GROUP}.isdisjoint(item)), mine[0])]
        ):
            item.pop(key, None)
            if key == "max_per_file" and "per_task" in item:
                item["per_task"] = {name: number for name, number in item["per_task"].items() if name != "max_rows"}
            if value is not None:
                item[key] = value
            elif not any(name in item for name in AMOUNTS):  # nothing is left to share out
                for name in OF_GROUP:
                    item.pop(name, None)
        return Rules.from_items({"rules": items, **self.top.raw}, "pairmill", self.where)

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self.clauses

    @property
    def needs_solving(self) -> bool:
        """Whether what is drawn of a task depends on what it and others have."""
        return bool(
            self.top.scale
            or any(group.bounded for group in self.groups)
            or any(clause.needs_solving for clause in self.clauses)
        )

    def match(self, task: str) -> tuple[Rule, bool]:
        """Return the rule of a task, and whether a later rule matches as well (the reference warns of that)."""
        numbers = self._matcher.numbers(task)
        return self.clauses[numbers[0]].rule if numbers else self.top.defaults, len(numbers) > 1

    def clause_of(self, task: str) -> Clause | None:
        """Return the rule of a task as the file says it; None if none matches."""
        number = self._matcher.first(task)
        return None if number < 0 else self.clauses[number]

    def label_of(self, task: str) -> str | None:
        """Return what the rule that applies to a task says of names, such as its prefix; None if none does."""
        clause = self.clause_of(task)
        return None if clause is None else clause.who.label

    def group_of(self, task: str) -> str | None:
        """Return the group of a task, if the file says a name or an amount of it."""
        clause = self.clause_of(task)
        group = None if clause is None or clause.group < 0 else self.groups[clause.group]
        return group.name if group and (group.bounded or group.name != self.label_of(task)) else None

    def on_unmatched(self, option: str) -> str:
        """Return what becomes of tasks that no rule matches: as the option says, or else the file; empty = neither."""
        return option if option != "take" else self.top.unmatched

    def matching(self, task: str) -> list[str]:
        """Return what all rules that match a task say of names; the first of them applies."""
        return [self.clauses[number].who.label for number in self._matcher.numbers(task)]

    def expectations(self) -> list[tuple[str, Expectation]]:
        """Return what rules say that an epoch has of them, by what they say of names; the reference knows no such
        key."""
        return [(clause.who.label, clause.expect) for clause in self.clauses if clause.expect]

    def idle(self, tasks: Iterable[str], *, long_rows: bool = False) -> list[IdleRule]:
        """List the rules, :data:`SHIPPED` apart, that apply to none of these tasks.

        Args:
            tasks: names of tasks.
            long_rows: only of rules that drop or split long rows, because nothing else of them is read.
        """
        used: set[int] = set()
        hidden: dict[int, int] = {}
        for task in tasks:
            for number in (numbers := self._matcher.numbers(task))[1:]:
                hidden.setdefault(number, numbers[0])
            used.update(numbers[:1])
        return [
            IdleRule(clause.who.label, self.clauses[hidden[number]].who.label if number in hidden else "")
            for number, clause in enumerate(self.clauses)
            if number not in used
            and clause.who.label not in SHIPPED
            and (not long_rows or clause.rule.long_context != Rule.long_context)
        ]

    def check_tasks(self, tasks: Iterable[str]) -> None:
        """Check that the words that data_io does not have fit these tasks.

        Raises:
            InputError: no task is matched by a ``match:`` or ``re:`` without an ``expect:``, or groups with names of
                their own match the same task.
        """
        globs = [at for at, clause in enumerate(self.clauses) if clause.who.globs or clause.who.regex]
        if not globs and not any(map(self._named_group, range(len(self.clauses)))):
            return
        matched: set[int] = set()
        for task in tasks:
            numbers = self._matcher.numbers(task)
            matched.update(numbers)
            groups = {name: number for number in reversed(numbers) if (name := self._named_group(number))}
            if len(groups) > 1:
                (second, later), (first, number) = list(groups.items())[-2:]
                label = self.clauses[number].who.label.removeprefix("match ")
                raise InputError(
                    f"a task is in two groups, {first!r} and {second!r}",
                    where=self.clauses[later].where,
                    got=task,
                    expected="groups of different tasks",
                    hint=f"write what the first has as `not:` of the second, as in not: {label!r}",
                )
        for clause in (self.clauses[number] for number in globs if number not in matched):
            if not clause.expect:
                raise InputError(
                    "matches no task",
                    where=clause.where,
                    got=clause.who.label,
                    hint='mend it or leave it out; with expect: {rows: ">=0"} it may match nothing',
                )

    def _named_group(self, number: int) -> str:
        """Return the group of a rule if the file gives it a name; empty = it does not."""
        clause = self.clauses[number]
        name = self.groups[clause.group].name if clause.group >= 0 else ""
        return "" if name == clause.who.label else name

    def warn_of_idle(self, tasks: Iterable[str]) -> None:
        """Log the rules that apply to none of these tasks."""
        idle = self.idle(tasks)
        if idle:
            named = ", ".join(repr(item.label) for item in idle)
            event(f"{self.where}: rules that apply to no task: {named}", level=logging.WARNING)

    def of_long_rows(self, before: str) -> Rules:
        """Return what the rules say of long rows, and nothing else, for tasks whose names have ``before`` before
        them."""
        clauses = [
            replace(
                Clause(number=clause.number, where=clause.where, who=clause.who.below(before)),
                rule=Rule(long_context=self._rule(clause).long_context),
            )
            for clause in self.clauses
        ]
        default = self.top.defaults.long_context
        top = Top(Rule(long_context=default), raw={} if default == "truncate" else {"long_context": default})
        raw = [{**clause.who.to_manifest(), "long_context": clause.rule.long_context} for clause in clauses]
        return Rules(clauses, (), top, self.where, raw)

    def digest(self) -> str:
        """Content identity, for fingerprints."""
        # What is expected decides nothing.
        items = [
            {key: value for key, value in item.items() if key != "expect"} if isinstance(item, dict) else item
            for item in self._raw
        ]
        whole = {"rules": items, **self.top.raw} if self.top.raw else items
        if any(group.share is not None or group.tokens for group in self.groups):
            rules = (self.top.defaults, *(clause.rule for clause in self.clauses))
            if any(rule.passes_total is not None for rule in rules):
                whole = {"rules": whole, "passes_total": "first"}  # it was last: other rows were drawn
        return fingerprint_from(json.loads(json.dumps(whole, default=str)))

    def _rule(self, clause: Clause) -> Rule:
        return clause.rule


class ReferenceRules(Rules):
    """Rules as the reference takes them: a rule is looked at when a task reaches it, and unknown keys are ignored."""

    def __init__(self, items: Sequence[Any], where: str) -> None:
        prefixes = [item.get("prefix") if isinstance(item, dict) else None for item in items]
        clauses = [
            Clause(number=number, where=f"{where} rule {number}", who=Selector(prefixes=(prefix,)))
            for number, prefix in enumerate(prefixes, 1)
            if isinstance(prefix, str)
        ]
        super().__init__(clauses, where=where, raw=items)
        for number, item in enumerate(items, 1):
            newer = [key for key in item if key in NEW] if isinstance(item, dict) else []
            if newer:
                raise UsageError(
                    f"data_io's sampler does not know {newer[0]}, and would take no notice of it",
                    where=f"{where} rule {number}",
                    hint="leave it out, or use profile=pairmill",
                )
        self._without = next((at for at, prefix in enumerate(prefixes) if not isinstance(prefix, str)), len(items))

    def match(self, task: str) -> tuple[Rule, bool]:
        # The search ends at a second match, so what comes after it may be anything.
        reached = [self.clauses[number] for number in self._matcher.numbers(task)[:2]]
        if reached and reached[0].number <= self._without:
            rule = self._rule(reached[0])
        if (len(reached) < 2 or reached[1].number > self._without) and self._without < len(self._raw):
            raise UsageError(
                "the rule has no prefix",
                where=f"{self.where} rule {self._without + 1}",
                got=repr(self._raw[self._without]),
                expected="prefix: text",
            )
        return (rule, len(reached) > 1) if reached else (Rule(), False)

    def _rule(self, clause: Clause) -> Rule:
        item = self._raw[clause.number - 1]
        values: dict[str, Any] = {}
        for key in ("max_per_file", "repeat"):
            value = _coerced(item.get(key, getattr(Rule, key)))
            if value is None and key != "repeat":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
                raise UsageError(
                    f"{key} is not a count", where=clause.where, got=repr(item[key]), expected="an integer of 0 or more"
                )
            values[key] = value
        long_context = item.get("long_context", "truncate")
        if long_context not in ("truncate", "drop"):
            raise UsageError(
                "long_context is not valid", where=clause.where, got=repr(long_context), expected="truncate or drop"
            )
        return Rule(long_context=long_context, **values)


def read_file(given: str, option: str, *, repeated: bool = True) -> tuple[Any, str]:
    """Return what a rule file says, as YAML gives it, and its URI.

    An absent :data:`DEFAULT` says nothing, and a warning is logged. ``repeated`` allows a key to occur twice.

    Raises:
        UsageError: the file is absent and not the default, or not YAML.
    """
    uri = storage.normalise(given, option)
    store = storage.store_for(uri)
    if store.exists(uri):
        return read_plain(store.read(uri), uri, repeated=repeated), uri
    if given != DEFAULT_FILE:
        raise UsageError(
            "the rule file does not exist",
            where=f"{option}={uri}",
            hint="the published mix is prefix_config.yaml in the repository",
        )
    event(
        f"no {DEFAULT_FILE} in the working directory: every task is sampled completely; set {option}= to use rules",
        level=logging.WARNING,
    )
    return None, uri


def _coerced(value: Any) -> Any:
    # The reference accepts integral floats and numeric texts as integers.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
        return int(value)
    return value
