"""Water levels: what each task of a group gets, in proportion to a weight and never above what it has. Pure, float64.

The numbers of one group are one family with one parameter, the level: a task gets ``min(limit, level x weight)`` rows.
Every budget, in rows or in tokens, asks for a level, and the lowest one binds. Nothing depends on the order of tasks.
:func:`pairmill.mixture.planning.share_out` is the same rule for a few sources by name; here a bisection asks thousands
of times about thousands of tasks.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Within = Literal["size", "sqrt", "even", "unimax"]
"""How a group's rows or tokens are shared out over its tasks: by what they have, its square root, or evenly. ``unimax``
is even too, and repeats the rows of small tasks, up to ``repeat``, where the others repeat those of all tasks."""

Reals = NDArray[np.float64]
Counts = NDArray[np.int64]

_NEAR, _NEAR_OF = 1e-9, 1e-12
"""Rows this far from a whole number, and this part of it, are that number: what sums of float64 lose."""


class Level:
    """A group's tasks.

    Args:
        weights: of each task, 0 or more, float64 [tasks]; a task of weight 0 gets nothing.
        limits: the most rows of each task, 0 or more, float64 [tasks].
    """

    def __init__(self, weights: Reals, limits: Reals) -> None:
        self.weights = weights
        self.limits = np.where(weights > 0, limits, 0.0)
        self._full = np.divide(self.limits, weights, out=np.zeros(len(weights)), where=weights > 0)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self._full, kind="stable")

    @property
    def top(self) -> float:
        """The level at which every task has its limit."""
        return float(self._full.max(initial=0.0))

    def rows(self, level: float) -> Reals:
        """Return the rows of each task at a level, float64 [tasks]."""
        return np.where(self._full <= level, self.limits, np.minimum(self.limits, level * self.weights))

    def reaching(self, budget: float, cost: Reals | None = None) -> float:
        """Return the level at which ``sum(cost x rows)`` is a budget; :attr:`top` if it never is.

        ``cost`` is what a row of each task counts, 0 or more; None = 1.
        """
        order = self._order
        price = np.ones(len(order)) if cost is None else cost[order]
        full, weights = self._full[order], price * self.weights[order]
        filled = np.concatenate([[0.0], np.cumsum(price * self.limits[order])])
        open_ = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
        # What there is at the level at which each task gets its limit; it grows with the level.
        at = filled[1:] + full * open_[1:]
        number = int(np.searchsorted(at, budget, side="left"))
        if number == len(order):
            return self.top
        return float((budget - filled[number]) / open_[number]) if budget > 0 else 0.0


def weights_of(within: Within, rows: Counts, cost: Reals | None) -> Reals:
    """Return how many rows of each task there are to a level of 1.

    Args:
        within: how the budget is shared out.
        rows: that each task has.
        cost: tokens of a row of each task, if tokens are shared out; None = rows are.
    """
    if within == "size":
        return rows.astype(np.float64)
    have = rows.astype(np.float64) if cost is None else rows * cost
    share = np.sqrt(have) if within == "sqrt" else (have > 0).astype(np.float64)
    return share if cost is None else np.divide(share, cost, out=np.zeros(len(rows)), where=cost > 0)


def whole_rows(
    real: Reals,
    ranks: Counts,
    rows: int | None = None,
    tokens: float | None = None,
    cost: Reals | None = None,
    *,
    nearest: bool = False,
) -> Counts:
    """Round rows to integers, int64 [tasks]: down, and then up those with the largest remainders while budgets allow.

    Each task is within one row of its real number. With neither budget the sum is the rounded sum, ties to even.

    Args:
        real: rows of each task.
        ranks: decides between equal remainders; the same for a task whatever its place.
        rows: the most in all.
        tokens: the most that the rows have by their means; the row that would go beyond is left away.
        cost: tokens of a row of each task.
        nearest: whether that row is taken if the sum is nearer to ``tokens`` with it.
    """
    near = np.rint(real)
    real = np.where(np.abs(real - near) <= _NEAR + _NEAR_OF * near, near, real)
    result = np.floor(real).astype(np.int64)
    order = np.lexsort((ranks, result - real))
    order = order[(real > result)[order]]
    if rows is None and tokens is None:
        rows = round(float(real.sum()))
    more = len(order)
    if rows is not None:
        more = min(more, max(0, rows - int(result.sum())))
    if tokens is not None and cost is not None:
        room = tokens * (1 + _NEAR_OF) - float((result * cost).sum())
        sums = np.concatenate([[0.0], np.cumsum(cost[order])])
        most = max(0, int(np.searchsorted(sums, room, side="right")) - 1)
        if nearest and most + 1 < len(sums) and sums[most + 1] - room < room - sums[most]:
            most += 1
        more = min(more, most)
    result[order[:more]] += 1
    return result


def spread(totals: Counts, epochs: int) -> Counts:
    """Share rows out over epochs, int64 [tasks, epochs]: as evenly as integers can, and so that epochs differ by one in
    sum.

    The rows of a task beyond what each epoch has go to the next epochs in turn, task after task.
    """
    each, more = np.divmod(totals, epochs)
    first = (np.cumsum(more) - more) % epochs
    turn = (np.arange(epochs) - first[:, None]) % epochs
    result: Counts = each[:, None] + (turn < more[:, None])
    return result
