"""Connected components of a graph whose edges are read in blocks: 4 bytes for each node, and no recursion."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import _native


class Marked:
    """A set of numbers below a limit: one bit for each, and the rank of each number in the set.

    Args:
        limit: numbers are smaller.
    """

    def __init__(self, limit: int) -> None:
        self._words = np.zeros(-(-limit // 64), np.uint64)
        self._before: NDArray[np.int64] | None = None

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers, int64 [n], with repetitions."""
        _native.curate_near_mark(self._words, numbers)
        self._before = None

    def __len__(self) -> int:
        return int(np.bitwise_count(self._words).sum(dtype=np.int64))

    def rank(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many numbers of the set are smaller, int64 [n]."""
        if self._before is None:
            self._before = np.zeros(len(self._words) + 1, np.int64)
            np.cumsum(np.bitwise_count(self._words), out=self._before[1:])
        return _native.curate_near_places(self._words, self._before, numbers)

    def between(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the numbers of the set in ``[start, stop)``, ascending."""
        first = start >> 3
        bits = np.unpackbits(self._words.view(np.uint8)[first : (stop + 7) >> 3], bitorder="little")
        result: NDArray[np.int64] = np.flatnonzero(bits[start - 8 * first : stop - 8 * first]) + start
        return result


class Components:
    """Components of the nodes 0 to ``nodes`` - 1; that of a node is known by its smallest member."""

    def __init__(self, nodes: int) -> None:
        self._parent: NDArray[np.uint32] = np.arange(nodes, dtype=np.uint32)

    def join(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> None:
        """Add edges between a[i] and b[i]."""
        _native.curate_near_join(self._parent, np.ascontiguousarray(a, np.int64), np.ascontiguousarray(b, np.int64))

    def labels(self) -> NDArray[np.uint32]:
        """Return the smallest member of each node's component, uint32 [nodes]."""
        parent = self._parent
        while True:
            above = parent[parent]
            if np.array_equal(above, parent):
                return parent
            parent[:] = above
