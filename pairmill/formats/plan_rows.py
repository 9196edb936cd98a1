"""Single rows of a plan, by epoch and place, without reading the others; also of a plan that adds tasks to another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import UsageError
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.sample_plan import find_base
from pairmill.formats.tokens import INDEX

_PLACES = "places_{}"


class PlanRows:
    """The rows of a plan.

    Args:
        result: a plan.

    Attributes:
        base: of the plan that it adds to; None = it adds to none.
        count: rows that are taken, those of the base included.
    """

    def __init__(self, result: OpenResult) -> None:
        self._plan = result
        base = find_base(result.uri, result.manifest) if result.manifest is not None else None
        self.base = PlanRows(open_result(base.uri)) if base is not None else None
        self.index = [result.plan_array(name) for name in INDEX]
        self._first = self.base.count if self.base is not None else 0
        self.count: int = self._first + len(self.index[0])

    def __iter__(self) -> Iterator[PlanRows]:
        """Yield the plans that it is of, each with what it adds alone."""
        if self.base is not None:
            yield from self.base
        yield self

    def order(self, epoch: int) -> NDArray[np.uint32]:
        """Return what it adds to an epoch, as places in :attr:`index`, in training order; uint32 [rows].

        Raises:
            UsageError: there is no such epoch.
        """
        if not 0 <= epoch < self._plan.epochs:
            expected = f"0 to {self._plan.epochs - 1}"
            raise UsageError("no such epoch", where=f"epoch of {self._plan.uri}", got=str(epoch), expected=expected)
        return self._plan.plan_array(f"epoch_{epoch}")

    def length(self, epoch: int) -> int:
        """Return the rows of an epoch."""
        return sum(len(part.order(epoch)) for part in self)

    def at(self, epoch: int, place: int) -> int:
        """Return the number of the row at a place of an epoch, counted through all tasks in the plan's order."""
        order = self.order(epoch)
        if self.base is None:
            return int(order[place])
        places = self._plan.plan_array(_PLACES.format(epoch))
        before = int(np.searchsorted(places, place))
        if before < len(places) and int(places[before]) == place:
            return self._first + int(order[before])
        return self.base.at(epoch, place - before)

    def spans(self, row: int) -> list[int]:
        """Return start and length of the instruction and of the response of a row, in its task's tokens."""
        if self.base is not None and row < self._first:
            return self.base.spans(row)
        return [int(values[row - self._first]) for values in self.index]
