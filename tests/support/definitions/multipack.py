"""HRM-Text's method in plain Python and NumPy, written from its description: the tests' oracle, and the peer of bench.

Compiled by numba where that is installed, as the original is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from numba import njit
except ImportError:

    def njit(function: Callable[..., Any]) -> Callable[..., Any]:
        return function


Ints = NDArray[np.int64]
IGNORED = -100


@njit
def sift(loads: Ints, owners: Ints | None) -> None:
    """Put the heap of loads in order again, to whose first one something was added; and their owners, if asked for."""
    ranks = len(loads) - 1
    u = 1
    while 2 * u <= ranks:
        v = 2 * u
        if v + 1 <= ranks and loads[v + 1] < loads[v]:
            v += 1
        if loads[u] <= loads[v]:
            break
        loads[u], loads[v] = loads[v], loads[u]
        if owners is not None:
            owners[u], owners[v] = owners[v], owners[u]
        u = v


@njit
def deal(lengths: Ints, order: Ints, ranks: int) -> Ints:
    """Each row's rank: longest first to the least load of a heap."""
    loads = np.zeros(ranks + 1, np.int64)
    owners = np.arange(-1, ranks)
    dealt = np.empty(len(order), np.int64)
    for step in range(len(order)):
        loads[1] += lengths[order[step]]
        dealt[step] = owners[1]
        sift(loads, owners)
    return dealt


@njit
def fit(lengths: Ints, ranks: int, slots: int) -> bool:
    """Whether no load exceeds the slots when rows are dealt so; it looks at none after the first that does."""
    loads = np.zeros(ranks + 1, np.int64)
    for length in np.sort(lengths)[::-1]:
        loads[1] += length
        if loads[1] > slots:
            return False
        sift(loads, None)
    return True


@njit
def longest_first(lengths: Ints) -> Ints:
    return np.argsort(lengths, kind="mergesort")[::-1]


@njit
def allocate(lengths: Ints, start: int, ranks: int, slots: int) -> tuple[int, Ints, Ints]:
    """How many rows from ``start`` on make a global batch; them, longest first; and each one's rank."""
    end, total = start, 0
    while end < len(lengths) and total < ranks * slots:
        total += lengths[end]
        end += 1
    low, high = 1, end - start + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fit(lengths[start : start + middle], ranks, slots):
            low = middle
        else:
            high = middle
    part = lengths[start : start + low]
    order = longest_first(part)
    return low, order + start, deal(part, order, ranks)


def batches(
    lengths: Ints, ranks: int, slots: int, start: int = 0, *, drop_last: bool = True
) -> Iterator[tuple[int, list[Ints]]]:
    """First row and each rank's rows of an epoch's global batches."""
    while start < len(lengths):
        count, order, dealt = allocate(lengths, start, ranks, slots)
        if count < ranks or (drop_last and start + count >= len(lengths)):
            return
        yield start, [order[dealt == rank] for rank in range(ranks)]
        start += count


def batch(tokens: NDArray[Any], index: Sequence[Ints], rows: Ints, slots: int) -> dict[str, NDArray[np.int32]]:
    """The six arrays of a rank's rows."""
    inst_start, inst_len, resp_start, resp_len = (array[rows] for array in index)
    inputs, labels, positions = [], [], []
    for first, prefix, answer, causal in zip(inst_start, inst_len, resp_start, resp_len, strict=True):
        inst, resp = tokens[first : first + prefix].astype(np.int32), tokens[answer : answer + causal].astype(np.int32)
        inputs += [inst, resp[:-1]]
        labels += [np.full(prefix - 1, IGNORED, np.int32), resp]
        positions.append(np.arange(prefix + causal - 1, dtype=np.int32))
    ends = np.cumsum(inst_len + resp_len - 1)
    parts = {
        "inputs": np.concatenate(inputs),
        "labels": np.concatenate(labels),
        "position_ids": np.concatenate(positions),
        "prefix_lens": inst_len.astype(np.int32),
        "causal_lens": (resp_len - 1).astype(np.int32),
        "cu_seqlens": np.concatenate([[0], ends]).astype(np.int32),
    }
    return {
        name: np.pad(part, (0, slots - len(part)), constant_values=IGNORED if name == "labels" else 0)
        for name, part in parts.items()
    }
