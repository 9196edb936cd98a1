"""``explain``: what became of one row and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.table import Table
from rich.text import Text

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.options import option
from pairmill.formats.rows import Row
from pairmill.report.model import format_cell
from pairmill.report.pairs import Pair
from pairmill.rules.match import Matcher, Selector
from pairmill.stages.curate.beside import render, visible, written
from pairmill.stages.curate.finished import REMOVED, CuratedFolder, RowId
from pairmill.stages.curate.operations import of_folder
from pairmill.stages.curate.report.wording import beside_item, describe_action, other_of, row_id

ROWS_HELP = "folders or URIs of the rows that were curated, joined by commas, for texts of rows that were dropped"


@dataclass(kw_only=True)
class ExplainConfig:
    """Say what became of one row and why, with the row that is kept in its place."""

    path: str = option(help="finished folder of curate")
    row: str = option(help="<task>:<ordinal>, the number of the row in its file from 0, as in data__a.jsonl:0")
    rows: list[str] = option([], help=ROWS_HELP)


def explain(config: ExplainConfig) -> str:
    """Explain a row. Returns the text for the terminal.

    Raises:
        InputError: the folder is absent, unfinished or of another stage, or ``rows=`` has other rows.
        UsageError: the row is unknown.
    """
    folder = CuratedFolder.open(config.path)
    folder.refuse_other_rows(config.rows)
    task, ordinal = folder.row_id(config.row)
    result = {name: folder.findings(name, task, ordinal) for name in folder.operations(task)}
    removing = _removing(result)
    parts = [f"{visible(row_id(task, ordinal))}: {_verdict(folder, task, removing)}\n"]
    parts += [f"{line}\n" for line in _chain(folder, removing)]
    parts += [f"{line}\n" for line in _overrides(folder, task)]
    parts += ["\n", written(_operations(folder, result, removing))]
    parts += _attributes(folder, task, ordinal, removing is not None)
    parts += _texts(folder, (task, ordinal), result, removing, config)
    return "".join(parts)


Removing: TypeAlias = tuple[str, Mapping[str, Any]] | None
"""The operation that removed a row, and its decision; None if the row is kept."""


def _removing(findings: Mapping[str, list[dict[str, Any]]]) -> Removing:
    return next(((name, item) for name, some in findings.items() for item in some if item["action"] in REMOVED), None)


def _removing_other(folder: CuratedFolder, finding: Mapping[str, Any]) -> Removing:
    """Return what removed the row that a decision names; None also for a row of an index."""
    task, ordinal = finding["other_task"], finding["other_ordinal"]
    if task not in folder.tasks:
        return None
    return _removing({name: folder.findings(name, task, ordinal) for name in folder.operations(task)})


def _verdict(folder: CuratedFolder, task: str, removing: Removing) -> str:
    if task.startswith(HELD_OUT):
        return "kept: held-out rows are never removed"
    if removing is None:
        return "kept"
    operation, item = removing
    what, other = _removed_by(operation, item), other_of(item)
    if not item["other_task"]:
        return visible(f"{what}, since it has {other}" if other else what)
    if other.startswith(HELD_OUT):
        return visible(f"{what}; {other} is held out")
    if _removing_other(folder, item) is not None:
        return visible(f"{what}; {other} stood in its place, and was removed later")
    return visible(f"{what}; {other} is kept in its place")


def _removed_by(operation: str, finding: Mapping[str, Any]) -> str:
    other_held_out = other_of(finding).startswith(HELD_OUT)
    reason = of_folder(operation).reasons.reason(
        operation, finding["rule"], finding["action"], other_held_out=other_held_out
    )
    return f"{describe_action(finding['action'])} by {operation}, rule {finding['rule']} (in the ledger: {reason})"


def _chain(folder: CuratedFolder, removing: Removing) -> Iterator[str]:
    """Yield what became of the row that stood in the place of one that was removed, and so on, to a row that is kept.

    It ends: the row that a decision names is of a smaller rank, or removed by a later operation.
    """
    seen: set[RowId] = set()
    while removing is not None and removing[1]["other_task"]:
        item = removing[1]
        other = item["other_task"], item["other_ordinal"]
        removing = _removing_other(folder, item)
        if removing is None or other in seen:
            return
        seen.add(other)
        repeats = f"; {other_of(removing[1])} stood in its place" if removing[1]["other_task"] else ""
        yield visible(f"  {row_id(*other)}: {_removed_by(*removing)}{repeats}")


def _overrides(folder: CuratedFolder, task: str) -> Iterator[str]:
    """Yield the override of the settings that applies to a task: the first that matches."""
    for item in folder.result.settings.get("overrides") or ():
        who = Selector.parse(item, "overrides")
        if Matcher([who]).numbers(task.removeprefix(HELD_OUT)):
            modes = {name: part.get("mode", "") for name, part in item.items() if isinstance(part, Mapping)}
            shown = ", ".join(f"{name}: {mode}" for name, mode in modes.items())
            yield visible(f"other settings for the tasks of {who.label!r}: {shown}")
            return


def _operations(folder: CuratedFolder, findings: Mapping[str, list[dict[str, Any]]], removing: Removing) -> Table:
    """Return a line for each operation and finding, in the order in which operations are asked."""
    table = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    known, settings = folder.result.operations, folder.result.settings
    gone = False
    for name, some in findings.items():
        mode = str(known.get(name, {}).get("mode", ""))
        nothing = "not asked: the row was removed before" if gone else "nothing found"
        for line in [_finding(name, item, settings) for item in some] or ["off" if mode == "off" else nothing]:
            table.add_row(Text(visible(name)), Text(visible(mode)), Text(visible(line)))
        gone = gone or (removing is not None and name == removing[0])
    return table


def _finding(operation: str, decision: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    owner, rule, other = of_folder(operation), decision["rule"], other_of(decision)
    own = settings.get(operation)
    needed = owner.describe_needed(rule, own if isinstance(own, Mapping) else {})
    meaning, scores = owner.describe_rule(rule), owner.describe_scores(decision)
    parts = [
        f"{describe_action(decision['action'])}: {rule}" + (f" ({meaning})" if meaning else ""),
        f"repeats {other}" if decision["other_task"] else other,
        scores + (f" ({needed})" if scores and needed else ""),
        decision["detail"] or "",
    ]
    return "; ".join(part for part in parts if part)


def _attributes(folder: CuratedFolder, task: str, ordinal: int, removed: bool) -> list[str]:
    if removed:
        return ["\nAttributes are written beside kept rows only.\n"]
    result = folder.attributes(task, ordinal)
    if not result:
        return ["\nNo attributes.\n"]
    table = Table.grid(padding=(0, 3, 0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in result.items():
        shown = "null" if value is None else format_cell(value) if isinstance(value, float) else str(value)
        table.add_row(Text(visible(name)), Text(visible(shown)))
    return ["\nAttributes\n", written(table)]


def _texts(
    folder: CuratedFolder,
    this: RowId,
    findings: Mapping[str, list[dict[str, Any]]],
    removing: Removing,
    config: ExplainConfig,
) -> list[str]:
    """Return the row's texts beside those of each row and item that it was compared with, the decisive one first."""
    compared = [decision for some in findings.values() for decision in some if other_of(decision)]
    compared.sort(key=lambda decision: removing is None or decision is not removing[1])
    others = {(decision["other_task"], decision["other_ordinal"]) for decision in compared if decision["other_task"]}
    texts = folder.texts({this, *others}, config.rows)
    seen: set[str] = set()
    parts: list[str] = []
    for decision in compared:
        name = other_of(decision)
        if name not in seen:
            seen.add(name)
            parts += ["\n", show_pair(pair_of(folder, this, decision, texts), name)]
    if not parts:
        parts = ["\n", show_pair(pair_of(folder, this, None, texts), "")]
    return parts


def pair_of(
    folder: CuratedFolder, this: RowId, finding: Mapping[str, Any] | None, texts: Mapping[RowId, Row]
) -> Pair | None:
    """Return a row beside what a decision compares it with; None if the row's own text is not known."""
    row = texts.get(this)
    if row is None:
        return None
    mine = (row.instruction or "", row.response or "")
    if finding is not None and finding["other_task"]:
        result = texts.get((finding["other_task"], finding["other_ordinal"]))
        if result is not None:
            return _pair(this, other_of(finding), mine, (result.instruction or "", result.response or ""))
    elif finding is not None and finding["benchmark"]:
        item = folder.item(finding["benchmark"], finding["item"])
        if item is not None:
            fields, names = beside_item(finding, mine, item)
            return Pair(row_id(*this), other_of(finding), fields, "", names)
    return _pair(this, "", mine, ("", ""))


def _pair(this: RowId, right: str, mine: tuple[str, str], other: tuple[str, str]) -> Pair:
    return Pair(row_id(*this), right, list(zip(("instruction", "response"), mine, other, strict=True)))


def show_pair(pair: Pair | None, other: str) -> str:
    """Return a pair for the terminal, or what to do to see it."""
    if pair is None:
        return "Its text is not in this folder: give rows=<folder of the rows that were curated> to see it.\n"
    rest = "" if pair.right or not other else f"The text of {visible(other)} is not known here.\n"
    return render(pair) + rest
