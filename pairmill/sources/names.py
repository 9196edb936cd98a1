"""File names made of names that data sets bring."""

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_\-. ]")


def safe_name(name: str) -> str:
    """``name`` with every code point outside ``A-Za-z0-9_-.`` and space replaced by ``_``."""
    return _UNSAFE.sub("_", name)
