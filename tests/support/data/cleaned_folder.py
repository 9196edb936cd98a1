"""A finished folder of cleaned rows, written by hand: Parquet tasks, and what is known of their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.digest import digest_bytes
from pairmill.engine.manifest import File, Ledger, Manifest, fingerprint_from

ABOUT = {
    "licence": "CC-BY-4.0",
    "origin": "https://example.org/some.zip",
    "revision": "1",
    "citation": "A. Nobody. 2026",
}


def put_rows(folder: Path, tasks: dict[str, int], about: dict[str, Any] = ABOUT, **extra: bytes) -> Path:
    """Write a finished folder of cleaned rows: Parquet tasks with so many rows, and other files by path."""
    contents: dict[str, tuple[bytes, str]] = {path.replace("__", "/"): (data, "") for path, data in extra.items()}
    for name, count in tasks.items():
        sink = pa.BufferOutputStream()
        texts = [f"{name} {number}" for number in range(count)]
        columns = {"instruction": texts, "response": texts[::-1], "condition": ["direct"] * count}
        pq.write_table(pa.table({key: pa.array(values, pa.string()) for key, values in columns.items()}), sink)
        contents[f"data/{name}.parquet"] = (sink.getvalue().to_pybytes(), f"{name}.parquet")
    files = []
    for path, (data, task) in sorted(contents.items()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        files.append(File(path, len(data), digest_bytes(data), task))
    rows = sum(tasks.values())
    sources = {name: {"about": about, "ledger": {"rows_in": count}} for name, count in tasks.items()}
    fingerprint = fingerprint_from([[file.path, file.digest] for file in files])
    data = {"outputs": {f"data/{name}.parquet": count for name, count in tasks.items()}, "sources": sources}
    Manifest("clean", 1, fingerprint, {}, [], Ledger(rows, rows, rows), files, data=data).finish(str(folder))
    return folder
