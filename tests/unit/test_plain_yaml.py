"""YAML without nodes, beside PyYAML's own safe_load."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.errors import UsageError
from pairmill.plain_yaml import read_plain

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.dates(), st.binary(max_size=9)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner), max_leaves=20
)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: {b: 1}\na: 2", 2), ("- b: 1\n- {c: 1,\n   c: 1}", 3), ("- &x {a: 1}\n- {<<: *x, b: 2, b: 3}", 2)],
)
def test_a_key_that_occurs_twice_is_refused_with_its_line(text: str, line: int) -> None:
    assert read_plain(text.encode(), "x") == yaml.safe_load(text)
    with pytest.raises(UsageError, match=f"x line {line}: the key occurs twice; got [abc]"):
        read_plain(text.encode(), "x", repeated=False)
    assert read_plain(b"- &x {a: 1}\n- {<<: *x, a: 2}", "x", repeated=False) == [{"a": 1}, {"a": 2}]


@settings(deadline=None)
@given(VALUES)
def test_what_pyyaml_writes_is_read_as_it_reads_it(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert read_plain(text.encode(), "x") == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "---\n",
            "null",
            "~",
            "# nothing",
            "a",
            "[]",
            "{}",
            "- a\n- b: {c: [1, 2]}",
            "'1'",
            '"\\n"',
            "|\n  a\n  b",
        ),
        *("20_000", "0x1F", "017", "09", "1_0.5", "1e9", "1.5e+3", ".5", "-.inf", "190:20:30", "0b11", "+1", "-0"),
        *("yes", "No", "on", "OFF", "y", "n", "true", "truth", "Null", "nulls", "=", "<<", "2020-01-02", "1__0", "_1"),
        *(
            "&a [1]",
            "{a: &b {c: 1}, d: *b}",
            "{a: &b {c: 1}, d: {<<: *b, e: 2}}",
            "!!str 5",
            "!!set {a, b}",
            "{a: b, a: c}",
        ),
        *("? [a, b]\n: c", "? a\n: b", "{1: a, 1.0: b}", "{null: 1, true: 2}", "{<<: {a: 1}, b: 2}", "- - - a\n- b"),
    ],
)
def test_every_way_to_write_it_is_read_as_pyyaml_does(text: str) -> None:
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        with pytest.raises(UsageError, match="not valid YAML"):
            read_plain(text.encode(), "x")
        return
    got = read_plain(text.encode(), "x")
    assert (got, type(got)) == (expected, type(expected))


def test_nan_is_read() -> None:
    assert math.isnan(read_plain(b".nan", "x"))


@pytest.mark.parametrize("text", ["[" * 200_000, "- " * 200_000, "{a: " * 200_000, "&a [" * 200_000, "? " * 200_000])
def test_many_levels_are_refused_and_end_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="not valid YAML; got more than 100 levels"):
        read_plain(text.encode(), "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML; got while parsing a flow node"),
        ("a\0", "not valid YAML; got unacceptable character"),
        ("--- a\n--- b", "not valid YAML; got expected a single document"),
        ("!!python/object:os.system {}", "not valid YAML"),
        ("- 1\n- 1" + "0" * 99, "x line 2: not a valid value; got '1000.*expected an integer below 2\\^63"),
        ('"\\ud800"', "not valid YAML"),
    ],
)
def test_what_nothing_can_hold_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_plain(text.encode(), "x")


def test_an_installation_without_the_parser_in_c_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"- {prefix: a, max_per_file: 20_000, not: [b, 'c*']}"
    fast = read_plain(text, "x")
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read_plain(text, "x") == fast == [{"prefix": "a", "max_per_file": 20_000, "not": ["b", "c*"]}]
