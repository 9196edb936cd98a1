"""Literals and calls are read as Python reads them; the oracle is the interpreter's own parser."""

import ast
import random
from typing import Any

import pytest

from pairmill.chats.literals import parse_calls, parse_literal
from tests.support.helpers import draws

PIECES = ["a", "é", "'", '"', "\\", "\n", "\t", "\\n", "(", ")", ",", "=", "[", "}", " ", "#", "\x07", "日"]


def drawn(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(6 if depth > 2 else 9)
    if kind < 2:
        return "".join(draw.choice(PIECES) for _ in range(draw.randrange(6)))
    if kind < 6:
        return [draw.randrange(-99, 99), draw.uniform(-1e9, 1e9), draw.choice([True, False, None]), 1e-7][kind - 2]
    if kind < 8:
        return [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {f"k{n}": drawn(draw, depth + 1) for n in range(draw.randrange(4))}


def test_literals_are_what_python_reads() -> None:
    draw = random.Random(3)
    for _ in range(draws(3000)):
        value = drawn(draw)
        assert parse_literal(repr(value)) == ast.literal_eval(repr(value)) == value


def test_calls_are_what_python_reads() -> None:
    draw = random.Random(4)
    for _ in range(draws(1000)):
        calls = [
            (f"tool_{n}", [drawn(draw) for _ in range(draw.randrange(2))], {f"a{i}": drawn(draw) for i in range(3)})
            for n in range(draw.randrange(1, 4))
        ]
        lines = [
            f"{name}({', '.join([*map(repr, values), *(f'{key}={item!r}' for key, item in named.items())])})"
            for name, values, named in calls
        ]
        assert all(
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in ast.parse("\n".join(lines)).body
        )
        for text in ("\n".join(lines), f"[{', '.join(lines)}]", "; ".join(lines)):
            assert [tuple(call) for call in parse_calls(text)] == calls


def test_json_words_and_tuples_are_read_too() -> None:
    assert parse_literal("{'a': true, 'b': [null, false], 'c': (1, 2,)}") == {
        "a": True,
        "b": [None, False],
        "c": [1, 2],
    }
    assert parse_literal("'''a\nb'''") == "a\nb"
    assert parse_literal(r"'\x41\u00e9\U0001f600\q'") == "Aé😀\\q"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a", "f", "f(", "f(a=)", "f(a=1", "f(a=1))", "f(a=1, a=2)", "f(a=1, 2)", "f(g(1))", "f(a=1) x", "1"),
        *("f(a='x)", "f(a={1: 2})", "f(a=1 b=2)", "[f(a=1)", "f(a=lambda: 1)", "f(a=b)", "f(**{})", "f(a=r'x')"),
        *("f(a=" + "9" * 5000 + ")", "f(a=" + "[" * 5000 + ")", "f(a=" + "-" * 5000 + "1)", "f(a='\\U00110000')"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_calls(text)
    with pytest.raises(ValueError, match=r".+"):
        parse_literal(text[3:-1] + "]")
