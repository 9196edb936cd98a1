"""What a step came to, and what a run counts of its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pairmill.nets.batch import GlobalBatch


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """A step, over all ranks. Pairs are (numerator, denominator).

    Attributes:
        loss: sum of cross entropies in nats, labelled tokens.
        accuracy: labels that are the arg max, labelled tokens.
        exact_accuracy: rows whose labels are all right, rows with a label.
        grad_norm: of all gradients together, before clipping.
        lr: learning rate of the update, ``lr_scale`` in it.
        flops: of forward and backward.
        b: differentiated calls of hrm; None for other nets.
        finite: whether loss and gradient are; if not, no weight was changed.
        absent: parameters without a gradient.
        sources: sum of cross entropies, labels and tokens by source, of those that have tokens.
    """

    loss: tuple[float, int]
    accuracy: tuple[int, int]
    exact_accuracy: tuple[int, int]
    grad_norm: float
    lr: float
    flops: float
    b: int | None
    finite: bool
    absent: tuple[str, ...] = ()
    sources: Mapping[str, tuple[float, int, int]] = field(default_factory=dict)


class Update(NamedTuple):
    """One step of the optimizer, done.

    Attributes:
        batch: this rank's share.
        result: over all ranks.
        last: whether the run has no further batch.
        seconds: that it took, with waiting for data.
        wait_s: seconds of waiting.
        before: the loader's position before it.
    """

    batch: GlobalBatch
    result: StepResult
    last: bool
    seconds: float
    wait_s: float
    before: Mapping[str, Any]


@dataclass
class Counts:
    """What a run counts, beside what its watcher does. Checkpoints keep it.

    Attributes:
        trained: rows whose update is in the weights.
        not_finite: rows of updates that were left out.
        rolled_back: rows whose update was undone.
        left: rows that no rank got, by source and epoch.
        absent: how often a parameter had no gradient.
        bad: updates left out in a row.
        went_back: whether it has gone back to a checkpoint.
    """

    trained: int = 0
    not_finite: int = 0
    rolled_back: int = 0
    left: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    bad: int = 0
    went_back: bool = False

    def add(self, update: Update, left: dict[str, int]) -> None:
        """Count an update, and the rows that no rank got by now."""
        if update.result.finite:
            self.trained += update.batch.rows
            self.bad = 0
        else:
            self.not_finite += update.batch.rows
            self.bad += 1
        # By epoch: an end of an epoch that is seen again after a checkpoint does not count twice.
        self.left |= left
        for name in update.result.absent:
            self.absent[name] = self.absent.get(name, 0) + 1

    def rows(self) -> dict[str, int]:
        """Count what became of each row."""
        return {
            "trained": self.trained,
            "not_finite": self.not_finite,
            "rolled_back": self.rolled_back,
            "left_at_end_of_epoch": sum(self.left.values()),
        }
