"""Data sets of KempnerForge: memory-mapped token files, texts at once or as a stream, and a mixture of them.

A sample is a dict of int64 arrays (seq_len,): `input_ids`, `labels` and, packed, `doc_ids`, in this order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.loader.arrays import numbers
from pairmill.loader.text import (
    Mark,
    batch_encoder,
    cut_chunks,
    open_dataset,
    shuffled,
    tokenize_all,
    tokenize_documents,
)

Sample = dict[str, Any]


class Source(Protocol):
    """What a mixture is made of."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Sample: ...
    def state_dict(self) -> dict[str, int]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class _Windows:
    """Windows of one length that do not overlap, each within one array; an incomplete last one is never delivered."""

    _epoch = 0

    def __init__(self, arrays: Sequence[NDArray[Any]], length: int, eos_token_id: int | None) -> None:
        self._held = _native.TokenArrays([numbers(array) for array in arrays])
        self._length, self._eos = length, eos_token_id
        self.cumulative_samples = [0, *accumulate(len(array) // length for array in arrays)]

    def __len__(self) -> int:
        return self.cumulative_samples[-1]

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} out of range for a dataset of {len(self)} samples")
        file = bisect_right(self.cumulative_samples, index) - 1
        start = (index - self.cumulative_samples[file]) * self._length
        where = [np.array([number], np.int64) for number in (file, start, self._length)]
        out = {name: np.empty((1, self._length - 1), np.int64) for name in ("input_ids", "labels")}
        if self._eos is not None:
            out["doc_ids"] = np.empty_like(out["labels"])
        # Invalid ids pass: the original does not check them.
        self._held.fill(where[0], where[1], where[2], out["input_ids"], out["labels"], out.get("doc_ids"), self._eos)
        return {name: array[0] for name, array in out.items()}


class MemoryMappedDataset(_Windows):
    """Token files of a folder, sorted as paths. The incomplete window at a file's end is unused.

    If the first file ends in `.bin`, all are raw: uint32 if the size is a multiple of four bytes, else uint16. So a
    uint16 file of an even number of tokens is misread (`pairmill.loader.windows` must be told the type). Other files
    are `.npy` of any dtype; what is not an integer in this machine's byte order is converted in memory.

    Args:
        data_dir: the folder.
        seq_len: tokens of a window: one more than a sample has. The original's trainer passes its seq_len + 1.
        file_pattern: glob.
        pack_sequences: give `doc_ids`, and -100 as the label of the end of a document.
        eos_token_id: the id that ends a document.

    Raises:
        FileNotFoundError: no file.
        ValueError: packing without `eos_token_id`.
    """

    def __init__(
        self,
        data_dir: str | Path,
        seq_len: int,
        file_pattern: str = "*.npy",
        pack_sequences: bool = False,
        eos_token_id: int | None = None,
    ) -> None:
        if pack_sequences and eos_token_id is None:
            raise ValueError("eos_token_id is required when pack_sequences=True")
        self.files = sorted(Path(data_dir).glob(file_pattern))
        if not self.files:
            raise FileNotFoundError(f"No files matching '{file_pattern}' in {data_dir}")
        raw = self.files[0].suffix == ".bin"
        mapped = [_raw(path) if raw else np.load(path, mmap_mode="r") for path in self.files]
        self.file_dtypes = [array.dtype for array in mapped]
        native = [array.dtype.kind in "ui" and array.dtype.isnative for array in mapped]
        arrays = [
            np.asarray(array) if fits else array.astype(np.int64) for array, fits in zip(mapped, native, strict=True)
        ]
        super().__init__(arrays, seq_len, eos_token_id if pack_sequences else None)

    def state_dict(self) -> dict[str, int]:
        """`{epoch, total_samples}`; nothing advances the epoch."""
        return {"epoch": self._epoch, "total_samples": len(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Only the epoch is read back."""
        self._epoch = state["epoch"]


class HuggingFaceDataset(_Windows):
    """A whole split, tokenized at construction and cut into windows without overlap; the remainder is discarded.

    Args:
        dataset: a `datasets.Dataset`, or the name of one.
        tokenizer: as for `pairmill.loader.text.eager`.
        seq_len: slots of a sample.
        eos_token_id: the id that ends a document; None becomes 0.
        text_field, split, config: which column, split and configuration.
        pack_sequences: as for `MemoryMappedDataset`.
    """

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        seq_len: int,
        *,
        eos_token_id: int | None,
        text_field: str = "text",
        split: str = "train",
        config: str | None = None,
        pack_sequences: bool = False,
    ) -> None:
        eos = eos_token_id or 0
        ids = tokenize_all(
            open_dataset(dataset, config, split, text_field, streaming=False), tokenizer, eos, text_field
        )
        super().__init__([ids], seq_len + 1, eos if pack_sequences else None)
        self._sample_idx = 0

    def state_dict(self) -> dict[str, int]:
        """`{epoch, sample_idx, total_sequences}`; nothing advances the first two."""
        return {"epoch": self._epoch, "sample_idx": self._sample_idx, "total_sequences": len(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The epoch and `sample_idx` are read back, and never used."""
        self._epoch, self._sample_idx = state["epoch"], state["sample_idx"]


class StreamingHuggingFaceDataset:
    """A stream of which this rank takes every `world_size`-th document; it reads and drops the others.

    The state does not hold the tokens in the buffer: a resumed stream differs. Each iteration is one epoch; what is
    left in the buffer at its end is discarded, so ranks give different numbers of samples (`pairmill.loader.TextStream`
    does neither).

    Args:
        dataset: a `datasets.IterableDataset`, or the name of one.
        tokenizer: as for `pairmill.loader.text.eager`.
        seq_len: slots of a sample.
        eos_token_id: the id that ends a document; None becomes 0.
        text_field, split, config: which column, split and configuration.
        rank, world_size: of the data-parallel group.
        seed: with the epoch added, that of the shuffle.
        shuffle_buffer_size: documents that are shuffled together.
        pack_sequences: as for `MemoryMappedDataset`.
    """

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        seq_len: int,
        *,
        eos_token_id: int | None,
        text_field: str = "text",
        split: str = "train",
        config: str | None = None,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 42,
        shuffle_buffer_size: int = 10_000,
        pack_sequences: bool = False,
    ) -> None:
        self._dataset = open_dataset(dataset, config, split, text_field, streaming=True)
        self._encode = batch_encoder(tokenizer)
        self._length, self._eos, self._packed = seq_len + 1, eos_token_id or 0, pack_sequences
        self._field, self._rank, self._world_size = text_field, rank, world_size
        self._seed, self._buffer = seed, shuffle_buffer_size
        self._epoch = self._docs_consumed = self._docs_to_skip = 0

    def __iter__(self) -> Iterator[Sample]:
        skip, self._docs_to_skip = self._docs_to_skip, 0
        self._docs_consumed = skip
        rows = shuffled(self._dataset, self._seed + self._epoch, self._buffer)
        mine = islice(rows, self._rank + skip * self._world_size, None, self._world_size)
        documents = tokenize_documents(mine, self._encode, self._eos, self._field, Mark(self._epoch, skip))
        for chunk in cut_chunks(documents, self._length, self._length):
            self._docs_consumed = chunk.last.document + 1
            yield _Windows([chunk.tokens], self._length, self._eos if self._packed else None)[0]
        self._epoch += 1
        self._docs_consumed = 0

    def state_dict(self) -> dict[str, int]:
        """`{epoch, rank_docs_consumed}`."""
        return {"epoch": self._epoch, "rank_docs_consumed": self._docs_consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration skips this many of the rank's documents, and begins with an empty buffer."""
        self._epoch = state["epoch"]
        self._docs_consumed = self._docs_to_skip = state["rank_docs_consumed"]


class MixtureDataset:
    """Data sets one after another; `dataset_idx` of a sample is the number of its data set."""

    def __init__(self, datasets: Sequence[Source]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = [0, *accumulate(map(len, self.datasets))]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} out of range for a mixture of {len(self)} samples")
        source = bisect_right(self.cumulative_sizes, index) - 1
        return {**self.datasets[source][index - self.cumulative_sizes[source]], "dataset_idx": source}

    def state_dict(self) -> dict[str, Any]:
        """`dataset_<i>`: the state of data set i."""
        return {f"dataset_{number}": dataset.state_dict() for number, dataset in enumerate(self.datasets)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for number, dataset in enumerate(self.datasets):
            dataset.load_state_dict(state[f"dataset_{number}"])


def _raw(path: Path) -> NDArray[Any]:
    return np.memmap(path, np.uint16 if path.stat().st_size % 4 else np.uint32, "r")
