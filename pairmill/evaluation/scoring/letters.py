"""Letters of choices."""

import re
from collections.abc import Sequence


def letter(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter that a text is, in either case; None if it is none of the choices."""
    result = text.strip().upper()
    return result if result in choices else None


def letter_within(text: str, choices: Sequence[str]) -> str | None:
    """Return the last letter in round brackets, or else the last that is a word by itself; None if there is neither."""
    some = "".join(map(re.escape, choices))
    for pattern in (rf"\(([{some}])\)", rf"\b([{some}])\b"):
        result = None
        for result in re.finditer(pattern, text):  # noqa: B007
            pass
        if result is not None:
            return str(result[1])
    return None
