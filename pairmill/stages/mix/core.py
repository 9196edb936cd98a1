"""The mix stage: a tokenized folder → how many rows of each task every epoch has.

The one round counts rows and response tokens; the plan follows from their sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pairmill import storage
from pairmill.engine import inputs as row_inputs
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, UsageError
from pairmill.formats import characters, tokenizer_file, tokens
from pairmill.formats.prefixes import Rules
from pairmill.mixture.plan import NAME, Inputs, Mixture, long_rows_key
from pairmill.stages.mix.buckets import Codes, codes_of
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.mix.counting import CountedTask, Counting, CountOptions, Counts, CountTasks, cell_of
from pairmill.stages.mix.planned import Counted, mixture_of, sources_of, table_of
from pairmill.stages.mix.settings import BucketAttribute, MixSettings
from pairmill.stages.mix.sources import Grouping, group

if TYPE_CHECKING:
    from pairmill.report.model import Report

_TASKS_AT_ONCE: Final = 32
"""Of a shard. Counting a task takes milliseconds, and a shard has a folder and a record."""


@dataclass(frozen=True, kw_only=True)
class MixPlan(StagePlan[Counting]):
    """Args: found: what is counted; made: the plan, once its tasks are counted."""

    found: Found
    earlier: Mixture | None
    made: Mixture | None = None


class Mix(Stage[MixConfig, MixPlan]):
    """Count, plan."""

    name: ClassVar[str] = "mix"
    version: ClassVar[int] = 2
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen",
    }
    config = MixConfig

    def plan(self, config: MixConfig) -> MixPlan:
        found = discover(config, config.settings)
        earlier = Mixture.load(config.compare, "compare") if config.compare else None
        refs = [InputRef("tokenized", found.inputs.tokenized), InputRef("long_rows", found.inputs.long_rows)]
        if found.inputs.rows:
            refs.append(InputRef("rows", found.inputs.rows))
        if earlier is not None:
            refs.append(InputRef("compare", content_key(earlier.dump().decode())[:16]))
        return MixPlan(
            inputs=refs,
            rows_expected=found.rows,
            build_context=lambda: found.counting,
            says={"settings": config.settings.to_manifest()},
            found=found,
            earlier=earlier,
        )

    def rounds(
        self, config: MixConfig, plan: MixPlan
    ) -> Generator[Sequence[Shard[Counting]], list[ShardRecord], MixPlan]:
        records = yield list(plan.found.shards())
        counted = counted_sources(plan.found.grouping, records)
        made = mixture_of(config.settings, config, counted, plan.found.inputs, plan.found.where)
        return replace(plan, made=made, build_context=lambda: plan.context)

    def parts(self, plan: MixPlan, rounds: Rounds) -> dict[str, Ledger]:
        """Those of the tasks."""
        return ledgers_of(rounds[0])

    def finish(self, config: MixConfig, plan: MixPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        mixture = plan.made
        assert mixture is not None
        out.write(NAME, mixture.dump())
        return {
            "method": config.settings.method,
            "budget": mixture.budget,
            "asked": config.settings.budget,
            "unfilled": mixture.unfilled,
            "epochs": mixture.epochs,
            "phases": [asdict(phase) for phase in mixture.phases],
            "table": [asdict(row) for row in table_of(mixture, plan.earlier)],
            "compared": plan.earlier is not None,
            "gone": sorted({*plan.earlier.names} - {*mixture.names}) if plan.earlier is not None else [],
            "tasks": _tasks_of(mixture),
        }

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        data = manifest.data
        rows = [row for row in data["table"] if not row["phase"]]
        return {
            "response_tokens": round(sum(row["tokens"] for row in rows)),
            "epochs": data["epochs"],
            "sources": len(rows),
            "tasks": len(data["tasks"]),
            "unfilled_tokens": round(data["unfilled"]),
            "most_passes": round(max(row["epochs"] for row in rows), 6),
        }

    def report(self, manifest: Manifest) -> Report:
        from pairmill.stages.mix.report import report_of

        return report_of(manifest)


@dataclass(frozen=True)
class Found:
    """What the options name.

    Attributes:
        where: the tokenized folder, for messages.
        rows: of it, by its manifest.
        tasks: what is to be counted.
        grouping: the sources.
        buckets: what makes buckets.
        counting: what shards share.
        inputs: what a plan of it is made of.
    """

    where: str
    rows: int | None
    tasks: list[CountedTask]
    grouping: Grouping
    buckets: tuple[BucketAttribute, ...]
    counting: Counting
    inputs: Inputs

    def codes(self, one: CountedTask) -> Codes | None:
        """The bucket of each row of a task; None if it is drawn as a whole."""
        return None if one.beside is None else codes_of(one.task.name, self.buckets, one.beside)

    def shards(self) -> Iterator[CountTasks]:
        """Make the shards that count the tasks."""
        continuing = hashlib.sha256(self.counting.continuing).hexdigest()
        for number, start in enumerate(range(0, len(self.tasks), _TASKS_AT_ONCE)):
            some = tuple(self.tasks[start : start + _TASKS_AT_ONCE])
            name = f"{some[0].task.name} and {len(some) - 1} more" if len(some) > 1 else some[0].task.name
            yield CountTasks(
                some,
                self.buckets if any(one.beside is not None for one in some) else (),
                continuing if any(one.rule.long_context == "split" for one in some) else "",
                name=f"{number:05} {name}",
                size=len(some),
            )


def discover(config: MixConfig, settings: MixSettings) -> Found:
    """Open the inputs, and give each task its source.

    Raises:
        UsageError: the settings do not fit the tasks.
        InputError: an input is absent, unfinished or damaged.
    """
    settings.wanted(config.epochs)
    rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
    folder = tokens.open_folder(config.tokenized_path, "tokenized_path", tolerate_strays=True, verify=config.verify)
    where = f"tokenized_path={folder.uri}"
    grouping = group(settings, [task.name for task in folder.tasks])
    bucketed = {*grouping.bucketed}
    beside, rows = _attributes(config, bucketed)
    matched = {task.name: rules.match(task.name)[0] for task in folder.tasks}
    tasks = [
        CountedTask(task, matched[task.name], beside[task.name] if task.name in bucketed else None)
        for task in folder.tasks
    ]
    split = any(rule.long_context == "split" for rule in matched.values())
    counting = Counting(
        CountOptions(config.context_size, config.min_resp_length),
        _continuing(folder.uri) if split else b"",
    )
    long_rows = long_rows_key({name: rule.long_context for name, rule in matched.items()})
    return Found(
        where,
        folder.rows,
        tasks,
        grouping,
        tuple(settings.buckets.attributes),
        counting,
        Inputs(folder.fingerprint, long_rows, rows),
    )


def _attributes(config: MixConfig, bucketed: set[str]) -> tuple[dict[str, dict[str, InputFile]], str]:
    """The attributes of the tasks that are put into buckets, by operation, and the digest of where they are from."""
    if not bucketed:
        return {}, ""
    # Imported here: what reads rows takes a quarter of a second to import.
    from pairmill.formats import row_files
    from pairmill.formats.rows import EXTENSIONS

    if not config.rows:
        raise UsageError(
            "buckets need the rows with their attributes",
            where="rows",
            expected="rows=<the rows that were tokenized>",
            hint="the folder that curate or select printed",
        )
    found = row_inputs.discover(config.rows, EXTENSIONS, "rows", verify=config.verify)
    tops = [storage.normalise(uri, "rows") for uri in config.rows]
    files = row_files.beside(tops)
    beside = {file.task: files.get(file.uri, {}) for file in found.files}
    missing = sorted(bucketed - beside.keys())
    if missing:
        raise InputError(
            f"{len(missing):,} tasks to put into buckets are not among the rows",
            where=f"rows={','.join(config.rows)}",
            got=", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else ""),
            expected="the rows that were tokenized",
            hint="give rows= the folder that was tokenized, or leave tasks out with buckets.prefixes",
        )
    return {task: beside[task] for task in bucketed}, content_key([ref.fingerprint for ref in found.refs])[:16]


def _continuing(uri: str) -> bytes:
    path = storage.join(uri, tokenizer_file.NAME)
    if not storage.store_for(path).exists(path):
        raise InputError(
            "a rule splits rows, and where a character ends is not known",
            where=f"tokenized_path={uri}",
            got=f"no {tokenizer_file.NAME}",
            expected="the tokenizer.json that made the tokens",
            hint="copy it into the folder, tokenize again, or use long_context: truncate",
        )
    return characters.continuing(tokenizer_file.read(path), path)


def counted_sources(grouping: Grouping, records: Sequence[ShardRecord]) -> Counted:
    """The sources with their counts, from the records of :meth:`Found.shards`."""
    cells = [cell_of(*cell) for record in records for cell in record.read(Counts).tasks]
    return sources_of(grouping, cells, Ledger.sum(record.ledger for record in records).dropped)


def ledgers_of(records: Sequence[ShardRecord]) -> dict[str, Ledger]:
    """The ledgers of tasks, from the records of :meth:`Found.shards`."""
    ledgers: dict[str, Ledger] = {}
    for record in records:
        ledgers |= {name: Ledger(**one) for name, one in record.read(Counts).ledgers.items()}
    return ledgers


def _tasks_of(mixture: Mixture) -> dict[str, list[Any]]:
    """Of each task its source, or how many buckets it has, and what it may give."""
    found: dict[str, list[Any]] = {}
    for key, task in mixture.tasks.items():
        entry = found.setdefault(task.task, [[], 0, 0])
        entry[0].append(mixture.source_of[key])
        entry[1] += task.rows
        entry[2] += task.response_tokens
    return {
        task: [names[0] if len(names) == 1 else f"{len(names)} buckets", rows, count]
        for task, (names, rows, count) in found.items()
    }
