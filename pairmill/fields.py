"""Fields that say what they take: bounds, forms, lengths and what they need are beside the field, with its help.

Options (:func:`pairmill.engine.options.option`) and settings of YAML files (:func:`setting`) are such fields. A class
that inherits :class:`Checked` checks them when an object is made; what spans fields in another way than these is
checked in its ``__post_init__``, after ``super().__post_init__()``. Types are checked before, where texts are read.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypedDict, Unpack

from pairmill.errors import UsageError, did_you_mean

NAME: Final = (r"[\w.-]+", "letters, digits, _, - and .")
"""The ``form`` of a name that is part of file names or of ledgers."""
COLUMN: Final = (r"[^.]+\..+", "<operation>.<column>")
"""The ``form`` of an attribute."""

_SHOWN: Final = 80


class Checks(TypedDict, total=False):
    """What a field takes beside its type. None is always taken: the type says whether it may occur.

    Bounds, ``choices``, ``form`` and ``parse`` are for each item of a list and each value of a mapping. In place of a
    number or of choices there may be the name of another field, whose value counts.

    Attributes:
        at_least: the least number.
        above: what the number has to be greater than.
        at_most: the greatest number.
        below: what the number has to be less than.
        nonzero: the number is not 0; of several one at least is not.
        divides: the field whose value is a multiple of this one; 0 divides everything.
        choices: the values that are known.
        form: a regular expression that a whole text matches, unless the value is empty, and how to write it in words.
        parse: called with the text, unless the value is empty; raises UsageError.
        filled: there is at least one character, item or key.
        length: the number of items, of a list that is not empty.
        max_length: the greatest number of items.
        as_many_as: the list that has as many items.
        unique: each item occurs once; with the name of a field of the items, each of its values does.
        ascending: each item is greater than the one before.
        needs: the field that has to be given too, if this one is; given is a value that is not the default.
        excludes: the fields that may not be given too.
        hint: the next step, in messages that have no other.
    """

    at_least: float | str
    above: float | str
    at_most: float | str
    below: float | str
    nonzero: bool
    divides: str
    choices: Collection[str] | str
    form: tuple[str, str]
    parse: Callable[[str], object]
    filled: bool
    length: int
    max_length: int
    as_many_as: str
    unique: bool | str
    ascending: bool
    needs: str
    excludes: tuple[str, ...]
    hint: str


def setting(default: Any = MISSING, *, help: str, **checks: Unpack[Checks]) -> Any:  # noqa: A002
    """Make a field of settings.

    Args:
        default: the default; a list or mapping is copied, a class or function is called; without one it is required.
        help: one line for the file and the documents, with the unit.
        checks: what is taken.
    """
    return checked_field(default, {"help": help, "checks": checks})


def checked_field(default: Any, metadata: Mapping[str, Any]) -> Any:
    """Make a dataclass field; a default that is a list or mapping is copied, a class or function is called."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def key_of(item: Field[Any]) -> str:
    """Return the key of a field: its name without the underscore that keeps it from being a word of Python."""
    return item.name.rstrip("_")


def default_value(item: Field[Any]) -> Any:
    """Return the default of a field, ``dataclasses.MISSING`` if it is required."""
    return item.default if item.default_factory is MISSING else item.default_factory()


class Checked:
    """A dataclass whose fields are checked when an object is made.

    Class keywords name groups of fields: ``any_of`` (one at least has a value), ``one_of`` (exactly one),
    ``at_most_one``. A text, list or mapping that is empty is not a value, nor is the number 0 where it is the default.
    """

    _groups: ClassVar[Sequence[_Group]] = ()

    def __init_subclass__(
        cls, any_of: Sequence[str] = (), one_of: Sequence[str] = (), at_most_one: Sequence[str] = ()
    ) -> None:
        """Add the groups of this class to those that it inherits."""
        super().__init_subclass__()
        own = (_Group("one or more", any_of), _Group("exactly one", one_of), _Group("at most one", at_most_one))
        cls._groups = (*cls._groups, *(group for group in own if group.names))

    def __post_init__(self) -> None:
        """Check every field, then every group of fields."""
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            checks, value = item.metadata.get("checks"), getattr(self, item.name)
            if checks and value is not None:
                try:
                    _check_field(self, item, value, checks)
                except UsageError as error:
                    raise error.moved(error.where, error.hint or checks.get("hint", "")) from error
        for group in self._groups:
            group.check(self)


class _Group(NamedTuple):
    """Fields of which as many have a value as ``how_many`` says."""

    how_many: Literal["one or more", "exactly one", "at most one"]
    names: Sequence[str]

    def check(self, settings: Any) -> None:
        """Raise UsageError if too many or too few of the fields have a value."""
        keys = ", ".join(key_of(_field(settings, name)) for name in self.names)
        fields = [_field(settings, name) for name in self.names if has_value(settings, name)]
        given = [key_of(item) for item in fields]
        expected = f"{self.how_many} of {keys}"
        if not given and self.how_many != "at most one":
            raise UsageError(f"{expected} is required")
        if len(given) > 1 and self.how_many != "one or more":
            default, what = default_value(fields[0]), f"cannot be given with {given[0]}"
            hint = "" if default in ("", None, [], ()) else f"{given[0]}={default} takes the first one back"
            raise UsageError(what, where=given[1], got=", ".join(given), expected=expected, hint=hint)


def _field(settings: Any, name: str) -> Field[Any]:
    result: Field[Any] = type(settings).__dataclass_fields__[name]
    return result


def has_value(settings: Any, name: str) -> bool:
    """Tell whether a field is not empty; the number 0 is empty where it is the default."""
    value = getattr(settings, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return bool(value != default_value(_field(settings, name)) if number else value)


def is_given(settings: Any, name: str) -> bool:
    """Tell whether a field has a value that is not its default."""
    return has_value(settings, name) and bool(getattr(settings, name) != default_value(_field(settings, name)))


def _items(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and value of each item, or of a value that is neither a list nor a mapping."""
    if isinstance(value, Mapping):
        yield from ((f"{key}.{name}", single) for name, single in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{key}[{number}]", single) for number, single in enumerate(value, 1))
    else:
        yield key, value


def shown(value: Any) -> str:
    """Return a value as messages show it, cut if it is long."""
    text = f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check_field(settings: Any, item: Field[Any], value: Any, checks: Checks) -> None:
    _check_whole(settings, item, value, checks)
    for where, single in _items(key_of(item), value):
        if isinstance(single, str):
            if single or single is not value:
                _check_text(settings, where, single, checks)
        elif isinstance(single, int | float) and not isinstance(single, bool):
            _check_number(settings, item, where, single, checks)


def _check_whole(settings: Any, item: Field[Any], value: Any, checks: Checks) -> None:
    key = key_of(item)
    sized = isinstance(value, list | tuple | Mapping)
    if checks.get("filled") and not (value.strip() if isinstance(value, str) else value):
        raise UsageError("is empty", where=key, expected="one item or more" if sized else "a text")
    if sized and value and len(value) != checks.get("length", len(value)):
        raise UsageError("not the right number of items", where=key, got=shown(value), expected=str(checks["length"]))
    if sized and len(value) > checks.get("max_length", len(value)):
        raise UsageError(
            "too many items", where=key, got=f"{len(value):,}", expected=f"at most {checks['max_length']:,}"
        )
    if "as_many_as" in checks and len(value) != (count := len(getattr(settings, checks["as_many_as"]))):
        got = f"{len(value)}, and {count} of {checks['as_many_as']}"
        raise UsageError("not as many", where=key, got=got, expected="as many of both")
    if "unique" in checks:
        _check_unique(key, value, checks["unique"])
    if checks.get("ascending") and any(low >= high for low, high in pairwise(value)):
        raise UsageError("not ascending", where=key, got=shown(value), expected=str(sorted(set(value))))
    if checks.get("nonzero") and value not in ({}, []) and not any(single for _, single in _items(key, value)):
        expected = "one that is not 0" if sized else "any other number"
        raise UsageError("out of range", where=key, got="0" if not sized else "only 0", expected=expected)
    if not {"needs", "excludes"}.isdisjoint(checks) and is_given(settings, item.name):
        needed = checks.get("needs", item.name)
        if not is_given(settings, needed):
            raise UsageError(f"needs {key_of(_field(settings, needed))}", where=key, got=shown(value))
        for name in checks.get("excludes", ()):
            if is_given(settings, name):
                other = key_of(_field(settings, name))
                raise UsageError(f"cannot be given with {key}", where=other, expected=f"{other} or {key}, not both")


def _check_unique(key: str, items: Collection[Any], unique: bool | str) -> None:
    seen = set[Any]()
    for number, single in enumerate(items, 1):
        name = getattr(single, unique) if isinstance(unique, str) else single
        if name in seen:
            where = f"{key}[{number}].{unique}" if isinstance(unique, str) else f"{key}[{number}]"
            raise UsageError("occurs twice", where=where, got=shown(name), expected="each once")
        seen.add(name)


def _check_text(settings: Any, where: str, value: str, checks: Checks) -> None:
    choices = checks.get("choices", (value,))
    known = list(getattr(settings, choices) if isinstance(choices, str) else choices)
    if value not in known:
        expected = " or ".join(filter(None, [", ".join(known[:-1]), *known[-1:]])) or "none"
        raise UsageError(
            "unknown value", where=where, got=shown(value), expected=expected, hint=did_you_mean(value, known)
        )
    if "form" in checks and not re.fullmatch(checks["form"][0], value, re.DOTALL):
        raise UsageError("not a valid value", where=where, got=shown(value), expected=checks["form"][1])
    if "parse" in checks:
        try:
            checks["parse"](value)
        except UsageError as error:
            raise error.moved(where) from error


def _check_number(settings: Any, item: Field[Any], where: str, value: float, checks: Checks) -> None:
    bounds: dict[str, Any] = {name: limit for name, limit in checks.items() if name in _BOUNDS}
    if bounds:
        limits = {name: getattr(settings, bound) if isinstance(bound, str) else bound for name, bound in bounds.items()}
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        if not (math.isfinite(value) and all(_BOUNDS[name](value, limit) for name, limit in limits.items())):
            texts = {
                name: shown(limit) + (f" ({bounds[name]})" if isinstance(bounds[name], str) else "")
                for name, limit in limits.items()
            }
            other = "" if isinstance(item.default, int | float) or item.default is MISSING else item.default or "null"
            expected = _range(**texts) + (f", or {other}" if other else "")
            raise UsageError("out of range", where=where, got=shown(value), expected=expected)
    if "divides" in checks and value and (whole := getattr(settings, checks["divides"])) % value:
        expected = f"a divisor of {checks['divides']}, which is {whole}"
        raise UsageError("does not divide evenly", where=where, got=shown(value), expected=expected)


_BOUNDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


def _range(at_least: str = "", above: str = "", at_most: str = "", below: str = "") -> str:
    """Describe a range by the texts of its bounds."""
    if at_least and not (at_most or below):
        return f"{at_least} or more"
    if at_least:
        return f"{at_least} to {at_most}" if at_most else f"{at_least} to below {below}"
    upper = f"at most {at_most}" if at_most else f"below {below}" if below else ""
    return ", ".join(filter(None, [f"above {above}" if above else "", upper]))
