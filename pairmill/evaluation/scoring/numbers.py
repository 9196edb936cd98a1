"""Whole numbers as answers: by the reference's rule, strictly, and leniently."""

import re
from decimal import Decimal
from typing import Final

from pairmill.text import boxed

_LONGEST: Final = 64
"""Characters of a number; a longer one is not an answer."""
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,2})?")
_RUN: Final = re.compile("[0-9][0-9.,_]*")
_MORE: Final = re.compile("[A-Za-z][-+]?[0-9]")
"""After a run: 0x48 and 1e400 are not 0 and 1."""


def reference(text: str) -> int | None:
    r"""Return the number that the reference reads: the box, or else the whole text, through ``float``, cut to an
    integer.

    72.9 becomes 72; digits of other scripts and underscores are read; ``\%``, units and sentences are not.
    """
    plain = (boxed(text) or text).replace(",", "").replace("$", "").strip()
    try:
        return int(float(plain))
    except (ValueError, OverflowError):
        return None


def strict(text: str) -> Decimal | None:
    """Return the number that the box, or else the whole text, is: ASCII digits, a sign, grouping commas, decimals,
    dollars.

    Nothing is cut: 72.9 is not 72.
    """
    return _number(boxed(text) or text)


def lenient(text: str) -> Decimal | None:
    """Read as ``strict`` does, else the last number of the box, of what follows the last ``####``, or of the text.

    Units, percent signs and words around it are left out. An exponent (cm^2) and digits after a letter (m2) are not
    numbers. A last number that is malformed (1,2 or 7_2) is not an answer.
    """
    inside = boxed(text) or text.rpartition("####")[2]
    result = _number(inside)
    if result is not None:
        return result
    inside = inside.replace("−", "-")
    value = None
    for run in _RUN.finditer(inside):
        start = run.start()
        signed = start > 0 and inside[start - 1] in "+-"
        at = start - 1 if signed else start
        before = inside[at - 1] if at > 0 else " "
        if signed and (before.isalnum() or before == ")"):
            signed, before = False, " "
        if before == "^" or inside[max(0, at - 2) : at] == "^{" or before.isalpha():
            continue
        after = inside[run.end() : run.end() + 1]
        whole = not (before.isalnum() or before in "_/." or after.isdigit() or _MORE.match(inside, run.end()))
        digits = run.group().rstrip(".,")
        value = _number(inside[at:start] + digits if signed else digits) if whole else None
    return value


def _number(text: str) -> Decimal | None:
    plain = text.strip() if len(text) <= 4 * _LONGEST else text[: 4 * _LONGEST + 1]
    if len(plain) > _LONGEST:
        return None
    plain = plain.replace("\\$", "").replace("$", "").strip()
    return Decimal(plain.replace(",", "")) if _NUMBER.fullmatch(plain) else None
