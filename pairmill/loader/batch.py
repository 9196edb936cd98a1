"""A batch: what one rank trains on at one step, and the memory that it lies in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pairmill.loader.plan import Draw, Phase

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
    """Arrays by name, with what they are.

    The arrays lie in memory that is used again as soon as nothing refers to it, no tensor and no slice either: to keep
    an array is enough to keep what it holds.

    Attributes:
        arrays: of a plan of rows those of :data:`PREFIXLM`, int32 [slots]; of a plan of windows ``input_ids`` and
            ``labels``, int64 [samples, seq_len].
        scalars: of a plan of rows those of :data:`SCALARS`.
        rows: which rows (or samples) these are, in order; int64 [rows, 3]: number of the source, epoch, row in it.
        step: number of the global batch, from 0, over all epochs and phases.
        phase: number of the phase.
        source: name of what the global batch is from.
        epoch: of its first row.
        start_row: that row in its epoch.
        lr_scale: what the phase says for this very step.
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

    @classmethod
    def of(
        cls,
        draw: Draw,
        phases: Sequence[Phase],
        arrays: dict[str, NDArray[Any]],
        scalars: dict[str, int],
        rows: NDArray[np.int64],
    ) -> Batch:
        """A rank's share of what was drawn."""
        return cls(
            arrays=arrays,
            scalars=scalars,
            rows=rows,
            step=draw.after.batches - 1,
            phase=draw.phase,
            source=draw.source,
            epoch=draw.epoch,
            start_row=draw.start_row,
            lr_scale=phases[draw.phase].lr_scale,
            global_rows=draw.rows,
            global_tokens=draw.tokens,
        )

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def windows_size(names: Sequence[str], samples: int, seq_len: int) -> int:
    """Bytes of a batch of windows (:func:`windows_of`)."""
    return ((len(names) - 1) * seq_len + 1) * samples * np.dtype(np.int64).itemsize


def windows_of(
    memory: NDArray[np.uint8], names: Sequence[str], samples: int, seq_len: int
) -> dict[str, NDArray[np.int64]]:
    """The arrays of a batch of windows in its memory: int64 [samples, seq_len], and the last one [samples]."""
    slots = memory.view(np.int64)
    size = samples * seq_len
    ends = [number * size for number in range(1, len(names))]
    *windows, last = np.split(slots, ends)
    arrays = [array.reshape(samples, seq_len) for array in windows]
    return dict(zip(names, (*arrays, last), strict=True))


Allocate = Callable[[int], Any]
"""Makes writable memory of so many bytes that lies there as long as somebody holds it."""


class Pool:
    """Memory of batches, one size for all, that comes back by itself.

    A new batch in fresh memory takes a page fault every 4 KiB, which is as long as to fill it. There is no lock: memory
    may come back while the same thread takes some, when that collects garbage.

    Args:
        size: bytes of a batch.
        keep: how many that nobody uses are kept.
        allocate: makes one; pinned memory, for instance.
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
        # Views refer to this array and not to what is behind it, which is no array: NumPy looks through arrays only.
        taken = np.frombuffer(memoryview(memory), np.uint8)
        weakref.finalize(taken, self._back, memory)
        return taken

    def _back(self, memory: Any) -> None:
        if len(self._free) < self._keep:
            self._free.append(memory)
