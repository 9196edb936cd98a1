"""Keys: distinct ones, and the partitions that they are in."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct ones of ``values``, ascending; [n]. Sorts ``values`` in place: a copy of many would not fit.

    ``np.unique`` puts integers into a hash table since NumPy 2.3. Of millions it takes several times as long.
    """
    values.sort()
    new = np.empty(len(values), np.bool_)
    new[:1] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def partition(keys: NDArray[np.uint64], partitions: int) -> NDArray[np.uint32]:
    """Return the partition of each key, by its top bits; ``partitions`` is a power of two."""
    bits = partitions.bit_length() - 1
    if not bits:
        return np.zeros(len(keys), np.uint32)
    result: NDArray[np.uint32] = (keys >> np.uint64(64 - bits)).astype(np.uint32)
    return result
