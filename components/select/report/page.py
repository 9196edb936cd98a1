"""The report of a selected folder: what was chosen, how near it is to the targets, and the rows to judge it by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.report.charts import Bars, HeatMap, Stacked
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
    """The report of a finished folder of select, from its manifest alone."""
    data, ledger = manifest.data, manifest.ledger
    unit = _UNITS[data["budget"]["unit"]]
    figures: dict[str, Cell] = {
        "Method": data["method"],
        "Rows in": data["rows"],
        "Candidates": data["candidates"],
        "Chosen": data["chosen"],
        "Share chosen": Percent.of(data["chosen"], data["rows"]),
        f"Asked for, {unit}": data["budget"]["asked"],
        f"Taken, {unit}": data["budget"]["taken"],
        "Sources": len(data["sources"]),
        "Held-out rows": manifest.held_out,
        "Fingerprint": manifest.fingerprint,
    }
    if not manifest.held_out:
        del figures["Held-out rows"]
    return Report(
        "select",
        figures,
        [
            *_divergences(data),
            *_rankings(data),
            *_sources(data),
            *_lengths(data),
            *_groups(data, unit),
            *_overlap(data),
            *_samples(data),
            _settings(data),
        ],
        verdict=f"Rows: {describe_rows(ledger)}. {_next(data)}",
        look_at=_look_at(data, unit),
    )


def _next(data: Mapping[str, Any]) -> str:
    if data["mode"] == "report":
        return (
            f"{data['chosen']:,} rows are chosen; the others are only reported. "
            "Next: read the best and worst rows, then set mode: drop in select_config.yaml."
        )
    return "Next: compare the shares of sources and the lengths, then train a tokenizer on the chosen rows."


def _divergences(data: Mapping[str, Any]) -> list[Block]:
    rows = [
        (
            name,
            one["rows"],
            one["raw"],
            one["uniform"],
            one["selected"],
            one["reduction"],
            one["mean_features_raw"],
            one["mean_features_selected"],
        )
        for name, one in data["divergences"].items()
    ]
    if not rows:
        return []
    header = (
        "Target",
        "Chosen",
        "All rows",
        "Uniform sample",
        "Chosen rows",
        "Reduction",
        "Mean features, all",
        "Mean features, chosen",
    )
    note = (
        "Divergence (KL, in nats) of the target's words and n-grams from those of all rows, of a uniform sample of "
        "as many rows, and of the chosen ones: less is nearer. The reduction is the sample's less that of the chosen "
        "rows. Chosen rows and sample are smoothed alike, because a small sample misses words."
    )
    return [Table("How near the choice is to its targets", header, rows, note)]


def _rankings(data: Mapping[str, Any]) -> list[Block]:
    if len(data["rankings"]) < 2:
        return []
    rows = [
        (one["name"], Percent(one["share"]), one["rows"], Percent.of(one["rows"], data["chosen"]))
        for one in data["rankings"]
    ]
    return [Table("Targets, in the order in which they take rows", ("Target", "Asked", "Rows", "Share"), rows)]


def _sources(data: Mapping[str, Any]) -> list[Block]:
    every = data["sources"]
    names = sorted(every, key=lambda name: (-every[name]["rows"], name))
    total, chosen = data["rows"], data["chosen"]
    characters = sum(one["characters_chosen"] for one in every.values())
    rows = [
        (
            name,
            every[name]["rows"],
            every[name]["chosen"],
            Percent.of(every[name]["chosen"], every[name]["rows"]),
            Percent.of(every[name]["rows"], total),
            Percent.of(every[name]["chosen"], chosen),
            Percent.of(every[name]["characters_chosen"], characters),
        )
        for name in names[:_SOURCES]
    ]
    rest = f"{len(names) - _SOURCES:,} smaller sources are not shown." if len(names) > _SOURCES else ""
    largest = names[:4]
    parts = [*largest, "all others"] if len(names) > len(largest) else largest

    def shares(key: str) -> list[float]:
        found: list[float] = [every[name][key] for name in largest]
        return [*found, sum(every[name][key] for name in names[4:])] if len(parts) > len(largest) else found

    return [
        Stacked(
            "Shares of sources, before and after",
            parts,
            [("all", shares("rows")), ("chosen", shares("chosen"))],
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


def _lengths(data: Mapping[str, Any]) -> list[Block]:
    before, after = data["lengths"]["before"], data["lengths"]["after"]
    rows = [
        (
            name,
            before[key] / before["rows"] if before["rows"] else 0.0,
            after[key] / after["rows"] if after["rows"] else 0.0,
        )
        for name, key in (("Instruction", "instruction"), ("Response", "response"))
    ]
    used = [at for at, counts in enumerate(zip(before["bins"], after["bins"], strict=True)) if any(counts)]
    bins = range(used[0], used[-1] + 1) if used else range(0)
    shares = [
        (
            _between(at),
            Percent.of(before["bins"][at], before["rows"]),
            Percent.of(after["bins"][at], after["rows"]),
        )
        for at in bins
    ]
    return [
        Table("Mean characters of a row", ("Text", "All rows", "Chosen rows"), rows),
        Bars(
            "Responses by length, all rows", [(_between(at), before["bins"][at]) for at in bins], "rows", tabled=False
        ),
        Bars(
            "Responses by length, chosen rows",
            [(_between(at), after["bins"][at]) for at in bins],
            "rows",
            1,
            tabled=False,
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


def _groups(data: Mapping[str, Any], unit: str) -> list[Block]:
    found = data["groups"]
    if not found:
        return []
    rows = [
        (
            one["group"] or "(no value)",
            one["candidates"],
            one["asked"],
            one["quota"],
            one["taken"],
            one["rows"],
            Percent.of(one["rows"], one["candidates"]),
        )
        for one in found["groups"][:_GROUPS]
    ]
    rest = f" {found['number'] - _GROUPS:,} smaller groups are not shown." if found["number"] > _GROUPS else ""
    note = (
        f"Groups by {found['by']}, in {unit}. By the rule alone: the group's part of the budget. Quota: never more "
        f"than the group has; what groups lack is shared out to the others by the same rule.{rest}"
    )
    header = ("Group", "Candidates", "By the rule alone", "Quota", "Taken", "Rows", "Of its candidates")
    return [
        Bars("Chosen, by group", [(str(row[0]), row[5]) for row in rows], "rows", tabled=False),
        Table("Groups and their quotas", header, rows, note),
    ]


def _overlap(data: Mapping[str, Any]) -> list[Block]:
    if not data["overlap"]:
        return []
    note = (
        "Rows that two targets would both take if each chose alone from all candidates; on the diagonal, what each "
        "would take. What the first took, the next cannot take."
    )
    return [HeatMap("Overlap of targets", data["overlap"], "target", "target", note=note)]


def _samples(data: Mapping[str, Any]) -> list[Block]:
    most = max(1, min(_SHOWN, _SAMPLES // max(1, 2 * len(data["samples"]))))
    blocks: list[Block] = []
    for name, ends in data["samples"].items():
        for end, title in (("best", "Best"), ("worst", "Worst")):
            rows = [
                {
                    "value": f"{one['value']:.6g} · {one['task']}:{one['ordinal']}",
                    "instruction": one["instruction"],
                    "response": one["response"],
                }
                for one in ends[end]
            ]
            table = Table(
                f"{title} rows of {name}: all that are listed",
                ("Value", "Row"),
                [(one["value"], f"{one['task']}:{one['ordinal']}") for one in ends[end]],
            )
            blocks.append(
                Section(
                    f"{title} rows: {name}",
                    [Samples(f"{title} rows", rows[:most], "value"), table],
                    "by log weight or score, before noise",
                )
            )
    return blocks


def _settings(data: Mapping[str, Any]) -> Block:
    rows = [(name, json.dumps(value, ensure_ascii=False)) for name, value in _flat(data["settings"])]
    return Section("Settings", [Table("select_config.yaml", ("Setting", "Value"), rows)], "what was asked for")


def _flat(settings: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        found += (
            _flat(value, f"{above}{name}.") if isinstance(value, Mapping) and value else [(f"{above}{name}", value)]
        )
    return found


def _look_at(data: Mapping[str, Any], unit: str) -> list[str]:
    said = []
    budget = data["budget"]
    if budget["taken"] < budget["asked"]:
        said.append(f"Less is taken than was asked for: {budget['taken']:,} of {budget['asked']:,} {unit}.")
    if data["outside"]:
        said.append(f"{data['outside']:,} rows were taken by dsir, and went for the bounds of attributes.where.")
    for name, one in data["divergences"].items():
        if one["reduction"] <= 0:
            said.append(f"The rows chosen for {name} are no nearer to it than a uniform sample.")
    before, after = data["lengths"]["before"], data["lengths"]["after"]
    if before["rows"] and after["rows"]:
        ratio = after["response"] / after["rows"] / max(1e-9, before["response"] / before["rows"])
        if ratio < _SHORTER:
            said.append(f"Chosen responses are much shorter than others: {Percent(ratio)} of the mean length.")
    nothing = [name for name, one in data["sources"].items() if one["rows"] and not one["chosen"]]
    few = [name for name, one in data["sources"].items() if 0 < one["chosen"] < _FEW * one["rows"]]
    if nothing:
        said.append(f"Nothing is chosen of {describe_names(nothing)}.")
    if few:
        said.append(f"Less than 2% is chosen of {describe_names(few)}.")
    groups = data["groups"]
    if groups and groups["short"]:
        said.append(
            f"Groups with less than their part of the budget: {groups['short']:,}. "
            f"{groups['redistributed']:,.0f} {unit} went to other groups."
        )
    return said
