"""What the tests of tokenizers share: files in the form of the published families, and a comparison.

The files are trained here, on odd texts. Only their form is that of the published ones: Qwen 2 and 3, Llama 3, GPT-2,
RoBERTa, GPT-NeoX, and GPT-4 as it was converted from tiktoken.
"""

import json
import random
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from pairmill import _native
from pairmill.encoder import GPT2_SPLIT, LLAMA3_SPLIT, SPLIT, Encoder, _recognised
from tests.support.tokenizers.sides import trained
from tests.support.tokenizers.strings import PIECES, nasty

# The bytes of these occur in no text that trains, so that a vocabulary without all bytes lacks them.
_UNSEEN = ("Ⅷ", "\U0010ffff")

FAMILIES = ("qwen", "llama", "gpt2", "roberta", "neox", "gpt4")


def added(content: str, **flags: bool) -> dict[str, Any]:
    """An added token as files have it, its id left to the library."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": 0, "content": content, **plain, **flags}


@cache
def made(family: str, *, every_byte: bool = True, seed: int = 0) -> str:
    """A tokenizer.json of this family with some 700 tokens."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split: dict[str, Any] = {"type": "Split", "pattern": {}, "behavior": "Isolated", "invert": False}
    expressions = {"qwen": SPLIT, "llama": LLAMA3_SPLIT, "gpt4": LLAMA3_SPLIT}
    model = _trained(expressions.get(family, GPT2_SPLIT), every_byte, seed)
    options = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    model = {"type": "BPE", **options, "fuse_unk": False, "byte_fallback": False, **model}
    file: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    file |= {"normalizer": None, "pre_tokenizer": None, "post_processor": byte_level, "decoder": byte_level}
    special = {"special": True}
    if family in {"qwen", "neox"}:
        file["normalizer"] = {"type": "NFC"}
    if family in expressions:
        split["pattern"] = {"Regex": expressions[family]}
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    else:
        file["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    match family:
        case "qwen":
            model["merges"] = [" ".join(merge) for merge in model["merges"]]
            model["ignore_merges"] = False
            names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_end|>"]
            file["added_tokens"] = [added(name, **special) for name in names]
            names = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|fim_prefix|>"]
            file["added_tokens"] += [added(name) for name in names]
        case "llama":
            model |= {"ignore_merges": True, "continuing_subword_prefix": None, "end_of_word_suffix": None}
            # Words that no merge makes: only ignore_merges gives them.
            for word in ("Ġthe", "'RE", "123", "<|", "ĠĠĠ", "日æľ¬", "cats"):
                model["vocab"].setdefault(word, len(model["vocab"]))
            names = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(9))]
            file["added_tokens"] = [added(name, **special) for name in names]
            text, begin = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": names[0], "type_id": 0}}
            known = {names[0]: {"id": names[0], "ids": [len(model["vocab"])], "tokens": [names[0]]}}
            other = {"Sequence": {"id": "B", "type_id": 1}}
            template = {"type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text, other]}
            steps = [{**byte_level, "use_regex": True}, {**template, "special_tokens": known}]
            file["post_processor"] = {"type": "Sequence", "processors": steps}
        case "gpt2":
            del model["type"], model["byte_fallback"]
            model["vocab"]["<|endoftext|>"] = len(model["vocab"])
            file["added_tokens"] = [added("<|endoftext|>", **special)]
            file["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
        case "roberta":
            names = ["<s>", "<pad>", "</s>", "<unk>"]
            model["vocab"] = {token: i for i, token in enumerate([*names, *model["vocab"], "<mask>"])}
            file["added_tokens"] = [added(name, normalized=True, **special) for name in names]
            file["added_tokens"].append(added("<mask>", lstrip=True, **special))
            ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
            file["post_processor"] = {"type": "RobertaProcessing", **ends, "trim_offsets": True} | {
                "add_prefix_space": False
            }
        case "neox":
            file["added_tokens"] = [added("<|endoftext|>", **special), added("<|padding|>", **special)]
            file["added_tokens"] += [added(" " * length, normalized=True) for length in range(12, 1, -1)]
        case "gpt4":
            split |= {"behavior": "Removed", "invert": True}
            file["added_tokens"] = [added(name, **special) for name in ("<|endoftext|>", "<|fim_prefix|>")]
    return json.dumps({**file, "model": model}, ensure_ascii=False)


def _trained(expression: str, every_byte: bool, seed: int) -> dict[str, Any]:
    """Vocabulary and merges that the library makes of odd texts."""
    draw = random.Random(seed)
    texts = [nasty(draw, [one for one in PIECES if one not in _UNSEEN]) for _ in range(300)]
    texts += ["the cat and the hat, aaaaaaaa ====", "don't you're 2024"] * 5
    model = json.loads(trained(texts, 700, every_byte, [], expression).to_str())["model"]
    return {"vocab": model["vocab"], "merges": model["merges"]}


def compared(text: str, strings: Iterable[str]) -> tuple[int, int]:
    """Encode with the native encoder of a tokenizer.json, on every path of this machine, cold and warm, and with the
    library; must be equal.

    Returns how many strings were compared, and how many ids they have.
    """
    native, library = Encoder.from_json(text), Encoder.from_json(text, library=True)
    assert (native.path, library.path) == ("native", "library"), native.reason
    strings = list(strings)
    array = pa.array(strings, pa.large_string())
    expected = library.encode(array)
    ends = expected.offsets.tolist()
    known = _recognised(json.loads(_native.tokenizer_settings(text)))
    assert not isinstance(known, str)
    for level in _native.simd_levels():
        encoder = _native.tokenizer_encoder(text, **known._asdict(), simd=level)
        for _ in range(2):
            ids, offsets, _ = encoder.encode(array)
            if not (np.array_equal(offsets, expected.offsets) and np.array_equal(ids, expected.ids)):
                for row, one in enumerate(strings):
                    theirs = expected.ids[ends[row] : ends[row + 1]].tolist()
                    assert encoder.encode(array.slice(row, 1))[0].tolist() == theirs, (level, one)
                raise AssertionError(f"{level}: a text has other ids among others than alone")
    return len(strings), len(expected.ids)
