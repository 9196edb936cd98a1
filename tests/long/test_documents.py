"""Gigabytes of documents, some of 10 to 30 MB, through clean, train_tokenizer, tokenize and sample in bounded memory.

``PAIRMILL_DOCUMENTS_BYTES`` says how much text is made; it takes twice as much on disk, and what the sample takes
in memory. 3 GB take two to three minutes on two cores.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import tools

BYTES = int(float(os.environ.get("PAIRMILL_DOCUMENTS_BYTES", "3e9")))
LIMIT = 400 << 20
"""Of any process but those of clean."""
LIMIT_CLEAN = 800 << 20
"""It has a document as Python's text, of four bytes a character where one takes four, and some copies."""
MANY = 50_000
"""Pieces that are compared at a time."""

_WRAPPER = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def peak(name: str, limit: int = LIMIT, **options: object) -> None:
    """Run a stage; its largest process stays below the limit."""
    given = tools.command(name, **options, workers=2)
    done = subprocess.run(
        [sys.executable, "-c", _WRAPPER, *given],
        cwd=tools.REPOSITORY,
        env=tools.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    code, kilobytes = map(int, done.stdout.split())
    assert code == 0, done.stderr
    print(f"\n{name}: {kilobytes >> 10} MB")
    assert kilobytes << 10 <= limit, name


def documents(path: Path) -> int:
    """Most of some KB, one in some thousand of up to 30 MB. Return how many there are."""
    path.parent.mkdir(parents=True)
    draw = np.random.default_rng(1)
    words = [*tools.words(random.Random(1), 30_000).split(), "日本語", "🙂", "Привет", "straße"]
    stock = " ".join(words[place] for place in draw.zipf(1.3, 6_000_000) % len(words))
    schema = pa.schema([("text", pa.string())])
    left, count = BYTES, 0
    with pq.ParquetWriter(path, schema) as writer:
        while left > 0:
            texts: list[str] = []
            size = 0
            while size < 32 << 20 and size < left:
                long = draw.random() < 1e-4
                length = int(draw.integers(10_000_000, 30_000_000) if long else draw.lognormal(8.3, 1.2))
                start = int(draw.integers(0, max(1, len(stock) - length)))
                texts.append(stock[start : start + max(length, 20)])
                size += len(texts[-1].encode())
            writer.write_table(pa.table([texts], schema=schema), 4000)
            left, count = left - size, count + len(texts)
    return count


def one(root: Path, stage: str) -> Path:
    (found,) = (path.parent for path in root.glob(f"{tools.HOMES[stage]}/*/{tools.MANIFEST}"))
    return found


def test_gigabytes_of_documents(tmp_path: Path) -> None:
    with tools.shm_folder() as shm:
        through_the_stages(tmp_path, shm)


def through_the_stages(tmp_path: Path, shm: Path) -> None:
    root = tmp_path / "root"
    count = documents(tmp_path / "raw" / "made.parquet")
    source = tools.write_text(
        tmp_path / "docs.yaml", "name: docs\nfiles: raw/made.parquet\ntext: text\nformat: parquet\n"
    )
    peak("clean", LIMIT_CLEAN, sources=source, root=root)
    rows = one(root, "clean")
    peak("train_tokenizer", rows=rows, root=root, vocab_size=32_000)
    peak("tokenize", rows=rows, tokenizer=one(root, "train_tokenizer"), root=root, windows=True)
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: docs\n  long_context: split\n")
    sampled, tokenized = shm / "sampled", one(root, "tokenize")
    peak("sample", tokenized_path=tokenized, root=root, output_path=sampled, prefix_config_path=rules, epochs=1)

    ledger = tools.read_manifest(sampled)["ledger"]
    assert (ledger["rows_in"], ledger["rows_kept"], ledger["dropped"]) == (count, count, {})
    assert ledger["notes"]["split"] > count // 50
    flat = np.load(tokenized / "windows" / "docs__all.parquet.npy", mmap_mode="r")
    tokens = np.load(sampled / "tokens.npy", mmap_mode="r")
    starts, lengths = (np.load(sampled / "epoch_0" / f"resp_{name}.npy").astype(np.int64) for name in ("start", "len"))
    order = np.argsort(starts)
    assert int(lengths.max()) <= 4095
    at = 0
    for first in range(0, len(order), MANY):
        rows_of = order[first : first + MANY]
        some = np.concatenate([tokens[starts[row] : starts[row] + lengths[row]] for row in rows_of])
        assert np.array_equal(some, flat[at : at + len(some)])
        at += len(some)
    # The flat file has the documents' tokens and ends: the pieces joined are the same.
    assert at == len(flat) > BYTES // 20
