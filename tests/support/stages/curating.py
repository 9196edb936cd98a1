"""Small rows for curate, and what a run made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.formats import rows
from pairmill.formats.rows import Row, writer_for
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate

Rows = Sequence[tuple[str, str, str]]
_SAID = (
    "river stone amber window garden market signal bridge copper meadow lantern harbour velvet thunder orchard pepper "
    "saddle mirror candle forest ribbon anchor winter basket planet violin feather glacier canyon temple"
)
WORDS = _SAID.split()


def text(seed: int, words: int = 40) -> str:
    """A text that shares few word triples with those of other seeds."""
    return " ".join(WORDS[(seed * 7 + at * (seed % 5 + 3) + at * at * (seed + 1)) % len(WORDS)] for at in range(words))


def write(folder: Path, files: Mapping[str, Rows]) -> Path:
    """Write row files; the extension says the format."""
    for path, some in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file, writer_for(path, file) as writer:
            writer.write([Row(*one) for one in some])
    return folder


def settings(folder: Path, said: str) -> str:
    """A settings file; returns its path."""
    path = folder / "settings.yaml"
    path.write_text(said)
    return str(path)


def curate(root: Path, given: Path | Sequence[Path], said: str = "", **options: Any) -> Path:
    """Run the stage in this process; returns the finished folder."""
    root.mkdir(parents=True, exist_ok=True)
    places = [given] if isinstance(given, Path) else given
    config = CurateConfig(
        rows=[str(one) for one in places],
        root=str(root),
        curate_config=settings(root, said),
        workers=options.pop("workers", 1),
        **options,
    )
    return Path(runner.run(Curate(), config).uri)


def manifest(folder: Path) -> Manifest:
    """Of a finished folder."""
    path = folder / "_MANIFEST.json"
    return Manifest.load(path.read_bytes(), str(path))


def kept(folder: Path, path: str) -> list[tuple[str, str, str]]:
    """The rows of a file."""
    return [
        row
        for batch in rows.read(str(folder / path))
        for row in zip(
            *(column.to_pylist() for column in (batch.condition, batch.instruction, batch.response)), strict=True
        )
    ]


def decisions(folder: Path, operation: str, task: str) -> list[dict[str, Any]]:
    """The decisions of an operation on a task's rows, without the empty columns."""
    path = folder / "decisions" / operation / f"{task}.parquet"
    if not path.exists():
        return []
    return [
        {name: value for name, value in one.items() if value is not None} for one in pq.read_table(path).to_pylist()
    ]


def attributes(folder: Path, operation: str, task: str) -> pa.Table:
    """The attributes of a task's kept rows."""
    return pq.read_table(folder / "attributes" / operation / f"{task}.parquet")


def shards(root: Path, stage: str = "curate") -> dict[str, int]:
    """Time of change of every shard's record, by key."""
    found = (root / stage / "shards").glob("*/_RECORD.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


def lines(path: Path) -> list[dict[str, str]]:
    """The objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
