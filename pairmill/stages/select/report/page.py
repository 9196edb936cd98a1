"""The report of a selected folder: what was chosen, how near it is to the targets, and the rows to judge it by."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.engine.results import HeldOutRows
from pairmill.formats.results.rows import SelectResult
from pairmill.report.charts import Bars, Stacked
from pairmill.report.model import Block, Cell, Percent, Report, Samples, Section, Table, describe_names, describe_rows

_SOURCES = 100
_GROUPS = 100
_SHOWN = 10
"""Best and worst rows of a ranking on the page."""
_SAMPLES = 60
_SHORTER = 0.7
"""A mean length below this share of what it was is worth a look."""
_FEW = 0.02
_UNITS = {"rows": "rows", "response_tokens": "response tokens"}


def report_of(manifest: Manifest) -> Report:
    """Build the report of a finished folder of select, from its manifest alone."""
    result, ledger = SelectResult.from_manifest(manifest), manifest.ledger
    unit, held_out = _UNITS[result.budget["unit"]], HeldOutRows.count(manifest)
    figures: dict[str, Cell] = {
        "Method": result.method,
        "Rows in": result.rows,
        "Candidates": result.candidates,
        "Chosen": result.chosen,
        "Share chosen": Percent.ratio(result.chosen, result.rows),
        f"Asked for, {unit}": result.budget["asked"],
        f"Taken, {unit}": result.budget["taken"],
        "Sources": len(result.sources),
        **({"Held-out rows": held_out} if held_out else {}),
        "Fingerprint": manifest.fingerprint,
    }
    parts = (_divergences, _rankings, _sources, _lengths, _groups, _samples, _settings)
    return Report(
        "select",
        figures,
        [block for part in parts for block in part(result)],
        verdict=f"Rows: {describe_rows(ledger)}. {_next(result)}",
        look_at=_look_at(result, unit),
    )


def _next(result: SelectResult) -> str:
    if result.mode == "report":
        return (
            f"{result.chosen:,} rows are chosen; the others are only reported. "
            "Next: read the best and worst rows, then set mode: drop in select_config.yaml."
        )
    return "Next: compare the shares of sources and the lengths, then train a tokenizer on the chosen rows."


def _divergences(result: SelectResult) -> list[Block]:
    if not result.divergences:
        return []
    columns = {
        "rows": "Chosen",
        "raw": "All rows",
        "uniform": "Uniform sample",
        "selected": "Chosen rows",
        "reduction": "Reduction",
        "mean_features_raw": "Mean features, all",
        "mean_features_selected": "Mean features, chosen",
    }
    rows: list[list[Cell]] = [[name, *(target[key] for key in columns)] for name, target in result.divergences.items()]
    note = (
        "Divergence (KL, in nats) of the target's words and n-grams from those of all rows, of a uniform sample of "
        "as many rows, and of the chosen ones: less is nearer. The reduction is the sample's less that of the chosen "
        "rows. Chosen rows and sample are smoothed alike, because a small sample misses words."
    )
    return [Table("How near the choice is to its targets", ("Target", *columns.values()), rows, note)]


def _rankings(result: SelectResult) -> list[Block]:
    if len(result.rankings) < 2:
        return []
    rows = [
        (target["name"], Percent(target["share"]), target["rows"], Percent.ratio(target["rows"], result.chosen))
        for target in result.rankings
    ]
    return [Table("Targets, in the order in which they take rows", ("Target", "Asked", "Rows", "Share"), rows)]


def _sources(result: SelectResult) -> list[Block]:
    every = result.sources
    names = sorted(every, key=lambda name: (-every[name]["rows"], name))
    total, chosen = result.rows, result.chosen
    characters = sum(source["characters_chosen"] for source in every.values())
    rows = [
        (
            name,
            source["rows"],
            source["chosen"],
            *(Percent.ratio(source["chosen"], source["rows"]), Percent.ratio(source["rows"], total)),
            *(Percent.ratio(source["chosen"], chosen), Percent.ratio(source["characters_chosen"], characters)),
        )
        for name, source in ((name, every[name]) for name in names[:_SOURCES])
    ]
    rest = f"{len(names) - _SOURCES:,} smaller sources are not shown." if len(names) > _SOURCES else ""
    largest = names[:4]
    parts = [*largest, "all others"] if len(names) > len(largest) else largest

    def shares_of(key: str) -> list[float]:
        shares: list[float] = [every[name][key] for name in largest]
        return [*shares, sum(every[name][key] for name in names[4:])] if len(parts) > len(largest) else shares

    return [
        Stacked(
            "Shares of sources, before and after",
            parts,
            [("all", shares_of("rows")), ("chosen", shares_of("chosen"))],
            "rows",
        ),
        Bars("Chosen, by source", [(name, every[name]["chosen"]) for name in names[:_SOURCES]], "rows", tabled=False),
        Table(
            "Sources",
            ("Source", "Rows", "Chosen", "Of the source", "Share before", "Share after", "Of response characters"),
            rows,
            rest,
        ),
    ]


def _lengths(result: SelectResult) -> list[Block]:
    ends = {"all rows": result.lengths["before"], "chosen rows": result.lengths["after"]}
    means = [
        (name.capitalize(), *(end[name] / end["rows"] if end["rows"] else 0.0 for end in ends.values()))
        for name in ("instruction", "response")
    ]
    used = [at for at, counts in enumerate(zip(*(end["bins"] for end in ends.values()), strict=True)) if any(counts)]
    bins = range(used[0], used[-1] + 1) if used else range(0)
    shares: list[list[Cell]] = [
        [_between(at), *(Percent.ratio(end["bins"][at], end["rows"]) for end in ends.values())] for at in bins
    ]
    return [
        Table("Mean characters of a row", ("Text", "All rows", "Chosen rows"), means),
        *(
            Bars(
                f"Responses by length, {name}",
                [(_between(at), end["bins"][at]) for at in bins],
                "rows",
                number,
                tabled=False,
            )
            for number, (name, end) in enumerate(ends.items())
        ),
        Section(
            "Responses by length",
            [Table("Shares of responses by length", ("Characters", "All rows", "Chosen rows"), shares)],
            "shares before and after",
        ),
    ]


def _between(bin_: int) -> str:
    if bin_ < 2:
        return str(bin_)
    return f"{1 << (bin_ - 1):,} to {(1 << bin_) - 1:,}"


def _groups(result: SelectResult) -> list[Block]:
    groups = result.groups
    if not groups:
        return []
    rows = [
        (
            group["group"] or "(no value)",
            *(group[key] for key in ("candidates", "asked", "quota", "taken", "rows")),
            Percent.ratio(group["rows"], group["candidates"]),
        )
        for group in groups["groups"][:_GROUPS]
    ]
    rest = f" {groups['number'] - _GROUPS:,} smaller groups are not shown." if groups["number"] > _GROUPS else ""
    unit = _UNITS[result.budget["unit"]]
    note = (
        f"Groups by {groups['by']}, in {unit}. By the rule alone: the group's part of the budget. Quota: never more "
        f"than the group has; what groups lack is shared out to the others by the same rule.{rest}"
    )
    header = ("Group", "Candidates", "By the rule alone", "Quota", "Taken", "Rows", "Of its candidates")
    return [
        Bars("Chosen, by group", [(str(row[0]), row[5]) for row in rows], "rows", tabled=False),
        Table("Groups and their quotas", header, rows, note),
    ]


def _samples(result: SelectResult) -> list[Block]:
    most = max(1, min(_SHOWN, _SAMPLES // max(1, 2 * len(result.samples))))
    blocks: list[Block] = []
    for name, ends in result.samples.items():
        for end, title in (("best", "Best"), ("worst", "Worst")):
            places = [f"{row['task']}:{row['ordinal']}" for row in ends[end]]
            samples = [
                {"value": f"{row['value']:.6g} · {place}", **{key: row[key] for key in ("instruction", "response")}}
                for row, place in zip(ends[end], places, strict=True)
            ]
            values = [(row["value"], place) for row, place in zip(ends[end], places, strict=True)]
            table = Table(f"{title} rows of {name}: all that are listed", ("Value", "Row"), values)
            shown = Samples(f"{title} rows", samples[:most], "value")
            blocks.append(Section(f"{title} rows: {name}", [shown, table], "by log weight or score, before noise"))
    return blocks


def _settings(result: SelectResult) -> list[Block]:
    rows = [(name, json.dumps(value, ensure_ascii=False)) for name, value in _flat(result.settings)]
    return [Section("Settings", [Table("select_config.yaml", ("Setting", "Value"), rows)], "what was asked for")]


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _look_at(result: SelectResult, unit: str) -> list[str]:
    remarks = []
    budget = result.budget
    if budget["taken"] < budget["asked"]:
        remarks.append(f"Less is taken than was asked for: {budget['taken']:,} of {budget['asked']:,} {unit}.")
    if result.outside:
        remarks.append(f"{result.outside:,} rows were taken by dsir, and went for the bounds of attributes.where.")
    for name, target in result.divergences.items():
        if target["reduction"] <= 0:
            remarks.append(f"The rows chosen for {name} are no nearer to it than a uniform sample.")
    before, after = result.lengths["before"], result.lengths["after"]
    if before["rows"] and after["rows"]:
        ratio = after["response"] / after["rows"] / max(1e-9, before["response"] / before["rows"])
        if ratio < _SHORTER:
            remarks.append(f"Chosen responses are much shorter than others: {Percent(ratio)} of the mean length.")
    few = [name for name, source in result.sources.items() if 0 < source["chosen"] < _FEW * source["rows"]]
    if few:
        remarks.append(f"Less than 2% is chosen of {describe_names(few)}.")
    groups = result.groups
    if groups and groups["short"]:
        remarks.append(
            f"Groups with less than their part of the budget: {groups['short']:,}. "
            f"{groups['redistributed']:,.0f} {unit} went to other groups."
        )
    return remarks
