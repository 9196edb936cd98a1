"""The sampler against data_io's own: wall and CPU time, memory beside the output, bytes.

``DATA_IO=<a checkout of github.com/sapientinc/data_io>`` names the reference, whose ``sample_tokenized.py`` runs in
turns with ours; without it nothing is compared. Shapes: few large tasks as the published mix caps them, and whole; and
the many small tasks of the teams that outgrew data_io, whose folders ``tests/support/data/dfm.py`` makes. What
data_io has no program for (preview, union, verify) is measured alone.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
from measure import ratio, spread

from pairmill.digest import digest_file
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.formats.tokens import INDEX
from tests.support.data import dfm

MEAN, EPOCHS = 200, 4
ROUNDS = 5


class Shape(NamedTuple):
    """A tokenized folder, the rows that its tasks' rule takes in an epoch (None = all), and how many epochs."""

    tasks: int
    rows: int
    cap: int | None = None
    epochs: int = EPOCHS


MANY = Shape(dfm.DFM11, 50, epochs=5)
SHAPES = (Shape(20, 75_000, 3_750), Shape(20, 75_000), Shape(1_000, 4_000), Shape(dfm.DFM9, 50), MANY)
"""``SHAPES=0,2`` measures some of them."""


class Made(NamedTuple):
    """A process that has made a sample: wall and CPU seconds, peak MiB beside the output's pages, MB of output."""

    seconds: float
    cpu: float
    peak: float
    size: float


def tokenized(folder: Path, shape: Shape) -> int:
    """Write a tokenized folder with the manifest that ours have; returns its tokens."""
    draw = np.random.default_rng(0)
    files, total = [], 0
    for number in range(shape.tasks):
        lengths = np.clip(draw.lognormal(np.log(MEAN / 2) - 0.5, 1, (shape.rows, 2)), 1, 2000).astype(np.int64)
        inst, resp = lengths[:, 0], lengths[:, 1] + 1
        ends = np.cumsum(inst + resp)
        path = folder / f"set{number % 5}__task{number:05}.parquet"
        path.mkdir(parents=True)
        arrays = {"tokens": draw.integers(0, 65_536, int(ends[-1]), dtype=np.uint32)}
        arrays |= dict(zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True))
        for name, values in arrays.items():
            file = path / f"{name}.npy"
            np.save(file, values if name == "tokens" else values.astype(np.uint64))
            files.append(File(f"{path.name}/{file.name}", file.stat().st_size, digest_file(file), path.name))
        total += int(ends[-1])
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 65_536}))
    Manifest("tokenize", 1, "0" * 16, {}, [], Ledger(*[shape.tasks * shape.rows] * 3), files).finish(str(folder))
    return total


def run(command: list[str], out: Path, environment: Mapping[str, str] | None = None) -> Made:
    """Run a program that writes to ``out``, which is memory; its pages there are not counted as the program's."""
    shutil.rmtree(out, ignore_errors=True)
    before, start, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=measure.ROOT,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )
        while process.poll() is None:
            peak = max(peak, _beside(process.pid))
            time.sleep(0.002)
        seconds = time.perf_counter() - start
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{command} failed:\n{errors.read().decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return Made(seconds, cpu, peak / 1024, size / 1e6)


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
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in sorted(folder.rglob("*.npy"))}


def bench(folder: Path) -> None:
    """Print a table for each shape."""
    reference = Path(os.environ.get("DATA_IO", ""), "sample_tokenized.py")
    if not reference.is_file():
        print("sample: not compared, as DATA_IO= does not name a checkout of data_io\n")
        return
    memory = Path(tempfile.mkdtemp(prefix="pairmill-bench-", dir="/dev/shm"))
    try:
        wanted = os.environ.get("SHAPES", "")
        for shape in [SHAPES[int(number)] for number in wanted.split(",") if number] or SHAPES:
            shutil.rmtree(folder, ignore_errors=True)
            if shape.tasks < dfm.DFM9:
                total = tokenized(folder / "tokenized", shape)
                (folder / "rules.yaml").write_text(f"- prefix: set\n  max_per_file: {shape.cap or 'null'}\n")
            else:
                total = dfm.write(folder / "tokenized", shape.tasks, shape.tasks * shape.rows, even=True, tokens=True)
                # data_io's buffer does not hold an epoch of more rows than the folder has.
                rules = [{key: rule[key] for key in rule if key != "repeat"} for rule in dfm.old_rules()]
                dfm.write_rules(folder / "rules.yaml", rules)
            _compare(reference, shape, folder, memory / "out", total)
        if shape == MANY:
            _alone(folder, memory)
    finally:
        shutil.rmtree(memory, ignore_errors=True)


def _compare(reference: Path, shape: Shape, folder: Path, out: Path, total: int) -> None:
    options = {
        "tokenized_path": folder / "tokenized",
        "output_path": out,
        "prefix_config_path": folder / "rules.yaml",
        "epochs": shape.epochs,
    }
    arguments = [f"{key}={value}" for key, value in options.items()]
    ours = [sys.executable, "-m", "pairmill", "sample", *arguments]
    peer = [sys.executable, str(reference), *arguments]
    # Of tokens that it has digested before, and that nothing has changed, it digests none again.
    cache = {"PAIRMILL_CACHE": str(folder / "cache")}
    sides = {
        "data_io": (peer, {}),
        "pairmill, the first sample of a folder": (ours, {"PAIRMILL_CACHE": ""}),
        "pairmill, later ones": (ours, cache),
    }
    run(peer, out)
    theirs = digests(out)
    run([*ours, "profile=data_io"], out, cache)
    same = "yes" if digests(out) == theirs else "NO"
    runs: dict[str, list[Made]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (command, environment) in sides.items():
            runs[name].append(run(command, out, environment))

    def values(name: str, field: str) -> list[float]:
        return [getattr(made, field) for made in runs[name]]

    rows = [
        (
            name,
            spread(values(name, "seconds"), ".2f"),
            spread(values(name, "cpu"), ".2f"),
            spread(values(name, "peak"), ".0f"),
            f"{runs[name][0].size:.0f}",
        )
        for name in sides
    ]
    for name in [*sides][1:]:
        times = (ratio(values("data_io", field), values(name, field)) for field in Made._fields)
        rows.append((f"times of {name}", *times))
    capped = f", {shape.cap:,} an epoch" if shape.cap else ""
    measure.table(
        f"sample, {shape.tasks:,} tasks of {shape.rows:,} rows{capped}: {total:,} tokens, {shape.epochs} epochs, "
        f"{os.cpu_count()} cores, median of {ROUNDS} (from to); profile=data_io gives data_io's arrays: {same}",
        "|seconds|CPU seconds|peak MiB beside the output|MB of output",
        rows,
    )


def _alone(folder: Path, memory: Path) -> None:
    """Print what the programs around the sampler take on the folder of the last shape."""
    base, cache = folder / "tokenized", memory / "cache"
    rules = f"prefix_config_path={folder / 'rules.yaml'}"
    some = [f"tokenized_path={base}", rules]
    dfm.write(folder / "other", len(dfm.FAMILIES) * 10, 10_000, seed=1, first=dfm.DFM11, tokens=True)
    both = f"tokenized_path={base},new={folder / 'other'}"
    commands = {
        "preview, cold": ["sample", "preview", *some],
        "preview, cached": ["sample", "preview", *some],
        "union with 190 more tasks": ["tokenize", "union", both],
        "sample of both": ["sample", both, rules, f"output_path={memory / 'out'}", "epochs=1"],
        "verify of it": ["sample", "verify", f"path={memory / 'out'}"],
        "start of the program": ["sample", "--help"],
    }
    rows = []
    for name, words in commands.items():
        runs = []
        for _ in range(ROUNDS):
            if name == "preview, cold":
                shutil.rmtree(cache, ignore_errors=True)
            # What verify reads stays.
            out = memory / ("none" if name != "sample of both" else "out")
            runs.append(run([sys.executable, "-m", "pairmill", *words], out, {"PAIRMILL_CACHE": str(cache)}))
        rows.append(
            (name, *(spread([getattr(made, field) for made in runs], ".2f") for field in ("seconds", "cpu", "peak")))
        )
    title = f"around the sampler, {MANY.tasks:,} tasks of {MANY.rows} rows, median of {ROUNDS} (from to)"
    measure.table(title, "|seconds|CPU seconds|peak MiB", rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        bench(Path(name))
