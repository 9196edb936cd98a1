"""A ladder of values of one key of a group: what each would take."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pairmill.errors import UsageError, did_you_mean
from pairmill.rules.book import Rules
from pairmill.rules.clause import AMOUNTS, Group
from pairmill.rules.rule import PER_TASK
from pairmill.stages.sample.preview.expected import Expected, Forecast

WITHOUT: Final = "uncapped"
"""The value that leaves a key out."""
_KEYS: Final = (*(key for key in AMOUNTS if key != "tokens"), *(key for key in PER_TASK if key != "long_context"))
_LINE: Final = "what_if='group=<name> max_rows=5000,100000,uncapped'"
_PARTS: Final = re.compile(r"(?:^|\s+)([a-z_]+)=")
_WHOLE: Final = re.compile(r"[0-9][0-9_]*")
_REAL: Final = re.compile(r"[0-9_]*\.?[0-9_]+(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Step:
    """What a group would have with a value.

    Attributes:
        value: as the option says it.
        group: what it has then.
        epoch_tokens: tokens of an epoch then, of all tasks.
    """

    value: str
    group: Expected
    epoch_tokens: float


@dataclass(frozen=True)
class Ladder:
    """Values of a key of a group, in the order given.

    Attributes:
        key: what is tried.
        now: tokens that an epoch has of it as the rules are.
        steps: of each value.
    """

    group: str
    key: str
    now: float
    steps: list[Step]


def try_values(text: str, rules: Rules, now: Forecast, solve: Callable[[Rules], Forecast]) -> Ladder:
    """Solve the rules with each value of an option ``what_if``.

    Args:
        text: the option.
        rules: as they are.
        now: what they take.
        solve: forecasts other rules.

    Raises:
        UsageError: it is not such a text, there is no such group, or a value is not one of the key.
    """
    name, key, values = _parsed(text)
    groups = {group.name: group for group in rules.groups}
    if name not in groups:
        raise UsageError(
            f"no rule or group is called {name!r}",
            where="what_if",
            expected=", ".join(groups) or "a group: the rules are empty",
            hint=did_you_mean(name, groups) or _LINE,
        )
    have = {line.name: line for line in now.groups}
    steps = [*_steps(groups[name], key, values, rules, solve)]
    return Ladder(name, key, have[name].tokens if name in have else 0.0, steps)


def _steps(
    group: Group, key: str, values: list[str], rules: Rules, solve: Callable[[Rules], Forecast]
) -> Iterator[Step]:
    for value in values:
        forecast = solve(rules.changed(group, key, _number(value)))
        line = next((line for line in forecast.groups if line.name == group.name), None)
        if line is None:
            raise UsageError("the group has no task", where="what_if", got=repr(group.name), hint="try another group")
        yield Step(value, line, float(forecast.solved.tokens.sum()))


def _parsed(text: str) -> tuple[str, str, list[str]]:
    before, *parts = _PARTS.split(text)  # what a rule says of names may have blanks
    given = {key: value.strip().strip("\"'") for key, value in zip(parts[::2], parts[1::2], strict=True)}
    if before.strip() or len(parts) != 4 or "group" not in given or len(given) != 2 or not all(given.values()):
        raise UsageError("not a group and a key with values", where="what_if", got=repr(text), expected=_LINE)
    key = next(key for key in given if key != "group")
    if key not in _KEYS:
        raise UsageError(
            f"unknown key {key!r}", where="what_if", expected=", ".join(_KEYS), hint=did_you_mean(key, _KEYS)
        )
    return given["group"], key, given[key].split(",")


def _number(text: str) -> Any:
    """Return what YAML makes of a value; the reader of rules says what is wrong with it."""
    if text == WITHOUT:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text
