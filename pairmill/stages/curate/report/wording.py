"""What operations and rules are called, and what they mean, for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pairmill.report.model import format_cell
from pairmill.stages.curate.operations import of_folder

_DONE: Final = {"drop": "dropped", "cap": "over the cap", "report": "reported", "redact": "redacted"}


def describe_rule(operation: str, rule: str) -> str:
    """Describe what a rule means; empty if its name says it."""
    return of_folder(operation).meanings.get(rule, "")


def describe_action(action: str) -> str:
    """Return what was done with a row, as a participle."""
    return _DONE.get(action, action)


def describe_scores(operation: str, found: Mapping[str, Any]) -> str:
    """Describe the scores of a decision by their names, but those that are null and those that its detail has."""
    owner = of_folder(operation)
    if owner.scores is None and found.get("detail"):
        return ""
    scores = zip(
        owner.names_of_scores(str(found.get("rule"))), (found.get("score_i"), found.get("score_r")), strict=True
    )
    return ", ".join(f"{name} {score:.3f}" for name, score in scores if score is not None and not math.isnan(score))


def describe_needed(operation: str, rule: str, settings: Mapping[str, Any]) -> str:
    """Describe what a rule's scores have to reach; empty if the decision itself says it.

    Args:
        operation: of the decision.
        rule: of the decision.
        settings: of the manifest.
    """
    own = settings.get(operation)
    return of_folder(operation).describe_needed(rule, own if isinstance(own, Mapping) else {})


def describe_finding(operation: str, found: Mapping[str, Any]) -> str:
    """Return a decision in a few words: action, rule, scores and detail."""
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
    """Return the texts of a row beside an item of a benchmark, and the names of the item's fields.

    Args:
        found: the decision; its detail begins with the field that has the question.
        row: instruction and response.
        item: question and answer.
    """
    if str(found.get("detail") or "").startswith("response"):
        return [("response", row[1], "\n".join(filter(None, item)))], ("question and answer",)
    return [("instruction", row[0], item[0]), ("response", row[1], item[1])], ("question", "answer")


def row_id(task: str, ordinal: int) -> str:
    """Return the name of a row."""
    return f"{task}:{ordinal}"


def other_of(found: Mapping[str, Any]) -> str:
    """Return what a decision compares a row with: another row, an item of a benchmark, or nothing."""
    if found.get("other_task") and found.get("other_ordinal") is not None:
        return row_id(found["other_task"], found["other_ordinal"])
    if found.get("benchmark"):
        return f"{found['benchmark']} item {found.get('item') or '?'}"
    return ""


def and_more(rows: Sequence[Any], most: int, what: str) -> str:
    """Return a note of the rows of a table that are cut off."""
    return f"and {format_cell(len(rows) - most)} more {what}" if len(rows) > most else ""
