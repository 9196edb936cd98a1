"""curate against datatrove, datasketch, rensa and data-juicer, on generated rows: ``make bench-curate``.

    python tests/bench/bench_curate.py [rows=200000] [peer_rows=4000] [rounds=3] [only=exact,signatures,…]

Each side is a process on one core; they take turns, and what they import or load is not counted. A second is one of CPU
time, of the process and of the kernel for it: what else the machine does is not counted. Rates are compared: the peers
get ``peer_rows`` rows: they would take hours for all. The rows are those of curate_rows.py.
datatrove has the words between blanks, which is several times faster than spaCy, its tokenizer; with spacy=true it is
measured with that too.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import measure
from measure import ROOT

HERE = Path(__file__).parent
PEERS = ROOT / "build" / "bench-curate" / "bin" / "python"
ITEMS = 10_000
FILE_ROWS = 50_000
OFF = ("exact", "near", "decontaminate", "heuristics", "filter")
# What our metrics share with the functions of a peer.
DATATROVE = [
    "words",
    "mean_word_length",
    "hash_word_ratio",
    "ellipsis_word_ratio",
    "bullet_line_ratio",
    "ellipsis_line_ratio",
    "alpha_word_ratio",
    "stop_words",
    "dup_line_frac",
    "dup_line_char_frac",
    "dup_para_frac",
    "dup_para_char_frac",
    "top_2gram_char_frac",
    "top_3gram_char_frac",
    "top_4gram_char_frac",
    "dup_5gram_char_frac",
    "dup_6gram_char_frac",
    "dup_7gram_char_frac",
    "dup_8gram_char_frac",
    "dup_9gram_char_frac",
    "dup_10gram_char_frac",
    "terminal_line_ratio",
    "short_line_ratio",
    "newline_word_ratio",
]
JUICER = ["chars", "words", "lines", "non_alnum_ratio", "symbol_ratio", "char_rep_ratio", "word_rep_ratio"]


class Made(NamedTuple):
    """What a process did: seconds of the work alone, rows, megabytes of their texts, its peak in MiB, and what else."""

    seconds: float
    rows: int
    megabytes: float
    peak: float
    more: dict[str, Any]


class Side(NamedTuple):
    """A side of a comparison: its name, its command, and what is to be removed before it runs."""

    name: str
    command: list[str]


# What follows runs in a process of its own: our side.


def _texts(rows: Path) -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(rows, columns=["instruction", "response"])
    found = [pa.concat_arrays(table[name].cast(pa.large_string()).chunks) for name in ("instruction", "response")]
    return found[0], found[1]


def _slices(rows: Path) -> list[Any]:
    from pairmill.formats.limits import EXPANSION, RECORD_BYTES
    from pairmill.rowstage.rows import Rows

    return Rows.discover([str(rows)], verify=False, longest=RECORD_BYTES, expansion=EXPANSION).slices


def _run(shards: list[Any], work: Path) -> list[Any]:
    from pairmill.engine.shards import run_shard

    keyed = [replace(shard, key=f"{number:064x}") for number, shard in enumerate(shards)]
    return [run_shard("curate", shard, None, work.as_uri())() for shard in keyed]


def ours_exact(rows: Path, work: Path, kinds: str = "pair") -> tuple[float, dict[str, Any]]:
    """Keys of rows in files, to files of sorted entries."""
    from pairmill.stages.curate.exact import Keying, ReadKeys

    keying = Keying(tuple(kinds.split("+")), True, False, False)  # type: ignore[arg-type]
    shards = [ReadKeys(piece, keying, name=piece.name) for piece in _slices(rows)]
    start = time.process_time()
    _run(shards, work)
    return time.process_time() - start, {}


def ours_signatures(rows: Path, work: Path) -> tuple[float, dict[str, Any]]:
    """Normalisation, sketches and keys of texts in memory."""
    from pairmill.stages.curate.near.settings import NearSettings
    from pairmill.stages.curate.near.sign import sketches

    columns = _texts(rows)
    settings = NearSettings()
    sketches([column[:10] for column in columns], settings)
    start = time.process_time()
    for at in range(0, len(columns[0]), 8_192):
        sketches([column.slice(at, 8_192) for column in columns], settings)
    return time.process_time() - start, {}


def ours_near(rows: Path, work: Path, only: str = "near") -> tuple[float, dict[str, Any]]:
    """The stage from files to files, with near deduplication alone, or with the settings that are shipped."""
    from pairmill import _native  # noqa: F401
    from pairmill.engine import runner
    from pairmill.stages.curate.config import CurateConfig
    from pairmill.stages.curate.core import Curate

    settings = work / "settings.yaml"
    settings.write_text("".join(f"{name}: {{mode: off}}\n" for name in OFF if only not in (name, "all")))
    config = CurateConfig(rows=[str(rows)], root=str(work), curate_config=str(settings), workers=1)
    start = time.process_time()
    result = runner.run(Curate(), config)
    took = time.process_time() - start
    data = result.manifest.data["costs"]["near"]
    return took, {"kept": result.manifest.ledger.rows_kept, **data}


def ours_decontaminate(rows: Path, work: Path, items: str) -> tuple[float, dict[str, Any]]:
    """Scores of rows in files, to files of findings."""
    from pairmill.leaks import index
    from pairmill.leaks.settings import Benchmark, Decontaminate
    from pairmill.rowstage.scorer import Score

    benchmark = Benchmark(name="items", uri=items, question="question", answers="answer", item="item")
    plan = index.planned(Decontaminate(benchmarks=[benchmark]), root=str(work))
    scorer = index.scorer(plan, _run(list(index.shards(plan)), work))
    assert scorer is not None
    shards = [Score(piece, scorer, name=piece.name) for piece in _slices(rows)]
    with scorer.opened():
        start = time.process_time()
        records = _run(shards, work)
        took = time.process_time() - start
    return took, {"index": Path(scorer.uri.removeprefix("file://")).stat().st_size, "shards": len(records)}


def ours_heuristics(rows: Path, work: Path, which: str = "") -> tuple[float, dict[str, Any]]:
    """Metrics of texts in memory."""
    from pairmill import _native

    columns = _texts(rows)
    names = which.split("+") if which else None
    _native.curate_metrics(columns[0][:10], names)
    start = time.process_time()
    for column in columns:
        for at in range(0, len(column), 8_192):
            _native.curate_metrics(column.slice(at, 8_192), names)
    return time.process_time() - start, {}


def ours_scored(rows: Path, work: Path) -> tuple[float, dict[str, Any]]:
    """Heuristics of rows in files, to files of attributes: of each field, of both joined, and of the pair."""
    from pairmill.rowstage.scorer import Score
    from pairmill.stages.curate.scores.heuristics import HeuristicsSettings

    shards = [
        Score(piece, scorer, name=piece.name) for scorer in HeuristicsSettings().scorers("") for piece in _slices(rows)
    ]
    start = time.process_time()
    _run(shards, work)
    return time.process_time() - start, {}


def child(name: str, rows: str, work: str, *options: str) -> None:
    """Our side, in a process of its own."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    os.environ["PAIRMILL_LOG"] = "json"
    sys.path.insert(0, str(ROOT))
    start = time.perf_counter()
    took, more = globals()[f"ours_{name}"](Path(rows), Path(work), *options)
    more["wall_seconds"] = round(time.perf_counter() - start, 1)
    count = size = 0
    for path in sorted(Path(rows).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["instruction", "response"]):
            count += len(batch)
            size += sum(pc.sum(pc.binary_length(column)).as_py() for column in batch.columns)
    print(json.dumps({**more, "seconds": took, "rows": count, "megabytes": size / 1e6}))


# What follows runs in the process that was started.


class Bench:
    """The folders of rows, and the tables.

    Args:
        folder: temporary.
        rows: of our side.
        peer_rows: of the others.
        rounds: in which sides take turns.
    """

    def __init__(self, folder: Path, rows: int, peer_rows: int, rounds: int, *, spacy: bool) -> None:
        self.folder, self.rows, self.peer_rows, self.rounds = folder, rows, peer_rows, rounds
        self.words = ["blank", "spacy"] if spacy else ["blank"]

    def made(self, rows: int) -> Path:
        """A folder of so many rows."""
        folder = self.folder / f"rows-{rows}"
        if not folder.exists():
            start = time.perf_counter()
            files = max(4, rows // FILE_ROWS)
            measure.run([sys.executable, str(HERE / "curate_rows.py"), str(folder), str(rows), str(files)])
            print(f"{rows:,} rows made in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        return folder

    @property
    def items(self) -> Path:
        """A folder with items of a benchmark."""
        folder = self.folder / "items"
        if not folder.exists():
            folder.mkdir()
            code = (
                f"import sys; sys.path.insert(0, {str(HERE)!r}); import curate_rows, pathlib; "
                f"curate_rows.make_items(pathlib.Path({str(folder / 'items.parquet')!r}), {ITEMS}, {self.peer_rows})"
            )
            measure.run([sys.executable, "-c", code])
        return folder

    def once(self, side: Side) -> Made:
        """Run a side in an empty folder, which its command names WORK."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            work = Path(name)
            if "decontaminate" in side.command:
                os.link(self.items / "items.parquet", work / "items.parquet")
            with measure.one_core():
                done = measure.run([one.replace("WORK", name) for one in side.command])
        raw = json.loads(done.out.splitlines()[-1])
        return Made(raw.pop("seconds"), raw.pop("rows"), raw.pop("megabytes"), done.peak, raw)

    def turns(self, sides: list[Side], rounds: int = 0) -> dict[str, list[Made]]:
        """What each side did in each round."""
        found: dict[str, list[Made]] = {side.name: [] for side in sides}
        for _ in range(rounds or self.rounds):
            for side in sides:
                found[side.name].append(self.once(side))
        return found

    def ours(self, name: str, label: str = "pairmill", rows: int = 0, *options: str) -> Side:
        """Our side of a comparison."""
        command = [sys.executable, str(HERE / "bench_curate.py"), "child", name]
        return Side(label, [*command, str(self.made(rows or self.rows)), "WORK", *options])

    def datatrove(self, name: str, rows: int = 0) -> list[Side]:
        """datatrove's."""
        there = str(self.made(rows or self.peer_rows))
        command = [str(PEERS), str(HERE / "peer_curate_datatrove.py"), name, there, "WORK"]
        return [Side(f"datatrove 0.10.1, {words} words", [*command, words]) for words in self.words]

    def compare(self, title: str, sides: list[Side], unit: str, note: str = "") -> dict[str, list[Made]]:
        """Print a table: the first side is compared with the others."""
        found = self.turns(sides)
        rates = {name: [getattr(one, unit) / one.seconds for one in made] for name, made in found.items()}
        first = statistics.median(rates[sides[0].name])
        rows = []
        for name, made in found.items():
            some = rates[name]
            middle = statistics.median(some)
            form = ",.0f" if unit == "rows" else ",.1f"
            mine = name.startswith("pairmill")
            rows.append(
                (
                    name,
                    f"{middle:{form}} ({min(some):{form}} to {max(some):{form}})",
                    "" if mine else f"{first / middle:.1f}x",
                    f"{made[0].rows:,}",
                    f"{statistics.median(one.rows / one.seconds for one in made):,.0f}",
                    f"{statistics.median(one.megabytes / one.seconds for one in made):.1f}",
                    f"{statistics.median(one.peak for one in made):.0f}",
                )
            )
        heads = f"|{'rows/s' if unit == 'rows' else 'MB/s'} (from to)|slower by|rows|rows/s|MB/s|peak MiB"
        measure.table(f"{title}, one core, median of {self.rounds}{note}", heads, rows)
        return found


def bench_exact(bench: Bench) -> None:
    """Exact keys, from files."""
    # Of a few thousand rows datatrove's start is most of what is measured.
    sides = [bench.ours("exact"), *bench.datatrove("exact", bench.rows)[:1]]
    sides.append(bench.ours("exact", "pairmill, keys of pair, instruction, response", 0, "pair+instruction+response"))
    bench.compare("exact keys of Parquet files", sides, "rows")


def bench_signatures(bench: Bench) -> None:
    """MinHash signatures, of texts in memory."""
    peer = [str(PEERS), str(HERE / "peer_curate_signatures.py")]
    rows = str(bench.made(bench.peer_rows))
    others = {
        "datasketch 2.0, 128 permutations": "datasketch",
        "rensa 0.5, 128 permutations": "rensa",
        "rensa 0.5 of hashed 3-grams, no text": "rensa_hashed",
    }
    sides = [bench.ours("signatures"), *bench.datatrove("signatures")]
    sides += [Side(name, [*peer, side, rows]) for name, side in others.items()]
    bench.compare("signatures of about 150 words, normalisation included", sides, "rows")


def bench_near(bench: Bench) -> None:
    """Near deduplication end to end, at ``rows`` rows, and how time grows."""
    sides = [
        bench.ours("near"),
        *bench.datatrove("near"),
        bench.ours("near", "pairmill, the same rows", bench.peer_rows),
    ]
    found = bench.compare("near deduplication, Parquet to Parquet", sides, "rows")
    _costs(f"{bench.rows:,} rows", found["pairmill"][0])
    four = bench.turns([bench.ours("near", "four times", 4 * bench.rows)], 1)["four times"]
    _costs(f"{4 * bench.rows:,} rows", four[0])
    one = statistics.median(made.seconds for made in found["pairmill"])
    wall = four[0].more["wall_seconds"] / found["pairmill"][0].more["wall_seconds"]
    print(
        f"{bench.rows:,} rows {one:.1f} s, {4 * bench.rows:,} rows {four[0].seconds:.1f} s: "
        f"{four[0].seconds / one:.2f}x the CPU time ({wall:.2f}x the time on the clock); "
        f"{four[0].rows / four[0].seconds:,.0f} rows/s, peak {four[0].peak:.0f} MiB\n",
        flush=True,
    )


def _costs(title: str, made: Made) -> None:
    more = {name: f"{value:,}" for name, value in made.more.items()}
    print(f"{title}: {', '.join(f'{name} {value}' for name, value in more.items())}\n", flush=True)


def bench_decontaminate(bench: Bench) -> None:
    """Rows against the items of a benchmark."""
    items = str(bench.items / "items.parquet")
    sides = [bench.ours("decontaminate", "pairmill", 0, items), *bench.datatrove("decontaminate")]
    found = bench.compare(f"decontamination, {ITEMS:,} items", sides, "megabytes")
    _costs("index", found["pairmill"][0])


def bench_heuristics(bench: Bench) -> None:
    """Metrics of texts."""
    peer = [str(PEERS), str(HERE / "peer_curate_juicer.py"), str(bench.made(bench.peer_rows))]
    bench.compare("all 35 metrics of texts in memory", [bench.ours("heuristics")], "megabytes")
    bench.compare(
        "heuristics of Parquet files to attributes, three texts a row",
        [bench.ours("scored", "pairmill, MB of rows")],
        "megabytes",
    )
    for title, names, others in (
        (f"the {len(DATATROVE)} metrics that datatrove has too", DATATROVE, bench.datatrove("heuristics")),
        (f"the {len(JUICER)} metrics that data-juicer has too", JUICER, [Side("data-juicer 1.6.1", peer)]),
    ):
        bench.compare(title, [bench.ours("heuristics", "pairmill", 0, "+".join(names)), *others], "megabytes")


def bench_all(bench: Bench) -> None:
    """The stage with the settings that are shipped."""
    found = bench.compare("the stage with its shipped settings", [bench.ours("near", "pairmill", 0, "all")], "rows")
    _costs("near", found["pairmill"][0])


BENCHES: dict[str, Callable[[Bench], None]] = {
    "exact": bench_exact,
    "signatures": bench_signatures,
    "near": bench_near,
    "decontaminate": bench_decontaminate,
    "heuristics": bench_heuristics,
    "all": bench_all,
}


@contextmanager
def temporary(given: str) -> Iterator[Path]:
    """A folder that goes at the end, or the given one, which stays with its rows."""
    folder = Path(given or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder.resolve()
    finally:
        if not given:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the tables."""
    options = {"rows": "200000", "peer_rows": "4000", "rounds": "3", "only": "", "spacy": "false", "folder": ""}
    for given in sys.argv[1:]:
        name, _, value = given.partition("=")
        if name not in options:
            raise SystemExit(f"unknown option {name!r} (expected {', '.join(options)})")
        options[name] = value
    wanted = options["only"].split(",") if options["only"] else list(BENCHES)
    numbers = [int(options[name].replace("_", "")) for name in ("rows", "peer_rows", "rounds")]
    with temporary(options["folder"]) as folder:
        bench = Bench(folder, *numbers, spacy=options["spacy"] == "true")
        for name in wanted:
            BENCHES[name](bench)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
