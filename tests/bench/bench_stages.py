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
COPIES = 30


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
    """Print the time and memory of Parquet to npy on one core, and how they grow with the file."""
    table = _table(rows)
    size = _megabytes(table)
    given = {name: folder / name for name in ("one", "ten")}
    _write(table, given["one"], 1)
    _write(table, given["ten"], TIMES)
    alone: dict[str, list[float]] = {"one": [], "ten": [], "wheel": [], "work": []}
    peaks: dict[str, list[float]] = {"one": [], "ten": []}
    same = set()
    with measure.one_core():
        for _ in range(ROUNDS):
            for name in ("one", "ten"):
                done, digest = _tokenize(given[name], tokenizer, folder / "once", 1)
                alone[name].append(done.seconds)
                peaks[name].append(done.peak)
                if name == "one":
                    same.add(digest)
            out = folder / "wheel"
            script = Path(__file__).with_name("peer_tokenize.py")
            peer = measure.run([sys.executable, str(script), str(given["one"]), str(tokenizer), str(out)])
            alone["wheel"].append(peer.seconds)
            alone["work"].append(json.loads(peer.out)["work"])
            same.add(_digest(out))
            shutil.rmtree(out)
    equal = "yes" if len(same) == 1 else "NO"
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


def bench_cores(tokenizer: Path, rows: Path, folder: Path) -> None:
    """Print how much less tokenize takes on two cores, for many files and for one."""
    if len(os.sched_getaffinity(0)) < 2:
        return
    table = _table(rows)
    lines = []
    for name, files in (("files", COPIES), ("file", 1)):
        given = folder / f"cores-{files}"
        _write(table, given, COPIES, files)
        seconds: dict[int, list[float]] = {1: [], 2: []}
        digests = set()
        for _ in range(ROUNDS):
            for workers, values in seconds.items():
                done, digest = _tokenize(given, tokenizer, folder / "once", workers)
                values.append(done.seconds)
                digests.add(digest)
        shutil.rmtree(given)
        one, two = (f"{spread(values, '.2f')} s" for values in seconds.values())
        lines.append((f"{files} {name}", one, two, ratio(seconds[1], seconds[2]), "yes" if len(digests) == 1 else "NO"))
    measure.table(
        f"tokenize, {_megabytes(table) * COPIES:.0f} MB of text, median of {ROUNDS} (from to)",
        "|1 worker|2 workers||same arrays",
        lines,
    )


def _table(rows: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(rows.glob("*.parquet")))


def _megabytes(table: pa.Table) -> float:
    return sum(measure.megabytes(table[name].combine_chunks().cast(pa.large_string())) for name in TEXTS)


def _write(table: pa.Table, folder: Path, copies: int, files: int = 1) -> None:
    """So many copies of the rows, no two alike, in so many files."""
    folder.mkdir()
    for file in range(files):
        with pq.ParquetWriter(folder / f"rows-{file:02}.parquet", table.schema) as writer:
            for copy in range(file * copies // files, (file + 1) * copies // files):
                writer.write_table(_turned(table, copy), row_group_size=10_000)


def _tokenize(given: Path, tokenizer: Path, root: Path, workers: int) -> tuple[measure.Run, str]:
    """One run from nothing, and a digest of its arrays. What it wrote is removed, not written to the disk later."""
    done = stage("tokenize", f"rows={given}", f"tokenizer={tokenizer}", f"root={root}", f"workers={workers}")
    digest = _digest(Path(done.out))
    shutil.rmtree(root)
    return done, digest


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


def _digest(folder: Path) -> str:
    """Of the values of all tasks' arrays."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*/*.npy")):
        values = np.load(path, mmap_mode="r")
        digest.update(f"{path.parent.name} {path.stem} {values.dtype} {values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()
