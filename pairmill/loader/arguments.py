"""What a caller gives, and what the system answers, in the package's own errors."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pairmill.errors import UsageError, from_os_error

T = TypeVar("T")

MOST = 2**63 - 1
"""The largest number that native code takes."""


def shown(value: object) -> str:
    """A value for a message, cut to a line's length."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a foreign class
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def whole(value: object, name: str, least: int = -MOST, most: int = MOST) -> int:
    """An integer, of NumPy too.

    Raises:
        UsageError: it is another thing, or out of range.
    """
    try:
        # True is an integer to Python, and a mistake here.
        found = None if type(value).__name__ in {"bool", "bool_"} else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None:
        hint = f"write {name}={value.strip()}" if isinstance(value, str) and value.strip().isdecimal() else ""
        raise UsageError("is not an integer", where=name, got=shown(value), expected="an integer", hint=hint)
    if not least <= found <= most:
        raise UsageError("is out of range", where=name, got=shown(found), expected=f"{least} to {most}")
    return found


def number(value: object, name: str) -> float:
    """A number.

    Raises:
        UsageError: it is another thing.
    """
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise UsageError("is not a number", where=name, got=shown(value), expected="a number") from None


def flag(value: object, name: str) -> bool:
    """True or False.

    Raises:
        UsageError: it is another thing.
    """
    if type(value).__name__ not in {"bool", "bool_"}:
        raise UsageError("is neither True nor False", where=name, got=shown(value), expected="True or False")
    return bool(value)


def text(value: object, name: str) -> str:
    """A text.

    Raises:
        UsageError: it is another thing.
    """
    return an(value, str, name, "a text")


def path(value: object, name: str) -> str:
    """A path as text.

    Raises:
        UsageError: it is another thing, or empty.
    """
    try:
        found = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        found = b""
    if not isinstance(found, str) or not found or "\0" in found:
        raise UsageError("is not a path", where=name, got=shown(value), expected="a path, as text or Path")
    return found


def an(value: object, kind: type[T], name: str, expected: str, hint: str = "") -> T:
    """A value of a class.

    Raises:
        UsageError: it is of another.
    """
    if not isinstance(value, kind):
        raise UsageError("is of another type", where=name, got=shown(value), expected=expected, hint=hint)
    return value


def several(value: Any, kind: type[T], name: str, expected: str) -> list[T]:
    """Values of a class, one after another; one alone is a mistake.

    Raises:
        UsageError: it is another thing, or holds one.
    """
    if isinstance(value, str | bytes | Mapping | kind):
        raise UsageError("is not a list", where=name, got=shown(value), expected=expected, hint=f"write {name}=[…]")
    try:
        items = list(value)
    except TypeError:
        raise UsageError("is not a list", where=name, got=shown(value), expected=expected) from None
    return [an(item, kind, f"{name}[{number}]", expected) for number, item in enumerate(items)]


@contextmanager
def reading(where: object) -> Iterator[None]:
    """What the operating system refuses is an error of ours that names the place.

    Raises:
        InputError: a file is not there.
        StorageError: the system refuses.
    """
    try:
        yield
    except OSError as error:
        raise from_os_error(error, str(where)) from error
