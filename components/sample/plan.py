"""The plan of a sample: which rows, and which of them in which epoch at which position.

A plan says nothing of how the arrays are laid out (:mod:`components.sample.node.layout`). It is made once, kept below
the project's root, and carried out on any number of machines.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from components.sample.analytics import Stats
from components.sample.config import SampleConfig
from components.sample.draw import Rows, Stream, Walk, ranks
from components.sample.row_filter import TaskRows, by_size
from pairmill import log, storage
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.prefixes import Rule
from pairmill.formats.tokens import INDEX

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A task as a plan knows it: its name, its tokens, and how many of its rows are taken."""

    name: str
    length: int
    rows: int


@dataclass(frozen=True)
class Plan:
    """Rows and epochs.

    Args:
        sources: the tasks by name.
        rows: the four index arrays of all rows that are taken, task by task in the tasks' own order; int32 or int64,
            shape (rows,). Spans point into the tasks' own ``tokens.npy``; responses are as long as they are kept.
        epochs: for each epoch its rows in training order, as places in ``rows``; uint32.
    """

    sources: list[Source]
    rows: dict[str, NDArray[Any]]
    epochs: list[Rows]


@dataclass(frozen=True)
class Findings:
    """What making a plan finds out about each task, for people and for the ledger."""

    name: str
    rule: Rule
    ledger: Ledger
    stats: Stats
    lengths: NDArray[np.int64]
    """Rows over all epochs by tokens, as :func:`components.sample.row_filter.by_size` counts."""
    cuts: NDArray[np.int64]
    """Rows that may be sampled by tokens cut off."""
    least_context: int
    """As :class:`components.sample.row_filter.TaskRows` has it."""


def make(tasks: Sequence[Callable[[], TaskRows]], config: SampleConfig, workers: int) -> tuple[Plan, list[Findings]]:
    """Draw the epochs.

    Args:
        tasks: give each task's rows, in the order of their names.
        config: seed, epochs, profile.
        workers: threads.

    Raises:
        InputError: with ``profile="data_io"``, where the reference overflows its buffers.
    """
    drawn, orders = (_one_stream if config.profile == "data_io" else _own_streams)(tasks, config, workers)
    sources = [one.source for one in drawn]
    # What is joined goes at once: held twice, the rows would be most of the memory that planning takes.
    columns = {name: np.concatenate([one.rows.pop(name) for one in drawn]) for name in INDEX}
    return Plan(sources, columns, orders), [one.findings for one in drawn]


@dataclass(frozen=True)
class _Drawn:
    source: Source
    rows: dict[str, NDArray[Any]]
    findings: Findings

    @classmethod
    def of(cls, rows: TaskRows, coverage: NDArray[np.uint32]) -> _Drawn:
        taken = np.flatnonzero(coverage)
        columns = {name: getattr(rows, name)[taken] for name in INDEX}
        times = coverage[taken].astype(np.int64)
        lengths = columns["inst_len"].astype(np.int64) + columns["resp_len"]
        ledger = Ledger(rows.total, len(taken), int(times.sum()), dict(rows.dropped))
        if len(taken) < len(rows):
            ledger.drop("not_sampled", len(rows) - len(taken))
        if rows.truncated:
            ledger.note("truncated", rows.truncated)
            ledger.measures["truncated_tokens"] = rows.cut_tokens
        stats = Stats(
            rows=len(rows),
            itoks=int(rows.inst_len.sum(dtype=np.int64)),
            rtoks=int(rows.resp_len.sum(dtype=np.int64)),
            cov_rows=int(times.sum()),
            cov_itoks=int((columns["inst_len"] * times).sum()),
            cov_rtoks=int((columns["resp_len"] * times).sum()),
            unique_rows=len(taken),
            unique_toks=int(lengths.sum()),
        )
        source = Source(rows.name, rows.length, len(taken))
        found = Findings(rows.name, rows.rule, ledger, stats, by_size(lengths, times), rows.cuts, rows.least_context)
        return cls(source, columns, found)


def _own_streams(
    tasks: Sequence[Callable[[], TaskRows]], config: SampleConfig, workers: int
) -> tuple[list[_Drawn], list[Rows]]:
    def draw(task: Callable[[], TaskRows]) -> tuple[_Drawn, list[Rows]]:
        rows = task()
        walk = Walk(rows, Stream(config.seed, f"task\0{rows.name}"))
        epochs = [walk.epoch() for _ in range(config.epochs)]
        place = ranks(walk.coverage)
        return _Drawn.of(rows, walk.coverage), [place[epoch] for epoch in epochs]

    with ThreadPoolExecutor(workers) as pool:
        drawn, epochs = [], [list[Rows]() for _ in range(config.epochs)]
        first = 0
        for one, taken in _told(pool.map(draw, tasks), len(tasks), lambda pair: pair[0].findings.ledger.rows_in):
            drawn.append(one)
            for epoch, places in zip(epochs, taken, strict=True):
                epoch.append(places + np.uint32(first))
            first += one.source.rows

        def order(number: int) -> Rows:
            places, epochs[number] = _joined(epochs[number]), []
            Stream(config.seed, f"epoch\0{number}").shuffle(places)
            return places

        return drawn, list(pool.map(order, range(config.epochs)))


def _one_stream(
    tasks: Sequence[Callable[[], TaskRows]], config: SampleConfig, workers: int
) -> tuple[list[_Drawn], list[Rows]]:
    with ThreadPoolExecutor(workers) as pool:
        rows = list(_told(pool.map(lambda task: task(), tasks), len(tasks), lambda one: one.total))
    stream = Stream(config.seed)
    walks = [Walk(one, stream) for one in rows]
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
    place = ranks(np.concatenate([walk.coverage for walk in walks]))
    drawn = [_Drawn.of(one, walk.coverage) for one, walk in zip(rows, walks, strict=True)]
    return drawn, [place[order] for order in orders]


def _told(tasks: Iterable[T], total: int, rows: Callable[[T], int]) -> Iterator[T]:
    """The tasks as they come, told to whoever watches."""
    with log.progress("plan", total) as progress:
        for task in tasks:
            progress.advance(1, rows(task), 0)
            yield task


def _joined(parts: list[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _columns(plan: Plan) -> dict[str, NDArray[Any]]:
    return {**plan.rows, **{f"epoch_{number}": order for number, order in enumerate(plan.epochs)}}


def save(plan: Plan, out: Writer) -> None:
    """Write the arrays of a plan, as ``plan/<name>.npy``."""
    for name, values in _columns(plan).items():
        with out.create(f"plan/{name}.npy") as path, path.open("wb") as file:
            npy.write_array(file, values, (1, 0), allow_pickle=False)


def load(home: str, manifest: Manifest, sources: list[Source], workers: int) -> Plan:
    """Read the arrays of a plan that stands at ``home``, checked against their digests.

    Raises:
        InputError: a file is not what the manifest says.
    """
    files = {file.path: file for file in manifest.files}

    def column(name: str) -> NDArray[Any]:
        file = files[f"plan/{name}.npy"]
        uri = storage.join(home, file.path)
        data = storage.store_for(uri).read(uri)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise InputError(
                "is not what its manifest says",
                where=uri,
                hint="plan again: remove the folder and run the same options",
            )
        array: NDArray[Any] = npy.read_array(io.BytesIO(data), allow_pickle=False)
        return array

    epochs = sum(path.startswith("plan/epoch_") for path in files)
    names = [*INDEX, *(f"epoch_{number}" for number in range(epochs))]
    with ThreadPoolExecutor(workers) as pool:
        columns = dict(zip(names, pool.map(column, names), strict=True))
    return Plan(sources, {name: columns[name] for name in INDEX}, [columns[name] for name in names[len(INDEX) :]])
