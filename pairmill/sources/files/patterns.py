"""Patterns from untrusted files. Any pattern is searched in linear time."""

import functools
import re
from collections.abc import Sequence

from pairmill._native import Pattern
from pairmill.errors import InputError

_SIGNS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def found_in(pattern: Pattern, text: str) -> bool:
    """Return whether a pattern is found in a text."""
    try:
        return pattern.found_in(text)
    except UnicodeEncodeError:  # an unpaired surrogate
        return pattern.found_in(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def matching(patterns: Sequence[str], files: Sequence[str]) -> tuple[str, ...]:
    """Files by patterns as on the Hub, in the order of the patterns and sorted within each; none twice.

    ``*`` and ``?`` match within a folder, ``**`` across folders, ``**/`` any folders or none.
    """
    there = set(files)
    result: list[str] = []
    for pattern in patterns:
        if "*" in pattern or "?" in pattern:
            glob = _glob(pattern)
            result += sorted(path for path in files if found_in(glob, path))
        elif pattern in there:
            result.append(pattern)
    return tuple(dict.fromkeys(result))


@functools.lru_cache(maxsize=256)
def _glob(pattern: str) -> Pattern:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    try:
        return Pattern(rf"(?s)\A{''.join(_SIGNS.get(part) or re.escape(part) for part in parts)}\z")
    except ValueError as error:
        raise InputError("the pattern of files is too long", got=f"{pattern[:60]}…") from error
