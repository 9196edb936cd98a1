"""A plan as rules of ``prefix_config.yaml``, for samplers that know only those."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pairmill.errors import UsageError, did_you_mean
from pairmill.mixture.plan import Mixture, PlannedPhase


def rule_of(rows: int, want: int) -> tuple[int, int]:
    """``max_per_file`` and ``repeat``: their product is at most ``want``, and short of it by less than ``repeat``."""
    repeat = max(1, -(-want // rows)) if rows else 1
    return want // repeat, repeat


def prefix_config(mixture: Mixture, phase: str = "", long_context: Mapping[str, str] | None = None) -> str:
    """Return the rules of one phase, one for each task, longest names first: a name may be the beginning of another.

    Where rows differ between epochs a rule has their mean, rounded down.

    Args:
        mixture: without buckets.
        phase: its name; of a plan with one phase it may be left out.
        long_context: by task; truncate is left out.

    Raises:
        UsageError: no such phase, or rules cannot say what the plan says.
    """
    if mixture.buckets:
        raise UsageError(
            "rules cannot draw part of a task by its attributes",
            where="mixture",
            got=f"{len(mixture.buckets)} buckets",
            expected="a plan without buckets",
            hint="sample mixture=… executes it",
        )
    chosen = _phase(mixture, phase)
    lines = []
    for task in sorted(
        (task for source in mixture.by_phase[chosen.name] for task in source.tasks),
        key=lambda task: (-len(task.task), task.task),
    ):
        want = sum(task.wanted(epoch) for epoch in range(chosen.count)) // chosen.count
        most, repeat = rule_of(task.rows, want)
        long_rows = (long_context or {}).get(task.task, "truncate")
        values = [f"prefix: {json.dumps(task.task, ensure_ascii=False)}", f"max_per_file: {most}"]
        values += [f"repeat: {repeat}"] if repeat > 1 else []
        values += [f"long_context: {long_rows}"] if long_rows != "truncate" else []
        lines.append("- {" + ", ".join(values) + "}\n")
    head = f"# {chosen.count} epochs, context {mixture.context}, min_resp_length {mixture.min_resp_length}\n"
    return head + "".join(lines)


def _phase(mixture: Mixture, name: str) -> PlannedPhase:
    names = [phase.name for phase in mixture.phases]
    if not name and len(names) == 1:
        return mixture.phases[0]
    if name not in names:
        raise UsageError(
            "no such phase" if name else "the plan has several phases, and rules say one",
            where="phase",
            got=name or ", ".join(names),
            expected=f"one of {', '.join(names)}",
            hint=did_you_mean(name, names) if name else "export each of them to a file of its own",
        )
    return mixture.phases[names.index(name)]
