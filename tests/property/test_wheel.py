"""Ids, vocabulary and merges are those of the tokenizers wheel, on every path that this machine has."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import models, pre_tokenizers

from pairmill import _native
from tests.support.tokenizers import sides, strings
from tests.support.tokenizers.sides import Sides

SPECIAL = ["<|PAD|>", "<think>", "ab", "Ġthe"]
# What /proc/cpuinfo calls the last that each level needs.
FLAGS = {"avx2": "avx2"}


def corpus(seed: int, documents: int = 300) -> list[str]:
    draw = random.Random(f"corpus {seed}")
    return [strings.document(draw) for _ in range(documents)] + ["the cat and the hat, aaaaaaaa ====", "don't it's"] * 5


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Sides]:
    """Trained ones, of all bytes, of most, of ASCII alone; and the two in which pieces of wrong length show best."""
    texts = corpus(strings.SEED)
    ascii_alone = [text.encode("ascii", "ignore").decode() for text in texts]
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = {
        "all bytes": Sides(sides.trained(texts, 1_500, True, SPECIAL)),
        "most bytes": Sides(sides.trained([text.replace("\x04", "") for text in texts[::3]], 500, False, [])),
        "ASCII": Sides(sides.trained(ascii_alone, 400, False, SPECIAL)),
        "all pairs": Sides(sides.pairs()),
        # The first 94 are the printing characters of ASCII.
        "some pairs": Sides(sides.pairs(symbols[:94] + symbols[94::2])),
    }
    known = [vocabulary.alphabet for vocabulary in made.values()]
    assert known[0] == known[3] == 256 > known[1] > known[4] == 175 > 128 >= known[2] > 90
    return made


def test_every_path_of_this_machine_is_tried() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    assert sides.LEVELS[0] == "scalar"
    assert sides.LEVELS[1:] == [level for level, flag in FLAGS.items() if flag in flags]
    with pytest.raises(ValueError, match=f'no level "" here; expected one .* has: {", ".join(sides.LEVELS)}$'):
        _native.Encoder({}, [], simd="")


def test_random_documents(vocabularies: dict[str, Sides]) -> None:
    for seed in strings.seeds(3):
        draw = random.Random(seed)
        texts = [strings.document(draw) for _ in range(400)]
        for name, vocabulary in vocabularies.items():
            vocabulary.compare(texts, f"seed {seed}, {name}")
    assert min(vocabulary.ids for vocabulary in vocabularies.values()) > 40_000


FILLERS = {
    "letters": "theandcat" * 9,
    "words": "a bc def ghij " * 6,
    "spaces": " " * 81,
    "punctuation": "!?.-=" * 17,
    "lines": "x\n" * 41,
}


# Around the ends of what is scanned at once.
_PLACES = (0, 1, 2, 3, 7, 8, 14, 15, 16, 17, 30, 31, 32, 33, 34, 47, 48, 49, 62, 63, 64, 65, 66, 79, 80)


@pytest.mark.parametrize("filler", FILLERS)
def test_every_place_within_a_block(vocabularies: dict[str, Sides], filler: str) -> None:
    pieces = [
        *strings.PIECES,
        "'s'S",
        " 's",
        "  x",
        " \n x",
        "\r\n\r\n",
        " !\n",
        "\u3000 x",
        "e\u0301\u0323",
        "é\u0323",
    ]
    texts = [
        FILLERS[filler][:place] + piece + after
        for place in (range(81) if strings.SECONDS else _PLACES)
        for piece in pieces
        for after in ("", "the end of it, 12 or so.")
    ]
    assert len(FILLERS[filler]) >= 80
    vocabularies["all pairs"].compare(texts, f"a piece after {filler}")
    if strings.SECONDS:
        vocabularies["some pairs"].compare(texts, f"a piece after {filler}")


def test_every_scalar_alone_and_between_letters(vocabularies: dict[str, Sides]) -> None:
    step = 1 if strings.SECONDS else 61
    # The first planes' scripts, marks, spaces and jamo all; of the rest, which has no rules of its own, a part.
    chosen = {*range(0x3100), *range(0x3100, 0x110000, step)} - {*range(0xD800, 0xE000)}
    texts = [text for number in sorted(chosen) for text in (chr(number), f"a{chr(number)}b")]
    for start in range(0, len(texts), 100_000):
        vocabularies["all pairs"].compare(texts[start : start + 100_000], f"scalars from text {start} on")
    assert len(texts) > 50_000
    if strings.SECONDS:
        assert len(texts) == 2 * sides.SCALARS
        wheel = vocabularies["all pairs"].expected
        assert sides.digests([lambda array: wheel(array.to_pylist())]) == [sides.EVERY_SCALAR]


def test_long_runs(vocabularies: dict[str, Sides]) -> None:
    runs = [
        piece * length
        for piece in ("a", "=", " ", "\n", "é", "e\u0301", "日", "\u0301", "'", "\u1100")
        for length in (63, 64, 65, 255, 256, 257, 2_001)
    ]
    texts = [before + run + after for run in runs for before, after in (("", ""), ("x", "y"), (" ", "\n"))]
    for name, vocabulary in vocabularies.items():
        vocabulary.compare(["", *texts, ""], f"runs, {name}")
        vocabulary.compare([], f"nothing, {name}")


# What is one piece however often it is repeated, in byte symbols; and a digit, which never is.
REPEATED = {" ": "Ġ", "\n": "Ċ", "a": "a", "=": "=", "\u0301": "Ìģ", "日": "æĹ¥", "\u3000": "ãĢĢ", "1": "1"}


def repeated(one: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens and merges of one character, its bytes first, and of 2, 4, … 1,024 of them in a row, but of an x alone."""
    symbols = REPEATED[one]
    merges = [(symbols[:end], symbols[end]) for end in range(1, len(symbols))]
    merges += [(symbols * 2**power, symbols * 2**power) for power in range(10)]
    return {token: i for i, token in enumerate(["x", *symbols, *(left + right for left, right in merges)])}, merges


def by_rule(one: str, length: int, vocab: dict[str, int]) -> list[int]:
    """The ids of a run: merges of equal halves, leftmost first, leave the longest, then one for each binary digit."""
    ids = [vocab[REPEATED[one] * 2**power] for power in range(11)]
    if one == "1":
        return ids[:1] * length
    return ids[10:] * (length >> 10) + [ids[power] for power in range(9, -1, -1) if length >> power & 1]


@pytest.mark.parametrize("one", REPEATED)
def test_a_run_of_any_length(one: str) -> None:
    """The wheel takes its time, and panics above 10 million spaces; before that it does what the rule says."""
    vocab, merges = repeated(one)
    reference = sides.trained([], 0, False, [])
    reference.model = models.BPE(vocab, merges)
    both = Sides(reference, merges)
    for length in (1, 2, 3, 100, 1_023, 1_025, 30_000):
        expected = by_rule(one, length, vocab)
        assert reference.encode(one * length, add_special_tokens=False).ids == expected
        both.compare([one * length, one * length + "x", "x" + one * length], f"{length} of {one!r}")
    length = 11_000_000 if strings.SECONDS else 110_000
    expected = np.array(by_rule(one, length, vocab), np.uint32)
    text = pa.array([one * length], pa.large_string())
    for level in sides.LEVELS:
        ids, offsets, dropped = both.native(level).encode(text)
        assert np.array_equal(ids, expected)
        assert (offsets.tolist(), dropped) == ([0, len(ids)], 0)


def test_random_corpora_train_the_same() -> None:
    alphabets, merged = set(), 0
    for seed in strings.seeds(24):
        draw = random.Random(seed)
        texts = [strings.document(draw) for _ in range(draw.choice([0, 5, 40, 200]))] * draw.randrange(1, 3)
        full, special = draw.random() < 0.5, draw.choice([[], SPECIAL])
        vocab_size = draw.choice([0, 400, 1_000, 2_000])
        made = Sides(sides.trained(texts, vocab_size, full, special))
        vocab, merges, overflow = sides.train_bpe(*sides.counted(texts), vocab_size, special, full_alphabet=full)
        what = f"seed {seed}"
        assert {token: number for number, token in enumerate(vocab)} == made.vocab, what
        assert merges == made.merges, what
        assert not overflow
        made.compare([strings.document(draw) for _ in range(20)], what)
        alphabets.add(made.alphabet == 256)
        merged += len(merges)
    assert alphabets == {True, False}
    assert merged > 1_000


def test_a_difference_is_reported_by_its_smallest_text(vocabularies: dict[str, Sides]) -> None:
    whole = vocabularies["all bytes"]
    (left, right), *rest = whole.merges
    letters = (left + right).replace("Ġ", " ")
    with pytest.raises(pytest.fail.Exception, match=f"row 1, smallest: {letters!r}"):
        Sides(whole.tokenizer, rest).compare(["12 34", f"1 {letters} 2", "5"], "a merge is missing")
    text = "some 'ſ text\nwith both"
    assert strings.smallest(text, lambda text: "ſ" in text and text.endswith("h")) == "ſh"
