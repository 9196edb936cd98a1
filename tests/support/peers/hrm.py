"""HRM-Text's own loader (its commit da566c9), bit for bit, odd cases included: ours is compared with it.

Nothing is checked and nothing can be resumed. A row longer than a rank's slots silently ends the epoch on several
ranks, and is handed out alone on one rank. Rows with an empty text, or that point outside the tokens, shift what comes
after them. Loads are added in 64 bits; the original adds them in the type of the index files, where 16 bits overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill._native import Numbers, fill_prefixlm, pack_rows
from pairmill.formats.tokens import INDEX
from pairmill.loader.arrays import map_array, numbers
from pairmill.loader.batch import IGNORED, PREFIXLM, SCALARS
from pairmill.loader.folder import TOKENS, Epoch, Metadata

Parity = tuple[dict[str, NDArray[np.int32]], dict[str, int]]


class HrmDataset:
    """Each iteration is the next epoch of a sampled folder: pairs (arrays, scalars) of one rank.

    Args:
        dataset_path: the folder.
        batch_max_length: slots of a rank.
        drop_last_batch: drop an epoch's last batch.
        target_only: only responses are supervised.
        rank: from 0.
        num_replicas: ranks.

    Raises:
        InputError: the folder's metadata are wrong.
    """

    def __init__(
        self,
        dataset_path: str | Path,
        *,
        batch_max_length: int,
        drop_last_batch: bool = True,
        target_only: bool = True,
        rank: int = 0,
        num_replicas: int = 1,
    ) -> None:
        self.metadata = Metadata.read(Path(dataset_path))
        self.path, self.slots, self.drop_last = Path(dataset_path), batch_max_length, drop_last_batch
        self.target_only, self.rank, self.ranks = target_only, rank, num_replicas
        self._epoch = 0

    def __iter__(self) -> Iterator[Parity]:
        """The next epoch, even if the epoch before was left midway.

        Yields:
            The arrays of :data:`PREFIXLM`, int32 [slots] (the first three are longer where one row is), and the scalars
            of :data:`SCALARS`.

        Raises:
            FileNotFoundError: no such epoch.
            ValueError: a row cannot make a batch (:meth:`_odd`).
        """
        folder = self.path / f"epoch_{self._epoch}"
        for name in INDEX:
            (folder / f"{name}.npy").stat()
        epoch = Epoch(folder)
        self._epoch += 1
        for _, window, places in global_batches(epoch, self.slots, self.ranks, drop_last=self.drop_last):
            yield self.batch(window, places[self.rank])

    @cached_property
    def _tokens(self) -> NDArray[Any]:
        """Mapped at the first batch, and kept."""
        return map_array(self.path / TOKENS)

    @cached_property
    def _numbers(self) -> Numbers:
        return numbers(self._tokens)

    def batch(self, window: NDArray[np.int64], places: NDArray[np.uint32]) -> Parity:
        """A rank's batch of the rows at some places of a window."""
        out = np.empty((len(PREFIXLM), self.slots), np.int32)
        try:
            sizes = fill_prefixlm(self._numbers, window, places, self.target_only, out)
        except ValueError:
            return self._odd(self._tokens, window[places])
        return dict(zip(PREFIXLM, out, strict=True)), dict(zip(SCALARS, sizes, strict=True))

    def _odd(self, tokens: NDArray[np.generic], rows: NDArray[np.int64]) -> Parity:
        """Rows that native code refuses, as the original's slices and padding in NumPy treat them.

        Raises:
            ValueError: an instruction is empty and only responses are supervised; or there are as many rows as slots.
        """
        parts: dict[str, list[NDArray[np.int32]]] = {"inputs": [], "labels": [], "position_ids": []}
        prefix_lens, causal_lens = [], []
        for _, inst_start, inst_len, resp_start, resp_len in rows.tolist():
            inst = np.asarray(tokens[inst_start : inst_start + inst_len]).astype(np.int32)
            resp = np.asarray(tokens[resp_start : resp_start + resp_len]).astype(np.int32)
            parts["inputs"] += [inst, resp[:-1]]
            parts["labels"] += [np.full(len(inst) - 1, IGNORED, np.int32) if self.target_only else inst[1:], resp]
            parts["position_ids"].append(np.arange(len(inst), dtype=np.int32))
            parts["position_ids"].append(np.arange(len(inst), len(inst) + len(resp) - 1, dtype=np.int32))
            prefix_lens.append(len(inst))
            causal_lens.append(len(resp) - 1)
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        missing = max(0, self.slots - len(arrays["inputs"]))
        fills = {"inputs": 0, "labels": IGNORED, "position_ids": 0}
        arrays = {name: np.pad(array, (0, missing), constant_values=fills[name]) for name, array in arrays.items()}
        prefix, causal = np.array(prefix_lens, np.int32), np.array(causal_lens, np.int32)
        ends = np.concatenate([[0], np.cumsum(prefix + causal)]).astype(np.int32)
        for name, values in (("prefix_lens", prefix), ("causal_lens", causal), ("cu_seqlens", ends)):
            arrays[name] = np.pad(values, (0, self.slots - len(values)))
        sizes = int(ends[-1]), len(rows), int(prefix.max()), int(causal.max()), int((prefix + causal).max())
        return arrays, dict(zip(SCALARS, sizes, strict=True))


def global_batches(
    epoch: Epoch, slots: int, ranks: int, *, drop_last: bool
) -> Iterator[tuple[int, NDArray[np.int64], list[NDArray[np.uint32]]]]:
    """An epoch's global batches.

    Yields:
        The first row, the window of rows from it on (:meth:`pairmill._native.RowIndex.window`), and each rank's places
        in it.
    """
    start = 0
    while start < epoch.rows:
        window = epoch.index.window(start, slots * ranks)
        count, places, ends = pack_rows(window, ranks, slots)
        after = start + count
        if count < ranks or (drop_last and after >= epoch.rows):
            return
        yield start, window, np.split(places, ends[1:-1])
        start = after


def estimate_batches(epoch: Epoch, slots: int, ranks: int) -> int:
    """The reference's estimate of an epoch's batches: inputs by slots, rounded half to even."""
    rows = epoch.index.window(0, np.iinfo(np.int64).max)
    return round(int((rows[:, 2] + rows[:, 4] - 1).sum()) / (slots * ranks))
