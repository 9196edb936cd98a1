"""Bytes that tokens write: exact for byte-level tokenizers."""

import json
import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pairmill.errors import InputError
from pairmill.formats import characters
from tests.support.tokenizers.sides import trained

TEXTS = ["plain text, twice plain text", "é and ｆｕｌｌ width, 😀", "  spaces\n\tand tabs", "¾ of 10² — naïve"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    trained([*TEXTS, "question answer"] * 9, 400, True, ["<|im_start|>"]).save(str(path))
    return path


def test_byte_lengths_add_up_to_the_texts(tokenizer: Path) -> None:
    sizes, exact = characters.lengths(tokenizer.read_bytes(), "here")
    library = Tokenizer.from_file(str(tokenizer))
    assert exact
    for text in TEXTS:
        ids = library.encode(text, add_special_tokens=False).ids
        assert sum(sizes[one] for one in ids) == len(unicodedata.normalize("NFC", text).encode())
    assert sizes[library.token_to_id("<|im_start|>")] == 0


def test_other_tokenizers_are_not_exact() -> None:
    vocab = [["<unk>", 0.0], ["<0xC3>", -1.0], ["\u2581caf", -2.0], ["é", -3.0]]
    settings = {"model": {"type": "Unigram", "vocab": vocab, "byte_fallback": True}, "added_tokens": []}
    assert characters.lengths(json.dumps(settings).encode(), "here") == ([5, 1, 4, 2], False)


def test_another_file_is_refused() -> None:
    with pytest.raises(InputError, match="not a valid tokenizer"):
        characters.lengths(b"{}", "here")


def test_ids_as_text_are_what_was_encoded(tokenizer: Path) -> None:
    texts, library = characters.TokenTexts(tokenizer.read_bytes(), "here"), Tokenizer.from_file(str(tokenizer))
    control = library.token_to_id("<|im_start|>")
    for text in [*TEXTS, "x <|im_start|> y"]:
        library.encode_special_tokens = True
        ids = library.encode(text, add_special_tokens=False).ids
        assert control not in ids
        assert texts.text(ids) == unicodedata.normalize("NFC", text)
        assert texts.text([control, *ids, control]) == f"⟦<|im_start|>⟧{texts.text(ids)}⟦<|im_start|>⟧"
    emoji = library.encode("😀", add_special_tokens=False).ids
    assert b"".join(map(texts.bytes_of, emoji)) == "😀".encode()
    assert texts.text([10**6]) == "\ufffd"


def test_ids_of_tokens_with_byte_fallback_are_what_the_library_decodes() -> None:
    vocab = {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "\u2581caf": 3, "\u2581x": 4}
    steps = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    settings = {
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True},
        "decoder": {"type": "Sequence", "decoders": steps},
        "added_tokens": [],
    }
    data = json.dumps(settings)
    ids = [3, 1, 2, 4]
    assert characters.TokenTexts(data.encode(), "here").text(ids) == Tokenizer.from_str(data).decode(ids) == " café x"
