"""The base of stages that choose rows: the subclass finds what becomes of each row, the base does the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from pairmill.engine import vanished
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import RowConfig
from pairmill.engine.source_names import source_of
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError
from pairmill.formats.means import MEANS, joined
from pairmill.report.charts import Bars
from pairmill.report.model import Percent, Report, Table, describe_rows
from pairmill.rowstage.join import JoinParts
from pairmill.rowstage.rows import Rows
from pairmill.rowstage.verdicts import Findings, Verdict
from pairmill.rowstage.write import WriteRows, Written, parts_of
from pairmill.rules.match import Selector

T = TypeVar("T")
ShardRounds: TypeAlias = Generator[Sequence[Shard[Any]], list[ShardRecord], T]
"""Rounds of shards, and what they return."""


@dataclass(frozen=True, kw_only=True)
class RowPlan(StagePlan[Any]):
    """What is read, and what the rounds learned.

    Args:
        rows: the row files.
        findings: what ``find`` returned; known after the last round.
        summary: what ``summarise`` returned; known after the last round.
        written: the records of what was written, by task: one, or that of each part; known after the last round.
        joined: the records of parts joined; known after the last round.
    """

    rows: Rows
    findings: Findings | None = None
    summary: Any = None
    written: Sequence[Sequence[ShardRecord]] = ()
    joined: Sequence[ShardRecord] = ()


C = TypeVar("C", bound=RowConfig)
P = TypeVar("P", bound=RowPlan)


class RowStage(Stage[C, P], Generic[C, P]):
    """A stage whose result is its input with fewer rows; :mod:`pairmill.rowstage` says how to write one."""

    output_in_list: ClassVar[bool] = True
    measures_lengths: ClassVar[bool] = False
    """Whether lengths of rows are counted before and after; :meth:`data` finds them in ``plan.written``."""

    reasons_asked: ClassVar[Collection[str]] = ()
    """Reasons by which options say how many rows stay: rows that go for them are no loss."""

    @abstractmethod
    def find(self, config: C, plan: P) -> ShardRounds[Findings]:
        """Yield rounds of shards, as :meth:`Stage.rounds` does; return a verdict on each of ``plan.rows.slices``."""

    def summarise(self, config: C, plan: P, findings: Any) -> ShardRounds[Any]:
        """Yield shards for the report, which share the two rounds in which rows are written and joined.

        What it returns is ``plan.summary`` for :meth:`data`.
        """
        yield from ()

    def data(self, config: C, plan: P, out: Writer) -> dict[str, Any]:
        """Return what the manifest says besides counts; it may put further files into the folder."""
        return {}

    def nothing_kept(self, config: C) -> tuple[str, str]:
        """Say which option decides, and what to do if no row is left."""
        return self.name, "loosen the rule that drops most"

    def plan(self, config: C) -> P:
        rows = self.discover(config)
        refs, count = rows.inputs.refs, rows.inputs.rows
        made: Any = RowPlan(inputs=refs, rows_expected=count, build_context=lambda: None, rows=rows)
        return made  # type: ignore[no-any-return]

    def discover(self, config: C, priority: Sequence[Selector] = ()) -> Rows:
        """Find the row files that ``rows=`` names; see :meth:`Rows.discover`."""
        return Rows.discover(
            config.rows,
            verify=config.verify,
            longest=config.max_record_bytes,
            expansion=config.max_expansion,
            priority=priority,
        )

    def rounds(self, config: C, plan: P) -> ShardRounds[P]:
        findings = yield from self.find(config, plan)
        verdicts = by_task(plan.rows, findings)
        where, hint = self.nothing_kept(config)
        refuse_nothing_kept(findings.verdicts, config.rows, where, hint)
        beside = _Beside(self.summarise(config, plan, findings))
        written = yield from self._write(config, plan, verdicts, beside)
        joins = yield from beside.share(
            [
                JoinParts.from_records(task.name, task.path, parts)
                for task, parts in zip(plan.rows.tasks, written, strict=True)
                if len(parts) > 1
            ]
        )
        summary = yield from beside.rest()
        return replace(
            plan, findings=findings, summary=summary, written=written, joined=joins, build_context=lambda: plan.context
        )

    def _write(
        self, config: C, plan: P, verdicts: Sequence[Sequence[Verdict]], beside: _Beside
    ) -> ShardRounds[list[list[ShardRecord]]]:
        """Yield the round that writes rows; return its records by task: one, or that of each part."""
        shards: list[WriteRows] = []
        owners: list[int] = []
        for number, (task, mine) in enumerate(zip(plan.rows.tasks, verdicts, strict=True)):
            evidence = self.name if any(verdict.evidence for verdict in mine) else ""
            for piece, some in parts_of(task, mine):
                shards.append(
                    WriteRows.from_task(
                        task,
                        some,
                        evidence=evidence,
                        measured=self.measures_lengths,
                        longest=config.max_record_bytes,
                        piece=piece,
                    )
                )
                owners.append(number)
        written: list[list[ShardRecord]] = [[] for _ in plan.rows.tasks]
        for number, record in zip(owners, (yield from beside.share(shards)), strict=True):
            written[number].append(record)
        return written

    def ledger(self, plan: P, rounds: Rounds) -> Ledger:
        """Add up the ledgers of the shards that write rows: the others count none."""
        return Ledger.sum(record.ledger for parts in plan.written for record in parts)

    def parts(self, plan: P, rounds: Rounds) -> dict[str, Ledger]:
        tasks = zip(plan.rows.tasks, plan.written, strict=True)
        return {task.name: Ledger.sum(record.ledger for record in parts) for task, parts in tasks}

    def finish(self, config: C, plan: P, rounds: Rounds, out: Writer) -> dict[str, Any]:
        for record in (*(record for parts in plan.written for record in parts), *plan.joined):
            for file in record.lasting():
                out.link(record.folder, file)
        counts = self.parts(plan, rounds)
        held_out = {task.path: counts[task.name].rows_in for task in plan.rows.tasks if task.held_out}
        alarms = [
            item._replace(examples=self._examples(plan, source))
            for source, ledger in vanished.by_source(counts).items()
            # What is asked for takes many rows of a source, and not all of them.
            for item in vanished.lost(source, ledger, asked=self.reasons_asked if ledger.rows_kept else ())
        ]
        means = (record.read(Written).means for parts in plan.written for record in parts)
        return {
            **self.data(config, plan, out),
            vanished.KEY: alarms,
            MEANS: joined({MEANS: item} for item in means),
            **({"held_out": held_out} if held_out else {}),
            **plan.rows.inputs.passed_on(),
        }

    def _examples(self, plan: P, source: str) -> list[str]:
        """Return the first rows of a source that go, as ``<task>:<row from 1>``."""
        result: list[str] = []
        for piece, verdict in zip(plan.rows.slices, plan.findings.verdicts if plan.findings else (), strict=True):
            if len(result) < vanished.EXAMPLES and verdict.removed.count and source_of(piece.task) == source:
                result += [f"{piece.task}:{row + 1}" for row in verdict.removed.load()[: vanished.EXAMPLES].tolist()]
        return result[: vanished.EXAMPLES]

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        return {"tasks": len([name for name in manifest.tasks() if not name.startswith(HELD_OUT)])}

    def report(self, manifest: Manifest) -> Report:
        ledger = manifest.ledger
        dropped = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
        rows = [
            (name, each.rows_in, each.rows_kept, Percent.ratio(each.rows_kept, each.rows_in))
            for name, each in sorted(manifest.shards.items())
        ]
        return Report(
            self.name,
            {"Rows in": ledger.rows_in, "Kept": ledger.rows_kept, "Fingerprint": manifest.fingerprint},
            [
                Bars("Dropped, by reason", dropped, "rows"),
                Table("Tasks", ("Task", "Rows in", "Kept", "Share kept"), rows),
            ],
            verdict=describe_rows(ledger),
        )


def by_task(rows: Rows, findings: Findings) -> list[Sequence[Verdict]]:
    """Deal the verdicts out to all tasks; those of held-out rows have none.

    Raises:
        InternalError: there is not one verdict for each slice.
    """
    wanted, result = len(rows.slices), len(findings.verdicts)
    if wanted != result:
        raise InternalError("not one verdict for each slice", where="find", got=f"{result}", expected=f"{wanted}")
    made: list[Sequence[Verdict]] = []
    at = 0
    for task in rows.tasks:
        count = 0 if task.held_out else len(task.slices)
        made.append(findings.verdicts[at : at + count])
        at += count
    return made


def refuse_nothing_kept(verdicts: Iterable[Verdict], places: Sequence[str], where: str, hint: str) -> None:
    """Raise InputError if there is no row, or none is left.

    Args:
        verdicts: of all slices.
        places: of the rows.
        where: the option that decides.
        hint: what to do if none is left.
    """
    total = Ledger()
    for verdict in verdicts:
        total.rows_in += verdict.rows
        total.rows_kept += verdict.rows - verdict.removed.count
        for reason, count in verdict.removed.reasons.items():
            total.drop(reason, count)
    if not total.rows_in:
        raise InputError(
            "the row files contain no row", where="rows", got=", ".join(places), hint="check the stage before"
        )
    if not total.rows_kept:
        reason, count = max(total.dropped.items(), key=lambda item: (item[1], item[0]))
        raise InputError(
            "no row is left",
            where=where,
            got=f"{total.rows_in:,} rows, of which {count:,} are dropped as {reason}",
            expected="at least one kept row",
            hint=hint,
        )


class _Beside:
    """Rounds whose shards share the rounds of other shards.

    Args:
        rounds: yields the shards of each round.
    """

    def __init__(self, rounds: ShardRounds[Any]) -> None:
        self._rounds = rounds
        self._records: list[ShardRecord] | None = None
        self._ended = False
        self._result: Any = None

    def share(self, shards: Sequence[Shard[Any]]) -> ShardRounds[list[ShardRecord]]:
        """Yield these shards and those of the next round; return the records of these."""
        records = yield [*shards, *self._next()]
        self._records = records[len(shards) :]
        return records[: len(shards)]

    def rest(self) -> ShardRounds[Any]:
        """Yield the rounds that are left; return what all rounds returned."""
        while (shards := self._next()) or not self._ended:
            self._records = yield shards
        return self._result

    def _next(self) -> Sequence[Shard[Any]]:
        if not self._ended:
            try:
                return next(self._rounds) if self._records is None else self._rounds.send(self._records)
            except StopIteration as end:
                self._ended, self._result = True, end.value
        return []
