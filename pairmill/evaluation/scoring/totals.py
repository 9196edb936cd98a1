"""Figures of many verdicts. n is questions."""

from collections.abc import Iterable, Sequence
from typing import Any

from pairmill.evaluation.benchmarks.question import REFERENCE, Question, Verdict
from pairmill.evaluation.scoring.intervals import wilson


def figures(scored: Iterable[tuple[Question, Verdict]]) -> dict[str, Any]:
    """Return the figures of questions, and of each group.

    ``n`` is questions; ``figure`` their mean (micro), with ``low`` and ``high``, the 95 % interval; ``macro`` the mean
    over groups; ``invalid`` a share; ``also`` the mean of each further verdict; ``groups`` the same of each group.

    Without a question the figures are None.
    """
    every = list(scored)
    groups: dict[str, list[Verdict]] = {}
    for question, verdict in every:
        groups.setdefault(question.group, []).append(verdict)
    by_group = {name: _totals(result) for name, result in sorted(groups.items())}
    macro = _mean([item["figure"] for item in by_group.values()])
    return {**_totals([verdict for _, verdict in every]), "macro": macro, "groups": by_group}


def reference_figures(scored: Iterable[tuple[Question, Verdict]], *, grouped: bool) -> dict[str, float]:
    """Return the figures as the reference names and computes them.

    Args:
        scored: questions and verdicts.
        grouped: n is the number of groups, and the others are means over groups.
    """
    groups: dict[str, list[Verdict]] = {}
    for question, verdict in scored:
        groups.setdefault(question.group if grouped else "", []).append(verdict)
    result: dict[str, float] = {}
    rows = []
    for name, verdicts in groups.items():
        right = _mean([item.extra.get(REFERENCE, item.correct) for item in verdicts]) or 0.0
        invalid = _mean([item.extra.get(f"{REFERENCE}_invalid", float(item.invalid)) for item in verdicts]) or 0.0
        rows.append((len(verdicts), right, invalid))
        if grouped:
            result |= {f"n_{name}": len(verdicts), f"acc_{name}": right, f"invalid_{name}": invalid}
    count = len(rows) if grouped else sum(row[0] for row in rows)
    result |= {
        "n": count,
        "acc": _mean([row[1] for row in rows]) or 0.0,
        "invalid": _mean([row[2] for row in rows]) or 0.0,
    }
    return result


def _totals(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    values = [float(item.correct) for item in verdicts]
    low, high = wilson(min(sum(values), len(values)), len(values)) if values else (None, None)
    names = sorted({name for item in verdicts for name in item.extra})
    return {
        "n": len(values),
        "figure": _mean(values),
        "low": low,
        "high": high,
        "invalid": _mean([float(item.invalid) for item in verdicts]),
        "also": {name: _mean([float(item.extra[name]) for item in verdicts if name in item.extra]) for name in names},
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
