"""Draws a plan: which rows of a data set make which epoch. Pure: arrays in, arrays out.

``profile="data_io"`` draws exactly as data_io's sampler does, from one stream. The default profile gives each data set,
and the order of each epoch, a stream of its own, so that adding a data set changes none of the other rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill._native import Philox
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import DatasetRows
from pairmill.formats.tokens import BYTES, INDEX, UNKNOWN_BYTES
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.mixed import WantedRows
from pairmill.stages.sample.node.plan import PlanArray, PlannedDataset, SamplePlan
from pairmill.stages.sample.sampled_rows import SampledRows, sampled

T = TypeVar("T")
Rows = NDArray[np.uint32]
ReadRows = Callable[[], DatasetRows]
Wants = Callable[[DatasetRows], "Sequence[WantedRows]"]


class Stream:
    """Random numbers: numpy's Philox of a seed, or of a seed and a name.

    The generator is our own, bit for bit numpy's: its draws are part of what a sample is, and numpy promises them only
    for one version.
    """

    def __init__(self, seed: int, name: str = "") -> None:
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u4").tolist() if name else []
        key = np.random.SeedSequence([seed, *words] if words else seed).generate_state(2, np.uint64)
        self._random = Philox(*key.tolist())

    def permutation(self, count: int) -> Rows:
        """Return the numbers below ``count`` in random order."""
        values = np.arange(count, dtype=np.uint32)
        self.shuffle(values)
        return values

    def shuffle(self, values: Rows) -> None:
        """Put ``values`` in the order of ``permutation(len(values))``, in place."""
        self._random.shuffle(values)


class Walk:
    """A walk through the rows of a data set: one permutation after another, continued from epoch to epoch.

    Args:
        rows: of the data set.
        stream: of the permutations.
        members: the rows to walk through, ascending; None = all.
        coverage: counts how often each row of the data set was taken, by this walk and others; None = a new one.
    """

    def __init__(
        self, rows: DatasetRows, stream: Stream, members: Rows | None = None, coverage: Rows | None = None
    ) -> None:
        self._rows, self._stream, self._members = rows, stream, members
        self._count = len(rows if members is None else members)
        self._order = np.empty(0, np.uint32)
        self._cursor = 0
        self.coverage = np.zeros(len(rows), np.uint32) if coverage is None else coverage

    def epoch(self) -> Rows:
        """Return the rows of the next epoch by the data set's rule, in the order in which they are drawn."""
        count, rule = self._count, self._rows.rule
        left = (count if rule.max_per_file is None else min(rule.max_per_file, count)) * rule.repeat
        budget = None if rule.max_response_tokens_per_file is None else rule.max_response_tokens_per_file * rule.repeat
        return self.take(left, budget)

    def take(self, left: int, budget: int | None = None) -> Rows:
        """Return the next rows: a given number of them, or as many as reach a budget of response tokens."""
        taken: list[Rows] = []
        while left > 0:
            if self._cursor == len(self._order):
                self._order = self._stream.permutation(self._count)
                if self._members is not None:
                    self._order = self._members[self._order]
                self._cursor = 0
            rows = self._order[self._cursor : self._cursor + left]
            if budget is not None:
                spent = np.cumsum(self._rows.columns["resp_len"][rows], dtype=np.int64)
                reached = int(np.searchsorted(spent, budget, side="left"))
                if budget <= 0 or reached < len(rows):
                    rows = rows[: reached + 1 if budget > 0 else 0]
                    left = len(rows)
                else:
                    budget -= int(spent[-1])
            self._cursor += len(rows)
            left -= len(rows)
            self.coverage[rows] += 1  # part of one permutation: no row comes twice
            taken.append(rows)
        return _joined(taken)


def draw_plan(
    datasets: Sequence[ReadRows], config: SampleConfig, workers: int, wants: Wants | None = None
) -> tuple[SamplePlan, list[SampledRows]]:
    """Draw the epochs; returns the sampled rows of each data set too, without their columns.

    Args:
        datasets: read the rows of each data set, in the order of their names.
        config: seed, epochs, profile.
        workers: threads.
        wants: what a mixture draws of a data set, in place of its rule.

    Raises:
        InputError: with ``profile="data_io"``, if the reference would overflow its buffers.
    """
    if config.profile == "data_io":
        taken, epochs = _one_stream(datasets, config, workers)
    else:
        taken, epochs = _own_streams(datasets, config, workers, wants)
    planned = [PlannedDataset(item.name, item.length, len(item)) for item in taken]
    # Columns are freed as they are joined: two copies would be most of the memory that planning takes.
    columns = {name: np.concatenate([item.columns.pop(name) for item in taken]) for name in INDEX}
    if any(BYTES in item.columns for item in taken):
        # A data set without them has token files of others, say.
        unknown = np.array([UNKNOWN_BYTES], np.int32)
        given = [item.columns.pop(BYTES, None) for item in taken]
        parts = [
            unknown.repeat(item.rows) if values is None else values for item, values in zip(planned, given, strict=True)
        ]
        columns[BYTES] = np.concatenate(parts)
    rows = {name: PlanArray(values) for name, values in columns.items()}
    return SamplePlan(planned, rows, list(map(PlanArray, epochs))), taken


def _own_streams(
    datasets: Sequence[ReadRows], config: SampleConfig, workers: int, wants: Wants | None
) -> tuple[list[SampledRows], list[Rows]]:
    def draw(read: ReadRows) -> tuple[SampledRows, list[Rows]]:
        rows = read()
        if wants is not None:
            return _wanted(rows, config, wants(rows))
        if rows.rule.rows is not None:
            one = WantedRows((rows.name, None), f"task\0{rows.name}", None, list(rows.rule.rows))
            return _wanted(rows, config, [one])
        walk = Walk(rows, Stream(config.seed, f"task\0{rows.name}"))
        epochs = [walk.epoch() for _ in range(config.epochs)]
        place = ranks(walk.coverage)
        return sampled(rows, walk.coverage), [place[epoch] for epoch in epochs]

    with ThreadPoolExecutor(workers) as pool:
        taken_of, epochs = list[SampledRows](), [list[Rows]() for _ in range(config.epochs)]
        first = 0
        for rows, taken in _watched(pool.map(draw, datasets), len(datasets), lambda one: one[0]):
            taken_of.append(rows)
            for epoch, places in zip(epochs, taken, strict=True):
                epoch.append(places + np.uint32(first))
            first += len(rows)

        def order(number: int) -> Rows:
            places, epochs[number] = _joined(epochs[number]), []
            Stream(config.seed, f"epoch\0{number}").shuffle(places)
            return places

        return taken_of, list(pool.map(order, range(config.epochs)))


def _wanted(rows: DatasetRows, config: SampleConfig, wants: Sequence[WantedRows]) -> tuple[SampledRows, list[Rows]]:
    """Draw what a mixture wants of a data set."""
    coverage = np.zeros(len(rows), np.uint32)
    epochs: list[list[Rows]] = [[] for _ in range(config.epochs)]
    drawn = {}
    for item in wants:
        walk = Walk(rows, Stream(config.seed, item.stream), item.members, coverage)
        taken = [walk.take(count) for count in item.rows]
        for epoch, part in zip(epochs, taken, strict=True):
            epoch.append(part)
        drawn[item.key] = [int(rows.columns["resp_len"][part].sum(dtype=np.int64)) for part in taken]
    place = ranks(coverage)
    result = sampled(rows, coverage)
    result.drawn = drawn
    return result, [place[_joined(epoch)] for epoch in epochs]


def _one_stream(
    datasets: Sequence[ReadRows], config: SampleConfig, workers: int
) -> tuple[list[SampledRows], list[Rows]]:
    with ThreadPoolExecutor(workers) as pool:
        rows = list(_watched(pool.map(lambda read: read(), datasets), len(datasets), lambda dataset: dataset))
    stream = Stream(config.seed)
    walks = [Walk(dataset, stream) for dataset in rows]
    capacity = sum(map(len, rows))
    first = np.cumsum([0, *map(len, rows)], dtype=np.uint32)
    orders = []
    for number in range(config.epochs):
        places = _joined([walk.epoch() + start for walk, start in zip(walks, first, strict=False)])
        if len(places) > capacity:
            raise InputError(
                "the rules ask for more rows than the reference's buffers hold",
                where=f"epoch {number}",
                got=str(len(places)),
                expected=f"at most {capacity}",
                hint="lower repeat, or use the default profile",
            )
        stream.shuffle(places)
        orders.append(places)
    place = ranks(_joined([walk.coverage for walk in walks]))
    taken = [sampled(dataset, walk.coverage) for dataset, walk in zip(rows, walks, strict=True)]
    return taken, [place[order] for order in orders]


def ranks(coverage: NDArray[Any]) -> Rows:
    """Return the rank of each row among the rows that were taken; values of other rows mean nothing."""
    return np.cumsum(coverage > 0, dtype=np.uint32) - np.uint32(1)


def _joined(parts: list[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _watched(datasets: Iterable[T], total: int, rows: Callable[[T], DatasetRows]) -> Iterator[T]:
    """Yield the data sets as they come, with a progress bar."""
    with log.progress("plan", total) as progress:
        for item in datasets:
            progress.advance(1, rows(item).ledger.rows_in, 0)
            yield item
