"""Numbers of rows: ``rank = preference << 40 | number``; a smaller rank is kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER_BITS = 40
_NUMBER = np.uint64((1 << NUMBER_BITS) - 1)
_MOST_TOKENS = (1 << 24) - 2


def ranks(
    numbers: NDArray[np.integer[Any]], tokens: NDArray[np.uint32] | None = None, fixed: int = 0
) -> NDArray[np.uint64]:
    """Return the ranks of rows, uint64 [n].

    Args:
        numbers: of the rows, [n].
        tokens: of their responses, uint32 [n], if more are better; None = only the number counts.
        fixed: rows of smaller numbers rank before all others.
    """
    result = numbers.astype(np.uint64)
    if tokens is not None:
        preference = (_MOST_TOKENS + 1 - np.minimum(tokens, _MOST_TOKENS)).astype(np.uint64)
        preference[numbers < fixed] = 0
        result |= preference << np.uint64(NUMBER_BITS)
    return result


def numbers(ranks: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the numbers of rows of these ranks, int64 [n]."""
    result: NDArray[np.int64] = (ranks & _NUMBER).view(np.int64)
    return result
