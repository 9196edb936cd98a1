"""What operations and rules are called, and what they mean, for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pairmill.report.model import format_cell

SAID: Final[Mapping[str, Mapping[str, str]]] = {
    "exact": {
        "pair": "instruction and response are equal",
        "instruction": "the instruction is equal",
        "response": "the response is equal",
    },
    "near": {
        "equal_instruction": "equal instructions, and responses that are equal or nearly so",
        "weak_block": "equal short responses, and one instruction contains the other",
        "weak_instruction": "equal short responses, and instructions that differ in typing errors",
        "strong": "long responses and instructions that are nearly equal",
        "document": "documents that are nearly equal",
        "contained": "a document that is contained in a longer one",
    },
    "decontaminate": {
        "question_answer": "question and answer of a benchmark",
        "question": "a question of a benchmark",
        "variant": "a question of a benchmark with other numbers",
        "short_question": "the instruction is a short question of a benchmark",
    },
    "heuristics": {},
    "language": {"language": "another language than those that are kept"},
    "perplexity": {},
    "classifiers": {},
    "filter": {},
    "pii": {
        "EMAIL": "an e-mail address",
        "CARD": "a card number",
        "PHONE": "a telephone number",
        "IP": "an IP address",
    },
}
"""The rules that have a fixed meaning, by operation, in the order in which operations are asked about a row."""

_SCORES: Final[Mapping[str, tuple[str, str]]] = {
    "near": ("instruction", "response"),
    "decontaminate": ("question", "answer"),
}
_OF_DOCUMENTS: Final = ("containment", "Jaccard index")
_DONE: Final = {"drop": "dropped", "cap": "over the cap", "report": "reported", "redact": "redacted"}


def describe_rule(operation: str, rule: str) -> str:
    """What a rule means; nothing if its name says it."""
    return SAID.get(operation, {}).get(rule, "")


def in_order(operations: Iterable[str]) -> list[str]:
    """Operations in the order in which they are asked about a row; classifiers by their own names before the filter."""
    order = list(SAID)
    last = order.index("classifiers")
    return sorted(operations, key=lambda name: (order.index(name) if name in order else last, name))


def describe_action(action: str) -> str:
    """What was done with a row, as a participle."""
    return _DONE.get(action, action)


def describe_scores(operation: str, found: Mapping[str, Any]) -> str:
    """The scores of a decision by their names; those that are null, and those that its detail says, are left out."""
    if operation not in _SCORES and found.get("detail"):
        return ""
    names = _SCORES.get(operation, ("instruction", "response"))
    if operation == "near" and found.get("rule") in ("document", "contained"):
        names = _OF_DOCUMENTS
    scores = zip(names, (found.get("score_i"), found.get("score_r")), strict=True)
    return ", ".join(f"{name} {score:.3f}" for name, score in scores if score is not None and not math.isnan(score))


def describe_needed(operation: str, rule: str, settings: Mapping[str, Any]) -> str:
    """What a rule's scores have to reach; nothing if the decision itself says it.

    Args:
        operation: of the decision.
        rule: of the decision.
        settings: of the manifest.
    """
    if operation == "decontaminate":
        return "a long question needs 0.750, a short one 1; an answer 0.800"
    if operation != "near":
        return ""
    documents = settings.get("near", {}).get("documents", {})
    bound = {"document": documents.get("jaccard"), "contained": documents.get("contained")}.get(rule, 0.75)
    return "" if bound is None else f"at least {bound:.3f}"


def describe_finding(operation: str, found: Mapping[str, Any]) -> str:
    """A decision in a few words: action, rule, scores and detail."""
    parts = [
        describe_action(str(found.get("action") or "")),
        f"{operation}: {found['rule']}" if found.get("rule") else "",
        describe_scores(operation, found),
        str(found.get("detail") or ""),
    ]
    return " · ".join(part for part in parts if part)


def beside_item(
    found: Mapping[str, Any], row: tuple[str, str], item: tuple[str, str]
) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
    """The texts of a row beside an item of a benchmark, and the names of the item's fields.

    Args:
        found: the decision; its detail begins with the field that has the question.
        row: instruction and response.
        item: question and answer.
    """
    if str(found.get("detail") or "").startswith("response"):
        return [("response", row[1], "\n".join(filter(None, item)))], ("question and answer",)
    return [("instruction", row[0], item[0]), ("response", row[1], item[1])], ("question", "answer")


def row_id(task: str, ordinal: int) -> str:
    """The name of a row."""
    return f"{task}:{ordinal}"


def other_of(found: Mapping[str, Any]) -> str:
    """What a decision compares a row with: another row, an item of a benchmark, or nothing."""
    if found.get("other_task") and found.get("other_ordinal") is not None:
        return row_id(found["other_task"], found["other_ordinal"])
    if found.get("benchmark"):
        return f"{found['benchmark']} item {found.get('item') or '?'}"
    return ""


def and_more(rows: Sequence[Any], most: int, what: str) -> str:
    """A note of the rows of a table that are cut off."""
    return f"and {format_cell(len(rows) - most)} more {what}" if len(rows) > most else ""
