"""Paths into records, and the expressions of ``where``: what they mean, and what is refused."""

import pickle
import random
import time
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.sources.language.expression import Expression, Failed
from pairmill.sources.language.paths import MISSING, First, Path
from tests.support.helpers import draws

RECORD: dict[str, Any] = {
    "question": "Why is the sky blue?",
    "level": 3,
    "score": 0.5,
    "good": True,
    "bad": False,
    "nothing": None,
    "count": "12",
    "blank": " ",
    "tags": ["math", "easy"],
    "sizes": [1, 2.5, None],
    "none": [],
    "meta": {"language": "en", "class": "a", "deep": {"x": 1}},
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi", "n": 1},
        {"role": "assistant", "content": None},
        {"role": "end user", "content": "Bye"},
    ],
    "A column": "spaced",
    "0": "zero",
    "ключ": "unicode",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("question", RECORD["question"]),
        ("meta.language", "en"),
        ("meta.deep.x", 1),
        ("meta['language']", "en"),
        ('meta["language"]', "en"),
        ("['A column']", "spaced"),
        ("0", "zero"),
        ("ключ", "unicode"),
        ("tags[0]", "math"),
        ("tags[-1]", "easy"),
        ("tags[-2]", "math"),
        ("messages[1].content", "Hi"),
        ("messages[role=user].content", "Hi"),
        ("messages[role='end user'].content", "Bye"),
        ('messages[role="end user"]["content"]', "Bye"),
        ("messages[-1].content", "Bye"),
        ("messages[role=assistant].content", None),
        ("nothing", None),
        ("nothing.at.all[3]", None),
        ("tags[2]", MISSING),
        ("tags[-3]", MISSING),
        ("none[0]", MISSING),
        ("other", MISSING),
        ("other.than[0]", MISSING),
        ("meta.other", MISSING),
        ("meta[0]", MISSING),
        ("question.length", MISSING),
        ("question[0]", MISSING),
        ("level[role=user]", MISSING),
        ("messages.content", MISSING),
        ("messages[role=nobody].content", MISSING),
        ("messages[n=1]", MISSING),  # texts alone say which element
        ("tags[role=user]", MISSING),
    ],
)
def test_a_path_finds_what_stands_there(text: str, value: Any) -> None:
    assert Path.parse(text).find(RECORD) is value or Path.parse(text).find(RECORD) == value


@pytest.mark.parametrize("record", [None, [], "text", 5, [RECORD]])
def test_a_path_finds_nothing_in_what_is_no_record(record: Any) -> None:
    assert Path.parse("question").find(record) in (None, MISSING)


def test_a_path_knows_its_column_and_steps() -> None:
    path = Path.parse("messages[role=user]['a b'][-1].content")
    assert path.column == "messages"
    assert path.steps == ("messages", First("role", "user"), "a b", -1, "content")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a b",
        ".a",
        "a.",
        "a..b",
        "[0]",
        "[role=user]",
        "a[]",
        "a[b]",
        "a[1.5]",
        "a[0",
        "a]0[",
        "a[0]b",
        "a['b]",
        "a[role=]",
        "a[role==user]",
        "a[role=user,n=1]",
        "a()",
        "a*",
        "a[1234567]",
        "a\n",
        "é" * 201,
    ],
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="path"):
        Path.parse(text)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        # comparisons
        ("level == 3", True),
        ("level != 3", False),
        ("level == 3.0", True),
        ("level < 4 and level <= 3 and level > 2 and level >= 3", True),
        ("1 < level < 3", False),
        ("1 < level <= 3 < 5", True),
        ("score == 0.5", True),
        ("question == 'Why'", False),
        ("'a' < meta.language", True),
        ("good == true", True),
        ("good == True and bad == false", True),
        ("level == -3", False),
        # and, or, not; a condition of its own
        ("good", True),
        ("bad", False),
        ("not bad", True),
        ("good and bad or good", True),
        ("bad and level == 'text'", False),  # the right side is not looked at
        ("good or level == 'text'", True),
        ("not (good and bad)", True),
        ("not not good", True),
        # in
        ("meta.language in ['en', 'de']", True),
        ("meta.language in ('fr', 'de')", False),
        ("meta.language not in {'fr', 'de'}", True),
        ("level in [1, 2, 3]", True),
        ("level in [-3]", False),
        ("good in [true]", True),
        ("'sky' in question", True),
        ("'Sky' not in question", True),
        ("'math' in tags", True),
        ("'hard' in tags", False),
        ("'hard' not in tags", True),
        ("2.5 in sizes", True),
        ("3 in sizes", False),
        ("'x' in none", False),
        ("'x' not in none", True),
        # arithmetic
        ("level + 1 == 4 and level - 1 == 2 and level * 2 == 6", True),
        ("level / 2 == 1.5 and level // 2 == 1 and level % 2 == 1", True),
        ("-level == -3", True),
        ("len(question) > 2 * len(tags) + 1", True),
        # functions
        ("len(question) == 20", True),
        ("len(tags) == 2 and len(none) == 0", True),
        ("lower(question) == 'why is the sky blue?'", True),
        ("contains(question, 'sky')", True),
        ("contains(tags, 'math')", True),
        ("contains(lower(question), 'why')", True),
        ("contains(['en', 'de'], meta.language)", True),
        ("startswith(question, 'Why') and endswith(question, '?')", True),
        ("startswith(question, 'why')", False),
        (r"matches(question, r'\bsky\b')", True),
        ("matches(question, '^sky')", False),
        ("matches(question, '(?i)^WHY')", True),
        ("number(count) > 9", True),
        ("number(level) == 3", True),
        ("number('1.5e1') == 15 and number(' -3 ') == -3", True),
        ("has(question) and has(meta.language) and has(blank)", True),
        ("has(nothing) or has(other) or has(tags[7]) or has(path('messages[role=nobody]'))", False),
        # paths
        ("tags[0] == 'math' and tags[-1] == 'easy'", True),
        ("meta['language'] == 'en'", True),
        ("messages[1].content == 'Hi'", True),
        ("path('messages[role=user].content') == 'Hi'", True),
        ("path('meta.class') == 'a'", True),
        ("path(\"['A column']\") == 'spaced'", True),
        # several lines, with remarks
        ("level == 3  # three\n  and\n  good", True),
        # no value: every comparison is false
        ("nothing == 1", False),
        ("nothing != 1", False),
        ("other != 1", False),
        ("1 < other", False),
        ("nothing == nothing", False),
        ("nothing in [1]", False),
        ("nothing not in [1]", False),
        ("other in tags", False),
        ("'x' in nothing", False),
        ("'x' not in nothing", False),
        ("nothing", False),
        ("not nothing", True),
        ("not (other == 1)", True),
        ("nothing + 1 > 0", False),
        ("-nothing < 1", False),
        ("len(nothing) == 0", False),
        ("not (len(nothing) > 0)", True),
        ("lower(other) == ''", False),
        ("contains(nothing, 'x')", False),
        ("contains(question, nothing)", False),
        ("startswith(nothing, 'x')", False),
        ("endswith(question, other)", False),
        ("matches(nothing, '.')", False),
        ("number(nothing) == 0", False),
        ("number(blank) == 0", False),
        ("path('messages[role=assistant].content') == 'x'", False),
    ],
)
def test_an_expression_holds_or_not(text: str, holds: bool) -> None:
    assert Expression(text).holds(RECORD) is holds


@pytest.mark.parametrize(
    "text",
    [
        "question == 3",
        "level == '3'",
        "count >= 9",
        "good == 1",
        "good < bad",
        "tags == none",
        "meta == meta",
        "question in [1, 2]",
        "level in ['3']",
        "good in [1]",
        "3 in question",
        "3 in tags",
        "'1' in sizes",
        "'x' in level",
        "'language' in meta",
        "tags in tags",
        "question + 1 > 0",
        "good + 1 > 0",
        "-question > 0",
        "level / 0 == 1",
        "level % (level - 3) == 1",
        "len(level) == 1",
        "len(meta) == 1",
        "lower(level) == '3'",
        "startswith(tags, 'm')",
        "matches(level, '3')",
        "number(question) == 1",
        "number(good) == 1",
        "number(tags) == 1",
        "number('0x10') == 16",
        "number('nan') == 1",
        "level",
        "question",
        "tags",
        "not level",
        "good and question",
    ],
)
def test_an_expression_that_does_not_fit_the_record_fails(text: str) -> None:
    expression = Expression(text)
    with pytest.raises(Failed):
        expression.holds(RECORD)


def test_huge_numbers_fail_rather_than_break() -> None:
    with pytest.raises(Failed):
        Expression("x + 0.5 > 1").holds({"x": 10**400})
    with pytest.raises(Failed):
        Expression("number(x) > 1").holds({"x": "9" * 5000})
    assert Expression("number(x) > 1").holds({"x": "1e999"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("level = 3", "not a valid expression"),
        ("level == ", "not a valid expression"),
        ("a && b", "not a valid expression"),
        ("messages[role=user].content == 'x'", "path\\('messages"),
        ("meta.from == 'x'", "path\\("),
        ("class == 'x'", "path\\("),
        ("x" * 2001, "too long"),
        ("not " * 60 + "good", "too deeply"),
        ("-" * 1900 + "x > 1", "deeply"),
        ("(" * 900 + "x" + ")" * 900, "not a valid expression"),
        ("5", "wrong type"),
        ("'text'", "wrong type"),
        ("len(x)", "wrong type"),
        ("lower(x)", "wrong type"),
        ("level + 1", "wrong type"),
        ("not 5", "wrong type"),
        ("good and 'x'", "wrong type"),
        ("len(x) == 'a'", "two different types"),
        ("true == 1", "two different types"),
        ("good < true", "wrong type"),
        ("lower(x) in [1]", "wrong type"),
        ("'x' in 5", "wrong type"),
        ("len(5) == 1", "wrong type"),
        ("lower(len(x)) == 'a'", "wrong type"),
        ("startswith(x, 5)", "wrong type"),
        ("'a' + 'b' == x", "wrong type"),
        ("x in []", "empty or has mixed types"),
        ("x in [1, 'a']", "empty or has mixed types"),
        ("x in [true, 1]", "empty or has mixed types"),
        ("x in [y]", "not a constant"),
        ("x in [1 + 1]", "not a constant"),
        ("x in [null]", "has\\(path\\)"),
        ("x == None", "has\\(path\\)"),
        ("x == null", "has\\(path\\)"),
        ("x is None", "has\\(path\\)"),
        ("x is not y", "has\\(path\\)"),
        ("x == [1]", "not supported in where:"),
        ("x == {}", "not supported in where:"),
        ("x == b'a'", "not a constant"),
        ("x == 1j", "not a constant"),
        ("x == ...", "not a constant"),
        ("x == f'{y}'", "not supported in where:"),
        ("x ** 2 == 4", "not supported in where:"),
        ("x << 2 == 4", "not supported in where:"),
        ("x & y", "not supported in where:"),
        ("~x == 4", "not supported in where:"),
        ("+x == 4", "not supported in where:"),
        ("x if y else z", "not supported in where:"),
        ("lambda: x", "not supported in where:"),
        ("[a for a in x] == y", "not supported in where:"),
        ("(x := 5) == 5", "not supported in where:"),
        ("x, y", "not supported in where:"),
        ("(yield x)", "not supported in where:"),
        ("(await x)", "not supported in where:"),
        ("x[1:2] == y", "not a valid path"),
        ("x[y] == 1", "not a valid path"),
        ("x[true] == 1", "not a valid path"),
        ("x[True] == 1", "not a valid path"),
        ("'abc'.upper == 1", "not a valid path"),
        ("lower(x).y == 1", "not a valid path"),
        ("path('x').y == 1", "not a valid path"),
        ("has(5)", "not a valid path"),
        ("has(lower(x))", "not a valid path"),
        ("path(x) == 1", "not a valid path"),
        ("path('a b') == 1", "not a valid path"),
        ("open('x') == 1", "unknown function"),
        ("__import__('os')", "unknown function"),
        ("x.startswith('a')", "write startswith\\(text, part\\)"),
        ("x.upper()", "unknown function"),
        ("len()(x)", "unknown function"),
        ("len(x, y) == 1", "wrong arguments"),
        ("len(x=1) == 1", "wrong arguments"),
        ("len() == 1", "wrong arguments"),
        ("len(*x) == 1", "not supported in where:"),
        ("matches(x, y)", "not a pattern"),
        ("matches(x, 5)", "not a pattern"),
        ("matches(x, '(')", "unclosed group.*character 1 of"),
        (r"matches(x, r'(\w)-\1')", "not a valid pattern.*backreferences.*character 6 of"),
        (r"matches(x, r'a(?P<b>c)(?P=b)')", "not a valid pattern.*character"),
        ("matches(x, '(?<=a)b')", "not a valid pattern.*look-around.*character 1 of"),
        ("matches(x, 'a(?!b)')", "not a valid pattern.*look-around.*character 2 of"),
        (r"matches(x, r'\w{9}{999}')", "not a valid pattern.*size limit"),
        (r"matches(x, '\bsky')", "r'"),
        ("x == 1\0", "not a valid expression"),
    ],
)
def test_what_is_not_of_the_language_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Expression(text)


CATASTROPHES = [r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"^(a*)*b", r"(.*a){12}$", r"(\w+\s*)+:", r"(a?){40}a{40}$"]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_no_pattern_takes_longer_than_its_text(pattern: str) -> None:
    """Python's ``re`` takes more than a lifetime for most of these."""
    start = time.process_time()
    Expression(f"matches(x, r'{pattern}')").holds({"x": "a" * 50_000 + "!"})
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^\w+$", "schön_1", True),
        (r"\bключ\b", "вот ключ.", True),
        (r"^\d$", "\u0663", True),
        (r"^\s$", "\u3000", True),
        (r"(?i)STRASSE|ΣΊΣΥΦΟΣ", "σίσυφος", True),
        (r"^a.c$", "a\nc", False),
        (r"(?s)^a.c$", "a\nc", True),
        (r"(?m)^c$", "a\nc", True),
        (r"c$", "c\n", False),
        (r"\<think\>", "a <think> b", True),
        (r"\\<b", r"\b", False),
        (r"\.\*\$\-\#\&", ".*$-#&", True),
        (r"x", "\ud800 x", True),
        (r"^x", "\ud800x", False),
    ],
)
def test_what_patterns_mean(pattern: str, text: str, found: bool) -> None:
    assert Expression(f"matches(x, r'{pattern}')").holds({"x": text}) is found


def test_an_expression_names_its_columns() -> None:
    expression = Expression("meta.language == 'en' and (has(x.y) and x.y > 1 or len(path('m[role=user].c')) > meta.n)")
    assert expression.columns == ("meta", "x", "m")
    assert expression.optional == ("x",)


def test_an_expression_crosses_process_borders() -> None:
    again = pickle.loads(pickle.dumps(Expression("level in [1, 3] and matches(question, 'sky')")))
    assert again.holds(RECORD)


def value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(12 if depth < 3 else 9)
    if kind == 9:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind >= 10:
        return {draw.choice("abcd"): value(draw, depth + 1) for _ in range(draw.randrange(4))}
    plain = [None, True, draw.randrange(-9, 9), draw.random(), "", "a", "12", float("nan"), b"x"]
    return plain[kind]


def expression(draw: random.Random, depth: int = 0) -> str:
    """Texts that mostly are expressions of this language."""

    def inner() -> str:
        return expression(draw, depth + 1)

    name = draw.choice(["a", "b", "c.d", "d[0]", "d[-1].a", "path('c[a=12].b')"])
    if depth > 3:
        return draw.choice([name, "1", "'a'", "2.5", "true", "0"])
    return draw.choice(
        [
            lambda: name,
            lambda: f"({inner()} {draw.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {inner()})",
            lambda: f"({inner()} {draw.choice(['and', 'or'])} {inner()})",
            lambda: f"({inner()} {draw.choice(['+', '-', '*', '/', '//', '%'])} {inner()})",
            lambda: f"not {inner()}",
            lambda: f"-{inner()}",
            lambda: f"{draw.choice(['len', 'lower', 'number'])}({inner()})",
            lambda: f"{draw.choice(['contains', 'startswith', 'endswith'])}({inner()}, {inner()})",
            lambda: f"matches({inner()}, 'a|1')",
            lambda: f"has({name})",
            lambda: f"({inner()} in [1, 2])",
            lambda: f"({inner()} in ['a', '12'])",
        ]
    )()


def test_any_expression_holds_or_not_or_fails_on_any_record() -> None:
    draw = random.Random(20261121)
    seen: dict[object, int] = {}
    for _ in range(draws(6000)):
        try:
            made = Expression(expression(draw))
        except UsageError:
            seen["refused"] = seen.get("refused", 0) + 1
            continue
        for _ in range(5):
            record = {key: value(draw) for key in "abcd" if draw.random() < 0.9}
            try:
                outcome: object = made.holds(record)
            except Failed:
                outcome = "failed"
            seen[outcome] = seen.get(outcome, 0) + 1
    assert min(seen[outcome] for outcome in (True, False, "failed", "refused")) > draws(100)
