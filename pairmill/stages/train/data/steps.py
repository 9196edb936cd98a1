"""Where a run ends, and how many steps it has: counted by the loader's own plan, without reading a token."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pairmill.errors import InputError, UsageError
from pairmill.loader import MixturePlan, RowPlan, TrainingPlan
from pairmill.loader.plan import Position, World
from pairmill.loader.segments import segments
from pairmill.loader.steps import rows_of
from pairmill.loader.window_plan import WindowPlan
from pairmill.stages.train.data.inputs import Inputs
from pairmill.training.settings import TrainSettings


def world(settings: TrainSettings, ranks: int) -> World:
    """Return the ranks as the loader sees them: with k parts one after another, each rank reads for k."""
    settings.check_ranks(ranks)
    return World(ranks * settings.batch.accumulate, settings.batch.tokens)


def check(inputs: Inputs, settings: TrainSettings, ranks: int) -> None:
    """Raise UsageError or InputError if these ranks cannot read the data, as when a row is longer than their slots."""
    here = world(settings, ranks)
    if isinstance(inputs.plan, RowPlan):
        into = inputs.plan.packed_into(here)
        if settings.batch.long_rows == "refuse" and inputs.longest > into.slots:
            parts = f" x {settings.batch.accumulate} parts" if settings.batch.accumulate > 1 else ""
            shared = f" for each of {ranks} processes{parts}" if into.ranks > 1 else ""
            raise InputError(
                "the longest row does not fit into a batch",
                where="batch.tokens",
                got=f"{inputs.longest:,} inputs, and {into.slots:,} slots{shared}",
                expected=f"{inputs.longest * into.ranks:,} or more",
                hint="rows sampled with a smaller context_size, or batch.long_rows=skip",
            )
    inputs.plan.check(here)


def epochs_done(plan: TrainingPlan, position: Position) -> int:
    """Count the epochs that have ended: of windows, how often as many were drawn as there are."""
    if isinstance(plan, RowPlan):
        return sum(epoch for epoch, _ in position.cursors)
    return plan.cursor_at(position)[0]


def epochs_of(inputs: Inputs, settings: TrainSettings) -> int:
    """Return after how many epochs the run ends at the latest; 0 = by steps or tokens alone."""
    asked = settings.training
    if isinstance(inputs.plan, RowPlan):
        used = {phase.source for phase in inputs.plan.phases}
        there = sum(len(folder.epochs) for folder in inputs.plan.folders if folder.name in used)
        if asked.epochs > there:
            hint = "sample more epochs, or leave it out"
            raise UsageError(
                "more than there are",
                where="training.epochs",
                got=str(asked.epochs),
                expected=f"1 to {there}",
                hint=hint,
            )
        return asked.epochs or there
    if inputs.kind == "stream" and not (asked.steps or asked.tokens):
        raise UsageError(
            "a stream has no end, and its length is not known before",
            where="training",
            got=f"epochs={asked.epochs}",
            expected="steps or tokens",
            hint="say training.steps",
        )
    return asked.epochs or (0 if asked.steps or asked.tokens else 1)


def is_over(inputs: Inputs, settings: TrainSettings, epochs: int, position: Position) -> bool:
    """Tell whether a run ends at a position; ``epochs`` is that of :func:`epochs_of`."""
    asked = settings.training
    return (
        bool(asked.steps and position.batches >= asked.steps)
        or bool(asked.tokens and position.tokens >= asked.tokens)
        or bool(epochs and epochs_done(inputs.plan, position) >= epochs)
    )


class Planned(NamedTuple):
    """How long a run is.

    Attributes:
        steps: T, of the optimizer.
        tokens: inputs of all of them.
    """

    steps: int
    tokens: int


def total_steps(inputs: Inputs, settings: TrainSettings, ranks: int) -> int:
    """Return T (:func:`planned`)."""
    return planned(inputs, settings, ranks).steps


def planned(inputs: Inputs, settings: TrainSettings, ranks: int, begin: Position | None = None) -> Planned:
    """Count T, the optimizer's steps of the whole run, and its tokens, by the loader's own plan; no token is read.

    It is the same for any number of ranks and parts; packed by processes (profile hrm_text), for these alone. With
    ``begin`` a run is at that position already; its batches and tokens count.

    Raises:
        UsageError: more epochs, steps or tokens than there are; or of data without an end neither steps nor tokens.
        InputError: the data do not suit the ranks, as when a row is longer than the slots of a rank.
    """
    here, asked, epochs = world(settings, ranks), settings.training, epochs_of(inputs, settings)
    check(inputs, settings, ranks)
    if isinstance(inputs.plan, WindowPlan):
        return _of_windows(inputs, settings, inputs.plan, here, epochs)
    position = begin or inputs.plan.begin()
    every = segments(rows_of(inputs.plan), here, position)
    while not is_over(inputs, settings, epochs, position) and (segment := next(every, None)) is not None:
        position = segment.after
        tokens = segment.before.tokens + np.cumsum(segment.inputs)
        most = asked.steps - segment.before.batches if asked.steps else len(tokens)
        if asked.tokens:
            most = min(most, int(np.searchsorted(tokens, asked.tokens)) + 1)
        if most < len(tokens):
            position = replace(segment.position(most), tokens=int(tokens[most - 1]))
    ended = epochs_done(inputs.plan, position)
    for name, wanted, there in (
        ("epochs", asked.epochs, ended),  # phases may leave a folder before its end
        ("steps", asked.steps, position.batches),
        ("tokens", asked.tokens, position.tokens),
    ):
        if wanted > there:
            raise UsageError(
                "more than there are",
                where=f"training.{name}",
                got=f"{wanted:,}",
                expected=f"at most {there:,}, which {ended} epochs have in batches of {here.batch_tokens:,} slots",
                hint="sample more epochs, or leave it out",
            )
    return Planned(position.batches, position.tokens)


def scheduled_steps(inputs: Inputs, settings: TrainSettings, ranks: int, begin: Position | None = None) -> int:
    """Count the steps that the learning rate is scheduled for: T; with HRM-Text's defect, its estimate of it."""
    result, asked = planned(inputs, settings, ranks, begin).steps, settings.training
    if settings.quirk("steps_by_floor") and isinstance(inputs.plan, RowPlan) and not (asked.steps or asked.tokens):
        epochs = epochs_of(inputs, settings)
        return sum(item.metadata.total_steps(epochs, settings.batch.tokens) for item in inputs.plan.folders)
    return result


def _of_windows(inputs: Inputs, settings: TrainSettings, plan: WindowPlan, here: World, epochs: int) -> Planned:
    asked, drawn = settings.training, here.batch_tokens // plan.seq_len
    if asked.steps:
        steps = asked.steps
    elif asked.tokens:
        steps = -(-asked.tokens // here.batch_tokens)
    else:
        assert isinstance(plan, MixturePlan), "a stream has steps or tokens"
        steps = -(-epochs * sum(plan.sizes) // drawn)
    return Planned(steps, steps * here.batch_tokens)
