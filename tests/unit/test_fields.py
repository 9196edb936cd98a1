"""Fields that check themselves: what each check takes, and what its message says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.fields import COLUMN, NAME, Checked, is_given, setting


def parse(text: str) -> None:
    if text != "right":
        raise UsageError("not parsed", where="elsewhere", got=text, hint="write right")


@dataclass(frozen=True, kw_only=True)
class Every(Checked, at_most_one=("steps", "epochs")):
    """Each check once or more."""

    share: float = setting(0.5, help="", above=0, at_most=1)
    low: float = setting(1.0, help="", at_least=0, at_most="high")
    high: float = setting(10.0, help="")
    many: int | None = setting(None, help="", at_least=1, below=9)
    mean: float | str = setting("auto", help="", at_least=0, below=1)
    parts: int = setting(2, help="", divides="whole")
    whole: int = setting(8, help="")
    weight: float = setting(1.0, help="", nonzero=True)
    weights: dict[str, float] = setting({}, help="", at_least=0, nonzero=True)
    name: str = setting("a-b.c_ä", help="", filled=True, form=NAME)
    column: str = setting("", help="", form=COLUMN)
    most: int | None = setting(None, help="", at_most="many")
    kind: str = setting("", help="", choices=("first", "second"))
    kinds: list[str] = setting(["a", "b"], help="", filled=True, unique=True, max_length=3)
    only: list[str] = setting([], help="", choices="kinds")
    edges: list[float] = setting([], help="", ascending=True, length=2)
    text: str = setting("", help="", parse=parse)
    pairs: list[str] = setting([], help="", as_many_as="texts")
    texts: list[str] = setting([], help="")
    in_: str = setting("", help="", needs="kind", excludes=("column",))
    steps: int = setting(0, help="")
    epochs: int = setting(0, help="")


@dataclass(frozen=True, kw_only=True)
class Required(Checked, any_of=("min", "max"), one_of=("rows", "tokens")):
    min: float | None = None
    max: float | None = None
    rows: int = 0
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Further(Required, any_of=("place",)):
    place: str = ""


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"share": 1.0, "low": 10.0, "many": 1, "mean": 0.0, "parts": 8, "weight": -1.0},
        {"parts": 0, "weights": {"a": 0.0, "b": 1.0}, "kind": "second", "only": ["b"], "edges": [1.0, 2.0]},
        {"column": "heuristics.r.words", "text": "right", "steps": 3},
        {"in_": "x", "kind": "first"},
        {"most": 5},
        {"most": 5, "many": 5},
    ],
)
def test_right_values_are_taken(values: dict[str, Any]) -> None:
    made = Every(**values)
    assert {name: getattr(made, name) for name in values} == values
    assert replace(made) == made


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0.0}, "share: out of range; got 0; expected above 0, at most 1"),
        ({"share": float("nan")}, "share: out of range; got nan; expected above 0, at most 1"),
        ({"low": 11.0}, "low: out of range; got 11; expected 0 to 10 (high)"),
        ({"many": 0}, "many: out of range; got 0; expected 1 to below 9, or null"),
        ({"many": 5, "most": 6}, "most: out of range; got 6; expected at most 5 (many), or null"),
        ({"mean": 1.0}, "mean: out of range; got 1; expected 0 to below 1, or auto"),
        ({"parts": 3}, "parts: does not divide evenly; got 3; expected a divisor of whole, which is 8"),
        ({"weight": 0.0}, "weight: out of range; got 0; expected any other number"),
        ({"weights": {"a": -0.5}}, "weights.a: out of range; got -0.5; expected 0 or more"),
        ({"weights": {"a": float("inf")}}, "weights.a: out of range; got inf; expected 0 or more"),
        ({"weights": {"a": 0.0}}, "weights: out of range; got only 0; expected one that is not 0"),
        ({"name": " "}, "name: is empty; expected a text"),
        ({"name": "a/b"}, "name: not a valid value; got 'a/b'; expected letters, digits, _, - and ."),
        ({"name": "a\n"}, r"name: not a valid value; got 'a\n'; expected letters, digits, _, - and ."),
        ({"column": "words"}, "column: not a valid value; got 'words'; expected <operation>.<column>"),
        ({"kind": "frst"}, "kind: unknown value; got 'frst'; expected first or second; did you mean 'first'?"),
        ({"kinds": []}, "kinds: is empty; expected one item or more"),
        ({"kinds": ["a", "b", "a"]}, "kinds[3]: occurs twice; got 'a'; expected each once"),
        ({"kinds": ["a", "b", "c", "d"]}, "kinds: too many items; got 4; expected at most 3"),
        ({"only": ["a", "c"]}, "only[2]: unknown value; got 'c'; expected a or b"),
        ({"edges": [1.0]}, "edges: not the right number of items; got [1.0]; expected 2"),
        ({"edges": [2.0, 1.0]}, "edges: not ascending; got [2.0, 1.0]; expected [1.0, 2.0]"),
        ({"pairs": ["x"]}, "pairs: not as many; got 1, and 0 of texts; expected as many of both"),
        ({"text": "wrong"}, "text: not parsed; got wrong; write right"),
        ({"in_": "x"}, "in: needs kind; got 'x'"),
        ({"in_": "x", "kind": "first", "column": "a.b"}, "column: cannot be given with in; expected column or in, not"),
        ({"steps": 1, "epochs": 2}, "epochs: cannot be given with steps; got steps, epochs; expected at most one of"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Every(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rows": 1}, "one or more of min, max is required"),
        ({"min": 0.0}, "exactly one of rows, tokens is required"),
        ({"min": 0.0, "rows": 1, "tokens": 2}, "tokens: cannot be given with rows"),
        ({"min": 0.0, "max": 1.0, "rows": 1}, "one or more of place is required"),
    ],
)
def test_groups_are_checked_and_inherited(values: dict[str, Any], message: str) -> None:
    assert Required(min=0.0, max=1.0, rows=1).min == 0
    with pytest.raises(UsageError, match=re.escape(message)):
        Further(**values)


def test_what_differs_from_the_default_is_given_and_defaults_are_not_shared() -> None:
    made = Every(weights={"a": 1.0})
    assert is_given(made, "weights")
    assert not is_given(made, "kinds")
    assert Every().kinds is not Every().kinds
