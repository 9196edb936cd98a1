"""From counts of tasks to a plan: budgets of phases, sources and tasks, and rows of epochs. Pure.

Every number follows from sums of tasks, in a fixed order; 100,000 tasks take about a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pairmill.errors import UsageError
from pairmill.mixture.methods import WantedPhase, Within, check_cap, refuse_unknown
from pairmill.mixture.plan import PlannedPhase, PlannedSource, PlannedTask
from pairmill.mixture.planning import limits_of, share_out, unimax
from pairmill.mixture.rounding import largest_remainder, spread
from pairmill.rules import Key

_EPSILON: Final = 1e-9
_OFF: Final = 0.01
"""Equal rows in all epochs may be this far from what the plan says of a task."""


@dataclass(frozen=True)
class CountedSource:
    """A source: its name, and the counts of its tasks, sorted by name; ``rows_per_epoch`` of them means nothing."""

    name: str
    tasks: tuple[PlannedTask, ...]

    @property
    def response_tokens(self) -> int:
        return sum(task.response_tokens for task in self.tasks)


@dataclass(frozen=True)
class PlannedMixture:
    """A plan's numbers."""

    budget: float
    unfilled: float
    phases: tuple[PlannedPhase, ...]
    sources: tuple[PlannedSource, ...]


@dataclass(frozen=True)
class _Part:
    """What a source gives in a phase, in all and of each task."""

    tokens: float
    tasks: dict[Key, float]


def make(
    sources: Sequence[CountedSource],
    phases: Sequence[WantedPhase],
    *,
    budget: float | None = None,
    caps: Mapping[str, float] | None = None,
    within: Within = "proportional",
    allow_unfilled: bool = False,
) -> PlannedMixture:
    """Share a budget out over phases, sources, tasks and epochs.

    Args:
        sources: with distinct names.
        phases: in order; their shares add up to 1.
        budget: response tokens; None = one pass over all sources, or less where caps are lower.
        caps: passes over single sources in all phases together, in place of the recipe's cap.
        within: how a source's tokens are shared out over its tasks.
        allow_unfilled: whether the sources may give less than the budget.

    Raises:
        UsageError: the sources cannot give the budget, a cap or a weight names an unknown source or is out of range.
    """
    counts = {source.name: source.response_tokens for source in sources}
    caps = caps or {}
    refuse_unknown("caps", caps, counts)
    for name, cap in caps.items():
        check_cap(f"caps.{name}", cap)
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise UsageError("out of range", where="budget", got=f"{budget:g}", expected="above 0 response tokens")
    if not any(counts.values()):
        raise UsageError("no source has a row that may be sampled", where="sources", got=", ".join(counts) or "none")
    whole = _whole_budget(counts, phases, caps) if budget is None else float(budget)
    parts, unfilled = _allot(sources, counts, phases, whole, caps, within)
    if unfilled and not allow_unfilled:
        raise _too_large(whole, unfilled, phases, asked=budget is not None)
    planned = _planned(phases)
    return PlannedMixture(whole, unfilled, planned, _rows(sources, counts, phases, planned, parts, caps))


def _whole_budget(counts: Mapping[str, int], phases: Sequence[WantedPhase], caps: Mapping[str, float]) -> float:
    """Return one pass over everything; of what no phase gives a weight, nothing can be drawn."""
    most: dict[str, float] = {}
    for phase in phases:
        limits = limits_of(counts, phase.recipe.max_epochs, caps)
        for name, weight in phase.recipe.weights_of(counts).items():
            if weight:
                most[name] = max(most.get(name, 0.0), min(limits.get(name, math.inf), counts[name]))
    return math.fsum(most.values())


def _allot(
    sources: Sequence[CountedSource],
    counts: Mapping[str, int],
    phases: Sequence[WantedPhase],
    budget: float,
    caps: Mapping[str, float],
    within: Within,
) -> tuple[list[dict[str, _Part]], float]:
    """Return the parts of each phase, and what is missing of the budget."""
    used = dict.fromkeys(counts, 0.0)
    used_tasks: dict[Key, float] = {}
    result, missing = [], []
    for phase in phases:
        limits = {
            name: max(0.0, limit - used[name])
            for name, limit in limits_of(counts, phase.recipe.max_epochs, caps).items()
        }
        given = share_out(phase.recipe.weights_of(counts), phase.share * budget, limits)
        missing.append(given.unfilled)
        parts = {}
        for source in sources:
            tokens = given.tokens[source.name]
            cap = caps.get(source.name, phase.recipe.max_epochs)
            parts[source.name] = _Part(tokens, _tasks_of(source, tokens, cap, within, used_tasks))
            used[source.name] += tokens
        if within == "unimax":
            for part in parts.values():
                for key, tokens in part.tasks.items():
                    used_tasks[key] = used_tasks.get(key, 0.0) + tokens
        result.append(parts)
    unfilled = math.fsum(missing)
    return result, unfilled if unfilled > _EPSILON * budget else 0.0


def _tasks_of(
    source: CountedSource, tokens: float, cap: float | None, within: Within, used: Mapping[Key, float]
) -> dict[Key, float]:
    whole = source.response_tokens
    if within == "proportional" or not tokens:
        return {task.key: tokens * (task.response_tokens / whole) if whole else 0.0 for task in source.tasks}
    counts = {task.task: task.response_tokens for task in source.tasks}
    limits = limits_of(counts, cap)
    for task in source.tasks:
        if task.task in limits:
            limits[task.task] = max(0.0, limits[task.task] - used.get(task.key, 0.0))
    given = unimax(counts, tokens, limits).tokens
    return {task.key: given[task.task] for task in source.tasks}


def _planned(phases: Sequence[WantedPhase]) -> tuple[PlannedPhase, ...]:
    made, first = [], 0
    for phase in phases:
        made.append(PlannedPhase(phase.name, (first, first + phase.epochs), phase.share, phase.recipe.exponent))
        first += phase.epochs
    return tuple(made)


def _rows(
    sources: Sequence[CountedSource],
    counts: Mapping[str, int],
    phases: Sequence[WantedPhase],
    planned: Sequence[PlannedPhase],
    parts: Sequence[Mapping[str, _Part]],
    caps: Mapping[str, float],
) -> tuple[PlannedSource, ...]:
    made: list[PlannedSource] = []
    rounding: dict[str, _Rounding] = {}
    for source in sources:
        lowest = min((phase.recipe.max_epochs for phase in phases if phase.recipe.max_epochs is not None), default=None)
        cap = caps.get(source.name, lowest)
        rounding[source.name] = _Rounding(source, cap, [part[source.name].tasks for part in parts])
    for phase, wanted, of_phase in zip(planned, phases, parts, strict=True):
        total = math.fsum(part.tokens for part in of_phase.values())
        for source in sources:
            part = of_phase[source.name]
            rows = rounding[source.name].next_phase(part.tasks, phase.count)
            count = counts[source.name]
            made.append(
                PlannedSource(
                    name=source.name,
                    phase=phase.name,
                    method=wanted.recipe.method,
                    cap=caps.get(source.name, wanted.recipe.max_epochs),
                    tokens=part.tokens,
                    share=part.tokens / total if total else 0.0,
                    epochs=part.tokens / count if count else 0.0,
                    tasks=tuple(replace(task, rows_per_epoch=rows[task.task]) for task in source.tasks),
                )
            )
    return tuple(made)


class _Rounding:
    """Rows of the tasks of a source, phase after phase.

    What rounding gave too much or too little of a task that is to be drawn a whole number of times, or up to its cap,
    is made up for in the next phase: then all phases together are exact.
    """

    def __init__(self, source: CountedSource, cap: float | None, parts: Sequence[Mapping[Key, float]]) -> None:
        self._tasks = [task for task in source.tasks if task.response_tokens]
        self._none = {task.task: 0 for task in source.tasks}
        self._owed = dict.fromkeys(self._none, 0.0)
        self._exact = set()
        for task in self._tasks:
            epochs = math.fsum(part[task.key] for part in parts) / task.response_tokens
            near = round(epochs)
            if epochs and (_equal(epochs, near) or (cap is not None and _equal(epochs, cap))):
                self._exact.add(task.task)

    def next_phase(self, part: Mapping[Key, float], epochs: int) -> dict[str, int | tuple[int, ...]]:
        """Return the rows of each epoch of the next phase, by task."""
        real = {}
        for task in self._tasks:
            rows = part[task.key] * (task.rows / task.response_tokens)
            real[task.task] = max(0.0, rows + self._owed[task.task])
        equal = largest_remainder({name: rows / epochs for name, rows in real.items()})
        totals = largest_remainder(real)
        for name in self._exact:
            self._owed[name] = real[name] - totals[name]
        result: dict[str, int | tuple[int, ...]] = {**self._none}
        if all(self._is_close(name, epochs * rows, real[name], totals[name]) for name, rows in equal.items()):
            result.update(equal)
            return result
        for name, rows_of in spread(totals, epochs).items():
            result[name] = rows_of[0] if len(set(rows_of)) == 1 else tuple(rows_of)
        return result

    def _is_close(self, name: str, rows: int, real: float, total: int) -> bool:
        return rows == total or (name not in self._exact and abs(rows - real) <= _OFF * real)


def _equal(first: float, other: float) -> bool:
    return abs(first - other) <= _EPSILON * abs(other)


def _too_large(budget: float, unfilled: float, phases: Sequence[WantedPhase], *, asked: bool) -> UsageError:
    most = budget - unfilled
    where = "budget" if len(phases) == 1 else f"budget, over {len(phases)} phases"
    return UsageError(
        "the caps do not allow so large a budget",
        where=where,
        got=f"{budget:,.0f} response tokens{'' if asked else ', one pass over all sources'}",
        expected=f"at most {math.floor(most):,}",
        hint="lower budget, raise max_epochs or caps, or set allow_unfilled: true",
    )
