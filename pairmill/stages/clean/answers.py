"""The account of the answers of chats: each of them is a row, or is skipped for a reason; and what they cost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairmill._native import MadeRows
from pairmill.errors import InternalError
from pairmill.sources.parsed import ANSWERS, ChatCounts, Drop, Note, Parsed, parts_of, writable

MAX_TOOLS, TOP_TOOLS = 4096, 10
"""Names of tools that a shard counts, and that a manifest lists: names that a model invented have no end."""
_LONGEST_TOOL = 100
_SUMS = ("chats", "call_targets", "prompt_characters", "repeated_characters", "response_characters")


class Answers:
    """Counts the answers of a shard's records. Records that ``where`` leaves out, or that have no list, have none."""

    def __init__(self) -> None:
        self.found = self.rows = 0
        self.skipped: dict[str, int] = {}
        self._sums: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._tools: Counter[str] = Counter()

    def add(self, parsed: Parsed, rows: int, drops: Sequence[Drop]) -> None:
        """Count those of a record that gave ``rows`` rows and ``drops``."""
        parts = parts_of(parsed)
        result = next((part.times for part in parts if type(part) is Note and part.what == ANSWERS), None)
        if result is None:
            return
        self.found += result
        self.rows += rows
        # A record that is dropped as a whole, by a rule for all sources, is so for all of its answers.
        reasons = [drop.reason for drop in drops] if len(drops) + rows == result else [drops[0].reason] * result
        for reason in reasons:
            self.skipped[reason] = self.skipped.get(reason, 0) + 1
        for part in parts:
            if type(part) is ChatCounts:
                self._add_counts(part, rows)

    def add_made(self, made: MadeRows, prompts: int, responses: int) -> None:
        """Count the answers of plain chats, and the characters of their rows."""
        self.found += len(made)
        self.rows += len(made)
        self._sums.update(dict(zip(_SUMS, (made.records, 0, prompts, made.repeated, responses), strict=True)))

    def _add_counts(self, counts: ChatCounts, rows: int) -> None:
        self._sums["chats"] += 1
        self._ended[counts.ended] += bool(counts.ended)
        for name, times in counts.tools.items():
            key = writable(name[:_LONGEST_TOOL])
            if key in self._tools or len(self._tools) < MAX_TOOLS:
                self._tools[key] += times
        if rows:
            self._sums["call_targets"] += counts.calls
            self._sums["prompt_characters"] += counts.prompts
            self._sums["repeated_characters"] += counts.repeated
            self._sums["response_characters"] += counts.responses

    def summary(self) -> dict[str, Any]:
        """Return what the shard's record says; empty if no record was a chat."""
        if not self.found and not self.skipped:
            return {}
        chats = {**self._sums, "ended": dict(+self._ended), "tools": dict(self._tools)}
        return {"found": self.found, "rows": self.rows, "skipped": self.skipped, "chats": chats}


def chats_of(shards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums over the chats of a source; empty for a source without.

    Returns:
        Number of chats with an answer, of rows whose answer calls a tool, of chats that ended early by reason;
        characters of prompts, of those that another row of the same chat has too, of responses; names of tools that
        are called, and the calls of the ten most frequent.
    """
    parts = [item["chats"] for item in shards if item]
    if not parts:
        return {}
    ended, tools = Counter[str](), Counter[str]()
    for part in parts:
        ended.update(part["ended"])
        tools.update(part["tools"])
    top = sorted(tools.items(), key=lambda item: (-item[1], item[0]))[:TOP_TOOLS]
    sums = {name: sum(part.get(name, 0) for part in parts) for name in _SUMS}
    return {**sums, "ended": dict(sorted(ended.items())), "distinct_tools": len(tools), "top_tools": dict(top)}


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
