"""Connected components of a graph whose edges are read in blocks: 4 bytes for each node, and no recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Marked:
    """A set of numbers below a limit: one bit for each, and the rank of each number in the set.

    Args:
        limit: numbers are smaller.
    """

    def __init__(self, limit: int) -> None:
        self._bytes = np.zeros(-(-limit // 64) * 8, np.uint8)
        self._before: NDArray[np.int64] | None = None

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers, int64 [n], with repetitions."""
        places = numbers >> 3
        bits = np.left_shift(1, numbers & 7).astype(np.uint8)
        np.bitwise_or.at(self._bytes, places, bits)
        self._before = None

    def __len__(self) -> int:
        return int(np.bitwise_count(self._bytes).sum(dtype=np.int64))

    def rank(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many numbers of the set are smaller, int64 [n]."""
        words = self._bytes.view(np.uint64)
        if self._before is None:
            self._before = np.zeros(len(words) + 1, np.int64)
            np.cumsum(np.bitwise_count(words), out=self._before[1:])
        places = numbers >> 6
        below = (np.uint64(1) << (numbers & 63).astype(np.uint64)) - np.uint64(1)
        found: NDArray[np.int64] = self._before[places] + np.bitwise_count(words[places] & below)
        return found

    def between(self, start: int, stop: int) -> NDArray[np.int64]:
        """The numbers of the set in ``[start, stop)``, ascending."""
        first = start >> 3
        bits = np.unpackbits(self._bytes[first : (stop + 7) >> 3], bitorder="little")
        found: NDArray[np.int64] = np.flatnonzero(bits[start - 8 * first : stop - 8 * first]) + start
        return found


class Components:
    """Components of the nodes 0 to ``nodes`` - 1; that of a node is known by its smallest member.

    Args:
        nodes: how many.
    """

    def __init__(self, nodes: int) -> None:
        self._parent: NDArray[np.uint32] = np.arange(nodes, dtype=np.uint32)

    def join(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> None:
        """Add edges between a[i] and b[i]."""
        parent = self._parent
        low, high = self._roots(a), self._roots(b)
        while True:
            apart = low != high
            if not apart.any():
                return
            low, high = low[apart], high[apart]
            low, high = np.minimum(low, high), np.maximum(low, high)
            # The smallest of the roots that a root is joined with becomes its parent; the other edges of the root are
            # looked at again. A parent is always smaller, so no circle can form.
            np.minimum.at(parent, high, low)
            low, high = self._roots(low), self._roots(high)

    def labels(self) -> NDArray[np.uint32]:
        """The smallest member of each node's component, uint32 [nodes]."""
        parent = self._parent
        while True:
            above = parent[parent]
            if np.array_equal(above, parent):
                return parent
            parent[:] = above

    def _roots(self, nodes: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
        parent = self._parent
        found = parent[nodes]
        while True:
            above = parent[found]
            if np.array_equal(above, found):
                break
            found = above
        # Shortens the paths for the edges to come.
        parent[nodes] = found
        roots: NDArray[np.uint32] = found
        return roots
