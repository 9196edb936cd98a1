"""Counts the rows and response tokens of tasks, after the sampler's own filter and truncation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pairmill.engine import policing
from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger
from pairmill.engine.options import Profile
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import REASONS, rows_of
from pairmill.formats.removed_rows import RemovedRows
from pairmill.formats.split import Cutter
from pairmill.formats.task_summaries import TaskSummaries, read_numbers
from pairmill.formats.tokens import Dataset, write_npy
from pairmill.mixture.buckets import Codes, codes_of
from pairmill.mixture.plan import BUCKETS, PlannedTask
from pairmill.mixture.settings import BucketAttribute
from pairmill.rules.rule import Rule

_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class CountOptions:
    """What decides which rows may be sampled, as the sampler's options do."""

    context_size: int
    min_resp_length: int
    profile: Profile = "pairmill"


@dataclass(frozen=True)
class Counting:
    """What shards share.

    Attributes:
        continuing: for each token whether it continues a character, if a rule splits rows.
    """

    options: CountOptions
    continuing: bytes = b""


@dataclass(frozen=True)
class CountedTask:
    """What is to be counted.

    Attributes:
        task: as it was found.
        rule: of the task; only ``long_context`` is read.
        beside: files of attributes by operation, if its rows are put into buckets; else None.
        denied: whether a policy leaves it out: it is counted, because the sampler counts it too, and none is planned.
        removed: rows that a policy takes out of it: the ledger leaves them out, and not the plan, because the sampler
            takes them out of what it drew.
    """

    task: Dataset
    rule: Rule
    beside: Mapping[str, InputFile] | None = None
    denied: bool = False
    removed: RemovedRows | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its summary says all that is counted."""
        return self.beside is None and self.rule.long_context != "split" and self.removed is None

    def identify(self) -> list[Any]:
        """Return what its counts follow from."""
        arrays = sorted((name, item.digest or self.task.sampled) for name, item in self.task.contents.items())
        result: list[Any] = [self.task.name, self.rule.long_context, arrays]
        if self.beside is not None:
            result.append(sorted((name, item.digest) for name, item in self.beside.items()))
        if self.removed is not None:
            result += [policing.REMOVED, list(self.removed.ordinals)]
        return [*result, policing.KEY] if self.denied else result


@dataclass
class Counts:
    """What was counted.

    Attributes:
        tasks: [task, bucket or None, rows, response tokens, sum of squared lengths] of each task, and of each bucket of
            it that has rows.
        ledgers: of each task.
    """

    tasks: list[list[Any]]
    ledgers: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class CountTasks(Shard[Counting], reads=("context_size", "min_resp_length")):
    """Counts a few tasks: with 100,000 of them, records of single ones would take longer than counting.

    Args:
        tasks: that are counted.
        buckets: what makes buckets; empty if no task is put into buckets.
        continuing: digest of what says where characters end; empty if no row is split.
    """

    work = "count tokens"

    tasks: tuple[CountedTask, ...]
    buckets: tuple[BucketAttribute, ...]
    continuing: str

    def random_access(self) -> Mapping[str, Content]:
        result = {}
        for item in self.tasks:
            if item.rule.long_context == "split":
                array = item.task.array()
                result[array.uri] = array.content
            for file in (item.beside or {}).values():
                result.update(file.random_access)
        return result

    def run(self, context: Counting, out: Writer) -> ShardResult:
        made = Counts([], {})
        total = Ledger()
        plain = count_plain(
            self.tasks, lambda tasks, modes: TaskSummaries.from_numbers(read_numbers(tasks, modes, context.options))
        )
        for item in self.tasks:
            codes = None
            if item.beside is not None:
                codes = codes_of(item.task.name, self.buckets, item.beside)
                ordinals = item.task.ordinals()
                if ordinals is not None:  # rows of the file that have no tokens are in no bucket
                    codes = codes[ordinals[ordinals < len(codes)]]
                with out.create(f"{BUCKETS}/{item.task.name}.npy") as path:
                    write_npy(path, np.uint16, len(codes), [codes])
            cells, ledger = plain.get(item.task.name) or count(item, context, codes)
            made.tasks += [[cell.task, cell.bucket, cell.rows, cell.response_tokens, cell.squares] for cell in cells]
            made.ledgers[item.task.name] = asdict(ledger)
            total.add(ledger)
        return ShardResult(total, asdict(made))


def count_plain(
    tasks: Sequence[CountedTask], summarize: Callable[[list[Dataset], list[str]], TaskSummaries]
) -> dict[str, tuple[list[PlannedTask], Ledger]]:
    """Count those tasks whose summaries say all, by name.

    Args:
        tasks: some of which may be others.
        summarize: sums up data sets, given what the rule of each says of long rows.
    """
    plain = [item for item in tasks if item.is_plain]
    if not plain:
        return {}
    sums = summarize([item.task for item in plain], [item.rule.long_context for item in plain])
    dropped = zip(*(getattr(sums, reason).tolist() for reason in REASONS), strict=True)
    cells = zip(sums.rows.tolist(), sums.resp_tokens.tolist(), sums.resp_squares.tolist(), strict=True)
    others = zip(sums.rows_in.tolist(), sums.truncated.tolist(), sums.truncated_tokens.tolist(), strict=True)
    result = {}
    for item, counts, cell, (rows_in, truncated, tokens) in zip(plain, dropped, cells, others, strict=True):
        ledger = Ledger(rows_in, cell[0], cell[0])
        for reason, number in zip(REASONS, counts, strict=True):
            if number:
                ledger.drop(reason, number)
        if truncated:
            ledger.note("truncated", truncated)
            ledger.measures["truncated_tokens"] = tokens
        result[item.task.name] = [cell_of(item.task.name, None, *cell)], _without_denied(item, ledger)
    return result


def count(task: CountedTask, context: Counting, codes: Codes | None = None) -> tuple[list[PlannedTask], Ledger]:
    """Count a task, or each bucket of it.

    Args:
        one: the task.
        codes: the bucket of each of its rows; None without.

    Raises:
        InputError: the rows with attributes are others than those that were tokenized.
    """
    sums: dict[int | None, list[int]] = {}
    ledger = Ledger()
    gone = task.removed.numbers() if task.removed is not None else None
    numbered = codes is not None or gone is not None
    with _cutter(task, context) as cutter:
        for chunk in task.task.index(_ROWS_AT_ONCE):
            result = rows_of(task.task.name, task.rule, [chunk], context.options, cutter, numbered=numbered)
            lengths = result.columns["resp_len"].astype(np.int64)
            if codes is not None:
                assert result.origins is not None
                _check_rows(task, len(codes), ledger.rows_in + len(chunk["resp_len"]), ended=False)
                _add_buckets(sums, codes[result.origins + np.uint32(ledger.rows_in)], lengths)
            else:
                _add(sums, None, lengths)
            mine = result.ledger
            mine.rows_kept = mine.rows_in - sum(mine.dropped.values())
            mine.rows_out = len(result)
            if gone is not None:
                assert result.origins is not None
                left_out = result.origins[np.isin(result.origins.astype(np.int64) + ledger.rows_in, gone)]
                mine.rows_out -= len(left_out)
                if rows := len(np.unique(left_out)):
                    mine.drop(policing.REMOVED, rows)
                    mine.rows_kept -= rows
            ledger.add(mine)
    if codes is not None:
        _check_rows(task, len(codes), ledger.rows_in, ended=True)
    if not sums:  # the sampler wants every task in the plan
        sums[None if codes is None else int(codes[0]) if len(codes) else 0] = [0, 0, 0]
    codes_there = sorted(sums, key=lambda code: -1 if code is None else code)
    cells = [cell_of(task.task.name, code, *sums[code]) for code in codes_there]
    return cells, _without_denied(task, ledger)


def _without_denied(item: CountedTask, ledger: Ledger) -> Ledger:
    """Return the ledger; of a task that a policy leaves out no row is kept."""
    if item.denied and ledger.rows_kept:
        ledger.drop(policing.KEY, ledger.rows_kept)
        ledger.rows_kept = ledger.rows_out = 0
    return ledger


def cell_of(task: str, bucket: int | None, rows: int, response_tokens: int, squares: int) -> PlannedTask:
    """Return a task, or a bucket of it, of which nothing is planned yet."""
    return PlannedTask(task, rows, response_tokens, squares, 0, bucket)


def _add(sums: dict[int | None, list[int]], code: int | None, lengths: Any) -> None:
    cell = sums.setdefault(code, [0, 0, 0])
    cell[0] += len(lengths)
    cell[1] += int(lengths.sum())
    # A response of 2 million tokens in each of 2 million rows would still fit.
    cell[2] += int((lengths * lengths).sum())


def _add_buckets(sums: dict[int | None, list[int]], codes: Codes, lengths: Any) -> None:
    for code in np.unique(codes).tolist():
        _add(sums, code, lengths[codes == code])


def _check_rows(task: CountedTask, there: int, tokenized: int, *, ended: bool) -> None:
    if there < tokenized or (ended and there != tokenized):
        count = f"{tokenized:,} rows" if ended else f"{tokenized:,} rows or more"
        raise InputError(
            f"the attributes of {task.task.name!r} do not fit the tokenized rows",
            where="rows",
            got=f"{there:,} rows with attributes",
            expected=f"{count}, those of the tokenized folder",
            hint="give rows= the folder that was tokenized",
        )


@contextmanager
def _cutter(task: CountedTask, context: Counting) -> Iterator[Cutter | None]:
    if task.rule.long_context != "split":
        yield None
        return
    with Cutter.open(task.task.array(), context.continuing) as cutter:
        yield cutter
