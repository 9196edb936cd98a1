"""BFCL (Patil et al., ICML 2025), the single-turn categories in Python: calls of functions that are offered as tools.

The leaderboard's files are of a category each. Questions and answers are read as ``test.jsonl`` and
``possible_answer.jsonl``: docs/evaluation.md has the two commands that join them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pairmill.evaluation.benchmarks.base import Base, make_question
from pairmill.evaluation.benchmarks.question import Need, Question, Row, Rows, Verdict
from pairmill.evaluation.scoring import calls

_OPENAPI: Final = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""Names of types, as schemas of tools have them."""


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
        if any(word in category for word in ("java", "multi_turn", "memory", "web_search")):
            raise self.wrong(number, "id", row["id"], "a single-turn category in Python")
        if not isinstance(functions, list) or not all(isinstance(item, dict) and "name" in item for item in functions):
            raise self.wrong(number, "function", functions, "a list of functions, each with a name")
        text = str(turns[0][-1].get("content", ""))
        gold = {"category": category, "functions": functions, "answers": answers}
        made = make_question(self, number, text, gold, group=category, text=text)
        return replace(made, messages=tuple(turns[0]), tools=tuple(map(_tool, functions)))

    def accepts(self, text: str) -> bool:
        return bool(calls.parse(text))

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        made, gold = calls.parse(texts[0]), question.gold
        right = calls.right(gold["category"], gold["functions"], made, gold["answers"])
        invalid = not made and "irrelevance" not in gold["category"]
        return Verdict(texts[0][:1000] if made else None, float(right), invalid)


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function as OpenAI's protocol offers it."""
    parameters = _schema(function.get("parameters", {}))
    return {
        "type": "function",
        "function": {**function, "name": calls.plain_name(function["name"]), "parameters": parameters},
    }


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _OPENAPI.get(item, item) if key == "type" and isinstance(item, str) else _schema(item)
        for key, item in value.items()
    }
