"""Rows by source: their lengths, the tables of the report, and which sources lost most of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import Ledger
from pairmill.engine.source_names import source_of
from pairmill.engine.stage import ShardRecord
from pairmill.engine.vanished import Alarm, lost
from pairmill.formats.token_lengths import CONTEXTS, PERCENTILES, Lengths, TokenLengths
from pairmill.report.model import Percent, Table

ALL: Final = "all sources"
_SOURCES: Final = 1000
"""More are told together alone."""


def describe_lengths(records: Iterable[ShardRecord], task_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the lengths of each source, and of those with long rows before these were made to fit.

    Args:
        records: of the first round.
        task_of: the task of each piece.
    """
    after: dict[str, TokenLengths] = {}
    before: dict[str, TokenLengths] = {}
    for record in records:
        if record.name.startswith(HELD_OUT) or not record.data:
            continue
        lengths = record.read(Lengths)
        source = source_of(task_of.get(record.name, record.name))
        for into, data in ((after, lengths.lengths), (before, lengths.before)):
            if data:
                into.setdefault(source, TokenLengths()).join(TokenLengths.from_data(data))
    for item in list(after.values()):
        after.setdefault(ALL, TokenLengths()).join(item)
    some = after if len(after) <= _SOURCES else {ALL: after[ALL]}
    described = {name: {"after": item.describe()} for name, item in sorted(some.items())}
    for name, item in before.items():
        if name in described:
            described[name]["before"] = item.describe()
    return described


def find_lost(records: Iterable[ShardRecord], task_of: Mapping[str, str]) -> list[Alarm]:
    """Return the sources that lost half of their rows, with two of those; arguments as for :func:`describe_lengths`."""
    ledgers: dict[str, Ledger] = {}
    examples: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if record.name.startswith(HELD_OUT):
            continue
        task = task_of.get(record.name, record.name)
        source = source_of(task)
        ledgers.setdefault(source, Ledger()).add(record.ledger)
        for reason, ordinals in record.read(Lengths).examples.items() if record.data else ():
            some = examples.setdefault(source, {}).setdefault(reason, [])
            some += [f"{task}:{ordinal}" for ordinal in ordinals]
    alarms = (lost(name, ledger, examples=examples.get(name, {})) for name, ledger in sorted(ledgers.items()))
    return [alarm for some in alarms for alarm in some]


def tables_of(described: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a report: percentiles by source, and what fits into a context."""
    if not described:
        return []
    lengths, fits = [], []
    some = described if len(described) != 2 else {name: item for name, item in described.items() if name != ALL}
    for name, item in sorted(some.items(), key=lambda pair: (pair[0] == ALL, pair[0])):
        for when in ("before", "after"):
            if when not in item:
                continue
            shown = f"{name}, before" if when == "before" else name
            for what, values in item[when]["percentiles"].items():
                if values:
                    lengths.append((shown, what, *values))
            fits.append(
                (
                    shown,
                    item[when]["rows"],
                    *(Percent(item[when]["fits"][str(size)][at]) for size in CONTEXTS for at in (0, 1)),
                )
            )
    names = tuple("longest" if each == 100 else f"{each} %" for each in PERCENTILES)
    columns = tuple(f"{size // 1024} K {what}" for size in CONTEXTS for what in ("rows", "tokens"))
    return [
        Table("Lengths in tokens", ("Source", "Of", *names), lengths),
        Table("Rows and response tokens that fit into a context", ("Source", "Rows", *columns), fits),
    ]
