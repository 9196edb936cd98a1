"""Pairs of rows: side by side, with what differs marked and nothing of a text taken for markup."""

import re
from html import unescape

from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.report.html import join
from pairmill.report.model import Report
from pairmill.report.pairs import Pair, Pairs
from tests.support.helpers import draws
from tests.unit.report.test_report import parse

TEXTS = st.text(st.sampled_from("ab <>&\"'/\n\0\x1b\ud800"), max_size=30) | st.text(max_size=60)


def page(*pairs: Pair) -> str:
    return Report("t", {}, [Pairs("pairs", pairs, "a note")]).html().split("<main>", 1)[1]


def test_the_words_that_differ_are_marked_on_both_sides() -> None:
    text = page(
        Pair("a:0", "b:1", [("instruction", "the capital of", "the capitol of"), ("response", "", "x")], "said")
    )
    assert '<p class="tag">said</p><div class="pair"><p><b>a:0</b></p><p><b>b:1</b></p>' in text
    assert '<pre dir="auto">\nthe <mark>capital</mark> of</pre>' in text
    assert '<pre dir="auto">\nthe <mark>capitol</mark> of</pre>' in text
    assert "<p>response</p><p><i>(empty)</i></p>" in text
    assert '<pre dir="auto">\n<mark>x</mark></pre>' in text
    assert text.count("<p>instruction</p>") == 2


def test_a_row_without_another_is_shown_alone() -> None:
    text = page(Pair("a:0", "", [("instruction", "one two", "")]))
    assert '<div class="texts"><p><b>a:0</b></p><div><p>instruction</p>' in text
    assert "<mark>" not in text


def test_an_item_has_fields_of_its_own() -> None:
    text = page(
        Pair("a:0", "quiz item 3", [("instruction", "x", "x"), ("response", "y", "y")], "", ("question", "answer"))
    )
    assert re.findall(r"<p>(\w+)</p>", text) == ["instruction", "question", "response", "answer"]


def test_long_texts_are_shortened_where_they_are_equal() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    text = page(Pair("a", "b", [("instruction", f"{words} one {words}", f"{words} two {words}")]))
    assert len(text) < 4_000
    assert "<i> [… 160 words …] </i>" in text
    assert "<mark>one</mark>" in text


def test_the_text_has_the_names_and_not_the_texts() -> None:
    pairs = [Pair("a|b:0", "c:1", [("instruction", "secret", "secret")], "dropped"), Pair("d:2", "", [])]
    text = Report("t", {}, [Pairs("pairs", pairs, "a note", ("Row", "Item"))]).markdown()
    assert "| Row | Item | Said |" in text
    assert "| a\\|b:0 | c:1 | dropped |\n| d:2 | – |  |" in text
    assert "secret" not in text
    assert Pairs("pairs", []).markdown(2) == []
    assert Pairs("pairs", []).html(2) == ""


@settings(max_examples=draws(200), deadline=None)
@given(left=TEXTS, right=TEXTS, name=TEXTS)
def test_any_text_is_shown_as_it_is(left: str, right: str, name: str) -> None:
    found = page(Pair(name, f"other {name}", [(name, left, right)], name))
    parse(found.split("</main>")[0])
    shown = re.findall(r'<pre dir="auto">\n(.*?)</pre>', found, re.DOTALL)
    assert len(shown) == sum(bool(text) for text in (left, right))
    for text, one in zip(filter(None, (left, right)), shown, strict=True):
        assert set(re.findall(r"<(/?\w+)", one)) <= {"mark", "/mark"}
        assert unescape(re.sub(r"</?mark>", "", one)) == unescape(join(text))
