"""Sampled folders of random rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.formats.tokens import INDEX

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


def lognormal(
    rows: int, *, mean: int = 297, most: int = 4096, share: tuple[float, float] = (0.25, 0.75), seed: int = 0
) -> NDArray[np.int64]:
    """Instruction and response lengths, [rows, 2], of rows whose inputs are lognormal: sigma 1, clipped at ``most``.

    The instruction has a share of them, from one to another alike. By default its work is as uneven, by tokens alone,
    as was said of the original: 1.3 on 8 ranks, 1.55 on 64.
    """
    random = np.random.default_rng(seed)
    inputs = np.clip(random.lognormal(np.log(mean) - 0.5, 1, rows), 3, most).astype(np.int64)
    instructions = np.maximum((inputs * random.uniform(*share, rows)).astype(np.int64), 1)
    return np.stack([instructions, inputs - instructions + 1], 1)


def overlapping(folder: Path, rows: int, *, most: int = 4096) -> Path:
    """Write a folder of one epoch of lognormal rows that takes 16 bytes a row: texts lie anywhere in a few tokens."""
    random = np.random.default_rng(0)
    tokens = random.integers(1, 65_536, 4_000_000, dtype=np.uint16)
    starts = random.integers(0, len(tokens) - most, (2, rows), dtype=np.int32)
    lengths = lognormal(rows, most=most).T.astype(np.int32)
    epoch = folder / "epoch_0"
    epoch.mkdir(parents=True)
    np.save(folder / "tokens.npy", tokens)
    for name, array in zip(INDEX, (starts[0], lengths[0], starts[1], lengths[1]), strict=True):
        np.save(epoch / f"{name}.npy", array)
    total = int(lengths.sum(dtype=np.int64))
    info = {"vocab_size": 65_536}
    content = {"tokenizer_info": info, "vocab_size": None, "max_seq_len": most + 1, "total_length": total, "epochs": 1}
    (folder / "metadata.json").write_text(json.dumps(content))
    return recorded(folder)


def recorded(folder: Path) -> Path:
    """Add the manifest that pairmill's sampler leaves, so that no file is hashed; its digests are made up."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [File(path.relative_to(folder).as_posix(), path.stat().st_size, "0" * 64) for path in paths]
    Manifest("sample", 1, "0" * 16, {}, [], Ledger(), files).finish(str(folder))
    return folder


def costs(instructions: NDArray[np.int64], responses: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Of rows: inputs, inputs², and what attention with bidirectional prefixes works (twice that)."""
    queries = responses - 1
    length = instructions + queries
    return length, length**2, 2 * instructions * length + queries**2
