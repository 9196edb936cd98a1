"""Speed against the ``tokenizers`` wheel and ``datasets`` in the same run, peak memory of every stage: ``make bench``.

The corpus is ``$PAIRMILL_SHARED/data/corpus`` (45 MB of rows); where it is absent, rows are generated, and it says so.
Machines are noisy: both sides take turns, medians are printed, and the ratio is that of the medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread on either side

import bench_clean
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native
from pairmill.encoder import SPLIT, Encoder

ROOT = Path(__file__).parents[2]
ROUNDS = 5


def corpus(folder: Path) -> Path:
    """A folder of row files of about 45 MB."""
    shared = (ROOT / os.environ.get("PAIRMILL_SHARED", "../shared")).resolve() / "data" / "corpus"
    if shared.is_dir():
        print(f"corpus: {len(list(shared.glob('*.parquet')))} files of rows\n")
        return shared
    print("corpus: generated (PAIRMILL_SHARED is not there); figures are not those of the README\n")
    sys.path.insert(0, str(ROOT / "examples"))
    import random

    from raw.words import word_problem

    rng = random.Random(0)
    questions, answers = zip(*(word_problem(rng) for _ in range(120_000)), strict=True)
    table = pa.table({"condition": ["direct"] * len(questions), "instruction": questions, "response": answers})
    made = folder / "corpus"
    made.mkdir()
    for part in range(4):
        pq.write_table(table.slice(part * 30_000, 30_000), made / f"part-{part}.parquet", row_group_size=10_000)
    return made


def texts(files: list[Path]) -> pa.Array:
    """Instructions and responses of row files, as one array."""
    table = pa.concat_tables(pq.read_table(path, columns=["instruction", "response"]) for path in files)
    columns = [column.cast(pa.large_string()) for column in table.columns]
    return pa.concat_arrays([chunk for column in columns for chunk in column.chunks])


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak(arguments: list[str]) -> tuple[float, float, str]:
    """Peak resident MiB, seconds and stdout of a stage's process."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out = process.stdout.read().decode()
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments} failed:\n{message}")
    return usage.ru_maxrss / 1024, time.perf_counter() - start, out


def bench_encode(tokenizer: Path, files: list[Path]) -> None:
    """MB/s of encoding on one thread, in turns."""
    sample = texts(files[:1])
    size = pc.sum(pc.binary_length(sample)).as_py() / 1e6
    whole = texts(files)
    whole_size = pc.sum(pc.binary_length(whole)).as_py() / 1e6
    strings = sample.to_pylist()
    wheel = Tokenizer.from_file(str(tokenizer))
    wheel.encode_special_tokens = True
    cold: list[float] = []
    warm: list[float] = []
    peer: list[float] = []
    for _ in range(ROUNDS):
        encoder = Encoder.from_file(tokenizer)
        assert encoder.path == "native", encoder.reason
        cold.append(whole_size / seconds(lambda encoder=encoder: encoder.encode(whole)))
        warm.append(whole_size / seconds(lambda encoder=encoder: encoder.encode(whole)))
        peer.append(size / seconds(lambda: wheel.encode_batch_fast(strings, add_special_tokens=False)))
    base = statistics.median(peer)
    print(f"encode, one thread, {whole_size:.0f} MB of text (wheel: {size:.0f} MB of it), {ROUNDS} rounds\n")
    print("| | MB/s (median) | min-max | against the wheel |\n|---|---|---|---|")
    for name, values in (("pairmill, first pass", cold), ("pairmill, second pass", warm), ("tokenizers 0.22.2", peer)):
        middle = statistics.median(values)
        print(f"| {name} | {middle:.1f} | {min(values):.1f}-{max(values):.1f} | {middle / base:.1f}x |")
    print()


def bench_train(files: list[Path]) -> None:
    """Seconds of training a 65,536 vocabulary on one thread."""
    whole = texts(files)
    strings = whole.to_pylist()

    def ours() -> None:
        counter = _native.WordCounter()
        counter.add(whole, sys.maxsize)
        _native.train_bpe(*counter.words(), 65536, [])

    def wheel() -> None:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, False, False)]
        )
        tokenizer.train_from_iterator(
            strings, trainers.BpeTrainer(vocab_size=65536, min_frequency=2, show_progress=False)
        )

    mine = statistics.median(seconds(ours) for _ in range(3))
    peer = seconds(wheel)
    print("train a 65,536 vocabulary on the corpus, one thread\n")
    print("| | seconds | against the wheel |\n|---|---|---|")
    print(f"| pairmill (median of 3) | {mine:.2f} | {peer / mine:.1f}x |")
    print(f"| tokenizers 0.22.2 (once) | {peer:.2f} | 1.0x |\n")


def bench_stages(rows: Path, folder: Path) -> None:
    """Seconds, MB/s and peak memory of every stage as a process of one worker."""
    files = sorted(rows.glob("*.parquet"))
    raw = folder / "raw" / "gsm8k_train"
    raw.mkdir(parents=True)
    size = 0
    with (raw / "train.jsonl").open("w", encoding="utf-8") as out:
        for path in files:
            for row in pq.read_table(path, columns=["instruction", "response"]).to_pylist():
                answer = row["response"].replace("#### ", "")
                out.write(
                    json.dumps({"question": row["instruction"], "answer": f"#### {answer}"}, ensure_ascii=False) + "\n"
                )
                size += len(row["instruction"].encode()) + len(answer.encode())
    root = f"root={folder / 'root'}"
    given = f"rows={rows}"
    print(
        f"stages, one worker, {size / 1e6:.0f} MB of text\n\n| stage | seconds | MB/s | peak MiB |\n|---|---|---|---|"
    )

    def line(name: str, *arguments: str) -> str:
        memory, took, out = peak([f"components.{name}", *arguments])
        print(f"| {name} | {took:.2f} | {size / 1e6 / took:.0f} | {memory:.0f} |", flush=True)
        return out.strip()

    line("clean", f"raw={raw.parent}", root, "workers=1", "max_reject_fraction=1")
    tokenizer = line("train_tokenizer", given, root, "workers=1")
    tokens = line("tokenize", given, f"tokenizer={tokenizer}", root, "workers=1")
    line("sample", f"tokenized_path={tokens}", f"output_path={folder / 'sampled'}", "epochs=4")
    print()
    bench_encode(Path(tokenizer) / "tokenizer.json", files)


def main() -> None:
    """Print everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = corpus(folder)
        bench_stages(rows, folder)
        bench_train(sorted(rows.glob("*.parquet")))
    bench_clean.main()


if __name__ == "__main__":
    main()
