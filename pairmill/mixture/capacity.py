"""Whether the sampler can hold what a plan asks for: checked when a plan is made, and again before it is executed."""

from __future__ import annotations

from typing import Final

from pairmill.errors import UsageError
from pairmill.mixture.plan import Mixture

MAX_ROWS: Final = 2**32 - 1
"""Rows are numbered in 32 bits."""


def check(mixture: Mixture, where: str = "epochs") -> None:
    """Compare the rows of each epoch with those that may be sampled.

    Buffers of the reference's sampler hold every row once; its runs fail in the middle of an epoch that has more.

    Raises:
        UsageError: an epoch has more rows than may be sampled, or there are more rows than can be numbered.
    """
    there = sum(task.rows for task in mixture.tasks.values())
    if there > MAX_ROWS:
        raise UsageError("too many rows", where=where, got=f"{there:,}", expected=f"at most {MAX_ROWS:,}")
    for phase in mixture.phases:
        rows = [0] * phase.count
        same = 0
        for source in mixture.by_phase[phase.name]:
            for task in source.tasks:
                if isinstance(task.rows_per_epoch, int):
                    same += task.rows_per_epoch
                else:
                    rows = [have + more for have, more in zip(rows, task.rows_per_epoch, strict=True)]
        most = same + max(rows)
        if most <= there:
            continue
        need = -(-(same * phase.count + sum(rows)) // there)
        most_of = max(mixture.by_phase[phase.name], key=lambda source: source.epochs)
        raise UsageError(
            "an epoch would have more rows than may be sampled: the epochs are too few",
            where=f"{where}, phase {phase.name!r}" if len(mixture.phases) > 1 else where,
            got=f"{phase.count} epochs of {most:,} rows; {most_of.name!r} is drawn {most_of.epochs:.3g} times",
            expected=f"at most {there:,} rows an epoch",
            hint=f"give it {max(need, phase.count + 1)} epochs or more, lower max_epochs, or lower the budget",
        )
