"""Tokenize on a bucket against the same on files; the S3 server of the tests takes of this machine's cores."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path

import bench_stages
import measure

ROUNDS = 5
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


def main() -> None:
    """By itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = measure.corpus(folder)
        bench(bench_stages.bench_all(rows, folder), rows, folder)


if __name__ == "__main__":
    main()
