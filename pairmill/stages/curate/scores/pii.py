"""Personal data: mail addresses, card and phone numbers, IP addresses. No row is dropped for them.

Bare digits, dates and names are not looked for: exercises are full of them (docs/curation.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pairmill import _native
from pairmill.formats import decisions, rows
from pairmill.stages.curate.rules import PiiMode
from pairmill.stages.curate.scorer import Scored, Scorer

VERSION: Final = 1

KINDS: Final = ("EMAIL", "CARD", "PHONE", "IP")
"""By the numbers that the Rust module gives them. The first wins where two overlap; ``<EMAIL>`` replaces an address."""

_FIELDS: Final = ("instruction", "response")


@dataclass(frozen=True, kw_only=True)
class PiiSettings:
    """E-mail addresses, card and phone numbers, IP addresses.

    Args:
        mode: redact (replace them by <EMAIL>, <CARD>, <PHONE>, <IP>), report or off.
    """

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode",)

    mode: PiiMode = "off"

    def scorers(self, root: str) -> list[Scorer]:
        """What finds them; ``root`` is unused, for there are no files."""
        return [PiiScorer()]


@dataclass(frozen=True)
class PiiScorer(Scorer):
    """Finds personal data: a finding for each row and kind, whose detail is the spans in characters."""

    operation: ClassVar[str] = "pii"

    def identity(self) -> list[Any]:
        return [VERSION]

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        yield self._score

    def _score(self, batch: rows.Batch) -> Scored:
        spans: dict[tuple[int, int], list[str]] = {}
        counts: Counter[str] = Counter()
        for name in _FIELDS:
            found = _native.curate_pii(getattr(batch, name).fill_null(""))
            for row, start, stop, kind in zip(*(column.tolist() for column in found), strict=True):
                spans.setdefault((row, kind), []).append(f"{name} {start} {stop}")
                counts[KINDS[kind]] += 1
        if not spans:
            return Scored()
        found_at = sorted(spans)
        table = decisions.table_of(
            {
                "ordinal": [row for row, _ in found_at],
                "rule": [KINDS[kind] for _, kind in found_at],
                "action": ["report"] * len(found_at),
                "detail": [", ".join(spans[one]) for one in found_at],
            },
            len(found_at),
        )
        return Scored(findings=table, counts={"rows": len({row for row, _ in found_at}), **counts})
