"""Where the batches of a plan begin, many at once: by the loader's own planner, and without reading a token."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError
from pairmill.loader.kept_batches import Chain
from pairmill.loader.plan import Draw, Phase, Position, World
from pairmill.loader.row_plan import RowPlan


@dataclass(frozen=True)
class Segment:
    """Batches of one phase that begin in one epoch, one after another.

    Attributes:
        source: number of it in the plan's names.
        epoch: in which they begin.
        starts: the row that each begins with, ascending, int64 [batches].
        inputs: of each, int64 [batches].
        before: the position before the first of them.
        after: the position after the last of them, and after the end of the epoch that comes next.
        last: whether what comes next begins in another epoch.
    """

    source: int
    epoch: int
    starts: NDArray[np.int64]
    inputs: NDArray[np.int64]
    before: Position
    after: Position
    last: bool = False

    def position(self, number: int) -> Position:
        """Return the position before a batch, as :meth:`RowPlan.draw` takes it; its tokens are those of the first."""
        return _at(self.before, self.source, self.epoch, int(self.starts[number]), self.before.batches + number)


def segments(plan: RowPlan, world: World, position: Position | None = None) -> Iterator[Segment]:
    """Yield where all batches of a plan begin, from a position on; one epoch's may come in several segments.

    Raises:
        InputError: a batch cannot be made.
    """
    position = plan.begin() if position is None else position
    into = plan.packed_into(world)
    waiting: Segment | None = None
    chain: Chain | None = None
    first = 0
    while True:
        number = plan.phase_at(position)
        source = plan.names.index(plan.phases[number].source)
        epoch, start = position.cursors[source]
        if waiting is not None and (source, epoch) != (waiting.source, waiting.epoch):
            yield replace(waiting, last=True)
            waiting = None
        if chain is None or (source, epoch) != (chain.source, chain.epoch):
            # Only from an epoch's first batch on is all of it known in the end.
            first = start if not start or (chain and (source, epoch - 1) == (chain.source, chain.epoch)) else -1
            chain = Chain(plan, source, epoch, into)
        ends = chain.after(start)
        if ends is None:
            ends = plan.batches_ahead(source, epoch, start, into)
        if number + 1 < len(plan.phases):
            ends = ends[: _batches_of_phase(plan.phases[number + 1], position, ends)]
        if len(ends):
            after = _at(position, source, epoch, int(ends[-1, 2]), position.batches + len(ends))
            after = replace(after, tokens=position.tokens + int(ends[:, 1].sum()))
            starts, inputs = np.concatenate([[start], ends[:-1, 2]]), ends[:, 1].copy()
        else:
            try:
                drawn = plan.draw(position, world)
            except InputError:
                if waiting is not None:
                    yield waiting
                raise
            after = position if drawn is None else drawn.after
            ended = drawn is None or after.cursors[source][0] > epoch
            if ended and first >= 0:
                chain.keep(first)
            if not isinstance(drawn, Draw):
                if waiting is not None:
                    waiting = replace(waiting, after=after)
                if drawn is None:
                    if waiting is not None:
                        yield replace(waiting, last=True)
                    return
                position = after
                continue
            starts, inputs = np.array([start]), np.array([drawn.tokens])
            ends = np.array([[drawn.rows, drawn.tokens, after.cursors[source][1]]])[int(ended) :]
        chain.add(ends)
        if waiting is not None:
            yield waiting
        waiting = Segment(source, epoch, starts, inputs, position, after)
        position = after


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
