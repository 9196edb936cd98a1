"""Tokenizers of other families: the native path takes them, with the ids of the library for every text."""

import json
import random
from typing import Any

import pytest

from pairmill.encoder import Encoder
from tests.support.helpers import draws
from tests.support.tokenizers.families import FAMILIES, added, compared, made
from tests.support.tokenizers.strings import PIECES, nasty, scalars

SPLITS = {"qwen": "Qwen 2 and 3", "llama": "Llama 3 and GPT-4", "gpt4": "Llama 3 and GPT-4"}


@pytest.mark.parametrize("every_byte", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_ids_of_the_library(family: str, every_byte: bool) -> None:
    text = made(family, every_byte=every_byte)
    tokens = [token["content"] for token in json.loads(text)["added_tokens"]]
    draw = random.Random(family)
    strings = [nasty(draw, (*PIECES, *tokens * 2)) for _ in range(700)]
    # Words on both sides of the limits of cache and scan, numbers, and white space at the end.
    strings += ["".join(draw.choices("thecats", k=length)) for length in (15, 16, 64, 65, 256, 257, 3_000)]
    strings += ["7" * 1_001, "=" * 2_000, " " * 2_000, "\n" * 2_000 + "a", "the 123 <|'RE   日本"]
    inspected, ids = compared(text, strings)
    assert inspected == 712
    assert ids > 5_000
    native = Encoder.from_json(text)
    assert f"the split of {SPLITS.get(family, 'GPT-2')}, " in native.reason
    assert (native.encode(["Ⅷ\U0010ffff"]).dropped_bytes == 0) == every_byte


@pytest.mark.parametrize("family", ["qwen", "llama", "gpt2"])
def test_scalars_alone_and_between_others(family: str) -> None:
    inspected, _ = compared(made(family), scalars(2900 // draws(100)))
    assert inspected > draws(75_000)


def test_both_paths_know_the_tokens() -> None:
    for family in FAMILIES:
        text = made(family)
        native, library = Encoder.from_json(text), Encoder.from_json(text, library=True)
        file = json.loads(text)
        tokens = [*file["model"]["vocab"], *(token["content"] for token in file["added_tokens"])]
        assert native.vocab_size == library.vocab_size == len(set(tokens)) > 690
        for token in (*tokens, "no such token", ""):
            assert native.token_to_id(token) == library.token_to_id(token), token


def test_added_tokens_of_every_kind_are_found_as_the_library_finds_them() -> None:
    contents = [
        "<think>", "<|im_start|>", "think", "a", "  ", "   ", "\n", "\n\n", "<", "<|", "é", "e\u0301", "\u0301", "ab",
        "bc", "abc", "日", "the cat", "'s", "s", "12", "123", "\u3000", " t", "t ", "<|im", "start|>", "|>", "\u212b",
    ]  # fmt: skip
    flags = {"special": 0.4, "normalized": 0.4, "lstrip": 0.2, "rstrip": 0.05}
    draw = random.Random(5)
    native = 0
    for round_ in range(24):
        file: dict[str, Any] = json.loads(made(FAMILIES[round_ % len(FAMILIES)], every_byte=round_ % 2 == 0))
        known = {token["content"] for token in file["added_tokens"]}
        chosen = draw.sample([content for content in contents if content not in known], 7)
        file["added_tokens"] += [
            added(content, **{flag: draw.random() < chance for flag, chance in flags.items()}) for content in chosen
        ]
        # Some stand in the vocabulary, as those of GPT-2 and RoBERTa do, and files may give them in any order.
        for content in chosen[:2]:
            file["model"]["vocab"].setdefault(content, len(file["model"]["vocab"]))
        draw.shuffle(file["added_tokens"])
        text = json.dumps(file)
        encoder = Encoder.from_json(text)
        if encoder.path == "library":
            assert "takes white space that another begins with" in encoder.reason
            continue
        native += 1
        compared(text, [nasty(draw, (*PIECES, *chosen * 4)) for _ in range(150)])
    assert native >= 12


REFUSED = {
    "is given twice": [added("x"), added("x", special=True)],
    "is found as a single word only": [added("x", single_word=True)],
    "takes white space that another begins with": [added("x", rstrip=True), added(" y")],
}


@pytest.mark.parametrize("why", REFUSED)
def test_added_tokens_that_are_not_proved_go_to_the_library(why: str) -> None:
    file = json.loads(made("gpt2"))
    file["added_tokens"] += REFUSED[why]
    encoder = Encoder.from_json(json.dumps(file))
    assert encoder.path == "library"
    assert encoder.reason == f'the native encoder refuses it: added token "x" {why}'


def test_ids_with_holes_go_to_the_library_where_two_tokens_would_share_one() -> None:
    file = json.loads(made("gpt2"))
    size = len(file["model"]["vocab"])
    file["model"]["vocab"]["<sep>"] = size + 1
    file["added_tokens"] += [added("<sep>"), added("<new>")]
    assert "two added tokens have the id" in Encoder.from_json(json.dumps(file)).reason
    del file["added_tokens"][-1]
    compared(json.dumps(file), ["a<sep>b", "<sep>", "<new>"])
