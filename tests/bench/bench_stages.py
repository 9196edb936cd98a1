"""The stages as their users start them: seconds, memory, a file against one ten times as large, one core against two.

The peer of tokenize is peer_tokenize.py, the same job by the wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import TEXTS, ratio, spread, stage

ROUNDS = 3
TIMES = 10


def bench_all(rows: Path, folder: Path) -> Path:
    """Print seconds, MB/s and peak memory of every stage with one worker; returns the tokenizer's file."""
    raw = folder / "raw" / "gsm8k_train"
    raw.mkdir(parents=True)
    size = 0
    with (raw / "train.jsonl").open("w", encoding="utf-8") as out:
        for path in sorted(rows.glob("*.parquet")):
            for row in pq.read_table(path, columns=list(TEXTS)).to_pylist():
                answer = row["response"].replace("#### ", "")
                pair = {"question": row["instruction"], "answer": f"#### {answer}"}
                out.write(json.dumps(pair, ensure_ascii=False) + "\n")
                size += len(row["instruction"].encode()) + len(answer.encode())
    root = f"root={folder / 'root'}"
    lines = []

    def line(name: str, *arguments: str) -> str:
        done = stage(name, *arguments)
        lines.append((name, f"{done.seconds:.2f}", f"{size / 1e6 / done.seconds:.0f}", f"{done.peak:.0f}"))
        return done.out

    line("clean", f"raw={raw.parent}", root, "workers=1", "max_reject_fraction=1")
    tokenizer = line("train_tokenizer", f"rows={rows}", root, "workers=1")
    tokens = line("tokenize", f"rows={rows}", f"tokenizer={tokenizer}", root, "workers=1")
    line("sample", f"tokenized_path={tokens}", f"output_path={folder / 'sampled'}", "epochs=4")
    measure.table(f"stages, one worker, {size / 1e6:.0f} MB of text", "stage|seconds|MB/s|peak MiB", lines)
    return Path(tokenizer) / "tokenizer.json"


def bench_tokenize(tokenizer: Path, rows: Path, folder: Path) -> None:
    """Print what tokenize takes for Parquet to npy, and how that grows with the file and shrinks with cores."""
    files = {"one": folder / "one" / "rows.parquet", "ten": folder / "ten" / "rows.parquet"}
    table = pa.concat_tables(pq.read_table(path) for path in sorted(rows.glob("*.parquet")))
    for name, times in (("one", 1), ("ten", TIMES)):
        files[name].parent.mkdir()
        with pq.ParquetWriter(files[name], table.schema) as writer:
            for copy in range(times):
                writer.write_table(_turned(table, copy), row_group_size=10_000)
    size = sum(measure.megabytes(table[name].combine_chunks().cast(pa.large_string())) for name in TEXTS)

    def ours(name: str, workers: int) -> tuple[measure.Run, str]:
        """One run from nothing, and a digest of its arrays. What it wrote is removed, not written to the disk later."""
        root = folder / "once"
        arguments = (f"rows={files[name].parent}", f"tokenizer={tokenizer}", f"workers={workers}")
        done = stage("tokenize", *arguments, f"root={root}")
        digest = _digest(Path(done.out) / files[name].name)
        shutil.rmtree(root)
        return done, digest

    alone: dict[str, list[float]] = {"one": [], "ten": [], "wheel": [], "work": []}
    peaks: dict[str, list[float]] = {"one": [], "ten": []}
    same = []
    with measure.one_core():
        for _ in range(ROUNDS):
            for name in ("one", "ten"):
                done, digest = ours(name, 1)
                alone[name].append(done.seconds)
                peaks[name].append(done.peak)
                if name == "one":
                    same.append(digest)
            out = folder / "wheel"
            script = Path(__file__).with_name("peer_tokenize.py")
            peer = measure.run([sys.executable, str(script), str(files["one"].parent), str(tokenizer), str(out)])
            alone["wheel"].append(peer.seconds)
            alone["work"].append(json.loads(peer.out)["work"])
            same.append(_digest(out / files["one"].name))
            shutil.rmtree(out)
    equal = "yes" if len(set(same)) == 1 else "NO"
    # What nine more copies take, by copy: nothing of it is start-up.
    more = [(ten - one) / (TIMES - 1) for one, ten in zip(alone["one"], alone["ten"], strict=True)]

    def line(name: str, values: list[float], *others: str) -> tuple[str, ...]:
        return (name, spread(values, ".2f"), f"{size / statistics.median(values):.0f}", *others)

    measure.table(
        f"Parquet to npy, one core, {size:.0f} MB of text in one file, median of {ROUNDS} (from to)",
        "|seconds|MB/s|pairmill|same arrays",
        [
            line("tokenize, start-up included", alone["one"], "", ""),
            line("tokenizers 0.22.2, start-up included", alone["wheel"], ratio(alone["wheel"], alone["one"]), equal),
            line(f"tokenize, by what {TIMES} times the text take more than once", more, "", ""),
            line("tokenizers 0.22.2, start-up not counted", alone["work"], ratio(alone["work"], more), equal),
        ],
    )
    measure.table(
        "peak memory of tokenize, one worker",
        f"{size:.0f} MB|{TIMES} times as large|",
        [(*(f"{spread(values, '.0f')} MiB" for values in peaks.values()), ratio(peaks["ten"], peaks["one"]))],
    )
    if len(os.sched_getaffinity(0)) < 2:
        return
    cores: dict[int, list[float]] = {1: [], 2: []}
    digests = set()
    for _ in range(ROUNDS):
        for workers, values in cores.items():
            done, digest = ours("ten", workers)
            values.append(done.seconds)
            digests.add(digest)
    equal = "yes" if len(digests) == 1 else "NO"
    measure.table(
        f"tokenize, one file of {size * TIMES:.0f} MB of text, median of {ROUNDS} (from to)",
        "1 worker|2 workers||same arrays",
        [(*(f"{spread(values, '.2f')} s" for values in cores.values()), ratio(cores[1], cores[2]), equal)],
    )


def _turned(table: pa.Table, copy: int) -> pa.Table:
    """The rows with other texts of the same words: each text's words turned by so many places."""

    def turn(text: str) -> str:
        words = text.split(" ")
        place = copy % len(words)
        return " ".join(words[place:] + words[:place])

    if not copy:
        return table
    columns: Iterator[pa.Array] = (
        pa.array([turn(text) for text in table[name].to_pylist()], table.schema.field(name).type)
        if name in TEXTS
        else table[name]
        for name in table.schema.names
    )
    return pa.table(list(columns), schema=table.schema)


def _digest(task: Path) -> str:
    """Of the values of a task's five arrays."""
    digest = hashlib.sha256()
    for name in ("tokens", "inst_start", "inst_len", "resp_start", "resp_len"):
        values = np.load(task / f"{name}.npy", mmap_mode="r")
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()
