"""Encoder and trainer against what tokenizers 0.22.2 recorded: 21,265 strings, two tokenizers of the corpus."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.encoder import Encoder

ROOT = Path(__file__).parents[2]
FUZZ_ROWS = 21_265


@pytest.fixture(scope="module")
def fuzz(shared: Path) -> pa.Table:
    return pq.read_table(shared / "conformance/tokenize/fuzz.parquet")


def test_fuzz_strings_have_their_recorded_ids(shared: Path, fuzz: pa.Table) -> None:
    encoder = Encoder.from_file(shared / "data/tokenizer/tokenizer.json")
    assert encoder.path == "native", encoder.reason
    expected = fuzz["ids"].combine_chunks()
    inspected = 0
    # Cold, then warm.
    for _ in range(2):
        got = encoder.encode(fuzz["text"])
        lengths = np.diff(got.offsets)
        assert np.array_equal(lengths, expected.value_lengths().to_numpy())
        assert np.array_equal(got.ids, expected.flatten().to_numpy())
        inspected += len(lengths)
    assert inspected == 2 * FUZZ_ROWS
    assert len(set(fuzz["group"].to_pylist())) > 1


def test_each_fuzz_string_alone_has_its_recorded_ids(shared: Path, fuzz: pa.Table) -> None:
    encoder = Encoder.from_file(shared / "data/tokenizer/tokenizer.json")
    inspected = 0
    for text, ids in zip(fuzz["text"].to_pylist()[::10], fuzz["ids"].to_pylist()[::10], strict=True):
        assert encoder.encode([text]).ids.tolist() == ids, repr(text)
        inspected += 1
    assert inspected == -(-FUZZ_ROWS // 10)


@pytest.mark.parametrize(
    ("recorded", "files", "documents"), [("part-0.v16384.json", 1, 31_288), ("all.v65536.json", 4, 125_146)]
)
def test_trained_vocabulary_and_merges(shared: Path, recorded: str, files: int, documents: int) -> None:
    reference: dict[str, Any] = json.loads((shared / "conformance/train_tokenizer" / recorded).read_text())
    model = reference["model"]
    special = [token["content"] for token in reference["added_tokens"]]
    paths = sorted((shared / "data/corpus").glob("*.parquet"))[:files]
    total = _native.WordCounter()
    inspected = 0
    for path in paths:
        counter = _native.WordCounter()
        for batch in pq.ParquetFile(path).iter_batches(columns=["instruction", "response"]):
            for column in batch.columns:
                counter.add(column, 10_000)
                inspected += len(column)
        total.merge(*counter.words())
    vocab, merges, overflow = _native.train_bpe(*total.words(), len(model["vocab"]), special)
    assert (len(paths), inspected, overflow) == (files, documents, False)
    assert {token: i for i, token in enumerate(vocab)} == model["vocab"]
    assert [list(merge) for merge in merges] == model["merges"]


def test_class_tables_are_those_recorded(shared: Path, tmp_path: Path) -> None:
    generated = tmp_path / "tables.rs"
    script = ROOT / "rust/core/generate_tables.py"
    subprocess.run([sys.executable, script, shared / "conformance/unicode/classes.json", generated], check=True)
    assert generated.read_text() == (ROOT / "rust/core/src/tables.rs").read_text()
