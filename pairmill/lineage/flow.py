"""The rows and tokens of each source from fetch to an epoch, so that the column where it drops is seen."""

from collections.abc import Mapping, Sequence
from typing import Final

from pairmill.engine.manifest import Ledger
from pairmill.engine.vanished import FROM
from pairmill.formats.results.raw import CleanResult
from pairmill.formats.results.sample import SampleResult
from pairmill.lineage.steps import Step, by_source
from pairmill.report.model import Cell, Table, format_cell

_DROPS: Final = " ▼"
"""After a count of which half or more is gone since the column before it."""
Column = tuple[str, Mapping[str, float]]


def flow_of(steps: Sequence[Step]) -> Table:
    """Return the table of a line, a row for each source; a dash where a stage knows the source by no such name."""
    rows, tokens = _columns(steps)
    names = sorted({name for _, counts in (*rows, *tokens) for name in counts})
    cells: list[list[Cell]] = [[name, *_cells(name, rows), *_cells(name, tokens)] for name in names]
    header = ["Source", *(f"{stage}, rows" for stage, _ in rows), *(f"{stage}, tokens" for stage, _ in tokens)]
    note = "An epoch is the mean of all. ▼: half or more is gone since the column before."
    return Table("Rows and tokens of each source", header, cells, note)


def _columns(steps: Sequence[Step]) -> tuple[list[Column], list[Column]]:
    """Return what each stage counts by source: rows, then tokens. Of several steps of a stage the counts add up."""
    rows: dict[str, dict[str, float]] = {}
    tokens: dict[str, dict[str, float]] = {}

    def add(columns: dict[str, dict[str, float]], stage: str, counts: Mapping[str, float]) -> None:
        column = columns.setdefault(stage, {})
        for name, count in counts.items():
            column[name] = column.get(name, 0) + count

    for step in steps:
        manifest = step.manifest
        if step.stage == "clean":
            ledgers = {
                name: Ledger(**item["ledger"]) for name, item in CleanResult.from_manifest(manifest).sources.items()
            }
            add(rows, "fetch", {name: ledger.rows_in for name, ledger in ledgers.items()})
            # Of a source that gives no row no later stage has the name.
            add(rows, "clean", {name: 0 for name, ledger in ledgers.items() if not ledger.rows_kept})
        if step.stage != "sample":
            add(rows, step.stage, by_source(step.rows))
        if step.stage == "tokenize":
            add(
                tokens,
                step.stage,
                by_source({name: item.measures.get("tokens", 0) for name, item in step.ledgers.items()}),
            )
        if step.stage == "sample":
            epochs, stats = manifest.ledger.measures["epochs"], SampleResult.from_manifest(manifest).stats
            sums = by_source({name: item.get("cov_itoks", 0) + item["cov_rtoks"] for name, item in stats.items()})
            for columns, counts in ((rows, by_source(step.rows)), (tokens, sums)):
                add(columns, "epoch", {name: count / epochs for name, count in counts.items()})
    return [*rows.items()], [*tokens.items()]


def _cells(name: str, columns: Sequence[Column]) -> list[Cell]:
    result: list[Cell] = []
    before = 0.0
    for _, counts in columns:
        if name not in counts:
            result.append("–")
            continue
        count = counts[name]
        result.append(format_cell(round(count)) + _DROPS * bool(count <= (1 - FROM) * before and before))
        before = count
    return result
