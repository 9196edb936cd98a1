"""Where the batches of long epochs end, kept for the user once they are known (:mod:`pairmill.formats.kept`)."""

import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill.digest import digest_bytes
from pairmill.formats import kept
from pairmill.loader.plan import World
from pairmill.loader.row_plan import RowPlan, Rows

LEAST: Final = 1 << 20
"""Rows of an epoch whose batches are kept; of fewer they are found in a moment."""
_VERSION: Final = 1
"""Raised when the same rows make other batches."""
_MOST: Final = int(np.iinfo(np.uint32).max)
_NONE: Final = np.empty((0, 3), np.int64)


class Chain:
    """The batches that begin and end in one epoch, one after another from its first: those that are kept, and those
    that a walk finds.

    Args:
        plan: of sampled folders.
        source, epoch: number of the source, and the epoch.
        world: of :meth:`RowPlan.packed_into`.
    """

    def __init__(self, plan: RowPlan, source: int, epoch: int, world: World) -> None:
        self.source, self.epoch = source, epoch
        self._place = _place(plan, source, epoch, world)
        self._starts, self._kept = _load(self._place)
        self._parts: list[Rows] = []

    @property
    def is_kept(self) -> bool:
        """Whether the batches are kept."""
        return len(self._kept) > 0

    def after(self, start: int) -> Rows | None:
        """Return the kept batches from a row on, int64 [batches, 3] as :meth:`RowPlan.batches_ahead`; None if none of
        them begins or ends there."""
        at = int(np.searchsorted(self._starts, start))
        return self._kept[at:] if at < len(self._starts) and self._starts[at] == start else None

    def add(self, ends: Rows) -> None:
        """Add the next batches that were found."""
        if self._place is not None and not self.is_kept:
            self._parts.append(ends)

    def keep(self, first: int) -> None:
        """Keep what was added; the first of it begins with this row, and nothing that ends in the epoch comes after."""
        if not self._parts:
            return
        ends = np.concatenate(self._parts)
        columns = np.stack([ends[:, 0], ends[:, 1], np.diff(ends[:, 2], prepend=first)])
        if columns.max() <= _MOST:
            kept.save(self._place, np.int64(first).tobytes() + columns.astype("<u4").tobytes())


def _place(plan: RowPlan, source: int, epoch: int, world: World) -> str | None:
    """Return where the batches of an epoch are kept; None = they are not."""
    folder = plan.folders[source]
    if epoch >= len(folder.epochs) or folder.epochs[epoch].rows < LEAST or not folder.sample:
        return None
    options = plan.balance, plan.tail, plan.skip_long, plan.skip_one_token
    key = (_VERSION, folder.sample, epoch, folder.epochs[epoch].rows, world.ranks, world.batch_tokens, *options)
    return kept.place_of(f"batches/{digest_bytes(json.dumps(key).encode()).rpartition(':')[2]}")


def _load(place: str | None) -> tuple[NDArray[np.int64], Rows]:
    """Return where kept batches begin and the last ends, int64 [batches + 1], and the batches, int64 [batches, 3]."""
    body = kept.load(place)
    if len(body) <= 8:
        return np.empty(0, np.int64), _NONE
    ends = np.frombuffer(body[8:], "<u4").reshape(3, -1).T.astype(np.int64)
    (first,) = np.frombuffer(body[:8], "<i8").tolist()
    ends[:, 2] = first + np.cumsum(ends[:, 2])
    return np.concatenate([[first], ends[:, 2]]), ends
