"""Plan → position → batch: the whole loader is that a batch follows from a plan, a position and a world.

A *plan* says what there is to train on, in which order; it never changes. A *position* says how far training has come.
A *world* is the ranks that read and what each has room for. ``plan.draw(position, world)`` gives the global batch at a
position and the position behind it, ``plan.fill(draw, …)`` a rank's share of it. Neither remembers anything, so batches
can be made ahead, by any number of threads, anew after a crash, and for another number of ranks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError
from pairmill.loader.arguments import MOST, an, number, several, text, whole
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
        for name in ("ranks", "batch_tokens"):
            object.__setattr__(self, name, whole(getattr(self, name), name))
        if self.ranks < 1:
            raise UsageError("is no number of ranks", where="ranks", got=str(self.ranks), expected="1 or more")
        if self.batch_tokens % self.ranks or self.batch_tokens < 2 * self.ranks:
            raise UsageError(
                "cannot be shared out equally",
                where="batch_tokens",
                got=f"{self.batch_tokens:,} tokens for {self.ranks} ranks",
                expected=f"a multiple of {self.ranks}, two tokens or more for each rank",
            )

    @property
    def slots(self) -> int:
        """Tokens of one rank."""
        return self.batch_tokens // self.ranks


@dataclass(frozen=True)
class Position:
    """How far training has come; world size and batch size are no part of it.

    Attributes:
        cursors: for each source of the plan its epoch and the first row that was not handed out (what else is needed to
            go on follows).
        batches: global batches handed out.
        tokens: inputs of all ranks handed out, padding not counted.
    """

    cursors: tuple[tuple[int, ...], ...]
    batches: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Phase:
    """A part of training, from one global batch to another.

    Args:
        source: the folder to read; of a mixture nothing.
        step: it begins when so many global batches were handed out,
        tokens: or so many tokens.
        lr_scale: what the trainer multiplies the learning rate with, from this phase's first batch on.
        weights: of a mixture, by name; a source that is not named keeps the weight that the plan gives it.
        temperature: of a mixture: weights are raised to one over it; None = the plan's.
    """

    source: str = ""
    step: int = 0
    tokens: int = 0
    lr_scale: float = 1.0
    weights: Mapping[str, float] | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Draw:
    """A global batch that is decided and not yet filled.

    Attributes:
        after: the position behind it.
        ends_epoch: whether an epoch ends with it.
        detail: what :meth:`Plan.fill` needs.
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


@dataclass(frozen=True)
class End:
    """An epoch ends before the next batch.

    Attributes:
        left: rows that nobody got.
    """

    after: Position
    source: str
    epoch: int
    left: int


class Plan(ABC):
    """What there is to train on, in which order.

    Attributes:
        names: of its sources, in the order of :attr:`Position.cursors`.
        phases: in order; the first begins at once.
    """

    names: tuple[str, ...]
    phases: tuple[Phase, ...]

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hexadecimal sha256 of the data: of contents, never of paths or times. It can take long, the first time."""

    @abstractmethod
    def begin(self) -> Position:
        """The position before the first batch."""

    @abstractmethod
    def check(self, world: World) -> None:
        """See whether this world can read all of it.

        Raises:
            UsageError: the world does not suit the plan.
            InputError: the data do not suit the world.
        """

    @abstractmethod
    def draw(self, position: Position, world: World) -> Draw | End | None:
        """What comes at a position: a global batch, the end of an epoch, or nothing any more."""

    @abstractmethod
    def size(self, world: World) -> int:
        """Bytes of a rank's batch."""

    @abstractmethod
    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        """A rank's share of a global batch, in memory of :meth:`size` bytes. Threads may do it at once."""

    def phase_at(self, position: Position) -> int:
        """Number of the phase that the batch at a position belongs to."""
        number = 0
        for phase in self.phases[1:]:
            if position.batches < phase.step or position.tokens < phase.tokens:
                break
            number += 1
        return number

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        """Epoch and first row that count for people: those of the source that is being read."""
        return position.cursors[self.names.index(self.phases[self.phase_at(position)].source)]

    def state(self, position: Position) -> dict[str, Any]:
        """A position as a small JSON object (docs/loader.md)."""
        epoch, start_row, *_ = self.cursor_at(position)
        return {
            "format": STATE,
            "plan": self.digest,
            "phase": self.phase_at(position),
            "epoch": epoch,
            "start_row": start_row,
            "batches": position.batches,
            "tokens": position.tokens,
            "sources": {name: list(cursor) for name, cursor in zip(self.names, position.cursors, strict=True)},
        }

    def position(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> Position:
        """The position that a state says.

        Args:
            state: what :meth:`state` gave.
            accept_other_data: go on although the data are not those that the state was saved with. Rows may then repeat
                or be lost.

        Raises:
            UsageError: it is no such state.
            InputError: it belongs to other data.
        """
        where = "state"
        if not isinstance(state, Mapping) or state.get("format") != STATE:
            got = repr(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
            raise UsageError("is no saved position", where=where, got=got, expected=f"format {STATE}")
        if state.get("plan") != self.digest and not accept_other_data:
            raise InputError(
                "belongs to other data",
                where=f"{where}: plan",
                got=str(state.get("plan"))[:16],
                expected=self.digest[:16],
                hint="give the data that the run began with, or accept_other_data=True to go on at this place of these",
            )
        sources = state.get("sources")
        begin = self.begin()
        if not isinstance(sources, Mapping) or set(sources) != set(self.names):
            got = ", ".join(map(str, sources)) if isinstance(sources, Mapping) else repr(sources)
            raise UsageError("has other sources", where=f"{where}: sources", got=got, expected=", ".join(self.names))
        cursors = []
        for name, first in zip(self.names, begin.cursors, strict=True):
            cursor = sources[name]
            if not isinstance(cursor, Sequence) or len(cursor) != len(first) or not all(map(_is_count, cursor)):
                raise UsageError(
                    "is no place", where=f"{where}: sources: {name}", got=repr(cursor), expected=f"{len(first)} counts"
                )
            cursors.append(tuple(cursor))
        counts = state.get("batches"), state.get("tokens")
        if not all(map(_is_count, counts)):
            raise UsageError("are no counts", where=f"{where}: batches, tokens", got=repr(counts))
        return Position(tuple(cursors), *counts)  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _checked(phase: Phase, where: str) -> Phase:
    weights = phase.weights
    if weights is not None:
        weights = checked_weights(weights, f"{where}: weights")
    return Phase(
        source=text(phase.source, f"{where}: source"),
        step=whole(phase.step, f"{where}: step"),
        tokens=whole(phase.tokens, f"{where}: tokens"),
        lr_scale=number(phase.lr_scale, f"{where}: lr_scale"),
        weights=weights,
        temperature=None if phase.temperature is None else number(phase.temperature, f"{where}: temperature"),
    )


def checked_weights(weights: object, where: str) -> dict[str, float]:
    """Weights by name.

    Raises:
        UsageError: they are another thing.
    """
    given = an(weights, Mapping, where, "numbers by name")  # type: ignore[type-abstract]
    return {text(name, where): number(value, f"{where}: {name}") for name, value in given.items()}


def checked_phases(phases: Sequence[Phase], names: Sequence[str]) -> tuple[Phase, ...]:
    """Phases in order, each beginning after the one before.

    Args:
        phases: as they are given.
        names: what there is to read.

    Raises:
        UsageError: there is none, the first does not begin at once, they are not in order, or a name is unknown.
    """
    phases = several(phases, Phase, "phases", "Phase(…), one or more")
    if not phases:
        raise UsageError("are missing", where="phases", expected="one or more")
    for at, phase in enumerate(phases):
        where = f"phases[{at}]"
        phase = phases[at] = _checked(phase, where)
        for name in phase.weights or ([phase.source] if phase.source else []):
            if name not in names:
                raise UsageError("is unknown", where=where, got=repr(name), expected=f"one of {', '.join(names)}")
        if not math.isfinite(phase.lr_scale) or phase.lr_scale < 0:
            raise UsageError("is no scale", where=f"{where}: lr_scale", got=str(phase.lr_scale), expected="0 or more")
        if phase.step < 0 or phase.tokens < 0 or (phase.step and phase.tokens):
            raise UsageError(
                "has no clear beginning",
                where=where,
                got=f"step={phase.step}, tokens={phase.tokens}",
                expected="one of them, 0 or more",
            )
        if not at and (phase.step or phase.tokens):
            raise UsageError("does not begin at once", where=where, expected="step=0", hint="say what comes first")
        before = phases[at - 1] if at else Phase(step=-1)
        if at and not (phase.step > before.step or phase.tokens > before.tokens):
            raise UsageError(
                "does not begin after the one before",
                where=where,
                got=f"step={phase.step}, tokens={phase.tokens}",
                expected=f"more than step={before.step}, tokens={before.tokens}",
            )
    return tuple(phases)
