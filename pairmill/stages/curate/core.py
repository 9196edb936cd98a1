"""The curate stage: rows → the same files with fewer rows, every dropped row with its evidence.

 1  keys of slices, scores of slices, the index of benchmarks
 2  keys of many slices together (:mod:`pairmill.engine.shuffle`); scores that need that index
 3  the same once more, of very many
 4  groups of equal keys
 5  what exact deduplication found, by task
6–17 near deduplication (:mod:`pairmill.stages.curate.near.core`), with five such rounds
18  decisions by task: no text is read
19  the kept rows and their attributes (:mod:`pairmill.rowstage`); counts of some tasks
20  parts joined; counts of all tasks, and the texts of samples
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

from pairmill.engine import shuffle
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.manifest import InputRef, Manifest, content_key
from pairmill.engine.rounds import abreast
from pairmill.engine.stage import Rounds, Shard, ShardFile, ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import Attempts, InputError
from pairmill.formats.attributes import unknown
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.results.rows import CurateResult
from pairmill.leaks import benchmarks
from pairmill.leaks import index as leaks
from pairmill.leaks.index import LeakPlan
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.rowstage import Findings, RowPlan, Rows, RowStage, ShardRounds, Task, Verdict
from pairmill.rowstage.scorer import ATTRIBUTES, HISTOGRAMS, Score, Scorer
from pairmill.rules.match import Matcher
from pairmill.stages.curate import exact, operations, stored_index, totals
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.decide import TALLY, Decide, Decided
from pairmill.stages.curate.exact import ExactFound, ExactInput, Keying, KeysRead, ReadKeys
from pairmill.stages.curate.exact_settings import actions
from pairmill.stages.curate.found import DroppedRows, Place
from pairmill.stages.curate.near import core as near
from pairmill.stages.curate.near.given import NearInput, NearSlice, NothingDropped
from pairmill.stages.curate.near.index import NearFound
from pairmill.stages.curate.operation import Learned, has_file
from pairmill.stages.curate.outcome import by_source, costs_of, log_totals, summarise
from pairmill.stages.curate.report.page import report_of
from pairmill.stages.curate.report.rates import removal_rates
from pairmill.stages.curate.scores.pii import PII
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.stored_index import StoredIndex
from pairmill.stages.curate.totals import AddUp, Summarise

_NEAR_ROUNDS: Final = 8 + 2 * shuffle.LEVELS
_TASKS: Final = 256
"""Whose counts one shard adds up."""


@dataclass(frozen=True, kw_only=True)
class CuratePlan(RowPlan):
    """What is read.

    Args:
        settings: of all operations.
        scorers: what looks at each row by itself, besides decontamination.
        leaks: the benchmarks.
        index: of an earlier run; None without.
        write_index: whether a new index is written.
    """

    settings: Settings
    scorers: list[Scorer]
    leaks: LeakPlan
    index: StoredIndex | None
    write_index: bool


class Looked(NamedTuple):
    """What rounds 1 to 5 learned.

    Args:
        counts: rows of each slice.
        exact: what exact deduplication found.
        exact_records: of its shards.
        leaks: records of the shard that built the index of benchmarks.
        scores: records by scorer's name and number of the slice.
    """

    counts: list[int]
    exact: ExactFound
    exact_records: list[ShardRecord]
    leaks: list[ShardRecord]
    scores: dict[str, dict[int, ShardRecord]]


@dataclass(frozen=True)
class CurateFindings(Findings):
    """Verdicts, and what they follow from.

    Args:
        looked: what rounds 1 to 5 learned.
        near: what near deduplication found.
        decisions: the records of ``Decide``, of each training task.
    """

    looked: Looked
    near: NearFound
    decisions: list[ShardRecord]


class Curate(RowStage[CurateConfig, CuratePlan]):
    """Look at rows, compare them, decide."""

    name: ClassVar[str] = "curate"
    version: ClassVar[int] = 6
    round_count: ClassVar[int] = 20
    history: ClassVar[dict[int, str]] = {
        2: "large files are written in parts, and what later rounds read has another form",
        3: "a row like a removed one is compared with the row in its place; copied 3-grams are counted once",
        4: "damage of records and files of shards could go unseen; exact by several rules removed rows for the sake "
        "of rows that went too",
        5: "the key of a shard follows from all that it reads; attributes are written with the rows",
        6: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = CurateConfig

    def plan(self, config: CurateConfig) -> CuratePlan:
        settings = config.settings
        rows = self.discover(config, settings.preferred)
        _warn_unused(settings, [task.name.removeprefix(HELD_OUT) for task in rows.tasks])
        scorers = _scorers(settings, config.root)
        _refuse_unknown_attributes(settings, scorers, rows)
        _refuse_rewritten_chats(settings, rows)
        leaking = _leaks(settings, config)
        index = stored_index.read(config.index, _keying(settings)) if config.index else None
        refs = [*rows.inputs.refs, *leaking.refs]
        if index is not None:
            refs.append(InputRef("index", index.fingerprint))
        write_index = config.write_index or settings.write_index
        places = [*(index.places if index is not None else ()), *_places(rows)]
        return CuratePlan(
            inputs=refs,
            rows_expected=rows.inputs.rows,
            build_context=lambda: places,
            says={
                "settings": settings.to_manifest(),
                "scorers": [[scorer.name, scorer.identity()] for scorer in scorers],
                "leaks": leaking.key,
                "write_index": write_index,
            },
            rows=rows,
            settings=settings,
            scorers=scorers,
            leaks=leaking,
            index=index,
            write_index=write_index,
        )

    def find(self, config: CurateConfig, plan: CuratePlan) -> ShardRounds[CurateFindings]:
        # Each part forgets its shards when it returns: there may be a hundred thousand of them.
        looked = yield from _look(plan)
        compared = yield from _compare(plan, looked)
        learned = Learned({"exact": looked.exact.tasks, "near": compared.tasks}, looked.scores)
        decisions = yield [_decide(plan, task, looked.counts, learned) for task in plan.rows.training]
        verdicts = [
            verdict
            for task, record in zip(plan.rows.training, decisions, strict=True)
            for verdict in _verdicts(plan, task, record, learned)
        ]
        return CurateFindings(verdicts, looked, compared, decisions)

    def summarise(self, config: CurateConfig, plan: CuratePlan, findings: CurateFindings) -> ShardRounds[ShardRecord]:
        tasks = list(zip(plan.rows.training, findings.decisions, strict=True))
        summed = yield [
            AddUp(
                tuple(record.file(TALLY) for _, record in some),
                tuple(item for task, _ in some for item in _histograms(task, findings.looked.scores)),
                name=f"totals {number:05}",
            )
            for number, some in enumerate([tasks[at : at + _TASKS] for at in range(0, len(tasks), _TASKS)])
        ]
        (summary,) = yield [
            Summarise(
                totals=tuple(record.file(totals.TOTALS) for record in summed),
                files={task.name: task.file for task in plan.rows.tasks},
                leaks=plan.leaks,
                redact=any(settings.own(PII).mode != "off" for settings in plan.settings.variants),
                private=tuple(operation.name for operation in operations.OPERATIONS if operation.private),
                longest=config.max_record_bytes,
                name="summary",
            )
        ]
        return summary

    def nothing_kept(self, config: CurateConfig) -> tuple[str, str]:
        hint = "set the mode of that operation to report, and look at its report before it drops rows"
        return f"curate_config={config.curate_config}", hint

    def data(self, config: CurateConfig, plan: CuratePlan, out: Writer) -> dict[str, Any]:
        findings = plan.findings
        assert isinstance(findings, CurateFindings)
        for record in findings.decisions:
            for file in record.lasting():
                out.link(record.folder, file)
        if plan.write_index:
            index = plan.index
            places = [*(index.places if index is not None else ()), *_places(plan.rows)]
            keying = _keying(plan.settings)
            stored_index.write(out, keying, places, findings.looked.exact, findings.near)
        tally, histograms = totals.summary_of(plan.summary.uri(totals.SUMMARY))
        decided = (record.read(Decided) for record in findings.decisions)
        sources = by_source((task.source, item) for task, item in zip(plan.rows.training, decided, strict=True))
        looked = findings.looked
        costs = costs_of(plan.rows, sum(looked.counts), looked.exact_records, findings.near.costs, looked.scores)
        items = leaks.items(findings.looked.leaks)
        return summarise(plan.settings, sources, tally, histograms, items, costs).to_data()

    def finish(self, config: CurateConfig, plan: CuratePlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        data = super().finish(config, plan, rounds, out)
        log_totals(self.ledger(plan, rounds), rounds, out.folder)
        return data

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        return {**removal_rates(CurateResult.from_manifest(manifest).sources), **super().metrics(manifest)}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _look(plan: CuratePlan) -> ShardRounds[Looked]:
    """Yield rounds 1 to 5: keys and groups of equal rows, the index of benchmarks, and scores."""
    slices = plan.rows.slices_with_held_out
    keying, scores, number = _keying(plan.settings), _Scores(plan), len(slices)
    first = yield [
        *(ReadKeys(piece, keying, name=f"keys {piece.name}", size=piece.part.size) for piece in slices),
        *scores.shards(plan.scorers),
        *leaks.shards(plan.leaks),
    ]
    read, built = first[:number], first[number + scores.count :]
    scores.take(first[number : number + scores.count])
    # Decontamination waits for its index; its shards share the first round of exact deduplication.
    leak = leaks.scorer(plan.leaks, built)
    late = scores.round([leak] if leak is not None else [])
    result, _ = yield from abreast(exact.rounds(_exact_input(plan, keying, read)), late)
    counts = [record.read(KeysRead).rows for record in read]
    return Looked(counts, result, [*read, *result.records], built, scores.records)


def _compare(plan: CuratePlan, looked: Looked) -> ShardRounds[NearFound]:
    """Yield rounds 6 to 17: near deduplication."""
    slices = _near_slices(plan, looked)
    if not slices:
        for _ in range(_NEAR_ROUNDS):
            yield []
        return NearFound({}, {})
    settings = plan.settings
    given = NearInput(
        settings=settings.near,
        slices=slices,
        same_condition_only=settings.same_condition_only,
        longest_response=settings.prefer == "longest_response",
        index=[plan.index.near] if plan.index is not None else [],
        write_index=plan.write_index,
    )
    return (yield from near.rounds(given))


def _decide(plan: CuratePlan, task: Task, counts: Sequence[int], learned: Learned) -> Decide:
    settings = plan.settings.for_task(task.name)
    result = [
        item
        for operation in operations.OPERATIONS
        if operation.mode(settings.own(operation)) != "off"
        for item in operation.find(settings.own(operation), task, learned)
    ]
    last = task.slices[-1]
    cuts = [*(piece.part.first for piece in task.slices), last.part.first + counts[last.number]]
    return Decide(
        task.name,
        task.source,
        tuple(cuts),
        tuple(result),
        plan.settings.report_all,
        name=f"decide {task.name}",
        size=4 * cuts[-1],
    )


def _refuse_rewritten_chats(settings: Settings, rows: Rows) -> None:
    """Raise InputError if the texts of rendered rows would be changed: the chats beside them would still have them."""
    for task in rows.tasks if not settings.report_all else ():
        own = settings.for_task(task.name)
        wrong = [item.name for item in operations.OPERATIONS if item.rewrite(own.own(item)) is not None]
        if wrong and task.name in rows.inputs.templates:
            raise InputError(
                "the texts of rows that a chat template rendered are not changed",
                where=f"curate_config {wrong[0]}",
                got=f"mode: redact, and {task.name}",
                expected="mode: drop or report, as the chats beside the rows have the same texts",
                hint=f"write it for {task.name} under overrides, or 'template: plain' in its YAML file",
            )


def _verdicts(plan: CuratePlan, task: Task, record: ShardRecord, learned: Learned) -> Iterable[Verdict]:
    """Yield the verdicts on the slices of a task."""
    settings = plan.settings.for_task(task.name)
    rewrites = [operation.rewrite(settings.own(operation)) for operation in operations.OPERATIONS]
    rewrite = next((item for item in rewrites if item is not None and not plan.settings.report_all), None)
    for piece, (rows, removed) in zip(task.slices, record.read(Decided).removed(record), strict=True):
        scored = {name: records[piece.number] for name, records in learned.scores.items() if piece.number in records}
        made = {name: item.file(ATTRIBUTES) for name, item in scored.items() if has_file(item, ATTRIBUTES)}
        yield Verdict(rows, removed, made, None, rewrite)


def _histograms(task: Task, scores: Mapping[str, Mapping[int, ShardRecord]]) -> list[tuple[str, ShardFile]]:
    """List the histograms of a task's slices by name of the scorer."""
    return [
        (name, record.file(HISTOGRAMS))
        for name in sorted(scores)
        for piece in task.slices
        if (record := scores[name].get(piece.number)) is not None and has_file(record, HISTOGRAMS)
    ]


class _Scores:
    """The shards that score slices of training tasks, and their records.

    Attributes:
        count: shards of the last call of ``shards``.
        records: by scorer's name and number of the slice.
    """

    def __init__(self, plan: CuratePlan) -> None:
        self._plan = plan
        self._wanted: list[tuple[str, int]] = []
        self.records: dict[str, dict[int, ShardRecord]] = {}

    @property
    def count(self) -> int:
        return len(self._wanted)

    def shards(self, scorers: Iterable[Scorer]) -> list[Shard[Any]]:
        """Make those of scorers whose operation is not off for the task."""
        made: list[Shard[Any]] = []
        self._wanted = []
        for scorer in scorers:
            operation = operations.of_folder(scorer.name)
            for task in self._plan.rows.training:
                parts = operation.parts(self._plan.settings.for_task(task.name).own(operation))
                if any(name == scorer.name and part.mode != "off" for name, part in parts):
                    made += [
                        Score(piece, scorer, name=f"{scorer.name} {piece.name}", size=piece.part.size)
                        for piece in task.slices
                    ]
                    self._wanted += [(scorer.name, piece.number) for piece in task.slices]
        return made

    def round(self, scorers: Iterable[Scorer]) -> ShardRounds[None]:
        """Yield the shards of scorers, and take their records."""
        self.take((yield self.shards(scorers)))

    def take(self, records: Sequence[ShardRecord]) -> None:
        """Take the records of those shards."""
        for (name, number), record in zip(self._wanted, records, strict=True):
            self.records.setdefault(name, {})[number] = record


def check(config: CurateConfig) -> None:
    """Refuse benchmarks, models and earlier indexes that do not exist, before there are rows.

    Withheld splits of our own sources are looked for when these are fetched.
    """
    settings, attempts = config.settings, Attempts()
    with attempts.each():
        _scorers(settings, config.root)
    for item in settings.variants[:1]:
        for benchmark in item.decontaminate.benchmarks if item.decontaminate.mode != "off" else ():
            with attempts.each():
                benchmarks.find(replace(item.decontaminate, benchmarks=[benchmark], withheld=[]), root=config.root)
    with attempts.each():
        if config.index:
            stored_index.read(config.index, _keying(settings))
    attempts.refuse()


def _leaks(settings: Settings, config: CurateConfig) -> LeakPlan:
    """Find the benchmarks, unless no task is compared with them."""
    wanted = [item.decontaminate for item in settings.variants if item.decontaminate.mode != "off"]
    if not wanted:
        return LeakPlan()
    return leaks.planned(wanted[0], root=config.root, raw=config.raw, verify=config.verify)


def _scorers(settings: Settings, root: str) -> list[Scorer]:
    """Make what looks at each row by itself, of operations that are on for some task."""
    made: list[Scorer] = []
    for operation in operations.OPERATIONS:
        variants = [item.own(operation) for item in settings.variants]
        if any(operation.mode(own) != "off" for own in variants):
            made += operation.scorers(variants, root)
    return made


def _warn_unused(settings: Settings, tasks: Sequence[str]) -> None:
    """Warn of names that no task has: they may be misspelt."""
    named = [("overrides", item.who) for item in settings.overrides]
    named += [("source_priority", who) for who in settings.preferred]
    matcher = Matcher([who for _, who in named])
    used = {number for task in tasks for number in matcher.numbers(task)}
    for number, (key, who) in enumerate(named):
        if number not in used:
            how = "begins with" if who.prefixes and not who.without else "is meant by"
            text = f"curate: {key}: no task {how} {who.label!r}; the first of them is {min(tasks)!r}"
            event(text, level=logging.WARNING)


def _refuse_unknown_attributes(settings: Settings, scorers: Sequence[Scorer], rows: Rows) -> None:
    """Raise UsageError for a filter of an attribute that no operation makes and no file has."""
    offered = {f"{scorer.name}.{column}" for scorer in scorers for column in scorer.types()}
    beside = {name: file for task in rows.tasks for name, file in task.beside.items()}
    # What a data set says of its rows is different for each: a file that lacks a column is told of when it is read.
    given = {name for name in beside if not any(item.startswith(f"{name}.") for item in offered)}
    for variant in settings.variants:
        for rule in variant.filter.rules if variant.filter.mode != "off" else ():
            if rule.attribute not in offered and rule.attribute.partition(".")[0] not in given:
                there = {f"{name}.{column}" for name in given for column in _columns(beside[name])}
                raise unknown(
                    "no operation makes such an attribute, and it is not beside the rows",
                    rule.attribute,
                    f"filter rule {rule.name}",
                    sorted(offered | there),
                    "set the mode of the operation that makes it to report",
                )


def _columns(file: InputFile) -> list[str]:
    with open_parquet(file.uri, file.content) as parquet:
        return list(parquet.schema_arrow.names)


def _places(rows: Rows) -> list[Place]:
    return [Place(piece.task, piece.part.first) for piece in rows.slices_with_held_out]


def _keying(settings: Settings) -> Keying:
    return Keying.from_settings(
        [variant.exact for variant in settings.variants],
        longest=settings.prefer == "longest_response",
        conditions=settings.same_condition_only,
    )


def _exact_input(plan: CuratePlan, keying: Keying, records: Sequence[ShardRecord]) -> ExactInput:
    index = plan.index
    return ExactInput(
        settings=plan.settings.exact,
        by_slice=[plan.settings.for_task(piece.task).exact for piece in plan.rows.slices_with_held_out],
        keying=keying,
        slices=plan.rows.slices_with_held_out,
        records=records,
        indexed=index.files if index is not None else (),
        first_slice=len(index.places) if index is not None else 0,
        indexed_by=index.fingerprint if index is not None else "",
        write_index=plan.write_index,
    )


def _hiding(settings: Settings) -> tuple[str, ...]:
    """Return the rules of exact deduplication whose rows near deduplication does not see.

    They are those that drop rows; if near deduplication only reports, also those that would.
    """
    hides = settings.exact.mode == "drop" or settings.near.mode == "report"
    return tuple(actions(settings.exact)) if hides and not settings.report_all else ()


def _near_slices(plan: CuratePlan, looked: Looked) -> list[NearSlice]:
    """Make the slices that near deduplication looks at; held-out ones only if there are others."""
    made = []
    for task in plan.rows.tasks:
        settings = plan.settings.for_task(task.name)
        if settings.near.mode == "off":
            continue
        stored = looked.exact.tasks.get(task.name)
        rules = _hiding(settings)
        for piece in task.slices:
            if piece.fixed and settings.near.max_similar is not None:
                continue  # a cap counts no held-out rows
            count = looked.counts[piece.number]
            dropped: DroppedRows | NothingDropped = NothingDropped()
            if stored is not None and any(rule in stored.rows for rule in rules):
                dropped = DroppedRows.from_decisions(stored, rules, piece.part.first, count)
            made.append(NearSlice(piece.part, count, content_key(list(piece.identity)), piece.fixed, dropped))
    return made if any(not piece.fixed for piece in made) else []
