"""Where the batches of a plan begin, many at once: by the loader's own planner, and without reading a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import UsageError
from pairmill.loader.plan import Draw, Phase, Position, World
from pairmill.loader.row_plan import RowPlan


@dataclass(frozen=True)
class Segment:
    """Batches of one phase that begin in one epoch, one after another.

    Attributes:
        source: number of it in the plan's names.
        epoch: in which they begin.
        starts: the row that each begins with, ascending, int64 [batches].
        before: the position before the first of them.
    """

    source: int
    epoch: int
    starts: NDArray[np.int64]
    before: Position

    def position(self, number: int) -> Position:
        """Return the position before a batch, as :meth:`RowPlan.draw` takes it; its tokens are those of the first."""
        return _at(self.before, self.source, self.epoch, int(self.starts[number]), self.before.batches + number)


def segments(plan: RowPlan, world: World, position: Position | None = None) -> Iterator[Segment]:
    """Yield where all batches of a plan begin, from a position on; one epoch's may come in several segments.

    Raises:
        InputError: a batch cannot be made.
    """
    position = plan.begin() if position is None else position
    while True:
        number = plan.phase_at(position)
        source = plan.names.index(plan.phases[number].source)
        epoch, start = position.cursors[source]
        ends = plan.batches_ahead(source, epoch, start, plan.packed_into(world))
        if number + 1 < len(plan.phases):
            ends = ends[: _batches_of_phase(plan.phases[number + 1], position, ends)]
        if len(ends):
            yield Segment(source, epoch, np.concatenate([[start], ends[:-1, 2]]), position)
            after = _at(position, source, epoch, int(ends[-1, 2]), position.batches + len(ends))
            position = replace(after, tokens=position.tokens + int(ends[:, 1].sum()))
            continue
        drawn = plan.draw(position, world)
        if drawn is None:
            return
        if isinstance(drawn, Draw):
            yield Segment(source, epoch, np.array([start]), position)
        position = drawn.after


def find_draw(plan: RowPlan, world: World, number: int, position: Position | None = None) -> Draw:
    """Find a batch by its number from 0, over the whole plan; with a position, that of a plan that begins there.

    Raises:
        UsageError: there are fewer.
        InputError: it, or a batch before it, cannot be made.
    """
    batches = 0
    for segment in segments(plan, world, position):
        batches = segment.before.batches + len(segment.starts)
        if number < batches:
            drawn = plan.draw(segment.position(number - segment.before.batches), world)
            assert isinstance(drawn, Draw)
            return drawn
    raise UsageError("no such batch", where="batch", got=str(number), expected=f"0 to {batches - 1:,}")


def _batches_of_phase(following: Phase, position: Position, ends: NDArray[np.int64]) -> int:
    """Count the batches that begin before the next phase does; an epoch in which it begins has not begun."""
    if following.step:
        return max(0, following.step - position.batches)
    if following.tokens:
        before = position.tokens + np.cumsum(ends[:, 1]) - ends[:, 1]
        return int(np.searchsorted(before, following.tokens))
    return len(ends)


def _at(position: Position, source: int, epoch: int, row: int, batches: int) -> Position:
    cursors = (*position.cursors[:source], (epoch, row), *position.cursors[source + 1 :])
    return replace(position, cursors=cursors, batches=batches)
