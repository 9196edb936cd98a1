"""The report of a search: what the mixture is worth, how far it can be trusted, and what it costs in repetition."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pairmill.engine import policing
from pairmill.engine.manifest import Manifest
from pairmill.formats.training_results import SearchResult
from pairmill.report.charts import Bars, Grouped
from pairmill.report.model import Block, Cell, Report, Section, Table, describe_names
from pairmill.report.points import Agreement
from pairmill.stages.search.laws import DEFAULT, LAWS

_OFTEN: Final = 4.0
"""Passes from which on repeated rows teach clearly less than new ones (arXiv 2305.16264)."""
_WEAK: Final = 0.7
"""A correlation at runs left out below which the law says little."""
_UNITS: Final = {"bits_per_byte": "bits a byte", "loss": "nats a token"}
_SHOWN: Final = 8
"""Sources with a column in the table of runs."""
_START: Final = "as it comes"


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder of search, from its manifest alone."""
    result = SearchResult.from_manifest(manifest)
    figures: dict[str, Cell] = {
        "Sources": len(result.sources),
        "Shares searched": len(result.axes),
        "Proxies": len(result.runs),
        "Budget, response tokens": round(result.budget),
        "Budget of a proxy": round(result.proxy_budget),
        "Fingerprint": manifest.fingerprint,
    }
    if rows_denied := manifest.ledger.dropped.get(policing.KEY):
        figures["Rows left out by the policy"] = rows_denied
    if result.optimum is None:
        verdict = f"{len(result.runs)} mixtures of {len(result.sources)} sources to train proxies on."
        return Report("search", figures, [_sources(result), _runs(result)], verdict=verdict, look_at=_kept(result))
    fit, optimum = result.fit, result.optimum
    agreement = fit["objective"]["agreement"]
    figures |= {
        "Correlation, left out": _correlation(agreement["pearson"]),
        "Error, left out": f"{agreement['error']:.4f}",
        "Most passes": f"{max(optimum['passes'].values()):.3g}",
    }
    sections: list[Block] = [
        _sources(result),
        Grouped("Shares of response tokens", ["found", _start(result)], _bars(result), "%"),
        Bars("Passes over a source", _passes(optimum), "times"),
        _losses(result),
        Agreement("Fit against truth, each run left out", _points(result), _UNITS[result.measure]),
        _fit(result),
        _sensitivity(result),
        _slopes(result),
        Section("All runs", [_runs(result)], f"{len(result.runs)} proxies"),
    ]
    return Report("search", figures, sections, verdict=_verdict(result), look_at=_look_at(result))


def _start(result: SearchResult) -> str:
    return "as before" if result.earlier else _START


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _correlation(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _sources(result: SearchResult) -> Table:
    whole = sum(item["tokens"] for item in result.sources)
    start, optimum = result.runs[0], result.optimum
    head = ["Source", "As it comes", *(["Before"] if result.earlier else [])]
    head += ["Found", "Change, pp", "Passes"] if optimum else []
    rows: list[list[Cell]] = []
    for item in result.sources:
        name = item["name"]
        row: list[Cell] = [name, _percent(item["tokens"] / whole)]
        if result.earlier:
            row.append(_percent(start[name]))
        if optimum:
            share = optimum["shares"][name]
            row += [_percent(share), f"{100 * (share - start[name]):+.2f}", f"{optimum['passes'][name]:.4g}"]
        rows.append([*row, "none" if item["cap"] is None else f"{item['cap']:g}", item["tokens"]])
    note = (
        "Shares are of response tokens. Passes are those of the whole budget; the cap is of mix_config, or max_epochs."
    )
    if result.earlier:
        kept = next((axis for axis in result.axes if len(axis["parts"]) > 1), None)
        if kept is not None:
            note += f" {len(kept['parts'])} sources keep the shares among themselves that an earlier search found."
    return Table("Sources", [*head, "Cap", "One pass"], rows, note)


def _bars(result: SearchResult) -> list[tuple[str, list[float]]]:
    shares, start = result.optimum["shares"], result.runs[0]
    order = sorted(shares, key=lambda name: (-shares[name], -start[name], name))
    return [(name, [round(100 * shares[name], 2), round(100 * start[name], 2)]) for name in order]


def _passes(optimum: Mapping[str, Any]) -> list[tuple[str, float]]:
    order = sorted(optimum["passes"].items(), key=lambda item: (-item[1], item[0]))
    return [(name, round(value, 3)) for name, value in order]


def _losses(result: SearchResult) -> Table:
    """Return what was predicted of the optimum beside what was measured."""
    fit, optimum, measured = result.fit, result.optimum, result.measured
    head = ["Held-out source", f"{_start(result)}, measured".capitalize(), "Found, predicted", "± (left out)"]
    head += ["Found, measured", "Measured − predicted", "Gain"] if measured else []
    rows: list[list[Cell]] = []
    lines = [
        (name, item, optimum["predicted"][name], (measured or {}).get(name)) for name, item in fit["targets"].items()
    ]
    lines.append(
        ("all, the objective", fit["objective"], optimum["objective"], _measured(result) if measured else None)
    )
    for name, item, predicted, results in lines:
        start = item["measured"][0]
        row: list[Cell] = [name, f"{start:.4f}", f"{predicted:.4f}", f"{item['agreement']['error']:.4f}"]
        if results is not None:
            row += [f"{results:.4f}", f"{results - predicted:+.4f}", f"{start - results:+.4f}"]
        rows.append(row)
    counted = describe_names(_weights(fit))
    note = f"In {_UNITS[result.measure]}, of proxies. The objective is the weighted mean of {counted}."
    if not measured:
        note += " The optimum was not measured."
    return Table("The mixture found: predicted against measured", head, rows, note)


def _weights(fit: Mapping[str, Any]) -> list[str]:
    return [f"{name} ({weight:.2g})" for name, weight in fit["weights"].items()]


def _measured(result: SearchResult) -> float:
    assert result.measured is not None
    return float(sum(weight * result.measured[name] for name, weight in result.fit["weights"].items()))


def _points(result: SearchResult) -> list[tuple[str, list[tuple[str, float, float]]]]:
    item = result.fit["objective"]
    pairs = zip(item["measured"], item["left_out"], strict=True)
    runs = [(f"run {number}", measured, left_out) for number, (measured, left_out) in enumerate(pairs)]
    if not result.measured:
        return [("proxies", runs)]
    results = ("the mixture found", _measured(result), result.optimum["objective"])
    return [("proxies", runs), ("the mixture found", [results])]


def _fit(result: SearchResult) -> Table:
    fit = result.fit
    rows: list[list[Cell]] = []
    lines = [(name, item, fit["weights"].get(name, 0.0)) for name, item in fit["targets"].items()]
    for name, item, weight in [*lines, ("all, the objective", fit["objective"], 1.0)]:
        low, high = min(item["measured"]), max(item["measured"])
        agreement = item["agreement"]
        rows.append(
            [
                name,
                f"{weight:.3g}",
                _correlation(agreement["pearson"]),
                _correlation(agreement["spearman"]),
                f"{agreement['error']:.4f}",
                f"{low:.4f}",
                f"{high:.4f}",
                f"{item['floor']:.3g}" if "floor" in item else "–",
            ]
        )
    note = (
        "Each run is predicted by a law that is fitted to all others. The error is the root of the mean square, in the "
        "unit of the losses: compare it with the range of the runs."
    )
    head = ("Held-out source", "Weight", "Correlation", "Of ranks", "Error", "Lowest run", "Highest run", "Floor")
    return Table("Fit against truth", head, rows, note)


def _sensitivity(result: SearchResult) -> Table:
    optimum = result.optimum
    whole = optimum["objective"]
    rows: list[list[Cell]] = []
    for name, change in sorted(optimum["sensitivities"].items(), key=lambda item: (item[1], item[0])):
        at = "its cap" if name in optimum["at_limit"] else "0" if not _share(result, name) else ""
        rows.append([name, _percent(_share(result, name)), f"{change:+.5f}", f"{100 * change / whole:+.3f}%", at])
    note = (
        "How the objective changes, by the laws, if a source gets one point more of the budget at the cost of all "
        "others. Where nothing holds a source, it is near 0. Below 0 a cap holds it; above 0 it is left out."
    )
    return Table(
        "Sensitivity of each source", ("Source", "Share", "A point more", "Of the objective", "Held at"), rows, note
    )


def _share(result: SearchResult, axis: str) -> float:
    parts = next(item["parts"] for item in result.axes if item["name"] == axis)
    return float(sum(result.optimum["shares"][name] for name in parts))


def _slopes(result: SearchResult) -> Section:
    """Return what each source does to each target: slopes about their mean, which alone has no meaning."""
    names = [axis["name"] for axis in result.axes]
    rows: list[list[Cell]] = []
    for name, item in result.fit["targets"].items():
        middle = sum(item["slopes"]) / len(names)
        rows.append([name, *(f"{slope - middle:+.3f}" for slope in item["slopes"])])
    formula = LAWS[result.fit.get("law", DEFAULT)].formula
    note = f"Of the law {formula}, about their mean. The lower, the more the source helps."
    return Section("What helps what", [Table("Slopes", ("Held-out source", *names), rows, note)], "slopes of the laws")


def _runs(result: SearchResult) -> Table:
    fit = result.fit
    whole = {name: sum(run[name] for run in result.runs) for name in result.runs[0]}
    names = sorted(whole, key=lambda name: (-whole[name], name))[:_SHOWN]
    head = ["Run", *(["Objective", "Left out"] if fit else []), *names]
    rows: list[list[Cell]] = []
    for number, run in enumerate(result.runs):
        row: list[Cell] = [number]
        if fit:
            item = fit["objective"]
            row += [f"{item['measured'][number]:.4f}", f"{item['left_out'][number]:.4f}"]
        rows.append([*row, *(_percent(run[name]) for name in names)])
    note = f"Run 0 is the mixture {_start(result)}."
    if len(whole) > _SHOWN:
        note += f" {len(whole) - _SHOWN} sources with less are not shown; search.json has them."
    return Table("Runs", head, rows, note)


def _verdict(result: SearchResult) -> str:
    fit, optimum = result.fit, result.optimum
    start = fit["objective"]["measured"][0]
    predicted = optimum["objective"]
    unit = _UNITS[result.measure]
    if result.measured:
        results = _measured(result)
        return (
            f"The mixture found loses {results:.4f} {unit} (predicted {predicted:.4f}), the one {_start(result)} "
            f"{start:.4f}: a gain of {100 * (start - results) / start:.2f}%."
        )
    return f"The mixture found is predicted to lose {predicted:.4f} {unit}, the one {_start(result)} loses {start:.4f}."


def _look_at(result: SearchResult) -> Sequence[str]:
    fit, optimum = result.fit, result.optimum
    item = fit["objective"]
    start, error = item["measured"][0], item["agreement"]["error"]
    lines = _kept(result)
    pearson = item["agreement"]["pearson"]
    if pearson is None or pearson < _WEAK:
        lines.append(
            f"The law agrees poorly with runs that it leaves out ({_correlation(pearson)}): train more, or longer."
        )
    predicted = start - optimum["objective"]
    if predicted < 2 * error:
        lines.append(f"The predicted gain of {predicted:.4f} is less than twice the error of the law, {error:.4f}.")
    if result.measured:
        results = _measured(result)
        best = min(range(len(item["measured"])), key=item["measured"].__getitem__)
        if results > item["measured"][best]:
            lines.append(
                f"Run {best} lost less than the mixture found: {item['measured'][best]:.4f}, not {results:.4f}."
            )
        if abs(results - optimum["objective"]) > 3 * error:
            lines.append("The mixture found was measured more than three errors away from its prediction.")
    often = [f"{name} ({value:.3g} times)" for name, value in _passes(optimum) if value > _OFTEN]
    if often:
        lines.append(f"Rows are seen more than {_OFTEN:g} times of {describe_names(often)}.")
    if optimum["at_limit"]:
        lines.append(
            f"A cap holds {describe_names(optimum['at_limit'])}: with more rows of it the loss would be lower."
        )
    never = [name for name, share in optimum["shares"].items() if not share]
    if never:
        lines.append(f"Nothing is drawn of {describe_names(never)}.")
    return lines


def _kept(result: SearchResult) -> list[str]:
    if not result.earlier or any(len(axis["parts"]) > 1 for axis in result.axes):
        return []
    return ["No two sources are as they were in the earlier search, so all of them are searched."]
