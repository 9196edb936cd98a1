"""Runs the rounds of near deduplication in this process, as a stage would."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine.keys import identify
from pairmill.engine.manifest import content_key
from pairmill.engine.rounds import with_keys
from pairmill.engine.shards import Todo, run_shard
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.formats import rows as row_files
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.stages.curate.near.core import NearFound, NearInput, NearSlice, rounds

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """What the rounds found: decisions by task, costs, and the names of shards that ran, by round."""

    tasks: dict[str, pa.Table]
    costs: dict[str, int]
    ran: list[list[str]]
    found: NearFound

    def removed(self) -> set[tuple[str, int]]:
        """Task and ordinal of each removed row."""
        return {key for key, (action, *_) in self.evidence().items() if action == "drop"}

    def evidence(self) -> dict[tuple[str, int], tuple[str, str, str, int]]:
        """For each row with a decision: action, rule, and the other row."""
        return {
            (task, row["ordinal"]): (row["action"], row["rule"], row["other_task"], row["other_ordinal"])
            for task, table in self.tasks.items()
            for row in table.to_pylist()
        }


def slices_of(path: Path, task: str = "", *, group_bytes: int = 0, fixed: bool = False) -> list[NearSlice]:
    """The slices of a file; ``group_bytes`` is the size of a slice, 0 = one slice."""
    whole = FileSlice(task or path.name, str(path), size=path.stat().st_size)
    parts = Slicing(group_bytes, open_from=0).cut(whole) if group_bytes else [whole]
    total = row_files.count(str(path))
    ends = [*(part.first for part in parts[1:]), total]
    key = content_key(path.read_bytes().hex())
    return [NearSlice(part, end - part.first, key, fixed) for part, end in zip(parts, ends, strict=True)]


def run(given: NearInput, cache: str, *, shares: int = 1) -> Found:
    """Run all rounds; shares of a round run one after another, each planned from the records alone."""
    ran: list[list[str]] = []
    found = run_rounds(rounds(given), cache, ran, shares=shares)
    return Found({task: one.read() for task, one in found.tasks.items()}, found.costs, ran, found)


def run_rounds(
    generator: Generator[Sequence[Shard[Any]], list[ShardRecord], T], cache: str, ran: list[list[str]], shares: int = 1
) -> T:
    """Run rounds, and return what they return; ``ran`` gets the names of the shards that were run in each."""
    keyed = with_keys(generator, lambda shard: content_key(type(shard).__name__, identify(shard, ())))
    shards: Sequence[Shard[Any]] = next(keyed)
    while True:
        names: list[str] = []
        for share in range(shares):
            for shard in Todo.look_up(shards[share::shares], cache, verify=False).left:
                run_shard("near", shard, None, cache)()
                names.append(shard.name)
        ran.append(names)
        records = Todo.look_up(shards, cache, verify=False).records()
        try:
            shards = keyed.send(records)
        except StopIteration as end:
            result: T = end.value
            return result


def table_bytes(table: pa.Table) -> bytes:
    """The bytes of a table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())
