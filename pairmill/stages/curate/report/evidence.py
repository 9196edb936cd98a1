"""The rows that decisions are judged by: samples of every rule, and what is closest to a threshold."""

from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.formats.results.rows import CurateResult
from pairmill.report.model import Block, Cell, Percent, Section, Table
from pairmill.report.pairs import Pair, Pairs
from pairmill.stages.curate.operations import in_order, of_folder
from pairmill.stages.curate.report.wording import and_more, beside_item, describe_finding, other_of, row_id

_SAMPLES = 48
"""Pairs on the page over all rules; at most _OF_A_RULE of one."""
_OF_A_RULE = 4
_CLOSEST = 18
_OF_A_THRESHOLD = 3
_OF_BENCHMARKS = 24
_BENCHMARKS = 100


def pair_of(operation: str, finding: Mapping[str, Any]) -> Pair:
    """Return a sample as the manifest has it, with the row or the item that it is compared with."""
    names = ("instruction", "response")
    row = finding.get(names[0]) or "", finding.get(names[1]) or ""
    item = finding.get(f"other_{names[0]}") or "", finding.get(f"other_{names[1]}") or ""
    fields, others = list(zip(names, row, item, strict=True)), tuple[str, ...]()
    if finding.get("benchmark"):
        fields, others = beside_item(finding, row, item)
    # Of a row of an index, and of an item whose text is not known, there is only the name.
    other, known = other_of(finding), any(text for _, _, text in fields)
    owner = of_folder(operation)
    text = describe_finding(operation, owner.describe_scores(finding), finding)
    return Pair(
        row_id(finding["task"], finding["ordinal"]),
        other if known else "",
        [] if owner.private else fields,
        text if known or not other else f"{text} · {other}",
        others,
    )


def samples(result: CurateResult) -> list[Block]:
    """Return a section for each operation with samples of each of its rules."""
    parted = _by_operation(result.samples, result)
    rules = sum(len(item) for item in parted.values())
    most = max(1, min(_OF_A_RULE, _SAMPLES // max(1, rules)))
    blocks: list[Block] = []
    for operation, item in parted.items():
        inner: list[Block] = [
            Pairs(rule, [pair_of(operation, row) for row in some[:most]], of_folder(operation).describe_rule(rule))
            for rule, some in list(item.items())[:_SAMPLES]
        ]
        summary = f"samples of {len(inner):,} {'rule' if len(inner) == 1 else 'rules'}"
        left_out = and_more(list(item), _SAMPLES, "rules")
        blocks.append(Section(f"Samples of {operation}", inner, " ".join(filter(None, [summary, left_out]))))
    return blocks


def closest(result: CurateResult) -> list[Block]:
    """Return what is just above or just below each threshold."""
    parted = _by_operation(result.closest, result)
    thresholds = sum(len(item) for item in parted.values())
    most = max(1, min(_OF_A_THRESHOLD, _CLOSEST // max(1, thresholds)))
    blocks = [
        Pairs(
            f"{operation}: {name}",
            [pair_of(operation, row) for row in some[:most]],
            of_folder(operation).describe_rule(name),
        )
        for operation, item in parted.items()
        for name, some in item.items()
    ]
    if not blocks:
        return []
    summary = "what a slightly different threshold would decide otherwise"
    return [Section("Closest to a threshold", blocks[:_CLOSEST], summary, unfolded=True)]


def benchmarks(result: CurateResult) -> list[Block]:
    """Return what was found of each benchmark, with the rows beside the items."""
    largest = sorted(result.benchmarks.items(), key=lambda item: (-item[1].get("hit", 0), item[0]))
    if not largest:
        return []
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            each.get("items", 0),
            each.get("hit", 0),
            Percent.ratio(each.get("hit", 0), each.get("items", 0)),
            each.get("rows", 0),
            _counts(each.get("by_rule", {})),
            _counts(each.get("by_source", {})),
        )
        for name, each in largest
    ]
    blocks: list[Block] = [
        Table(
            "Benchmarks",
            ("Benchmark", "Items", "Found", "Share found", "Rows", "By rule", "By source"),
            rows[:_BENCHMARKS],
            and_more(rows, _BENCHMARKS, "benchmarks"),
        )
    ]
    hit = _by_benchmark(result)
    most = max(1, _OF_BENCHMARKS // max(1, len(hit)))
    for name, each in list(hit.items())[:_OF_BENCHMARKS]:
        pairs = [pair_of("decontaminate", row) for row in each[:most]]
        about = result.benchmarks.get(name, {})
        summary = f"{about.get('hit', 0):,} of {about.get('items', 0):,} items, rows: {about.get('rows', 0):,}"
        blocks.append(Section(f"Items of {name}", [Pairs("Row and item", pairs, names=("Row", "Item"))], summary))
    return blocks


def _by_benchmark(result: CurateResult) -> dict[str, list[Mapping[str, Any]]]:
    """Group samples of leaks by benchmark, each item once; the most severe first."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    seen = set()
    rules = _by_operation(result.samples, result).get("decontaminate", {})
    order = ["question_answer", "question", "short_question", "variant"]
    for rule in sorted(rules, key=lambda name: (order.index(name) if name in order else len(order), name)):
        for row in rules[rule]:
            item = (row.get("benchmark"), row.get("item"))
            if row.get("benchmark") and item not in seen:
                seen.add(item)
                grouped.setdefault(str(row["benchmark"]), []).append(row)
    return dict(sorted(grouped.items()))


def _by_operation(
    some: Mapping[str, Sequence[Mapping[str, Any]]], result: CurateResult
) -> dict[str, dict[str, Sequence[Mapping[str, Any]]]]:
    """Group samples of ``operation.rule`` by operation in order, then by rule, the one that found most first."""
    parted: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {}
    for name in sorted(some):
        operation, _, rule = name.partition(".")
        if some[name]:
            parted.setdefault(operation, {})[rule] = some[name]

    def weight(operation: str, rule: str) -> int:
        rules = result.operations.get(operation, {}).get("rules", {})
        return sum(rules.get(rule, {}).values())

    return {
        operation: dict(sorted(parted[operation].items(), key=lambda item: (-weight(operation, item[0]), item[0])))
        for operation in in_order(parted)
    }


def _counts(counts: Mapping[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = f" and {len(largest) - 5:,} more" if len(largest) > 5 else ""
    return ", ".join(f"{count:,} {name}" for name, count in largest[:5]) + rest or "–"
