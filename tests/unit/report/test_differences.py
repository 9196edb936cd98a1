"""Words in which two texts differ: nothing is lost, nothing equal is marked, and what is long is shortened."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.report.differences import Span, compare, shorten
from tests.support.helpers import draws

TEXTS = st.text(st.sampled_from("ab c\n\t.,é日本ไท-"), max_size=60) | st.text(max_size=60)


def shown(spans: list[Span]) -> str:
    """A text with its differences in braces."""
    return "".join(f"{{{span.text}}}" if span.kind == "differs" else span.text for span in spans)


@pytest.mark.parametrize(
    ("left", "right", "marked_left", "marked_right"),
    [
        ("the capital of France", "the capitol of  France", "the {capital} of France", "the {capitol} of  France"),
        ("a b", "a b.", "a b", "a b{.}"),
        ("a b c", "a  b\nc", "a b c", "a  b\nc"),
        ("3+4", "3-4", "3{+}4", "3{-}4"),
        ("这是一个", "这是两个", "这是{一}个", "这是{两}个"),
        ("", "a b", "", "{a b}"),
        ("a x y b", "a b", "a {x y} b", "a b"),
        ("one", "two", "{one}", "{two}"),
        ("", "", "", ""),
    ],
)
def test_words_that_differ_are_marked(left: str, right: str, marked_left: str, marked_right: str) -> None:
    found = compare(left, right)
    assert (shown(found[0]), shown(found[1])) == (marked_left, marked_right)


@settings(max_examples=draws(300), deadline=None)
@given(left=TEXTS, right=TEXTS)
def test_spans_make_up_the_text_and_what_is_not_marked_is_equal(left: str, right: str) -> None:
    found = compare(left, right, around=100)
    for text, spans in zip((left, right), found, strict=True):
        assert "".join(span.text for span in spans) == text
    equal = ["".join(span.text for span in spans if span.kind == "same") for spans in found]
    assert re.sub(r"\s", "", equal[0]) == re.sub(r"\s", "", equal[1])
    if left == right:
        assert {span.kind for spans in found for span in spans} <= {"same"}


def test_long_equal_parts_are_left_out_and_counted() -> None:
    words = [f"w{number}" for number in range(300)]
    left, right = " ".join(words), " ".join([*words[:150], "new", *words[150:]])
    spans, others = compare(left, right, around=2)
    assert shown(others) == "w0 w1 [… 146 words …] w148 w149 {new} w150 w151 [… 146 words …] w298 w299"
    assert [span.kind for span in spans] == ["same", "gap", "same"]
    assert shown(shorten(left, 4)) == "w0 w1 [… 296 words …] w298 w299"
    assert shown(shorten("a b", 4)) == "a b"


def test_texts_without_anything_in_common_stay_short() -> None:
    left, right = (" ".join(f"{letter}{number}" for number in range(10_000)) for letter in "ab")
    for spans in compare(left, right):
        assert sum(len(span.text) for span in spans) < 1_000
        assert "gap" in {span.kind for span in spans}
