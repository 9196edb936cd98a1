"""Puts a plan's arrays into a local folder: hidden while it is written, renamed when it is whole.

``<parent>/.<name>.<fingerprint>.partial`` is locked by its writer. A folder that stands at the target already is
replaced only if pairmill wrote it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample.config import SampleConfig
from components.sample.plan import TaskRows, epochs
from pairmill import manifest as manifests
from pairmill import partials, storage
from pairmill.errors import InputError, UsageError
from pairmill.log import event
from pairmill.manifest import MANIFEST, File, Manifest
from pairmill.tokens import INDEX, Ints, NpyWriter, Task, gather

NAME = "sample"


def target_of(output_path: str) -> Path:
    """The local folder that ``output_path`` names.

    Raises:
        UsageError: it is no local path, or not one that could be a folder of its own.
    """
    if storage.scheme(output_path) != "file":
        raise UsageError(
            "is no local folder", where="output_path", got=output_path, expected="a path, such as /dev/shm/sampled"
        )
    target = storage.local_path(storage.normalise(output_path, "output_path"))
    if target.parent == target:
        raise UsageError(
            "is the top of the file system", where="output_path", got=output_path, expected="a folder of its own"
        )
    return target


def finished(target: Path, fingerprint: str) -> Manifest | None:
    """The manifest of a whole folder with this fingerprint at the target, else None.

    Raises:
        UsageError: something that pairmill did not write stands there.
    """
    if not target.exists() and not target.is_symlink():
        return None
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        return None
    if not (target / MANIFEST).is_file():
        raise UsageError(
            "something that pairmill did not write stands there",
            where=f"output_path={target}",
            hint="remove it or choose another output_path",
        )
    try:
        raw = json.loads((target / MANIFEST).read_bytes())
        stage, made = raw["stage"], raw["fingerprint"]
    except (ValueError, TypeError, KeyError):
        # Cut or emptied: ours if the arrays are beside it, and then made again.
        arrays = (target / "tokens.npy").is_file() and (target / "metadata.json").is_file()
        stage, made = NAME if arrays else "", fingerprint
    if stage != NAME:
        raise UsageError("is no sampled folder", where=f"output_path={target}", hint="choose another output_path")
    return manifests.whole(str(target)) if made == fingerprint else None


@contextmanager
def partial_folder(target: Path, fingerprint: str) -> Iterator[Path]:
    """An empty hidden folder beside the target, held by a lock; another writer of the same plan waits here.

    It is removed when the block ends, unless the block has renamed it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.{fingerprint}.partial")

    def make() -> tuple[int, Path]:
        path.mkdir(exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY), path

    handle, _ = partials.hold(make)
    try:
        _empty(path)
        yield path
    finally:
        if partials.names(path, handle):
            shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def commit(partial: Path, target: Path) -> None:
    """Put the folder in its place. Where one stands already the two change places in one step, and the old one goes.

    Processes that map the old one keep its pages.
    """
    if target.is_dir() and any(target.iterdir()):
        if not _exchange(partial, target):
            aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
            os.rename(target, aside)
            os.rename(partial, target)
            partial = aside
        shutil.rmtree(partial, ignore_errors=True)
    else:
        os.rename(partial, target)


def _exchange(one: Path, other: Path) -> bool:
    # renameat2(2) with RENAME_EXCHANGE; Python has no name for it, and not every file system can do it.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    at_fdcwd, exchange = -100, 2
    done: int = renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), exchange)
    return done == 0


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def sweep(target: Path) -> None:
    """Remove the hidden folders that killed writers left beside the target."""
    ours = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.partial$")
    beside = target.parent.iterdir() if target.parent.is_dir() else ()
    folders = (path for path in beside if ours.match(path.name) and path.is_dir() and not path.is_symlink())
    for path in partials.sweep(folders):
        event(f"sample: removed {path}, left by a run that was killed")


def token_dtype(vocab_size: object, config: SampleConfig) -> np.dtype[Any]:
    """The smallest dtype for ids below ``vocab_size``; data_io compares the size itself, so 65,536 costs four bytes."""
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        return np.dtype(np.int32)
    largest = vocab_size if config.profile == "data_io" else vocab_size - 1
    if largest <= 0xFF:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if largest <= 0xFFFF else np.dtype(np.int32)


class Layout:
    """Where each task's rows stand in the sampled ``tokens.npy``.

    data_io keeps every token in its place; the default profile keeps the sampled rows only, task by task in row order,
    instruction before response, without what was cut off.
    """

    def __init__(self, tasks: list[TaskRows], config: SampleConfig) -> None:
        self.starts: list[tuple[Ints, Ints]] = []
        self.spans: list[tuple[Ints, Ints]] = []
        base = 0
        for task in tasks:
            if config.profile == "data_io":
                self.starts.append((task.inst_start + base, task.resp_start + base))
                self.spans.append((np.zeros(1, np.int64), np.array([task.length], np.int64)))
                base += task.length
                continue
            used = task.coverage > 0
            sizes = np.where(used, task.inst_len + task.resp_len, 0)
            inst = base + np.cumsum(sizes) - sizes
            self.starts.append((inst, inst + task.inst_len))
            chosen = np.flatnonzero(used)
            # Spans in file order are read in one sweep; foreign folders need not have rows in order, which is slower.
            self.spans.append(
                (
                    np.column_stack([task.inst_start[chosen], task.resp_start[chosen]]).ravel(),
                    np.column_stack([task.inst_len[chosen], task.resp_len[chosen]]).ravel(),
                )
            )
            base += int(sizes.sum())
        self.length = base


def write(
    folder: Path,
    sources: list[Task],
    tasks: list[TaskRows],
    info: dict[str, Any],
    config: SampleConfig,
) -> list[File]:
    """Write ``tokens.npy``, ``epoch_<e>/*.npy`` and ``metadata.json``; returns the files with their digests.

    The tasks' coverage must be that of all epochs: it says which rows are written.
    """
    layout = Layout(tasks, config)
    dtype = token_dtype(info.get("vocab_size"), config)
    with NpyWriter(folder / "tokens.npy", dtype.type) as out:
        for source, spans in zip(sources, layout.spans, strict=True):
            for piece in gather(storage.join(source.uri, "tokens.npy"), *spans):
                _check_ids(piece, info.get("vocab_size"), source, config)
                out.append(piece.astype(dtype))
    inst_len = _flat([task.inst_len for task in tasks])
    resp_len = _flat([task.resp_len for task in tasks])
    inst_start = _flat([start for start, _ in layout.starts])
    resp_start = _flat([start for _, start in layout.starts])
    first = np.cumsum([0, *(len(task) for task in tasks)])
    used = 0
    for number, epoch in enumerate(epochs(tasks, config)):
        rows = first[epoch.task] + epoch.row
        path = folder / f"epoch_{number}"
        path.mkdir()
        for name, values in zip(INDEX, (inst_start, inst_len, resp_start, resp_len), strict=True):
            with NpyWriter(path / f"{name}.npy", np.int64) as out:
                out.append(values[rows])
        used += int(inst_len[rows].sum() + resp_len[rows].sum())
    metadata: dict[str, Any] = {
        "tokenizer_info": info,
        # Null in either profile: HRM-Text's loader asserts it, and takes the size from tokenizer_info.
        "vocab_size": None,
        "max_seq_len": config.context_size,
        "total_length": round(used / config.epochs),
    }
    if config.profile == "pairmill":
        metadata["epochs"] = config.epochs
        metadata["truncated_rows"] = sum(task.truncated for task in tasks)
    text = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    (folder / "metadata.json").write_text(text, encoding="utf-8")
    return [_file(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _flat(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _file(folder: Path, path: Path) -> File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path.relative_to(folder).as_posix(), path.stat().st_size, digest)


def _check_ids(piece: NDArray[Any], vocab_size: object, source: Task, config: SampleConfig) -> None:
    # The reference casts without a look, and ids of a larger vocabulary wrap in silence.
    if config.profile == "pairmill" and isinstance(vocab_size, int) and len(piece) and int(piece.max()) >= vocab_size:
        raise InputError(
            "a token is outside the vocabulary",
            where=source.uri,
            got=str(int(piece.max())),
            expected=f"below {vocab_size}, the vocab_size of tokenizer_info.json",
            hint="tokenize again",
        )
