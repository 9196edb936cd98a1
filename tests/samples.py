"""Sampled folders of random rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.tokens import INDEX

Pairs = Sequence[tuple[int, int]]


def sampled(
    folder: Path,
    epochs: Sequence[Pairs],
    *,
    dtype: Any = np.uint16,
    index: Any = np.int32,
    seed: int = 0,
    ids: int = 500,
    **metadata: Any,
) -> Path:
    """Write a folder whose epochs have rows of these (instruction, response) lengths; tokens are random."""
    random = np.random.default_rng(seed)
    size = sum(sum(pair) for rows in epochs for pair in rows)
    folder.mkdir(parents=True)
    np.save(folder / "tokens.npy", random.integers(1, min(ids, np.iinfo(dtype).max), size).astype(dtype))
    start = 0
    for number, rows in enumerate(epochs):
        lengths = np.array(rows, np.int64).reshape(-1, 2)
        ends = start + np.cumsum(lengths)
        starts = (ends - lengths.ravel()).reshape(-1, 2)
        start = int(ends[-1]) if len(ends) else start
        arrays = dict(zip(INDEX, (starts[:, 0], lengths[:, 0], starts[:, 1], lengths[:, 1]), strict=True))
        (folder / f"epoch_{number}").mkdir()
        for name, array in arrays.items():
            np.save(folder / f"epoch_{number}" / f"{name}.npy", array.astype(index))
    longest = max((sum(pair) for rows in epochs for pair in rows), default=1)
    content = {
        "tokenizer_info": {"boq": "<q>", "vocab_size": ids},
        "vocab_size": None,
        "max_seq_len": longest,
        "total_length": size // max(1, len(epochs)),
        "epochs": len(epochs),
        **metadata,
    }
    (folder / "metadata.json").write_text(json.dumps({name: value for name, value in content.items() if value != ...}))
    return folder


def arrays(folder: Path, epoch: int = 0) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Tokens, and the index arrays of an epoch."""
    index = [np.load(folder / f"epoch_{epoch}" / f"{name}.npy").astype(np.int64) for name in INDEX]
    return np.load(folder / "tokens.npy"), index


def lengths(folder: Path, epoch: int = 0) -> NDArray[np.int64]:
    """Inputs of each row."""
    _, (_, inst_len, _, resp_len) = arrays(folder, epoch)
    return inst_len + resp_len - 1
