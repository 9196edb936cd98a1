"""Files of a task that shards wrote in parts, put together by a last shard without decoding them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final

from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import parquet_join
from pairmill.formats.parquet import number_row_groups

PARTS_FROM: Final = 1 << 30
"""Bytes of text of a Parquet file that is written in parts; a smaller one takes a few seconds."""


@dataclass(frozen=True)
class JoinParts(HandKeyed[object]):
    """Puts together the files of a task that shards wrote in parts.

    Args:
        task: its name.
        parts: URI of each part's folder.
        paths: of the files that each part has.
        rows: which of them has the rows, if one has.
    """

    work = "join parts of files"

    task: str
    parts: tuple[str, ...]
    paths: tuple[str, ...]
    rows: str

    @classmethod
    def of(cls, stage: str, version: int, task: str, parts: Sequence[ShardRecord], rows: str = "") -> JoinParts:
        """The shard for all parts of a task, in order; the stage's name and a version of its own are in the key."""
        paths = tuple(file.path for file in parts[0].files)
        key = content_key(f"{stage} join", version, [one.key for one in parts], paths)
        size = sum(file.size for one in parts for file in one.files)
        what = "rows" if rows else "attributes"
        return cls(f"join {what} {task}", key, size, task, tuple(one.folder for one in parts), paths, rows)

    def run(self, context: object, out: Writer) -> ShardResult:
        for path in self.paths:
            with out.create(path, task=self.task if path == self.rows else "") as local:
                with local.open("wb") as file:
                    parquet_join.join(self._opened(path), file)
                if path == self.rows:
                    number_row_groups(local)
        return ShardResult(Ledger())

    def _opened(self, path: str) -> Iterator[AbstractContextManager[BinaryIO]]:
        for folder in self.parts:
            uri = storage.join(folder, *path.split("/"))
            yield storage.store_for(uri).open(uri)
