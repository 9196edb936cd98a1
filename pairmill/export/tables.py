"""Tables for the ``datasets`` library: Parquet, JSON Lines of chats with tools, and folders that it maps (Arrow)."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import DatasetInfo, Features

from pairmill.engine.manifest import canonical
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.export.parts import IGNORED, Counts, Exported, Part, TokenBatch, task_of

TOKENS: Final = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("attention_mask", pa.list_(pa.int8())), ("labels", pa.list_(pa.int32()))]
)
"""The label of a prompt's token is -100, that of any other its own id: trainers shift them."""
LARGEST: Final = 512 << 20
"""Bytes of a file of rows, beyond which another one is begun."""
_SUBSETS: Final = 100
"""Data sets beyond which a folder has no subset for each."""


def write_parquet(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write a part as Parquet, or as JSON Lines where messages have tools; in several files if it is large."""
    batches, number = _batches(part, counts), 0
    largest = LARGEST if exported.schema is not None else sys.maxsize
    batch = next(batches, None)
    while batch is not None or not number:
        path = _path(exported, part, number)
        with out.create(path, task=task_of(path, part)) as local, local.open("wb") as file, ExitStack() as stack:
            put = _put_lines(file) if exported.chats else _put_table(exported, file, stack)
            empty = file.tell()
            while batch is not None and (file.tell() < largest or file.tell() == empty):
                put(batch)
                batch = next(batches, None)
        number += 1


def _put_lines(file: BinaryIO) -> Callable[[Any], object]:
    def put(batch: Any) -> None:
        lines = batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
        file.write(b"".join(_line(item) for item in lines))

    return put


def _put_table(exported: Exported, file: BinaryIO, stack: ExitStack) -> Callable[[Any], object]:
    put: Callable[[Any], object]
    put = stack.enter_context(pq.ParquetWriter(file, _schema(exported), compression="zstd")).write_batch
    return put


def _line(item: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in item.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _path(exported: Exported, part: Part, number: int) -> str:
    # Parts of tokens are of a size that was asked for; how large texts are is seen as they are written.
    more = f"-{number:05}" if exported.schema is not None else ""
    return f"data/{part.split}/{part.name}{more}.{'jsonl' if exported.chats else 'parquet'}"


def _schema(exported: Exported) -> pa.Schema:
    return TOKENS if exported.schema is None else exported.schema


def _batches(part: Part, counts: Counts) -> Iterator[Any]:
    for batch in part.read(counts):
        counts.rows += len(batch)
        if isinstance(batch, TokenBatch):
            counts.tokens += len(batch.ids)
            yield as_table(batch)
        else:
            yield batch


def as_table(batch: TokenBatch) -> pa.RecordBatch:
    """Return token rows as ids, attention mask and labels."""
    ids = batch.ids.astype("i4")
    labels = ids.copy()
    labels[~batch.trained()] = IGNORED
    values = pa.array(ids), pa.array(np.ones(len(ids), np.int8)), pa.array(labels)
    offsets = pa.array(batch.offsets.astype("i4"))
    return pa.RecordBatch.from_arrays([pa.ListArray.from_arrays(offsets, each) for each in values], schema=TOKENS)


def describe_parquet(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the front matter's subsets: all of it, and each data set where these are few."""
    sources = sorted({part.source for part in exported.parts} - {""})
    written = {record["path"]: [file["path"] for file in record["files"]] for record in records}
    subsets = {"default": exported.splits()}
    if 1 < len(sources) <= _SUBSETS:
        for source in sources:
            mine = {split: [it for it in parts if it.source == source] for split, parts in exported.splits().items()}
            subsets[source] = {split: parts for split, parts in mine.items() if parts}
    lines = ["configs:"]
    for name, splits in subsets.items():
        lines += [f"- config_name: {json.dumps(name)}", "  data_files:"]
        for split, parts in splits.items():
            named = [path for part in parts for path in written[f"{split}/{part.name}"]]
            paths = [f"data/{split}/*"] if name == "default" else named
            lines += [f"  - split: {split}", "    path:", *(f"    - {json.dumps(path)}" for path in paths)]
    return {"front": "\n".join(lines), "load": 'datasets.load_dataset("<this folder>")'}


# Folders that ``datasets.load_from_disk`` maps


def write_arrow(exported: Exported, part: Part, out: Writer, counts: Counts) -> None:
    """Write a part as a stream of Arrow."""
    if exported.chats:
        raise UsageError("messages with tools have no columns", where="to", got="arrow", hint="write to=datasets")
    path = f"{part.split}/{part.name}.arrow"
    with (
        out.create(path) as local,
        pa.OSFile(str(local), "wb") as file,
        pa.ipc.new_stream(file, _schema(exported)) as to,
    ):
        for batch in _batches(part, counts):
            to.write_batch(batch)


def describe_arrow(exported: Exported, out: Writer, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write what says which files are a split."""
    out.write("dataset_dict.json", canonical({"splits": list(exported.splits())}))
    info = DatasetInfo(features=Features.from_arrow_schema(_schema(exported)))
    for split, parts in exported.splits().items():
        state: dict[str, Any] = {
            "_data_files": [{"filename": f"{part.name}.arrow"} for part in parts],
            "_fingerprint": exported.fingerprint,
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": split,
        }
        out.write(f"{split}/state.json", json.dumps(state, indent=2).encode())
        out.write(f"{split}/dataset_info.json", json.dumps(_described(info), indent=2).encode())
    return {"front": "", "load": 'datasets.load_from_disk("<this folder>")'}


def _described(info: DatasetInfo) -> dict[str, Any]:
    return {"features": info.features.to_dict(), "citation": "", "description": "", "homepage": "", "license": ""}
