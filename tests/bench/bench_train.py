"""Seconds of training a vocabulary of 65,536 on one thread against the wheel, and memory by unique word."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the wheel counts its threads: one on either side

import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import ratio, spread
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native
from pairmill.encoder import SPLIT
from pairmill.engine import runner
from pairmill.formats import rows
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer

ROUNDS = 3
VOCABULARY = 65_536
TIMES = 10


def bench(folder: Path) -> None:
    """Print both tables, for a folder of row files."""
    whole = measure.texts(sorted(folder.glob("*.parquet")))
    strings = whole.to_pylist()
    found: dict[str, list[tuple[str, str]]] = {}

    def ours() -> None:
        counter = _native.WordCounter()
        counter.add(whole, sys.maxsize)
        found["ours"] = _trained(counter)

    def wheel() -> None:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, False, False)]
        )
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, min_frequency=2, show_progress=False)
        tokenizer.train_from_iterator(strings, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        found["wheel"] = [(left, right) for left, right in merges]

    mine: list[float] = []
    peer: list[float] = []
    with measure.one_core():
        for _ in range(ROUNDS):
            mine.append(measure.seconds(ours))
            peer.append(measure.seconds(wheel))
    same = "yes" if found["ours"] == found["wheel"] else "NO"
    measure.table(
        f"train {VOCABULARY:,}, one thread, {measure.megabytes(whole):.0f} MB of text, median of {ROUNDS} (from to)",
        "|seconds|pairmill|same merges",
        [
            ("pairmill", spread(mine, ".2f"), "", ""),
            ("tokenizers 0.22.2", spread(peer, ".2f"), ratio(peer, mine), same),
        ],
    )
    with tempfile.TemporaryDirectory() as name:
        lines = [_line("corpus", work, folder) for work in WORK]
        made = _random_words(Path(name), TIMES * int(lines[0][2].replace(",", "")))
        lines += [_line("random letters", work, made) for work in WORK]
    measure.table(
        f"memory of training {VOCABULARY:,} in one process, above what reading the rows takes",
        "words||unique words|batches, MiB|peak, MiB|bytes a word",
        lines,
    )


def _random_words(folder: Path, count: int) -> Path:
    """A folder of rows of so many words of 5 to 12 random letters; nearly all of them differ."""
    draw = np.random.default_rng(0)
    letters = draw.integers(ord("a"), ord("z") + 1, (count, 12), np.uint8)
    ends = draw.integers(5, 13, count)
    words = [row[:end].tobytes().decode() for row, end in zip(letters, ends.tolist(), strict=True)]
    texts = pa.array([" ".join(words[start : start + 100]) for start in range(0, count, 100)])
    columns = {
        "condition": pa.array(["direct"] * len(texts)),
        "instruction": texts,
        "response": pa.array([""] * len(texts)),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=2_000)
    return folder


def _line(words: str, work: str, folder: Path) -> tuple[str, ...]:
    said = json.loads(measure.run([sys.executable, __file__, work, str(folder)]).out)
    before, after, unique = said["before"], said["after"], said["words"]
    mebibytes = (f"{size / 2**20:.0f}" for size in (before, after))
    return (words, work, f"{unique:,}", *mebibytes, f"{(after - before) / unique:.0f}")


def _batches(folder: str) -> Iterator[rows.Batch]:
    for path in sorted(Path(folder).glob("*.parquet")):
        yield from rows.read(str(path))


def _trained(counter: _native.WordCounter) -> list[tuple[str, str]]:
    """The merges of the words counted."""
    trainer = _native.Trainer()
    trainer.add(*counter.words())
    return trainer.train(VOCABULARY, [])[1]


def _count_and_train(folder: str) -> int:
    counter = _native.WordCounter()
    for batch in _batches(folder):
        counter.add(batch.instruction, sys.maxsize)
        counter.add(batch.response, sys.maxsize)
    words = len(counter)
    _trained(counter)
    return words


def _stage(folder: str) -> int:
    with tempfile.TemporaryDirectory() as root:
        config = TrainTokenizerConfig(root=root, rows=[folder], vocab_size=VOCABULARY, workers=1)
        return int(runner.run(TrainTokenizer(), config).manifest.data["metrics"]["distinct_words"])


WORK: dict[str, Callable[[str], int]] = {"count and train": _count_and_train, "the stage, with its evaluation": _stage}


def _peak() -> int:
    """Most resident bytes of this process so far. What the system says of it when it ends begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def memory(work: str, folder: str) -> None:
    """Read all rows, then do the work, which tells how many words differ; print that, and the peak before and after."""
    deque(_batches(folder), maxlen=0)
    before = _peak()
    words = WORK[work](folder)
    print(json.dumps({"words": words, "before": before, "after": _peak()}))


if __name__ == "__main__":
    memory(*sys.argv[1:])
