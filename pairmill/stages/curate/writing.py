"""The rounds that write: rows of tasks or of their parts, then attributes, and what joins the parts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import content_key
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.formats.joined_parts import JoinParts
from pairmill.formats.kept_rows import Gone
from pairmill.stages.curate import totals
from pairmill.stages.curate.asked import Done, is_wanted, tallied
from pairmill.stages.curate.decide import REMOVED, TALLY, Column, Decided
from pairmill.stages.curate.inputs import Slice, Task
from pairmill.stages.curate.write import VERSION, CutAttributes, WriteRows, Written

if TYPE_CHECKING:
    from pairmill.stages.curate.core import CuratePlan

DecidedTasks: TypeAlias = "Mapping[str, tuple[ShardRecord, Decided]]"
"""The decisions on training tasks by name."""


def write(
    plan: CuratePlan, decided: DecidedTasks, longest: int
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], dict[str, list[ShardRecord]]]:
    """Round 12: the kept rows. Returns the records by task: one, or that of each part."""
    pii = [one.identity() for one in plan.scorers if one.operation == "pii"]
    made: list[WriteRows] = []
    for task in plan.rows.tasks:
        settings = plan.of(task)
        redact = content_key(pii) if settings.pii.mode == "redact" and not plan.settings.report_all else ""
        redact = "" if task.held_out else redact
        given = _given_attributes(plan, task)
        for part, gone in _parts(task, decided.get(task.name), redact):
            made.append(WriteRows.of(task, given, gone, part=part, redact=redact, longest=longest))
    written: dict[str, list[ShardRecord]] = {}
    for shard, record in zip(made, (yield made), strict=True):
        written.setdefault(shard.file.task, []).append(record)
    return written


def _given_attributes(plan: CuratePlan, task: Task) -> dict[str, InputFile]:
    """The attributes that come with the rows, but those that are made anew."""
    names = {scorer.name for scorer in plan.scorers if is_wanted(plan.of(task), scorer)}
    return {name: file for name, file in task.beside.items() if name not in names or task.held_out}


def _parts(task: Task, known: tuple[ShardRecord, Decided] | None, redact: str) -> list[tuple[Slice | None, Gone]]:
    """What is written by itself; all of the task if that is small, or copied as it is."""
    if known is None:
        return [(None, Gone())]
    record, decided = known
    uri = record.uri(REMOVED)
    if decided.parts and (decided.dropped or redact):
        return list(zip(task.slices, decided.gone_by_part(uri), strict=True))
    return [(None, decided.gone(uri))]


def beside(
    plan: CuratePlan,
    decided: DecidedTasks,
    written: Mapping[str, list[ShardRecord]],
    rows_of: Sequence[int],
    done: Done,
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], tuple[list[ShardRecord], list[JoinParts]]]:
    """Round 13: attributes, rows of tasks from their parts, and counts of groups of tasks.

    Returns the records of the counts, and the shards of round 14 that join attributes.
    """
    joins = [
        JoinParts.of("curate", VERSION, task.name, written[task.name], task.path)
        for task in plan.training
        if len(written[task.name]) > 1
    ]
    cut: list[CutAttributes] = []
    owners: list[Task] = []
    for task in plan.training:
        some = list(_attributes(task, *decided[task.name], written[task.name], rows_of, done))
        cut += some
        owners += [task] * len(some)
    records = [(task, decided[task.name][0]) for task in plan.training]
    tallies = list(totals.groups([(one.key, one.uri(TALLY), tallied(task, done)) for task, one in records]))
    last = yield [*joins, *cut, *tallies]
    parts: dict[str, tuple[Task, list[ShardRecord]]] = {}
    for task, record in zip(owners, last[len(joins) : len(joins) + len(cut)], strict=True):
        if len(written[task.name]) > 1:
            parts.setdefault(task.name, (task, []))[1].append(record)
    return last[len(joins) + len(cut) :], [
        JoinParts.of("curate", VERSION, task.name, some) for task, some in parts.values()
    ]


def _attributes(
    task: Task,
    record: ShardRecord,
    decided: Decided,
    written: Sequence[ShardRecord],
    rows_of: Sequence[int],
    done: Done,
) -> Iterator[CutAttributes]:
    """The shards for the attributes that were made for a task; none if none were."""
    made = {name: one for name, one in done.columns(task).items() if done.of(name, task)}
    if not made:
        return
    groups = [one.read(Written).groups for one in written]
    uri = record.uri(REMOVED)
    if len(written) == 1:
        yield CutAttributes.of(task, decided.rows, decided.gone(uri), made, groups[0])
        return
    for at, (part, gone) in enumerate(zip(task.slices, decided.gone_by_part(uri), strict=True)):
        own = {name: (Column((column.uris[at],), ""), [keys[at]]) for name, (column, keys) in made.items()}
        yield CutAttributes.of(task, rows_of[part.number], gone, own, groups[at], part)
