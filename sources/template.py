"""Texts made of a record: the text at a path, or a template's words around the texts at its paths."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from pairmill.errors import UsageError
from sources.paths import MISSING, Path
from sources.source import MalformedRecord

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Template:
    """A path, or words with ``{path}`` in them.

    Args:
        written: as it is in the file.
        parts: words and paths, in order.
        braces: whether it has braces; it then takes numbers too, as Python prints them.
    """

    written: str
    parts: tuple[str | Path, ...]
    braces: bool

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises UsageError, without a place, for an invalid path or an unmatched brace."""
        if "{" not in text and "}" not in text:
            return cls(text, (Path.parse(text),), braces=False)
        parts: list[str | Path] = []
        end = 0
        for found in _BRACES.finditer(text):
            parts.append(text[end : found.start()])
            end = found.end()
            if found.group(1) is not None:
                parts.append(Path.parse(found.group(1)))
            elif len(found.group()) == 2:
                parts.append(found.group()[0])
            else:
                expected = "{path}, or {{ and }} for the braces themselves"
                raise UsageError("unmatched brace", got=repr(text), expected=expected)
        made = cls(text, (*parts, text[end:]), braces=True)
        if not made.paths:
            raise UsageError("the text is the same for every record", got=repr(text), expected="a {path} in it")
        return made

    @property
    def paths(self) -> list[Path]:
        """The paths that it reads."""
        return [part for part in self.parts if isinstance(part, Path)]

    def of(self, record: Any) -> str:
        """The text. Raises MalformedRecord if there is none."""
        return "".join([part if isinstance(part, str) else self.at(part, record) for part in self.parts])

    def at(self, path: Path, record: Any) -> str:
        """What one of its paths adds to the text. Raises MalformedRecord if there is nothing to add."""
        value = path.find(record)
        if isinstance(value, str):
            return value
        if value is MISSING:
            raise MalformedRecord(f"missing_{path.text}")
        if value is None:
            raise MalformedRecord(f"null_{path.text}")
        printed = print_number(value) if self.braces else None
        if printed is None:
            raise MalformedRecord(f"{path.text}_is_no_text")
        return printed

    def instead(self, path: Path, other: str) -> str:
        """As it would be written with another path, or another text, instead of one of its paths."""
        return self.written.replace(f"{{{path.text}}}", f"{{{other}}}") if self.braces else other


def print_number(value: Any) -> str | None:
    """A finite number as Python prints it; None for anything else."""
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # Python prints no integer of thousands of digits
            return None
    return None
