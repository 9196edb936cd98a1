"""BFCL (Patil et al., ICML 2025), the single-turn categories: calls of functions that are offered as tools.

The leaderboard's files are of a category each. Questions and answers are read as ``test.jsonl`` and
``possible_answer.jsonl``: docs/evaluation.md has the two commands that join them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pairmill.evaluation.benchmarks.base import Base, make_question
from pairmill.evaluation.benchmarks.question import Need, Question, Row, Rows, Verdict
from pairmill.evaluation.scoring import calls

_OPENAPI: Final = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""Names of types, as schemas of tools have them."""
_LANGUAGES: Final = {"java": ("Java", "Java 8 SDK"), "javascript": ("JavaScript", "JavaScript")}


@dataclass(frozen=True)
class Bfcl(Base):
    """Right is a reply whose calls are the listed ones; for questions that no function answers, one without a call."""

    name = "bfcl"
    grouped = True
    calls_tools = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need("test", ("id", "question", "function")),
            Need("possible_answer", ("id", "ground_truth"), optional=True),
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "condition": "", "max_context": 8192}

    def questions(self, rows: Rows) -> Iterator[Question]:
        answers = {row["id"]: row["ground_truth"] for row in rows.get("possible_answer", ())}
        for number, row in enumerate(rows["test"]):
            name = self.row_text(number, row, "id")
            category = name.rpartition("_")[0].partition("-")[0].rstrip("_0123456789") or name
            if "relevance" not in category and name not in answers:
                raise self.wrong(number, "id", name, "one that possible_answer has")
            yield self._question(number, row, category, answers.get(name, []))

    def _question(self, number: int, row: Row, category: str, answers: Sequence[Any]) -> Question:
        turns, functions = row["question"], row["function"]
        if not isinstance(turns, list) or len(turns) != 1 or not turns[0] or not isinstance(turns[0], list):
            raise self.wrong(number, "question", turns, "one turn of messages: multi-turn categories are not asked")
        if any(word in category for word in ("multi_turn", "memory", "web_search")):
            raise self.wrong(number, "id", row["id"], "a single-turn category")
        if not isinstance(functions, list) or not all(isinstance(item, dict) and "name" in item for item in functions):
            raise self.wrong(number, "function", functions, "a list of functions, each with a name")
        text = str(turns[0][-1].get("content", ""))
        gold = {"category": category, "functions": functions, "answers": answers}
        made = make_question(self, number, text, gold, group=category, text=text)
        language = calls.language_of(category)
        return replace(made, messages=tuple(turns[0]), tools=tuple(_tool(item, language) for item in functions))

    def accepts(self, text: str) -> bool:
        return bool(calls.parse(text))

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        made, gold = calls.parse(texts[0]), question.gold
        right = calls.right(gold["category"], gold["functions"], made, gold["answers"])
        invalid = not made and "irrelevance" not in gold["category"]
        return Verdict(texts[0][:1000] if made else None, float(right), invalid)


def _tool(function: Mapping[str, Any], language: str) -> dict[str, Any]:
    """Return a function as OpenAI's protocol offers it."""
    if language in _LANGUAGES:
        function = _as_texts(function, *_LANGUAGES[language])
    parameters = _schema(function.get("parameters", {}))
    return {
        "type": "function",
        "function": {**function, "name": calls.plain_name(function["name"]), "parameters": parameters},
    }


def _as_texts(function: Mapping[str, Any], language: str, syntax: str) -> dict[str, Any]:
    """Return a function of another language as the leaderboard offers it: each argument is a text, and told as one."""
    parameters = dict(function.get("parameters", {}))
    parameters["properties"] = {
        name: {
            **{key: value for key, value in detail.items() if key not in ("items", "properties")},
            "type": "string",
            "description": detail.get("description", "") + _hint(detail, language),
        }
        for name, detail in parameters.get("properties", {}).items()
    }
    description = f"{function.get('description', '')} Note that the provided function is in {syntax} syntax."
    return {**function, "description": description, "parameters": parameters}


def _hint(detail: Mapping[str, Any], language: str) -> str:
    kind = detail["type"]
    if kind == "any":
        return f" This parameter can be of any type of {language} object in string representation."
    text = f" This is {language} {kind} type parameter in string representation."
    if "items" in detail:
        text += f" The list elements are of type {detail['items']['type']}; they are not in string representation."
    if "properties" in detail:
        schema = json.dumps(detail["properties"])
        text += f" The dictionary entries have the following schema; they are not in string representation. {schema}"
    return text


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _OPENAPI.get(item, item) if key == "type" and isinstance(item, str) else _schema(item)
        for key, item in value.items()
    }
