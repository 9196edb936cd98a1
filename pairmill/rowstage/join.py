"""Joins the files of a task that shards wrote in parts; they are not decoded (docs/decisions/0039)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import parquet_join
from pairmill.formats.parquet import numbered

PARTS_FROM: Final = 1 << 30
"""Bytes of text of a Parquet file that is written in parts; a smaller one takes a few seconds."""


@dataclass(frozen=True)
class JoinParts(Shard[object], reads=()):
    """Joins the files of a task.

    Args:
        rows: path of the file with the rows; the others are beside it.
        files: of each file its parts, in order.
    """

    work = "join parts of files"

    task: str
    rows: str
    files: tuple[tuple[ShardFile, ...], ...]

    @classmethod
    def from_records(cls, task: str, rows: str, parts: Sequence[ShardRecord]) -> JoinParts:
        """Make the shard that joins what these shards wrote, each of which wrote the same files."""
        files = tuple(tuple(part.file(file.path) for part in parts) for file in parts[0].files)
        size = sum(part.size for some in files for part in some)
        return cls(task, rows, files, name=f"join {task}", size=size)

    def run(self, context: object, out: Writer) -> ShardResult:
        for parts in self.files:
            path, is_rows = parts[0].path, parts[0].path == self.rows
            pieces = parquet_join.join([part.uri for part in parts], numbered if is_rows else bytes)
            out.join(path, pieces, task=self.task if is_rows else "")
        return ShardResult(Ledger())
