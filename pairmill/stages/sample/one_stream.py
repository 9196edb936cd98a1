"""Draws a plan exactly as data_io's sampler does: from one stream of random numbers, in the order of its calls."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill._native import Philox
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import DatasetRows, count_cut
from pairmill.formats.tokens import BYTES, INDEX, UNKNOWN_BYTES
from pairmill.report.powers import by_size
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.plan import PlannedDataset, SamplePlan
from pairmill.stages.sample.node.plan_arrays import PlanArray
from pairmill.stages.sample.sampled_rows import DrawnSample, SampledRows

Rows = NDArray[np.uint32]


class Stream:
    """numpy's Philox of a seed.

    The generator is our own, bit for bit numpy's: its draws are part of what a sample is, and numpy promises them only
    for one version.
    """

    def __init__(self, seed: int) -> None:
        self._random = Philox(*np.random.SeedSequence(seed).generate_state(2, np.uint64).tolist())

    def permutation(self, count: int) -> Rows:
        """Return the numbers below ``count`` in random order."""
        values = np.arange(count, dtype=np.uint32)
        self._random.shuffle(values)
        return values


class Walk:
    """A walk through the rows of a data set: one permutation after another, continued from epoch to epoch."""

    def __init__(self, rows: DatasetRows, stream: Stream) -> None:
        self._stream, self._count = stream, len(rows)
        rule, count = rows.rule, len(rows)
        self._wanted = (count if rule.max_per_file is None else min(rule.max_per_file, count)) * rule.repeat
        self._order = np.empty(0, np.uint32)
        self._cursor = 0
        self.coverage = np.zeros(count, np.uint32)

    def epoch(self) -> Rows:
        """Return the rows of the next epoch, in the order in which they are drawn."""
        taken, left = [np.empty(0, np.uint32)], self._wanted
        while left > 0:
            if self._cursor == len(self._order):
                self._order = self._stream.permutation(self._count)
                self._cursor = 0
            rows = self._order[self._cursor : self._cursor + left]
            self._cursor += len(rows)
            left -= len(rows)
            self.coverage[rows] += 1  # part of one permutation: no row comes twice
            taken.append(rows)
        return np.concatenate(taken)


def draw_one_stream(datasets: Sequence[Callable[[], DatasetRows]], config: SampleConfig, workers: int) -> DrawnSample:
    """Draw the epochs of data sets, which are read in the order of their names.

    Raises:
        InputError: the reference would overflow its buffers.
    """
    with ThreadPoolExecutor(workers) as pool, log.progress("plan", len(datasets)) as progress:
        rows = []
        for item in pool.map(lambda read: read(), datasets):
            progress.advance(1, item.ledger.rows_in, 0)
            rows.append(item)
    stream = Stream(config.seed)
    walks = [Walk(dataset, stream) for dataset in rows]
    capacity = sum(map(len, rows))
    first = np.cumsum([0, *map(len, rows)], dtype=np.uint32)
    orders = []
    for number in range(config.epochs):
        places = np.concatenate([walk.epoch() + start for walk, start in zip(walks, first, strict=False)])
        if len(places) > capacity:
            raise InputError(
                "the rules ask for more rows than the reference's buffers hold",
                where=f"epoch {number}",
                got=str(len(places)),
                expected=f"at most {capacity}",
                hint="lower repeat, or use the default profile",
            )
        orders.append(places[stream.permutation(len(places))])
    covered = np.concatenate([walk.coverage for walk in walks])
    place = np.cumsum(covered > 0, dtype=np.uint32) - np.uint32(1)
    lengths, cuts = np.zeros(64, np.int64), np.zeros(64, np.int64)
    taken = []
    for dataset, walk in zip(rows, walks, strict=True):
        taken.append(_take(dataset, walk.coverage, lengths, cuts))
    planned = [PlannedDataset(item.name, item.length, item.stats.unique_rows) for item in taken]
    columns = {name: PlanArray(_joined(rows, name)) for name in (*INDEX, BYTES) if any(name in d.columns for d in rows)}
    epochs = [PlanArray(place[order]) for order in orders]
    return DrawnSample(SamplePlan(planned, columns, epochs), taken, lengths.tolist(), cuts.tolist())


def _joined(datasets: Sequence[DatasetRows], name: str) -> NDArray[Any]:
    """Free and join a column: two copies would be most of the memory that planning takes."""
    # A data set without bytes has token files of others, say.
    parts = [item.columns.pop(name, None) for item in datasets]
    sizes = [len(item.columns["resp_len"]) if name == BYTES else 0 for item in datasets]
    return np.concatenate(
        [
            np.full(size, UNKNOWN_BYTES, np.int32) if part is None else part
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


def _take(
    rows: DatasetRows, coverage: NDArray[np.uint32], lengths: NDArray[np.int64], cuts: NDArray[np.int64]
) -> SampledRows:
    """Keep only the rows that were taken, and count them; ``coverage`` says how often each was."""
    taken = np.flatnonzero(coverage)
    inst, resp = (rows.columns[name].astype(np.int64) for name in ("inst_len", "resp_len"))
    rows.columns = {name: values[taken] for name, values in rows.columns.items()}
    times = coverage.astype(np.int64)
    ledger = replace(rows.ledger, rows_kept=len(taken), rows_out=int(times.sum()))
    if len(taken) < len(inst):
        ledger.drop("not_sampled", len(inst) - len(taken))
    places, lost = rows.cut
    lost = lost[coverage[places] > 0]  # what a row lost that is never drawn is not missed
    count_cut(ledger, len(lost), int(lost.sum()))
    lengths += by_size((inst + resp)[taken], times[taken])
    cuts += by_size(lost)
    stats = Stats(
        rows=len(inst),
        itoks=int(inst.sum()),
        rtoks=int(resp.sum()),
        cov_rows=int(times.sum()),
        cov_itoks=int((inst * times).sum()),
        cov_rtoks=int((resp * times).sum()),
        unique_rows=len(taken),
        unique_toks=int((inst + resp)[taken].sum()),
    )
    return SampledRows(
        name=rows.name,
        rule=rows.rule,
        ledger=ledger,
        length=rows.length,
        least_context=rows.least_context,
        examples=rows.examples,
        stats=stats,
    )
