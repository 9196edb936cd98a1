"""The registry of optimizers, without torch. An entry names a rule, which is in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal


@dataclass(frozen=True)
class OptimizerKind:
    """An optimizer.

    Attributes:
        rule: ``module.NAME`` of this package: a :class:`~pairmill.training.optimizers.optimizer.Rule`.
        note: what it is, in words.
        profile: that alone has it; empty = every profile.
        averages: whether its own state has a mean of the weights.
        schedule_free: whether it needs no schedule: with ``schedule.shape: none`` it has a warm-up of its own.
    """

    rule: str
    note: str = ""
    profile: str = ""
    averages: bool = False
    schedule_free: bool = False


OPTIMIZERS: Final[dict[str, OptimizerKind]] = {
    "adam_atan2": OptimizerKind("adam.ADAM_ATAN2", note="no eps, does not see the scale of gradients"),
    "adamw": OptimizerKind("adam.ADAMW"),
    "lion": OptimizerKind("lion.LION", profile="kempner"),
    "muon": OptimizerKind("muon.MUON", profile="kempner"),
    "schedule_free_adamw": OptimizerKind(
        "schedule_free.SCHEDULE_FREE_ADAMW", profile="kempner", averages=True, schedule_free=True
    ),
}
"""The registry."""

if TYPE_CHECKING:
    OptimizerName = str
else:
    OptimizerName = Literal[tuple(OPTIMIZERS)]
