"""What is compared: losses of held-out rows, as evaluate keeps them row by row."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mean_loss(rows: NDArray[Any], sources: Collection[int] | None = None, *, by_bytes: bool = False) -> float:
    """Return the loss of held-out rows (``held_out/rows.npy``): nats a response token, or bits a byte of the responses.

    Args:
        rows: with the fields ``source``, ``tokens``, ``bytes`` and ``loss``.
        sources: numbers of those that count; None = all.
        by_bytes: in bits a byte, which two tokenizers can be compared by.
    """
    some = rows if sources is None else rows[np.isin(rows["source"], list(sources))]
    below = float(some["bytes" if by_bytes else "tokens"].sum(dtype=np.int64))
    # In the order of the rows and exactly, so that equal rows give equal numbers on any machine.
    total = math.fsum(some["loss"].tolist())
    return total / (math.log(2) * below) if by_bytes else total / below
