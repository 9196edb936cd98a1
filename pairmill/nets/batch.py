"""The rows of a step of one rank, one after another, as every net reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairmill.loader.batch import DATASET_IDX, IGNORED
from pairmill.loader.held_out import HeldOut
from pairmill.loader.torch import tensor


@dataclass(frozen=True)
class Packed:
    """Rows one after another in c slots. Slots after the last row are padding, and nothing reads them.

    Attributes:
        inputs: token ids, int64 [c].
        positions: rows of the RoPE table, int64 [c].
        labels: the token that each slot shall predict, int64 [c]; -100 is not counted.
        starts: where each row begins, and where the last one ends (rows + 1 numbers).
        prefixes: how many slots at the beginning of each row all see each other (rows numbers).
    """

    inputs: Tensor
    positions: Tensor
    labels: Tensor
    starts: tuple[int, ...]
    prefixes: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.prefixes)

    @property
    def tokens(self) -> int:
        """How many slots hold a row."""
        return self.starts[-1]

    @property
    def slots(self) -> int:
        """How many slots there are, padding included."""
        return len(self.inputs)

    def to(self, device: torch.device | str) -> Packed:
        """Move the batch to a device; asynchronous if its memory is pinned."""
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in ("inputs", "positions", "labels")}
        return replace(self, **moved)

    @classmethod
    def from_rows(cls, tensors: Mapping[str, Tensor], scalars: Mapping[str, int]) -> Packed:
        """Make a batch of what a loader of rows hands out.

        Args:
            tensors: ``PREFIXLM`` of :mod:`pairmill.loader.batch`, int32 [c].
            scalars: its ``SCALARS``.
        """
        rows = int(scalars["numseqs"])
        return cls(
            inputs=tensors["inputs"].long(),
            positions=tensors["position_ids"].long(),
            labels=tensors["labels"].long(),
            starts=tuple(tensors["cu_seqlens"][: rows + 1].tolist()),
            prefixes=tuple(tensors["prefix_lens"][:rows].tolist()),
        )

    @classmethod
    def from_windows(cls, input_ids: Tensor, labels: Tensor, doc_ids: Tensor | None = None) -> Packed:
        """Make a batch of windows: each window is a row without a prefix, or one row for each of its documents.

        Positions run over the whole window, as in KempnerForge.

        Args:
            input_ids: int [windows, length].
            labels: int [windows, length], already shifted.
            doc_ids: int [windows, length]; equal ids beside each other are one document. None: a window is one.
        """
        windows, length = input_ids.shape
        starts = torch.arange(0, windows * length + 1, length)
        if doc_ids is not None:
            begins = torch.ones(windows, length, dtype=torch.bool)
            begins[:, 1:] = (doc_ids[:, 1:] != doc_ids[:, :-1]).cpu()
            starts = torch.cat([begins.flatten().nonzero().flatten(), starts[-1:]])
        return cls(
            inputs=input_ids.long().flatten(),
            positions=torch.arange(length, device=input_ids.device).repeat(windows),
            labels=labels.long().flatten(),
            starts=tuple(starts.tolist()),
            prefixes=(0,) * (len(starts) - 1),
        )

    def labelled(self) -> Tensor:
        """Return the slots that have a label, int64 [n]: the head runs on these alone."""
        return (self.labels != IGNORED).nonzero().flatten()


@dataclass(frozen=True)
class Microbatch:
    """What one forward pass of one rank reads.

    Attributes:
        packed: on the device.
        sources: number of the source of each slot, int64 [c], on the device; of padding any.
    """

    packed: Packed
    sources: Tensor


@dataclass(frozen=True)
class GlobalBatch:
    """One rank's share of an optimizer step.

    Attributes:
        micro: ``batch.accumulate`` of them.
        step: from 0.
        phase: name of it; its number if it has none.
        epoch: of the first row.
        lr_scale: factor of the learning rate.
        rows: of all ranks.
        tokens: inputs of all ranks, padding between rows not counted.
        slots: of all ranks.
    """

    micro: tuple[Microbatch, ...]
    step: int
    phase: str
    epoch: int
    lr_scale: float
    rows: int
    tokens: int
    slots: int


def make_microbatch(
    arrays: Mapping[str, NDArray[Any]], scalars: Mapping[str, int], sources: NDArray[np.int64], device: torch.device
) -> Microbatch:
    """Put a batch of the loader on a device.

    Args:
        arrays: of rows or of windows.
        scalars: of rows; empty for windows.
        of: number of the source of each row or window, int64 [rows].
    """
    if DATASET_IDX in arrays:
        given = {name: tensor(array) for name, array in arrays.items()}
        packed = Packed.from_windows(given["input_ids"], given["labels"], given.get("doc_ids")).to(device)
        lengths = np.full(len(sources), arrays["input_ids"].shape[1])
    else:
        rows = scalars["numseqs"]
        starts = arrays["cu_seqlens"][: rows + 1].astype(np.int64)
        # Copied as they are and widened there; from pinned memory the copy is not waited for.
        inputs, positions, labels = (
            tensor(arrays[name]).to(device, non_blocking=True).long() for name in ("inputs", "position_ids", "labels")
        )
        packed = Packed(inputs, positions, labels, tuple(starts.tolist()), tuple(arrays["prefix_lens"][:rows].tolist()))
        lengths = np.diff(starts)
    # Padding is of the first source: nothing counts it.
    spans = np.append(sources, 0).astype(np.int64), np.append(lengths, packed.slots - int(lengths.sum()))
    numbers, counts = (torch.from_numpy(span).to(device, non_blocking=True) for span in spans)
    return Microbatch(packed, torch.repeat_interleave(numbers, counts, output_size=packed.slots))


def read_held_out(
    held_out: HeldOut, rows: int, slots: int, device: torch.device, rank: int = 0, ranks: int = 1
) -> Iterator[Microbatch]:
    """Yield the batches of held-out rows that one rank reads, on its device (:meth:`HeldOut.batches`)."""
    for filled in held_out.batches(rows, slots, rank, ranks):
        yield make_microbatch(filled.arrays, filled.scalars, filled.source, device)
