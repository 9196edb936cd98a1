"""Plan → position → batch: the idea of the loader is that a batch follows from a plan, a position and a world.

A *plan* says what there is to train on and in which order; it never changes. A *position* says how far training has
come. A *world* is the ranks that read and the room that each has. ``plan.draw(position, world)`` gives the global batch
at a position and the position after it; ``plan.fill(draw, …)`` gives one rank's share of it. Neither remembers
anything. So batches can be made ahead, by any number of threads, again after a crash, and for another number of ranks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError
from pairmill.loader import arguments
from pairmill.loader.arguments import MAX, instances, integer, number, string
from pairmill.loader.batch import Batch

STATE = 1
"""Version of the saved state."""


@dataclass(frozen=True)
class World:
    """The ranks of a run.

    Args:
        ranks: how many.
        batch_tokens: tokens of a global batch, padding included; each rank has the same part of it.

    Raises:
        UsageError: the ranks cannot share the tokens equally.
    """

    ranks: int
    batch_tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", integer(self.ranks, "ranks", 1))
        object.__setattr__(self, "batch_tokens", integer(self.batch_tokens, "batch_tokens"))
        if self.batch_tokens % self.ranks or self.batch_tokens < 2 * self.ranks:
            raise UsageError(
                "cannot be divided equally",
                where="batch_tokens",
                got=f"{self.batch_tokens:,} tokens for {self.ranks} ranks",
                expected=f"a multiple of {self.ranks}, at least two tokens for each rank",
            )

    @property
    def slots(self) -> int:
        """Tokens of one rank."""
        return self.batch_tokens // self.ranks


@dataclass(frozen=True)
class Position:
    """How far training has come; it does not depend on the number of ranks or the batch size.

    Attributes:
        cursors: for each source of the plan its epoch and its first row that was not handed out; for a stream, also how
            many tokens of that document were.
        batches: global batches handed out.
        tokens: inputs of all ranks handed out, padding not counted.
        carried: number of a source that ended, and its epoch and row before the rows that no batch got, which would
            begin the first batch of a further epoch.
    """

    cursors: tuple[tuple[int, ...], ...]
    batches: int = 0
    tokens: int = 0
    carried: tuple[int, tuple[int, int]] | None = None


@dataclass(frozen=True)
class Progress:
    """A position for people, of the source that is being read.

    Attributes:
        source: its name.
        epoch: from 0.
        row: the first row of the epoch that was not handed out.
        rows: of the epoch; 0 after the last.
    """

    source: str
    epoch: int
    row: int
    rows: int

    @property
    def fraction(self) -> float:
        """The part of the epoch that was handed out, from 0 to 1, by rows."""
        return self.row / self.rows if self.rows else 0.0

    @property
    def epochs(self) -> float:
        """Epochs that were handed out, the part of this one included."""
        return self.epoch + self.fraction


@dataclass(frozen=True)
class Phase:
    """A part of training, from one global batch to another.

    Args:
        source: the folder to read; empty for a mixture.
        step: start after this many global batches,
        tokens: or after this many tokens,
        epoch: or with the first batch that begins in this epoch of the folder that is read before.
        lr_scale: factor of the learning rate, for the trainer, from this phase's first batch on.
        weights: for a mixture, by name; a source that is not named keeps the weight that the plan gives it.
        temperature: for a mixture: weights are raised to 1 / temperature; None = the plan's.
        name: for people; of a sampled folder's own phases, what the mixture calls them.
    """

    source: str = ""
    step: int = 0
    tokens: int = 0
    lr_scale: float = 1.0
    weights: Mapping[str, float] | None = None
    temperature: float | None = None
    epoch: int = 0
    name: str = ""


@dataclass(frozen=True)
class Draw:
    """A global batch that is decided and not yet filled.

    Attributes:
        after: the position after it.
        ends_epoch: whether an epoch ends with it.
        detail: what :meth:`TrainingPlan.fill` needs.
    """

    after: Position
    phase: int
    source: str
    epoch: int
    start_row: int
    rows: int
    tokens: int
    ends_epoch: bool
    detail: Any = field(repr=False)

    def batch(
        self, phases: Sequence[Phase], arrays: dict[str, NDArray[Any]], scalars: dict[str, int], rows: NDArray[np.int64]
    ) -> Batch:
        """Return a rank's share of it; see :class:`~pairmill.loader.batch.Batch` for the arrays."""
        return Batch(
            arrays=arrays,
            scalars=scalars,
            rows=rows,
            step=self.after.batches - 1,
            phase=self.phase,
            source=self.source,
            epoch=self.epoch,
            start_row=self.start_row,
            lr_scale=phases[self.phase].lr_scale,
            global_rows=self.rows,
            global_tokens=self.tokens,
        )


@dataclass(frozen=True)
class EpochEnd:
    """An epoch ends before the next batch.

    Attributes:
        left: rows that no rank got.
    """

    after: Position
    source: str
    epoch: int
    left: int


class TrainingPlan(ABC):
    """What there is to train on and in which order.

    Attributes:
        names: of its sources, in the order of :attr:`Position.cursors`.
        phases: in order; the first starts at once.
    """

    names: tuple[str, ...]
    phases: tuple[Phase, ...]

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hexadecimal sha256 of the data, not of paths or times. The first time, it may read all data."""

    @abstractmethod
    def begin(self) -> Position:
        """Return the position before the first batch."""

    @abstractmethod
    def check(self, world: World) -> None:
        """Check that this world can read all of the plan.

        Raises:
            UsageError: the world does not suit the plan.
            InputError: the data do not suit the world.
        """

    @abstractmethod
    def draw(self, position: Position, world: World) -> Draw | EpochEnd | None:
        """Return the next global batch at a position, or the end of an epoch, or None at the end of the plan.

        Raises:
            InputError: the batch cannot be made of the data.
        """

    @abstractmethod
    def size(self, world: World) -> int:
        """Return bytes of a rank's batch."""

    @abstractmethod
    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        """Return a rank's share of a global batch, in memory of :meth:`size` bytes. Threads may call it at the same
        time."""

    def draw_ahead(self, position: Position, world: World, rank: int, count: int) -> Sequence[Draw | EpochEnd | None]:
        """Return what comes next, one after another: ``count`` of them at most, for this rank alone.

        Raises:
            InputError: as :meth:`draw`, of the first.
        """
        return [self.draw(position, world)]

    def fill_ahead(
        self, draws: Sequence[Draw], rank: int, world: World, memories: Sequence[NDArray[np.uint8]]
    ) -> list[Batch]:
        """Return a rank's share of global batches that were drawn together, each in its memory."""
        return [self.fill(draw, rank, world, memory) for draw, memory in zip(draws, memories, strict=True)]

    def check_position(self, position: Position) -> None:
        """Raise UsageError if the plan has no such position (saved states may say anything)."""

    def phase_at(self, position: Position) -> int:
        """Return number of the phase that the batch at a position belongs to."""
        number = 0
        for phase in self.phases[1:]:
            if position.batches < phase.step or position.tokens < phase.tokens:
                break
            if phase.epoch and self.epoch_of(self.phases[number], position) < phase.epoch:
                break
            number += 1
        return number

    def epoch_of(self, phase: Phase, position: Position) -> int:
        """Return the epoch of the source of a phase."""
        return position.cursors[self.names.index(phase.source)][0]

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        """Epoch and first row for people to read: those of the source that is being read."""
        return position.cursors[self.names.index(self.phases[self.phase_at(position)].source)]

    def state(self, position: Position) -> dict[str, Any]:
        """Return a position as a small JSON object (docs/loader.md)."""
        epoch, start_row, *_ = self.cursor_at(position)
        carried = {}
        if position.carried is not None:
            source, cursor = position.carried
            carried = {"carried": {self.names[source]: list(cursor)}}
        return {
            "format": STATE,
            "plan": self.digest,
            "phase": self.phase_at(position),
            "epoch": epoch,
            "start_row": start_row,
            "batches": position.batches,
            "tokens": position.tokens,
            "sources": {name: list(cursor) for name, cursor in zip(self.names, position.cursors, strict=True)},
            **carried,
        }

    def continue_other(self, state: Mapping[str, Any], accept_other_data: bool) -> Mapping[str, Any]:
        """Return a state that was saved with other data as a state of this plan. Sources that it lacks begin.

        Raises:
            InputError: the plan does not go on with those data.
        """
        if not accept_other_data:
            raise InputError(
                "saved with other data",
                where="state: plan",
                got=str(state.get("plan"))[:16],
                expected=self.digest[:16],
                hint="use the data that the run began with, or accept_other_data=True to continue here with these",
            )
        return {**state, "sources": dict(zip(self.names, self.begin().cursors, strict=True)) | state["sources"]}

    def position(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> Position:
        """Return the position in a saved state.

        Args:
            state: what :meth:`state` returned.
            accept_other_data: continue although the data differ from those of the saved state. Rows may then repeat or
                be lost.

        Raises:
            UsageError: not such a state, or it is past the end of the data.
            InputError: it was saved with other data.
        """
        if not isinstance(state, Mapping) or state.get("format") != STATE:
            got = repr(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
            raise UsageError("not a saved position", where="state", got=got, expected=f"format {STATE}")
        if not isinstance(state.get("sources"), Mapping):
            raise self._wrong_sources(repr(state.get("sources")))
        given = ", ".join(map(str, state["sources"]))
        if state.get("plan") != self.digest:
            state = self.continue_other(state, accept_other_data)
        sources, carried = state["sources"], state.get("carried") or {}
        if set(sources) != set(self.names):
            raise self._wrong_sources(given)
        lengths = {name: len(first) for name, first in zip(self.names, self.begin().cursors, strict=True)}
        cursors = tuple(checked_cursor(name, sources[name], lengths[name]) for name in self.names)
        counts = state.get("batches"), state.get("tokens")
        if not all(map(_is_count, counts)):
            raise UsageError("not counts", where="state: batches, tokens", got=repr(counts))
        position = Position(cursors, *counts)  # type: ignore[arg-type]
        self.check_position(position)
        for source, name in enumerate(self.names):
            if isinstance(carried, Mapping) and name in carried:
                epoch, row = checked_cursor(name, carried[name], 2)
                position = replace(position, carried=(source, (epoch, row)))
        return position

    def _wrong_sources(self, got: str) -> UsageError:
        return UsageError("wrong sources", where="state: sources", got=got, expected=", ".join(self.names))


def checked_cursor(name: str, cursor: object, length: int) -> tuple[int, ...]:
    """Return the cursor of a source as a state has it; raise UsageError unless it is this number of counts."""
    if not isinstance(cursor, Sequence) or len(cursor) != length or not all(map(_is_count, cursor)):
        where, expected = f"state: sources: {name}", f"{length} counts"
        raise UsageError("not a position", where=where, got=repr(cursor), expected=expected)
    return tuple(cursor)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX


def checked_phases(phases: Sequence[Phase], names: Sequence[str]) -> tuple[Phase, ...]:
    """Phases in order, each starting after the one before.

    Args:
        phases: as the caller passes them.
        names: of the sources of the plan.

    Raises:
        UsageError: there is none, the first does not start at once, they are out of order, or a name is unknown.
    """
    phases = instances(phases, Phase, "phases", "Phase(…), at least one")
    if not phases:
        raise UsageError("missing", where="phases", expected="at least one")
    for at, phase in enumerate(phases):
        where = f"phases[{at}]"
        phase = phases[at] = replace(
            phase,
            source=string(phase.source, f"{where}: source"),
            step=integer(phase.step, f"{where}: step", 0),
            tokens=integer(phase.tokens, f"{where}: tokens", 0),
            epoch=integer(phase.epoch, f"{where}: epoch", 0),
            name=string(phase.name, f"{where}: name"),
            lr_scale=number(phase.lr_scale, f"{where}: lr_scale"),
            weights=None if phase.weights is None else arguments.weights(phase.weights, f"{where}: weights"),
            temperature=None if phase.temperature is None else number(phase.temperature, f"{where}: temperature"),
        )
        got = _start(phase)
        for name in phase.weights or ([phase.source] if phase.source else []):
            if name not in names:
                raise UsageError("unknown", where=where, got=repr(name), expected=f"one of {', '.join(names)}")
        if not math.isfinite(phase.lr_scale) or phase.lr_scale < 0:
            raise UsageError("out of range", where=f"{where}: lr_scale", got=str(phase.lr_scale), expected="at least 0")
        if sum(map(bool, (phase.step, phase.tokens, phase.epoch))) > 1:
            raise UsageError("ambiguous start", where=where, got=got, expected="one of step, tokens and epoch")
        if not at and (phase.step or phase.tokens or phase.epoch):
            hint = "add a phase before it"
            raise UsageError("first phase must start at once", where=where, got=got, expected="step=0", hint=hint)
        before = phases[at - 1]
        later = phase.step > before.step or phase.tokens > before.tokens or phase.epoch > before.epoch
        if at and not later:
            expected = f"more than {_start(before)}"
            raise UsageError("does not start after the phase before it", where=where, got=got, expected=expected)
    return tuple(phases)


def _start(phase: Phase) -> str:
    return f"step={phase.step}, tokens={phase.tokens}" + (f", epoch={phase.epoch}" if phase.epoch else "")
