"""Joins the files of a task that shards wrote in parts; they are not decoded (docs/decisions/0039)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final

from pairmill import storage
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import parquet_join
from pairmill.formats.parquet import number_row_groups

PARTS_FROM: Final = 1 << 30
"""Bytes of text of a Parquet file that is written in parts; a smaller one takes a few seconds."""


@dataclass(frozen=True)
class JoinParts(Shard[object], reads=()):
    """Joins the files of a task.

    Args:
        task: its name.
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
            path = parts[0].path
            with out.create(path, task=self.task if path == self.rows else "") as local:
                with local.open("wb") as file:
                    parquet_join.join(_opened(parts), file)
                if path == self.rows:
                    number_row_groups(local)
        return ShardResult(Ledger())


def _opened(parts: Sequence[ShardFile]) -> Iterator[AbstractContextManager[BinaryIO]]:
    for part in parts:
        yield storage.store_for(part.uri).open(part.uri)
