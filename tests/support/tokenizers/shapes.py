"""Small tokenizers in the form of the families that templates are for: split, normalizer and added tokens.

Vocabularies are trained here. ``tests/support/tokenizers/families.py`` has the byte-level families whose ids the
native encoder reproduces; here the point is which tokens a file has, so each form is as short as it can be.
"""

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pairmill.encoder import GPT2_SPLIT, LLAMA3_SPLIT, SPLIT

_TEXTS = [
    "the cat and the hat, aaaa ==== 2024", "don't you're", "What is seven times six? It is forty-two.", "日本語 é",
] * 6  # fmt: skip
# Abridged: the split of Tekken and of o200k, and the three steps of DeepSeek V3. The native encoder has none of them.
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}]*[\p{Ll}]+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+(?!\S)|\s+"
)
_CJK = r"[一-龥぀-ゟ゠-ヿ]+"

_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN = (
    *("object_ref_start", "object_ref_end", "box_start", "box_end", "quad_start", "quad_end"),
    *("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"),
)
_SENTENCEPIECE = ("<unk>", "<s>", "</s>")

SPECIAL: dict[str, tuple[str, ...]] = {
    "hrm": (*_CHATML, *(f"<|{name}|>" for name in _QWEN)),
    "llama3": (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
        *("<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
        *(f"<|reserved_special_token_{number}|>" for number in range(3, 20)),
    ),
    "qwen": (*_CHATML, *(f"<|{name}|>" for name in _QWEN)),
    "chatml": _CHATML,
    "mistral": (
        *_SENTENCEPIECE,
        *("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", *(f"[control_{number}]" for number in range(8, 20))),
    ),
    "mistral_tekken": (
        *_SENTENCEPIECE,
        *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        *("[TOOL_CALLS]", "<pad>", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
        *(f"<SPECIAL_{number}>" for number in range(14, 30)),
    ),
    "llama2": _SENTENCEPIECE,
    "gemma": ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
    "phi3": (
        *_SENTENCEPIECE,
        *("<|endoftext|>", "<|assistant|>", *(f"<|placeholder{number}|>" for number in range(1, 5)), "<|system|>"),
        *("<|end|>", "<|placeholder5|>", "<|placeholder6|>", "<|user|>"),
    ),
    "phi4": (
        *("<|dummy_0|>", "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
        *(*(f"<|dummy_{number}|>" for number in range(1, 4)), "<|im_start|>", "<|im_end|>", "<|im_sep|>"),
    ),
    "olmo": (*_CHATML, "<|fim_prefix|>", "<|endofprompt|>", "<|pad|>"),
    "smollm": (
        *_CHATML,
        *("<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_start>", "<issue_comment>"),
        *("<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>"),
        *("<jupyter_script>", "<empty_output>"),
    ),
    "deepseek": (
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),
        *(f"<｜place▁holder▁no▁{number}｜>" for number in range(8)),
    ),
    "gpt_oss": (
        *("<|startoftext|>", "<|endoftext|>", "<|reserved_200000|>", "<|reserved_200001|>", "<|return|>"),
        *("<|constrain|>", "<|reserved_200004|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>"),
        *("<|reserved_200009|>", "<|call|>"),
    ),
    "gpt2": ("<|endoftext|>",),
    "neox": ("<|endoftext|>", "<|padding|>"),
}
"""Added tokens that are special, in the order of their ids."""
PLAIN: dict[str, tuple[str, ...]] = {
    "qwen": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "gemma": ("<mask>", *(f"<unused{number}>" for number in range(9))),
    "olmo": ("|||IP_ADDRESS|||", *(f"<|extra_id_{number}|>" for number in range(11))),
    "deepseek": ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"),
    "neox": tuple(" " * length for length in range(6, 1, -1)),
}
"""Added tokens that are found in texts."""

_SPLITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("hrm", "qwen", "chatml"), (SPLIT,)),
    **dict.fromkeys(("llama3", "phi4", "olmo"), (LLAMA3_SPLIT,)),
    **dict.fromkeys(("mistral_tekken", "gpt_oss"), (_CASED,)),
    **dict.fromkeys(("gpt2", "neox"), (GPT2_SPLIT,)),
    "smollm": (r"\p{N}", GPT2_SPLIT),
    "deepseek": (r"\p{N}{1,3}", _CJK, LLAMA3_SPLIT),
}
_BYTES = [f"<0x{number:02X}>" for number in range(256)]


@cache
def shaped(family: str) -> str:
    """A tokenizer.json in the form of a family, with some 600 tokens."""
    tokenizer = _byte_level(family) if family in _SPLITS else _sentence_piece(family)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL[family]])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in PLAIN.get(family, ())])
    return str(tokenizer.to_str())


def _byte_level(family: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if family in {"hrm", "qwen", "chatml", "neox"}:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[family]]
    if family in {"gpt2", "neox"}:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, False, False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        _TEXTS, trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    )
    return tokenizer


def _sentence_piece(family: str) -> Tokenizer:
    """BPE over characters, with tokens for the bytes of those that are not in the vocabulary."""
    learned = Tokenizer(models.BPE())
    learned.normalizer = normalizers.Replace(" ", "▁")
    learned.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁]+"), "isolated")
    learned.train_from_iterator(_TEXTS, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    model = json.loads(learned.to_str())["model"]
    first = [*SPECIAL[family][:3], *_BYTES]
    vocab = {token: number for number, token in enumerate(dict.fromkeys([*first, "▁", *model["vocab"]]))}
    merges = [(left, right) for left, right in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=None, byte_fallback=True))
    steps: list[Any] = [normalizers.Replace(" ", "▁")]
    if family != "gemma":
        steps = [normalizers.Prepend("▁"), *steps]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
