"""The report of a mixture: what a team has to agree on, in numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.engine import policing
from pairmill.engine.manifest import Manifest
from pairmill.formats.results.tokens import MixResult
from pairmill.report.charts import Bars, Grouped, Stacked
from pairmill.report.model import Block, Cell, Percent, Report, Section, Table, describe_names

_OFTEN = 4.0
"""Passes from which on repeated rows teach clearly less than new ones (arXiv 2305.16264)."""
_FAR = 3.0
"""A source whose share is this many times larger or smaller than it comes is worth a look."""
_SOURCES = 200
_HYPHEN = "\u2011"
"""One at which no line is broken."""
_PARTS = 4
"""Sources of a chart with a colour for each; the others are one part."""


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder of mix, from its manifest alone."""
    result = MixResult.from_manifest(manifest)
    rows = result.table
    whole = [row for row in rows if not row["phase"]]
    tokens = sum(row["tokens"] for row in whole)
    figures: dict[str, Cell] = {
        "Method": describe_method(result.method, result.phases),
        "Budget, response tokens": round(result.budget),
        "Planned, response tokens": round(tokens),
        "Epochs": result.epochs,
        "Rows drawn": sum(row["rows"] for row in whole),
        "Sources": len(whole),
        "Tasks": len(result.tasks),
        "Most passes": f"{max(row['epochs'] for row in whole):.3g}",
        "Fingerprint": manifest.fingerprint,
    }
    if rows_denied := manifest.ledger.dropped.get(policing.KEY):
        figures["Rows left out by the policy"] = rows_denied
    if result.unfilled:
        figures["Not filled"] = Percent.ratio(result.unfilled, result.budget)
    several = len(result.phases) > 1
    sections: list[Block] = [
        Table(
            "Sources over the whole training" if several else "Sources",
            header(result.compared),
            cells(_largest(whole), compared=result.compared),
            _note(result),
        ),
        Grouped("Shares of response tokens", *_shares(whole, compared=result.compared), "%"),
        Bars("Passes over a source", [(row["source"], round(row["epochs"], 3)) for row in _largest(whole)], "times"),
    ]
    if several:
        sections += _phases(result, rows)
    sections.append(Section("Tasks", [_tasks(result.tasks)], f"{len(result.tasks):,} tasks"))
    return Report(
        "mix", figures, sections, verdict=_verdict(result, tokens, len(whole)), look_at=_look_at(result, whole)
    )


def describe_method(method: str, phases: Sequence[Mapping[str, Any]]) -> str:
    """Return the method, with the exponents of phases that have one."""
    exponents = {phase["name"]: f"{phase['exponent']:g}" for phase in phases if phase["exponent"] is not None}
    if not exponents:
        return method
    if len(exponents) == len(phases) and len(set(exponents.values())) == 1:
        return f"{method} (exponent {next(iter(exponents.values()))})"
    listed = ", ".join(f"{exponent} in phase {name}" for name, exponent in exponents.items())
    return f"{method} (exponent {listed})"


def describe_epochs(first: int, end: int) -> str:
    """Return the numbers of the epochs from ``first`` to before ``end``."""
    return f"epochs {first} to {end - 1}" if end - first > 1 else f"epoch {first}"


def header(compared: bool) -> list[str]:
    """Return the head of the table of sources."""
    before = ["Before", "Change, pp"] if compared else []
    return [
        *("Source", "Share", "As it comes", *before, "Response tokens", "Passes", "Cap", "Row seen"),
        *("Rows drawn", "Rows", "One pass", "± by chance, pp"),
    ]


def cells(rows: Sequence[Mapping[str, Any]], *, compared: bool) -> list[list[Cell]]:
    """Return the lines of the table of sources."""
    made: list[list[Cell]] = []
    for row in rows:
        before: list[Cell] = []
        if compared:
            earlier = row["earlier"]
            change = "new" if earlier is None else f"{100 * (row['share'] - earlier):+.2f}"
            before = ["–" if earlier is None else percent(earlier), change]
        made.append(
            [
                row["source"],
                percent(row["share"]),
                percent(row["natural"]),
                *before,
                round(row["tokens"]),
                f"{row['epochs']:.4g}",
                "none" if row["cap"] is None else f"{row['cap']:g}",
                _seen(row["epochs"]),
                row["rows"],
                row["available"],
                row["once"],
                f"{100 * row['error']:.3f}",
            ]
        )
    return made


def percent(share: float) -> str:
    """Return a share, with the two decimals in which plans are compared."""
    return f"{100 * share:.2f}%" if share >= 0.00005 or not share else "<0.01%"


def _seen(passes: float) -> str:
    """Return how often a row of a source is seen."""
    if not passes:
        return "never"
    low = int(passes + 1e-9)
    if abs(passes - round(passes)) < 1e-9:
        return f"{round(passes):,}×"
    return f"{low:,}{_HYPHEN}{low + 1:,}×"


def _largest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (-row["share"], -row["natural"], row["source"]))[:_SOURCES]


def _shares(rows: Sequence[Mapping[str, Any]], *, compared: bool) -> tuple[list[str], list[tuple[str, list[float]]]]:
    """Return names of the bars of a source, and their lengths in per cent."""
    parts = {"share": "here", "natural": "as it comes", **({"earlier": "in the plan before"} if compared else {})}
    bars = [(row["source"], [round(100 * (row[part] or 0.0), 2) for part in parts]) for row in _largest(rows)]
    return list(parts.values()), bars


def _phases(result: MixResult, rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    whole = _largest([row for row in rows if not row["phase"]])
    names = [row["source"] for row in whole[:_PARTS]]
    share = {(row["phase"], row["source"]): row["share"] for row in rows}
    bars = []
    for phase in result.phases:
        shown = [100 * share[phase["name"], name] for name in names]
        rest = [max(0.0, 100 - sum(shown))] if len(whole) > _PARTS else []
        bars.append((phase["name"], [round(item, 2) for item in [*shown, *rest]]))
    parts = [*names, *(["all others"] if len(whole) > _PARTS else [])]
    blocks: list[Block] = [Stacked("Shares by phase", parts, bars, "%")]
    for phase in result.phases:
        mine = [row for row in rows if row["phase"] == phase["name"]]
        title = f"Phase {phase['name']}: {percent(phase['share'])} of the budget, {describe_epochs(*phase['epochs'])}"
        table = cells(_largest(mine), compared=result.compared)
        blocks.append(Table(title, header(result.compared), table, _method_of(mine, phase)))
    return blocks


def _method_of(rows: Sequence[Mapping[str, Any]], phase: Mapping[str, Any]) -> str:
    method = rows[0]["method"] if rows else ""
    return f"Method {describe_method(method, [phase])}. Caps count over all phases." if method else ""


def _tasks(tasks: Mapping[str, Sequence[Any]]) -> Table:
    order = sorted(tasks.items(), key=lambda item: (-item[1][2], item[0]))
    return Table("All tasks", ("Task", "Source", "Rows", "Response tokens"), [(name, *each) for name, each in order])


def _note(result: MixResult) -> str:
    notes = [
        "Shares are of response tokens, after the sampler's filter and truncation: instructions are cost, not "
        "learning. Rows drawn are those of all epochs; one pass is all response tokens that there are."
    ]
    if result.compared:
        notes.append("Before is the plan that compare= names.")
        if result.gone:
            notes.append(f"It also had {describe_names(result.gone)}.")
    if result.asked is None:
        notes.append("No budget is set: it is one pass over all sources, or less where caps are lower.")
    return " ".join(notes)


def _verdict(result: MixResult, tokens: float, sources: int) -> str:
    verdict = f"{tokens:,.0f} response tokens of {sources:,} sources over {result.epochs:,} epochs"
    if len(result.phases) > 1:
        verdict += f" in {len(result.phases)} phases"
    return f"{verdict}, by {describe_method(result.method, result.phases)}."


def _look_at(result: MixResult, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    if result.unfilled:
        share = Percent.ratio(result.unfilled, result.budget)
        lines.append(f"The caps leave {result.unfilled:,.0f} response tokens of the budget ({share}) unfilled.")
    never = [row["source"] for row in rows if not row["tokens"]]
    if never:
        lines.append(f"Nothing is drawn of {describe_names(never)}.")
    lost = [row["source"] for row in rows if row["tokens"] and not row["rows"]]
    if lost:
        lines.append(f"The budget is less than a row of {describe_names(lost)}: none is drawn.")
    often = [f"{row['source']} ({row['epochs']:.3g} times)" for row in rows if row["epochs"] > _OFTEN]
    if often:
        lines.append(f"Rows are seen more than {_OFTEN:g} times of {describe_names(often)}.")
    far = [
        f"{row['source']} ({percent(row['natural'])} as it comes, {percent(row['share'])} here)"
        for row in _largest(rows)
        if row["share"] and not row["natural"] / _FAR <= row["share"] <= row["natural"] * _FAR
    ]
    if far:
        lines.append(f"Shares are far from those of the data: {describe_names(far)}.")
    return lines
