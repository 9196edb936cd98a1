"""The table for a pull request: Markdown of a few lines."""

from collections.abc import Mapping
from typing import Any

from pairmill.report.markdown import plain


def table_of(result: Mapping[str, Any]) -> str:
    """Verdicts, a row for each plan, and differences by source and benchmark."""
    lines: list[str] = []
    if result["pairs"]:
        lines += [f"**{plain(pair['sentence'])}**\n" for pair in result["pairs"]]
        unit = result["unit"]
        lines += [f"| plan | runs | FLOPs each | held-out loss, {unit} | spread of seeds |", "|---|---|---|---|---|"]
        for item in result["frontier"]:
            runs = [run for run in result["runs"] if run["plan"] == item["plan"]]
            spread = f"{item['low']:.4f} to {item['high']:.4f}"
            lines.append(
                f"| {plain(item['plan'])} | {len(runs)} | {item['flops']:.3g} | {item['loss']:.4f} | {spread} |"
            )
        for pair in result["pairs"]:
            title = f"{plain(pair['change'])} less {plain(pair['base'])}"
            lines += ["", f"| {title} | difference | 99 % interval | p | corrected for |", "|---|---|---|---|---|"]
            rows = {"all sources": pair["all"], **pair["by_source"]}
            rows |= {f"{name} (not in all plans)": item for name, item in pair["apart"].items()}
            rows |= {f"{name} (score)": item for name, item in pair["benchmarks"].items()}
            lines += [
                f"| {plain(name)} | {item['mean']:+.4f} | {interval(item)} | {chance(item)} | {corrected(item)} |"
                for name, item in rows.items()
            ]
    for change in result["changes"]:
        lines += ["", f"What differs in the data, {plain(change['change'])} against {plain(change['base'])}:", ""]
        if not change["sources"]:
            lines.append("no source has other rows or tokens.")
            continue
        lines += ["| source | rows | tokens | response tokens | share of responses |", "|---|---|---|---|---|"]
        for row in change["sources"]:
            cells = [moved(row, name) for name in ("rows", "tokens", "response_tokens")]
            shares = [item["response_share"] if item else 0.0 for item in (row["base"], row["change"])]
            cells.append(f"{shares[0]:.1%} → {shares[1]:.1%}")
            lines.append(f"| {plain(row['source'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines).strip() + "\n"


def moved(row: Mapping[str, Any], name: str) -> str:
    """Return a number of both plans."""
    before, after = (item[name] if item else 0 for item in (row["base"], row["change"]))
    return f"{before:,} → {after:,}" if before != after else f"{before:,}"


def interval(figure: Mapping[str, Any]) -> str:
    """Return the interval of a mean difference as text; a dash for one seed."""
    return "–" if figure["low"] is None else f"{figure['low']:+.4f} to {figure['high']:+.4f}"


def chance(figure: Mapping[str, Any]) -> str:
    """Return how likely chance alone is; of a figure that is judged, corrected."""
    p = figure.get("corrected_p", figure["p"])
    return "–" if p is None else f"{p:.2g}"


def corrected(figure: Mapping[str, Any]) -> str:
    """Return what interval and p are corrected for: only one figure of a plan is judged."""
    if not figure["plans"]:
        return "nothing"
    return "looks and plans" if figure["plans"] > 1 else "looks"
