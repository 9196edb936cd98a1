"""The Rust border: what it takes, what it refuses, and that it counts, trains and samples as the references do."""

import errno
import itertools
import json
import random
import signal
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
from pairmill.digest import digest_bytes, digest_file
from pairmill.encoder import SPLIT
from tests.support.tokenizers.sides import train_bpe

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
    width = out.itemsize
    assert _native.gather(tokens.view(np.uint8), starts, lengths, width, out.view(np.uint8)) == expected.max()
    assert np.array_equal(out, expected.astype(kind))
    nothing = np.empty(0, np.int64)
    assert _native.gather(tokens.view(np.uint8), nothing, nothing, width, np.empty(0, np.uint8)) == 0


def test_spans_that_do_not_fit_are_refused() -> None:
    tokens = np.arange(10, dtype=np.uint32)

    def gather(starts: list[int], lengths: list[int], width: int = 2) -> int:
        room = np.empty(8, np.uint8)
        return _native.gather(tokens.view(np.uint8), np.array(starts, np.int64), np.array(lengths), width, room)

    assert gather([6], [4]) == 9
    for starts, lengths in (([7], [4]), ([-1], [4]), ([2], [-4]), ([11], [0]), ([2**62], [4])):
        with pytest.raises(ValueError, match="does not lie in the tokens"):
            gather(starts, lengths)
    for lengths in ([3], [5]):
        with pytest.raises(ValueError, match="as many as there is room for"):
            gather([0], lengths)
    with pytest.raises(ValueError, match="2 starts and 1 lengths"):
        gather([0, 1], [4])
    with pytest.raises(ValueError, match="1, 2 or 4"):
        gather([0], [2], 3)


# --- the arrays of a sample -----------------------------------------------------------------------------------------


class Task:
    """The tokens of a task in a file, as pairmill writes them; spans of rows in them."""

    def __init__(self, folder: Path, rows: int, most: int, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.ids = draw.integers(0, 60_000, max(1, rows * most), dtype=np.uint32)
        self.path = folder / f"tokens{seed}.npy"
        np.save(self.path, self.ids)
        self.columns = [draw.integers(0, len(self.ids) - most, rows), draw.integers(0, most, rows)] * 2
        self.columns[2] = draw.integers(0, len(self.ids) - most, rows)

    def expected(self) -> Any:
        starts, sizes = (np.stack(self.columns[at::2], axis=1).ravel() for at in (0, 1))
        behind = np.cumsum(sizes) - sizes
        return self.ids[np.repeat(starts - behind, sizes) + np.arange(sizes.sum())]


@pytest.mark.parametrize(("most", "rows"), [(400_000, 5), (300, 5000), (3, 10), (40, 60_000)])
@pytest.mark.parametrize("kind", ["u1", "<u2", "<i4"])
def test_a_file_of_tokens_holds_the_spans_of_all_rows(tmp_path: Path, most: int, rows: int, kind: str) -> None:
    tasks = [Task(tmp_path, rows, most, seed) for seed in range(2)]
    expected = np.concatenate([task.expected() for task in tasks]).astype(kind)
    tail = np.arange(70_000).astype(kind)
    whole = np.concatenate([expected, tail])
    columns = [
        np.concatenate([one, two]).astype(np.int32) for one, two in zip(*(t.columns for t in tasks), strict=True)
    ]
    digests = set()
    for threads, digested in ((1, False), (3, False), (1, True), (3, True)):
        with (tmp_path / "out").open("wb") as out:
            file = _native.TokenFile(
                [(str(task.path), len(task.ids), digested) for task in tasks],
                head=b"head of sixteen!",
                handle=out.fileno(),
                tokens=len(whole),
                width=whole.itemsize,
                limit=None,
                threads=threads,
            )
            half = rows // 2
            read = file.copy([0], [half], *(column[:half] for column in columns))
            read += file.copy([0, 1], [rows - half, rows], *(column[half:].astype(np.int64) for column in columns))
            file.put(tail.view(np.uint8))
            assert file.digests() == ["", ""], "of spans in no order"
            digests.add(file.finish())
        data = (tmp_path / "out").read_bytes()
        assert data == b"head of sixteen!" + whole.tobytes()
        assert read >= 4 * len(expected)
    assert digests == {(digest_bytes(data).removeprefix("blake3:"), len(data))}


@pytest.mark.parametrize("sizes", [[5, 900_000, 0, 16_352, 16_353, 40_000], [700] * 300, [3_000_000]])
@pytest.mark.parametrize("kept", [1.0, 0.2])
def test_files_whose_spans_ascend_are_digested_in_passing(tmp_path: Path, sizes: list[int], kept: float) -> None:
    draw = np.random.default_rng(len(sizes))
    paths, ids, rows = [], [], []
    for number, size in enumerate(sizes):
        ids.append(draw.integers(0, 60_000, size, dtype=np.uint32))
        paths.append(tmp_path / f"{number}.npy")
        np.save(paths[-1], ids[-1])
        edges = np.unique(np.r_[0, draw.integers(0, size + 1, 1 + size // 250), size])
        pick = draw.random(len(edges) - 1) < kept
        starts, lengths = edges[:-1][pick], np.diff(edges)[pick]
        inst = lengths // 3
        rows.append(np.column_stack([starts, inst, starts + inst, lengths - inst]))
    expected = np.concatenate([ids[task][a : c + d] for task, part in enumerate(rows) for a, _, c, d in part])
    task_of = np.repeat(np.arange(len(sizes)), [len(part) for part in rows])
    every = np.concatenate(rows)
    for threads, step in ((1, len(every)), (3, 1 + len(every) // 7)):
        file = _native.TokenFile(
            [(str(path), len(part), number != 1) for number, (path, part) in enumerate(zip(paths, ids, strict=True))],
            head=b"x" * 128,
            handle=None,
            tokens=len(expected),
            width=2,
            limit=None,
            threads=threads,
        )
        for first in range(0, len(every), step):
            tasks, counts = np.unique(task_of[first : first + step], return_counts=True)
            file.copy(tasks.tolist(), counts.tolist(), *every[first : first + step].T.copy())
        sums = [digest_file(path).removeprefix("blake3:") for path in paths]
        has_rows = [len(part) > 0 and number != 1 for number, part in enumerate(rows)]
        assert file.digests() == [digest if some else "" for digest, some in zip(sums, has_rows, strict=True)]
        data = b"x" * 128 + expected.astype("<u2").tobytes()
        assert file.finish() == (digest_bytes(data).removeprefix("blake3:"), len(data))


def test_a_file_of_few_spans_far_apart_is_digested_by_others(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.zeros(1 << 23, np.uint32))
    source = (str(tmp_path / "tokens.npy"), 1 << 23, True)
    file = _native.TokenFile([source], head=b"x" * 128, handle=None, tokens=3, width=2, limit=None, threads=2)
    assert file.copy([0], [1], *(np.array([value]) for value in (2, 1, 1 << 22, 2))) < 1 << 20
    assert file.digests() == [""]


def test_what_cannot_be_copied_appends_nothing(tmp_path: Path) -> None:
    task, odd = Task(tmp_path, 50, 100), Task(tmp_path, 50, 100, seed=1)
    np.save(odd.path, odd.ids.astype(np.uint16))
    gone = tmp_path / "gone.npy"
    sources = [(str(task.path), len(task.ids), True), (str(odd.path), len(odd.ids), True), (str(gone), 9, False)]
    total = len(task.expected())

    def made(limit: int | None = None, handle: int | None = None) -> _native.TokenFile:
        return _native.TokenFile(sources, head=b"x" * 128, handle=handle, tokens=total, width=2, limit=limit, threads=2)

    row = [np.array([value]) for value in (0, 3, 3, 4)]
    outside = [np.array([value]) for value in (0, 3, len(task.ids), 1)]
    cases = (
        ("odd", 1, 0, row, None),
        ("read", 2, 2, row, None),
        ("large", 0, int(task.ids[:7].max()), row, 1),
        ("row", 0, 0, outside, None),
        ("row", 0, 0, [np.array([-1]), *row[1:]], None),
        ("row", 0, 0, [row[0], np.array([2**62]), *row[2:]], None),
    )
    for kind, number, value, columns, limit in cases:
        file = made(limit)
        with pytest.raises(_native.TaskError) as caught:
            file.copy([number], [1], *columns)
        assert caught.value.args == (kind, number, value)
        if limit is None:
            file.copy([0], [50], *task.columns)
            assert file.finish()[1] == 128 + 2 * total
    file = made()
    file.copy([0], [50], *task.columns)
    with pytest.raises(ValueError, match="more tokens than planned"):
        file.copy([0], [50], *task.columns)
    with Path("/dev/full").open("wb") as full:
        file = made(handle=full.fileno())
        file.copy([0], [50], *task.columns)
        with pytest.raises(OSError, match="No space") as problem:
            file.finish()
    assert problem.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("apart", "longest"), [(False, 300), (False, 70_000), (True, 300)])
@pytest.mark.parametrize("parts", [1, 3])
def test_an_epoch_has_the_rows_of_its_order(tmp_path: Path, apart: bool, longest: int, parts: int) -> None:
    draw = np.random.default_rng(5)
    rows = 40_000
    lengths = [draw.integers(0, longest, rows) for _ in range(2)]
    ends = np.cumsum(lengths[0] + lengths[1])
    first = draw.integers(0, 2**40, rows) if apart else ends - lengths[0] - lengths[1]
    columns = [first, lengths[0], first + lengths[0] + (9 if apart else 0), lengths[1]]
    tables, tokens = [], 0
    for here in np.array_split(np.arange(rows), parts):
        table = _native.RowTable(len(here), int(here[0]), None if apart else tokens)
        for part in np.array_split(here, 7):
            table.add(5 if apart else 0, *(column[part] for column in columns))
        tables.append(table)
        tokens = ends[here[-1]]
        assert table.after == here[-1] + 1
        assert apart or table.total == tokens
    order = draw.integers(0, rows, 100_000).astype(np.uint32)
    for kinds in (("<i8", "<i8"), ("<i8", "<i4")):
        files = [(tmp_path / str(number)).open("wb") for number in range(4)]
        widths = tuple(np.dtype(kind).itemsize for kind in kinds)
        made = _native.EpochArrays([b"head"] * 4, [file.fileno() for file in files], widths)
        only = _native.EpochArrays([b"head"] * 4, None, widths)
        for number, arrays in enumerate((made, only)):
            for table in tables[:-1]:
                for part in np.array_split(order, 5):
                    arrays.set_aside(table, part, str(tmp_path / f"{kinds}{number}-{table.after}"))
            for part in np.array_split(order, 3):
                arrays.append(tables[-1], part)
        assert made.finish() == only.finish()
        for number, file in enumerate(files):
            file.close()
            data = Path(file.name).read_bytes()
            expected = columns[number][order] + (5 if apart and number % 2 == 0 else 0)
            assert data == b"head" + expected.astype(kinds[number % 2]).tobytes()
            assert made.finish()[number] == (digest_bytes(data).removeprefix("blake3:"), len(data))
    with pytest.raises(OSError, match="File exists"):
        _native.EpochArrays([b""] * 4, None, (8, 8)).set_aside(tables[0], order, str(tmp_path / "0"))
    with pytest.raises(ValueError, match="not in the table"):
        only.append(table, np.array([rows], np.uint32))
    with pytest.raises(ValueError, match="a length of"):
        table.add(0, *(np.array([value]) for value in (0, 2**32, 0, 1)))
