"""Options of the train_tokenizer stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pairmill.engine.options import ReplaceableConfig, option
from pairmill.errors import UsageError
from pairmill.rules import DEFAULT_FILE

SPECIAL_TOKENS = [
    *(f"<|{name}|>" for name in ("PAD", "direct", "cot", "noisy", "synth", "endoftext", "im_start", "im_end")),
    *(
        f"<|{name}|>"
        for name in ("object_ref_start", "object_ref_end", "box_start", "box_end", "quad_start", "quad_end")
    ),
    *(f"<|{name}|>" for name in ("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")),
    *(f"<|{name}|>" for name in ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
]

_BYTES = 256
"""Symbols of the alphabet, which all are in the vocabulary so that every text can be encoded."""


_VOCAB_SIZE = 65536


@dataclass(kw_only=True)
class TrainTokenizerConfig(ReplaceableConfig):
    """Train a byte-level tokenizer on rows."""

    result = "tokenizer"

    rows: list[str] = option(
        help="folders or URIs of rows (.jsonl, .parquet), joined by commas", changes_bytes=False, takes="rows"
    )
    tokenizer: str = option(
        "",
        help="tokenizer that exists (a tokenizer.json, or a folder or URI with one): passed on, and none is trained",
        changes_bytes=False,
    )
    vocab_size: int = option(
        _VOCAB_SIZE, help="size of the vocabulary, special tokens and alphabet included", at_least=1
    )
    special_tokens: list[str] = option(SPECIAL_TOKENS, help="tokens with the ids 0, 1, …, joined by commas")
    tokenizer_type: Literal["bpe", "unigram"] = option(
        "bpe",
        help="the model: bpe. unigram, which data_io has, is refused: its trainer gives other bytes each time",
        changes_bytes=False,
    )
    truncate_len: int = option(10000, help="characters to read of each text", at_least=1)
    prefix_config_path: str = option(
        DEFAULT_FILE, help="the sampler's rules; max_per_file limits how much of a file is read", changes_bytes=False
    )
    limit_mul_factor: int = option(
        10, help="rows to read of a file = this times its max_per_file (data_io: texts, not rows)", at_least=1
    )
    seed: int = option(0, help="seed of the random sample of files over that limit", at_least=0)
    evaluate: bool = option(
        True,
        help="train a second time without one row in 100, and measure on those rows; the tokenizer does not change",
    )

    @property
    def given(self) -> str:
        return super().given or ("tokenizer" if self.tokenizer else "")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer_type == "unigram":
            raise UsageError(
                "is refused: the trainer of the tokenizers library gives another tokenizer each time, from the same "
                "texts, so one name would have many contents",
                where="tokenizer_type",
                got="unigram",
                expected="bpe",
                hint="train it once with that library and give its tokenizer.json as tokenizer=",
            )
        if self.tokenizer and self.vocab_size != _VOCAB_SIZE:
            # A form always sends a value, so the default may not be a wish.
            raise UsageError(
                "is of no use with tokenizer=, whose vocabulary is what it is",
                where="vocab_size",
                got=str(self.vocab_size),
                hint="write only one of them: vocab_size= trains a tokenizer, tokenizer= takes one that exists",
            )
        # One character may be a byte's symbol, which counts once.
        special = len({token for token in self.special_tokens if len(token) > 1})
        if self.profile == "pairmill" and self.vocab_size < _BYTES + special:
            raise UsageError(
                "is too small",
                where="vocab_size",
                got=str(self.vocab_size),
                expected=f"{_BYTES + special} or more: {_BYTES} bytes and {special} special tokens",
            )

    def with_tokens(self, tokens: Sequence[str]) -> TrainTokenizerConfig:
        """Return the options with further special tokens, after the others; the same object if there is none."""
        further = [token for token in dict.fromkeys(tokens) if token not in self.special_tokens]
        return replace(self, special_tokens=[*self.special_tokens, *further]) if further else self
