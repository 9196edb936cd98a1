"""What training on a sampled folder will be like: the loader's plan, walked to its end, and no batch filled.

Only counts are kept of rows: memory does not grow with them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from components.sample.row_filter import by_size
from pairmill import log
from pairmill.errors import InputError
from pairmill.loader.folder import Epoch, SampledFolder
from pairmill.loader.plan import Draw, World
from pairmill.loader.row_plan import Balance, RowPlan

COSTS = ("inputs", "length²", "attention work")
_LONGEST = 10
_CHUNK = 1 << 20
"""Inputs of rows that are looked at together; rows have one or more, so that it bounds them too."""
_SAY_EVERY = 1 << 16
_ALL: int = np.iinfo(np.int64).max


@dataclass
class EpochOutlook:
    """An epoch. A batch that runs on into the next one counts where it begins; what is left counts where it lies.

    Attributes:
        batches: global batches.
        rows: in them.
        inputs: of these rows: tokens of both texts, less one.
        targets: supervised tokens of these rows.
        rows_left: rows that no batch has.
        inputs_left: of these.
        rows_skipped: rows that options leave out.
    """

    batches: int = 0
    rows: int = 0
    inputs: int = 0
    targets: int = 0
    rows_left: int = 0
    inputs_left: int = 0
    rows_skipped: int = 0

    def __add__(self, other: EpochOutlook) -> EpochOutlook:
        return EpochOutlook(**{name: value + getattr(other, name) for name, value in vars(self).items()})


class Spread:
    """How often each of the whole numbers from 0 to ``most`` was seen."""

    def __init__(self, most: int) -> None:
        self._counts = np.zeros(most + 1, np.int64)

    def add(self, values: NDArray[np.int64]) -> None:
        """See them."""
        np.add.at(self._counts, values, 1)

    def at(self, share: float) -> int:
        """The number that this share of what was seen does not exceed: 0 the least, 0.5 the (lower) median, 1 the most.

        Something must have been seen.
        """
        sums = np.cumsum(self._counts)
        return int(np.searchsorted(sums, max(1, share * sums[-1])))


@dataclass
class Burden:
    """What the busiest rank has, against the mean over the ranks, for each of :data:`COSTS`.

    Ranks wait for each other at every batch, so ``overall`` is by how much longer the steps are than evenly dealt ones
    as far as the cost says how long they are.
    """

    _busiest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COSTS)))
    _mean: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COSTS)))
    _worst: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COSTS)))

    def add(self, costs: NDArray[np.int64]) -> None:
        """A global batch: costs by rank, int64 [costs, ranks]."""
        busiest, mean = costs.max(axis=1), costs.mean(axis=1)
        self._busiest += busiest
        self._mean += mean
        np.maximum(self._worst, busiest / mean, out=self._worst)

    @property
    def overall(self) -> dict[str, float]:
        """Sum of the busiest over the sum of the means, by cost."""
        return dict(zip(COSTS, (self._busiest / self._mean).tolist(), strict=True))

    @property
    def worst(self) -> dict[str, float]:
        """The same of the batch that is worst, by cost."""
        return dict(zip(COSTS, self._worst.tolist(), strict=True))


@dataclass(frozen=True)
class LongRow:
    """A row among the longest, where it stands first."""

    epoch: int
    row: int
    inst_len: int
    resp_len: int

    @property
    def inputs(self) -> int:
        """Slots that it takes."""
        return self.inst_len + self.resp_len - 1


@dataclass
class Outlook:
    """What is known of a training run before it begins.

    Attributes:
        world: ranks and their slots.
        epochs: in order.
        rows: of the folder, all epochs.
        long: rows that need more slots than a rank has.
        one_token: rows whose response is one token.
        lengths: rows by inputs, as :func:`components.sample.row_filter.by_size` counts; all of them.
        longest: the longest rows, each once even if several epochs have it.
        used: inputs of each global batch, in order.
        rank_rows: rows of a rank's batch.
        rank_inputs: inputs of a rank's batch.
        burdens: by balance, the chosen one first.
        failed: balances that cannot deal some batch, and what they say; they have no burden.
    """

    world: World
    epochs: list[EpochOutlook]
    rows: int
    long: int
    one_token: int
    lengths: NDArray[np.int64]
    longest: list[LongRow]
    used: NDArray[np.int64]
    rank_rows: Spread
    rank_inputs: Spread
    burdens: dict[Balance, Burden]
    failed: dict[Balance, str]

    @property
    def total(self) -> EpochOutlook:
        """Sums over the epochs."""
        return sum(self.epochs, EpochOutlook())

    def slots(self, epoch: EpochOutlook) -> int:
        """Slots of an epoch's batches, all ranks."""
        return epoch.batches * self.world.batch_tokens


def look_ahead(plan: RowPlan, world: World) -> Outlook:
    """Walk a plan of one folder, batch by batch, from its beginning to its end.

    Raises:
        InputError: the folder does not suit the world (as a loader would say it).
    """
    plan.check(world)
    (folder,) = plan.folders
    surveys = folder.survey(world.slots)
    lengths, longest = _scan(folder)
    with log.progress("inspect", len(folder.epochs), "epochs") as progress:
        walk = _Walk(plan, world)
        walk.to_the_end(progress)
    for number, (epoch, survey, found) in enumerate(zip(folder.epochs, surveys, walk.epochs, strict=True)):
        # Not what the walk said at an epoch's end: a batch that runs into the next epoch tells the same rows twice.
        left = epoch.index.window(
            walk.next_rows[number],
            _ALL,
            longer_than=world.slots,
            skip_long=plan.skip_long,
            skip_one_token=plan.skip_one_token,
        )
        found.rows_left, found.inputs_left = len(left), int(_inputs(left).sum())
        found.rows_skipped = survey.rows - len(left) - walk.delivered[number]
    return Outlook(
        world=world,
        epochs=walk.epochs,
        rows=sum(survey.rows for survey in surveys),
        long=sum(survey.long[0] for survey in surveys),
        one_token=sum(survey.one_token[0] for survey in surveys),
        lengths=lengths,
        longest=longest,
        used=np.array(walk.used, np.int64),
        rank_rows=walk.rank_rows,
        rank_inputs=walk.rank_inputs,
        burdens=walk.burdens,
        failed=walk.failed,
    )


class _Walk:
    def __init__(self, plan: RowPlan, world: World) -> None:
        self._plan, self._world = plan, world
        self._others = {name: _dealt(plan, name) for name in get_args(Balance) if name != plan.balance}
        (folder,) = plan.folders
        self.epochs = [EpochOutlook() for _ in folder.epochs]
        self.next_rows = [0] * len(self.epochs)
        self.delivered = [0] * len(self.epochs)
        self.used: list[int] = []
        self.rank_rows, self.rank_inputs = Spread(world.slots), Spread(world.slots)
        self.burdens: dict[Balance, Burden] = {name: Burden() for name in (plan.balance, *self._others)}
        self.failed: dict[Balance, str] = {}

    def to_the_end(self, progress: log.Progress) -> None:
        position, said, rows = self._plan.begin(), 0, 0
        while (drawn := self._plan.draw(position, self._world)) is not None:
            if isinstance(drawn, Draw):
                self._take(drawn)
                for name, other in list(self._others.items()):
                    try:
                        otherwise = other.draw(position, self._world)
                    except InputError as error:
                        self.failed[name] = str(error)
                        del self._others[name], self.burdens[name]
                        continue
                    # Where a rank lacks a causal query the batch shrinks, by one balance more than by another.
                    if isinstance(otherwise, Draw):
                        self.burdens[name].add(_costs_by_rank(otherwise))
                rows += drawn.rows
            position = drawn.after
            ended = position.cursors[0][0]
            if ended > said or rows >= _SAY_EVERY:
                progress.advance(ended - said, rows, 0)
                said, rows = ended, 0

    def _take(self, drawn: Draw) -> None:
        window = drawn.detail.window[: drawn.rows]
        found = self.epochs[drawn.epoch]
        found.batches += 1
        found.rows += drawn.rows
        found.inputs += drawn.tokens
        found.targets += int(window[:, 4].sum())
        self.used.append(drawn.tokens)
        firsts = [first for first in drawn.detail.firsts.tolist() if first < drawn.rows]
        for epoch, (first, end) in enumerate(zip(firsts, [*firsts[1:], drawn.rows], strict=True), drawn.epoch):
            if end > first:
                self.delivered[epoch] += end - first
                self.next_rows[epoch] = int(window[end - 1, 0]) + 1
        costs = _costs_by_rank(drawn)
        self.burdens[self._plan.balance].add(costs)
        self.rank_inputs.add(costs[0])
        self.rank_rows.add(np.diff(drawn.detail.ends.astype(np.int64)))


def _dealt(plan: RowPlan, balance: Balance) -> RowPlan:
    """The same plan, its batches dealt to ranks by another balance."""
    other = copy.copy(plan)
    other.balance = balance
    return other


def _inputs(window: NDArray[np.int64]) -> NDArray[np.int64]:
    return window[:, 2] + window[:, 4] - 1


def _costs_by_rank(drawn: Draw) -> NDArray[np.int64]:
    """Of a global batch; int64 [costs, ranks]. Attention counts twice, so that it is whole."""
    mine = drawn.detail.window[drawn.detail.places]
    prefix, queries, inputs = mine[:, 2], mine[:, 4] - 1, _inputs(mine)
    costs = np.stack([inputs, inputs * inputs, 2 * prefix * inputs + queries * queries])
    # Every rank has a row: reduceat would count one of the next rank's for a rank that has none.
    return np.add.reduceat(costs, drawn.detail.ends[:-1].astype(np.int64), axis=1)


def _scan(folder: SampledFolder) -> tuple[NDArray[np.int64], list[LongRow]]:
    """All rows by inputs, and the longest, whether they are read or skipped."""
    lengths = np.zeros(64, np.int64)
    longest: dict[tuple[int, ...], LongRow] = {}
    for number, epoch in enumerate(folder.epochs):
        for window in _chunks(epoch):
            inputs = _inputs(window)
            lengths += by_size(inputs)
            longest = _longest(longest, number, window, inputs)
    return lengths, list(longest.values())


def _chunks(epoch: Epoch) -> Iterator[NDArray[np.int64]]:
    start = 0
    while len(window := epoch.index.window(start, _CHUNK)):
        yield window
        start = int(window[-1, 0]) + 1


def _longest(
    known: dict[tuple[int, ...], LongRow], epoch: int, window: NDArray[np.int64], inputs: NDArray[Any]
) -> dict[tuple[int, ...], LongRow]:
    """The longest of those that are known and of a window, by place of their texts; the earlier of equally long."""
    floor = min((row.inputs for row in known.values()), default=0) if len(known) == _LONGEST else 0
    places = np.flatnonzero(inputs > floor)
    found: dict[tuple[int, ...], LongRow] = {}
    for place in places[np.argsort(-inputs[places], kind="stable")].tolist():
        row, *texts = window[place].tolist()
        if tuple(texts) not in known:
            found.setdefault(tuple(texts), LongRow(epoch, row, texts[1], texts[3]))
        if len(found) == _LONGEST:
            break
    merged = sorted([*known.items(), *found.items()], key=lambda item: -item[1].inputs)
    return dict(merged[:_LONGEST])
