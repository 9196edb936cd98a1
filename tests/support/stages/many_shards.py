"""A round of very many shards, whose records are made up.

    python -m tests.support.stages.many_shards plan COUNT           # plans it, with a record of each shard, and goes on
    python -m tests.support.stages.many_shards resume COUNT CACHE   # looks up what `fill` has put there

Prints JSON: seconds, those of the processor, bytes of the process at its peak and before, and how many shards are done.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.blocks import Blocks
from pairmill.engine.listing import BLOCKS, RECORD
from pairmill.engine.manifest import File, Ledger, Manifest, canonical, seal
from pairmill.engine.options import StageConfig, option
from pairmill.engine.runner import _Job, first_round
from pairmill.engine.shards import Todo
from pairmill.engine.stage import Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.report.model import Report
from tests.support.stages.curate_rounds import peak

CACHE = "s3://a-bucket-of-some-length/projects/a-project/many/shards"
ATTEMPT = "0123456789abcdef"


def digest(text: str) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class One(Shard[Any], reads=()):
    """As a shard that reads a slice of a file is."""

    uri: str
    digest: str
    first: int

    def run(self, context: Any, out: Writer) -> ShardResult:
        raise NotImplementedError


@dataclass(kw_only=True)
class ManyConfig(StageConfig):
    """A round of many shards."""

    count: int = option(help="how many", changes_bytes=False)


class Many(Stage[ManyConfig, StagePlan[Any]]):
    """As many shards as the options say."""

    name: ClassVar[str] = "many"
    version: ClassVar[int] = 1
    config = ManyConfig

    def plan(self, config: ManyConfig) -> StagePlan[Any]:
        return StagePlan(inputs=[], build_context=list)

    def rounds(self, config: ManyConfig, plan: Any) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        records = yield [
            One(
                f"s3://a-bucket-of-some-length/rows/part-{number:07}.parquet",
                "blake3:" + digest(f"slice {number}"),
                0,
                name=f"data_clustered__set__part-{number:07}.parquet 000000000000",
                size=64 << 20,
            )
            for number in range(config.count)
        ]
        rows = sum(record.ledger.rows_in for record in records)
        yield [One("", "", rows, name="sums")]

    def report(self, manifest: Manifest) -> Report:
        raise NotImplementedError


def record(shard: Shard[Any], cache: str) -> ShardRecord:
    """What the shard would have committed: a file of three bytes."""
    files = [File("rows.bin", 3, "blake3:" + digest(shard.name))]
    data = {"rows": 62_500, "size": 1_000_000}
    return ShardRecord(shard.name, shard.key, cache, ledger=Ledger(3, 3, 3), files=files, data=data, attempt=ATTEMPT)


def fill(cache: Path, count: int, blocks: int | None = None) -> None:
    """Put all records and files there, as a run that was killed would have; so many of the records are in blocks."""
    shards = first_round(Many(), ManyConfig(root="r", count=count))
    index = Blocks(str(cache), shards)
    for number, shard in enumerate(shards):
        made = record(shard, str(cache))
        home = cache / shard.key
        (home / ATTEMPT).mkdir(parents=True)
        _write(home / ATTEMPT / "rows.bin", b"row")
        said = {"ledger": asdict(made.ledger), "files": [file.to_json() for file in made.files], "data": made.data}
        _write(home / RECORD, seal(canonical({**said, "scratch": [], "folder": ATTEMPT})))
        if blocks is None or number < blocks:
            index.add(shard, made)
    index.flush()
    for path in cache.with_name(BLOCKS).glob("*/*"):
        _write(path, path.read_bytes())


def _write(path: Path, data: bytes) -> None:
    """As versitygw writes an object."""
    path.write_bytes(data)
    os.setxattr(path, "user.etag", f'"{hashlib.md5(data).hexdigest()}"'.encode())


def main() -> None:
    """Plan or resume, and print what it took."""
    kind, count = sys.argv[1], int(sys.argv[2])
    before, start, began = peak(), time.perf_counter(), time.process_time()
    if kind == "plan":
        run = _Job(Many(), ManyConfig(root=CACHE.rsplit("/", 2)[0], count=count))
        assert run.shards is not None
        made = [record(shard, run.cache) for shard in run.shards]
        run.next_round(made)
        done = len(run.rounds[0])
    else:
        cache = sys.argv[3]
        shards = first_round(Many(), ManyConfig(root="r", count=count))
        storage.store_for(cache).exists(f"{cache}/x")
        start, began = time.perf_counter(), time.process_time()
        done = len(Todo.look_up(shards, cache, verify=False, blocks=Blocks(cache, shards)).done)
    took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - began}
    print(json.dumps({**took, "before": before, "peak": peak(), "done": done}))


if __name__ == "__main__":
    main()
