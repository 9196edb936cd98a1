"""An inventory as Markdown, CSV, TeX and JSON, and as blocks of the sampler's report."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pairmill.report.markdown import plain
from pairmill.report.model import Block, Cell, Link, Table, format_cell
from pairmill.stages.sample.inventory.lines import Counts, Inventory, Line

_TOLD: Final = ("form", "licence", "revision", "decision", "language")
_TITLES: Final = {"source": "Source", "group": "Group", "language": "Language", "licence": "Licence", "task": "Task"}
_COLUMNS: Final = (
    *("Data set", "Tasks", "Published rows", "Source rows", "Source tokens", "Rows/epoch", "Tokens/epoch", "Share"),
    *("Unique rows", "Passes/epoch", "Passes in all", "Form", "Licence", "Revision", "Decision", "Language"),
)
_NOTES: Final = (
    "Rows and tokens of an epoch are means over the epochs. A source is what the sampler sees: rows that may be drawn, "
    "cut to the context. Caps, repeats and what a policy leaves out are included. A dash is not known."
)
_UNKNOWN: Final = "–"


def table_of(inventory: Inventory, key: str) -> Table:
    """Return the table, its last line the sum of all others."""
    lines = inventory.lines(key)
    whole = Line("all", inventory.total, [item for item, _ in inventory.tasks])
    rows = [_row(line, inventory, key) for line in [*lines, whole]]
    return Table(f"Inventory by {key}", (_TITLES[key], *_COLUMNS), rows, _NOTES)


def _row(line: Line, inventory: Inventory, key: str) -> list[Cell]:
    counts, epochs, whole = line.counts, inventory.epochs, inventory.total
    one_source = key in ("source", "task") and line.name != "all" and len({item.origin for item in line.facts}) == 1
    origin = line.facts[0].origin if one_source else ""
    repository = re.sub(r"^hub( rows)?:|@[^@]*$", "", origin) if line.facts and line.facts[0].link else ""
    page: Cell = Link(repository, line.facts[0].link) if one_source and repository else _UNKNOWN
    passes = counts.rows_sampled / counts.rows if counts.rows else 0.0
    return [
        line.name or _UNKNOWN,
        page,
        counts.tasks,
        _UNKNOWN if line.source_rows is None else line.source_rows,
        counts.rows,
        counts.tokens,
        mean(counts.rows_sampled, epochs),
        mean(counts.tokens_sampled, epochs),
        share(counts, whole),
        counts.unique_rows,
        f"{passes / epochs:.3f}",
        f"{passes:.3f}",
        *([_UNKNOWN] * len(_TOLD) if line.name == "all" else [line.describe(what) or _UNKNOWN for what in _TOLD]),
    ]


def mean(count: int, epochs: int) -> str:
    """Return the mean over epochs: whole, or with two places."""
    return f"{count // epochs:,}" if count % epochs == 0 else f"{count / epochs:,.2f}"


def share(counts: Counts, whole: Counts) -> str:
    """Return the share of the sampled tokens in per cent, with five places."""
    return f"{100 * counts.tokens_sampled / whole.tokens_sampled:.5f} %" if whole.tokens_sampled else _UNKNOWN


def checks_of(inventory: Inventory, key: str) -> list[Block]:
    """Return the sources under agreements, the sums, and the cross-check of rules and tasks."""
    lines, total, epochs = inventory.lines(key), inventory.total, inventory.epochs
    agreed = sorted({item.source for item, _ in inventory.tasks if item.reason == "agreement"})
    parts = [sum(getattr(line.counts, name) for line in lines) for name in ("rows_sampled", "tokens_sampled")]
    sums: list[Sequence[Cell]] = [
        ("Lines", len(lines)),
        ("Tasks", total.tasks),
        ("Rows over all epochs", parts[0]),
        ("Tokens over all epochs", parts[1]),
        ("Tokens of an epoch", mean(parts[1], epochs)),
        ("Share", f"{100 * parts[1] / total.tokens_sampled:.5f} %" if total.tokens_sampled else _UNKNOWN),
    ]
    crossed: list[Sequence[Cell]] = [
        *(("rule at 0", name) for name in sorted(inventory.at_zero)),
        *(("rule without a task", name) for name in inventory.idle_rules),
        *(("task without a rule", name) for name in sorted(inventory.without_rule)),
        *(("left out by the policy", name) for name in inventory.left_out),
    ]
    blocks: list[Block] = [Table("Sources under agreements", ("Source",), [(name,) for name in agreed])] * bool(agreed)
    return [
        *blocks,
        Table("Sums", ("Of", "Count"), sums, "Compared with the totals and the epochs of the plan, to the token."),
        Table("Cross-check of rules and tasks", ("What", "Name"), crossed),
    ]


def composition_of(inventory: Inventory) -> dict[str, Any]:
    """Return the composition by language and group, over all epochs; what is not known is null, not 0."""
    cells: dict[tuple[str, str], Counts] = {}
    sources: dict[tuple[str, str], set[str]] = {}
    for item, counts in inventory.tasks:
        cell = item.language, item.group
        cells.setdefault(cell, Counts()).add(counts)
        sources.setdefault(cell, set()).add(item.source)
    known = sum(counts.tokens_sampled for (language, _), counts in cells.items() if language)
    whole = inventory.total
    return {
        "epochs": inventory.epochs,
        "cells": [
            {
                "language": language or None,
                "group": group,
                **_measures(counts, whole),
                "sources": sorted(sources[language, group]),
            }
            for (language, group), counts in sorted(cells.items())
        ],
        "total": _measures(whole, whole),
        "coverage": f"the language is known of {known:,} of {whole.tokens_sampled:,} tokens",
    }


def _measures(counts: Counts, whole: Counts) -> dict[str, Any]:
    # A row is trained on from its second token on.
    measures = {
        "rows": (counts.rows_sampled, whole.rows_sampled),
        "tokens": (counts.tokens_sampled, whole.tokens_sampled),
        "response_tokens": (counts.responses_sampled, whole.responses_sampled),
        "next_token_positions": (
            counts.tokens_sampled - counts.rows_sampled,
            whole.tokens_sampled - whole.rows_sampled,
        ),
    }
    result: dict[str, Any] = {name: part for name, (part, _) in measures.items()}
    result["percent_of_epoch"] = {
        name: round(100 * part / total, 5) if total else None for name, (part, total) in measures.items()
    }
    return result


def write(inventory: Inventory, key: str, form: str) -> str:
    """Return the inventory in one of the formats of the option."""
    table = table_of(inventory, key)
    if form == "json":
        return json.dumps(_as_json(inventory, key), indent=1, ensure_ascii=False) + "\n"
    if form == "csv":
        return as_csv(table)
    if form == "tex":
        return _as_tex(table)
    lines = [*as_markdown(table), *(line for block in checks_of(inventory, key) for line in block.markdown(2))]
    return "\n".join(lines) + "\n"


def as_markdown(table: Table) -> list[str]:
    """Return all lines of a table, where a report shows the first ones; addresses are links."""

    def shown(cell: Cell) -> str:
        text = plain(format_cell(cell))
        return f"[{text}]({cell.to})" if isinstance(cell, Link) else text

    head = ["| " + " | ".join(table.header) + " |", "|" + "---|" * len(table.header)]
    return [
        f"## {table.title}",
        "",
        table.note,
        "",
        *head,
        *(f"| {' | '.join(map(shown, row))} |" for row in table.rows),
    ]


def as_csv(table: Table) -> str:
    """Return a table as CSV: numbers without the commas of people, and a column for addresses."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*table.header, "Address"])
    for row in table.rows[:-1]:  # sums are for people
        links = [cell.to for cell in row if isinstance(cell, Link)]
        writer.writerow([*map(_bare, row), *(links or [""])])
    return out.getvalue()


def _bare(cell: Cell) -> str:
    text = str(cell).removesuffix(" %")
    return text.replace(",", "") if re.fullmatch(r"[\d,.]+", text) else "" if text == _UNKNOWN else text


def _as_tex(table: Table) -> str:
    rows = [[_tex(str(cell) if not isinstance(cell, int) else f"{cell:,}") for cell in row] for row in table.rows]
    lines = [" & ".join(row) + r" \\" for row in [[_tex(name) for name in table.header], *rows]]
    form = "l" * 2 + "r" * (len(table.header) - 2 - len(_TOLD)) + "l" * len(_TOLD)
    return "\n".join([rf"\begin{{tabular}}{{{form}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    known = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", _UNKNOWN: "--"}
    return re.sub(r"[\\~^–&%$#_{}]", lambda match: known.get(match[0], f"\\{match[0]}"), text)


def _as_json(inventory: Inventory, key: str) -> Mapping[str, Any]:
    whole = inventory.total
    return {
        "epochs": inventory.epochs,
        "group_by": key,
        "lines": [
            {
                "name": line.name or None,
                **vars(line.counts),
                "published_rows": line.source_rows,
                "share": line.counts.tokens_sampled / whole.tokens_sampled if whole.tokens_sampled else None,
                "link": next((item.link for item in line.facts if item.link), None)
                if key in ("source", "task")
                else None,
                **{what: line.describe(what) or None for what in (*_TOLD, "reason")},
            }
            for line in inventory.lines(key)
        ],
        "total": vars(whole),
        "rules_at_zero": inventory.at_zero,
        "rules_without_task": inventory.idle_rules,
        "tasks_without_rule": inventory.without_rule,
        "left_out": inventory.left_out,
        "composition": composition_of(inventory),
    }
