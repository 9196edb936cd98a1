"""What a mixture is planned from: the tasks of a tokenized folder, their sources, and the shards that count them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pairmill.engine import policing
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import InputRef, Ledger
from pairmill.engine.stage import ShardRecord
from pairmill.errors import UsageError
from pairmill.formats import characters, tokenizer_file
from pairmill.formats.removed_rows import removed_rows
from pairmill.formats.row_files import attributes_of
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.loader.tokenizer import Tokenizer
from pairmill.mixture.buckets import Codes, codes_of
from pairmill.mixture.config import MixtureOptions
from pairmill.mixture.counting import CountedTask, Counting, CountOptions, Counts, CountTasks, cell_of
from pairmill.mixture.plan import Inputs, long_rows_key
from pairmill.mixture.planned import Counted, sources_of
from pairmill.mixture.settings import BucketAttribute, MixSettings
from pairmill.mixture.sources import Grouping, group
from pairmill.rules.book import Rules

_TASKS_AT_ONCE: Final = 32
"""Of a shard. Counting a task takes milliseconds, and a shard has a folder and a record."""


@dataclass(frozen=True)
class CountingPlan:
    """The tasks that the options name, and what they are counted by.

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
    tokenizer: Tokenizer

    def refs(self) -> list[InputRef]:
        """Return what a plan of it is made of, for the manifest."""
        refs = [InputRef("tokenized", self.inputs.tokenized), InputRef("long_rows", self.inputs.long_rows)]
        return [*refs, InputRef("rows", self.inputs.rows)] if self.inputs.rows else refs

    def codes(self, task: CountedTask) -> Codes | None:
        """Return the bucket of each row of a task; None if it is drawn as a whole."""
        return None if task.beside is None else codes_of(task.task.name, self.buckets, task.beside)

    def shards(self) -> Iterator[CountTasks]:
        """Make the shards that count the tasks."""
        continuing = hashlib.sha256(self.counting.continuing).hexdigest()
        for number, start in enumerate(range(0, len(self.tasks), _TASKS_AT_ONCE)):
            some = tuple(self.tasks[start : start + _TASKS_AT_ONCE])
            name = f"{some[0].task.name} and {len(some) - 1} more" if len(some) > 1 else some[0].task.name
            yield CountTasks(
                some,
                self.buckets if any(item.beside is not None for item in some) else (),
                continuing if any(item.rule.long_context == "split" for item in some) else "",
                name=f"{number:05} {name}",
                size=len(some),
            )


def open_inputs(config: MixtureOptions, settings: MixSettings, *, verify: bool = False) -> CountingPlan:
    """Open the inputs, and give each task its source.

    Raises:
        UsageError: the settings do not fit the tasks.
        InputError: an input is absent, unfinished or damaged.
    """
    settings.wanted(config.epochs)
    rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
    folder = open_tokenized(config.tokenized_path, "tokenized_path", verify=verify, tasks=config.tasks)
    where = f"tokenized_path={folder.uri}"
    denied = policing.leave_out_tasks(folder.tasks, where)
    grouping = group(settings, [task.name for task in folder.tasks], denied)
    bucketed = {*grouping.bucketed}
    # Files of rows are called what the tasks were called when they were tokenized.
    own = {task.name: task.own for task in folder.tasks if task.name in bucketed}
    beside, rows = _attributes(config.rows, {*own.values()}, verify=verify)
    matched = {task.name: rules.match(task.name)[0] for task in folder.tasks}
    removed = removed_rows(task for task in folder.tasks if task.name not in denied)
    tasks = [
        CountedTask(
            task,
            matched[task.name],
            beside[own[task.name]] if task.name in own else None,
            task.name in denied,
            removed.get(task.name),
        )
        for task in folder.tasks
    ]
    split = any(rule.long_context == "split" for rule in matched.values())
    counting = Counting(
        CountOptions(config.context_size, config.min_resp_length), _continuing(folder) if split else b""
    )
    long_rows = long_rows_key({name: rule.long_context for name, rule in matched.items()})
    return CountingPlan(
        where=where,
        rows=folder.rows,
        tasks=tasks,
        grouping=grouping,
        buckets=tuple(settings.buckets.attributes),
        counting=counting,
        inputs=Inputs(folder.fingerprint, long_rows, rows),
        tokenizer=Tokenizer(folder.tokenizer, folder.info),
    )


def _attributes(
    rows: Sequence[str], bucketed: set[str], *, verify: bool
) -> tuple[dict[str, Mapping[str, InputFile]], str]:
    """Find the attributes of the tasks that are put into buckets, by operation, and digest where they are from."""
    if not bucketed:
        return {}, ""
    if not rows:
        raise UsageError(
            "buckets need the rows with their attributes",
            where="rows",
            expected="rows=<the rows that were tokenized>",
            hint="the folder that curate or select printed",
        )
    return attributes_of(rows, bucketed, verify=verify)


def _continuing(folder: Folder) -> bytes:
    uri = folder.tokenizer_file()
    return characters.continuing(tokenizer_file.read(uri), uri)


def counted_sources(grouping: Grouping, records: Sequence[ShardRecord]) -> Counted:
    """Add up the counts of the sources, from the records of :meth:`CountingPlan.shards`."""
    cells = [cell_of(*cell) for record in records for cell in record.read(Counts).tasks]
    return sources_of(grouping, cells, Ledger.sum(record.ledger for record in records).dropped)


def ledgers_of(records: Sequence[ShardRecord]) -> dict[str, Ledger]:
    """Return the ledgers of tasks, from the records of :meth:`CountingPlan.shards`."""
    ledgers: dict[str, Ledger] = {}
    for record in records:
        ledgers |= {name: Ledger(**item) for name, item in record.read(Counts).ledgers.items()}
    return ledgers
