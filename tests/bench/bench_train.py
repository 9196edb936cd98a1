"""Seconds of training a vocabulary of 65,536 on one thread against the wheel, and memory by unique word."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the wheel counts its threads: one on either side

import measure
import pyarrow.parquet as pq
from measure import TEXTS, ratio, spread
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native
from pairmill.encoder import SPLIT

ROUNDS = 3
VOCABULARY = 65_536


def bench(rows: Path) -> None:
    """Print both tables."""
    files = sorted(rows.glob("*.parquet"))
    whole = measure.texts(files)
    strings = whole.to_pylist()
    found: dict[str, list[tuple[str, str]]] = {}

    def ours() -> None:
        counter = _native.WordCounter()
        counter.add(whole, sys.maxsize)
        found["ours"] = _native.train_bpe(*counter.words(), VOCABULARY, [])[1]

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
    said = json.loads(measure.run([sys.executable, __file__, str(rows)]).out)
    before, after, words = said["before"], said["after"], said["words"]
    measure.table(
        "memory of counting and training",
        "unique words|batches, MiB|peak, MiB|bytes a word",
        [(f"{words:,}", f"{before / 2**20:.0f}", f"{after / 2**20:.0f}", f"{(after - before) / words:.0f}")],
    )


def _peak() -> int:
    """Most resident bytes of this process so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def memory(rows: str) -> None:
    """Read all batches, then count and train on them; print the peak before and after."""
    counter = _native.WordCounter()
    before = 0
    for count in (False, True):
        for path in sorted(Path(rows).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(columns=list(TEXTS)):
                for column in batch.columns if count else []:
                    counter.add(column, sys.maxsize)
        before = before or _peak()
    _native.train_bpe(*counter.words(), VOCABULARY, [])
    print(json.dumps({"words": len(counter), "before": before, "after": _peak()}))


if __name__ == "__main__":
    memory(*sys.argv[1:])
