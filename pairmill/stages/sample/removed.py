"""Rows that a policy takes out of a plan, one by one, after the plan is drawn.

So every other row is drawn as before, in each epoch and in its order: an epoch has the rows that it had without these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import InputRef
from pairmill.engine.policing import REMOVED
from pairmill.formats.removed_rows import RemovedRows
from pairmill.formats.tokens import Ints
from pairmill.report.powers import by_size
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.node.plan_arrays import Values
from pairmill.stages.sample.sampled_rows import DrawnSample, SampledRows

_BUCKET: Final = 256
_AT_ONCE: Final = 1 << 20
"""Rows that are looked through at once."""
KeyOf: TypeAlias = "Callable[[str, int], tuple[str, int | None]] | None"
"""Of a mixture: the key of a row of a task, by its number."""


def ref_of(removed: Mapping[str, RemovedRows]) -> list[InputRef]:
    """Return the removed rows as an input of a plan; none if there are none."""
    if not removed:
        return []
    return [InputRef.from_content(REMOVED, [[name, *item.ordinals] for name, item in sorted(removed.items())])]


def take_out(drawn: DrawnSample, removed: Mapping[str, RemovedRows], key_of: KeyOf, first: int = 0) -> DrawnSample:
    """Return what was drawn without the rows that are taken out.

    Args:
        drawn: the plan, and what was counted of it.
        removed: by task.
        key_of: asked of tasks that a mixture draws by buckets.
        first: the first epoch that changes: those before it were trained on, and keep what they have.
    """
    parts = [
        _PlannedRows.find(drawn, number, removed[item.name])
        for number, item in enumerate(drawn.datasets)
        if item.name in removed
    ]
    gone = np.concatenate([np.empty(0, np.int64), *(item.places for item in parts)])
    if not len(gone):
        return drawn
    plan = drawn.plan
    size = len(plan.rows["resp_start"])
    places = _Places(gone, size)
    times = np.stack([places.count(order) for order in plan.epochs])
    stays: NDArray[np.bool_] = np.asarray(times[:first].sum(0) > 0)
    left = gone[~stays]
    times[:first] = 0
    after = _Places(left, size)
    epochs = [
        order.replaced(_shortened(order, places if number >= first else None, after), len(order) - int(lost))
        for number, (order, lost) in enumerate(zip(plan.epochs, times.sum(1), strict=True))
    ]
    datasets = [*drawn.datasets]
    lengths, cuts = np.array(drawn.lengths, np.int64), np.array(drawn.cuts, np.int64)
    begin = 0
    for item in parts:
        mine = slice(begin, begin + len(item.places))
        begin = mine.stop
        datasets[item.number] = item.counted_off(datasets[item.number], times[:, mine], stays[mine], key_of)
        lengths -= by_size(item.inst + item.resp, times[:, mine].sum(0))
        lost = item.lost[~stays[mine]]
        cuts -= by_size(lost[lost > 0])
    planned = [
        before._replace(rows=item.stats.unique_rows) for before, item in zip(plan.datasets, datasets, strict=True)
    ]
    rows = {
        name: values.replaced(_without(values, left), len(values) - len(left)) for name, values in plan.rows.items()
    }
    return DrawnSample(SamplePlan(planned, rows, epochs), datasets, lengths.tolist(), cuts.tolist())


class _PlannedRows(NamedTuple):
    """Rows of a plan that are, or are pieces of, rows of a task that are taken out.

    Args:
        number: of the data set in the plan.
        places: their positions among the rows of the plan, ascending, int64.
        numbers: of their rows in the task's arrays.
        inst, resp, lost: tokens of instructions and of responses, and what these lost to the context; int64.
    """

    number: int
    places: Ints
    numbers: Ints
    inst: Ints
    resp: Ints
    lost: Ints

    @classmethod
    def find(cls, drawn: DrawnSample, number: int, removed: RemovedRows) -> _PlannedRows:
        first = sum(item.rows for item in drawn.plan.datasets[:number])
        count = drawn.plan.datasets[number].rows
        columns = {name: values.array()[first : first + count] for name, values in drawn.plan.rows.items()}
        spans = removed.spans()
        order = np.argsort(spans["resp_start"], kind="stable")
        spans = {name: values[order] for name, values in spans.items()}
        parts = [np.empty((2, 0), np.int64)]
        for begin in range(0, count, _AT_ONCE):
            starts, instructions = (columns[f"{name}_start"][begin : begin + _AT_ONCE] for name in ("resp", "inst"))
            at = np.searchsorted(spans["resp_start"], starts, "right") - 1
            # A piece of a split row has its instruction, and a part of its response.
            inside = (at >= 0) & (starts < (spans["resp_start"] + np.maximum(spans["resp_len"], 1))[at])
            places = np.flatnonzero(inside & (instructions == spans["inst_start"][at]))
            parts.append(np.stack([places + begin, at[places]]))
        places, at = np.concatenate(parts, 1)
        inst, resp = (columns[name][places].astype(np.int64) for name in ("inst_len", "resp_len"))
        split = drawn.datasets[number].rule.long_context == "split"
        lost = np.zeros_like(resp) if split else spans["resp_len"][at] - resp
        return cls(number, places + first, spans["number"][at], inst, resp, lost)

    def counted_off(self, item: SampledRows, times: Ints, stays: NDArray[np.bool_], key_of: KeyOf) -> SampledRows:
        """Return the counts of the data set without these rows.

        Args:
            item: the counts.
            times: how often each epoch has each row, int64 [epochs, rows].
            stays: rows that epochs still have.
        """
        often, ledger, stats, away = times.sum(0), item.ledger, item.stats, ~stays
        count = int(often.sum())
        stats = replace(
            stats,
            cov_rows=stats.cov_rows - count,
            cov_itoks=stats.cov_itoks - int(self.inst @ often),
            cov_rtoks=stats.cov_rtoks - int(self.resp @ often),
            unique_rows=stats.unique_rows - int(away.sum()),
            unique_toks=stats.unique_toks - int((self.inst + self.resp)[away].sum()),
        )
        rows, lost = len(np.unique(self.numbers[away])), self.lost[away & (self.lost > 0)]
        ledger = replace(ledger, rows_kept=ledger.rows_kept - rows, rows_out=ledger.rows_out - count)
        if rows:
            ledger.drop(REMOVED, rows)
        if len(lost):
            ledger.notes["truncated"] -= len(lost)
            ledger.measures["truncated_tokens"] -= int(lost.sum())
        drawn = {key: [*counts] for key, counts in item.drawn.items()}
        for number, resp, each in zip(self.numbers.tolist(), self.resp.tolist(), times.T.tolist(), strict=True):
            if drawn:
                assert key_of is not None
                key = next(iter(drawn)) if len(drawn) == 1 else key_of(item.name, number)
                drawn[key] = [count - resp * time for count, time in zip(drawn[key], each, strict=True)]
        return item._replace(stats=stats, ledger=ledger, drawn=drawn)


class _Places:
    """Some rows of a plan, to be looked up among many.

    Args:
        values: their places, ascending, int64.
        rows: of the plan.
    """

    def __init__(self, values: Ints, rows: int) -> None:
        self._values = values.astype(np.uint32)
        # How many come before each bucket of rows: most buckets have none, and need no search.
        self._before = np.searchsorted(values, np.arange(0, rows + 2 * _BUCKET, _BUCKET)).astype(np.uint32)

    def look_up(self, places: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        """Return how many of the rows come before each place, uint32, and which of the places are of these rows."""
        bucket = places // _BUCKET
        before = self._before[bucket]
        some = np.flatnonzero(self._before[bucket + 1] != before)
        at = np.searchsorted(self._values, places[some])
        before[some] = at
        hit = (
            self._values[np.minimum(at, len(self._values) - 1)] == places[some] if len(some) else np.empty(0, np.bool_)
        )
        return before, some[hit]

    def count(self, order: Values) -> Ints:
        """Return how often an epoch has each of the rows, int64."""
        counts = np.zeros(len(self._values), np.int64)
        for piece in order.pieces():
            before, hits = self.look_up(piece)
            counts += np.bincount(before[hits], minlength=len(counts))
        return counts


def _shortened(order: Values, gone: _Places | None, left: _Places) -> Iterable[NDArray[Any]]:
    """Yield an epoch without the rows ``gone``, numbered as they are once the rows ``left`` are out of the plan."""
    for piece in order.pieces():
        kept = piece if gone is None else np.delete(piece, gone.look_up(piece)[1])
        yield (kept - left.look_up(kept)[0]).astype(order.dtype)


def _without(values: Values, left: Ints) -> Iterable[NDArray[Any]]:
    """Yield the values of a column but those at some places."""
    first = 0
    for piece in values.pieces():
        mine = left[np.searchsorted(left, first) : np.searchsorted(left, first + len(piece))]
        yield np.delete(piece, mine - first)
        first += len(piece)
