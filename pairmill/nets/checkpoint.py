"""A checkpoint of a run, as it is read: ``<folder>/<step, eight digits>/``, whose ``_RECORD.json`` was written last.

The record has sizes and digests of all files, dtypes and shapes of the tensors, and what the run recorded of itself. A
part has rows of every tensor, so a reader on any number of ranks takes the rows that it needs. A folder without a
record, or whose files differ from it, is not a checkpoint. Nothing is pickled. See docs/decisions/0041-checkpoints.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.errors import InputError
from pairmill.nets.tensor_file import Kind, Reader
from pairmill.nets.trained import RECORD

FIRST: Final = "first_rows"
"""The key of a part's metadata that has the number of its first row of each tensor."""

Rows = tuple[Tensor, int]
"""Rows of a tensor, and the number of the first within the whole."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        step: that it was saved after.
        folder: URI.
        says: what the run recorded of itself (JSON-like).
        files: all files but the record.
        tensors: dtype and whole shape, by name.
    """

    step: int
    folder: str
    says: Mapping[str, Any]
    files: tuple[File, ...]
    tensors: Mapping[str, Kind]

    @classmethod
    def from_record(cls, folder: str, raw: Mapping[str, Any]) -> Checkpoint:
        """Make it of the content of a record."""
        tensors = {name: Kind.parse(kind) for name, kind in raw["tensors"].items()}
        files = tuple(File.from_json(file) for file in raw["files"])
        return cls(int(storage.name_of(folder)), folder, raw["says"], files, tensors)

    @classmethod
    def open(cls, folder: str, where: str) -> Checkpoint:
        """Open a folder and compare its files with the record. Raises InputError, which names ``where``, if it differs.

        Digests are compared of local files alone: an object store vouches for its objects.
        """
        data, _ = read_record(folder)
        if data is not None:
            checkpoint = cls.from_record(folder, json.loads(data))
            verify = storage.scheme(folder) == "file"
            if not manifests.find_damage(folder, checkpoint.files, verify=verify):
                return checkpoint
        raise InputError("a checkpoint is damaged", where=where, hint="take an earlier one")

    def read(self, name: str) -> bytes:
        """Read a whole file, e.g. ``tokenizer.json``. Raises InputError if it differs from the record."""
        known = {file.path: file for file in self.files}
        uri = storage.join(self.folder, name)
        if name not in known:
            raise InputError("not a file of the checkpoint", where=uri, expected=", ".join(known))
        data = storage.store_for(uri).read(uri)
        if digest_bytes(data, known[name].digest) != known[name].digest:
            raise InputError("differs from its checkpoint's record", where=uri, hint="go on from an earlier checkpoint")
        return data

    @property
    def parts(self) -> list[str]:
        """Names of the files that have tensors."""
        return [file.path for file in self.files if file.path.endswith(".safetensors")]

    def load(self, tensors: Mapping[str, Tensor], take: Callable[[Tensor], Rows] | None = None) -> None:
        """Fill tensors in place; one tensor at a time is in memory besides.

        Args:
            tensors: by name.
            take: gives the rows of a tensor that are wanted, as of a sharded one; None = all.

        Raises:
            InputError: a tensor is not in the checkpoint, or has another shape or dtype; a part is damaged.
        """
        for name, tensor in tensors.items():
            kind, mine = self.tensors.get(name), Kind.from_tensor(tensor)
            if kind != mine:
                raise InputError(
                    "the checkpoint does not fit the net",
                    where=f"{self.folder}: {name}",
                    got=str(kind) if kind else "no such tensor",
                    expected=str(mine),
                    hint="was another net, size or optimizer configured?",
                )
        wanted = {name: take(tensor) if take else (tensor.detach(), 0) for name, tensor in tensors.items()}
        missing = {name: len(rows) if rows.ndim else 1 for name, (rows, _) in wanted.items() if rows.numel()}
        with torch.no_grad():
            for path in self.parts:
                with self.open_part(path) as reader:
                    for name, rows, first in _find_common(reader, wanted):
                        rows.copy_(reader.rows(name, first, len(rows)) if rows.ndim else reader.rows(name))
                        missing[name] -= len(rows) if rows.ndim else 1
        if short := [name for name, rows in missing.items() if rows]:
            raise InputError("rows of a tensor are missing", where=self.folder, got=f"{short[0]}, {len(short)} in all")

    @contextmanager
    def open_part(self, path: str) -> Iterator[Reader]:
        """Open one of the files that have tensors."""
        uri = storage.join(self.folder, path)
        with storage.store_for(uri).open(uri) as file:
            yield Reader(file, uri)


def read_record(folder: str) -> tuple[str | None, str]:
    """Return the text of the folder's record if it is whole, and else what is wrong with it."""
    uri = storage.join(folder, RECORD)
    if not storage.store_for(uri).exists(uri):
        return None, "it was not finished"
    try:
        data = storage.store_for(uri).read(uri).decode()
        raw = json.loads(data)
        digest = raw.pop("digest")
        whole = digest == digest_record(raw)
        Checkpoint.from_record(folder, raw)
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    return (data, "") if whole else (None, f"{RECORD} is damaged")


def digest_record(raw: Mapping[str, Any]) -> str:
    """Return the digest that a record has of its other content."""
    return hashlib.sha256(manifests.canonical(raw)).hexdigest()


def _find_common(reader: Reader, wanted: Mapping[str, Rows]) -> Iterator[tuple[str, Tensor, int]]:
    """Yield what a part has of the wanted rows: name, the wanted rows that it has, the first of them in the part."""
    firsts = json.loads(reader.metadata.get(FIRST, "{}"))
    for name, (rows, first) in wanted.items():
        if name not in reader.kinds or not rows.numel():
            continue
        if not rows.ndim:
            yield name, rows, 0
            continue
        has = firsts.get(name, 0)
        start, end = max(first, has), min(first + len(rows), has + reader.kinds[name].shape[0])
        if start < end:
            yield name, rows[start - first : end - first], start - has
