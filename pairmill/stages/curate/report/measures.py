"""Histograms of the attributes, costs of the operations, and the settings that a run had."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pairmill.report.charts import Distribution
from pairmill.report.model import Block, Cell, Percent, Section, Table
from pairmill.stages.curate.operations import in_order
from pairmill.stages.curate.report.wording import and_more

_BOUNDED, _OTHERS = 30, 20
"""Charts on the page."""
_SAME = 100
_SETTINGS = 150
_COSTS = {
    "rows": "Rows",
    "bytes": "Bytes read",
    "scratch_bytes": "Bytes of scratch files",
    "verifications": "Pairs compared",
    "unverified": "Not compared",
}


def histograms(result: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Return a chart for each attribute: those with bounds first, the others folded."""
    bounded: list[tuple[int, Block]] = []
    others: list[tuple[int, Block]] = []
    same: list[tuple[Cell, ...]] = []
    operations = in_order({name.partition(".")[0] for name in result})
    for name in sorted(result, key=lambda name: (operations.index(name.partition(".")[0]), name)):
        attribute = result[name]
        low, high = [*(attribute.get("bounds") or ()), None, None][:2]
        counts = attribute["counts"]
        chart = Distribution(
            title=name, counts=counts, edges=attribute["edges"], low=low, high=high, axis="value", unit="rows"
        )
        if sum(map(bool, counts)) == 1:
            same.append((name, chart.ranges()[0], sum(counts), _bound(low), _bound(high)))
        elif sum(counts):
            (others if low is None and high is None else bounded).append((chart.beyond(), chart))
    sections: list[Block] = []
    for title, charts, most, remark in (
        ("Attributes with bounds", bounded, _BOUNDED, "of all rows, with those that go; lines are bounds"),
        ("Other attributes", others, _OTHERS, "no rule has bounds for them"),
    ):
        if charts:
            summary = ", ".join(filter(None, [remark, and_more(charts, most, "below attributes/")]))
            # Those of which most is found come first.
            blocks = [chart for _, chart in sorted(charts, key=lambda item: -item[0])[:most]]
            sections.append(Section(title, blocks, summary, unfolded=charts is bounded))
    if same:
        note = and_more(same, _SAME, "attributes")
        table = Table("Attribute", ("Attribute", "Values", "Rows", "Min", "Max"), same[:_SAME], note)
        sections.append(Section("Attributes with one value", [table], f"{len(same):,}, without a chart"))
    return sections


def costs(result: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Return what each operation read, compared and wrote; then whatever else it counted."""
    order = in_order(result)
    known = [key for key in _COSTS if any(key in item for item in result.values())]
    rows: list[tuple[Cell, ...]] = [(name, *(_cell(result[name].get(key)) for key in known)) for name in order]
    note = "Scratch files are read by later rounds of the same run; they are not in this folder." if rows else ""
    blocks: list[Block] = [Table("Costs", ("Operation", *(_COSTS[key] for key in known)), rows, note)]
    further = [
        (name, key.replace("_", " "), _cell(result[name][key]))
        for name in order
        for key in sorted(set(result[name]) - set(_COSTS))
    ]
    if further:
        table = Table("By operation", ("Operation", "What", "Number"), further)
        blocks.append(Section("Further counts", [table], f"{len(further):,} that operations made on the way"))
    return blocks


def settings(values: Mapping[str, Any]) -> Section:
    """Return all settings, one a line."""
    lines = list(_flat(values, ""))
    note = and_more(lines, _SETTINGS, "settings")
    table = Table("curate_config.yaml", ("Setting", "Value"), lines[:_SETTINGS], note)
    return Section("Settings", [table], f"{len(lines):,} as this run had them")


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested settings with their paths."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _flat(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and any(isinstance(item, Mapping | list) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value)) or "none"
    else:
        yield path, json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value or '""'


def _bound(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _cell(value: Any) -> Cell:
    """Return a dash that leaves its column one of numbers where nothing is counted."""
    return Percent(math.nan) if value is None else value
