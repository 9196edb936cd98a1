"""Metrics of any text are those of plain definitions, and redaction replaces exactly what is found."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairmill import _native
from pairmill.stages.curate.scores.pii import KINDS
from tests.support.definitions import personal_data
from tests.support.definitions.text_metrics import metrics
from tests.support.helpers import draws

# Few words and much white space, so that words, lines and paragraphs repeat; a final sigma follows its neighbours.
WORDS = [
    "a",
    "ab",
    "b",
    "B",
    "the",
    "Of",
    "#",
    "...",
    "…",
    "•",
    "-x",
    "ΣΑΣ",
    "ασ",
    "İ",
    "中中",
    "é",
    "e\u0301",
    "٣4",
    "ß",
    ".",
]
ODD = [
    "https://a.b/%20c(",
    "http://",
    ":",
    "\x1c",
    "\u2028",
    "\u00a0",
    "\u200b",
    "\x00",
    "\u3000",
    "\r",
    "🙂",
    "”",
    "’",
]
BLANKS = [" ", " ", " ", "\n", "\n\n", " \n ", "\n\n \n\n", "\t"]
TEXTS = st.lists(st.sampled_from([*WORDS, *ODD, *BLANKS, *BLANKS]), max_size=60).map("".join)
LONG = st.tuples(st.lists(st.sampled_from([*WORDS, *BLANKS]), max_size=30).map(" ".join), st.integers(1, 6)).map(
    lambda part: " ".join([part[0]] * part[1])
)
ANY = st.text(st.characters(codec="utf-8"), max_size=80)


@settings(max_examples=draws(150), deadline=None)
@given(st.lists(TEXTS | LONG, min_size=1, max_size=8))
@example(["\n\na\n\na\n\n", " ", "\n", "a\n \n\nb"])
@example(["x" * 5000, "ab" * 300 + "é", "a " * 500, "é" * 700, "中" * 300])
def test_all_metrics_are_those_of_the_plain_definitions(texts: list[str]) -> None:
    found = _native.curate_metrics(pa.array(texts, pa.string()))
    for row, text in enumerate(texts):
        expected = metrics(text)
        assert {name: values[row] for name, values in found.items()} == pytest.approx(expected, rel=0, abs=1e-12), text


@settings(max_examples=draws(80), deadline=None)
@given(st.lists(ANY, max_size=6))
def test_metrics_of_any_text_are_bounded(texts: list[str]) -> None:
    found = _native.curate_metrics(pa.array(texts, pa.string()))
    for name, values in found.items():
        assert len(values) == len(texts)
        assert (values >= 0).all(), name
        if name.endswith(("_frac", "_ratio")) and name not in {
            "hash_word_ratio",
            "ellipsis_word_ratio",
            "newline_word_ratio",
        }:
            assert (values <= 1).all(), name


@settings(max_examples=draws(100), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8), st.data())
def test_a_slice_and_a_choice_of_metrics_give_the_same_values(texts: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    names = data.draw(st.lists(st.sampled_from(sorted(metrics(""))), unique=True))
    column = pa.array(texts, pa.large_string())
    everything = _native.curate_metrics(column)
    some = _native.curate_metrics(column.slice(start), names)
    assert set(some) == set(names)
    for name, values in some.items():
        np.testing.assert_array_equal(values, everything[name][start:], name)


@settings(max_examples=draws(100), deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS | ANY), min_size=1, max_size=8))
def test_metrics_of_pairs_are_bounded(pairs: list[tuple[str, str]]) -> None:
    instruction, response = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    found = _native.curate_pair_metrics(instruction, response)
    assert ((found["copy_ratio"] >= 0) & (found["copy_ratio"] <= 1)).all()
    assert _native.curate_pair_metrics(instruction, instruction)["same"].all()
    light = [pa.array(_native.curate_forms(column)[0]) for column in (instruction, response)]
    assert found["same"].tolist() == [one == other for one, other in zip(*map(pa.Array.to_pylist, light), strict=True)]


PARTS = st.sampled_from(
    [
        "a@b.cd",
        "@",
        ".",
        "+",
        "+44",
        "1",
        " ",
        "-",
        "(",
        ")",
        "4111",
        " 1111",
        "8.8",
        "é",
        "\n",
        "x",
        "_",
        "20 7946 0958",
    ]
)


@settings(max_examples=draws(150), deadline=None)
@given(st.lists(st.lists(PARTS, max_size=30).map("".join) | ANY, max_size=6))
@example(["1" * 1000, "@" * 1000, "+" * 1000, "." * 1000, "+1" * 500])
def test_redaction_replaces_exactly_what_is_found(texts: list[str]) -> None:
    column = pa.array(texts, pa.string())
    expected, last = list(texts), [len(text) for text in texts]
    replaced = [0] * len(texts)
    found = list(zip(*(column.tolist() for column in _native.curate_pii(column)), strict=True))
    assert found == sorted(found)
    for row, start, stop, kind in reversed(found):
        assert 0 <= start < stop <= last[row]
        expected[row] = f"{expected[row][:start]}<{KINDS[kind]}>{expected[row][stop:]}"
        last[row] = start
        replaced[row] += 1
    redacted, counts = _native.curate_redact(column)
    assert pa.array(redacted).to_pylist() == expected
    assert counts.tolist() == replaced


# Whole ones, and what they are made of; digits and letters of other scripts are neither.
_PERSONAL = [
    *["a@b.cd", "@", ".", ",", "+", "-", " ", "(", ")", "(0)", "_", "%", "\n", "x", "org", "b.org", "é", "\u200b"],
    *["1", "0", "01", "٣", "２", "\u212a", "8.8", "255", "+44", "+12345678", "20 7946 0958", "+1 (555) 123-4567"],
    *["4111", "1111 ", "-1111", "4111 1111 1111 1111", "378282246310005", "8.8.8.8", "192.168.", "172.16.0."],
    *["100.64.", "203.0.113.9", "198.51.", "224.0.0.1", "240."],
]


def test_personal_data_is_that_of_the_plain_definition() -> None:
    draw = random.Random("pii")
    texts = ["".join(draw.choices(_PERSONAL, k=draw.randint(1, 14))) for _ in range(6_000)]
    found: list[list[personal_data.Span]] = [[] for _ in texts]
    for row, start, stop, kind in zip(*(one.tolist() for one in _native.curate_pii(pa.array(texts))), strict=True):
        found[row].append((start, stop, KINDS[kind]))
    expected = [personal_data.spans(text) for text in texts]
    assert found == expected
    assert all(sum(kind == name for some in expected for *_, kind in some) > 100 for name in KINDS)
