"""Objects to a bucket and back, against obstore; tokenize on a bucket against the same on files.

The S3 server of the tests takes of this machine's cores. ``OBSTORE`` is a Python with obstore 0.12.1.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import bench_stages
import measure

ROUNDS = 5
MOVED = 128 << 20
"""Bytes of each object of the comparison with obstore."""
COPIES, FILES = 10, 14


def bench(tokenizer: Path, rows: Path, folder: Path) -> None:
    """Print seconds of both, start-up included, and their ratio."""
    from pairmill import storage
    from tests.support.objectstores.servers import S3Server

    table = bench_stages._table(rows)
    size = bench_stages._megabytes(table) * COPIES
    given = folder / "stored"
    bench_stages._write(table, given, COPIES, FILES)
    seconds: dict[str, list[float]] = {"files": [], "rows": [], "both": []}
    cpu: dict[str, list[float]] = {name: [] for name in seconds}
    fingerprints = set()
    with S3Server(folder / "server") as server:
        os.environ.update(server.environment())
        bucket = server.bucket()
        store = storage.store_for(bucket)
        for path in given.iterdir():
            store.copy(str(path), f"{bucket}/rows/{path.name}")
        for turn in range(ROUNDS):
            places = {
                "files": (given, folder / "local"),
                "rows": (f"{bucket}/rows", folder / "local-too"),
                "both": (f"{bucket}/rows", f"{bucket}/root-{turn}"),
            }
            for name, (source, root) in places.items():
                done = measure.stage(
                    "tokenize", f"rows={source}", f"tokenizer={tokenizer}", f"root={root}", "workers=1"
                )
                seconds[name].append(done.seconds)
                cpu[name].append(done.cpu)
                fingerprints.add(done.out.rsplit("/", 1)[-1])
            shutil.rmtree(folder / "local")
            shutil.rmtree(folder / "local-too")
            for entry in store.list(f"{bucket}/root-{turn}"):
                store.delete(f"{bucket}/root-{turn}/{entry.path}")
    shutil.rmtree(given)

    def line(name: str, kind: str) -> tuple[str, ...]:
        used = cpu[kind]
        more = f"{statistics.median(used) / statistics.median(cpu['files']) - 1:+.0%}"
        return (name, measure.spread(seconds[kind], ".2f"), measure.spread(used, ".2f"), more)

    measure.table(
        f"tokenize, one worker, {size:.0f} MB of text in {FILES} files, median of {ROUNDS} (from to)",
        "|seconds|CPU seconds of our process|",
        [
            line("rows and arrays on files", "files"),
            line("rows on S3, arrays on files", "rows"),
            line(f"both on S3; same fingerprints: {'yes' if len(fingerprints) == 1 else 'NO'}", "both"),
        ],
    )


def bench_bytes(folder: Path) -> None:
    """Print CPU seconds a gigabyte, of our process and of one with obstore in our place."""
    from tests.support.objectstores.servers import S3Server

    script, source = str(Path(__file__).with_name("peer_store.py")), folder / "moved"
    source.write_bytes(os.urandom(MOVED))
    sides = {"pairmill": sys.executable} | ({"obstore": os.environ["OBSTORE"]} if "OBSTORE" in os.environ else {})
    used: dict[str, dict[str, list[float]]] = {name: {} for name in ("up", "down", "digest")}
    with S3Server(folder / "bytes") as server:
        os.environ.update(server.environment())
        bucket = server.bucket()
        for _ in range(ROUNDS):
            for what, values in used.items():
                for side, python in sides.items():
                    done = measure.run([python, script, side, what, bucket, str(source)])
                    values.setdefault(side, []).append(float(done.out))
    measure.table(
        f"CPU seconds of the process for a gigabyte of objects of {MOVED >> 20} MiB, median of {ROUNDS} (from to)",
        "|".join(["", *sides, ""]),
        [
            (what, *(measure.spread(times, ".2f") for times in values.values()), _times(values))
            for what, values in used.items()
        ],
    )


def _times(values: dict[str, list[float]]) -> str:
    return measure.ratio(values["pairmill"], values["obstore"]) if "obstore" in values else ""


def main() -> None:
    """By itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_bytes(folder)
        rows = measure.corpus(folder)
        bench(bench_stages.bench_all(rows, folder), rows, folder)


if __name__ == "__main__":
    main()
