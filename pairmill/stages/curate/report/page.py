"""The report of a curated folder: what went or would go, why, and the rows to judge it by."""

from collections.abc import Mapping
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.engine.results import HeldOutRows
from pairmill.formats.results.rows import CurateResult
from pairmill.report.charts import Bars, HeatMap, Stacked
from pairmill.report.model import Block, Cell, Percent, Report, Section, Table, describe_names, describe_rows
from pairmill.stages.curate import operations as registry
from pairmill.stages.curate.operations import in_order, of_folder
from pairmill.stages.curate.report.evidence import benchmarks, closest, samples
from pairmill.stages.curate.report.measures import costs, histograms, settings
from pairmill.stages.curate.report.rates import removed_by_reason
from pairmill.stages.curate.report.wording import and_more

_FEW = 0.5
"""A source of which less is kept, or of which another source has more, is worth a look."""
_MANY = 0.2
"""A rule that finds a larger share of all rows is worth a look before it drops them."""
_SOURCES = 100
_RULES = 100
_LINES = 200
_PARTS = {
    "kept": (),
    "duplicates": ("dup_exact", "dup_near", "cap_instruction", "cap_response", "cap_near"),
    "leaks and held out": ("contaminated_question", "contaminated_question_answer", "held_out"),
    "quality": (),
}


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder of curate, from its manifest alone."""
    result, ledger = CurateResult.from_manifest(manifest), manifest.ledger
    sources = dict(sorted(result.sources.items()))
    operations = {name: result.operations[name] for name in in_order(result.operations)}
    near = {source: dict(sorted(result.matrix[source].items())) for source in sorted(result.matrix)}
    figures: dict[str, Cell] = {
        "Rows in": ledger.rows_in,
        "Kept": ledger.rows_kept,
        "Share kept": Percent.ratio(ledger.rows_kept, ledger.rows_in),
        "Dropped": ledger.rows_in - ledger.rows_kept,
        "Would go, only reported": sum(item.get("would_go", 0) for item in sources.values()),
        "Rows changed": ledger.notes.get("redacted", 0),
        "Benchmark items found": sum(item.get("hit", 0) for item in result.benchmarks.values()),
        "Sources": len(sources),
        "Held-out rows": HeldOutRows.count(manifest),
        "Fingerprint": manifest.fingerprint,
    }
    for name in ("Rows changed", "Benchmark items found", "Held-out rows"):
        if not figures[name]:
            del figures[name]
    return Report(
        "curate",
        figures,
        [
            *_by_operation(operations, ledger.rows_in, only_report=bool(result.settings.get("report_all"))),
            Bars("Dropped, by reason", list(removed_by_reason(sources).items())[:_RULES], "rows", 1, tabled=False),
            Bars("Would go in mode drop, by rule", _largest(_would_go(operations))[:_RULES], "rows", tabled=False),
            *_by_source(sources),
            HeatMap(
                "Near duplicates, by source",
                near,
                "repeats",
                "kept",
                note="Rows of the source on the left that repeat a row of the source above, which is kept. Numbers on "
                "the diagonal are repeats within a source.",
            ),
            *benchmarks(result),
            *costs(result.costs),
            *_sources_and_rules(operations, sources),
            *closest(result),
            *samples(result),
            *histograms(result.histograms),
            settings(result.settings),
        ],
        verdict=f"Rows: {describe_rows(ledger)}. {_next(result, ledger.rows_kept)}",
        look_at=_look_at(result, ledger.rows_in, near),
    )


def _count(operations: Mapping[str, Mapping[str, Any]], action: str) -> dict[str, int]:
    """Return findings of all rules with this action, by ``operation: rule``."""
    result = {
        f"{name}: {rule}": actions.get(action, 0)
        for name, item in operations.items()
        for rule, actions in item.get("rules", {}).items()
    }
    return {name: count for name, count in result.items() if count}


def _goes(actions: Mapping[str, int]) -> int:
    """Return rows that findings of a rule removed."""
    return actions.get("drop", 0) + actions.get("cap", 0)


def _would_go(operations: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return rows that a rule would remove which only reports, by ``operation: rule``."""
    return {f"{name}: {rule}": count for name, item in operations.items() for rule, count in item["would_go"].items()}


def _largest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _next(result: CurateResult, kept: int) -> str:
    """Return what to do next."""
    if result.settings.get("report_all"):
        return (
            "Nothing was dropped, since report_all lets every operation look at every row. "
            "Next: read the samples, then run it again with report_all: false."
        )
    if not kept and any(_count(result.operations, action) for action in ("drop", "cap")):
        return "Next: raise the bound of the rule that dropped most, or set its operation to mode: report."
    reporting = [name for name, _ in _largest(_would_go(result.operations))]
    if reporting:
        return (
            f"Next: read the samples of {describe_names(reporting)}, which only report. "
            "Where they are right, let them drop in curate_config.yaml."
        )
    return "Next: read the pairs closest to each threshold, then train a tokenizer on the kept rows."


def _by_operation(operations: Mapping[str, Mapping[str, Any]], rows_in: int, *, only_report: bool) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    would_go = _would_go(operations)
    off = [name for name, each in operations.items() if each.get("mode") == "off"]
    for name, each in operations.items():
        if name in off:
            continue
        # Under report_all an operation only reports, whatever its own mode is.
        mode, owner = "report" if only_report else str(each.get("mode", "")), of_folder(name)
        rules = sorted(each.get("rules", {}).items(), key=lambda item: (-sum(item[1].values()), item[0]))
        if not rules:
            rows.append((name, mode, "–", 0, 0, 0, ""))
        for rule, actions in rules:
            result, gone = sum(actions.values()), _goes(actions)
            would = would_go.get(f"{name}: {rule}", 0)
            rows.append((name, each["modes"].get(rule, mode), rule, result, gone, would, owner.describe_rule(rule)))
    note = (
        f"Of {rows_in:,} rows. A row goes for the first rule of the first operation that drops it; would go: what mode "
        "drop of this rule would remove, each rule by itself; a later operation may still drop it. What mode redact "
        "finds is changed and kept."
    )
    left_out = f"Off: {describe_names(off)}." if off else ""
    return [
        Table(
            "What was found, by operation and rule",
            ("Operation", "Mode", "Rule", "Found", "Dropped", "Would go", "Meaning"),
            rows[:_LINES],
            " ".join(filter(None, [note, left_out, and_more(rows, _LINES, "rules")])),
        )
    ]


def _by_source(sources: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    largest = sorted(sources.items(), key=lambda item: (-item[1].get("rows", 0), item[0]))
    rows: list[tuple[Cell, ...]] = []
    for name, each in largest[:_SOURCES]:
        gone = each["rows"] - each["kept"]
        mostly = "–"
        for reason, count in _largest(each.get("dropped", {}))[:1]:
            mostly = reason if count == gone else f"{reason} ({Percent.ratio(count, gone)})"
        rows.append((name, each["rows"], each["kept"], Percent.ratio(each["kept"], each["rows"]), mostly))
    return [
        Stacked(
            "Rows kept and dropped, by source",
            tuple(_PARTS),
            [(name, _parts(each)) for name, each in largest[:_SOURCES]],
            "rows",
        ),
        Table(
            "Sources",
            ("Source", "Rows", "Kept", "Share kept", "Dropped mostly for"),
            rows,
            and_more(largest, _SOURCES, "sources"),
        ),
    ]


def _parts(source: Mapping[str, Any]) -> tuple[int, ...]:
    """Return rows of a source by the parts of the chart."""
    dropped: Mapping[str, int] = source.get("dropped", {})
    known = [sum(dropped.get(reason, 0) for reason in reasons) for reasons in list(_PARTS.values())[1:-1]]
    return (source.get("kept", 0), *known, sum(dropped.values()) - sum(known))


def _sources_and_rules(
    operations: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Mapping[str, Any]]
) -> list[Block]:
    blocks: list[Block] = []
    for name, item in operations.items():
        rows = [
            (source, rule, count, Percent.ratio(count, sources.get(source, {}).get("rows", 0)))
            for source, rules in item.get("by_source", {}).items()
            for rule, count in rules.items()
            if count
        ]
        rows.sort(key=lambda row: (-row[2], row[0], row[1]))
        if rows:
            note = and_more(rows, _RULES, "lines")
            blocks.append(Table(name, ("Source", "Rule", "Rows", "Of the source"), rows[:_RULES], note))
    return [Section("Sources and rules", blocks, "what each rule finds in each source")] if blocks else []


def _look_at(result: CurateResult, rows_in: int, near: Mapping[str, Mapping[str, int]]) -> list[str]:
    lines = []
    sources = dict(sorted(result.sources.items()))
    swallowed = [
        f"{source} by {other} ({Percent.ratio(count, sources[source]['rows'])})"
        for source, others in near.items()
        for other, count in others.items()
        if source != other and source in sources and count > _FEW * sources[source]["rows"]
    ]
    if swallowed:
        lines.append(f"Most of a source repeats rows of another: {describe_names(swallowed)}.")
    lines += _leaks(result)
    large = [
        f"{name} ({Percent.ratio(count, rows_in)})"
        for name, count in _largest(_would_go(result.operations))
        if count > _MANY * rows_in
    ]
    if large:
        lines.append(f"Rules that only report find a large share of the rows: {describe_names(large)}.")
    for operation in registry.OPERATIONS:
        lines += operation.look_at(result.costs.get(operation.name, {}))
    return lines


def _leaks(result: CurateResult) -> list[str]:
    hit = {name: item for name, item in sorted(result.benchmarks.items()) if item.get("hit")}
    if not hit:
        return []
    names = describe_names([f"{name} ({item['hit']:,} of {item['items']:,} items)" for name, item in hit.items()])
    item = result.operations.get("decontaminate", {})
    gone = sum(_goes(actions) for actions in item.get("rules", {}).values())
    stay = sum(item.get("owned", {}).values()) - gone
    dropped = f"rows dropped: {gone:,}" if gone or not stay else ""
    kept = f"rows only reported: {stay:,}; decontaminate: {{mode: drop}} removes them" if stay else ""
    return [f"Benchmarks leak into the rows: {names}; {', '.join(filter(None, [dropped, kept]))}."]
