"""Texts made of a record: the text at a path, or a template's words around what is at its paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pairmill.errors import UsageError
from pairmill.sources.language.filters import EACH, MAX_CHARACTERS, TOO_LONG, Filtered, printed
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.parsed import MalformedRecord

# Words, what is in braces, and brackets; a run of brackets is one token.
_TOKENS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|\[{2,}|\]{2,}")
_FILTER = re.compile(r"((?:[^|'\"]|'[^']*'|\"[^\"]*\")*)\|(.*)", re.DOTALL)
_OPEN, _CLOSE = "[[", "]]"

Value = Path | Filtered
"""What a template reads of a record."""


@dataclass(frozen=True)
class OptionalPart:
    """A part that is left out where one of its values is missing, null or blank."""

    parts: tuple[str | Value, ...]


@dataclass(frozen=True)
class Template:
    """A path, or words with ``{path}`` in them.

    Args:
        written: as it is in the file.
        parts: words, what is read, and optional parts, in order.
        braces: whether it has braces; it then takes what :func:`pairmill.sources.language.filters.printed` does.
    """

    written: str
    parts: tuple[str | Value | OptionalPart, ...]
    braces: bool

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raise UsageError, without a place, for an invalid path or filter, or an unmatched brace or bracket."""
        if "{" not in text and "}" not in text:
            return cls(text, (_bare(text),), braces=False)
        made = cls(text, tuple(_parts(text)), braces=True)
        if not made.paths:
            raise UsageError("the text is the same for every record", got=repr(text), expected="a {path} in it")
        if not made.needed and len(made.optional) == 1:
            expected = "words or a {path} beside it, or a second optional part to take its place"
            raise UsageError("the whole text is one optional part", got=repr(text), expected=expected)
        return made

    @property
    def values(self) -> list[Value]:
        """What it reads, in order."""
        return [*self._outside, *(value for item in self.optional for value in _values(item.parts))]

    @property
    def optional(self) -> list[OptionalPart]:
        """Its optional parts."""
        return [part for part in self.parts if isinstance(part, OptionalPart)]

    @property
    def _outside(self) -> list[Value]:
        return _values(self.parts)

    @property
    def paths(self) -> list[Path]:
        """The paths that it reads."""
        return [path for value in self.values for path in paths_of(value)]

    @property
    def needed(self) -> list[Path]:
        """Those of them that a record must have: the ones outside optional parts."""
        return [path for value in self._outside for path in paths_of(value)]

    @cached_property
    def field(self) -> str | None:
        """The field of a record that is the whole text, if it is one."""
        only = self.parts[0]
        return only.column if len(self.parts) == 1 and isinstance(only, Path) and len(only.steps) == 1 else None

    def render(self, record: Any) -> str:
        """Return the text. Raises MalformedRecord if there is none."""
        if type(record) is dict and type(text := record.get(self.field)) is str:  # most of them
            return text
        return _joined([part if isinstance(part, str) else self.at(part, record) for part in self.parts])

    def at(self, part: Value | OptionalPart, record: Any) -> str:
        """Return what a part adds to the text. Raises MalformedRecord if there is nothing to add."""
        if isinstance(part, Path):
            value = part.find(record)
            if isinstance(value, str):
                return value
            return self._print(part, value)
        if isinstance(part, OptionalPart):
            return self._if_there(part, record)
        text = part.render(record)
        if text is None:
            raise _absent(part, record)
        return text

    def _print(self, path: Path, value: Any) -> str:
        if value is MISSING:
            raise MalformedRecord(f"missing_{path.text}")
        if value is None:
            raise MalformedRecord(f"null_{path.text}")
        text = printed(value) if self.braces else None
        if text is None:
            raise MalformedRecord(f"{path.text}_is_no_text")
        return text

    def _if_there(self, optional: OptionalPart, record: Any) -> str:
        result = []
        for part in optional.parts:
            if isinstance(part, str):
                result.append(part)
                continue
            if isinstance(part, Path):
                value = part.find(record)
                text = None if value is None or value is MISSING else self._print(part, value)
            else:
                text = part.render(record)
            if text is None or not text or text.isspace():
                return ""
            result.append(text)
        return _joined(result)

    def wrong(self, record: Any) -> Iterator[tuple[Value, MalformedRecord]]:
        """Yield what it reads that this record does not have, with the errors that say so."""
        for part in self.parts:
            if isinstance(part, str):
                continue
            for value in _values(part.parts) if isinstance(part, OptionalPart) else [part]:
                try:
                    self.at(OptionalPart((value,)) if isinstance(part, OptionalPart) else value, record)
                except MalformedRecord as error:
                    yield value, error

    def instead(self, value: Value, other: str) -> str:
        """As it would be written with another path, or another text, in the place of what it reads."""
        return self.written.replace(_written(value), f"{{{other}}}") if self.braces else other

    def without(self, value: Value) -> str:
        """As it would be written with the value and the words before it in an optional part; empty if it cannot be.

        The words after the first value go with it, so that the text does not begin with them.
        """
        if value not in self._outside or len(self._outside) < 2:
            return ""
        place = self.parts.index(value)
        first = not any(isinstance(part, Path | Filtered) for part in self.parts[:place])
        beside = place + 1 if first else place - 1
        start, stop = place, place + 1
        if 0 <= beside < len(self.parts) and isinstance(self.parts[beside], str):
            start, stop = min(place, beside), max(place, beside) + 1
        result = [_written(part) for part in self.parts]
        text = "".join([*result[:start], _OPEN, *result[start:stop], _CLOSE, *result[stop:]])
        try:
            Template.parse(text)
        except UsageError:  # brackets in the words are beside those of the part
            return ""
        return text


def _joined(texts: list[str]) -> str:
    """Return a text of parts. Raises MalformedRecord, before it is made, for a much longer one than the longest of
    them."""
    if len(texts) > 1 and sum(map(len, texts)) > MAX_CHARACTERS + max(map(len, texts)):
        raise MalformedRecord(TOO_LONG)
    return "".join(texts)


def paths_of(value: Value) -> tuple[Path, ...]:
    """Return the paths that are read for a value."""
    return (value,) if isinstance(value, Path) else value.paths


def _values(parts: Sequence[str | Value | OptionalPart]) -> list[Value]:
    return [part for part in parts if isinstance(part, Path | Filtered)]


def _written(part: str | Value | OptionalPart) -> str:
    if isinstance(part, str):
        doubled = part.replace("{", "{{").replace("}", "}}")
        return doubled.replace(_OPEN, 2 * _OPEN).replace(_CLOSE, 2 * _CLOSE)
    if isinstance(part, OptionalPart):
        return _OPEN + "".join(map(_written, part.parts)) + _CLOSE
    return f"{{{part.text if isinstance(part, Path) else part.written}}}"


def _absent(value: Filtered, record: Any) -> MalformedRecord:
    """Return the error for a value whose path is missing or null."""
    path = next(path for path in value.paths if path.find(record) in (None, MISSING))
    return MalformedRecord(f"{'null' if path.find(record) is None else 'missing'}_{path.text}")


def _bare(text: str) -> Path:
    try:
        return Path.parse(text)
    except UsageError as error:
        result = _FILTER.fullmatch(text)
        if result is None:
            raise
        hint = f"write filters in braces: '{{{text}}}'"
        raise UsageError(error.what, got=error.got, expected=error.expected, hint=hint) from error


def _value(text: str) -> Value:
    result = _FILTER.fullmatch(text)
    if result:
        return Filtered.parse(result[1], result[2])
    if EACH in text:
        raise UsageError(f"{EACH} needs a filter", got=repr(text), expected=f"such as {{{text}|lines}}")
    return Path.parse(text)


def _parts(text: str) -> list[str | Value | OptionalPart]:
    """Return the parts of a template; words that follow each other are one part."""
    parts: list[str | Value | OptionalPart] = []
    inside: list[str | Value] | None = None
    end = 0

    def add(part: str | Value) -> None:
        to: list[Any] = parts if inside is None else inside
        if isinstance(part, str) and to and isinstance(to[-1], str):
            to[-1] += part
        elif part:
            to.append(part)

    for result in _TOKENS.finditer(text):
        add(text[end : result.start()])
        end = result.end()
        token = result.group()
        if result.group(1) is not None:
            add(_value(result.group(1)))
        elif token in {"{{", "}}"}:
            add(token[0])
        elif token in {"{", "}"}:
            raise UsageError(
                "unmatched brace", got=repr(text), expected="{path}, or {{ and }} for the braces themselves"
            )
        elif token in {2 * _OPEN, 2 * _CLOSE}:
            add(token[:2])
        elif token == _OPEN and inside is None:
            inside = []
        elif token == _CLOSE and inside is not None:
            if not _values(inside):
                raise _brackets("an optional part without a {path}", text)
            parts.append(OptionalPart(tuple(inside)))
            inside = None
        else:
            what = "an optional part within another" if token == _OPEN else "unmatched brackets"
            raise _brackets(what, text)
    if inside is not None:
        raise _brackets("an optional part does not end", text)
    add(text[end:])
    return parts


def _brackets(what: str, text: str) -> UsageError:
    expected = "[[words and {path}]] for an optional part, [[[[ and ]]]] for two brackets themselves"
    return UsageError(what, got=repr(text), expected=expected)
