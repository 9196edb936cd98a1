"""Token rows as chunks that LitData streams. The library itself writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from litdata.streaming.writer import BinaryWriter

from pairmill import storage
from pairmill.engine.manifest import canonical
from pairmill.engine.writer import Writer
from pairmill.export.parts import IGNORED, Counts, Exported, Part

_CHUNK: Final = 64 << 20
"""Bytes of a chunk, about."""
_INDEX: Final = "index.json"


def write_litdata(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write a part as chunks, and an index of these."""
    with TemporaryDirectory() as folder:
        to = BinaryWriter(folder, chunk_bytes=_CHUNK)
        for batch in part.read(counts):
            ids = batch.ids.astype(np.int32)
            labels = np.where(batch.trained(), ids, np.int32(IGNORED))
            for row, (start, stop) in enumerate(
                zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)
            ):
                to.add_item(counts.rows + row, {"input_ids": ids[start:stop], "labels": labels[start:stop]})
            counts.rows, counts.tokens = counts.rows + len(batch), counts.tokens + len(ids)
        to.done()
        to.merge()
        index = json.loads((Path(folder) / _INDEX).read_bytes()) if counts.rows else {"chunks": []}
        for number, chunk in enumerate(index["chunks"]):
            name = f"{part.name}-{number:05}.bin"
            with out.create(f"{part.split}/{name}") as local:
                local.write_bytes((Path(folder) / chunk["filename"]).read_bytes())
            chunk["filename"] = name
    out.write(f"{part.split}/parts/{part.name}.json", canonical(index))


def describe_litdata(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write the index of each split."""
    for split, parts in exported.splits().items():
        uris = [storage.join(out.folder, split, "parts", f"{part.name}.json") for part in parts]
        indices = [json.loads(storage.store_for(uri).read(uri)) for uri in uris]
        chunks = [chunk for index in indices for chunk in index["chunks"]]
        config = next((index["config"] for index in indices if "config" in index), None)
        # A time in it would make two exports differ.
        out.write(f"{split}/{_INDEX}", canonical({"chunks": chunks, "config": config, "updated_at": "0"}))
    return {"front": "", "load": 'litdata.StreamingDataset("train")'}
