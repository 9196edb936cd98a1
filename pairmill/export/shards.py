"""Token rows as shards that Mosaic's streaming library reads (MDS). The library itself writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from streaming import MDSWriter

from pairmill import storage
from pairmill.engine.manifest import canonical
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.export.parts import IGNORED, Counts, Exported, Part

_COLUMNS: Final = {"input_ids": "ndarray:int32", "labels": "ndarray:int32"}
_INDEX: Final = "index.json"


def write_mds(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write a part as a folder of shards with an index of its own."""
    if exported.kind != "tokens":
        raise UsageError("shards are of tokens", where="to", got="mds", hint="tokenize the rows, and export that")
    with TemporaryDirectory() as folder:
        with MDSWriter(columns=_COLUMNS, out=folder) as to:
            for batch in part.read(counts):
                ids = batch.ids.astype(np.int32)
                labels = np.where(batch.trained(), ids, np.int32(IGNORED))
                for start, stop in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
                    to.write({"input_ids": ids[start:stop], "labels": labels[start:stop]})
                counts.rows, counts.tokens = counts.rows + len(batch), counts.tokens + len(ids)
        for path in sorted(Path(folder).iterdir()):
            with out.create(f"{part.split}/{part.name}/{path.name}") as local:
                local.write_bytes(path.read_bytes())


def describe_mds(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write an index of each split, which names the shards of its parts."""
    files = {file["path"] for record in records for file in record["files"]}
    for split, parts in exported.splits().items():
        shards, version = [], 2
        for part in parts:
            path = f"{split}/{part.name}/{_INDEX}"
            if path not in files:  # no row, no shard
                continue
            uri = storage.join(out.folder, *path.split("/"))
            index = json.loads(storage.store_for(uri).read(uri))
            version = index["version"]
            for shard in index["shards"]:
                raw = {**shard["raw_data"], "basename": f"{part.name}/{shard['raw_data']['basename']}"}
                shards.append({**shard, "raw_data": raw})
        out.write(f"{split}/{_INDEX}", canonical({"version": version, "shards": shards}))
    return {"front": "", "load": 'streaming.StreamingDataset(local="train", batch_size=…)'}
