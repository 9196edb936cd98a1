"""What a rule or a source says that there will be: ``expect: {rows: ">0", tokens: 1.9e9..2.1e9, share: 3%..5%}``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from pairmill.errors import InputError, UsageError, did_you_mean

_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?%?"
_FORM: Final = re.compile(rf"\s*(?:(>=|<=|>|<)?\s*({_NUMBER})|({_NUMBER})\s*\.\.\s*({_NUMBER}))\s*")
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "": operator.eq,
}
SHARES: Final = ("share", "usable", "faulty", "judged", "shared", "unresolved")
"""Measures that are shares, from 0 to 1, and may be written with %."""
AUDITED: Final = ("usable", "faulty")
"""Measures of rules that ``pairmill audit rules=`` compares; a sample knows nothing of them."""
_WRITTEN: Final = 'a number, ">0", or 1.9e9..2.1e9; of a share 3%..5%'


class Bound(NamedTuple):
    """What a count is compared with: ``compare(count, number)`` has to hold."""

    compare: Callable[[float, float], bool]
    number: float


class Expectation(NamedTuple):
    """What is expected of a rule or a source.

    Args:
        where: of the line, for messages.
        bounds: by measure: the text, and the bounds that it means.
    """

    where: str
    bounds: Mapping[str, tuple[str, Sequence[Bound]]]

    @classmethod
    def parse(cls, raw: Any, where: str, measures: Sequence[str]) -> Self:
        """Read the value of ``expect:``.

        Args:
            raw: as YAML gives it.
            where: of the line, for messages.
            measures: that may be in it.

        Raises:
            UsageError: it is not a mapping of these measures to numbers or ranges.
        """
        expected = "{" + ", ".join(f"{name}: …" for name in measures) + "}"
        if not isinstance(raw, dict) or not raw:
            raise UsageError("expect is not a mapping", where=where, got=repr(raw), expected=expected)
        bounds = {}
        for name, text in raw.items():
            if name not in measures:
                hint = did_you_mean(str(name), measures)
                if name == "tokens":
                    hint = "a source has no tokens yet: write it in a rule of prefix_config_path"
                raise UsageError(f"expect: unknown measure {name!r}", where=where, expected=expected, hint=hint)
            match = None if isinstance(text, bool) else _FORM.fullmatch(str(text))
            if match is None or ("%" in str(text) and name not in SHARES):
                raise UsageError(f"expect: not a {name}", where=where, got=repr(text), expected=_WRITTEN)
            sign, number, low, high = match.groups()
            if number is not None:
                bounds[name] = str(text), [Bound(_SIGNS[sign or ""], _number(number))]
            elif _number(low) > _number(high):
                raise UsageError(f"expect: an empty range of {name}", where=where, got=repr(text), expected=_WRITTEN)
            else:
                bounds[name] = (str(text), [Bound(operator.ge, _number(low)), Bound(operator.le, _number(high))])
        return cls(where, bounds)

    def check(self, what: str, counts: Mapping[str, float]) -> None:
        """Raise InputError if a count is not as expected.

        Args:
            what: the rule or source, for the message.
            counts: by measure; a share is 0 to 1. What is expected of a measure that is not in it is not compared.
        """
        for name, (text, bounds) in self.bounds.items():
            if name not in counts:
                continue
            count = counts[name]
            if not all(bound.compare(count, bound.number) for bound in bounds):
                got = f"{count:.4%}" if name in SHARES else f"{count:,.6g} {name}"
                raise InputError(
                    f"{what} does not give what it is expected to",
                    where=self.where,
                    got=got,
                    expected=f"{name}: {text}",
                    hint="correct the data or the rule, or what expect: says",
                )


def _number(text: str) -> float:
    return float(text.rstrip("%").replace("_", "")) / (100 if text.endswith("%") else 1)
