"""Personal data: mail addresses, card and phone numbers, IP addresses. No row is dropped for them.

Bare digits, dates and names are not looked for: exercises are full of them (docs/curation.md).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from pairmill import _native
from pairmill.engine.manifest import Ledger
from pairmill.fields import Checked, setting
from pairmill.formats import decisions, rows
from pairmill.formats.kept_rows import Texts
from pairmill.rowstage import Rewrite
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import PiiMode, Rule, ScoredOperation

VERSION: Final = 1

KINDS: Final = ("EMAIL", "CARD", "PHONE", "IP")
"""By the numbers that the Rust module gives them. The first wins where two overlap; ``<EMAIL>`` replaces an address."""

_FIELDS: Final = ("instruction", "response")


@dataclass(frozen=True, kw_only=True)
class PiiSettings(Checked):
    """E-mail addresses, card and phone numbers, IP addresses."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode",)

    mode: PiiMode = setting("off", help="redact (replace them by <EMAIL>, <CARD>, <PHONE>, <IP>), report or off")

    def scorers(self, root: str) -> list[Scorer]:
        """Make what finds them; ``root`` is unused, for there are no files."""
        return [PiiScorer()]

    def rules(self) -> list[Rule]:
        """Return no bounds, since there are no attributes."""
        return []


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
            result = _native.curate_pii(getattr(batch, name).fill_null(""))
            for row, start, stop, kind in zip(*(column.tolist() for column in result), strict=True):
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
                "detail": [", ".join(spans[item]) for item in found_at],
            },
            len(found_at),
        )
        return Scored(findings=table, counts={"rows": len({row for row, _ in found_at}), **counts})


@dataclass(frozen=True)
class Redact(Rewrite):
    """Replaces personal data, and counts it."""

    version: int = setting(help="of what is found")

    def apply(self, texts: Texts, ledger: Ledger) -> Texts:
        condition, *fields = texts
        changed = np.zeros(len(condition), np.bool_)
        made = [condition]
        for column in fields:
            replaced, spans = _native.curate_redact(column)
            made.append(pa.array(replaced))
            some = np.asarray(spans) > 0
            changed |= some
            if some.any():
                kinds = np.asarray(_native.curate_pii(column.filter(pa.array(some)))[3])
                for kind, count in zip(KINDS, np.bincount(kinds, minlength=len(KINDS)).tolist(), strict=True):
                    if count:
                        ledger.measures[f"redacted_{kind}"] = ledger.measures.get(f"redacted_{kind}", 0) + count
        if changed.any():
            ledger.note("redacted", int(changed.sum()))
        return made


class _Pii(ScoredOperation[PiiSettings]):
    def rewrite(self, own: PiiSettings) -> Rewrite | None:
        return Redact(VERSION) if own.mode == "redact" else None


PII: Final = _Pii(
    name="pii",
    settings=PiiSettings,
    help="e-mail addresses, card and phone numbers, IP addresses",
    actions=dict.fromkeys(KINDS, "redact"),
    meanings={
        "EMAIL": "an e-mail address",
        "CARD": "a card number",
        "PHONE": "a telephone number",
        "IP": "an IP address",
    },
    counts_shown=(),
    private=True,
    changes=True,
)
