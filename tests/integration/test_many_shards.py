"""A round of very many shards in a bucket that answers late and fails at times; tests/long/test_scale.py has more."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pairmill.engine.listing import BLOCKS, RECORD
from tests.support.helpers import REPOSITORY
from tests.support.objectstores.proxy import Fault, FaultProxy, Request
from tests.support.objectstores.servers import S3Server
from tests.support.stages import many_shards

SLOW = (Fault("latency", seconds=0.04), Fault("status", 0.001, status=503))
"""20 ms on average, and one failure in 1,000."""


def measure(*arguments: object, **environment: str) -> dict[str, Any]:
    """What ``tests.support.stages.many_shards`` prints, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.stages.many_shards", *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def resumed(folder: Path, count: int, blocks: int | None = None) -> tuple[dict[str, Any], list[Request]]:
    """Look up so many finished shards, of which so many are in blocks; return what it took, and the requests."""
    with S3Server(folder) as server:
        uri = server.bucket()
        # To this server a bucket is a folder.
        many_shards.fill(folder / "buckets" / uri.removeprefix("s3://") / "many" / "shards", count, blocks)
        with FaultProxy(server, faults=SLOW) as proxy:
            return measure("resume", count, f"{uri}/many/shards", **proxy.environment()), proxy.requests


def kinds(requests: list[Request]) -> Counter[str]:
    """Requests by what they ask for."""
    found: Counter[str] = Counter()
    for request in requests:
        url = urlsplit(request.target)
        place = (
            "list" if "list-type" in url.query else "block" if f"/{BLOCKS}/" in url.path else url.path[-len(RECORD) :]
        )
        found[f"{request.method} {place}"] += 1
    return found


def test_finished_shards_are_looked_up_by_lists_and_blocks(tmp_path: Path) -> None:
    found, requests = resumed(tmp_path, 3_000)
    asked = kinds(requests)
    assert found["done"] == 3_000
    assert asked[f"GET {RECORD}"] == asked[f"HEAD {RECORD}"] == 0
    assert 3 <= asked["GET block"] <= 4
    # A page has 1,000 objects, of which a shard has two here; each first digit has a list of its own.
    assert asked["GET list"] <= 16 + 6 + 4
    assert len(requests) < 40


def test_what_is_in_no_block_is_read_alone_and_put_into_one(tmp_path: Path) -> None:
    found, requests = resumed(tmp_path, 1_500, 1_300)
    asked = kinds(requests)
    assert found["done"] == 1_500
    assert 200 <= asked[f"GET {RECORD}"] <= 210  # one in 1,000 is refused, and asked again
    assert asked["PUT block"] == 1


def test_a_planned_shard_and_its_record_take_a_kilobyte() -> None:
    found = measure("plan", 40_000)
    assert found["done"] == 40_000
    assert (found["peak"] - found["before"]) / 40_000 < 1_200
