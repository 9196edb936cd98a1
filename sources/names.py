"""Names that data sets bring: file names made of them, and which of them was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_UNSAFE = re.compile(r"[^A-Za-z0-9_\-. ]")


def safe_name(name: str) -> str:
    """``name`` with every code point outside ``A-Za-z0-9_-.`` and space replaced by ``_``."""
    return _UNSAFE.sub("_", name)


def meant(wrong: str, names: Iterable[str]) -> str | None:
    """The name that is spelled most like a wrong one, whatever its case; None if none is near."""
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wrong.lower(), folded, n=1)
    return folded[close[0]] if close else None
