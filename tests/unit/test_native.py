"""The Rust border: what it takes, what it refuses, and that it counts, trains and samples as the references do."""

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native
from pairmill.encoder import SPLIT
from tests.support.sides import train_bpe

VOCAB = {"a": 0, "b": 1, "ab": 2, "Ġ": 3}
MERGES = [("a", "b")]


def arrow(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def pre_tokenizer() -> pre_tokenizers.Sequence:
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    return pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]
    )


def by_library(texts: list[str], **options: Any) -> tuple[dict[str, int], list[list[str]]]:
    """Train with the reference; return vocabulary and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, **options))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def natively(texts: list[str], **options: Any) -> tuple[dict[str, int], list[list[str]]]:
    counter = _native.WordCounter()
    counter.add(arrow(texts), sys.maxsize)
    vocab, merges, overflow = train_bpe(*counter.words(), **options)
    assert not overflow
    return {token: i for i, token in enumerate(vocab)}, [list(merge) for merge in merges]


class TestEncode:
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_layout(self, kind: pa.DataType) -> None:
        ids, offsets, dropped = _native.Encoder(VOCAB, MERGES).encode(pa.array(["ab a", "", "xb", "é"], kind))
        assert ids.dtype == np.dtype(np.uint32)
        assert offsets.dtype == np.dtype(np.int64)
        assert ids.tolist() == [2, 3, 0, 1]
        assert offsets.tolist() == [0, 3, 3, 4, 4]
        assert dropped == 3

    def test_a_slice_starts_at_its_own_first_row(self) -> None:
        ids, offsets, _ = _native.Encoder(VOCAB, MERGES).encode(pa.array(["a", "b", "ab"]).slice(1))
        assert (ids.tolist(), offsets.tolist()) == ([1, 2], [0, 1, 2])

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_no_rows(self, kind: pa.DataType) -> None:
        for empty in (pa.array([], kind), pa.array(["a"], kind).slice(1)):
            ids, offsets, dropped = _native.Encoder(VOCAB, MERGES).encode(empty)
            assert (ids.tolist(), offsets.tolist(), dropped) == ([], [0], 0)

    def test_pairs_serve_as_vocabulary(self) -> None:
        encoder = _native.Encoder(list(VOCAB.items()), MERGES)
        assert encoder.vocab_size == 4
        assert encoder.encode(arrow(["ab"]))[0].tolist() == [2]

    def test_a_null_is_refused_by_row(self) -> None:
        texts = pa.array(["a", "b", None, None]).slice(1)
        with pytest.raises(ValueError, match="row 1 is null"):
            _native.Encoder(VOCAB, MERGES).encode(texts)

    @pytest.mark.parametrize(
        ("value", "got"),
        [
            (pa.array([1]), "Int64"),
            (pa.array([b"a"]), "Binary"),
            (pa.array(["a"], pa.string_view()), "Utf8View"),
            (pa.array(["a"]).dictionary_encode(), "Dictionary"),
            (pa.array([None]), "Null"),
            (["a"], "list, which has no __arrow_c_array__"),
            (pa.chunked_array([["a"]]), "ChunkedArray"),
        ],
    )
    def test_another_type_is_refused_by_name(self, value: object, got: str) -> None:
        with pytest.raises(TypeError, match=f"got .*{got}.*; expected an Arrow array of utf8 or large_utf8"):
            _native.Encoder(VOCAB, MERGES).encode(value)  # type: ignore[arg-type]

    def test_bytes_that_are_not_utf8_are_refused(self) -> None:
        buffers = pa.array([b"ok", b"\xff\xfe"]).buffers()
        with pytest.raises(ValueError, match="not valid"):
            _native.Encoder(VOCAB, MERGES).encode(pa.Array.from_buffers(pa.string(), 2, buffers))

    def test_capsules_are_taken_once(self) -> None:
        class Once:
            capsules: tuple[object, object] = pa.array(["a"]).__arrow_c_array__()

            def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
                return self.capsules

        encoder, once = _native.Encoder(VOCAB, MERGES), Once()
        assert encoder.encode(once)[0].tolist() == [0]
        with pytest.raises(ValueError, match="used before"):
            encoder.encode(once)

    def test_a_word_of_a_megabyte(self) -> None:
        ids, _, _ = _native.Encoder(VOCAB, MERGES).encode(arrow(["ab" * 500_000]))
        assert (len(ids), set(ids.tolist())) == (500_000, {2})

    def test_threads_share_an_encoder(self) -> None:
        encoder = _native.Encoder(VOCAB, MERGES)
        texts = arrow([("ab " * (i % 7) + "ba") for i in range(5_000)])
        expected = encoder.encode(texts)[0]
        with ThreadPoolExecutor(4) as pool:
            for ids, _, _ in pool.map(encoder.encode, [texts] * 16):
                assert np.array_equal(ids, expected)

    @pytest.mark.serial
    @pytest.mark.parametrize("texts", [["abba " * 1_000] * 20_000, ["ab" * 8_000_000]], ids=["many", "one"])
    def test_ctrl_c_ends_the_work_within_a_second(self, texts: list[str]) -> None:
        def interrupt(signum: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        encoder = _native.Encoder(VOCAB, MERGES)
        array = arrow(texts)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                encoder.encode(array)
            assert time.monotonic() - began < 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


LAYOUT = _native.Layout(10, 11, 12, {"x": 7, "y": 8})


def broken(kind: pa.DataType, *rows: bytes) -> pa.Array:
    """Bytes that say they are text."""
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}[kind]
    return pa.Array.from_buffers(kind, len(rows), pa.array(rows, binary).buffers())


class TestLayout:
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_spans_of_rows(self, kind: pa.DataType) -> None:
        rows = [pa.array(texts, kind) for texts in (["", "x", "y,x,x"], ["", "ab a", "é"], ["", "b", ""])]
        found, dropped = LAYOUT.encode(_native.Encoder(VOCAB, MERGES), *(column.slice(1) for column in rows), 1000)
        tokens, *index = found
        assert tokens.dtype == np.uint32
        assert tokens.tolist() == [10, 7, 2, 3, 0, 11, 1, 12, 10, 8, 7, 7, 11, 12]
        assert [array.dtype for array in index] == [np.uint64] * 4
        assert [array.tolist() for array in index] == [[1000, 1008], [6, 5], [1006, 1013], [2, 1]]
        assert dropped == 2

    def test_texts_that_were_encoded_elsewhere_are_laid_out_alike(self) -> None:
        encoder = _native.Encoder(VOCAB, MERGES)
        condition = pa.array(["x", "y", "x,y"])
        texts = [pa.array([f"{'ab ' * n}b" for n in numbers], pa.string()) for numbers in ((3, 0, 1), (0, 2, 5))]
        expected, _ = LAYOUT.encode(encoder, condition, *texts, 5)
        question, answer = (encoder.encode(column)[:2] for column in texts)
        found, dropped = LAYOUT.join(condition, question, answer, 5)
        assert all(np.array_equal(one, two) for one, two in zip(found, expected, strict=True))
        assert dropped == 0

    def test_no_rows(self) -> None:
        empty = pa.array([], pa.string())
        found, dropped = LAYOUT.encode(_native.Encoder(VOCAB, MERGES), empty, empty, empty, 3)
        assert ([len(array) for array in found], dropped) == ([0] * 5, 0)

    @pytest.mark.parametrize("tag", ["", " x", "z", "é'\""])
    def test_a_tag_without_a_token_is_named_with_its_row(self, tag: str) -> None:
        condition, text = pa.array(["x", f"y,{tag}", "zz"]), pa.array(["a"] * 3)
        with pytest.raises(_native.UnknownTagError) as caught:
            LAYOUT.encode(_native.Encoder(VOCAB, MERGES), condition, text, text, 0)
        assert caught.value.args == (1, tag)

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    @pytest.mark.parametrize(("place", "name"), [(0, "condition"), (1, "instruction"), (2, "response")])
    def test_a_text_that_is_not_utf8_is_named_with_its_row(self, kind: pa.DataType, place: int, name: str) -> None:
        rows = [pa.array(["x"] * 3, kind)] * 3
        # The second is whole only together with the row behind it.
        for bad in (broken(kind, b"x", b"a\xff", b"x"), broken(kind, b"x", b"a\xc3", b"\xa9")):
            rows[place] = bad
            with pytest.raises(_native.RowError) as caught:
                LAYOUT.encode(_native.Encoder(VOCAB, MERGES), *rows, 0)
            row, what, got = caught.value.args
            assert (row, what) == (1, f"{name} is not UTF-8")
            assert "utf-8" in got

    def test_what_does_not_fit_together_is_refused(self) -> None:
        encoder, text = _native.Encoder(VOCAB, MERGES), pa.array(["x", "x"])
        with pytest.raises(ValueError, match="got 2 conditions, 2 instructions and 1 responses"):
            LAYOUT.encode(encoder, text, text, text.slice(1), 0)
        with pytest.raises(ValueError, match="row 1 is null"):
            LAYOUT.encode(encoder, text, text, pa.array(["x", None]), 0)
        ids, good = np.arange(4, dtype=np.uint32), np.array([0, 1, 2])
        for bad in ([0, 2, 1], [0, 1, 5], [-1, 0, 1], [3, -1, 0], []):
            with pytest.raises(ValueError, match="got offsets that do not ascend"):
                LAYOUT.join(text, (ids, good), (ids, np.array(bad, np.int64)), 0)
        with pytest.raises(ValueError, match="got 2 conditions, 2 instructions and 1 responses"):
            LAYOUT.join(text, (ids, good), (ids, good[:2]), 0)


class TestVocabulary:
    @pytest.mark.parametrize(
        ("vocab", "merges", "message"),
        [
            ({"a": 0, "b": 0}, [], "two tokens have the id 0; expected one token for each id"),
            ([("a", 0), ("a", 1)], [], 'token "a" is in the vocabulary twice'),
            ({"a": -1}, [], 'token "a" has the id -1; expected an integer of 0 to'),
            ({"a": 2**32 - 1}, [], "too large; expected at most 4294967294"),
            (VOCAB, [("a", "b"), ("c", "b")], r'merges\[1\] needs the token "c"'),
            (VOCAB, [("b", "a")], r'merges\[0\] needs the token "ba"'),
        ],
    )
    def test_contradictions_are_refused(
        self, vocab: dict[str, int], merges: list[tuple[str, str]], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            _native.Encoder(vocab, merges)


class TestCount:
    def test_words_are_sorted_and_countable_in_parts(self) -> None:
        texts = ["b a b", "e\u0301 a", "12 'sab\n", ""]
        whole = _native.WordCounter()
        whole.add(arrow(texts), sys.maxsize)
        parts = _native.WordCounter()
        for text in texts:
            part = _native.WordCounter()
            part.add(pa.array([text]), sys.maxsize)
            parts.merge(*part.words())
        words, counts = whole.words()
        expected = {"b": 1, " a": 2, " b": 1, "é": 1, "1": 1, "2": 1, " '": 1, "sab": 1, "\n": 1}
        assert counts.dtype == np.int64
        got = dict(zip(pa.array(words).to_pylist(), counts.tolist(), strict=True))
        assert got == {word.encode(): count for word, count in expected.items()}
        assert list(got) == sorted(got)
        assert len(words) == len(got)
        assert len(whole) == 0
        other_words, other_counts = parts.words()
        assert pa.array(other_words).equals(pa.array(words))
        assert np.array_equal(other_counts, counts)

    def test_documents_are_cut_by_characters(self) -> None:
        counter = _native.WordCounter()
        counter.add(pa.array(["éé😀x", "ab"]), 3)
        counter.add(pa.array(["gone"]), 0)
        assert pa.array(counter.words()[0]).to_pylist() == [b"ab", "éé".encode(), "😀".encode()]

    def test_rows_may_be_chosen_and_their_bytes_are_told(self) -> None:
        counter = _native.WordCounter()
        assert counter.add(arrow(["é", "b", "c"]).slice(1), 0, np.array([False, True])) == 1
        assert counter.add(arrow(["éé", "b", "c"]), 1, np.array([True, False, True])) == 5
        assert pa.array(counter.words()[0]).to_pylist() == [b"c", "é".encode()]
        with pytest.raises(ValueError, match="got 2 choices for 1 rows; expected one for each"):
            counter.add(arrow(["a"]), 1, np.array([True, False]))

    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
    def test_counts_may_be_arrow_or_numpy(self, kind: pa.DataType) -> None:
        counter = _native.WordCounter()
        counter.merge(pa.array([b"a", b"\xff"], kind), pa.array([1, 2]))
        counter.merge(pa.array([b"a"], kind), np.array([10, 0, 0])[:1])
        assert counter.words()[1].tolist() == [11, 2]

    @pytest.mark.parametrize(
        ("words", "counts", "error", "message"),
        [
            (pa.array([b"a"]), pa.array([1, 2]), ValueError, "got 1 words and 2 counts"),
            (pa.array([b"a"]), pa.array([0]), ValueError, "got the count 0; expected at least 1"),
            (pa.array([b""]), pa.array([1]), ValueError, "got an empty word"),
            (pa.array([b"a", b"a"]), pa.array([2**63 - 1, 1]), ValueError, "below 2\\^63"),
            (pa.array([None, b"a"]), pa.array([1, 1]), ValueError, "row 0 is null"),
            (pa.array(["a"]), pa.array([1]), TypeError, "Utf8; expected an Arrow array of binary or large_binary"),
            (pa.array([b"a"]), pa.array([1.0]), TypeError, "Float64; expected an Arrow array of int64"),
            (pa.array([b"a"]), np.array([1], np.int32), TypeError, "numpy.ndarray"),
        ],
    )
    def test_bad_counts_are_refused(
        self, words: pa.Array, counts: pa.Array, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            _native.WordCounter().merge(words, counts)


class TestTrain:
    def test_random_corpora_against_the_library(self) -> None:
        draw = random.Random(1)
        alphabets = [
            *("ab", "abc", "a", "aé\u0301 ", "abcdefgh  '\n", "ab12 <>|", "日本語a ", "ab" * 9 + " "),
            # Marks of which the normaliser does not know, jamo that compose, what folds to an s, every white space.
            *("e\u0301\u0898\u1ac1\u0323", "\u1100\u1161\u11a8가", "'sſS'lLrReE t", " \t\r\n\x85\u2003\u2028a!"),
            *("\0\x04 \x7f\xad", "😀👩\u200d🏽 x", "\u0378\ue000\U0010ffff"),
        ]
        merged = 0
        for case in range(250):
            alphabet = draw.choice(alphabets)
            longest = draw.choice([3, 40, 40, 400])
            texts = ["".join(draw.choices(alphabet, k=draw.randrange(longest))) for _ in range(draw.randrange(30))]
            texts *= draw.choice([1, 1, 3])
            options = {
                "vocab_size": draw.choice([0, 1, 5, 12, 20, 60, 300, 10_000]),
                "min_frequency": draw.choice([0, 1, 2, 2, 2, 5]),
                "special_tokens": draw.choice(
                    [[], ["<|PAD|>"], ["<x>", "ab", "<x>", "b"], ["abc", "Ġa", "aa", "aaaa"], ["", "Ġ", "ĠĠ", "'s"]]
                ),
            }
            expected = by_library(texts, **options)
            assert natively(texts, **options) == expected, (case, options, texts)
            merged += len(expected[1])
        assert merged > 5_000

    def test_replacements_tell_the_length_of_the_text_at_every_size(self) -> None:
        draw = random.Random(2)
        texts = ["".join(draw.choices("aaab '", k=60)) for _ in range(50)]
        counter = _native.WordCounter()
        counter.add(arrow(texts), sys.maxsize)
        trainer = _native.Trainer()
        distinct = len(counter)
        trainer.add(*counter.words())
        assert len(trainer) == distinct
        total = trainer.text_bytes
        assert total == sum(map(len, texts))
        vocab, merges, replaced, overflow = trainer.train(10**15, [], min_frequency=1)
        assert replaced.dtype == np.int64
        assert len(replaced) == len(merges) > 100
        assert not overflow
        for kept in (0, 1, 7, 50, len(merges)):
            size = len(vocab) - len(merges) + kept
            encoder = _native.Encoder({token: i for i, token in enumerate(vocab[:size])}, merges[:kept])
            assert len(encoder.encode(arrow(texts))[0]) == total - replaced[:kept].sum()
        assert (len(trainer), trainer.text_bytes) == (0, 0)

    @pytest.mark.parametrize("vocab_size", [10, 257, 300])
    def test_full_alphabet_against_the_library(self, vocab_size: int) -> None:
        texts = ["the cat", "the hat", "é the"] * 3
        options = {"vocab_size": vocab_size, "special_tokens": ["<|PAD|>"]}
        expected = by_library(texts, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
        assert natively(texts, full_alphabet=True, **options) == expected

    def test_counts_past_32_bits_are_reported(self) -> None:
        words = pa.array([b"ab", b"abc"])
        for counts, expected in (([2**31 - 2, 1], False), ([2**31 - 1, 1], True)):
            vocab, merges, overflow = train_bpe(words, np.array(counts), 5, [])
            assert vocab[:3] == ["a", "b", "c"]
            assert merges[0] == ("a", "b")
            assert overflow is expected

    def test_bad_counts_are_refused(self) -> None:
        with pytest.raises(ValueError, match="row 1 has the count -3; expected at least 1"):
            train_bpe(pa.array([b"a", b"b"]), pa.array([1, -3]), 5, [])
        trainer = _native.Trainer()
        trainer.add(pa.array([b"a"]), pa.array([1]))
        with pytest.raises(ValueError, match="row 1 has the count 0; expected at least 1"):
            trainer.add(pa.array([b"b"]), pa.array([0]))
        with pytest.raises(ValueError, match="too much to train on"):
            train_bpe(pa.array([b"ab"]), pa.array([2**63 - 1]), 5, [])


class TestSample:
    """The expected values are those of the rand crate, which rust/core/src/bpe/documents.rs uses."""

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ((0, "part-0.parquet", 10, 4), [8, 1, 7, 3]),
            ((0, "part-0.parquet", 1000, 20), [*range(5), 996, *range(6, 20)]),
            ((2**64 - 1, "é", 12, 11), None),
            ((0, "x", 3, 3), [0, 1, 2]),
            ((0, "x", 3, 9), [0, 1, 2]),
            ((0, "x", 3, 0), []),
            ((0, "x", 0, 0), []),
        ],
    )
    def test_frozen(self, arguments: tuple[int, str, int, int], expected: list[int] | None) -> None:
        sample = _native.data_io_document_sample(*arguments)
        assert sample.dtype == np.uint64
        assert len(set(sample.tolist())) == len(sample) == min(arguments[2:])
        if expected is not None:
            assert sample.tolist() == expected

    def test_too_many_documents(self) -> None:
        with pytest.raises(ValueError, match="expected fewer than 4294967295"):
            _native.data_io_document_sample(0, "x", 2**32, 1)


def test_version_is_that_of_the_package() -> None:
    assert all(part.isdigit() for part in itertools.islice(_native.__version__.split("."), 2))


# --- shuffles and gathers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**64 - 1, [7, 1, 2, 3, 4]])
def test_permutations_are_numpys_one_after_another(seed: Any) -> None:
    ours = _native.Philox(*np.random.SeedSequence(seed).generate_state(2, np.uint64).tolist())
    theirs = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    counts = [0, 1, 2, 3, 63, 64, 65, 66, 129, 1000, 1, 65_537, 7, 300_000]
    for count in counts:
        values = np.arange(count, dtype=np.uint32)
        ours.shuffle(values)
        assert np.array_equal(values, theirs.permutation(count)), count
    values = np.random.default_rng(0).integers(0, 9, 5000).astype(np.uint32)
    order = theirs.permutation(5000)
    shuffled = values.copy()
    ours.shuffle(shuffled)
    assert np.array_equal(shuffled, values[order])


def test_a_shuffle_takes_arrays_of_uint32_alone() -> None:
    for values in (np.arange(5), np.arange(10, dtype=np.uint32)[::2], [1, 2]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            _native.Philox(1, 2).shuffle(values)  # type: ignore[arg-type]
    frozen = np.arange(5, dtype=np.uint32)
    frozen.flags.writeable = False
    with pytest.raises((TypeError, ValueError, BufferError)):
        _native.Philox(1, 2).shuffle(frozen)
    assert frozen.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_gathered_spans_equal_slices_one_after_another(kind: Any) -> None:
    draw = np.random.default_rng(3)
    tokens = draw.integers(0, 2**32, 10_000, dtype=np.uint32)
    starts = draw.integers(0, 9_900, 500)
    lengths = draw.integers(0, 100, 500)
    expected = np.concatenate([tokens[a : a + b] for a, b in zip(starts, lengths, strict=True)])
    out = np.empty(len(expected), kind)
    assert _native.gather(tokens.view(np.uint8), starts, lengths, out) == expected.max()
    assert np.array_equal(out, expected.astype(kind))
    nothing = np.empty(0, np.int64)
    assert _native.gather(tokens.view(np.uint8), nothing, nothing, np.empty(0, kind)) == 0


def test_spans_that_do_not_fit_are_refused() -> None:
    tokens = np.arange(10, dtype=np.uint32)

    def gather(starts: list[int], lengths: list[int], out: Any) -> int:
        return _native.gather(tokens.view(np.uint8), np.array(starts, np.int64), np.array(lengths, np.int64), out)

    room = np.empty(4, np.uint16)
    for starts, lengths in (([7], [4]), ([-1], [4]), ([2], [-4]), ([11], [0]), ([2**62], [4])):
        with pytest.raises(ValueError, match="does not lie in the tokens"):
            gather(starts, lengths, room)
    for lengths in ([3], [5]):
        with pytest.raises(ValueError, match="as many as there is room for"):
            gather([0], lengths, room)
    with pytest.raises(ValueError, match="got 2 starts and 1 lengths"):
        gather([0, 1], [4], room)
    with pytest.raises(TypeError, match="uint8, uint16 or int32"):
        gather([0], [4], np.empty(4, np.int64))
    frozen = np.empty(4, np.uint16)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, TypeError, BufferError)):
        gather([0], [4], frozen)


@pytest.mark.parametrize("spread", ["together", "apart", "unordered", "long"])
def test_spans_of_a_file_equal_those_of_memory(tmp_path: Path, spread: str) -> None:
    draw = np.random.default_rng(4)
    tokens = draw.integers(0, 60_000, 400_000, dtype=np.uint32)
    path = tmp_path / "tokens"
    path.write_bytes(b"head!" + tokens.tobytes())
    if spread == "long":
        starts, lengths = np.array([5, 0, 399_999]), np.array([300_000, 400_000, 1])
    else:
        lengths = draw.integers(0, 300, 700)
        between = {"together": 3, "apart": 5000, "unordered": 3}[spread]
        starts = np.minimum(np.cumsum(lengths + between) - lengths, 399_000)
        if spread == "unordered":
            draw.shuffle(starts)
    expected = np.concatenate([tokens[a : a + b] for a, b in zip(starts, lengths, strict=True)])
    out = np.empty(len(expected), np.uint16)
    largest, read = _native.gather_file(path, 5, starts, lengths, out)
    assert largest == expected.max()
    assert np.array_equal(out, expected)
    assert read >= expected.nbytes
    if spread == "apart":
        assert read < 2 * expected.nbytes
    nothing = np.empty(0, np.int64)
    assert _native.gather_file(path, 5, nothing, nothing, np.empty(0, np.uint16)) == (0, 0)


def test_spans_of_a_file_are_checked_before_anything_is_allocated_for_them(tmp_path: Path) -> None:
    """In a process of its own: what cannot be allocated ends it."""
    path = tmp_path / "tokens"
    path.write_bytes(np.arange(100, dtype=np.uint32).tobytes())
    program = """
import re, resource, sys
import numpy as np
from pairmill import _native
path, room = sys.argv[1], np.empty(10, np.uint16)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
kept = room.copy()
cases = ([0], [2**59]), ([0], [2**31]), ([0, 5], [10, 2**40]), ([0] * 3, [2**60] * 3), ([0, 0], [10, -1])
for starts, lengths in cases:
    try:
        _native.gather_file(path, 0, np.array(starts), np.array(lengths), room)
    except ValueError as error:
        print(error)
print((room == kept).all())
# As long as there is room for, and beyond the end of the file.
try:
    _native.gather_file(path, 0, np.array([0]), np.array([10**8]), np.empty(10**8, np.uint8))
except OSError as error:
    print(error.errno, error)
# ru_maxrss would begin with the size of the process that started this one.
print(int(re.search('VmHWM: *([0-9]+)', open('/proc/self/status').read().replace('\t', ' '))[1]) < 300_000)
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:9] for line in lines[:5]] == ["got spans"] * 4 + ["got a spa"]
    assert lines[5:] == ["True", "None failed to fill whole buffer", "True"]


def test_a_file_that_does_not_hold_the_spans_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(np.arange(100, dtype=np.uint32).tobytes())

    def gather(start: int, length: int, room: int) -> object:
        return _native.gather_file(path, 0, np.array([start]), np.array([length]), np.empty(room, np.uint16))

    assert gather(90, 10, 10) == (99, 40)
    for start, length in ((91, 10), (1000, 10)):
        with pytest.raises(OSError, match="fill whole buffer") as caught:
            gather(start, length, 10)
        assert caught.value.errno is None
    for start, length in ((-1, 10), (1, -10), (2**62, 10), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(ValueError, match="got a span"):
            gather(start, length, 10)
    for room in (9, 11):
        with pytest.raises(ValueError, match="there is room for"):
            gather(0, 10, room)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        gather(0, 10, 10)
