"""Checks of what a caller passes; all raise UsageError that names the argument and says what to pass instead."""

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pairmill.errors import UsageError, from_os_error

T = TypeVar("T")

MAX = 2**63 - 1
"""The largest integer that native code takes."""


def shown(value: object) -> str:
    """Return a value for a message, cut to the length of a line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a foreign class
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def integer(value: object, name: str, least: int = -MAX, most: int = MAX, hint: str = "") -> int:
    """Return an integer in a range, of NumPy too. True is an integer to Python, and a mistake here."""
    try:
        result = None if type(value).__name__ in {"bool", "bool_"} else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        result = None
    if result is None:
        if isinstance(value, str) and value.strip().isdecimal():
            hint = f"write {name}={value.strip()}"
        raise UsageError("not an integer", where=name, got=shown(value), expected="an integer", hint=hint)
    if not least <= result <= most:
        expected = f"at least {least}" if most == MAX and least > -MAX else f"{least} to {most}"
        raise UsageError("out of range", where=name, got=shown(result), expected=expected, hint=hint)
    return result


def number(value: object, name: str) -> float:
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise UsageError("not a number", where=name, got=shown(value), expected="a number") from None


def boolean(value: object, name: str) -> bool:
    if type(value).__name__ not in {"bool", "bool_"}:
        raise UsageError("not a boolean", where=name, got=shown(value), expected="True or False")
    return bool(value)


def string(value: object, name: str) -> str:
    return instance(value, str, name, "a string")


def choice(value: object, choices: Sequence[str], name: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise UsageError("unknown", where=name, got=shown(value), expected=f"one of {', '.join(choices)}")
    return value


def path(value: object, name: str) -> str:
    """Return a path that is not empty, as a string."""
    try:
        result = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        result = b""
    if not isinstance(result, str) or not result or "\0" in result:
        raise UsageError("not a path", where=name, got=shown(value), expected="a path, as str or Path")
    return result


def instance(value: object, kind: type[T], name: str, expected: str, hint: str = "") -> T:
    if not isinstance(value, kind):
        raise UsageError("wrong type", where=name, got=shown(value), expected=expected, hint=hint)
    return value


def instances(value: Any, kind: type[T], name: str, expected: str) -> list[T]:
    """Return a list of objects of one class; a single object is refused."""
    if isinstance(value, str | bytes | Mapping | kind):
        raise UsageError("not a list", where=name, got=shown(value), expected=expected, hint=f"write {name}=[…]")
    try:
        items = list(value)
    except TypeError:
        raise UsageError("not a list", where=name, got=shown(value), expected=expected) from None
    return [instance(item, kind, f"{name}[{at}]", expected) for at, item in enumerate(items)]


def weights(value: object, name: str) -> dict[str, float]:
    """Numbers by the names of sources."""
    given = instance(value, Mapping, name, "numbers by name")  # type: ignore[type-abstract]
    return {string(source, name): number(weight, f"{name}: {source}") for source, weight in given.items()}


@contextmanager
def os_errors(where: object) -> Iterator[None]:
    """Turn an OSError into an error of ours that names the place: InputError if it is absent, else StorageError."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, str(where)) from error
