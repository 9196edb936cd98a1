"""Counts of sizes by powers of two, for histograms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def by_size(sizes: NDArray[Any], weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Count the sizes (or sum their weights) in (2^(k-1), 2^k] for each k from 0; int64, shape (64,)."""
    power = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    counts = np.bincount(power, minlength=64) if weights is None else np.bincount(power, weights, minlength=64)
    return counts.astype(np.int64)


def bins(counts: list[int]) -> list[tuple[str, int]]:
    """Label such counts, without the empty ones at both ends."""
    used = [power for power, count in enumerate(counts) if count]
    return [(f"≤ {2**power:,}", counts[power]) for power in range(used[0], used[-1] + 1)] if used else []
