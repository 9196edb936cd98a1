"""Letters of choices."""

from __future__ import annotations

import re
from collections.abc import Sequence


def letter(text: str, choices: Sequence[str]) -> str | None:
    """The letter that a text is, in either case; None if it is none of the choices."""
    found = text.strip().upper()
    return found if found in choices else None


def letter_within(text: str, choices: Sequence[str]) -> str | None:
    """The last letter in round brackets, or else the last that stands alone; None if there is neither."""
    some = "".join(map(re.escape, choices))
    for pattern in (rf"\(([{some}])\)", rf"\b([{some}])\b"):
        found = None
        for found in re.finditer(pattern, text):  # noqa: B007
            pass
        if found is not None:
            return str(found[1])
    return None
