"""select against data-selection, and its memory at many rows: ``make bench-select``.

    python tests/bench/bench_select.py [rows=100000] [peer_rows=3000] [rounds=3] [many=10000000] [only=weights,many]

Each side is a process on one core; they take turns. CPU time is compared, because a process that waits for its core
does not work. The peer gets ``peer_rows`` rows, and rates are compared. With its settings our log weights are the same:
that is checked first. The rows are those of curate_rows.py; those of ``many`` are short.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import measure
from measure import ROOT

HERE = Path(__file__).parent
PEER = ROOT / "build" / "bench-select" / "bin" / "python"
FILE_ROWS = 50_000
TARGET_ROWS = 1_000
# As data-selection has it; it joins both texts, so that one n-gram goes across: `joined` rows have all in the response.
PARITY = "hash: sha256, laplace: 0, length: none, noise: false, fields: [response]"
# Rows of `many`, in a file.
MANY_FILE = 250_000


class Made(NamedTuple):
    """What a process did: CPU seconds of the work, rows, megabytes of texts, peak in MiB, and what else."""

    seconds: float
    rows: int
    megabytes: float
    peak: float
    more: dict[str, Any]


# What follows runs in a process of its own.


def cpu() -> float:
    """Seconds of this process and of those that it started."""
    return sum(os.times()[:4])


def child_weights(rows: str, target: str, work: str, dsir: str) -> None:
    """Fit and score: from files of rows to files of log weights."""
    from dataclasses import replace

    from pairmill.engine.manifest import content_key
    from pairmill.engine.shards import run_shard
    from pairmill.formats.limits import EXPANSION, RECORD_BYTES
    from pairmill.rowstage import Rows
    from pairmill.stages.select import arrays
    from pairmill.stages.select.attributes import AttributeQuery
    from pairmill.stages.select.features import Features
    from pairmill.stages.select.fit import FitRows, FitTarget
    from pairmill.stages.select.model import AddUp
    from pairmill.stages.select.rankings import LOG_WEIGHTS, rankings_of
    from pairmill.stages.select.score import ScoreRows
    from pairmill.stages.select.settings import Settings

    settings = Settings.parse(f"method: dsir\nrows: 10\ndsir: {{{dsir}targets: [{{name: t, rows: {target}}}]}}\n")
    place, query, features = Path(work).as_uri(), AttributeQuery.from_settings(settings), Features.from_settings
    given, wanted = (
        Rows.discover([uri], verify=False, longest=RECORD_BYTES, expansion=EXPANSION) for uri in (rows, target)
    )

    def run(shards: list[Any]) -> tuple[Any, ...]:
        named = [replace(shard, key=content_key(shard.name)) for shard in shards]
        return tuple(run_shard("select", shard, None, place)() for shard in named)

    start = cpu()
    fits = run([FitRows.from_settings(block, settings, query, 0) for block in given.blocks])
    targets = run([FitTarget(block, features(settings.dsir), name=f"target {block.name}") for block in wanted.blocks])
    (model,) = run([AddUp(fits, (targets,), settings.dsir.laplace, query.terms, name="add up")])
    scored = run(
        [ScoreRows.from_settings(block, model, settings, query, rankings_of(settings), 0) for block in given.blocks]
    )
    took = cpu() - start
    weights = arrays.load(scored[0], LOG_WEIGHTS)[0]
    count = size = 0
    with Path(rows).open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            count += 1
            size += len(row["instruction"].encode()) + len(row["response"].encode())
    made = {"seconds": took, "rows": count, "megabytes": size / 1e6, "first": weights[:1000].tolist()}
    print(json.dumps(made))


def child_many(folder: str, rows: str, seed: str) -> None:
    """Write files of short rows: of each, 12 words of a skewed vocabulary in both fields."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(int(seed))
    words = pa.array([f"w{number}" for number in range(20_000)])

    def texts(count: int) -> pa.Array:
        drawn = np.minimum(random.zipf(1.3, count * 12), 20_000) - 1
        flat = words.take(pa.array(drawn))
        lists = pa.ListArray.from_arrays(pa.array(np.arange(0, count * 12 + 1, 12, dtype=np.int32)), flat)
        return pa.compute.binary_join(lists, " ")

    Path(folder).mkdir(parents=True, exist_ok=True)
    total = int(rows)
    for number, start in enumerate(range(0, total, MANY_FILE)):
        count = min(MANY_FILE, total - start)
        table = pa.table(
            {"condition": pa.array(["direct"] * count), "instruction": texts(count), "response": texts(count)}
        )
        pq.write_table(table, Path(folder) / f"part-{number:05}.parquet", row_group_size=16_384)


# What follows runs in the process that was started.


class Bench:
    """The files of rows, and the tables."""

    def __init__(self, folder: Path, rows: int, peer_rows: int, rounds: int, many: int) -> None:
        self.folder, self.rows, self.peer_rows, self.rounds, self.many = folder, rows, peer_rows, rounds, many

    def made(self, rows: int, *, joined: bool = False) -> Path:
        """A file of JSON Lines of so many rows; ``joined``: the response is both texts."""
        path = self.folder / f"rows-{rows}{'-joined' if joined else ''}.jsonl"
        if not path.exists():
            import pyarrow.parquet as pq

            folder = self.folder / f"parquet-{rows}"
            if not folder.exists():
                files = max(1, rows // FILE_ROWS)
                measure.run([sys.executable, str(HERE / "curate_rows.py"), str(folder), str(rows), str(files)])
            with path.open("w", encoding="utf-8") as out:
                for file in sorted(folder.glob("*.parquet")):
                    for row in pq.read_table(file).to_pylist():
                        if joined:
                            row["response"] = row["instruction"] + "\n" + row["response"]
                        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        return path

    def target(self, *, joined: bool = False) -> Path:
        """Rows of a target: other ones of the same kind."""
        return self.made(TARGET_ROWS, joined=joined)

    def once(self, command: list[str]) -> Made:
        """Run a side in an empty folder, which its command names WORK."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name, measure.one_core():
            done = measure.run([one.replace("WORK", name) for one in command])
        raw = json.loads(done.out.splitlines()[-1])
        return Made(raw.pop("seconds"), raw.pop("rows"), raw.pop("megabytes"), done.peak, raw)

    def ours(self, rows: Path, target: Path, dsir: str = "") -> list[str]:
        """Our side."""
        own = [sys.executable, str(HERE / "bench_select.py"), "child", "weights"]
        return [*own, str(rows), str(target), "WORK", f"{dsir}, " if dsir else ""]

    def peer(self, rows: Path, target: Path) -> list[str]:
        """That of data-selection."""
        return [str(PEER), str(HERE / "peer_select.py"), str(rows), str(target), "WORK"]


def bench_weights(bench: Bench) -> None:
    """Fit and score, from files to log weights."""
    rows, target = bench.made(bench.peer_rows, joined=True), bench.target(joined=True)
    mine = bench.once(bench.ours(rows, target, PARITY)).more["first"]
    theirs = bench.once(bench.peer(bench.made(bench.peer_rows), bench.target())).more["first"]
    apart = max(abs(one - other) / max(1.0, abs(other)) for one, other in zip(mine, theirs, strict=True))
    if apart > 1e-9:
        raise SystemExit(f"log weights differ by {apart}")
    print(f"log weights of {len(mine)} rows with the peer's settings: largest difference {apart:.1e}\n", flush=True)
    sides = {
        "pairmill": bench.ours(bench.made(bench.rows), bench.target()),
        "data-selection 1.0.3": bench.peer(bench.made(bench.peer_rows), bench.target()),
        "pairmill, sha256": bench.ours(bench.made(bench.rows), bench.target(), "hash: sha256"),
    }
    found: dict[str, list[Made]] = {name: [] for name in sides}
    for _ in range(bench.rounds):
        for name, command in sides.items():
            found[name].append(bench.once(command))
    rates = {name: [one.megabytes / one.seconds for one in made] for name, made in found.items()}
    first = statistics.median(rates["pairmill"])
    lines = []
    for name, made in found.items():
        middle = statistics.median(rates[name])
        lines.append(
            (
                name,
                f"{middle:,.1f} ({min(rates[name]):,.1f} to {max(rates[name]):,.1f})",
                "" if name == "pairmill" else f"{first / middle:.1f}x",
                f"{made[0].rows:,}",
                f"{statistics.median(one.rows / one.seconds for one in made):,.0f}",
                f"{statistics.median(one.peak for one in made):.0f}",
            )
        )
    heads = "|MB of text a CPU second (from to)|slower by|rows|rows/s|peak MiB"
    measure.table(f"DSIR: fit and score, one core, median of {bench.rounds}", heads, lines)


def bench_many(bench: Bench) -> None:
    """The stage at many rows: time and the peak of the largest process."""
    folder = bench.folder / f"many-{bench.many}"
    own = [sys.executable, str(HERE / "bench_select.py"), "child", "many"]
    if not folder.exists():
        measure.run([*own, str(folder), str(bench.many), "1"])
        measure.run([*own, str(bench.folder / "many-target"), "20000", "2"])
    lines = []
    for name, more in (
        ("rows", f"rows: {bench.many // 10}"),
        ("tokens", f"tokens: {bench.many}"),
    ):
        settings = bench.folder / f"{name}.yaml"
        target = bench.folder / "many-target"
        settings.write_text(f"method: dsir\n{more}\ndsir: {{targets: [{{name: t, rows: {target}}}]}}\n")
        with tempfile.TemporaryDirectory(dir=bench.folder) as root:
            start = time.perf_counter()
            options = [f"rows={folder}", f"root={root}", f"select_config={settings}", "workers=2"]
            done = measure.stage("select", *options)
            wall = time.perf_counter() - start
        lines.append((name, f"{bench.many:,}", f"{wall:.0f}", f"{bench.many / wall:,.0f}", f"{done.peak:.0f}"))
    measure.table("the stage, two workers", "budget|rows|seconds|rows/s|peak MiB of a process", lines)


BENCHES: dict[str, Callable[[Bench], None]] = {"weights": bench_weights, "many": bench_many}


def main() -> None:
    """Print the tables."""
    if sys.argv[1:2] == ["child"]:
        os.environ["PAIRMILL_LOG"] = "json"
        sys.path.insert(0, str(ROOT))
        globals()[f"child_{sys.argv[2]}"](*sys.argv[3:])
        return
    options = {
        "rows": "100000",
        "peer_rows": "3000",
        "rounds": "3",
        "many": "10000000",
        "only": "weights,many",
        "folder": "",
    }
    for given in sys.argv[1:]:
        name, _, value = given.partition("=")
        if name not in options:
            raise SystemExit(f"unknown option {name!r} (expected {', '.join(options)})")
        options[name] = value
    numbers = [int(options[name].replace("_", "")) for name in ("rows", "peer_rows", "rounds", "many")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options["folder"] or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, *numbers)
        for name in options["only"].split(","):
            BENCHES[name](bench)


if __name__ == "__main__":
    main()
