"""The curate stage: rows → the same files with fewer rows, every dropped row with its evidence.

 1  keys of slices, scores of slices, the index of benchmarks
 2  groups of equal keys; scores that need that index
 3  what exact deduplication found, by task
4–10 near deduplication (:mod:`pairmill.stages.curate.near.core`)
11  decisions by task: no text is read
12  the kept rows, by task, or by part of a large one
13  attributes of kept rows, in the same parts; rows of parts joined; counts of some tasks
14  attributes of parts joined; counts of all tasks, and the texts of samples
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import GivenResult, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.formats.attributes import unknown
from pairmill.formats.means import MEANS, joined
from pairmill.formats.rows import open_parquet
from pairmill.report.model import Report
from pairmill.stages.curate import exact, inputs, stored_index, totals, writing
from pairmill.stages.curate.asked import Done, asked, hiding, is_wanted
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.decide import Decide, Decided
from pairmill.stages.curate.decontaminate import index as leaks
from pairmill.stages.curate.decontaminate.index import LeakPlan
from pairmill.stages.curate.exact import ExactFound, ExactInput, Keying, KeysRead, ReadKeys
from pairmill.stages.curate.found import DroppedRows, Place
from pairmill.stages.curate.inputs import Rows, Task
from pairmill.stages.curate.near import core as near
from pairmill.stages.curate.near.given import NearFound, NearInput, NearSlice, NothingDropped
from pairmill.stages.curate.outcome import by_source, costs_of, data_of, say
from pairmill.stages.curate.report.page import report_of
from pairmill.stages.curate.report.rates import removal_rates
from pairmill.stages.curate.rules import OPERATIONS
from pairmill.stages.curate.scorer import Score, Scorer
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.stored_index import StoredIndex
from pairmill.stages.curate.totals import Summarise
from pairmill.stages.curate.write import Written, cuts_of

_NEAR_ROUNDS: Final = 7
# The last rounds, counted from the end.
_DECIDE, _WRITE, _BESIDE, _SUMMARY = -4, -3, -2, -1


@dataclass(frozen=True, kw_only=True)
class CuratePlan(StagePlan["Sequence[Place]"]):
    """What is read.

    Args:
        rows: the row files in rank order.
        settings: of all operations.
        scorers: what looks at each row by itself, besides decontamination.
        leaks: the benchmarks.
        index: of an earlier run; None without.
        write_index: whether a new index is written.
        done: known after the last round.
    """

    rows: Rows
    settings: Settings
    scorers: list[Scorer]
    leaks: LeakPlan
    index: StoredIndex | None
    write_index: bool
    done: Done | None = None

    @property
    def training(self) -> list[Task]:
        """The tasks whose rows can be dropped."""
        return [task for task in self.rows.tasks if not task.held_out]

    def of(self, task: Task) -> Settings:
        """The settings of a task."""
        return self.settings.variants[task.variant]


class Curate(Stage[CurateConfig, CuratePlan]):
    """Find, decide, write."""

    name: ClassVar[str] = "curate"
    output_in_list: ClassVar[bool] = True
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 14
    history: ClassVar[dict[int, str]] = {
        2: "large files are written in parts, and what later rounds read has another form",
        3: "a row like a removed one is compared with the row in its place; copied 3-grams are counted once",
        4: "damage of records and files of shards could go unseen; exact by several rules removed rows for the sake "
        "of rows that went too",
    }
    config = CurateConfig

    def given(self, config: CurateConfig) -> GivenResult | None:
        if config.tokenized:
            return GivenResult("tokenized")
        option = "profile" if config.profile == "data_io" else "curate_config" if _all_off(config) else ""
        if not option:
            return None
        from pairmill.formats import given

        return given.passed_on(option, config.rows)

    def plan(self, config: CurateConfig) -> CuratePlan:
        settings = config.settings
        rows = inputs.discover(
            config.rows,
            settings,
            verify=config.verify,
            longest=config.max_record_bytes,
            expansion=config.max_expansion,
        )
        scorers = _scorers(settings, config)
        _refuse_unknown_attributes(settings, scorers, rows)
        plan = _leaks(settings, config)
        index = stored_index.read(config.index, Keying.of(settings)) if config.index else None
        refs = [*rows.found.refs, *plan.refs]
        if index is not None:
            refs.append(InputRef("index", index.fingerprint))
        write_index = config.write_index or settings.write_index
        places = [*(index.places if index is not None else ()), *_places(rows)]
        return CuratePlan(
            inputs=refs,
            rows_expected=rows.found.rows,
            build_context=lambda: places,
            says={
                "settings": settings.said(),
                "scorers": [[one.name, one.identity()] for one in scorers],
                "leaks": plan.key,
                "write_index": write_index,
            },
            rows=rows,
            settings=settings,
            scorers=scorers,
            leaks=plan,
            index=index,
            write_index=write_index,
        )

    def rounds(
        self, config: CurateConfig, plan: CuratePlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], CuratePlan]:
        # Each part forgets its shards when it returns: there may be a hundred thousand of them.
        rows_of, found, built, scores = yield from _looked(plan)
        near_found = yield from _compared(plan, rows_of, found)
        done = Done(found, near_found, built, scores)
        cuts = {task.name: cuts_of(task, rows_of) for task in plan.training}
        decided = yield [
            Decide.of(
                task.name,
                task.source,
                cuts[task.name],
                asked(plan.of(task), task, done),
                report_all=plan.settings.report_all,
            )
            for task in plan.training
        ]
        made = [record.read(Decided) for record in decided]
        total = Ledger.sum(Ledger(one.rows, one.kept, dropped=one.dropped) for one in made)
        totals.refuse_nothing_kept(total.rows_in, total.rows_kept, total.dropped, config.curate_config, config.rows)
        by_task = {task.name: (record, one) for task, record, one in zip(plan.training, decided, made, strict=True)}
        written = yield from writing.write(plan, by_task, config.max_record_bytes)
        summed, joins = yield from writing.beside(plan, by_task, written, rows_of, done)
        files = {task.name: task.file for task in plan.rows.tasks}
        redact = any(one.pii.mode != "off" for one in plan.settings.variants)
        yield [Summarise.of(summed, files, plan.leaks, redact=redact, longest=config.max_record_bytes), *joins]
        return replace(plan, done=done, build_context=lambda: plan.context)

    def ledger(self, plan: CuratePlan, rounds: Rounds) -> Ledger:
        """That of the round that writes rows: the others count none."""
        return Ledger.sum(record.ledger for record in rounds[_WRITE])

    def parts(self, plan: CuratePlan, rounds: Rounds) -> dict[str, Ledger]:
        found: dict[str, Ledger] = {}
        for record in rounds[_WRITE]:
            found.setdefault(record.read(Written).task, Ledger()).add(record.ledger)
        return found

    def finish(self, config: CurateConfig, plan: CuratePlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        assert plan.done is not None
        for record in (*rounds[_DECIDE], *rounds[_WRITE], *rounds[_BESIDE], *rounds[_SUMMARY]):
            for file in record.lasting():
                out.link(record.folder, file)
        if plan.write_index:
            index = plan.index
            places = [*(index.places if index is not None else ()), *_places(plan.rows)]
            stored_index.write(out, Keying.of(plan.settings), places, plan.done.exact, plan.done.near)
        tally, histograms = totals.summary_of(rounds[_SUMMARY][0].uri(totals.SUMMARY))
        decided = [record.read(Decided) for record in rounds[_DECIDE]]
        sources = by_source((task.source, one) for task, one in zip(plan.training, decided, strict=True))
        costs = costs_of(plan.rows, plan.done, rounds)
        data = data_of(plan.settings, sources, tally, histograms, leaks.items(plan.done.leaks), costs)
        rows = {name: ledger.rows_in for name, ledger in self.parts(plan, rounds).items()}
        held_out = {task.path: rows[task.name] for task in plan.rows.tasks if task.held_out}
        say(self.ledger(plan, rounds), rounds, out.folder)
        return {
            **data,
            MEANS: joined(record.data for record in rounds[_BESIDE]),
            **({"held_out": held_out} if held_out else {}),
            **plan.rows.found.passed_on(),
        }

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        tasks = len([name for name in manifest.tasks() if not name.startswith(HELD_OUT)])
        return {**removal_rates(manifest.data), "tasks": tasks}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _looked(
    plan: CuratePlan,
) -> Generator[
    Sequence[Shard[Any]],
    list[ShardRecord],
    tuple[list[int], ExactFound, list[ShardRecord], dict[str, dict[int, ShardRecord]]],
]:
    """Rounds 1 to 3: rows of slices, equal rows, records of the index of benchmarks, and of scores."""
    keying, scores, number = Keying.of(plan.settings), _Scores(plan), len(plan.rows.slices)
    first = yield [
        *(ReadKeys.of(one, keying) for one in plan.rows.slices),
        *scores.shards(plan.scorers),
        *leaks.shards(plan.leaks),
    ]
    read, built = first[:number], first[number + scores.asked :]
    scores.take(first[number : number + scores.asked])
    # Decontamination waits for its index; its shards share the round of exact deduplication.
    leak = leaks.scorer(plan.leaks, built)
    late = scores.shards([leak] if leak is not None else [])
    equal = exact.rounds(_exact_input(plan, keying, read))
    groups = next(equal)
    second = yield [*groups, *late]
    scores.take(second[len(groups) :])
    third = yield equal.send(second[: len(groups)])
    found = _end(equal, third)
    return [record.read(KeysRead).rows for record in read], found, built, scores.records


def _compared(
    plan: CuratePlan, rows_of: Sequence[int], found: ExactFound
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], NearFound]:
    """Rounds 4 to 9: near deduplication."""
    slices = _near_slices(plan, rows_of, found)
    if not slices:
        for _ in range(_NEAR_ROUNDS):
            yield []
        return NearFound({}, {})
    settings = plan.settings
    given = NearInput(
        settings.near,
        slices,
        settings.same_condition_only,
        settings.prefer == "longest_response",
        [plan.index.near] if plan.index is not None else [],
        plan.write_index,
    )
    return (yield from near.rounds(given))


class _Scores:
    """The shards that score slices of training tasks, and their records.

    Attributes:
        asked: shards of the last call of ``shards``.
        records: by scorer's name and number of the slice.
    """

    def __init__(self, plan: CuratePlan) -> None:
        self._plan = plan
        self._wanted: list[tuple[str, int]] = []
        self.records: dict[str, dict[int, ShardRecord]] = {}

    @property
    def asked(self) -> int:
        return len(self._wanted)

    def shards(self, scorers: Iterable[Scorer]) -> list[Shard[Any]]:
        """Those of scorers whose operation is not off for the task."""
        made: list[Shard[Any]] = []
        self._wanted = []
        for scorer in scorers:
            for task in self._plan.training:
                if is_wanted(self._plan.of(task), scorer):
                    for one in task.slices:
                        made.append(Score.of(one, scorer))
                        self._wanted.append((scorer.name, one.number))
        return made

    def take(self, records: Sequence[ShardRecord]) -> None:
        """The records of those shards."""
        for (name, number), record in zip(self._wanted, records, strict=True):
            self.records.setdefault(name, {})[number] = record


def _all_off(config: CurateConfig) -> bool:
    settings = config.settings
    return all(
        one.mode_of(operation) == "off" or (operation == "filter" and not one.filter.rules)
        for one in settings.variants
        for operation in OPERATIONS
    )


def _leaks(settings: Settings, config: CurateConfig) -> LeakPlan:
    """The benchmarks, unless no task is compared with them."""
    wanted = [one.decontaminate for one in settings.variants if one.decontaminate.mode != "off"]
    if not wanted:
        return LeakPlan()
    return leaks.planned(wanted[0], root=config.root, raw=config.raw, verify=config.verify)


def _scorers(settings: Settings, config: CurateConfig) -> list[Scorer]:
    found: list[Scorer] = []
    for operation in (name for name in OPERATIONS if hasattr(getattr(settings, name), "scorers")):
        if any(one.mode_of(operation) != "off" for one in settings.variants):
            own = getattr(settings, operation)
            variants = [one.heuristics for one in settings.variants]
            found += own.scorers(config.root, variants) if own is settings.heuristics else own.scorers(config.root)
    for at, one in enumerate(settings.classifiers):
        if any(variant.classifiers[at].mode != "off" for variant in settings.variants):
            found += one.scorers(config.root)
    return found


def _refuse_unknown_attributes(settings: Settings, scorers: Sequence[Scorer], rows: Rows) -> None:
    """Raise UsageError for a filter of an attribute that no operation makes and no file has."""
    offered = {f"{scorer.name}.{column}" for scorer in scorers for column in scorer.types()}
    beside = {name: file for task in rows.tasks for name, file in task.beside.items()}
    # What a data set says of its rows is different for each: a file that lacks a column is told of when it is read.
    given = {name for name in beside if not any(one.startswith(f"{name}.") for one in offered)}
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
    return [Place(one.task, one.part.first) for one in rows.slices]


def _exact_input(plan: CuratePlan, keying: Keying, records: Sequence[ShardRecord]) -> ExactInput:
    index = plan.index
    return ExactInput(
        plan.settings,
        keying,
        plan.rows.slices,
        records,
        index.files if index is not None else (),
        len(index.places) if index is not None else 0,
        index.fingerprint if index is not None else "",
        plan.write_index,
    )


def _end(generator: Generator[Any, list[ShardRecord], ExactFound], records: list[ShardRecord]) -> ExactFound:
    try:
        generator.send(records)
    except StopIteration as end:
        found: ExactFound = end.value
        return found
    raise AssertionError("exact deduplication has more rounds than it had")


def _near_slices(plan: CuratePlan, rows_of: Sequence[int], found: ExactFound) -> list[NearSlice]:
    """The slices that near deduplication looks at; held-out ones only if there are others."""
    made = []
    for task in plan.rows.tasks:
        settings = plan.of(task)
        if settings.near.mode == "off":
            continue
        stored = found.tasks.get(task.name)
        rules = hiding(settings)
        for one in task.slices:
            if one.fixed and settings.near.max_similar is not None:
                continue  # a cap counts no held-out rows
            dropped: DroppedRows | NothingDropped = NothingDropped()
            if stored is not None and any(rule in stored.rows for rule in rules):
                dropped = DroppedRows.of(stored, rules, one.part.first, rows_of[one.number])
            key = content_key(list(one.identity))
            made.append(NearSlice(one.part, rows_of[one.number], key, one.fixed, dropped))
    return made if any(not one.fixed for one in made) else []
