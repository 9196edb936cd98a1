"""The account of the answers of chats: each of them is a row, or is skipped for a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairmill.errors import InternalError
from pairmill.sources.parsed import ANSWERS, Drop, Note, Parsed, parts_of


class Answers:
    """Counts the answers of a shard's records. Records that ``where`` leaves out, or that have no list, have none."""

    def __init__(self) -> None:
        self.found = self.rows = 0
        self.skipped: dict[str, int] = {}

    def add(self, parsed: Parsed, rows: int, drops: Sequence[Drop]) -> None:
        """Count those of a record that gave ``rows`` rows and ``drops``."""
        notes = [part for part in parts_of(parsed) if isinstance(part, Note) and part.what == ANSWERS]
        if not notes:
            return
        result = notes[0].times
        self.found += result
        self.rows += rows
        # A record that is dropped as a whole, by a rule for all sources, is so for all of its answers.
        reasons = [drop.reason for drop in drops] if len(drops) + rows == result else [drops[0].reason] * result
        for reason in reasons:
            self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def summary(self) -> dict[str, Any]:
        """Return what the shard's record says; empty if no record was a chat."""
        if not self.found and not self.skipped:
            return {}
        return {"found": self.found, "rows": self.rows, "skipped": self.skipped}


def total(shards: Iterable[Mapping[str, Any]], source: str) -> dict[str, Any]:
    """Return the sums over the shards of a source; empty for a source without chats.

    Raises:
        InternalError: answers were lost or counted twice.
    """
    result = rows = 0
    skipped: dict[str, int] = {}
    for item in shards:
        if item:
            result += item["found"]
            rows += item["rows"]
            for reason, count in item["skipped"].items():
                skipped[reason] = skipped.get(reason, 0) + count
    if result != rows + sum(skipped.values()):
        raise InternalError(
            "answers of chats were lost or counted twice",
            where=source,
            got=f"{result} answers, {rows} rows, {sum(skipped.values())} skipped",
            expected="answers = rows + skipped",
            hint="this is a defect of pairmill, please report it",
        )
    return {"found": result, "rows": rows, "skipped": dict(sorted(skipped.items()))} if result else {}
