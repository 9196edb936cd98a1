"""report.html and report.md: a title, key figures, tables and bar charts; self-contained, without scripts.

Kubeflow shows HTML artifacts in a sandboxed frame: everything is inline, and the page stays far below 1 MB.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

_MAX_ROWS = 1000
_MAX_BARS = 40

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """A table: numbers are right-aligned and grouped by thousands."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """A horizontal bar chart of ``(label, value)``; ``unit`` is written behind the values."""

    title: str
    bars: Sequence[tuple[str, float]]
    unit: str = ""


@dataclass
class Report:
    """What a person sees of a stage's result."""

    title: str
    figures: dict[str, Cell] = field(default_factory=dict)
    sections: list[Table | Bars] = field(default_factory=list)

    def html(self) -> str:
        """A whole page."""
        figures = "".join(
            f"<div><dt>{_esc(name)}</dt><dd>{_esc(_text(value))}</dd></div>" for name, value in self.figures.items()
        )
        body = "".join(_html_table(item) if isinstance(item, Table) else _html_bars(item) for item in self.sections)
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_esc(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head>'
            f"<body><h1>{_esc(self.title)}</h1><dl>{figures}</dl>{body}</body></html>\n"
        )

    def markdown(self) -> str:
        """The same as text."""
        lines = [f"# {self.title}", ""]
        lines += [f"- **{name}**: {_text(value)}" for name, value in self.figures.items()]
        for item in self.sections:
            header = item.header if isinstance(item, Table) else ("", item.unit)
            rows = item.rows if isinstance(item, Table) else item.bars
            lines += ["", f"## {item.title}", ""]
            if not rows:
                lines.append("Nothing.")
                continue
            lines.append("| " + " | ".join(_md(cell) for cell in header) + " |")
            lines.append("|" + "---|" * len(header))
            lines += ["| " + " | ".join(_md(_text(cell)) for cell in row) + " |" for row in rows[:_MAX_ROWS]]
            if len(rows) > _MAX_ROWS:
                lines.append(f"\n({len(rows) - _MAX_ROWS:,} more rows are not shown)")
        return "\n".join(lines) + "\n"


_CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6672;--line:#d9dee4;--bar:#3c6fd1;--bg:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebef;--soft:#9aa5b1;--line:#333b45;--bar:#7aa2f0;--bg:#15181c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg);
max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.75rem;margin:0}
dl div{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .75rem}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:600;font-size:.85rem}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
p{color:var(--soft);margin:.25rem 0}svg{width:100%;height:auto}
svg text{fill:var(--ink);font-size:13px}rect{fill:var(--bar)}
""".replace("\n", "")


def _html_table(table: Table) -> str:
    if not table.rows:
        return f"<h2>{_esc(table.title)}</h2><p>Nothing.</p>"
    numeric = [all(isinstance(row[index], int | float) for row in table.rows) for index in range(len(table.header))]
    mark = [' class="n"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th{mark[i]}>{_esc(cell)}</th>" for i, cell in enumerate(table.header))
    rows = "".join(
        "<tr>" + "".join(f"<td{mark[i]}>{_esc(_text(cell))}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in table.rows[:_MAX_ROWS]
    )
    rest = len(table.rows) - _MAX_ROWS
    note = table.note + (f" {rest:,} more rows are not shown." if rest > 0 else "")
    return (
        f'<h2>{_esc(table.title)}</h2><p>{_esc(note)}</p><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _html_bars(chart: Bars) -> str:
    bars = list(chart.bars[:_MAX_BARS])
    if not bars:
        return ""
    most = max(value for _, value in bars) or 1
    height = 24 * len(bars)
    parts = []
    for index, (label, value) in enumerate(bars):
        y = 24 * index
        width = 420 * value / most
        short = label if len(label) <= 42 else label[:20] + "…" + label[-20:]
        parts.append(
            f'<text x="310" y="{y + 16}" text-anchor="end">{_esc(short)}<title>{_esc(label)}</title></text>'
            f'<rect x="320" y="{y + 4}" width="{width:.1f}" height="16" rx="2"/>'
            f'<text x="{326 + width:.1f}" y="{y + 16}">{_esc(_text(value))} {_esc(chart.unit)}</text>'
        )
    rest = len(chart.bars) - len(bars)
    note = f"<p>{rest:,} smaller ones are not shown.</p>" if rest else ""
    return (
        f'<h2>{_esc(chart.title)}</h2><svg viewBox="0 0 960 {height}" role="img" aria-label="{_esc(chart.title)}">'
        f"{''.join(parts)}</svg>{note}"
    )


def _text(cell: Cell) -> str:
    if isinstance(cell, bool | str):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.0f}" if cell.is_integer() else f"{cell:,.4g}" if abs(cell) < 10_000 else f"{cell:,.1f}"


def _esc(text: str) -> str:
    return html.escape(text)


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
