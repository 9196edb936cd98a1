r"""The answer in the last ``\boxed{…}`` of a text."""

import re

_BRACE = re.compile("[{}]")


def boxed(text: str) -> str | None:
    r"""Return what the last ``\boxed``, or else the last ``\fbox``, holds, stripped; None if there is none or it is
    open.

    The braces after it are counted as they are, escaped ones too. Time is linear in the text.
    """
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return None
    depth, opened = 0, -1
    for brace in _BRACE.finditer(text, start):
        if brace.group() == "{":
            depth += 1
            opened = brace.end() if opened < 0 else opened
        else:
            depth -= 1
            if depth == 0 and opened >= 0:
                return text[opened : brace.start()].strip()
    return None
