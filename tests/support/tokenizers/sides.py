"""The tokenizers wheel and ours with one vocabulary, and the comparison of the two."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native
from pairmill.encoder import SPLIT
from tests.support.tokenizers import strings
from tests.support.tokenizers.strings import scalars

# The ways in which this machine can scan; each gives the same ids.
LEVELS = _native.simd_levels()
# How many Unicode scalar values there are: code points without surrogates.
SCALARS = 0x110000 - 0x800


def trained(
    texts: list[str], vocab_size: int, full_alphabet: bool, special_tokens: list[str], split: str = SPLIT
) -> Tokenizer:
    """A tokenizer trained by the wheel, in the configuration of train_tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(False, False, False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if full_alphabet else [],
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def pairs(symbols: list[str] | None = None) -> Tokenizer:
    """A tokenizer of the wheel in which any two of some bytes' symbols merge (all by default), in an order without a
    pattern.

    So the ids show where a piece ends. In a trained vocabulary hardly any merge crosses the end of a piece, so a piece
    that is too long would still have the right ids.
    """
    symbols = symbols or sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(left, right) for left in symbols for right in symbols]
    draw = random.Random(0)
    draw.shuffle(merges)
    tokens = symbols + [left + right for left, right in merges]
    # Neither the alphabet's ids nor those of merges follow each other, as they do in a vocabulary just trained.
    draw.shuffle(tokens)
    tokenizer = trained([], 0, False, [])
    tokenizer.model = models.BPE({token: number for number, token in enumerate(tokens)}, merges)
    return tokenizer


def train_bpe(
    words: Any,
    counts: Any,
    vocab_size: int,
    special_tokens: Sequence[str],
    min_frequency: int = 2,
    full_alphabet: bool = False,
) -> tuple[list[str], list[tuple[str, str]], bool]:
    """Train natively on these words alone: tokens, merges, and whether 32 bits would overflow."""
    trainer = _native.Trainer()
    trainer.add(words, counts)
    vocab, merges, _, overflow = trainer.train(vocab_size, special_tokens, min_frequency, full_alphabet)
    return vocab, merges, overflow


class Sides:
    """A tokenizer of the wheel, and ours with its vocabulary.

    Attributes:
        tokenizer: the wheel's.
        vocab: token to id.
        merges: pairs of tokens by rank.
        ids: how many ids were compared so far, all passes together.
    """

    def __init__(self, tokenizer: Tokenizer, merges: list[tuple[str, str]] | None = None) -> None:
        model = json.loads(tokenizer.to_str())["model"]
        self.vocab: dict[str, int] = model["vocab"]
        self.merges = [(left, right) for left, right in model["merges"]] if merges is None else merges
        self.ids = 0
        self.tokenizer = tokenizer

    @cached_property
    def alphabet(self) -> int:
        """How many bytes have a symbol."""
        return sum(len(token) == 1 for token in self.vocab)

    def native(self, level: str) -> _native.Encoder:
        """Ours, made to scan in one way."""
        return _native.Encoder(self.vocab, self.merges, simd=level)

    @cached_property
    def _natives(self) -> dict[str, _native.Encoder]:
        # Made once: 65,536 merges take longer than the texts. Words that were not met yet are cold all the same.
        return {level: self.native(level) for level in LEVELS}

    def expected(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return np.fromiter((number for row in rows for number in row), np.uint32, offsets[-1]), offsets

    def _differs(self, text: str, level: str) -> bool:
        """Whether one text alone differs, in the first or the second pass."""
        expected, _ = self.expected([text])
        encoder = self.native(level)
        array = pa.array([text], pa.large_string())
        return any(not np.array_equal(encoder.encode(array)[0], expected) for _ in range(2))

    def compare(self, texts: list[str], what: str) -> None:
        """Fail if a text has other ids than in the wheel: in an array or joined, on any path, at first or again."""
        for many in (texts, ["".join(texts)]):
            expected, offsets = self.expected(many)
            array = pa.array(many, pa.large_string())
            for level, encoder in self._natives.items():
                for turn in ("first", "second"):
                    ids, ends, _ = encoder.encode(array)
                    self.ids += len(ids)
                    if not (np.array_equal(ids, expected) and np.array_equal(ends, offsets)):
                        pytest.fail(f"{what}, path {level!r}, {turn} pass: {self._report(many, ids, ends, level)}")

    def _report(self, texts: list[str], ids: NDArray[np.uint32], offsets: NDArray[np.int64], level: str) -> str:
        expected, ends = self.expected(texts)
        rows = zip(np.split(ids, offsets[1:-1]), np.split(expected, ends[1:-1]), strict=True)
        row, got, wanted = next(
            (i, ours, theirs) for i, (ours, theirs) in enumerate(rows) if ours.tolist() != theirs.tolist()
        )
        if not self._differs(texts[row], level):
            return f"row {row} of {len(texts)} differs, but not alone: {texts[row]!r}; got {got}, expected {wanted}"
        text = strings.smallest(texts[row], lambda text: self._differs(text, level))
        got = self.native(level).encode(pa.array([text]))[0]
        return f"row {row}, smallest: {text!r}; got {got.tolist()}, expected {self.expected([text])[0].tolist()}"


# What gives an array of texts their ids and offsets, and more perhaps.
Encode = Callable[[pa.Array], tuple[Any, ...]]

# What `digests` gives of the wheel with `pairs()`, which takes it a minute: only the property tests' long run asks it.
EVERY_SCALAR = "621f10e09a669526d0cd5ead1ce358337ddbf1b39948ed4b35740216a3ab36c0"


def digests(encoders: list[Encode]) -> list[str]:
    """The sha256 of the ids and the offsets that each encoder gives the texts of `strings.scalars`."""
    found = [hashlib.sha256() for _ in encoders]
    texts, inspected = scalars(), 0
    with ThreadPoolExecutor() as pool:
        while chunk := list(islice(texts, 200_000)):
            array = pa.array(chunk, pa.large_string())
            encoded = [pool.submit(encode, array) for encode in encoders]
            for digest, one in zip(found, encoded, strict=True):
                ids, offsets, *_ = one.result()
                digest.update(ids.tobytes() + offsets.tobytes())
            inspected += len(chunk)
    assert inspected == 2 * SCALARS
    return [digest.hexdigest() for digest in found]


def counted(texts: list[str]) -> tuple[_native.ArrowArray, NDArray[np.int64]]:
    """The words of some texts with their counts."""
    counter = _native.WordCounter()
    counter.add(pa.array(texts, pa.large_string()), sys.maxsize)
    return counter.words()
