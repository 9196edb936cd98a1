"""Rows a second of clean on one core, against ``datasets`` doing the same; and one large file on two: ``make bench``.

The other side is what a person writes who cleans with ``datasets``: ``load_dataset``, ``filter`` and ``map`` example by
example, ``to_json`` or ``to_parquet``; nothing cached. Each side is a process pinned to one core, they take turns, its
CPU time is counted, that of imports is not, and they must give the same rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

ROUNDS = 3
SCALES = {
    "webinstruct_verified": 500,
    "openmathinstruct2": 200,
    "natural_reasoning": 200,
    "openthoughts2": 250,
    "dmmath": 60,
    "chats": 200,
}
"""How much of each source is made."""
LARGE = 400_000_000

Row = dict[str, Any]


def keep(row: Row) -> bool:
    """No empty texts."""
    return bool(row["instruction"].strip() and row["response"].strip())


def columns(condition: str, instruction: str, response: str) -> Callable[[Row], Row]:
    """A row made of two columns."""
    return lambda row: {"condition": condition, "instruction": row[instruction], "response": row[response]}


def no_proof(row: Row) -> bool:
    """NaturalReasoning's rule."""
    answer, question = row["reference_answer"].strip(), row["question"]
    return bool(answer) and not re.search(r"\b(?:prove|show\s+that)\b", question, re.IGNORECASE)


def stripped(row: Row) -> Row:
    """NaturalReasoning's row."""
    answer = row["reference_answer"].strip()
    return {"condition": "noisy,direct", "instruction": row["question"], "response": answer}


def no_code(row: Row) -> bool:
    """OpenThoughts2's rule."""
    question, answer = (message["value"] for message in row["conversations"])
    left_out = {"dolphin", "evolcodegolf", "glaive", "magicoder", "sharegpt", "codefeedback", "nvidia_math"}
    if row["source"] in left_out or "python" in question.lower() or "python" in answer.lower() or "```" in answer:
        return False
    return "<think>" not in re.sub(r"<think>.*?</think>", "", answer, flags=re.DOTALL)


def answer_alone(row: Row) -> Row:
    """OpenThoughts2's row."""
    question, answer = (message["value"] for message in row["conversations"])
    answer = re.sub(r"<think>.*?</think>", "", answer, flags=re.DOTALL).strip()
    return {"condition": "synth,cot", "instruction": question, "response": answer}


def pairs(path: str) -> Iterator[Row]:
    """DeepMind mathematics' rows."""
    with open(path, encoding="utf-8") as file:
        for question, answer in zip(file, file, strict=True):
            yield {"condition": "direct", "instruction": question.strip(), "response": answer.strip()}


def rows_of_chats(batch: dict[str, list[Any]]) -> dict[str, list[str]]:
    """A row for each answer, with what was said before it."""
    rows: dict[str, list[str]] = {"condition": [], "instruction": [], "response": []}
    for messages in batch["messages"]:
        blocks: list[str] = []
        for message in messages:
            text = message["content"].strip()
            if message["role"] == "assistant":
                rows["condition"].append("direct")
                rows["instruction"].append("\n\n".join(blocks) if len(blocks) > 1 else messages[0]["content"].strip())
                rows["response"].append(text)
            blocks.append(f"{message['role'].capitalize()}:\n{text}")
    return rows


def make(raw: Path, source: str, scale: int) -> None:
    """Write a source, or chats of two questions each and their description."""
    import make_raw
    import pyarrow.parquet as pq

    make_raw.make(raw, ["webinstruct_verified" if source == "chats" else source], scale)
    if source != "chats":
        return
    pairs = pq.read_table(raw / "webinstruct_verified" / "data", columns=["question", "answer"]).to_pylist()
    good = [pair for pair in pairs if all((text or "").strip() for text in pair.values())]
    with (raw / "chats.jsonl").open("w", encoding="utf-8") as file:
        for two in zip(good[::2], good[1::2], strict=False):
            texts = [text for pair in two for text in (pair["question"], pair["answer"])]
            turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
            file.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")
    (raw / "chats.yaml").write_text("name: bench_chats\nfiles: chats.jsonl\ncondition: direct\nturns: messages\n")
    shutil.rmtree(raw / "webinstruct_verified")


def peer(source: str, raw: Path, out: Path) -> None:
    """Clean one source with ``datasets``."""
    from datasets import Dataset, load_dataset

    cache = str(out / "cache")

    def load(kind: str, path: str) -> Dataset:
        return load_dataset(kind, data_files=str(raw / source / path), split="train", cache_dir=cache)

    def rows(data: Dataset, make: Callable[[Row], Row]) -> Dataset:
        return data.map(make, remove_columns=data.column_names)

    if source == "webinstruct_verified":
        data = rows(load("parquet", "data/train-*"), columns("direct", "question", "answer")).filter(keep)
        data.to_json(out / "rows.jsonl", force_ascii=False)
    elif source == "openmathinstruct2":
        data = load("parquet", "data/train-*")
        worked = rows(data, columns("synth,cot", "problem", "generated_solution")).filter(keep)
        worked.to_parquet(out / "cot.parquet")
        data = data.filter(lambda row: row["problem_source"] not in {"math", "gsm8k"})
        bare = rows(data, columns("synth,direct", "problem", "expected_answer")).filter(keep)
        bare.to_parquet(out / "direct.parquet")
    elif source == "natural_reasoning":
        data = load("json", "full.jsonl").filter(no_proof)
        data = rows(data, stripped)
        data.to_json(out / "rows.jsonl", force_ascii=False)
    elif source == "chats":
        data = load_dataset("json", data_files=str(raw / "chats.jsonl"), split="train", cache_dir=cache)
        data = data.map(rows_of_chats, batched=True, remove_columns=data.column_names)
        data.to_json(out / "rows.jsonl", force_ascii=False)
    elif source == "openthoughts2":
        data = rows(load("parquet", "data/train-*").filter(no_code), answer_alone).filter(keep)
        data.to_parquet(out / "all.parquet")
    else:
        for subset in ("train-easy", "train-medium", "train-hard"):
            for path in sorted((raw / source / "mathematics_dataset-v1.0" / subset).glob("*.txt")):
                data = Dataset.from_generator(pairs, gen_kwargs={"path": str(path)}, cache_dir=cache)
                data.filter(keep).to_parquet(out / f"{subset}__{path.stem}.parquet")


def ours(source: str, raw: Path, out: Path) -> None:
    """Clean one source with the stage."""
    from pairmill.engine import runner
    from pairmill.stages.clean.config import CleanConfig
    from pairmill.stages.clean.core import Clean

    chosen = str(raw / "chats.yaml") if source == "chats" else source
    result = runner.run(Clean(), CleanConfig(raw=str(raw), root=str(out), sources=[chosen], workers=1))
    print(result.manifest.ledger.rows_in)


def child(side: str, source: str, raw: str, out: str) -> None:
    """One side in a process of its own; prints its seconds."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    if side == "ours":
        import pyarrow.parquet  # noqa: F401

        import pairmill.engine.runner
        import pairmill.stages.clean.core  # noqa: F401

        work = ours
    else:
        import datasets

        datasets.disable_caching()
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()
        work = peer
    start = time.process_time()
    work(source, Path(raw), Path(out))
    print(f"\n{time.process_time() - start}")


def rows_below(folder: Path) -> tuple[int, str]:
    """How many rows the output files of one side hold, and a digest of them all, order included."""
    import pyarrow.parquet as pq

    names = ("condition", "instruction", "response")
    count, digest = 0, hashlib.sha256()
    files = [path for path in folder.rglob("*") if path.suffix in {".jsonl", ".parquet"}]
    for path in sorted(files, key=lambda path: path.name):
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=list(names)).to_pydict()
            rows = list(zip(*(table[name] for name in names), strict=True))
        else:
            rows = [tuple(json.loads(line)[name] for name in names) for line in path.open(encoding="utf-8")]
        count += len(rows)
        digest.update(repr(rows).encode())
    return count, digest.hexdigest()


def turn(side: str, source: str, raw: Path, folder: Path) -> tuple[float, str, tuple[int, str]]:
    """Seconds of one side, what it printed, and what it wrote."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        # Of datasets, not even its own copy of the data is kept.
        environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HOME": f"{name}/home", "PAIRMILL_LOG": "json"}
        command = [sys.executable, __file__, side, source, str(raw), name]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{side} {source} failed:\n{done.stderr}")
        out = next((Path(name) / "clean").glob("*/_MANIFEST.json")).parent if side == "ours" else Path(name)
        *printed, took = done.stdout.split()
        return float(took), " ".join(printed), rows_below(out)


def bench_sources(folder: Path) -> None:
    """Rows a second of both sides."""
    print(f"clean, one core, records a CPU second, against datasets' filter and map, median of {ROUNDS}\n")
    print("| source | raw MB | records | rows | pairmill, records/s | datasets, records/s | |")
    print("|---|---|---|---|---|---|---|")
    for source, scale in SCALES.items():
        raw = folder / source
        make(raw, source, scale)
        size = sum(path.stat().st_size for path in raw.rglob("*") if path.is_file())
        seconds: dict[str, list[float]] = {"ours": [], "datasets": []}
        said, found = {}, {}
        for _ in range(ROUNDS):
            for side, values in seconds.items():
                took, said[side], found[side] = turn(side, source, raw, folder)
                values.append(took)
        assert found["ours"] == found["datasets"], f"{source}: the sides differ: {found}"
        mine, theirs = (statistics.median(values) for values in seconds.values())
        records, rows = int(said["ours"]), found["ours"][0]
        print(f"| {source} | {size / 1e6:.0f} | {records:,} | {rows:,} | {records / mine:,.0f} ", end="")
        print(f"| {records / theirs:,.0f} | {theirs / mine:.1f}x |", flush=True)
        shutil.rmtree(raw)
    print()


def clean_large(raw: Path, folder: Path, workers: int) -> tuple[float, dict[str, str]]:
    """Seconds of the stage with so many workers, and the digests of its outputs."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        command = [sys.executable, "-m", "pairmill", "clean", f"raw={raw}", f"root={root}", f"workers={workers}"]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        took = time.perf_counter() - start
        manifest = json.loads((Path(done.stdout.strip()) / "_MANIFEST.json").read_bytes())
        return took, {file["path"]: file["blake3"] for file in manifest["files"] if file["task"]}


def bench_cores(folder: Path) -> None:
    """Seconds of one large file on one worker and on two, and whether the bytes are the same."""
    import make_raw

    print(f"clean, one file of {LARGE / 1e6:.0f} MB, median of {ROUNDS}\n")
    print("| file | 1 worker | 2 workers | | same bytes |\n|---|---|---|---|---|")
    for family in ("parquet", "jsonl"):
        raw = folder / family
        make_raw.make_family(raw, family, LARGE, files=1)
        seconds: dict[int, list[float]] = {1: [], 2: []}
        digests = []
        for _ in range(ROUNDS):
            for workers, values in seconds.items():
                took, found = clean_large(raw, folder, workers)
                values.append(took)
                digests.append(found)
        one, two = (statistics.median(values) for values in seconds.values())
        same = "yes" if digests[0] and all(found == digests[0] for found in digests) else "NO"
        print(f"| {family} | {one:.1f} s | {two:.1f} s | {one / two:.2f}x | {same} |", flush=True)
        shutil.rmtree(raw)
    print()


def main() -> None:
    """Print everything."""
    with tempfile.TemporaryDirectory() as name:
        bench_sources(Path(name))
        if len(os.sched_getaffinity(0)) > 1:
            bench_cores(Path(name))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
    else:
        main()
