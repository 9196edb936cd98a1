"""Attributes of records (date, url, language, …): what a description says of them, and their values by type.

The type of an attribute is fixed by its declaration, never guessed from values: any shard writes the same columns.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pairmill.errors import UsageError, did_you_mean
from pairmill.formats.attributes import TYPES
from pairmill.sources.language.missing_paths import Watched, kind_of
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.parsed import Finding, WrongAttribute, shown

CHAT = "chat"
"""The attribute of rendered rows: the chat that was rendered. It is put in the first place by clean."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_INT64 = 1 << 63
EXPECTED = "name: path, or name: {path: …, type: …}"
"""What is expected of their declaration, for messages."""


class _OtherType(Exception):
    pass


def convert(given: Mapping[str, Any], types: Mapping[str, str]) -> tuple[Any, ...] | WrongAttribute:
    """Return the attributes of a record in the order of their types, as these say; None where there is no value."""
    values = []
    for name, kind in types.items():
        value = given.get(name)
        try:
            values.append(None if value is None else _CONVERT[kind](value))
        except (_OtherType, OverflowError):
            return WrongAttribute(f"attribute_{name}_not_{kind}", name=name, value=value)
    return tuple(values)


def size_of(values: tuple[Any, ...]) -> int:
    """About how many characters the values take."""
    return sum(
        len(item) if isinstance(item, str) else sum(map(len, filter(None, item))) if isinstance(item, list) else 8
        for item in values
    )


class Attributes:
    """The attributes that a YAML file declares: path and type by name.

    Args:
        declared: name, value and place of each.
    """

    def __init__(self, declared: Iterable[tuple[str, Any, str]]) -> None:
        self.types: dict[str, str] = {}
        self._paths: dict[str, Path] = {}
        self._places: dict[str, str] = {}
        for name, value, place in declared:
            if not _NAME.fullmatch(name):
                expected = "at most 64 of A-Z a-z 0-9 _, beginning with a letter"
                raise UsageError("not a valid name of an attribute", where=place, got=repr(name), expected=expected)
            if name == CHAT:
                raise UsageError(
                    "the name is taken by the chats of rendered rows", where=place, expected="another name"
                )
            self._paths[name], self.types[name] = _declared(name, value, place)
            self._places[name] = place

    @property
    def columns(self) -> list[str]:
        """The fields of a record that they start at."""
        return list(dict.fromkeys(path.column for path in self._paths.values()))

    @property
    def meaning(self) -> list[list[str]]:
        """What the values follow from."""
        return [[name, path.text, self.types[name]] for name, path in self._paths.items()]

    def watched(self) -> Iterator[Watched]:
        """Yield their paths: each may be absent in a record, and one that no record has is misspelt."""
        for name, path in self._paths.items():
            yield Watched(path, self._places[name])

    def read(self, record: Any) -> dict[str, Any]:
        """Return what is at each path."""
        result = {name: path.find(record) for name, path in self._paths.items()}
        return {name: None if value is MISSING else value for name, value in result.items()}

    def explain(self, why: WrongAttribute) -> Finding:
        """Return what was found instead of a value of the type, and the line that takes it."""
        path = self._paths[why.name].text
        written = path if re.fullmatch(r"[\w.-]+", path) else "'" + path.replace("'", "''") + "'"
        taken = next((kind for kind in ("text", "texts") if _takes(kind, why.value)), "")
        line = f"{why.name}: {{path: {written}, type: {taken}}}" if taken else ""
        return Finding(described(why.value), line)


def described(value: Any) -> str:
    """Return a value of another type, for messages."""
    return kind_of(value) if isinstance(value, dict | list) else shown(value)


def _takes(kind: str, value: Any) -> bool:
    try:
        _CONVERT[kind](value)
    except (_OtherType, OverflowError):
        return False
    return True


def _declared(name: str, value: Any, place: str) -> tuple[Path, str]:
    given = value if isinstance(value, dict) else {"path": value}
    for key in given:
        if key not in ("path", "type"):
            hint = did_you_mean(str(key), ("path", "type"))
            raise UsageError(f"unknown key {key!r}", where=place, expected="path, type", hint=hint)
    path, kind = given.get("path", name), given.get("type", "text")
    if not isinstance(path, str):
        raise UsageError("not a path", where=place, got=described(path), expected=EXPECTED)
    if kind not in TYPES:
        hint = did_you_mean(str(kind), TYPES)
        raise UsageError("unknown type", where=place, got=str(kind), expected=", ".join(TYPES), hint=hint)
    try:
        return Path.parse(path), kind
    except UsageError as error:
        raise error.moved(place) from error


def _text(value: Any) -> str:
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise _OtherType from error
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, int | float | Decimal):
        try:
            return str(value)
        except ValueError as error:  # Python prints no integer of thousands of digits
            raise _OtherType from error
    raise _OtherType


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None  # CSV writes no value so
        if not _WHOLE.fullmatch(text):
            raise _OtherType
        value = int(text)
    elif isinstance(value, float | Decimal):
        if value != value:
            return None  # a column of integers with nulls, as pandas writes it
        if not math.isfinite(value) or value != int(value):
            raise _OtherType
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT64 <= value < _INT64:
        raise _OtherType
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise _OtherType
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _OtherType
    result = float(value)
    if math.isinf(result):
        raise _OtherType
    return None if math.isnan(result) else result


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("true", "false", ""):
            return None if not text else text == "true"
    if not isinstance(value, bool):
        raise _OtherType
    return value


def _date(value: Any) -> datetime | None:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        month = _MONTH.fullmatch(text)
        try:
            value = (
                datetime(int(month[1]), int(month[2] or 1), 1, tzinfo=UTC) if month else datetime.fromisoformat(text)
            )
        except ValueError as error:
            raise _OtherType from error
    if not isinstance(value, date):
        raise _OtherType
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    # A time without a zone is taken as UTC: that of this machine would be another on the next one.
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _texts(value: Any) -> list[str | None]:
    if isinstance(value, str):
        return [_text(value)]
    if not isinstance(value, list | tuple):
        raise _OtherType
    return [None if item is None else _text(item) for item in value]


_CONVERT: Mapping[str, Any] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
    "texts": _texts,
}
