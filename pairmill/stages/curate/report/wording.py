"""What operations and rules are called, and what they mean, for people."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pairmill.report.model import format_cell

_DONE: Final = {"drop": "dropped", "cap": "over the cap", "report": "reported", "redact": "redacted"}


def describe_action(action: str) -> str:
    """Return what was done with a row, as a participle."""
    return _DONE.get(action, action)


def describe_finding(name: str, scores: str, decision: Mapping[str, Any]) -> str:
    """Return a decision in a few words: action, rule, scores and detail.

    Args:
        name: of the operation's folder.
        scores: of the decision, as its operation describes them.
        decision: with its names.
    """
    parts = [
        describe_action(str(decision.get("action") or "")),
        f"{name}: {decision['rule']}" if decision.get("rule") else "",
        scores,
        str(decision.get("detail") or ""),
    ]
    return " · ".join(part for part in parts if part)


def beside_item(
    finding: Mapping[str, Any], row: tuple[str, str], item: tuple[str, str]
) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
    """Return the texts of a row beside an item of a benchmark, and the names of the item's fields.

    Args:
        found: the decision; its detail begins with the field that has the question.
        row: instruction and response.
        item: question and answer.
    """
    if str(finding.get("detail") or "").startswith("response"):
        return [("response", row[1], "\n".join(filter(None, item)))], ("question and answer",)
    return [("instruction", row[0], item[0]), ("response", row[1], item[1])], ("question", "answer")


def row_id(task: str, ordinal: int) -> str:
    """Return the name of a row."""
    return f"{task}:{ordinal}"


def other_of(finding: Mapping[str, Any]) -> str:
    """Return what a decision compares a row with: another row, an item of a benchmark, or nothing."""
    if finding.get("other_task") and finding.get("other_ordinal") is not None:
        return row_id(finding["other_task"], finding["other_ordinal"])
    if finding.get("benchmark"):
        return f"{finding['benchmark']} item {finding.get('item') or '?'}"
    return ""


def and_more(rows: Sequence[Any], most: int, what: str) -> str:
    """Return a note of the rows of a table that are cut off."""
    return f"and {format_cell(len(rows) - most)} more {what}" if len(rows) > most else ""
