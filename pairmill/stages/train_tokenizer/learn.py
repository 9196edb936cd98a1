"""From runs of counted words to a tokenizer, and how well it does on rows that it has not seen."""

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import decoders

from pairmill import _native
from pairmill.encoder import PRE_TOKENIZER
from pairmill.errors import InputError
from pairmill.formats import rows
from pairmill.stages.train_tokenizer import runs
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig

BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_LONGEST = 20


class Learned(NamedTuple):
    """A trained vocabulary.

    Attributes:
        words: distinct words trained on.
        text_bytes: bytes of the text that they make up, in NFC and cut to ``truncate_len``.
        vocab: tokens in byte symbols, by id.
        merges: (left, right) by rank.
        replaced: int64 [merges], tokens that each merge saved on that text.
        overflow: whether a pair occurred more often than 32 bits can count.
    """

    words: int
    text_bytes: int
    vocab: list[str]
    merges: list[tuple[str, str]]
    replaced: NDArray[np.int64]
    overflow: bool

    @property
    def tokens(self) -> int:
        """The tokens of that text, encoded with the whole vocabulary."""
        return self.text_bytes - int(self.replaced.sum())

    def growth(self) -> list[tuple[int, float]]:
        """(Vocabulary size, bytes per token of the text trained on), at every power of two and at both ends."""
        tokens = self.text_bytes - np.concatenate([[0], np.cumsum(self.replaced)])
        last = len(self.vocab)
        first = last - len(self.merges)
        sizes = {first, last, *(1 << power for power in range(last.bit_length()) if 1 << power > first)}
        return (
            [(size, self.text_bytes / int(tokens[size - first])) for size in sorted(sizes)] if self.text_bytes else []
        )


def learn(config: TrainTokenizerConfig, uris: Sequence[str], *, full_alphabet: bool) -> Learned:
    """Train BPE on the words of these runs; ``full_alphabet``: with all bytes, not only those that occur.

    Raises:
        InputError: there is more than can be counted.
    """

    trainer = _native.Trainer()
    for batch in runs.merged(uris):
        try:
            trainer.add(*batch)
        except ValueError as error:
            raise InputError(
                str(error),
                where="train_tokenizer",
                hint="read less of the files: max_per_file in prefix_config_path, or limit_mul_factor",
            ) from error
    # Arrow keeps freed memory, 40 MB after batches of rows, and the training needs more of its own.
    pa.default_memory_pool().release_unused()
    words, text_bytes = len(trainer), trainer.text_bytes
    vocab, merges, replaced, overflow = trainer.train(config.vocab_size, config.special_tokens, 2, full_alphabet)
    return Learned(words, text_bytes, vocab, merges, replaced, overflow)


def encode(learned: Learned, tasks: Iterable[tuple[str, Sequence[str]]]) -> Iterator[tuple[str, int, int]]:
    """(name, bytes, tokens) of each task (name, runs), with a vocabulary that has all bytes.

    Each word is encoded as a text of its own, which splits into that word alone.
    """

    encoder = _native.Encoder({token: number for number, token in enumerate(learned.vocab)}, learned.merges)
    for task, uris in tasks:
        text_bytes = tokens = 0
        for uri in uris:
            for batch in runs.batches(uri):
                words, counts = batch.columns
                texts = pa.Array.from_buffers(pa.large_string(), len(words), words.buffers(), offset=words.offset)
                _, offsets, _ = encoder.encode(texts)
                # Neither sum overflows, because training on all words succeeded.
                tokens += int(np.diff(offsets) @ runs.values(counts))
                text_bytes += int(np.diff(rows.text_offsets(texts)) @ runs.values(counts))
        yield task, text_bytes, tokens


def tokenizer_json(config: TrainTokenizerConfig, learned: Learned) -> Iterator[str]:
    """Parts of a tokenizer.json, byte for byte as tokenizers 0.22.2 writes it.

    As one text, it would take more memory than the training.
    """
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = list(dict.fromkeys(config.special_tokens))
    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **plain} for number, token in enumerate(special)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": PRE_TOKENIZER,
        "post_processor": {"type": "ByteLevel", **BYTE_LEVEL},
        "decoder": {"type": "ByteLevel", **BYTE_LEVEL},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
        },
    }
    # json writes indented text element by element, in Python, which would take a third of the stage's time.
    quoted = json.encoder.encode_basestring
    vocab = (f"      {quoted(token)}: {number}" for number, token in enumerate(learned.vocab))
    merges = (f"      [\n        {quoted(left)},\n        {quoted(right)}\n      ]" for left, right in learned.merges)
    end = "\n  }\n}"
    yield json.dumps(head, indent=2, ensure_ascii=False).removesuffix(end)
    yield ',\n    "vocab": '
    yield from _lines("{", vocab, "}")
    yield ',\n    "merges": '
    yield from _lines("[", merges, "]")
    yield end


def _lines(first: str, lines: Iterable[str], last: str) -> Iterator[str]:
    before = first + "\n"
    for line in lines:
        yield before + line
        before = ",\n"
    yield f"\n    {last}" if before == ",\n" else first + last


def longest(tokens: Iterable[str], special: Iterable[str]) -> list[tuple[str, int]]:
    """Return the longest tokens as text, without special ones, with their bytes; of equal lengths the first given."""

    decoder, left_out = decoders.ByteLevel(), set(special)
    result = heapq.nlargest(_LONGEST, (token for token in tokens if token not in left_out), key=len)
    return [(repr(decoder.decode([token])), len(token)) for token in result]
