"""Draws a plan: which rows of a data set make which epoch, and in which order.

The default profile draws in Rust (:class:`pairmill._native.Planner`): each data set has a stream of random numbers of
its own, which is named by its content, so that another name, or another data set beside it, changes none of its rows.
``profile="data_io"`` draws exactly as data_io's sampler does, from one stream.
"""

import os
import shutil
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill._native import Planner
from pairmill.engine.manifest import Ledger
from pairmill.formats.eligible_rows import REASONS, DatasetRows, count_cut
from pairmill.formats.tokens import Dataset, header
from pairmill.rules.rule import Rule
from pairmill.stages.sample.alarms import PASSES_TOTAL
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.plan import PlannedDataset, SamplePlan
from pairmill.stages.sample.node.plan_arrays import PlanArray
from pairmill.stages.sample.one_stream import draw_one_stream
from pairmill.stages.sample.sampled_rows import DrawnSample, SampledRows
from pairmill.stages.sample.wants import Rows, WalkToDraw, Wants
from pairmill.storage import partials

MEMORY: Final = 160 << 20
"""Bytes of rows and places above which they wait in files."""
_BATCH: Final = 2048
"""Data sets that are given to the planner at once."""
_EXAMPLES: Final = (*REASONS, "truncated")
_HEAD: Final = ".pairmill-plan."


class DatasetToDraw(NamedTuple):
    """A data set to draw.

    Attributes:
        rule: of it; the walks say what is drawn.
        read: reads its rows that may be sampled; called only if the planner does not read ``files`` itself.
        wants: returns what to draw; called when the data set has its turn.
        files: its folder on this machine, and the digests of its index arrays; None = they are not read from there.
    """

    name: str
    rule: Rule
    read: Callable[[], DatasetRows]
    wants: Callable[[], Wants]
    files: tuple[str, Sequence[str]] | None = None


class _Rows(NamedTuple):
    """Rows that may be sampled, for the planner."""

    columns: Sequence[NDArray[Any]]
    cut_places: NDArray[np.int64]
    cut_tokens: NDArray[np.int64]
    origins: Rows | None
    passes: NDArray[np.uint8] | None
    kept: NDArray[np.uint8] | None
    kept_epochs: int


class _Task(NamedTuple):
    """A data set for the planner."""

    walks: Sequence[WalkToDraw]
    folder: str = ""
    digests: Sequence[str] = ()
    drop_long: bool = False
    rows: _Rows | None = None


def in_plan_order(tasks: Iterable[Dataset]) -> list[tuple[Dataset, str]]:
    """Return data sets in the order of a plan, which follows content and not names, each with a key of its own."""
    seen = Counter[str]()
    keyed = []
    for task in tasks:
        key = task.key
        keyed.append((key, seen[key], task))
        seen[key] += 1
    keyed.sort(key=lambda item: item[:2])
    return [(task, twin_key(key, number)) for key, number, task in keyed]


def twin_key(key: str, number: int) -> str:
    """Return the key of a data set in a plan; ``number`` counts those of one content."""
    return f"{key}\0{number}" if number else key


def draw_plan(
    datasets: Sequence[DatasetToDraw], config: SampleConfig, workers: int, scratch: Path | None = None, bases: int = 0
) -> DrawnSample:
    """Draw the epochs.

    Args:
        datasets: in the order of the plan; with ``profile="data_io"`` that of their names.
        config: seed, epochs, profile.
        scratch: where files of rows and places wait if they are many; None = TMPDIR. They are removed when nothing
            refers to the plan any more.
        bases: plans that this one adds to, one upon another.

    Raises:
        InputError: a data set is damaged, or with ``profile="data_io"`` the reference would overflow its buffers.
    """
    if config.profile == "data_io":
        return draw_one_stream([item.read for item in datasets], config, workers)
    drawing = _Drawing(config, workers, scratch, bases)
    with log.progress("plan", len(datasets)) as progress:
        for item in drawing.draw(datasets):
            progress.advance(1, item.ledger.rows_in, 0)
    return drawing.finish()


class _Drawing:
    def __init__(self, config: SampleConfig, workers: int, scratch: Path | None, bases: int = 0) -> None:
        self._workers, self._epochs = workers, config.epochs
        self._above = scratch
        self._folder: Scratch | None = None
        self._planner = Planner(
            str(config.seed),
            config.epochs,
            context=config.context_size,
            shortest=config.min_resp_length,
            workers=workers,
            budget=MEMORY,
            bases=bases,
        )
        self._drawn: list[SampledRows] = []

    def draw(self, datasets: Sequence[DatasetToDraw]) -> Iterator[SampledRows]:
        """Draw data sets, in order. Yield what was drawn of each."""
        done, size = 0, min(_BATCH, 256)
        with ThreadPoolExecutor(self._workers) as pool:
            # The general reader reads a few data sets ahead.
            slow = deque(item for item in datasets if item.files is None)
            ahead: deque[Future[DatasetRows]] = deque()
            while done < len(datasets):
                while slow and len(ahead) <= self._workers:
                    ahead.append(pool.submit(slow.popleft().read))
                wants, batch = [], []
                for item in datasets[done : done + size]:
                    if item.files is None:
                        break
                    wants.append(item.wants())
                    batch.append(_Task(wants[-1].walks, *item.files, item.rule.long_context == "drop"))
                reports, failed = self._planner.draw(batch) if batch else ([], True)
                triples = zip(datasets[done:], wants, reports, strict=False)
                made = [self._sampled(item, mine, report) for item, mine, report in triples]
                done += len(made)
                # Of large data sets the planner takes few at once.
                size = min(_BATCH, 2 * len(made) + 1)
                if failed:
                    # It is not on this machine, or is split, or not as it should be: reading it again says how.
                    item = datasets[done]
                    rows = ahead.popleft().result() if item.files is None else item.read()
                    mine = item.wants()
                    given = _Rows([*rows.columns.values()], *rows.cut, rows.origins, rows.passes, *rows.kept)
                    (report,), _ = self._planner.draw([_Task(mine.walks, rows=given)])
                    made.append(self._sampled(item, mine, report, rows))
                    done += 1
                if self._planner.is_full():
                    # Only now: a container may have no place for it, and most samples need none.
                    folder = self._folder = _scratch_in(self._above or partials.scratch())
                    self._planner.store_in(str(folder.path))
                self._drawn += made
                yield from made

    def finish(self) -> DrawnSample:
        """Return the plan."""
        columns = {name: self._array(made) for name, made in self._planner.columns()}
        epochs = [self._array(self._planner.epoch(number), np.dtype(np.uint32)) for number in range(self._epochs)]
        planned = [PlannedDataset(item.name, item.length, item.stats.unique_rows) for item in self._drawn]
        return DrawnSample(SamplePlan(planned, columns, epochs), self._drawn, *self._planner.histograms())

    def _array(self, made: tuple[Any, str, int, int], dtype: np.dtype[Any] | None = None) -> PlanArray:
        values, path, length, width = made
        if values is not None:
            return PlanArray(values if dtype is None else values.view(dtype))
        with open(path, "r+b") as file:
            file.write(header(dtype or np.dtype(f"<i{width}"), length))
        return PlanArray(Path(path), keep=self._folder)

    def _sampled(
        self, item: DatasetToDraw, wants: Wants, report: tuple[Any, ...], rows: DatasetRows | None = None
    ) -> SampledRows:
        counts, examples, walks = report
        rows_in, length, *dropped, least = counts[:6]
        stats = Stats(*counts[6:14], *counts[18:])
        cut, cut_toks, whole, kept = counts[14:18]
        if rows is None:
            ledger = Ledger(rows_in)
            ledger.dropped = _present(REASONS, dropped)
            named = _present(_EXAMPLES, examples)
        else:
            ledger, named, least, length = rows.ledger, rows.examples, rows.least_context, rows.length
        ledger.rows_kept, ledger.rows_out = kept, stats.cov_rows
        total = item.rule.passes_total
        enough = rows.rows_seen(total) if rows is not None and total is not None else 0
        for reason, count in ((PASSES_TOTAL, enough), ("not_sampled", whole - kept - enough)):
            if count:
                ledger.drop(reason, count)
        # What a row lost that is never drawn is not missed.
        count_cut(ledger, cut, cut_toks)
        wants.check(ledger.rows_in, [(pool, toks) for pool, toks, _ in walks])
        return SampledRows(
            name=item.name,
            rule=item.rule,
            ledger=ledger,
            length=length,
            least_context=least,
            examples=named,
            stats=stats,
            drawn={walk.key: tokens for walk, (_, _, tokens) in zip(wants.walks, walks, strict=True) if walk.key},
        )


def _present(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value} if any(values) else {}


@dataclass
class Scratch:
    """A folder that is removed when nothing refers to it any more."""

    path: Path
    handle: int


def _scratch_in(folder: Path) -> Scratch:
    partials.sweep_folder(folder, _HEAD)
    handle, path = partials.make_folder(folder, _HEAD)
    result = Scratch(path, handle)
    weakref.finalize(result, _remove, path, handle)
    return result


def _remove(path: Path, handle: int) -> None:
    os.close(handle)
    shutil.rmtree(path, ignore_errors=True)
