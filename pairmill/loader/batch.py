"""A batch: what one rank trains on at one step, and the memory of its arrays."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""The label that no loss counts."""
PREFIXLM = ("inputs", "labels", "position_ids", "prefix_lens", "causal_lens", "cu_seqlens")
"""Arrays of a batch of rows, int32 [slots], as HRM-Text names and orders them."""
DOC_IDS = "doc_ids"
DATASET_IDX = "dataset_idx"
"""Number of each window's source."""
SCALARS = ("total_seqlen", "numseqs", "max_seqlen_prefix", "max_seqlen_causal", "max_seqlen_all")
"""Numbers that come with them."""


@dataclass(frozen=True)
class Batch(Mapping[str, NDArray[Any]]):
    """Arrays by name, and what they are.

    The memory of the arrays is reused as soon as nothing refers to it, neither a tensor nor a slice: keep an array, and
    its values stay.

    Attributes:
        arrays: for a plan of rows :data:`PREFIXLM`, int32 [slots]; for a plan of windows ``input_ids`` and ``labels``,
            int64 [samples, seq_len].
        scalars: for a plan of rows :data:`SCALARS`.
        rows: which rows (or samples) these are, in order; int64 [rows, 3]: number of the source, epoch, row in it.
        step: number of the global batch, from 0, over all epochs and phases.
        phase: number of the phase.
        source: name of the source of the global batch.
        epoch: of its first row.
        start_row: number of its first row in the epoch.
        lr_scale: factor of the learning rate for this step.
        global_rows: rows of all ranks.
        global_tokens: inputs of all ranks.
    """

    arrays: dict[str, NDArray[Any]] = field(repr=False)
    scalars: dict[str, int]
    rows: NDArray[np.int64] = field(repr=False)
    step: int
    phase: int
    source: str
    epoch: int
    start_row: int
    lr_scale: float
    global_rows: int
    global_tokens: int

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


Allocate = Callable[[int], Any]
"""Returns this many bytes of writable memory, which stays where it is as long as somebody holds it."""


class Pool:
    """Memory of batches, all of one size. It returns to the pool when nothing refers to it.

    A new batch in fresh memory costs a page fault every 4 KiB, which takes as long as filling it. There is no lock:
    memory may come back while the same thread takes some, if taking triggers a garbage collection.

    Args:
        size: bytes of a batch.
        keep: how many unused batches are kept.
        allocate: makes the memory of one; pinned memory, for instance.
    """

    def __init__(self, size: int, keep: int, allocate: Allocate = bytearray) -> None:
        self._size, self._keep, self._allocate = size, keep, allocate
        self._free: list[Any] = []

    def take(self) -> NDArray[np.uint8]:
        """Memory of a batch, uint8 [size]; it is free again when this array and all views of it are gone."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = self._allocate(self._size)
        # Views refer to this array, not to what is below it: NumPy looks through arrays only, and that is not an array.
        taken = np.frombuffer(memoryview(memory), np.uint8)
        weakref.finalize(taken, self._back, memory)
        return taken

    def _back(self, memory: Any) -> None:
        if len(self._free) < self._keep:
            self._free.append(memory)
