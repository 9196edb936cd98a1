"""Encoder: the native path equals the library's, and what is not proved goes to the library."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, models, processors

from pairmill import _native, encoder
from pairmill.encoder import SPLIT, Encoder
from pairmill.errors import InputError, InternalError, StorageError
from tests.support.helpers import python
from tests.support.tokenizers.sides import trained
from tests.support.tokenizers.strings import nasty

SPECIAL = ["<|PAD|>", "<|im_start|>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def tokenizer_json() -> str:
    """A small tokenizer trained by the library, without all bytes."""
    draw = random.Random(0)
    texts = [nasty(draw).replace("Ⅷ", "").replace("\U0010ffff", "") for _ in range(300)]
    texts += ["the cat and the hat, aaaaaaaa ====", "don't you're"] * 5
    tokenizer = trained(texts, 600, False, SPECIAL)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return str(tokenizer.to_str())


def altered(text: str, alter: Callable[[dict[str, Any]], object]) -> str:
    config = json.loads(text)
    alter(config)
    return json.dumps(config, ensure_ascii=False)


def same(one: encoder.Encoded, other: encoder.Encoded) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.offsets, other.offsets)


def test_random_strings_against_the_library(tokenizer_json: str) -> None:
    native = Encoder.from_json(tokenizer_json)
    library = Encoder.from_json(tokenizer_json, library=True)
    assert (native.path, library.path, library.reason) == ("native", "library", "asked for")
    draw = random.Random(2)
    texts = [nasty(draw) for _ in range(2_000)]
    # Words on both sides of the limits of cache and scan, and far beyond.
    texts += ["".join(draw.choices("theacd", k=length)) for length in (15, 16, 64, 65, 255, 256, 257, 5_000)]
    texts += ["a" * 20_001, "=" * 3_000, " " * 3_000, "\n" * 3_000 + "a"]
    expected = library.encode(texts)
    assert len(expected.ids) > 10_000
    got = native.encode(texts)
    for row, text in enumerate(texts):
        assert encoder._row(got, row) == encoder._row(expected, row), repr(text)
    assert got.dropped_bytes is not None
    assert got.dropped_bytes > 0
    assert expected.dropped_bytes is None
    assert same(native.encode(texts), got), "a warm cache changed ids"


@pytest.mark.parametrize("library", [False, True])
def test_ids_and_offsets_are_a_pair(tokenizer_json: str, library: bool) -> None:
    ids, offsets = Encoder.from_json(tokenizer_json, library=library).encode(pa.array(["the cat", "", "the"]))
    assert (ids.dtype, ids.shape) == (np.uint32, (offsets[-1],))
    assert (offsets.dtype, offsets.shape) == (np.int64, (4,))
    assert np.array_equal(ids[offsets[2] : offsets[3]], ids[:1])


def test_dropped_bytes_are_counted(tokenizer_json: str) -> None:
    native = Encoder.from_json(tokenizer_json)
    assert native.encode(["the\U0010ffffcat"]).dropped_bytes in (1, 2, 3, 4)
    assert native.encode(["the cat"]).dropped_bytes == 0


def test_both_paths_know_the_vocabulary(tokenizer_json: str) -> None:
    for library in (False, True):
        made = Encoder.from_json(tokenizer_json, library=library)
        assert made.vocab_size == len(json.loads(tokenizer_json)["model"]["vocab"])
        assert [made.token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3]
        assert made.token_to_id("no such token") is None


def test_special_tokens_in_a_text_are_plain(tokenizer_json: str) -> None:
    for library in (False, True):
        made = Encoder.from_json(tokenizer_json, library=library)
        assert not set(made.encode(["a<think>b</think><|im_start|>"]).ids.tolist()) & {0, 1, 2, 3}


@pytest.mark.parametrize("library", [False, True])
def test_arrays_of_all_text_types(tokenizer_json: str, library: bool) -> None:
    made = Encoder.from_json(tokenizer_json, library=library)
    texts = ["the cat", "", "don't", "the cat"]
    expected = made.encode(texts)
    assert (str(expected.ids.dtype), str(expected.offsets.dtype), len(expected.offsets)) == ("uint32", "int64", 5)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        array = pa.array(texts, kind)
        assert same(made.encode(array), expected), kind
        chunked = pa.chunked_array([array.slice(0, 1), array.slice(1, 0), array.slice(1)])
        assert same(made.encode(chunked), expected), kind
        assert made.encode(chunked).dropped_bytes == expected.dropped_bytes
        empty = made.encode(pa.chunked_array([], kind))
        assert (len(empty.ids), empty.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("library", [False, True])
def test_nulls_and_other_types_are_refused(tokenizer_json: str, library: bool) -> None:
    made = Encoder.from_json(tokenizer_json, library=library)
    with pytest.raises(ValueError, match="row 2 is null"):
        made.encode(pa.chunked_array([["a", "b"], [None, "c"]]))
    with pytest.raises(TypeError, match="Arrow array of int64"):
        made.encode(pa.array([1]))
    with pytest.raises(TypeError, match="got tuple"):
        made.encode(("a",))


def test_merges_may_be_written_as_strings(tokenizer_json: str) -> None:
    def join(config: dict[str, Any]) -> None:
        config["model"]["merges"] = [" ".join(merge) for merge in config["model"]["merges"]]

    made = Encoder.from_json(altered(tokenizer_json, join))
    assert made.path == "native"
    assert same(made.encode(["the cat"]), Encoder.from_json(tokenizer_json).encode(["the cat"]))


def test_special_tokens_outside_the_model_count_for_the_vocabulary(tokenizer_json: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.add_special_tokens(["<new>"])
    made = Encoder.from_json(tokenizer.to_str())
    assert made.path == "native"
    assert made.token_to_id("<new>") == made.vocab_size - 1 == len(json.loads(tokenizer_json)["model"]["vocab"])


ALTERATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "normalizer": lambda config: config.update(normalizer={"type": "NFKC"}),
    "pre_tokenizer": lambda config: config["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
    "pre_tokenizer, split": lambda config: config["pre_tokenizer"]["pretokenizers"][0].update(
        pattern={"Regex": SPLIT.replace(r"\p{N}|", r"\p{N}+|")}
    ),
    "pre_tokenizer, text": lambda config: config["pre_tokenizer"]["pretokenizers"][0].update(pattern={"String": " "}),
    "pre_tokenizer, merged": lambda config: config["pre_tokenizer"]["pretokenizers"][0].update(behavior="Contiguous"),
    "pre_tokenizer, twice": lambda config: config["pre_tokenizer"]["pretokenizers"][1].update(use_regex=True),
    "pre_tokenizer, none": lambda config: config.update(pre_tokenizer=None),
    "post_processor": lambda config: config.update(
        post_processor={"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    ),
    "truncation": lambda config: config.update(
        truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    ),
    "padding": lambda config: config.update(
        padding={
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|PAD|>",
        }
    ),
    "model.unk_token": lambda config: config["model"].update({"unk_token": "<|PAD|>"}),
    "model.byte_fallback": lambda config: config["model"].update(byte_fallback=True),
    "model": lambda config: config["model"].update(end_of_words=""),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_other_configurations_go_to_the_library(tokenizer_json: str, name: str) -> None:
    text = altered(tokenizer_json, ALTERATIONS[name])
    for checked in (False, True):
        made = Encoder.from_json(text, checked=checked)
        assert made.path == "library"
        assert made.reason == f"the native encoder does not support its {name.split(',')[0]}"
    reference = Tokenizer.from_str(text)
    reference.encode_special_tokens = True
    texts = ["the cat and <think>", "", "a", "\U0010ffff 123", "don't you're the hat"]
    got = made.encode(texts)
    for row, one in enumerate(texts):
        # One at a time, as data_io does: padding must not depend on the other rows.
        assert encoder._row(got, row) == reference.encode(one, add_special_tokens=False).ids


HARMLESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "sequences of one": lambda config: config.update(
        normalizer={"type": "Sequence", "normalizers": [config["normalizer"]]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [config["pre_tokenizer"]]},
        post_processor={"type": "Sequence", "processors": [config["post_processor"]]},
    ),
    "what is off": lambda config: config["model"].update(
        dropout=0.0, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=True
    ),
    "no post-processor": lambda config: config.update(post_processor=None, decoder=None),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_id_is_native(tokenizer_json: str, name: str) -> None:
    made = Encoder.from_json(altered(tokenizer_json, HARMLESS[name]))
    assert made.reason.startswith("the configuration of train_tokenizer; equal to the library on ")


def test_what_was_checked_needs_no_library(tokenizer_json: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Encoder.from_json(tokenizer_json)
    monkeypatch.setattr("tokenizers.Tokenizer", None)
    made = Encoder.from_json(tokenizer_json, checked=True)
    assert (made.path, made.reason) == ("native", "the configuration of train_tokenizer; checked before")
    assert made.vocab_size == expected.vocab_size
    assert same(made.encode(["the cat, don't"]), expected.encode(["the cat, don't"]))


def test_loading_imports_no_pandas(tmp_path: Path, tokenizer_json: str) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json)
    code = "import sys; from pairmill.encoder import Encoder; Encoder.from_file(sys.argv[1])"
    done = python(
        "-c",
        f"{code}; assert 'tokenizers' in sys.modules; print('pandas' in sys.modules)",
        str(tmp_path / "tokenizer.json"),
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_another_version_of_the_library_is_refused(tokenizer_json: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenizers.__version__", "1.0.0")
    with pytest.raises(InternalError, match=r"gives other ids; got 1\.0\.0; expected 0\.22\.x; install tokenizers"):
        Encoder.from_json(tokenizer_json)


def test_another_model_goes_to_the_library() -> None:
    made = Encoder.from_json(Tokenizer(models.WordLevel({"a": 0, "?": 1}, "?")).to_str())
    assert made.path == "library"
    assert made.encode(["a", "b"]).ids.tolist() == [0, 1]


def test_a_plain_added_token_is_recognised(tokenizer_json: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.add_tokens([AddedToken("the cat", special=False)])
    made = Encoder.from_json(tokenizer.to_str())
    assert made.path == "native"
    assert "the split of Qwen 2 and 3, NFC, added tokens found in texts: 1;" in made.reason
    assert made.token_to_id("the cat") in made.encode(["see the cat"]).ids.tolist()


def test_two_tokens_with_one_id_go_to_the_library(tokenizer_json: str) -> None:
    made = Encoder.from_json(altered(tokenizer_json, lambda config: config["model"]["vocab"].update(zzz=5)))
    assert made.path == "library"
    assert "two tokens have the id 5" in made.reason


@pytest.mark.parametrize("wrong", [{"pattern": "gpt2"}, {"normalize": False}])
def test_a_difference_on_a_probe_is_an_error(
    tokenizer_json: str, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    real = _native.tokenizer_encoder
    monkeypatch.setattr(_native, "tokenizer_encoder", lambda text, **settings: real(text, **settings | wrong))
    with pytest.raises(InternalError, match="differs from the tokenizers library"):
        Encoder.from_json(tokenizer_json)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"model": {"type": "BPE"}}', '{"version": "1.0", "model": 3}']
)
def test_a_malformed_file_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"tokenizer\.json: not a valid tokenizer; got .*; expected"):
        Encoder.from_file(path)


def test_files(tmp_path: Path, tokenizer_json: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json, encoding="utf-8")
    assert Encoder.from_file(path).path == "native"
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="UTF-8"):
        Encoder.from_file(path)
    with pytest.raises(InputError, match="does not exist"):
        Encoder.from_file(tmp_path / "absent")
    with pytest.raises(StorageError):
        Encoder.from_file(tmp_path)
