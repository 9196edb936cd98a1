"""``prefix_config.yaml``: how much of each task is sampled. The first rule that matches the task's name applies.

Source of the format: data_io's sampler (docs/format.md section 5). It is YAML 1.1, so ``20_000`` is an integer.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pairmill import storage
from pairmill.engine.expect import Expectation
from pairmill.engine.manifest import fingerprint_from
from pairmill.engine.options import Profile
from pairmill.errors import UsageError, did_you_mean
from pairmill.formats.settings_file import refuse_unusable
from pairmill.log import event

DEFAULT = "prefix_config.yaml"
"""The default rule file, in the working directory. It is optional."""

SHIPPED = (
    *("SYNTH__", "flan__cot_", "flan__", "dmmath__", "ampsmathematica__", "tasksource__", "openmathinstruct2__"),
    *("acereason__", "openthoughts2__", "sudoku_extreme__", "Platypus__", "omnimath.jsonl", "gsm8k_train.jsonl"),
    *("math_train.jsonl", "webinstruct_verified.jsonl", "no_robots.jsonl"),
)
"""The prefixes of :data:`DEFAULT` as it ships. Most runs have a few of its data sets: a rule that applies to none of
them is not mistyped."""

LongContext = Literal["truncate", "drop", "split"]


@dataclass(frozen=True)
class Rule:
    """How much of a task is taken per epoch.

    Args:
        max_per_file: rows; None = all.
        long_context: for a row longer than the context: truncate the response, drop the row, or split the response
            over several rows (not in data_io).
        repeat: how often the rows are repeated (for a small, precious data set).
        max_response_tokens_per_file: take rows until their responses have this many tokens per epoch, before
            repeat; None = no limit. Not in data_io.
    """

    max_per_file: int | None = None
    long_context: LongContext = "truncate"
    repeat: int = 1
    max_response_tokens_per_file: int | None = None


_KEYS = ("prefix", *(item.name for item in fields(Rule)), "expect")
_MEASURES = ("rows", "tokens", "share")


class Rules:
    """An ordered list of rules."""

    def __init__(self, items: list[Any], profile: Profile, where: str) -> None:
        self._items = items
        self._profile: Profile = profile
        self._where = where
        if profile == "pairmill":
            self._check_all()

    @classmethod
    def load(cls, given: str, profile: Profile, option: str) -> Rules:
        """Read a rule file.

        An empty file has no rules. An absent :data:`DEFAULT` has none either, and a warning is logged.

        With ``profile="pairmill"`` everything is checked at once: unknown keys, types, and rules that an earlier
        prefix hides. With ``profile="data_io"`` a rule is checked only when a task reaches it.

        Raises:
            UsageError: the file is absent and not the default, not YAML, not a list of rules, or has a wrong rule.
        """
        import yaml

        uri = storage.normalise(given, option)
        store = storage.store_for(uri)
        if not store.exists(uri) and given == DEFAULT:
            event(
                f"no {DEFAULT} in the working directory: every task is sampled completely; set {option}= to use rules",
                level=logging.WARNING,
            )
            return cls([], profile, uri)
        if not store.exists(uri):
            raise UsageError(
                "the rule file does not exist",
                where=f"{option}={uri}",
                hint="the published mix is prefix_config.yaml in the repository",
            )
        try:
            data = store.read(uri)
            refuse_unusable(yaml.compose(data, yaml.SafeLoader), uri)
            raw = yaml.safe_load(data)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UsageError("not valid YAML", where=uri, got=" ".join(str(error).split())) from error
        if raw is None:
            raw = []
        if not isinstance(raw, list):
            raise UsageError("not a list of rules", where=uri, got=type(raw).__name__, expected="- prefix: …")
        return cls(raw, profile, uri)

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self._items

    def match(self, task: str) -> tuple[Rule, bool]:
        """Return the rule of a task, and whether a later rule matches as well (the reference warns of that)."""
        result: Rule | None = None
        for number, item in enumerate(self._items):
            if not isinstance(item, dict) or not isinstance(item.get("prefix"), str):
                raise UsageError(
                    "the rule has no prefix", where=self._place(number), got=repr(item), expected="prefix: text"
                )
            if task.startswith(item["prefix"]):
                if result is not None:
                    return result, True
                result = self._rule(number, item)
        return result or Rule(), False

    def prefix_of(self, task: str) -> str | None:
        """Return the prefix of the rule that applies to a task; None if none does."""
        number = self._first(task)
        return None if number is None else str(self._items[number]["prefix"])

    def matching(self, task: str) -> list[str]:
        """Return the prefixes of all rules that match a task; the first of them applies."""
        return [prefix for _, prefix in self._prefixes() if task.startswith(prefix)]

    def expectations(self) -> list[tuple[str, Expectation]]:
        """Return what rules say that an epoch has of them, by prefix; the reference knows no such key."""
        return [
            (prefix, Expectation.parse(self._items[number]["expect"], self._place(number), _MEASURES))
            for number, prefix in self._prefixes()
            if self._profile == "pairmill" and "expect" in self._items[number]
        ]

    def idle(self, tasks: Iterable[str], *, long_rows: bool = False) -> list[str]:
        """List the prefixes, :data:`SHIPPED` apart, of the rules that apply to none of these tasks.

        Args:
            tasks: names of tasks.
            long_rows: only of rules that drop or split long rows, because nothing else of them is read.
        """
        used = {self._first(task) for task in tasks}
        result = [(number, prefix) for number, prefix in self._prefixes() if number not in used]
        usual = Rule.long_context
        return [
            prefix
            for number, prefix in result
            if prefix not in SHIPPED and (not long_rows or self._items[number].get("long_context", usual) != usual)
        ]

    def warn_of_idle(self, tasks: Iterable[str]) -> None:
        """Log the rules that apply to none of these tasks."""
        idle = self.idle(tasks)
        if idle:
            named = ", ".join(map(repr, idle))
            event(f"{self._where}: rules that apply to no task: {named}", level=logging.WARNING)

    def _first(self, task: str) -> int | None:
        return next((number for number, prefix in self._prefixes() if task.startswith(prefix)), None)

    def _prefixes(self) -> list[tuple[int, str]]:
        # With profile="data_io" an item that no task reaches may be anything.
        pairs = ((number, item.get("prefix")) for number, item in enumerate(self._items) if isinstance(item, dict))
        return [(number, prefix) for number, prefix in pairs if isinstance(prefix, str)]

    def of_long_rows(self, before: str) -> Rules:
        """Return what the rules say of long rows, and nothing else, for tasks whose names have ``before`` before
        them."""
        items = [
            {"prefix": before + prefix, "long_context": self._rule(number, self._items[number]).long_context}
            for number, prefix in self._prefixes()
        ]
        return Rules(items, self._profile, self._where)

    def digest(self) -> str:
        """Content identity, for fingerprints."""
        # What is expected decides nothing.
        items = [
            {key: value for key, value in item.items() if key != "expect"} if isinstance(item, dict) else item
            for item in self._items
        ]
        return fingerprint_from(json.loads(json.dumps(items, default=str)))

    def _place(self, number: int) -> str:
        return f"{self._where} rule {number + 1}"

    def _check_all(self) -> None:
        seen: list[str] = []
        for number, item in enumerate(self._items):
            where = self._place(number)
            if not isinstance(item, dict) or not isinstance(item.get("prefix"), str):
                raise UsageError("the rule has no prefix", where=where, got=repr(item), expected="prefix: text")
            for key in item:
                if key not in _KEYS:
                    hint = did_you_mean(str(key), _KEYS)
                    raise UsageError(f"unknown key {key!r}", where=where, expected=", ".join(_KEYS), hint=hint)
            hidden_by = next((prefix for prefix in seen if item["prefix"].startswith(prefix)), None)
            if hidden_by is not None:
                raise UsageError(
                    f"the rule for {item['prefix']!r} can never apply",
                    where=where,
                    got=f"{hidden_by!r} before it",
                    hint="the first match wins: put the longer prefix first",
                )
            seen.append(item["prefix"])
            self._rule(number, item)
        self.expectations()

    def _rule(self, number: int, item: dict[str, Any]) -> Rule:
        where = self._place(number)
        values: dict[str, Any] = {}
        for key in ("max_per_file", "repeat", "max_response_tokens_per_file"):
            if key not in item or (self._profile == "data_io" and key == "max_response_tokens_per_file"):
                continue
            value = item[key] if self._profile == "pairmill" else _coerced(item[key])
            if value is None and key != "repeat":
                continue
            count = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
            if not count or (value < 0 and self._profile == "pairmill"):
                raise UsageError(
                    f"{key} is not a count", where=where, got=repr(item[key]), expected="an integer of 0 or more"
                )
            values[key] = value
        long_context = item.get("long_context", "truncate")
        known = ("truncate", "drop", "split") if self._profile == "pairmill" else ("truncate", "drop")
        if long_context not in known:
            raise UsageError(
                "long_context is not valid",
                where=where,
                got=repr(long_context),
                expected=f"{', '.join(known[:-1])} or {known[-1]}",
            )
        return Rule(long_context=long_context, **values)


def _coerced(value: Any) -> Any:
    # The reference accepts integral floats and numeric texts as integers.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
        return int(value)
    return value


def reference_json(rule: Rule) -> str:
    """Return a rule as the reference's warning prints it."""
    raw = asdict(rule)
    del raw["max_response_tokens_per_file"]
    return json.dumps(raw, separators=(",", ":"))
