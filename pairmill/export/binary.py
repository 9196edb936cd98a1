"""Token rows as files of ids: indexed data sets of Megatron-LM, and flat files with tatm's ``metadata.yaml``."""

import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from pairmill import storage
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.export.parts import Counts, Exported, Part, task_of
from pairmill.formats.token_files import HEADER, MAGIC, TYPES

_MEGATRON_UINT16: Final = 65_500
"""Megatron-LM takes uint16 for vocabularies below this, and int32 for others."""


def _dtype(exported: Exported, wide: str) -> np.dtype[Any]:
    return np.dtype("<u2" if 0 < exported.vocab_size < _MEGATRON_UINT16 else wide)


def write_megatron(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write a part as ``.bin`` and ``.idx``; each row is a sequence and a document."""
    dtype, place = _dtype(exported, "<i4"), 0
    code = next(code for code, kind in TYPES.items() if np.dtype(kind) == dtype)
    path = f"{part.split}/{part.name}"
    with ExitStack() as stack:
        created = (out.create(name, task=task_of(name, part)) for name in (f"{path}.bin", f"{path}.idx"))
        local, index = (stack.enter_context(file) for file in created)
        ids = stack.enter_context(local.open("wb"))
        # The three arrays of the index grow side by side: with a hundred million rows they are too large to hold.
        head = HEADER.pack(MAGIC, 1, code, part.rows, part.rows + 1)
        index.write_bytes(head)
        starts = np.cumsum([len(head), 4 * part.rows, 8 * part.rows]).tolist()
        lengths, places, documents = (stack.enter_context(_opened(index, start)) for start in starts)
        for batch in part.read(counts):
            ids.write(batch.ids.astype(dtype).data)
            sizes = np.diff(batch.offsets)
            lengths.write(sizes.astype("<i4").data)
            places.write(((place + batch.offsets[:-1]) * dtype.itemsize).astype("<i8").data)
            documents.write(np.arange(counts.rows, counts.rows + len(batch), dtype="<i8").data)
            place, counts.rows, counts.tokens = (
                place + len(batch.ids),
                counts.rows + len(batch),
                counts.tokens + len(batch.ids),
            )
        documents.write(struct.pack("<q", counts.rows))


def _opened(path: Path, start: int) -> BinaryIO:
    file = path.open("r+b")
    file.seek(start)
    return file


def describe_megatron(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write ``<split>.txt``: weights and prefixes as ``--data-path`` takes them, in proportion to tokens."""
    tokens = {record["path"]: record["tokens"] for record in records}
    for split, parts in exported.splits().items():
        paths = [f"{split}/{part.name}" for part in parts]
        out.write(f"{split}.txt", " ".join(f"{tokens[path]} {path}" for path in paths).encode() + b"\n")
    return {"front": "", "load": "--data-path $(cat train.txt), in this folder"}


def write_flat(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write the ids of a part one after another, and beside them which are trained on, one byte each."""
    with ExitStack() as stack:
        local = (
            stack.enter_context(out.create(f"{part.split}/{kind}/{part.name}.bin")) for kind in ("tokens", "masks")
        )
        ids, masks = (stack.enter_context(path.open("wb")) for path in local)
        for batch in part.read(counts):
            # Four bytes an id: readers that are not told the type take files of such sizes for uint32.
            ids.write(batch.ids.astype("<u4").data)
            masks.write(batch.trained().data)
            counts.rows, counts.tokens = counts.rows + len(batch), counts.tokens + len(batch.ids)


def describe_flat(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write tatm's metadata of each split, which names places: a flat folder that was moved is exported again."""
    place = storage.local_path(out.folder) if storage.scheme(out.folder) == "file" else None
    if place is None:
        hint = "write to a folder of this machine, where tatm and KempnerForge read it"
        raise UsageError("flat files name their place", where="output", got=out.folder, hint=hint)
    for split in exported.splits():
        tokens = {
            "tokenizer": str(place / "tokenizer.json"),
            "file_prefix": str(place / split / "tokens") + "/",
            "dtype": "uint32",
            "file_extension": "bin",
            "vocab_size": exported.vocab_size or None,
        }
        values = {
            "name": f"{exported.stage or 'tokens'}-{exported.fingerprint}-{split}",
            "dataset_path": str(place / split),
            "description": "Token rows, exported by pairmill",
            "date_downloaded": "",
            "download_source": "pairmill",
            "data_content": "text",
            "content_field": "text",
            "tokenized_info": tokens,
        }
        out.write(f"{split}/metadata.yaml", _yaml(values).encode())
    return {"front": "", "load": f'tatm.data.get_dataset("{next(iter(exported.splits()), "train")}", context_length=…)'}


def _yaml(values: Mapping[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{name}:\n{_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)
