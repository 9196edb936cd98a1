"""Every figure of speed and memory against the named peers in one run: ``make bench``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import bench_clean
import bench_encode
import bench_loader
import bench_sample
import bench_stages
import bench_storage
import bench_train
import measure


def main() -> None:
    """Print everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = measure.corpus(folder)
        tokenizer = bench_stages.bench_all(rows, folder)
        bench_encode.bench(tokenizer, rows, folder)
        bench_stages.bench_tokenize(tokenizer, rows, folder)
        bench_stages.bench_cores(tokenizer, rows, folder)
        bench_storage.bench_bytes(folder)
        bench_storage.bench(tokenizer, rows, folder)
        bench_train.bench(rows)
        bench_sample.bench(folder / "sample")
    bench_loader.bench()
    bench_clean.main()


if __name__ == "__main__":
    main()
