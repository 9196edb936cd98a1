"""A rule file, read and checked: every mistake names the file, the rule and the line to write."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from pairmill.engine.expect import AUDITED, Expectation
from pairmill.errors import UsageError, did_you_mean
from pairmill.rules import match
from pairmill.rules.clause import AMOUNTS, Budget, Clause, Count, Group, LengthClass, Scale, Top, Within
from pairmill.rules.match import Matcher, Selector
from pairmill.rules.rule import PER_TASK, Rule

OF_GROUP: Final = (*AMOUNTS, "count", "within", "weights")
_OF_GROUP: Final = frozenset(OF_GROUP)
_OF_RULE: Final = ("expect", "per_task", "group", "weight", "select_rows", "keep_together", "lengths", "skip")
KEYS: Final = (*match.KEYS, *PER_TASK, *_OF_RULE, *OF_GROUP)
NEW: Final = (*match.KEYS[1:], *_OF_RULE[1:], *OF_GROUP, "passes_total")
"""The keys that the reference does not know; it would ignore them."""
TOP: Final = ("rules", "defaults", "scale", "unmatched", "expect")
MEASURES: Final = ("rows", "tokens", "share")
_COUNTS: Final = ("max_per_file", "repeat", "max_response_tokens_per_file", "passes_total")
_MOST_PASSES: Final = 254
"""Passes are counted in a byte, whose largest number is that many or more."""
_LONG_CONTEXT: Final = ("truncate", "drop", "split")
_LINES: Final = {
    "max_rows": "max_rows: 50_000",
    "max_tokens": "max_tokens: 1.2e9",
    "fraction": "fraction: 0.25",
    "passes": "passes: 2",
    "share": "share: 33% of epoch",
    "tokens": "tokens: 1.2e9, or tokens: 0.25 of <group>",
    "weight": "weight: 0.5",
    "to": "to: 2e9",
}
_APART: Final = (
    ("share", "tokens"),
    *((amount, limit) for amount in ("share", "tokens") for limit in ("max_rows", "max_tokens", "fraction")),
    ("fraction", "passes"),
)
_ELSEWHERE: Final = {
    "skip_unmatched": "unmatched: leave",
    "default_long_context": "defaults: {long_context: drop}",
    "length_bins": "lengths: [{upto: 512, share: 30%}, {share: 70%}] in each rule",
    "selection_indices_path": "select_rows: <path>",
}
"""Keys that versions of data_io have, and ours."""
_LIMITS: Final = ("max_rows", "max_tokens", "fraction")
_OF_EACH: Final = "; a limit of each task is below per_task:"
_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]{1,2})?"
_SHARE: Final = re.compile(rf"\s*({_NUMBER})\s*%(?:\s+of\s+epoch)?\s*")
_OF: Final = re.compile(rf"\s*({_NUMBER})(\s*%)?\s+of\s+(\S.*?)\s*")


class _Keys:
    """A mapping of the file whose keys are checked as they are read."""

    def __init__(self, item: Any, where: str, known: Collection[str], below: str = "", number: int = 0) -> None:
        self.where, self._below, self.number = where, below, number
        if not isinstance(item, dict):
            expected = f"{below}: {{{', '.join(known)}}}" if below else ""
            raise UsageError(f"{below or 'it'} is not a mapping", where=where, got=repr(item), expected=expected)
        self.item: Mapping[str, Any] = item
        for key in item:
            if key not in known:
                raise UsageError(
                    f"unknown key {key!r}{f' in {below}' if below else ''}",
                    where=where,
                    expected=", ".join(known),
                    hint=f"write {_ELSEWHERE[key]}" if key in _ELSEWHERE else did_you_mean(str(key), known),
                )

    def __contains__(self, key: str) -> bool:
        return key in self.item

    def wrong(self, key: str, what: str, expected: str = "", hint: str = "") -> UsageError:
        """Make the error to raise for the value of a key."""
        hint = hint or (f"write {_LINES[key]}" if key in _LINES else "")
        name = f"{self._below}.{key}" if self._below else key
        return UsageError(f"{name} {what}", where=self.where, got=repr(self.item[key]), expected=expected, hint=hint)

    def count(self, key: str, least: int = 0) -> int | None:
        """Read a count, which may be written as 1.2e9."""
        if key not in self.item:
            return None
        value = _number(self.item[key])
        if value is None or value != int(value) or not least <= value < 1 << 63:
            raise self.wrong(key, "is not a count", f"an integer of {least} or more")
        return int(value)

    def amount(self, key: str, most: float = math.inf, *, above: bool = True) -> float | None:
        """Read a number above 0 (or from 0 on) and up to ``most``."""
        if key not in self.item:
            return None
        value = _number(self.item[key])
        if value is None or value < 0 or (above and value == 0) or value > most:
            expected = "a number above 0" if above else "a number of 0 or more"
            raise self.wrong(key, "is not valid", expected if most == math.inf else f"{expected}, up to {most:g}")
        return value

    def share(self, key: str, at_most: float = 1.0) -> float | None:
        """Read a share, which is written with %."""
        if key not in self.item:
            return None
        words = _SHARE.fullmatch(self.item[key]) if isinstance(self.item[key], str) else None
        value = float(words[1].replace("_", "")) / 100 if words else -1.0
        if not 0 < value <= at_most:
            hint = "write share: 30%" if self._below else ""  # of lengths: and not of the epoch
            raise self.wrong(key, "is not a share", "a number with %, above 0 % and up to 100 %", hint)
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any) -> Any:
        """Read a word."""
        value = self.item.get(key, default)
        if value not in choices and value != default:
            hint = did_you_mean(str(value), choices)
            raise self.wrong(key, "is not valid", f"{', '.join(choices[:-1])} or {choices[-1]}", hint)
        return value

    def text(self, key: str) -> str:
        """Read a text; empty if the key is absent."""
        value = self.item.get(key, "")
        if key in self.item and (not isinstance(value, str) or not value.strip()):
            raise self.wrong(key, "is not a text", f"{key}: text")
        return str(value)

    def flag(self, key: str) -> bool:
        """Read true or false; false if the key is absent."""
        value = self.item.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "is not valid", "true or false")
        return value


def read_top(raw: Mapping[str, Any], where: str) -> Top:
    """Read what a file says beside its rules.

    Raises:
        UsageError: a key is unknown or its value not valid.
    """
    keys = _Keys(raw, where, TOP)
    defaults = Rule()
    if "defaults" in keys:
        below = _Keys(raw["defaults"], where, ("max_per_file", "repeat", "long_context", "passes_total"), "defaults")
        defaults = _rule(below, Rule())
    expect = (
        Expectation.parse(raw["expect"], where, ("rows", "tokens", "tasks", *AUDITED)) if "expect" in keys else None
    )
    scale = None
    if "scale" in keys:
        below = _Keys(raw["scale"], where, ("to", "count", "keep"), "scale")
        to = below.count("to", 1)
        if to is None:
            raise UsageError("scale says no number of tokens", where=where, expected="scale: {to: 2e9}")
        keep = below.item.get("keep", [])
        if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
            raise below.wrong("keep", "is not a list", "keep: [repeat], or names of groups")
        scale = Scale(where, to, below.choice("count", get_args(Count), "all"), tuple(keep))
    return Top(
        defaults=defaults,
        scale=scale,
        unmatched=keys.choice("unmatched", ("take", "leave", "refuse"), ""),
        expect=expect,
        # To take them is silent, so the plan is not the one that has an alarm; to leave them out is an input.
        raw={
            key: raw[key]
            for key in ("defaults", "scale", "unmatched")
            if key in raw and raw[key] not in ("leave", "refuse")
        },
    )


def read_clauses(items: Sequence[Any], where: str, top: Top) -> tuple[list[Clause], list[Group]]:
    """Read the rules of a file.

    Args:
        items: as YAML gives them.
        where: the file, for messages.
        top: what the file says beside them.

    Raises:
        UsageError: a key is unknown or its value not valid, keys contradict each other, a rule can never apply, or
            two rules have keys of one group.
    """
    clauses: list[Clause] = []
    keys_of: list[_Keys] = []
    groups: dict[tuple[bool, str], list[int]] = {}  # by whether it has a name
    for number, item in enumerate(items, 1):
        place = f"{where} rule {number}"
        if not isinstance(item, dict) or not any(key in item for key in match.KEYS[:3]):
            expected = "prefix: text, match: glob or re: pattern"
            hint = did_you_mean(str(next(iter(item), "")), match.KEYS[:3]) if isinstance(item, dict) else ""
            raise UsageError("the rule has no prefix", where=place, got=repr(item), expected=expected, hint=hint)
        keys = _Keys(item, place, KEYS, number=number)
        who, group = Selector.parse(item, place), keys.text("group")
        members = groups.setdefault((bool(group), group or who.label), [])
        members.append(len(clauses))
        clauses.append(_clause(keys, who, len(groups) - 1 if len(members) == 1 else clauses[members[0]].group, top))
        keys_of.append(keys)
    _refuse_hidden(clauses)
    made = _groups(groups, keys_of, top)
    for number, keys in enumerate(keys_of if top.defaults.max_per_file is not None else ()):
        clause = clauses[number]
        own = "max_per_file" in keys or "max_rows" in (keys.item.get("per_task") or {}) or clause.skip
        if not own and made[clause.group].bounded:  # its group says how much there is of it
            clauses[number] = replace(clause, rule=replace(clause.rule, max_per_file=None))
    return clauses, made


def _clause(keys: _Keys, who: Selector, group: int, top: Top) -> Clause:
    where, item = keys.where, keys.item
    if keys.flag("skip"):
        others = [key for key in item if key not in (*match.KEYS, "skip", "group", "expect")]
        if others:
            raise UsageError(
                f"skip leaves its tasks out, and {others[0]} says how much is taken of them",
                where=where,
                got=f"skip: true and {', '.join(others)}",
                hint="leave skip: true out, or the other keys",
            )
    for first, second in _APART:
        if first in item and second in item:
            raise UsageError(
                f"{first} and {second} both say how much an epoch has of the group",
                where=where,
                got=f"{first}: {item[first]} and {second}: {item[second]}",
                hint=f"leave one of them out{_OF_EACH if second in _LIMITS else ''}",
            )
    clause = Clause(
        number=keys.number,
        where=where,
        who=who,
        rule=Rule(max_per_file=0) if keys.flag("skip") else _rule(keys, top.defaults),
        group=group,
        weight=keys.amount("weight") or 1.0,
        select_rows=keys.text("select_rows"),
        keep_together=keys.text("keep_together"),
        lengths=_lengths(keys) if "lengths" in keys else (),
        skip=keys.flag("skip"),
        expect=Expectation.parse(item["expect"], where, (*MEASURES, *AUDITED)) if "expect" in keys else None,
    )
    return _per_task(clause, keys) if "per_task" in keys else clause


def _rule(keys: _Keys, defaults: Rule) -> Rule:
    """Read the keys that the reference has, and those that are like them."""
    values: dict[str, Any] = {name: None for name in _COUNTS if keys.item.get(name, 0) is None and name != "repeat"}
    values |= {name: keys.count(name) for name in _COUNTS if name in keys and name not in values}
    if (values.get("passes_total") or 0) > _MOST_PASSES:
        raise keys.wrong("passes_total", "is too large", f"at most {_MOST_PASSES}", "leave it out: no limit")
    if "long_context" in keys:
        value = keys.item["long_context"]
        if value not in _LONG_CONTEXT:
            raise keys.wrong("long_context", "is not valid", "truncate, drop or split")
        values["long_context"] = value
    return replace(defaults, **values) if values else defaults


def _per_task(clause: Clause, keys: _Keys) -> Clause:
    """Add what ``per_task:`` says; what today's keys can say becomes theirs."""
    below = _Keys(keys.item["per_task"], keys.where, ("max_rows", "max_tokens", "count", "fraction"), "per_task")
    rows, tokens = below.count("max_rows"), below.count("max_tokens")
    counted = below.choice("count", get_args(Count), "all")
    _refuse_count_alone(below)
    same: dict[str, Any] = {
        "max_per_file": rows,
        "max_response_tokens_per_file": tokens if counted == "response" else None,
    }
    for name, value in same.items():
        if value is None:
            continue
        if name in keys:
            other = "max_rows" if name == "max_per_file" else "max_tokens"
            got = f"{name}: {keys.item[name]} and per_task: {{{other}: {below.item[other]}}}"
            raise UsageError("two keys say the same limit", where=keys.where, got=got, hint="leave one of them out")
        limit: dict[str, Any] = {name: value}
        clause = replace(clause, rule=replace(clause.rule, **limit))
    tokens = tokens if counted == "all" else None
    return replace(clause, max_tokens=tokens, fraction=below.amount("fraction", 1.0, above=False))


def _lengths(keys: _Keys) -> tuple[LengthClass, ...]:
    items = keys.item["lengths"]
    expected = "lengths: [{upto: 512, share: 30%}, {share: 70%}]"
    if not isinstance(items, list) or not items:
        raise keys.wrong("lengths", "is not a list of classes", expected)
    result: list[LengthClass] = []
    before, left = 0, 1.0
    for number, item in enumerate(items, 1):
        below = _Keys(item, keys.where, ("upto", "share", "no_repeat"), f"lengths[{number}]")
        last = number == len(items)
        upto, share = below.count("upto", 1), below.share("share")
        if (upto is None and not last) or (upto is not None and upto <= before):
            got = "no upto" if upto is None else f"upto: {upto} after upto: {before}"
            raise UsageError("lengths: the classes do not ascend", where=keys.where, got=got, expected=expected)
        if share is None and not last:
            raise UsageError(f"lengths[{number}] has no share", where=keys.where, expected=expected)
        left -= share or 0.0
        result.append(LengthClass(upto, left if share is None else share, below.flag("no_repeat")))
        before = upto or before
    last_share = result[-1].share
    if last_share <= 0 or abs(1 - math.fsum(item.share for item in result)) > 1e-9:
        total = math.fsum(item.share for item in result)
        got = f"{total:.6%}" if last_share > 0 else f"{total - last_share:.6%}, and nothing for the last class"
        raise UsageError("lengths: the shares do not add up to 100 %", where=keys.where, got=got, expected=expected)
    return tuple(result)


def _refuse_hidden(clauses: Sequence[Clause]) -> None:
    for number, by in Matcher([clause.who for clause in clauses]).hidden():
        raise UsageError(
            f"the rule for {clauses[number].who.label!r} can never apply",
            where=clauses[number].where,
            got=f"{clauses[by].who.label!r} before it",
            hint="the first match wins: put the longer prefix first",
        )
    first: dict[str, Clause] = {}
    for clause in clauses:
        other = first.setdefault(clause.who.label, clause)
        if other is not clause:
            raise UsageError(
                f"the rule for {clause.who.label!r} can never apply",
                where=clause.where,
                got=f"rule {other.number} for the same tasks",
                hint="leave one of them out",
            )


def _groups(members: Mapping[tuple[bool, str], Sequence[int]], keys_of: Sequence[_Keys], top: Top) -> list[Group]:
    """Read what is said of groups: the rules with one name are one, and each other rule is one of its own."""
    groups: list[Group] = []
    for (named, name), places in members.items():
        of_group = [keys_of[place] for place in places]
        if named and (False, name) in members:
            raise UsageError(
                f"the group {name!r} has the name of another rule's tasks",
                where=of_group[0].where,
                expected="a name of its own, or group: in that rule too",
            )
        groups.append(_group(name, places, of_group))
        shared = [keys for keys in of_group if "weight" in keys]
        if shared and not groups[-1].bounded:
            raise UsageError(
                "weight, and nothing to share out", where=shared[0].where, expected="a group's key: max_rows: 50_000"
            )
    if top.scale:
        known = ["repeat", *(group.name for group in groups)]
        for name in top.scale.keep:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UsageError(
                    f"scale keeps no group of the name {name!r}",
                    where=top.scale.where,
                    expected="repeat, or names of groups",
                    hint=hint,
                )
    return groups


def _group(name: str, places: Sequence[int], keys_of: Sequence[_Keys]) -> Group:
    having = [keys for keys in keys_of if not _OF_GROUP.isdisjoint(keys.item)]
    if len(having) > 1:
        first, second = (next(key for key in OF_GROUP if key in keys) for keys in having[:2])
        got = f"{first} in rule {having[0].number} and {second} in rule {having[1].number}"
        raise UsageError(
            f"two rules say how much an epoch has of the group {name!r}",
            where=having[1].where,
            got=got,
            expected="the keys of a group in one of its rules",
            hint=f"write them in one rule{_OF_EACH}",
        )
    if not having:
        return Group(name=name, clauses=tuple(places), where=keys_of[0].where)
    keys = having[0]
    _refuse_count_alone(keys)
    group = Group(
        name=name,
        clauses=tuple(places),
        where=keys.where,
        max_rows=keys.count("max_rows"),
        max_tokens=keys.count("max_tokens"),
        count=keys.choice("count", get_args(Count), "all"),
        fraction=keys.amount("fraction", 1.0, above=False),
        passes=keys.amount("passes"),
        share=keys.share("share"),
        tokens=_budget(keys, name),
        within=keys.choice("within", get_args(Within), "size"),
        weights=_weights(keys),
    )
    if not group.bounded:
        key = next(key for key in ("within", "weights", "count") if key in keys)
        raise UsageError(f"{key}, and nothing to share out", where=keys.where, expected="with it max_rows: 50_000")
    return group


def _budget(keys: _Keys, group: str) -> Budget | None:
    value = keys.item.get("tokens")
    words = _OF.fullmatch(value) if isinstance(value, str) else None
    if words is None:
        tokens = keys.count("tokens")
        return None if tokens is None else Budget(tokens)
    fraction = float(words[1].replace("_", "")) / (100 if words[2] else 1)
    if words[3] == "epoch":
        raise keys.wrong("tokens", "is a share of the epoch", hint=f"write share: {fraction * 100:g}% of epoch")
    if words[3] == group or not fraction > 0:
        raise keys.wrong("tokens", "is not valid", "a part of what another group gets, such as 0.25 of <group>")
    return Budget(fraction=fraction, group=words[3])


def _weights(keys: _Keys) -> dict[str, float]:
    raw = keys.item.get("weights", {})
    if not isinstance(raw, dict) or ("weights" in keys and not raw) or not all(isinstance(key, str) for key in raw):
        raise keys.wrong("weights", "is not a mapping", 'weights: {"flan__*": 0.5}')
    below = _Keys(raw, keys.where, raw, "weights")
    for glob in raw:
        match.expand(glob, keys.where)
    return {glob: below.amount(glob) or 1.0 for glob in raw}


def _refuse_count_alone(keys: _Keys) -> None:
    if "count" in keys and "max_tokens" not in keys:
        raise keys.wrong("count", "says which tokens count, and nothing counts them", "with it max_tokens: 1.2e9")


def _number(value: Any) -> float | None:
    """Return a number, also one that YAML 1.1 reads as text, such as 1.2e9; None if it is none."""
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        value = float(value.replace("_", ""))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
