"""The sampler against the reference's method in numpy (peer_sample.py): wall time, memory beside the output, bytes.

1.5 million rows and 300 million tokens in 20 tasks, 4 epochs; as the published mix caps them, so that about one row in
five is used, and whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
from measure import ratio, spread

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.formats.tokens import INDEX

TASKS, ROWS, MEAN, EPOCHS = 20, 1_500_000, 200, 4
ROUNDS = 5
MIXES = {"one row in five": f"- prefix: set\n  max_per_file: {ROWS // TASKS // 5 // EPOCHS}\n", "all rows": "[]\n"}


class Made(NamedTuple):
    """A process that has made a sample: seconds, peak MiB that are not the output's pages, megabytes of output."""

    seconds: float
    peak: float
    size: float


def tokenized(folder: Path) -> int:
    """Write a tokenized folder with the manifest that ours have; returns its tokens."""
    draw = np.random.default_rng(0)
    files, total = [], 0
    for number in range(TASKS):
        count = ROWS // TASKS
        lengths = np.clip(draw.lognormal(np.log(MEAN / 2) - 0.5, 1, (count, 2)), 1, 2000).astype(np.int64)
        inst, resp = lengths[:, 0], lengths[:, 1] + 1
        ends = np.cumsum(inst + resp)
        path = folder / f"set{number % 5}__task{number:02}.parquet"
        path.mkdir(parents=True)
        arrays = {"tokens": draw.integers(0, 65_536, int(ends[-1]), dtype=np.uint32)}
        arrays |= dict(zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True))
        for name, values in arrays.items():
            np.save(path / f"{name}.npy", values if name == "tokens" else values.astype(np.uint64))
            file = path / f"{name}.npy"
            with file.open("rb") as made:
                digest = hashlib.file_digest(made, "sha256").hexdigest()
            files.append(File(f"{path.name}/{file.name}", file.stat().st_size, digest, path.name))
        total += int(ends[-1])
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 65_536}))
    manifests.finish(str(folder), Manifest("tokenize", 1, "0" * 16, {}, [], Ledger(ROWS, ROWS, ROWS), files))
    return total


def run(command: list[str], out: Path) -> Made:
    """Run a program that writes to ``out``, which is memory; its pages there are not counted as the program's."""
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=measure.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _beside(process.pid))
        time.sleep(0.002)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{process.stderr.read().decode() if process.stderr else ''}")
    return Made(seconds, peak / 1024, sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6)


def _beside(pid: int) -> int:
    """KiB of a process's memory that are no pages of a tmpfs."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    values = {name: int(text.split()[0]) for name, _, text in (line.partition(":") for line in lines) if "kB" in text}
    return values.get("RssAnon", 0) + values.get("RssFile", 0)


def digests(folder: Path) -> dict[str, str]:
    """What the arrays hold."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.npy"))
    }


def bench(folder: Path) -> None:
    """Print the tables."""
    given = folder / "tokenized"
    total = tokenized(given)
    memory = Path(tempfile.mkdtemp(prefix="pairmill-bench-", dir="/dev/shm"))
    try:
        for mix, rules in MIXES.items():
            path = folder / "rules.yaml"
            path.write_text(rules)
            _compare(mix, given, path, memory / "out", total)
    finally:
        shutil.rmtree(memory, ignore_errors=True)


def _compare(mix: str, given: Path, rules: Path, out: Path, total: int) -> None:
    def ours(**options: object) -> list[str]:
        values = {"tokenized_path": given, "output_path": out, "prefix_config_path": rules, "epochs": EPOCHS, **options}
        return [sys.executable, "-m", "components.sample", *(f"{key}={value}" for key, value in values.items())]

    peer = [sys.executable, str(Path(__file__).with_name("peer_sample.py")), str(given), str(rules), str(out)]
    run([*peer, str(EPOCHS)], out)
    theirs = digests(out)
    run(ours(profile="data_io"), out)
    same = "yes" if digests(out) == theirs else "NO"
    sides = {"the reference's method": [*peer, str(EPOCHS)], "pairmill": ours()}
    found: dict[str, list[Made]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, command in sides.items():
            found[name].append(run(command, out))

    def values(name: str, field: str) -> list[float]:
        return [getattr(one, field) for one in found[name]]

    rows = [
        (
            name,
            spread(values(name, "seconds"), ".2f"),
            spread(values(name, "peak"), ".0f"),
            f"{found[name][0].size:.0f}",
        )
        for name in sides
    ]
    one, other = sides
    rows.append(("times", *(ratio(values(one, field), values(other, field)) for field in Made._fields)))
    measure.table(
        f"sample, {mix}: {ROWS:,} rows, {total:,} tokens, {EPOCHS} epochs, {os.cpu_count()} cores, median of {ROUNDS} "
        f"(from to); data_io gives the peer's arrays: {same}",
        "|seconds|peak MiB beside the output|MB of output",
        rows,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        bench(Path(name))
