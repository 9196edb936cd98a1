"""Bytes that tokens write: exact for byte-level tokenizers."""

import json
import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pairmill.errors import InputError
from pairmill.formats import characters
from tests.support.sides import trained

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
