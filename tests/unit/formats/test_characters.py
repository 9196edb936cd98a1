"""Which tokens begin within a character: byte-level BPE, models with single bytes, and models of whole characters."""

import json
from typing import Any

import pytest

from pairmill.errors import InputError
from pairmill.formats.characters import continuing
from tests.support.data.split_characters import SYMBOLS
from tests.support.tokenizers.sides import trained

BYTES = {symbol: byte for byte, symbol in SYMBOLS.items()}


def flags(settings: dict[str, Any]) -> list[int]:
    return list(continuing(json.dumps(settings).encode(), "x/tokenizer.json"))


def test_tokens_of_a_trained_tokenizer_by_their_first_byte() -> None:
    tokenizer = trained(["日本語 🙂 é ü straße Ж"] * 9, 400, True, ["<|im_start|>", "¤x"])
    found = continuing(tokenizer.to_str().encode(), "tokenizer.json")
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    assert len(found) == len(vocab) == max(vocab.values()) + 1
    added = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
    seen = 0
    for token, number in vocab.items():
        first = added[number].encode()[0] if number in added else BYTES[token[0]]
        assert found[number] == (0x80 <= first < 0xC0), token
        seen += found[number]
    assert seen > 64  # merges begin within characters too
    assert {added[number] for number in added if not found[number]} == {"<|im_start|>", "¤x"}


def test_a_decoder_alone_says_that_tokens_are_bytes_and_an_added_token_is_text() -> None:
    settings = {
        "added_tokens": [{"id": 2, "content": "¤", "special": False}],
        "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]},
        "model": {"type": "BPE", "vocab": {"¤a": 0, "a": 1, "¤": 2, "Ã¤": 4}, "merges": []},
    }
    assert flags(settings) == [1, 0, 0, 0, 0]


def test_models_of_characters_have_no_such_token_but_their_single_bytes() -> None:
    unigram = {"type": "Unigram", "vocab": [["<unk>", 0.0], ["<0xE6>", -1.0], ["<0x97>", -1.0], ["¤", -2.0]]}
    assert flags({"model": unigram}) == [0, 0, 0, 0]
    assert flags({"model": {**unigram, "byte_fallback": True}}) == [0, 0, 1, 0]
    pieces = {"type": "WordPiece", "vocab": {"##¤": 1, "a": 0}}
    assert flags({"model": pieces, "pre_tokenizer": {"type": "BertPreTokenizer"}}) == [0, 0]


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"model": {}}', b'{"model": {"vocab": {"a": "b"}}}'])
def test_what_is_no_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"x/tokenizer.json: not a valid tokenizer"):
        continuing(data, "x/tokenizer.json")
