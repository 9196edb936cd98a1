"""From what was counted to the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pairmill.errors import InputError, UsageError
from pairmill.mixture import capacity, shares
from pairmill.mixture.config import MixtureOptions
from pairmill.mixture.making import CountedSource, make
from pairmill.mixture.methods import WantedPhase, refuse_unknown
from pairmill.mixture.plan import Inputs, Mixture, PlannedSource, PlannedTask
from pairmill.mixture.settings import MixSettings
from pairmill.mixture.sources import Grouping

LEFT: Final = "(left out)"
"""The source of tasks that the settings leave out."""


@dataclass(frozen=True)
class Counted:
    """The sources with their counts.

    Attributes:
        sources: in the order of the settings; of buckets those that have rows, by code.
        left: the tasks that no source has, if the settings leave them out; None if there are none.
        buckets: names by code, of all that the settings make.
        dropped: rows that may not be sampled, by reason.
        denied: names of sources of which a policy leaves out all.
    """

    sources: tuple[CountedSource, ...]
    left: CountedSource | None
    buckets: tuple[str, ...]
    dropped: Mapping[str, int]
    denied: tuple[str, ...] = ()


def sources_of(grouping: Grouping, cells: Iterable[PlannedTask], dropped: Mapping[str, int]) -> Counted:
    """Put the counts of tasks together by source."""
    whole: dict[str, PlannedTask] = {}
    by_bucket: dict[int, list[PlannedTask]] = {}
    for cell in cells:
        if cell.bucket is None:
            whole[cell.task] = cell
        else:
            by_bucket.setdefault(cell.bucket, []).append(cell)
    made = [CountedSource(name, tuple(whole[task] for task in tasks)) for name, tasks in grouping.sources.items()]
    for code in sorted(by_bucket):
        tasks = sorted(by_bucket[code], key=lambda cell: cell.task)
        made.append(CountedSource(grouping.buckets[code], tuple(tasks)))
    left = CountedSource(LEFT, tuple(whole[task] for task in grouping.left)) if grouping.left else None
    return Counted(tuple(made), left, tuple(grouping.buckets), dropped, grouping.denied)


def mixture_of(settings: MixSettings, options: MixtureOptions, counted: Counted, inputs: Inputs, where: str) -> Mixture:
    """Make the plan, and check that the sampler can execute it.

    Args:
        settings: with a method.
        counted: the sources.
        inputs: what it is made of.
        where: the tokenized folder, for messages.

    Raises:
        UsageError: the settings do not fit the data.
        InputError: no row may be sampled.
    """
    names = dict.fromkeys((*(item.name for item in counted.sources), *counted.buckets, *counted.denied), True)
    refuse_unknown("mix_config weights", settings.weights, names)
    refuse_unknown("mix_config caps", settings.caps, names)
    for item in settings.phases:
        refuse_unknown(f"mix_config phase {item.name!r} weights", item.weights, names)
    if not any(source.response_tokens for source in counted.sources):
        reasons = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counted.dropped.items()))
        raise InputError(
            "no row may be sampled",
            where=where,
            got=reasons or "no rows",
            expected="at least one",
            hint="raise context_size, lower min_resp_length, or tokenize again",
        )
    # Weights and caps of buckets that no row is in say nothing, and those of sources that a policy leaves out.
    there = {item.name for item in counted.sources}
    wanted = [_with_sources(phase, there, counted.denied) for phase in settings.wanted(options.epochs)]
    try:
        made = make(
            counted.sources,
            wanted,
            budget=settings.budget,
            caps={name: cap for name, cap in settings.caps.items() if name in there},
            within=settings.within,
            allow_unfilled=settings.allow_unfilled,
        )
    except UsageError as error:
        raise _in_settings(error) from error
    mixture = Mixture(
        seed=options.seed,
        epochs=sum(phase.epochs for phase in wanted),
        context=options.context_size,
        min_resp_length=options.min_resp_length,
        budget=made.budget,
        unfilled=made.unfilled,
        phases=made.phases,
        sources=(*made.sources, *_left_out(counted.left, made.sources)),
        inputs=inputs,
        buckets=counted.buckets,
    )
    capacity.check(mixture)
    return mixture


def _left_out(left: CountedSource | None, sources: Sequence[PlannedSource]) -> list[PlannedSource]:
    """Return a source of which nothing is drawn, in each phase: so the plan has all tasks, and the sampler misses
    none."""
    methods = {source.phase: source.method for source in sources} if left is not None else {}
    return [
        PlannedSource(
            LEFT,
            phase,
            method,
            cap=None,
            tokens=0.0,
            share=0.0,
            epochs=0.0,
            tasks=left.tasks if left is not None else (),
        )
        for phase, method in methods.items()
    ]


def _with_sources(phase: WantedPhase, there: set[str], denied: Collection[str]) -> WantedPhase:
    weights = {name: weight for name, weight in phase.recipe.weights.items() if name in there}
    only = phase.recipe.only.difference(denied) or phase.recipe.only
    return replace(phase, recipe=replace(phase.recipe, weights=weights, only=only))


def _in_settings(error: UsageError) -> UsageError:
    return UsageError(
        error.what, where=f"mix_config {error.where}", got=error.got, expected=error.expected, hint=error.hint
    )


@dataclass(frozen=True)
class SourceRow:
    """A source in a phase, or in all of them, as the report and the preview show it.

    Attributes:
        phase: name; empty = all phases together.
        method: of the plan; empty for all phases.
        cap: passes; None = no cap.
        share: of the tokens of the phase.
        tokens: of responses.
        epochs: passes over the source.
        rows: drawn, over all epochs of the phase.
        available: rows that may be sampled.
        once: response tokens of one pass.
        natural: share of the source as it comes, which is that of one pass over everything.
        earlier: share in the plan that it is compared with; None without, or if that has no such source.
        error: standard error of the share, because rows differ in length.
    """

    phase: str
    source: str
    method: str
    cap: float | None
    share: float
    tokens: float
    epochs: float
    rows: int
    available: int
    once: int
    natural: float
    earlier: float | None
    error: float


def table_of(mixture: Mixture, earlier: Mixture | None = None) -> list[SourceRow]:
    """Return the rows of the report: each phase, then all of them together; of one phase only the latter."""
    once = dict.fromkeys(mixture.names, 0)
    available = dict.fromkeys(mixture.names, 0)
    for key, task in mixture.tasks.items():
        once[mixture.source_of[key]] += task.response_tokens
        available[mixture.source_of[key]] += task.rows
    whole = sum(once.values())
    drawn: dict[tuple[str, str], int] = {}
    for phase in mixture.phases:
        for source in mixture.by_phase[phase.name]:
            rows = sum(_rows_in(task, phase.count) for task in source.tasks)
            drawn[phase.name, source.name] = rows
            drawn["", source.name] = drawn.get(("", source.name), 0) + rows
    made: list[SourceRow] = []
    several = len(mixture.phases) > 1
    listed: dict[tuple[str, str], list[PlannedSource]] = {}
    for item in mixture.sources:
        listed.setdefault((item.phase, item.name), []).append(item)
        listed.setdefault(("", item.name), []).append(item)
    spans = {phase.name: phase.epochs for phase in mixture.phases}
    for name in [*(phase.name for phase in mixture.phases if several), ""]:
        first, end = spans.get(name, (0, mixture.epochs)) if name else (0, mixture.epochs)
        errors = shares.share_errors(shares.expected(mixture, first, end))
        before = _shares_of(earlier, name)
        for known, share in shares.predicted(mixture, name).items():
            planned = listed[name, known]
            tokens = sum(item.tokens for item in planned)
            caps = [item.cap for item in planned if item.cap is not None]
            made.append(
                SourceRow(
                    phase=name,
                    source=known,
                    method=planned[0].method if len({item.method for item in planned}) == 1 else "",
                    cap=max(caps) if len(caps) == len(planned) else None,
                    share=share,
                    tokens=tokens,
                    epochs=tokens / once[known] if once[known] else 0.0,
                    rows=drawn[name, known],
                    available=available[known],
                    once=once[known],
                    natural=once[known] / whole if whole else 0.0,
                    earlier=before.get(known),
                    error=errors[known],
                )
            )
    return made


def _rows_in(task: PlannedTask, epochs: int) -> int:
    return task.rows_per_epoch * epochs if isinstance(task.rows_per_epoch, int) else sum(task.rows_per_epoch)


def _shares_of(earlier: Mixture | None, phase: str) -> Mapping[str, float]:
    if earlier is None or (phase and phase not in earlier.by_phase):
        return {}
    return shares.predicted(earlier, phase)


def totals(rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Return the rows of all phases together."""
    return [row for row in rows if not row.phase]
