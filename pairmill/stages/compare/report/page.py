"""The page of a comparison: the verdict first, then how sure it is, then what differs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pairmill.formats.training_results import CompareResult
from pairmill.report.model import Block, Cell, Percent, Report, Table
from pairmill.report.points import Difference, Intervals, Pareto, Spot
from pairmill.report.series import Lines, Series
from pairmill.stages.compare.statistics import LOOKS
from pairmill.stages.compare.table import chance, corrected, interval, moved

_PLANS: Final = 5
"""A chart has at most as many colours."""
_FLOPS: Final = "FLOPs of a training"


def report_of(result: CompareResult) -> Report:
    """Make the page."""
    plans, budget = result.plans, result.budget
    figures: dict[str, Cell] = {"Plans": len(plans), "Sources that all have": len(result.common_sources)}
    if budget:
        figures[f"Budget: {budget['of']} tokens"] = budget["tokens"]
    sections: list[Block] = []
    verdict = "What differs between the plans; nothing was trained."
    if result.runs:
        verdict = " ".join(pair["sentence"] for pair in result.pairs)
        held_out = result.held_out
        figures |= {
            "Runs": len(result.runs),
            "Seeds": len(result.seeds),
            "Held-out rows": held_out["rows"],
            "Parameters": max(result.parameters),
            "Weights": result.weights,
        }
        sections += [
            *_charts(result),
            *(block for pair in result.pairs for block in _pair(pair, result)),
            _runs(result),
        ]
    sections += [block for change in result.changes for block in _change(change)]
    sections.append(_plans(plans))
    return Report("compare", figures, sections, verdict=verdict, look_at=list(_look_at(result)))


def _look_at(result: CompareResult) -> Iterator[str]:
    if result.tokenizers > 1:
        yield "The plans have several tokenizers: they are compared by bits a byte of the held-out responses."
        if result.runs and not result.held_out["exact_bytes"]:
            yield "A tokenizer is not byte-level, so its bytes are those of its tokens' texts, and not exact."
    if not result.runs:
        return
    if apart := result.held_out["apart"]:
        yield f"Not judged, since not all plans have it: held-out rows of {', '.join(apart)}."
    seeds = len(result.seeds)
    if seeds == 1:
        yield "One seed gives no verdict: nothing says how far two runs of one plan are apart."
    elif seeds < 4:
        yield f"{seeds} seeds: only differences of many spreads are found. Four are usual."
    later = next((look for look in LOOKS if look >= seeds), seeds)
    if seeds > 1 and seeds != later:
        yield (
            f"{seeds} seeds are judged as {later} are. Looks at 4, 8, 16, … seeds are paid for; a comparison that is "
            "looked at more often says a little too often that plans differ."
        )
    if len(result.pairs) > 1:
        yield "Verdicts are corrected for the number of plans (Holm), and their intervals hold for all plans together."
    for pair in result.pairs:
        if pair["benchmarks"] and any(run["unseen"] for run in result.runs):
            yield "Questions that are in the training rows count in the scores; evaluate's reports have them apart."
            return


def _charts(result: CompareResult) -> Iterator[Block]:
    names = [plan["name"] for plan in result.plans][:_PLANS]
    spots, lines = [], []
    for name in names:
        runs = [run for run in result.runs if run["plan"] == name]
        curves = _together([run["curve"] for run in runs])
        (end,) = (item for item in result.frontier if item["plan"] == name)
        # Held-out loss on the way is that of other rows than the verdict's, where these are some of all sources.
        spots.append(Spot(name, end["flops"], end["loss"], (end["low"], end["high"])))
        points = [(tokens, mean) for tokens, mean, _, _ in curves]
        lines.append(Series(name, points, [(low, high) for _, _, low, high in curves]))
    yield Pareto("Compute against held-out loss", spots, _FLOPS, result.unit)
    if any(len(line.points) > 1 for line in lines):
        yield Lines("Held-out loss while they train", lines, axis="tokens", unit="nats")
    ways = [
        Spot(run["plan"], point["flops"], point["loss"], end=point is run["curve"][-1])
        for run in result.runs
        if run["plan"] in names
        for point in run["curve"]
        if point["flops"]
    ]
    if len(ways) > len(result.runs):
        yield Pareto("The same, all runs and all the way", ways, _FLOPS, "nats")
    for benchmark in result.frontier[0]["benchmarks"]:
        scores = [
            Spot(item["plan"], item["flops"], item["benchmarks"][benchmark])
            for item in result.frontier
            if item["plan"] in names
        ]
        yield Pareto(f"Compute against {benchmark}", scores, _FLOPS, "score", lower_is_better=False)


def _together(curves: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[float, float, float, float]]:
    """Return tokens, mean, least and greatest loss of the runs of a plan, at the evaluations that all have."""
    result = []
    for points in zip(*curves, strict=False):
        losses = [point["loss"] for point in points]
        tokens = math.fsum(point["tokens"] for point in points) / len(points)
        result.append((tokens, math.fsum(losses) / len(losses), min(losses), max(losses)))
    return result


def _pair(pair: Mapping[str, Any], result: CompareResult) -> Iterator[Block]:
    title = f"{pair['change']} less {pair['base']}"
    losses = {"all that is judged": pair["all"], **pair["by_source"]}
    losses |= {f"{name} (not judged)": item for name, item in pair["apart"].items()}
    axis = f"{result.unit}; left of 0 is better; all but the first uncorrected"
    yield Intervals(f"{title}: held-out loss", _rows(losses), axis)
    if pair["benchmarks"]:
        axis = "share of questions; right of 0 is better; uncorrected"
        yield Intervals(f"{title}: scores", _rows(pair["benchmarks"]), axis)
    rows: list[tuple[Cell, ...]] = []
    for kind, some in (("loss", losses), ("score", pair["benchmarks"])):
        for name, item in some.items():
            spread = item["spread"] if item["spread"] is not None else "–"
            needed = item["seeds_needed"] or "–"
            figures = (f"{item['mean']:+.4f}", interval(item), chance(item), corrected(item))
            rows.append((name, kind, *figures, spread, needed))
    note = (
        "Means over seeds of differences between runs of one seed. Only the first row is judged: its interval and p "
        "hold for all looks and plans together. Those of the other rows are uncorrected: of many, some exclude 0 by "
        "chance, and nothing is concluded from one. The last column says how many seeds find a difference of that size "
        "nine times in ten."
    )
    header = ("Of", "Measure", "Difference", "99 % interval", "p", "Corrected for", "Spread of seeds", "Seeds needed")
    yield Table(title, header, rows, note)


def _rows(results: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    return [Difference(name, item["mean"], item["low"], item["high"]) for name, item in results.items()]


def _runs(result: CompareResult) -> Block:
    rows: list[tuple[Cell, ...]] = [
        (
            run["plan"],
            str(run["seed"]),
            run["loss"],
            run["response_tokens"],
            run["tokens"],
            f"{run['flops']:.3g}",
            run["train"],
            run["evaluate"],
        )
        for run in result.runs
    ]
    header = ("Plan", "Seed", f"Loss, {result.unit}", "Response tokens", "Tokens", "FLOPs", "train", "evaluate")
    return Table("Runs", header, rows, "A run of a seed and plan is found again by any other comparison that has it.")


def _change(change: Mapping[str, Any]) -> Iterator[Block]:
    title = f"What differs: {change['change']} against {change['base']}"
    if change["identical"]:
        yield Table(title, ("Of", "Base", "Change"), [], "They are the same plan.")
        return
    options: list[tuple[Cell, ...]] = [
        (name, str(before), str(after)) for name, (before, after) in change["options"].items()
    ]
    options += [(f"input {name}", "", "another one") for name in change["inputs"]]
    if options:
        yield Table(title, ("Of", change["base"], change["change"]), options)
    rows: list[tuple[Cell, ...]] = []
    for row in change["sources"]:
        shares = [Percent(item["response_share"] if item else 0.0) for item in (row["base"], row["change"])]
        numbers = [moved(row, name) for name in ("rows", "tokens", "response_tokens")]
        rows.append((row["source"], *numbers, f"{shares[0]} → {shares[1]}"))
    header = ("Source", "Rows drawn", "Tokens", "Response tokens", "Share of responses")
    yield Table(f"{title}, by source", header, rows, "Sources that are alike are left out.")


def _plans(plans: Sequence[Mapping[str, Any]]) -> Block:
    header = ("Plan", "Fingerprint", "Epochs", "Seed", "Rows drawn", "Tokens", "Response tokens", "Tokenizer")
    names = ("name", "fingerprint", "epochs", "seed", "rows", "tokens", "response_tokens", "tokenizer")
    return Table(
        "Plans", header, [tuple(plan[name] if name != "seed" else str(plan[name]) for name in names) for plan in plans]
    )
