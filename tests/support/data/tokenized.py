"""Tokenized folders, as other programs and as tokenize make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.digest import digest_bytes
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest, fingerprint_from
from pairmill.formats.tokens import DTYPES, INFO

INFO_OF_ALL = {"boq": "<q>", "eoq": "</q>", "eoa": "</a>", "condition_mapping": {"cot": "<cot>"}, "vocab_size": 99}


def put_task(folder: Path, seed: int, rows: int = 5) -> None:
    """Write the arrays of a task; another seed gives other tokens."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, 9, (rows, 2))
    ends = np.cumsum(lengths.sum(1))
    starts = ends - lengths.sum(1)
    arrays = {
        "tokens": draw.integers(0, 99, int(ends[-1]) if rows else 0),
        "inst_start": starts,
        "inst_len": lengths[:, 0],
        "resp_start": starts + lengths[:, 0],
        "resp_len": lengths[:, 1],
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values.astype(DTYPES[name]))


def put_folder(
    folder: Path, tasks: Mapping[str, int], info: Mapping[str, Any] = INFO_OF_ALL, *, rows: int = 5, tokenizer: str = ""
) -> str:
    """Write a tokenized folder of these tasks, by the seeds of their tokens; with ``tokenizer`` a finished one."""
    folder.mkdir(parents=True)
    (folder / INFO).write_text(json.dumps(info))
    for name, seed in tasks.items():
        put_task(folder / name, seed, rows)
    if tokenizer:
        files = [
            File(
                path.relative_to(folder).as_posix(),
                path.stat().st_size,
                digest_bytes(path.read_bytes()),
                path.parent.name if path.parent != folder else "",
            )
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        ]
        count = rows * len(tasks)
        fingerprint = fingerprint_from([[item.path, item.digest] for item in files])
        refs = [InputRef("tokenizer", tokenizer)]
        Manifest("tokenize", 1, fingerprint, {}, refs, Ledger(count, count, count), files).finish(str(folder))
    return str(folder)
