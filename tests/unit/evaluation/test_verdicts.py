"""IFEval and BFCL are judged as lm-evaluation-harness and bfcl-eval do (tests/harness/record_verdicts.py)."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.evaluation.benchmarks import REGISTRY
from pairmill.evaluation.scoring import calls, instructions
from tests.support.data import verdict_cases as cases

RECORDED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("verdicts.json").read_text())
LANGUAGES = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}
INSTALLED = importlib.util.find_spec("langdetect") is not None


def verdicts(digits: str, count: int) -> list[bool]:
    return [one == "1" for one in f"{int(digits, 16):0{count}b}"]


@pytest.mark.parametrize("name", [name for name in cases.INSTRUCTIONS if INSTALLED or name not in LANGUAGES])
def test_an_instruction_is_judged_as_the_harness_judges_it(name: str) -> None:
    count = 800
    recorded = verdicts(RECORDED["ifeval"][name], 2 * count)
    assert 5 < sum(recorded) < 2 * count - 5
    for number, (given, text) in enumerate(cases.instructions(name, count)):
        made = [instructions.follows(name, given, text, loose=loose) for loose in (False, True)]
        assert made == recorded[2 * number : 2 * number + 2], (given, text)


@pytest.mark.parametrize("category", [*cases.CATEGORIES, *cases.LITERALS])
def test_calls_are_judged_as_bfcl_judges_them(category: str) -> None:
    count = 5000
    drawn = cases.literals if category in cases.LITERALS else cases.calls
    recorded = verdicts(RECORDED["bfcl"][category], count)
    assert count / 10 < sum(recorded) < count * 19 / 20
    for expected, (functions, made, answers) in zip(recorded, drawn(category, count), strict=True):
        assert calls.right(category, functions, made, answers) == expected, (functions, made, answers)


def test_every_instruction_of_ifeval_is_compared() -> None:
    assert instructions.CHECKS.keys() - cases.INSTRUCTIONS.keys() == {"length_constraints:number_sentences"}
    assert RECORDED["ifeval"].keys() == cases.INSTRUCTIONS.keys()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One. Two! Three?", 3),
        ("It costs 3.50 euros. Dr. Who, e.g. Smith, came at 5 p.m. and left.", 2),
        ('He said "No." Then he left...  And then?', 3),
        ("A line\n\nwithout marks", 1),
    ],
)
def test_sentences_are_counted_by_rule(text: str, count: int) -> None:
    assert instructions.sentences(text) == count


def test_without_langdetect_the_language_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    with pytest.raises(UsageError, match=r"needs langdetect.*pip install langdetect"):
        instructions.follows("language:response_language", {"language": "en"}, "A text.")


def test_sentences_are_counted_by_punkt_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rule, by_model = REGISTRY["ifeval"], REGISTRY["ifeval_punkt"]
    given = {"num_sentences": 3, "relation": "at least"}
    row = {"prompt": "Three.", "instruction_id_list": ["length_constraints:number_sentences"], "kwargs": [given]}
    (question,) = by_model.questions({"train": [row]})
    for module, message in (
        (None, "needs NLTK, not installed"),
        (SimpleNamespace(PunktTokenizer=absent), "NLTK_DATA="),
    ):
        instructions._punkt.cache_clear()
        monkeypatch.setitem(sys.modules, "nltk.tokenize.punkt", module)
        with pytest.raises(UsageError, match=message):
            by_model.check()
    parts = SimpleNamespace(tokenize=str.split)
    monkeypatch.setitem(sys.modules, "nltk.tokenize.punkt", SimpleNamespace(PunktTokenizer=lambda name: parts))
    assert by_model.score(question, ["One two three."]).correct == 1.0
    assert by_rule.score(question, ["One two three."]).correct == 0.0
    instructions._punkt.cache_clear()


def absent(name: str) -> None:
    raise LookupError(name)


def test_a_function_of_another_language_is_told_as_texts() -> None:
    details = {
        "sizes": {"type": "ArrayList", "items": {"type": "integer"}, "description": "Sizes."},
        "flags": {"type": "HashMap", "properties": {"x": {"type": "any"}}},
        "parent": {"type": "any"},
    }
    function = {"name": "a.b", "description": "Does.", "parameters": {"type": "dict", "properties": details}}
    row = {"id": "simple_java_0", "question": [[{"role": "user", "content": "Do."}]], "function": [function]}
    truth = {"id": "simple_java_0", "ground_truth": [{"a.b": {"sizes": [[1, 2]], "flags": [""], "parent": [""]}}]}
    (question,) = REGISTRY["bfcl"].questions({"test": [row], "possible_answer": [truth]})
    told = question.tools[0]["function"]
    assert told["description"] == "Does. Note that the provided function is in Java 8 SDK syntax."
    assert {detail["type"] for detail in told["parameters"]["properties"].values()} == {"string"}
    assert told["parameters"]["properties"]["sizes"] == {
        "type": "string",
        "description": "Sizes. This is Java ArrayList type parameter in string representation. "
        "The list elements are of type integer; they are not in string representation.",
    }
    made = {"a_b": {"sizes": "new ArrayList<Integer>(Arrays.asList(1, 2))"}}
    assert REGISTRY["bfcl"].score(question, [json.dumps([made])]).correct == 1.0
    assert REGISTRY["bfcl"].score(question, [json.dumps([{"a_b": {"sizes": [1, 2]}}])]).correct == 0.0


@pytest.mark.parametrize(
    ("category", "made", "is_right"),
    [
        ("irrelevance", [], True),
        ("live_irrelevance", [{"f": {}}], False),
        ("live_relevance", [{"f": {}}], True),
        ("live_relevance", [], False),
        ("simple_python", [{"f": "not an object"}], False),
        ("simple_python", [{"f": {}}, {"f": {}}], False),
    ],
)
def test_calls_where_none_is_right_or_any(category: str, made: list[Any], is_right: bool) -> None:
    assert calls.right(category, [{"name": "f"}], made, [{"f": {}}]) == is_right


@pytest.mark.parametrize("text", ["", "f(x=1)", "[1]", '{"f": {}}', "[" * 100_000, '[{"f": {}, "g": {}}]'])
def test_texts_without_calls(text: str) -> None:
    assert calls.parse(text) == []
