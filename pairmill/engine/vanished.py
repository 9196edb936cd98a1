"""The alarm: sources, tasks and rules that lose half of their rows or tokens, or that nothing applies to.

Every manifest has the table, under ``vanished``; reports and logs show it, and ``fail_on`` refuses it. What options ask
for by name is not in it (docs/vanished.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.links import LeftOut
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError

FROM: Final = 0.5
"""The share of rows or tokens from which a loss is an alarm."""
EXAMPLES: Final = 2
_NAMED: Final = 5
KEY: Final = "vanished"
"""Under which ``finish`` of a stage returns alarms of its own, in place of those of its ledgers."""

VANISHED: Final = "vanished"
UNMATCHED_TASK: Final = "unmatched_task"
UNMATCHED_RULE: Final = "unmatched_rule"
TWO_RULES: Final = "two_rules"
UNMATCHED_SOURCE: Final = "unmatched_source"
LINKS: Final = "links"
KINDS: Final = {
    VANISHED: "Half or more of the rows or tokens is gone of",
    UNMATCHED_TASK: "Tasks that no rule matches, so they are taken whole:",
    UNMATCHED_RULE: "Rules that apply to no task:",
    TWO_RULES: "Rules that match the same tasks, of which the first applies:",
    UNMATCHED_SOURCE: "Folders of raw= that no source reads:",
    LINKS: "Links that are left out:",
}
"""What ``fail_on`` names, and how a line about it begins."""


class Alarm(NamedTuple):
    """A line of the table.

    Args:
        kind: of :data:`KINDS`.
        name: of the source, task, rule, folder or link.
        rows: before and after; None = not known.
        tokens: before and after; None = not known.
        reason: the ledger's first reason, or what else there is to say.
        examples: ids of two rows that are gone.
    """

    kind: str
    name: str
    rows: Sequence[int] | None = None
    tokens: Sequence[int] | None = None
    reason: str = ""
    examples: Sequence[str] = ()

    @property
    def lost(self) -> float | None:
        """The larger of the shares of rows and tokens that are gone, 0 to 1; None if neither is known."""
        pairs = [pair for pair in (self.rows, self.tokens) if pair]
        return max((1 - after / before if before else 0.0) for before, after in pairs) if pairs else None

    def __str__(self) -> str:
        """Return it as an item of a sentence."""
        parts = [
            f"{before:,} → {after:,} {unit}" if before != after else f"{before:,} {unit}"
            for pair, unit in ((self.rows, "rows"), (self.tokens, "tokens"))
            if pair
            for before, after in (pair,)
        ]
        # A ledger's reason is a word, perhaps with a hint behind it; sentences may have names of tasks.
        word, *hint = self.reason.split("; ", 1)
        parts += ["; ".join([word if " " in word else word.replace("_", " "), *hint])] if self.reason else []
        parts += [f"as {' and '.join(self.examples)}"] if self.examples else []
        return f"{self.name} ({'; '.join(parts)})" if parts else self.name


def lost(
    name: str,
    ledger: Ledger,
    *,
    tokens: Sequence[int] | None = None,
    asked: Collection[str] = (),
    examples: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Alarm]:
    """Return the alarm of a source or task that lost half or more of its rows or tokens; none of any other.

    Args:
        name: of the source or task.
        ledger: what became of its rows.
        tokens: before and after, where they are known.
        asked: reasons that the options ask for: rows dropped for them are not lost.
        examples: ids of rows that were dropped, by reason.
    """
    gone = {reason: count for reason, count in ledger.dropped.items() if reason not in asked}
    rows = [ledger.rows_in, ledger.rows_in - sum(gone.values())]
    reason = min(gone, key=lambda item: (-gone[item], item), default="")
    if not reason and ledger.notes:
        reason = min(ledger.notes, key=lambda item: (-ledger.notes[item], item))
    shown = list(examples.get(reason, ()))[:EXAMPLES]
    alarm = Alarm(VANISHED, name, rows, None if tokens is None else list(tokens), reason, shown)
    return [alarm] if ledger.rows_in and (alarm.lost or 0.0) >= FROM else []


def by_source(ledgers: Mapping[str, Ledger]) -> dict[str, Ledger]:
    """Add up the ledgers of tasks by source; held-out rows are kept apart on purpose."""
    result: dict[str, Ledger] = {}
    for name, ledger in sorted(ledgers.items()):
        if not name.startswith(HELD_OUT):
            result.setdefault(source_of(name), Ledger()).add(ledger)
    return result


def table_of(
    manifest: Manifest, alarms: Iterable[Alarm] | None, left_out: Iterable[LeftOut] = ()
) -> list[dict[str, Any]]:
    """Return the table of a manifest, in the order of :data:`KINDS`.

    Args:
        manifest: with its ledgers.
        alarms: those of the stage; None = those of the ledgers.
        left_out: of the folders that were listed.
    """
    of_ledgers = (item for name, ledger in by_source(manifest.shards).items() for item in lost(name, ledger))
    result = [*(of_ledgers if alarms is None else alarms), *(Alarm(kind, name) for kind, name in left_out)]
    order = list(KINDS)
    return [item._asdict() for item in sorted(result, key=lambda item: order.index(item.kind))]


def read(manifest: Manifest) -> list[Alarm]:
    """Return the table of a manifest."""
    return [Alarm(**item) for item in manifest.vanished]


def sentences(manifest: Manifest) -> list[str]:
    """Return one line for each kind of alarm in a manifest, for the log and the report."""
    result = []
    for kind, beginning in KINDS.items():
        names = [str(item) for item in read(manifest) if item.kind == kind]
        # All rules: the misspelt one may be the last of many.
        shown = names if kind == UNMATCHED_RULE else names[:_NAMED]
        rest = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
        result += [f"{beginning} {', '.join(shown)}{rest}."] if names else []
    return result


def refuse(manifest: Manifest, fail_on: Sequence[str]) -> None:
    """Raise InputError if the table of a manifest has a line of a kind that ``fail_on`` names."""
    alarms = [item for item in read(manifest) if item.kind in fail_on]
    if alarms:
        kinds = [kind for kind in KINDS if any(item.kind == kind for item in alarms)]
        raise InputError(
            f"refused by fail_on={','.join(kinds)}",
            where=manifest.stage,
            got=" ".join(line for line in sentences(manifest) if line.startswith(tuple(KINDS[kind] for kind in kinds))),
            hint="correct the settings or the data; without fail_on= this is a warning (docs/vanished.md)",
        )
