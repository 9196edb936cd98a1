"""What a comparison found, JSON-like: plans, runs, paired differences, verdicts, and places on the frontier."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pairmill.formats.settings_file import differences
from pairmill.stages.compare import plans as planned
from pairmill.stages.compare.made import Run
from pairmill.stages.compare.plans import Budget, Plan
from pairmill.stages.compare.statistics import LEVEL, Paired, verdicts

ALIKE: Final = 1.01
"""Ratio of FLOPs up to which two are the same: those of one budget differ by how full the batches are."""
LOSS, BITS = "loss", "bits per byte"
_UNIT: Final = {LOSS: "nats a response token", BITS: "bits a byte"}
Figure = Callable[[Run], float]


def compare(plans: Sequence[Plan], budget: Budget | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Compare every plan with the first one.

    Args:
        plans: the base first.
        budget: of a run; None = nothing is trained.
        runs: seed by seed, each plan once; empty = only what differs is told.
    """
    shared = planned.common(plans)
    tokenizers = len({plan.tokenizer for plan in plans})
    measure = LOSS if tokenizers == 1 else BITS
    result: dict[str, Any] = {
        "plans": [plan.to_json() for plan in plans],
        "common_sources": shared,
        "changes": [{"base": plans[0].name, "change": item.name, **_changes(plans[0], item)} for item in plans[1:]],
        "tokenizers": tokenizers,
        "measure": measure,
        "unit": _UNIT[measure],
        "level": LEVEL,
        "budget": {"of": budget.counted, "tokens": budget.tokens, "read": dict(budget.read)} if budget else None,
        "runs": [],
        "pairs": [],
        "frontier": [],
    }
    if not runs:
        return result
    there = [name for name in runs[0].sources if (runs[0].rows["source"] == runs[0].sources.index(name)).any()]
    judged = [name for name in there if name in shared]
    apart = [name for name in there if name not in shared]
    # Held-out rows of which no source is known are compared whole: nothing says that a plan lacks them.
    sources = judged or there
    result |= {
        "seeds": sorted({run.seed for run in runs}),
        "held_out": {
            "rows": int(sum((runs[0].rows["source"] == runs[0].sources.index(name)).sum() for name in sources)),
            "sources": sources,
            "apart": apart if judged else [],
            "exact_bytes": all(run.exact for run in runs),
        },
        "weights": runs[0].weights,
        "parameters": sorted({run.parameters for run in runs}),
        "runs": [_summary(run, sources, measure) for run in runs],
        "pairs": _pairs(plans, runs, sources, result["changes"], measure, apart if judged else []),
        "frontier": _frontier(plans, runs, sources, measure),
    }
    return result


def _loss(sources: Sequence[str], measure: str) -> Figure:
    return lambda run: run.loss(sources, by_bytes=measure == BITS)


def _score(benchmark: str) -> Figure:
    return lambda run: run.benchmarks[benchmark]


def _summary(run: Run, sources: Sequence[str], measure: str) -> dict[str, Any]:
    there = {int(number) for number in set(run.rows["source"].tolist())}
    by_source = {name: _loss([name], measure)(run) for at, name in enumerate(run.sources) if at in there}
    return {
        **run.to_json(),
        "loss": _loss(sources, measure)(run),
        "by_source": by_source,
        "benchmarks": dict(run.benchmarks),
        "unseen": dict(run.unseen),
        "questions": dict(run.questions),
    }


def _paired(base: Sequence[Run], change: Sequence[Run], figure: Figure, plans: int) -> Paired:
    return Paired.from_differences(
        [figure(theirs) - figure(ours) for ours, theirs in zip(base, change, strict=True)], plans
    )


def _shown(test: Paired) -> dict[str, Any]:
    return {**asdict(test), "seeds_needed": test.seeds_needed, "found": test.detectable}


def _pairs(
    plans: Sequence[Plan],
    runs: Sequence[Run],
    sources: Sequence[str],
    changes: Sequence[Mapping[str, Any]],
    measure: str,
    apart: Sequence[str],
) -> list[dict[str, Any]]:
    """Return every plan against the first: one figure is judged, for all plans together; the others are not
    corrected."""
    base, *others = ([run for run in runs if run.plan == plan.name] for plan in plans)
    tests = [_paired(base, change, _loss(sources, measure), len(others)) for change in others]
    result = []
    judged = zip(others, tests, verdicts(tests, lower_is_better=True), changes, strict=True)
    for change, test, (corrected, word), differs in judged:

        def by(figure: Figure, change: Sequence[Run] = change) -> dict[str, Any]:
            return _shown(_paired(base, change, figure, 0))

        pair = {
            "base": base[0].plan,
            "change": change[0].plan,
            "all": {**_shown(test), "corrected_p": corrected},
            "by_source": {name: by(_loss([name], measure)) for name in sources},
            "apart": {name: by(_loss([name], measure)) for name in apart},
            "benchmarks": {name: by(_score(name)) for name in base[0].benchmarks},
            "verdict": word,
        }
        text = sentence(pair, len(base), _UNIT[measure], identical=bool(differs["identical"]))
        result.append({**pair, "sentence": text})
    return result


def sentence(pair: Mapping[str, Any], seeds: int, unit: str, *, identical: bool = False) -> str:
    """Return the verdict in words, with the interval, and what would be needed to tell."""
    whole, change, base = pair["all"], pair["change"], pair["base"]
    figure = f"held-out loss {whole['mean']:+.4f} {unit}"
    if identical and not any(whole["differences"]):
        return f"{change} and {base} are the same plan: every run gave the same loss."
    if pair["verdict"] is None:
        return (
            f"No verdict on {change}: one seed gave {figure} against {base}, and from one nothing is known of how far "
            "chance alone goes. Take two or more; four are usual."
        )
    interval = (
        f"simultaneous 99 % interval {whole['low']:+.4f} to {whole['high']:+.4f}, {seeds} seeds, corrected p "
        f"{whole['corrected_p']:.2g}"
    )
    if pair["verdict"] != "not distinguishable":
        return f"{change} is {pair['verdict']} than {base}: {figure} ({interval})."
    needed = whole["seeds_needed"]
    more = (
        f"About {needed:,} seeds would tell a difference of this size"
        if needed
        else "More than a thousand seeds would be needed to tell a difference of this size"
    )
    return (
        f"{change} and {base} are not distinguishable: {figure} ({interval}). {more}; these {seeds} tell one of "
        f"{whole['found']:.4f} nine times in ten."
    )


def _changes(base: Plan, other: Plan) -> dict[str, Any]:
    """Return what differs between two plans: options, and rows, tokens and share of the responses of each source."""
    ours, theirs = base.to_json(), other.to_json()
    refs = [{ref.role: ref.fingerprint for ref in plan.manifest.inputs} for plan in (base, other)]
    table = []
    for source in sorted(base.sources.keys() | other.sources.keys()):
        row: dict[str, Any] = {"source": source}
        for side, drawn in (("base", ours), ("change", theirs)):
            row[side] = drawn["sources"].get(source)
        if row["base"] != row["change"]:
            table.append(row)
    return {
        "identical": base.manifest.fingerprint == other.manifest.fingerprint,
        "options": dict(sorted(differences(other.manifest.options, base.manifest.options).items())),
        "inputs": sorted(role for role in refs[0].keys() | refs[1].keys() if refs[0].get(role) != refs[1].get(role)),
        "sources": table,
    }


def _frontier(plans: Sequence[Plan], runs: Sequence[Run], sources: Sequence[str], measure: str) -> list[dict[str, Any]]:
    """Return each plan's compute and loss, and whether another plan has less of both."""
    result: list[dict[str, Any]] = []
    for plan in plans:
        mine = [run for run in runs if run.plan == plan.name]
        losses = [_loss(sources, measure)(run) for run in mine]
        scores = {name: math.fsum(run.benchmarks[name] for run in mine) / len(mine) for name in mine[0].benchmarks}
        result.append(
            {
                "plan": plan.name,
                "flops": math.fsum(run.flops for run in mine) / len(mine),
                "loss": math.fsum(losses) / len(losses),
                "low": min(losses),
                "high": max(losses),
                "benchmarks": scores,
            }
        )
    for item in result:
        item["dominated_by"] = [
            other["plan"]
            for other in result
            if other["flops"] <= item["flops"] * ALIKE and other["loss"] < item["loss"] and other is not item
        ]
    return result
