"""What a template makes of values that are not texts: how each kind is printed, and the filters after ``|``."""

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Self

from pairmill.errors import UsageError, did_you_mean
from pairmill.sources.choices import choice_letter, choice_lines
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.parsed import MalformedRecord

MAX_CHARACTERS = 1 << 26
"""Characters that a template may add to a record's own: as many as a record has bytes, by default."""
TOO_LONG = "text_too_long"
"""The reason of a record that would make a longer one."""
_LETTERS = 26
EACH = "[*]"
"""The step of a filter's path that takes each element of a list."""
_CALL = re.compile(r"\s*(?P<name>\w+)\s*(?:\((?P<given>.*)\))?\s*", re.DOTALL)
_QUOTED = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\")\s*(,|$)")
_INDEX = re.compile(r"[0-9]{1,9}")


def printed(value: Any) -> str | None:
    """Return a text itself, or a number, boolean, decimal, date or time as text; None for anything else.

    Numbers are written as Python prints them, booleans as ``true`` and ``false``, decimals with all their digits and
    without an exponent, dates and times as in ISO 8601. A time with a zone is written in UTC, because the names of
    zones mean what the machine's tables say.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            try:
                return str(value)
            except ValueError:  # Python prints no integer of thousands of digits
                return None
        case float():
            return str(value) if math.isfinite(value) else None
        case Decimal():
            return format(value, "f") if value.is_finite() else None
        case datetime.datetime():
            return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).isoformat()
        case datetime.date() | datetime.time():
            return value.isoformat()
    return None


class Filter(NamedTuple):
    """A filter.

    Args:
        written: how it is called.
        words: how many texts it may be given.
        run: makes the text of a path's words, its value and those texts; None: ``at``, which reads a second path.
    """

    written: str
    words: tuple[int, ...]
    run: Callable[[str, Any, tuple[str, ...]], str] | None


@dataclass(frozen=True)
class Filtered:
    """A path in a template with a filter: ``{choices|letters}``.

    Args:
        path: what the filter takes.
        inner: the path within each element of a list, after ``[*]``.
        words: the texts given to it.
        other: the path given to it.
        written: as it is between the braces.
    """

    path: Path
    inner: Path | None
    name: str
    words: tuple[str, ...]
    other: Path | None
    written: str

    @classmethod
    def parse(cls, path: str, call: str) -> Self:
        """Raise UsageError, without a place, for what is not a filter or not what it takes."""
        result = _CALL.fullmatch(call)
        name = result["name"] if result else call.strip()
        if result is None or name not in FILTERS:
            hint = did_you_mean(name, FILTERS)
            expected = ", ".join(item.written for item in FILTERS.values())
            raise UsageError("unknown filter", got=repr(name), expected=expected, hint=hint)
        head, star, tail = path.strip().partition(EACH)
        made, inner = Path.parse(head), Path.parse(tail.removeprefix(".")) if star else None
        takes, given = FILTERS[name], (result["given"] or "").strip()
        if takes.run is None and given:
            return cls(made, inner, name, (), Path.parse(given), f"{path}|{call}")
        words = _texts(given)
        if words is None or len(words) not in takes.words:
            expected = f"{{{made.text}|{takes.written}}}"
            raise UsageError("not what the filter takes", got=repr(call.strip()), expected=expected)
        return cls(made, inner, name, tuple(words), None, f"{path}|{call}")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that it reads."""
        return (self.path,) if self.other is None else (self.path, self.other)

    def find(self, record: Any) -> Any:
        """Return what the filter takes: the value at the path, or of each element of a list what is at the inner
        path."""
        value = self.path.find(record)
        if self.inner is None or not isinstance(value, list):
            return value
        return [self.inner.find(item) for item in value]

    def render(self, record: Any) -> str | None:
        """Return the text that it adds; None if a path is missing or null. Raises MalformedRecord for another value."""
        value = self.find(record)
        if value is None or value is MISSING:
            return None
        run = FILTERS[self.name].run
        return self._element(value, record) if run is None else run(self.path.text, value, self.words)

    def _element(self, value: Any, record: Any) -> str | None:
        assert self.other is not None
        place = self.other.find(record)
        if place is None or place is MISSING:
            return None
        index = _index_of(place)
        if index is None:
            raise MalformedRecord(f"{self.other.text}_is_no_index")
        texts = _elements(self.path.text, value)
        if index >= len(texts):
            raise MalformedRecord(f"{self.other.text}_out_of_range")
        return texts[index]


def _texts(given: str) -> list[str] | None:
    """Return the quoted texts of a call; None if something else is given."""
    result: list[str] = []
    place = 0
    while given[place:].strip():
        item = _QUOTED.match(given, place)
        if item is None:
            return None
        result.append(item[2] if item[1] is None else item[1])
        place = item.end()
    return result


def _elements(path: str, value: Any) -> list[str]:
    """Return the elements of a list as texts."""
    if not isinstance(value, list):
        raise MalformedRecord(f"{path}_is_no_list")
    texts = []
    for item in value:
        text = printed(item)
        if text is None:
            absent = "null" if item is None else "missing" if item is MISSING else ""
            raise MalformedRecord(f"{absent}_in_{path}" if absent else f"{path}_holds_no_text")
        texts.append(text)
    return texts


def _index_of(value: Any) -> int | None:
    """Return the place that an index, its digits or a letter names: 1, 1.0, ``"1"`` and ``B`` are the second."""
    if isinstance(value, float) and value.is_integer():  # of a column with nulls pandas makes such numbers
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    if isinstance(value, str):
        text = value.strip()
        if _INDEX.fullmatch(text):
            return int(text)
        if len(text) == 1 and "A" <= text <= "Z":
            return ord(text) - ord("A")
    return None


def _joined(path: str, value: Any, words: tuple[str, ...]) -> str:
    """Join texts with words between them. Raises MalformedRecord, before joining them, if the words are too long."""
    (between,), texts = words, _elements(path, value)
    if len(between) * len(texts) > MAX_CHARACTERS:
        raise MalformedRecord(TOO_LONG)
    return between.join(texts)


def _letters(path: str, value: Any, _: tuple[str, ...]) -> str:
    texts = _elements(path, value)
    if len(texts) > _LETTERS:
        raise MalformedRecord(f"{path}_has_more_than_{_LETTERS}")
    return "\n".join(choice_lines(texts))


def _bullets(path: str, value: Any, _: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in _elements(path, value))


def _numbered(path: str, value: Any, _: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(_elements(path, value), 1))


def _letter(path: str, value: Any, _: tuple[str, ...]) -> str:
    index = _index_of(value)
    if index is None:
        raise MalformedRecord(f"{path}_is_no_index")
    if index >= _LETTERS:
        raise MalformedRecord(f"{path}_out_of_range")
    return choice_letter(index)


def _yes_no(path: str, value: Any, words: tuple[str, ...]) -> str:
    if not isinstance(value, bool):
        raise MalformedRecord(f"{path}_is_no_boolean")
    yes, no = words or ("yes", "no")
    return yes if value else no


def _date(path: str, value: Any, _: tuple[str, ...]) -> str:
    if not isinstance(value, datetime.date):
        raise MalformedRecord(f"{path}_is_no_date")
    if isinstance(value, datetime.datetime):
        value = (value if value.tzinfo is None else value.astimezone(datetime.UTC)).date()
    return str(value.isoformat())


def _json(path: str, value: Any, _: tuple[str, ...]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise MalformedRecord(f"{path}_is_no_json") from None


FILTERS: Mapping[str, Filter] = {
    "lines": Filter("lines", (0,), lambda path, value, _: _joined(path, value, ("\n",))),
    "commas": Filter("commas", (0,), lambda path, value, _: _joined(path, value, (", ",))),
    "join": Filter("join(', ')", (1,), _joined),
    "letters": Filter("letters", (0,), _letters),
    "bullets": Filter("bullets", (0,), _bullets),
    "numbered": Filter("numbered", (0,), _numbered),
    "at": Filter("at(path)", (), None),
    "letter": Filter("letter", (0,), _letter),
    "yes_no": Filter("yes_no", (0, 2), _yes_no),
    "date": Filter("date", (0,), _date),
    "json": Filter("json", (0,), _json),
}
"""The filters by name."""
