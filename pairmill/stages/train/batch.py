"""Packed: the rows of one rank's step, one after another, as every net reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pairmill.loader.batch import IGNORED


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
        """The same batch on a device; asynchronous if its memory is pinned."""
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in ("inputs", "positions", "labels")}
        return replace(self, **moved)

    @classmethod
    def of_rows(cls, tensors: Mapping[str, Tensor], scalars: Mapping[str, int]) -> Packed:
        """A batch of a loader of rows.

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
    def of_windows(cls, input_ids: Tensor, labels: Tensor, doc_ids: Tensor | None = None) -> Packed:
        """A batch of windows: each window is a row without a prefix, or one row for each of its documents.

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
        """The slots that have a label, int64 [n]: the head runs on these alone."""
        return (self.labels != IGNORED).nonzero().flatten()
