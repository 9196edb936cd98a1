"""Licences as cards state them: SPDX identifiers, in any case, and expressions of them with ``OR`` and ``AND``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting

UNKNOWN = frozenset({"", "unknown", "other", "none", "none-stated", "noassertion"})
"""What cards state that says nothing."""
Decision = Literal["allow", "deny", "hold", "eval_only"]
STRICTNESS: Sequence[Decision] = ("allow", "eval_only", "hold", "deny")
"""From the least to the most strict."""


@dataclass(frozen=True)
class Licences(Checked):
    """What licences decide, on the licence that the source's card or description states."""

    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    unknown: Literal["allow", "hold", "deny"] = setting(
        "hold", help="of a licence in neither list, and of a source without one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        both = {item.lower() for item in self.allow} & {item.lower() for item in self.deny}
        if both:
            raise UsageError("a licence is allowed and denied", where="allow", got=", ".join(sorted(both)))

    @property
    def are_given(self) -> bool:
        """Whether licences decide anything."""
        return bool(self.allow or self.deny)

    def decide(self, licence: str) -> Decision:
        """Return the decision on a licence: of alternatives (``OR``) the best, of parts (``AND``, commas) the worst.

        Of an expression with parentheses the worst of all counts.
        """
        text = licence.strip().lower()
        if re.search(r"\([^)]*\s(or|and)\s", text):
            return self._worst(re.split(r"\s+(?:or|and)\s+", re.sub("[()]", "", text)))
        parts = (re.split(r"\s+and\s+|\s*[,;]\s*", part) for part in re.split(r"\s+or\s+", text))
        return min(map(self._worst, parts), key=STRICTNESS.index)

    def _worst(self, licences: Sequence[str]) -> Decision:
        return max(map(self._of_one, licences), key=STRICTNESS.index)

    def _of_one(self, text: str) -> Decision:
        name = normalise(text)
        # What forbids counts first: CC-BY-NC-4.0 is also one of CC-BY*.
        if name not in UNKNOWN and _is_one_of(name, self.deny):
            return "deny"
        return "allow" if name not in UNKNOWN and _is_one_of(name, self.allow) else self.unknown


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, normalise(pattern)) for pattern in patterns)


def normalise(text: str) -> str:
    """Return a licence's identifier in small letters, without remarks in parentheses, as ``cc-by-nc-4.0``."""
    return re.sub(r"[\s_]+", "-", re.sub(r"\(.*?\)", "", text).strip().lower())
