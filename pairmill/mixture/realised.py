"""Predicted beside realised: a plan, and what the sampler drew of it, by source, epoch and phase. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from pairmill.mixture.plan import Mixture, PlannedTask
from pairmill.mixture.shares import Drawn, compare, draw_variance, length_variance, predicted
from pairmill.rules import Key


class Share(NamedTuple):
    """The part of the response tokens that a source has in an epoch, a phase, or all of the training.

    Attributes:
        phase: name; None = all phases.
        epoch: numbered through all phases; None = all of the phase.
        rows: drawn.
        tokens: of the responses of these rows.
        predicted: part of the tokens, as planned.
        realised: part of the tokens that were drawn.
        error: standard error of ``realised``: rows are drawn without replacement.
        within: whether the difference is at most 0.1 percentage points, or four standard errors.
    """

    phase: str | None
    epoch: int | None
    source: str
    rows: int
    tokens: int
    predicted: float
    realised: float
    error: float
    within: bool

    @property
    def difference(self) -> float:
        return self.realised - self.predicted


class Passes(NamedTuple):
    """How often the rows of a source are drawn, over all phases.

    Attributes:
        rows: that may be sampled.
        drawn: rows.
        cap: passes that are allowed; None = any number.
        most: the most passes over one of its tasks.
        over: tasks, or their buckets, that exceed the cap by more than one row an epoch.
    """

    source: str
    rows: int
    drawn: int
    cap: float | None
    most: float
    over: int


@dataclass(frozen=True)
class Realised:
    """What became of a plan.

    Attributes:
        phases: names, with the first epoch of each and the one after its last.
        shares: of all that the plan decides, then of each phase, and after each phase those of its epochs.
        passes: by source.
    """

    phases: list[tuple[str, int, int]]
    shares: list[Share]
    passes: list[Passes]

    @classmethod
    def from_drawn(cls, plan: Mixture, drawn: Mapping[Key, Sequence[int]], first: int = 0) -> Realised:
        """Compare a plan with what was drawn.

        Args:
            plan: whose rows were drawn.
            drawn: response tokens of each task and bucket in each epoch of the training.
            first: the epoch from which on the plan says what is drawn; those before it count for passes alone.
        """
        wants = plan.wants()
        counted = []
        for key, task in plan.tasks.items():
            # Of tokens that another plan drew, the rows on average.
            before = [round(tokens * task.rows / max(1, task.response_tokens)) for tokens in drawn[key][:first]]
            rows = [*before, *wants[key][first:]]
            counted.append(_Counted.from_task(plan.source_of[key], task, rows, drawn[key]))
        ranges = [_Range(None, None, first, plan.epochs)]
        for phase in plan.phases:
            begin, end = max(first, phase.epochs[0]), phase.epochs[1]
            if begin < end:
                ranges.append(_Range(phase.name, None, begin, end))
            if phase.count > 1:
                ranges += [_Range(phase.name, epoch, epoch, epoch + 1) for epoch in range(begin, end)]
        shares = [share for item in ranges for share in _shares(plan, counted, item)]
        return cls([(phase.name, *phase.epochs) for phase in plan.phases], shares, _passes(plan, counted))

    def dump(self) -> dict[str, Any]:
        """Return it as JSON, for a manifest."""
        return {
            "phases": [{"name": name, "epochs": [first, end]} for name, first, end in self.phases],
            "shares": {name: [getattr(item, name) for item in self.shares] for name in Share._fields},
            "passes": [item._asdict() for item in self.passes],
        }

    @classmethod
    def load(cls, raw: Mapping[str, Any]) -> Realised:
        """Read what :meth:`dump` returned."""
        columns: Mapping[str, list[Any]] = raw["shares"]
        rows = zip(*columns.values(), strict=True)
        return cls(
            [(phase["name"], *phase["epochs"]) for phase in raw["phases"]],
            [Share(**dict(zip(columns, values, strict=True))) for values in rows],
            [Passes(**item) for item in raw["passes"]],
        )

    @cached_property
    def whole(self) -> list[Share]:
        """The shares of all of the training."""
        return [item for item in self.shares if item.phase is None]

    def of_phase(self, name: str) -> list[Share]:
        """Return the shares of a phase as a whole."""
        return [item for item in self.shares if item.phase == name and item.epoch is None]

    def epochs(self) -> Iterator[tuple[int, list[Share]]]:
        """Yield the shares of each epoch; the only epoch of a phase has the phase's."""
        by_epoch: dict[int, list[Share]] = {}
        single = {name: first for name, first, end in self.phases if end - first == 1}
        for item in self.shares:
            epoch = single.get(item.phase) if item.phase is not None and item.epoch is None else item.epoch
            if epoch is not None:
                by_epoch.setdefault(epoch, []).append(item)
        yield from sorted(by_epoch.items())

    @property
    def largest(self) -> Share:
        """The share of all of the training that differs most."""
        return max(self.whole, key=lambda share: abs(share.difference))

    @property
    def outside(self) -> list[Share]:
        """The shares of all ranges that differ by more than chance explains."""
        return [item for item in self.shares if not item.within]

    @property
    def over_cap(self) -> int:
        """Tasks, or their buckets, that exceed a cap by more than one row an epoch."""
        return sum(item.over for item in self.passes)

    def metrics(self) -> dict[str, float]:
        """Return numbers for Kubeflow."""
        return {
            "mixture_sources": len(self.whole),
            "mixture_phases": len(self.phases),
            "mixture_largest_difference_pp": round(100 * abs(self.largest.difference), 6),
            "mixture_largest_error_pp": round(100 * max(item.error for item in self.whole), 6),
            "mixture_out_of_tolerance": len(self.outside),
            "mixture_over_cap": self.over_cap,
        }


class _Range(NamedTuple):
    """Epochs from ``first`` to before ``end``: all, a phase, or one epoch of it."""

    phase: str | None
    epoch: int | None
    first: int
    end: int


class _Counted(NamedTuple):
    """A task or bucket: its rows, the variance of their lengths, and what the epochs before each one drew in sum."""

    source: str
    rows: int
    variance: float
    drawn: list[int]
    tokens: list[int]

    @classmethod
    def from_task(cls, source: str, task: PlannedTask, rows: Sequence[int], tokens: Sequence[int]) -> _Counted:
        variance = length_variance(task.rows, task.response_tokens, task.squares)
        return cls(source, task.rows, variance, [0, *accumulate(rows)], [0, *accumulate(tokens)])


def _shares(plan: Mixture, counted: Sequence[_Counted], within: _Range) -> list[Share]:
    rows, tokens = dict.fromkeys(plan.names, 0), dict.fromkeys(plan.names, 0)
    variances: dict[str, list[float]] = {name: [] for name in plan.names}
    for item in counted:
        drawn = item.drawn[within.end] - item.drawn[within.first]
        if drawn:
            rows[item.source] += drawn
            tokens[item.source] += item.tokens[within.end] - item.tokens[within.first]
            variances[item.source].append(draw_variance(item.rows, item.variance, item.drawn[within.first], drawn))
    drawn_of = {name: Drawn(tokens[name], math.fsum(variances[name])) for name in plan.names}
    return [
        Share(
            phase=within.phase,
            epoch=within.epoch,
            source=name,
            rows=rows[name],
            tokens=tokens[name],
            predicted=item.predicted,
            realised=item.realised,
            error=item.error,
            within=item.within,
        )
        for name, item in compare(predicted(plan, within.phase or "", within.first), drawn_of).items()
    ]


def _passes(plan: Mixture, counted: Sequence[_Counted]) -> list[Passes]:
    rows, drawn, over = (dict.fromkeys(plan.names, 0) for _ in range(3))
    most = dict.fromkeys(plan.names, 0.0)
    caps: dict[str, list[tuple[int, int, float]]] = {name: [] for name in plan.names}
    ends = {phase.name: phase.epochs for phase in plan.phases}
    for source in plan.sources:
        caps[source.name].append((*ends[source.phase], math.inf if source.cap is None else source.cap))
    for item in counted:
        if not item.rows:
            continue
        rows[item.source] += item.rows
        drawn[item.source] += item.drawn[-1]
        most[item.source] = max(most[item.source], item.drawn[-1] / item.rows)
        # A phase counts what the phases before it drew against its cap, and may draw nothing.
        over[item.source] += any(
            item.drawn[end] > item.drawn[first] and item.drawn[end] > cap * item.rows + end
            for first, end, cap in caps[item.source]
        )
    highest = {name: max(cap for *_, cap in listed) for name, listed in caps.items()}
    return [
        Passes(name, rows[name], drawn[name], None if math.isinf(cap) else cap, most[name], over[name])
        for name, cap in highest.items()
    ]
