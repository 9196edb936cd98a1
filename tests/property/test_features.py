"""Hashed word features against Python's re and lower(), for every character that this Python knows and any text."""

import functools
import re
import unicodedata
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill import _native
from tests.property.test_loader import GATE
from tests.support.helpers import draws

BUCKETS = 2**32 - 1


@functools.cache
def _known() -> list[str]:
    """List the characters that this Python knows: a million are looked at, so not at import."""
    return [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]


PIECES = st.one_of(
    st.text(st.sampled_from("aAzΣσςİıßǅ_9²½٣ \t\n\x1c\u00a0\u2028.,!'\u0301\u00adʕ日한🙂-"), max_size=40),
    st.deferred(lambda: st.text(st.sampled_from(_known()), max_size=20)),
)


def _expected(text: str, ngrams: int) -> dict[int, int]:
    tokens = re.findall(r"\w+|[^\w\s]+", text.lower())
    terms = [" ".join(tokens[at : at + n]) for n in range(1, ngrams + 1) for at in range(len(tokens) - n + 1)]
    return dict(Counter(xxhash.xxh3_64_intdigest(term.encode()) % BUCKETS for term in terms))


def _found(texts: list[list[str]], ngrams: int) -> list[dict[int, int]]:
    columns = [pa.array(column, pa.large_string()) for column in texts]
    indptr, indices, counts = (one.tolist() for one in _native.curate_bucket_counts(columns, ngrams, BUCKETS))
    return [dict(zip(indices[start:end], counts[start:end], strict=True)) for start, end in pairwise(indptr)]


def test_every_known_character_is_a_word_a_mark_or_a_space_as_in_python() -> None:
    # A sigma on both sides asks whether it has case, and whether case looks past it.
    texts = [f"A{character}Σ b.{character}Σ" for character in _known()]
    assert len(texts) > 140_000
    wrong = [text for text, found in zip(texts, _found([texts], 1), strict=True) if found != _expected(text, 1)]
    # Unicode 16 gave this sign of Ahom no width of its own, so that case looks past it; Python 3.11 has Unicode 14.
    assert [text for text in wrong if "\U0001171e" not in text] == []


@settings(GATE, max_examples=draws(300))
@given(st.lists(st.tuples(PIECES, PIECES), min_size=1, max_size=5), st.integers(1, 4))
def test_any_texts_have_the_features_of_python(pairs: list[tuple[str, str]], ngrams: int) -> None:
    found = _found([[left for left, _ in pairs], [right for _, right in pairs]], ngrams)
    for (left, right), counts in zip(pairs, found, strict=True):
        assert counts == dict(Counter(_expected(left, ngrams)) + Counter(_expected(right, ngrams)))
