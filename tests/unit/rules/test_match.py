"""Which tasks are meant, beside the standard library's fnmatch and the reference's loop over prefixes."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.errors import UsageError
from pairmill.rules.match import Matcher, Selector, expand, literal_of

NAMES = st.lists(st.text("ab_.*[{", max_size=6), max_size=12)


def matches(glob: str, name: str) -> bool:
    return Matcher([Selector(globs=(glob,))]).first(name) == 0


@settings(deadline=None)
@given(st.lists(st.text("ab_", max_size=4), max_size=12), NAMES)
def test_prefixes_match_as_a_loop_over_them_does(prefixes: list[str], names: list[str]) -> None:
    matcher = Matcher([Selector(prefixes=(prefix,)) for prefix in prefixes])
    for name in names:
        expected = [number for number, prefix in enumerate(prefixes) if name.startswith(prefix)]
        assert [*matcher.numbers(name)] == expected
        assert matcher.first(name) == (expected[0] if expected else -1)


@settings(deadline=None)
@given(st.lists(st.text("ab_.*?", max_size=6), max_size=8), NAMES)
def test_globs_without_sets_match_as_fnmatch_does(globs: list[str], names: list[str]) -> None:
    matcher = Matcher([Selector(globs=(glob,)) for glob in globs])
    for name in names:
        assert [*matcher.numbers(name)] == [n for n, glob in enumerate(globs) if fnmatch.fnmatchcase(name, glob)]


@pytest.mark.parametrize("glob", ["[ab]*", "[!a]b?", "a[a-b]*", "*[_.]?", "[]]*", "[[]*", "[*]x", "a[?]", "[{]a,b[}]"])
@settings(deadline=None)
@given(name=st.text("ab_.*?[]{}x,", max_size=5))
def test_sets_match_as_fnmatch_does(glob: str, name: str) -> None:
    assert matches(glob, name) == fnmatch.fnmatchcase(name, glob)


@settings(deadline=None)
@given(st.lists(st.lists(st.text("ab*", max_size=2), min_size=2, max_size=3), min_size=1, max_size=3), NAMES)
def test_braces_are_a_choice(parts: list[list[str]], names: list[str]) -> None:
    glob = "_".join("{" + ",".join(choices) + "}" for choices in parts)
    pattern = "_".join(
        "(?:" + "|".join(re.escape(choice).replace(r"\*", ".*") for choice in choices) + ")" for choices in parts
    )
    for name in names:
        assert matches(glob, name) == bool(re.fullmatch(pattern, name, re.DOTALL))


def test_braces_within_braces_are_written_out() -> None:
    assert expand("flan__{a,b{1,2},}*") == ["flan__a*", "flan__b1*", "flan__b2*", "flan__*"]
    assert expand("[{a,b}]") == ["[{a,b}]"]


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("a[b", r"a set without its \]; got 'a\[b'; a bracket itself is written \[\[\]"),
        ("a{b", "a { without its }"),
        ("{a,{b}", "braces without a comma"),
        ("a}", "a } without its {"),
        ("{a}", "braces without a comma.*a brace itself is written"),
        ("{a,b}" * 14, "the braces stand for too many globs; expected at most 10,000"),
    ],
)
def test_a_glob_that_is_not_whole_is_refused(glob: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"rules.yaml rule 3: {said}"):
        Selector.parse({"match": ["ok", glob]}, "rules.yaml rule 3")
    with pytest.raises(UsageError, match=said):
        Selector.parse({"prefix": "x", "not": glob}, "")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"prefix": "a", "match": "b"}, "more than one key says which tasks it is for; got prefix and match"),
        ({"not": "b"}, "nothing says which tasks it is for"),
        ({"match": []}, "match is not a text or a list of texts"),
        ({"match": [1]}, "match is not a text or a list of texts"),
        ({"re": ["a"]}, "re is not a text"),
        ({"re": "("}, r"not a regular expression; got '\(': missing \)"),
        ({"match": "a", "not": 1}, "not: is not a glob"),
    ],
)
def test_what_names_no_tasks_is_refused(item: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Selector.parse(item, "x")


def test_an_expression_is_over_the_whole_name_and_not_leaves_out() -> None:
    selector = Selector.parse({"re": "flan__(cot|t0)_.*", "not": ["*_old*", "*{zsopt,fsopt}"]}, "x")
    matcher = Matcher([selector])
    names = ("flan__cot_a", "flan__t0_", "xflan__cot_a", "flan__cot_old", "flan__cot_zsopt", "flan__cot_zsopt_2")
    assert [matcher.first(name) for name in names] == [0, 0, -1, -1, -1, 0]
    assert selector.label == "re flan__(cot|t0)_.* not *_old*, *{zsopt,fsopt}"
    assert Selector.parse(selector.to_manifest(), "x") == selector


@settings(deadline=None)
@given(st.text("ab*[{?", min_size=1, max_size=5))
def test_below_a_folder_the_same_names_are_meant(before: str) -> None:
    for item in ({"prefix": "a"}, {"match": ["a*", "{b,c}_"], "not": "*x"}, {"re": "a|b."}):
        plain = Selector.parse(item, "x")
        below = plain.below(before)
        for name in ("a", "ax", "b_", "b1", "c_x", ""):
            assert Matcher([below]).first(before + name) == Matcher([plain]).first(name)


def test_what_earlier_prefixes_hide_is_known_without_tasks() -> None:
    texts = ["flan__", "a*", "b{1,2}*"]
    who = [Selector(prefixes=("x",)), *(Selector(globs=(text,)) for text in texts)]
    hidden = [Selector(globs=("flan__*cot*", "ab")), Selector(prefixes=("b1_", "b2_"))]
    open_ones = [Selector(globs=("flan__x", "c*")), Selector(prefixes=("b",)), Selector(regex="ab.*")]
    who[1] = Selector(prefixes=("flan__",))
    assert Matcher([*who, *hidden, *open_ones]).hidden() == [(4, 2), (5, 3)]
    assert Matcher([Selector(prefixes=("a",), without=("ab",)), Selector(prefixes=("ab",))]).hidden() == []


def test_the_text_to_find_the_nearest_name_by_is_the_longest_that_is_literal() -> None:
    labels = ("flan__", "match *flan__cot*, x not y", "re (flan|t0)__niv2.*", "match *")
    assert [literal_of(label) for label in labels] == ["flan", "flan__cot", "niv2.", ""]


def test_sixteen_thousand_names_against_as_many_prefixes_take_few_comparisons() -> None:
    asked = 0

    class Counted(str):
        def startswith(self, *arguments: Any) -> bool:
            nonlocal asked
            asked += 1
            return super().startswith(*arguments)

    heads = [f"source_{number % 400}__part_{number}" for number in range(16_023)]
    matcher = Matcher([Selector(prefixes=(head,)) for head in [*heads, ""]])
    assert all(matcher.first(Counted(head + "x.parquet")) >= 0 for head in heads)
    assert 0 < asked < 40 * len(heads)
