"""Encoder and trainer against what tokenizers 0.22.2 recorded: 21,265 strings, the corpus, every Unicode scalar value;
two tokenizers of the corpus. The encoder on every path that this machine has."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.encoder import Encoder
from pairmill.stages.tokenize.config import TokenizeConfig
from tests.support.helpers import REPOSITORY
from tests.support.tokenizers import sides
from tests.support.tokenizers.sides import LEVELS, train_bpe

FUZZ_ROWS = 21_265


@pytest.fixture(scope="module")
def fuzz(shared: Path) -> pa.Table:
    return pq.read_table(shared / "conformance/tokenize/fuzz.parquet")


@pytest.fixture
def encoder(shared: Path, request: pytest.FixtureRequest) -> _native.Encoder:
    """The encoder of the recorded tokenizer, at the level that the test names."""
    text = (shared / "data/tokenizer/tokenizer.json").read_text()
    return _native.tokenizer_encoder(text, pattern="qwen2", normalize=True, ignore_merges=False, simd=request.param)


def test_the_recorded_tokenizer_is_recognised(shared: Path) -> None:
    made = Encoder.from_file(shared / "data/tokenizer/tokenizer.json")
    assert made.reason.startswith("the configuration of train_tokenizer; equal to the library on ")


@pytest.mark.parametrize("encoder", LEVELS, indirect=True)
def test_fuzz_strings_have_their_recorded_ids(encoder: _native.Encoder, fuzz: pa.Table) -> None:
    expected = fuzz["ids"].combine_chunks()
    inspected = 0
    # Cold, then warm.
    for _ in range(2):
        ids, offsets, _ = encoder.encode(fuzz["text"].combine_chunks())
        lengths = np.diff(offsets)
        assert np.array_equal(lengths, expected.value_lengths().to_numpy())
        assert np.array_equal(ids, expected.flatten().to_numpy())
        inspected += len(lengths)
    assert inspected == 2 * FUZZ_ROWS
    assert len(set(fuzz["group"].to_pylist())) > 1


@pytest.mark.parametrize("encoder", LEVELS, indirect=True)
def test_each_fuzz_string_alone_has_its_recorded_ids(encoder: _native.Encoder, fuzz: pa.Table) -> None:
    texts, inspected = fuzz["text"].combine_chunks(), 0
    for row, ids in enumerate(fuzz["ids"].to_pylist()[::10]):
        alone = texts.slice(row * 10, 1)
        assert encoder.encode(alone)[0].tolist() == ids, alone
        inspected += 1
    assert inspected == -(-FUZZ_ROWS // 10)


@pytest.mark.parametrize("encoder", LEVELS, indirect=True)
def test_the_corpus_has_its_recorded_ids(shared: Path, encoder: _native.Encoder) -> None:
    config = TokenizeConfig(rows=["x"], tokenizer="", root="")
    ids = [encoder.token_to_id(token) for token in (config.boq, config.eoq, config.eoa)]
    layout = _native.Layout(*ids, {tag: encoder.token_to_id(token) for tag, token in config.condition_tokens().items()})
    recorded = json.loads((shared / "conformance/tokenize/corpus.json").read_text())
    inspected = 0
    for name, arrays in recorded.items():
        table = pq.read_table(shared / "data/corpus" / name).combine_chunks()
        columns = (table[column].chunk(0) for column in ("condition", "instruction", "response"))
        spans, _ = layout.encode(encoder, *columns, 0)
        for key, array in zip(("tokens", "inst_start", "inst_len", "resp_start", "resp_len"), spans, strict=True):
            assert hashlib.sha256(array.tobytes()).hexdigest() == arrays[key]["sha256"], (name, key)
        inspected += len(spans[0])
    assert (len(recorded), inspected) == (4, sum(arrays["tokens"]["len"] for arrays in recorded.values()))


@pytest.mark.parametrize("encoder", LEVELS[-1:], indirect=True)
def test_eleven_million_spaces_are_one_piece(encoder: _native.Encoder) -> None:
    """The wheel panics above 10 million. The longest run that is a token has 64, and nothing of them is left over."""
    for length, tokens in ((64, 1), (9_984, 156), (11_000_000, 171_875)):
        ids, _, dropped = encoder.encode(pa.array([" " * length]))
        assert (set(ids.tolist()), len(ids), dropped) == ({encoder.token_to_id("Ġ" * 64)}, tokens, 0)


def test_every_scalar_alone_and_between_others_has_its_recorded_ids() -> None:
    both = sides.Sides(sides.pairs())
    assert sides.digests([both.native(level).encode for level in LEVELS]) == [sides.EVERY_SCALAR] * len(LEVELS)


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
    vocab, merges, overflow = train_bpe(*total.words(), len(model["vocab"]), special)
    assert (len(paths), inspected, overflow) == (files, documents, False)
    assert {token: i for i, token in enumerate(vocab)} == model["vocab"]
    assert [list(merge) for merge in merges] == model["merges"]


def test_character_classes_are_those_recorded(shared: Path) -> None:
    """By a number made of the class of every scalar value, which a test of the Rust code makes of its own classes."""
    ranges = json.loads((shared / "conformance/unicode/classes.json").read_text())
    classes = bytearray(0x110000)
    for number, name in enumerate(("L", "N", "s"), 1):
        for first, last in ranges[name]:
            classes[first : last + 1] = bytes([number]) * (last - first + 1)
    classes[ord("\r")] = classes[ord("\n")] = 4
    digest = 0
    for number in classes:
        digest = (digest * 31 + number) % 2**64
    source = (REPOSITORY / "rust/core/src/bpe/classes.rs").read_text()
    assert f"DIGEST: u64 = 0x{digest:016X};" in source.replace("_", "")
