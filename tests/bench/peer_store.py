"""Moves large objects to an S3 server and back, by pairmill or by obstore; prints CPU seconds a gigabyte.

python tests/bench/peer_store.py pairmill|obstore up|down|digest s3://bucket <file>
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OBJECTS = 4
PART, BLOCK, AT_ONCE = 8 << 20, 4 << 20, 4
"""Those of pairmill/storage."""


def by_pairmill(bucket: str, source: Path) -> dict[str, Callable[[int], object]]:
    """What is measured, by its name, for an object's number."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from pairmill import storage

    store = storage.store_for(bucket)
    # The first call of each kind, which loads modules, does not count.
    store.write(f"{bucket}/first", b"bytes")
    store.digest(f"{bucket}/first")

    def down(number: int) -> None:
        with store.open(f"{bucket}/{number}") as file:
            while file.read(1 << 20):
                pass

    return {
        "up": lambda number: store.copy(str(source), f"{bucket}/{number}"),
        "down": down,
        "digest": lambda number: store.digest(f"{bucket}/{number}"),
    }


def by_obstore(bucket: str, source: Path) -> dict[str, Callable[[int], object]]:
    """The same with the same parts, requests at once and checksums; a digest is a stream that nobody digests."""
    from obstore.store import S3Store  # type: ignore[import-not-found,unused-ignore]

    store = S3Store(
        bucket.partition("://")[2],
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        config={"checksum_algorithm": "SHA256"},
    )
    list(store.list())

    def down(number: int) -> None:
        starts = range(0, source.stat().st_size, BLOCK)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda start: store.get_range(str(number), start=start, length=BLOCK), starts):
                pass

    def stream(number: int) -> None:
        for _ in store.get(str(number)).stream(min_chunk_size=1 << 20):
            pass

    return {
        "up": lambda number: store.put(
            str(number), source, use_multipart=True, chunk_size=PART, max_concurrency=AT_ONCE
        ),
        "down": down,
        "digest": stream,
    }


def cpu() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print one number."""
    side, what, bucket, file = sys.argv[1:]
    source = Path(file)
    work = (by_pairmill if side == "pairmill" else by_obstore)(bucket, source)[what]
    before = cpu()
    for number in range(OBJECTS):
        work(number)
    print((cpu() - before) / (OBJECTS * source.stat().st_size / 1e9))


if __name__ == "__main__":
    main()
