"""How many steps a training has left, counted by the loader's own plan; no token is read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pairmill.loader.arguments import instance, integer
from pairmill.loader.plan import Position, TrainingPlan, World
from pairmill.loader.row_plan import RowPlan
from pairmill.loader.segments import segments


@dataclass(frozen=True)
class StepsLeft:
    """What a training has left, where an optimizer step is made of ``accumulate`` micro-batches of one epoch.

    A step does not take micro-batches of two epochs, as in the trainers that iterate over one epoch after another: what
    an epoch has beyond whole steps is left over.

    Attributes:
        epochs: micro-batches by source and epoch; one that runs into the next epoch counts where it begins.
        accumulate: micro-batches of a step.
    """

    epochs: Mapping[tuple[str, int], int]
    accumulate: int = 1

    @property
    def micro_batches(self) -> int:
        """All global batches that are left."""
        return sum(self.epochs.values())

    @property
    def steps(self) -> int:
        """Optimizer steps that are left."""
        return sum(count // self.accumulate for count in self.epochs.values())

    @property
    def left_over(self) -> int:
        """Micro-batches that are in no step."""
        return sum(count % self.accumulate for count in self.epochs.values())


def count_steps(plan: TrainingPlan, position: Position, world: World, accumulate: int = 1) -> StepsLeft:
    """Count the global batches from a position to the end of a plan.

    Args:
        plan: of sampled folders.
        position: the first batch that counts begins here.
        world: ranks, and tokens of a micro-batch of all of them.
        accumulate: micro-batches of an optimizer step.

    Raises:
        UsageError: the plan has no end, or ``accumulate`` is not a count.
        InputError: the data do not suit the ranks, or a batch cannot be made.
    """
    accumulate = integer(accumulate, "accumulate", 1)
    rows = rows_of(plan)
    rows.check(world)
    counts: Counter[tuple[str, int]] = Counter()
    for segment in segments(rows, world, position):
        counts[plan.names[segment.source], segment.epoch] += len(segment.starts)
    return StepsLeft(counts, accumulate)


def rows_of(plan: TrainingPlan) -> RowPlan:
    """Return a plan of sampled folders; raise UsageError for another, which has no end to count to."""
    return instance(plan, RowPlan, "plan", "a RowPlan: windows and streams have neither epochs nor an end")
