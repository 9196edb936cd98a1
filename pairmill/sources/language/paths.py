"""Paths into a record, as YAML sources write them: keys of objects, places in lists, elements by one of their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pairmill.errors import UsageError

MISSING: Final = object()
"""What a path finds that leads nowhere."""

MAX_PATH_CHARACTERS = 200
PATHS = "a path such as question, meta.language, messages[0].content, messages[role=user].content, ['a column']"

_QUOTED = r"'[^']*'|\"[^\"]*\""
_STEP = re.compile(
    rf"""(?:^|(?<=.)\.)(?P<name>[\w-]+)
    | \[(?P<index>-?[0-9]{{1,6}})\]
    | \[(?P<quoted>{_QUOTED})\]
    | \[(?P<key>[\w-]+)=(?P<value>[\w-]+|{_QUOTED})\]""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[\w-]+")


class First(NamedTuple):
    """A step to the first element of a list whose ``key`` is the text ``value``."""

    key: str
    value: str

    def fits(self, item: Any) -> bool:
        """Return whether this is such an element."""
        return isinstance(item, dict) and item.get(self.key) == self.value


Step = str | int | First


@dataclass(frozen=True)
class Path:
    """A way into a record."""

    text: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Raise UsageError, without a place, if ``text`` is not a path."""
        if len(text) > MAX_PATH_CHARACTERS:
            expected = f"at most {MAX_PATH_CHARACTERS}"
            raise UsageError("the path is too long", got=f"{len(text)} characters", expected=expected)
        steps: list[Step] = []
        place = 0
        while place < len(text) and (result := _STEP.match(text, place)):
            steps.append(_step(result))
            place = result.end()
        if place < len(text) or not steps or not isinstance(steps[0], str):
            hint = "write the paths of a template in braces: 'Solve: {question}'" if " " in text else ""
            raise UsageError("not a valid path", got=repr(text), expected=PATHS, hint=hint)
        return cls(text, tuple(steps))

    @property
    def column(self) -> str:
        """The field of the record that the path starts at."""
        assert isinstance(self.steps[0], str)
        return self.steps[0]

    def find(self, record: Any) -> Any:
        """Return the value at the path: MISSING if it leads nowhere, None if it meets a null."""
        value = record
        for step in self.steps:
            if value is None:
                return None
            value = value.get(step, MISSING) if type(value) is dict and type(step) is str else _below(value, step)
            if value is MISSING:
                return MISSING
        return value

    def reach(self, record: Any) -> tuple[int, Any]:
        """Return how many of the steps lead somewhere, and what is there."""
        value = record
        for depth, step in enumerate(self.steps):
            below = _below(value, step)
            if below is MISSING:
                return depth, value
            value = below
        return len(self.steps), value

    def up_to(self, depth: int) -> str:
        """Return its first ``depth`` steps as they are written."""
        return "".join(map(_written, self.steps[:depth])).removeprefix(".")

    def instead(self, depth: int, step: Step) -> Path:
        """Return the path with another step at ``depth``."""
        steps = (*self.steps[:depth], step, *self.steps[depth + 1 :])
        return Path("".join(map(_written, steps)).removeprefix("."), steps)


def _below(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return value.get(step, MISSING) if isinstance(value, dict) else MISSING
    if not isinstance(value, list):
        return MISSING
    if isinstance(step, int):
        return value[step] if -len(value) <= step < len(value) else MISSING
    return next((item for item in value if step.fits(item)), MISSING)


def _written(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if isinstance(step, First):
        return f"[{step.key}={step.value if _PLAIN.fullmatch(step.value) else _quoted(step.value)}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f"[{_quoted(step)}]"


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _step(match: re.Match[str]) -> Step:
    name, index, quoted, key, value = match.group("name", "index", "quoted", "key", "value")
    if name is not None:
        return str(name)
    if index is not None:
        return int(index)
    if quoted is not None:
        return str(quoted[1:-1])
    return First(key, value[1:-1] if value[0] in "'\"" else value)
