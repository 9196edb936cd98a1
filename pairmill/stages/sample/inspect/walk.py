"""What training on a sampled folder will be like: walks the loader's plan to its end, without filling a batch.

It keeps counts only, so memory does not grow with the rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill.errors import InputError
from pairmill.loader.folder import Epoch, SampledFolder
from pairmill.loader.plan import Draw, Position, World
from pairmill.loader.row_plan import Balance, RowPlan
from pairmill.report.powers import by_size

COSTS = ("inputs", "length²", "attention work")
_LONGEST = 10
_CHUNK = 1 << 20
"""Inputs of the rows that are read at a time; every row has one or more, so this bounds their number too."""
_LOG_EVERY = 1 << 16
_ALL: int = np.iinfo(np.int64).max


@dataclass
class EpochPreview:
    """An epoch. A batch that continues into the next epoch counts where it begins; rows left over count where they are.

    ``inputs`` are all tokens of both texts but the last, ``targets`` the supervised tokens; ``*_left`` is in no batch,
    and ``rows_skipped`` is what options exclude.
    """

    batches: int = 0
    rows: int = 0
    inputs: int = 0
    targets: int = 0
    rows_left: int = 0
    inputs_left: int = 0
    rows_skipped: int = 0

    def __add__(self, other: EpochPreview) -> EpochPreview:
        return EpochPreview(**{name: value + getattr(other, name) for name, value in vars(self).items()})


class Spread:
    """How often each of the numbers from 0 to ``largest`` was seen."""

    def __init__(self, largest: int) -> None:
        self._counts = np.zeros(largest + 1, np.int64)

    def add(self, values: NDArray[np.int64]) -> None:
        np.add.at(self._counts, values, 1)

    def at(self, share: float) -> int:
        """Return a quantile of what was seen: 0 the least, 0.5 the (lower) median, 1 the most."""
        sums = np.cumsum(self._counts)
        return int(np.searchsorted(sums, max(1, share * sums[-1])))


class RankImbalance:
    """What the busiest rank has in relation to the mean over the ranks, for each of :data:`COSTS`.

    Ranks wait for each other at every batch. So if a cost is a step's duration, ``overall`` is how much longer training
    takes than with even ranks; ``worst`` is the same of the worst batch.
    """

    def __init__(self) -> None:
        self._busiest, self._mean, self._worst = np.zeros((3, len(COSTS)))

    def add(self, costs: NDArray[np.int64]) -> None:
        """Add a global batch: costs by rank, int64 [costs, ranks]."""
        busiest, mean = costs.max(axis=1), costs.mean(axis=1)
        self._busiest += busiest
        self._mean += mean
        np.maximum(self._worst, busiest / mean, out=self._worst)

    @property
    def overall(self) -> dict[str, float]:
        return dict(zip(COSTS, (self._busiest / self._mean).tolist(), strict=True))

    @property
    def worst(self) -> dict[str, float]:
        return dict(zip(COSTS, self._worst.tolist(), strict=True))


@dataclass(frozen=True)
class LongRow:
    """A row among the longest, where it comes first."""

    epoch: int
    row: int
    inst_len: int
    resp_len: int

    @property
    def inputs(self) -> int:
        """Return the slots that it takes."""
        return self.inst_len + self.resp_len - 1


@dataclass
class TrainingPreview:
    """What is known of a training run before it begins.

    Attributes:
        world: ranks and their slots.
        epochs: in order.
        rows: of the folder, all epochs.
        long: rows that need more slots than a rank has; packed whole, than a global batch has.
        one_token: rows whose response is one token.
        lengths: all rows by inputs, as :func:`pairmill.report.powers.by_size` counts.
        longest: the longest rows, each once even if several epochs have it.
        used: inputs of each global batch, in order.
        rank_rows: rows of a rank's batch.
        rank_inputs: inputs of a rank's batch.
        imbalance: by balance, the chosen one first.
        failed: the errors of balances that cannot pack some batch.
    """

    world: World
    epochs: list[EpochPreview]
    rows: int
    long: int
    one_token: int
    lengths: NDArray[np.int64]
    longest: list[LongRow]
    used: list[int]
    rank_rows: Spread
    rank_inputs: Spread
    imbalance: dict[Balance, RankImbalance]
    failed: dict[Balance, str]

    @property
    def total(self) -> EpochPreview:
        return sum(self.epochs, EpochPreview())

    def slots(self, epoch: EpochPreview) -> int:
        """Return the slots of an epoch's batches, all ranks."""
        return epoch.batches * self.world.batch_tokens


def preview(plan: RowPlan, world: World) -> TrainingPreview:
    """Walk a plan of one folder, batch by batch, from its beginning to its end.

    Raises:
        InputError: the folder does not suit the world; the message is the loader's.
    """
    plan.check(world)
    (folder,) = plan.folders
    room = plan.packed_into(world).slots
    surveys = folder.survey(room)
    lengths, longest = _scan(folder)
    balances = [plan.balance, *(name for name in get_args(Balance) if name != plan.balance)]
    result = TrainingPreview(
        world=world,
        epochs=[EpochPreview() for _ in folder.epochs],
        rows=sum(survey.rows for survey in surveys),
        long=sum(survey.long[0] for survey in surveys),
        one_token=sum(survey.one_token[0] for survey in surveys),
        lengths=lengths,
        longest=longest,
        used=[],
        rank_rows=Spread(room),
        rank_inputs=Spread(room),
        imbalance={name: RankImbalance() for name in balances},
        failed={},
    )
    walk = _Walk(plan, result)
    with log.progress("inspect", len(folder.epochs), "epochs") as progress:
        walk.to_the_end(progress)
    for number, (epoch, survey, item) in enumerate(zip(folder.epochs, surveys, result.epochs, strict=True)):
        # Not from what the walk reports at an epoch's end: a batch that continues into the next epoch repeats rows.
        left = epoch.index.window(
            walk.next_rows[number], _ALL, longer_than=room, skip_long=plan.skip_long, skip_one_token=plan.skip_one_token
        )
        item.rows_left, item.inputs_left = len(left), int(_inputs(left).sum())
        item.rows_skipped = survey.rows - len(left) - walk.delivered[number]
    return result


class _Walk:
    def __init__(self, plan: RowPlan, preview: TrainingPreview) -> None:
        self._plan, self._found = plan, preview
        self._others = {name: _with_balance(plan, name) for name in preview.imbalance if name != plan.balance}
        self.next_rows = [0] * len(preview.epochs)
        self.delivered = [0] * len(preview.epochs)

    def to_the_end(self, progress: log.Progress) -> None:
        position, logged, rows = self._plan.begin(), 0, 0
        while (drawn := self._plan.draw(position, self._found.world)) is not None:
            if isinstance(drawn, Draw):
                self._take(drawn)
                self._compare(position)
                rows += drawn.rows
            position = drawn.after
            ended = position.cursors[0][0]
            if ended > logged or rows >= _LOG_EVERY:
                progress.advance(ended - logged, rows, 0)
                logged, rows = ended, 0

    def _take(self, drawn: Draw) -> None:
        result, window = self._found, drawn.detail.window[: drawn.rows]
        epoch = result.epochs[drawn.epoch]
        epoch.batches += 1
        epoch.rows += drawn.rows
        epoch.inputs += drawn.tokens
        epoch.targets += int(window[:, 4].sum())
        result.used.append(drawn.tokens)
        firsts = [first for first in drawn.detail.firsts.tolist() if first < drawn.rows]
        for number, (first, end) in enumerate(zip(firsts, [*firsts[1:], drawn.rows], strict=True), drawn.epoch):
            if end > first:
                self.delivered[number] += end - first
                self.next_rows[number] = int(window[end - 1, 0]) + 1
        costs = _costs_by_rank(drawn)
        result.imbalance[self._plan.balance].add(costs)
        result.rank_inputs.add(costs[0])
        result.rank_rows.add(np.diff(drawn.detail.ends.astype(np.int64)))

    def _compare(self, position: Position) -> None:
        """Draw the same batch with the other balances."""
        for name, other in list(self._others.items()):
            try:
                otherwise = other.draw(position, self._found.world)
            except InputError as error:
                self._found.failed[name] = str(error)
                del self._others[name], self._found.imbalance[name]
                continue
            # If a rank lacks a causal query the batch shrinks, by a different amount for each balance.
            if isinstance(otherwise, Draw):
                self._found.imbalance[name].add(_costs_by_rank(otherwise))


def _with_balance(plan: RowPlan, balance: Balance) -> RowPlan:
    """Return the same plan with another balance of its ranks."""
    other = copy.copy(plan)
    other.balance = balance
    return other


def _inputs(window: NDArray[np.int64]) -> NDArray[np.int64]:
    return window[:, 2] + window[:, 4] - 1


def _costs_by_rank(drawn: Draw) -> NDArray[np.int64]:
    """Return the costs of a global batch; int64 [costs, ranks]. Attention is doubled, which makes it an integer."""
    mine = drawn.detail.window[drawn.detail.places]
    prefix, queries, inputs = mine[:, 2], mine[:, 4] - 1, _inputs(mine)
    costs = np.stack([inputs, inputs * inputs, 2 * prefix * inputs + queries * queries])
    # A rank without a row has no costs; reduceat would count a row of the next rank.
    sums = np.concatenate([np.zeros((len(COSTS), 1), np.int64), np.cumsum(costs, axis=1)], axis=1)
    return np.diff(sums[:, drawn.detail.ends.astype(np.int64)], axis=1)


def _scan(folder: SampledFolder) -> tuple[NDArray[np.int64], list[LongRow]]:
    """Count all rows by inputs, and find the longest; both include rows that are skipped."""
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
    """Return the longest of known rows and a window, by the place of their texts; of equal ones the earlier."""
    floor = min((row.inputs for row in known.values()), default=0) if len(known) == _LONGEST else 0
    places = np.flatnonzero(inputs > floor)
    result: dict[tuple[int, ...], LongRow] = {}
    for place in places[np.argsort(-inputs[places], kind="stable")].tolist():
        row, *texts = window[place].tolist()
        if tuple(texts) not in known:
            result.setdefault(tuple(texts), LongRow(epoch, row, texts[1], texts[3]))
        if len(result) == _LONGEST:
            break
    merged = sorted([*known.items(), *result.items()], key=lambda item: -item[1].inputs)
    return dict(merged[:_LONGEST])
