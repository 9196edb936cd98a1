"""report.html and report.md: a verdict, key figures and blocks to look at; self-contained, without scripts.

Kubeflow shows HTML artifacts in a sandboxed frame, 600 pixels wide in its side panel: everything is inline, no text
shrinks with the page, and the page stays below 1 MB. Charts take their colours from the page's style, so that one
colour means one thing throughout a report, by day and by night.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Protocol

from pairmill.report.markdown import VISIBLE, plain

if TYPE_CHECKING:
    from pairmill.engine.manifest import Ledger

_MAX_PAGE = 900_000
"""Bytes; Kubeflow's interface shows no more than 1 MB of an artifact."""
_MAX_ROWS = 500
_MAX_BARS = 40
_MAX_CELL = 300
_MAX_LABEL = 42
_MAX_NAMES = 5
_MAX_TEXT = 500
_MAX_LINES = 16


class Percent(float):
    """A share from 0 to 1, written in per cent."""

    @classmethod
    def of(cls, part: float, whole: float) -> Percent:
        """What share of ``whole`` this is; of nothing there is none."""
        return cls(part / whole if whole else math.nan)

    def __str__(self) -> str:
        """Only all of it is 100%, and only nothing is 0%."""
        if math.isnan(self):
            return "–"
        if 0 < self < 0.0005:
            return "<0.1%"
        if 0.9995 <= self < 1:
            return ">99.9%"
        return f"{float(self):.1%}" if 0 < self < 1 else f"{float(self):.0%}"


Cell = str | int | float


class Block(Protocol):
    """A part of a report."""

    def html(self, level: int) -> str:
        """Part of a page; ``level`` is that of its heading."""

    def markdown(self, level: int) -> list[str]:
        """Lines that say the same, none if the block is for the page only."""


@dataclass(frozen=True)
class Table:
    """A table: numbers are right-aligned and grouped by thousands."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def html(self, level: int) -> str:
        """A table that scrolls sideways where the page is narrow."""
        if not self.rows:
            return f"{_heading(self.title, level)}<p>Nothing.</p>"
        numeric = [all(isinstance(row[index], int | float) for row in self.rows) for index in range(len(self.header))]
        mark = [' class="n"' if is_number else "" for is_number in numeric]
        # Long cells may break anywhere, so that short ones beside them need not.
        wide = [
            mark[i] or (' class="w"' if any(len(str(row[i])) > 30 for row in self.rows) else "")
            for i in range(len(mark))
        ]
        head = "".join(f"<th{mark[i]}>{_esc(cell)}</th>" for i, cell in enumerate(self.header))
        rows = "".join(
            "<tr>"
            + "".join(f"<td{wide[i]}>{_esc(_cut(_text(cell), _MAX_CELL))}</td>" for i, cell in enumerate(row))
            + "</tr>"
            for row in self.rows[:_MAX_ROWS]
        )
        rest = len(self.rows) - _MAX_ROWS
        note = self.note + (f" {rest:,} more rows are not shown." if rest > 0 else "")
        return (
            f'{_heading(self.title, level)}<p>{_esc(note)}</p><div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )

    def markdown(self, level: int) -> list[str]:
        """A table."""
        return _md_table(self.title, level, self.header, self.rows, self.note)


@dataclass(frozen=True)
class Bars:
    """A horizontal bar chart of ``(label, value)``.

    Args:
        title: heading.
        bars: in the order in which they are drawn.
        unit: written behind the values.
        colour: 0 = the usual one; others as the parts of :class:`Stacked` have them.
        tabled: whether text has the bars as a table; not if a table beside them has the numbers.
    """

    title: str
    bars: Sequence[tuple[str, float]]
    unit: str = ""
    colour: int = 0
    tabled: bool = True

    def html(self, level: int) -> str:
        """A chart; nothing if there is no bar."""
        bars = self.bars[:_MAX_BARS]
        if not bars:
            return ""
        most = max(value for _, value in bars) or 1
        rows = [
            (
                label,
                label,
                f'<b class="c{self.colour % 5}" style="width:{100 * value / most:.1f}%"></b>' * bool(value),
                value,
            )
            for label, value in bars
        ]
        rest = len(self.bars) - len(bars)
        note = f"<p>{rest:,} smaller ones are not shown.</p>" if rest else ""
        said = _said(self.title, bars, self.unit)
        return f"{_heading(self.title, level)}{_bars(said, rows, self.unit)}{note}"

    def markdown(self, level: int) -> list[str]:
        """A table, or nothing."""
        return _md_table(self.title, level, ("", self.unit), self.bars) if self.tabled else []


@dataclass(frozen=True)
class Stacked:
    """Horizontal bars of equal length, each cut into shares of its own whole: 20 rows and 200 million compare.

    For the page only: the numbers belong into a table beside it.

    Args:
        title: heading.
        parts: what the parts are called; the first has the usual colour.
        bars: ``(label, values)`` with a value for each part.
        unit: written behind the sum of a bar.
    """

    title: str
    parts: Sequence[str]
    bars: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""

    def html(self, level: int) -> str:
        """A chart with a legend; nothing if there is no bar."""
        bars = self.bars[:_MAX_BARS]
        if not bars:
            return ""
        legend = "".join(
            f'<span><b class="c{colour % 5}"></b>{_esc(name)}</span>' for colour, name in enumerate(self.parts)
        )
        rows = []
        for label, values in bars:
            said = ", ".join(f"{_text(value)} {name}" for name, value in zip(self.parts, values, strict=True))
            # Grown from nothing in proportion: what is there at all keeps the two pixels that every bar has.
            drawn = "".join(
                f'<b class="c{colour % 5}" style="flex:{value / max(values):.4f} 0 0"></b>'
                for colour, value in enumerate(values)
                if value
            )
            rows.append((label, f"{label}: {said}", drawn, sum(values)))
        rest = len(self.bars) - len(bars)
        note = f"<p>{rest:,} more are not shown.</p>" if rest else ""
        said = f"{self.title}; the numbers stand in the table"
        key = f'<p class="key">{legend}</p>'
        return f"{_heading(self.title, level)}{key}{_bars(said, rows, self.unit)}{note}"

    def markdown(self, level: int) -> list[str]:
        """Nothing."""
        return []


@dataclass(frozen=True)
class Histogram:
    """A column chart of ``(bin, count)``. Two that follow each other stand side by side. For the page only.

    Args:
        title: heading.
        bins: their labels and counts, in order, without gaps.
        axis: what the labels are.
        unit: what is counted.
    """

    title: str
    bins: Sequence[tuple[str, int]]
    axis: str = ""
    unit: str = ""

    def html(self, level: int) -> str:
        """A chart with both axes; nothing if there is no bin."""
        if not self.bins:
            return ""
        ticks = _ticks(max(number for _, number in self.bins))
        left, right, top, bottom = 52.0, 466.0, 22.0, 192.0
        slot = (right - left) / len(self.bins)
        longest = max(len(label) for label, _ in self.bins)
        slanted = 6.6 * longest + 4 > slot
        parts = [_rules(ticks, left, right, top, bottom, self.unit)]
        column = min(48.0, slot - 2)
        for index, (label, number) in enumerate(self.bins):
            middle = left + slot * (index + 0.5)
            height = (bottom - top) * number / ticks[-1]
            if number:
                height = max(1.5, height)
            x, y = middle + 4, bottom + 14
            turn = f' text-anchor="end" transform="rotate(-50 {x:.1f} {y:.1f})"' if slanted else ' text-anchor="middle"'
            parts.append(
                f"<g><title>{_esc(f'{label} {self.axis}: {number:,} {self.unit}')}</title>"
                f'<rect class="c0" x="{middle - column / 2:.1f}" y="{bottom - height:.1f}" width="{column:.1f}" '
                f'height="{height:.1f}"/>'
                f'<text class="axis" x="{x if slanted else middle:.1f}" y="{y:.1f}"{turn}>{_esc(label)}</text></g>'
            )
        below = bottom + (20 + 6.6 * longest * 0.77 if slanted else 20) + 16
        parts.append(
            f'<text class="axis" x="{(left + right) / 2}" y="{below - 4:.1f}" text-anchor="middle">'
            f"{_esc(self.axis)}</text>"
        )
        said = _said(f"{self.title} in {self.axis}", self.bins, self.unit)
        return f'<div class="half">{_heading(self.title, level)}{_svg(470, below, said, parts)}</div>'

    def markdown(self, level: int) -> list[str]:
        """Nothing."""
        return []


@dataclass(frozen=True)
class Curve:
    """A line through points ``(x, y)`` over an axis of doublings.

    Args:
        title: heading.
        points: in order of x, which is 1 or more.
        axis: what x is.
        unit: what y is.
        marks: single points beside the line, ``(label, x, y)``.
    """

    title: str
    points: Sequence[tuple[int, float]]
    axis: str
    unit: str
    marks: Sequence[tuple[str, int, float]] = ()

    def html(self, level: int) -> str:
        """A chart with both axes; nothing if there is no point."""
        if not self.points:
            return ""
        left, right, top, bottom = 52.0, 446.0, 22.0, 192.0
        ticks = _ticks(max(y for _, y in [*self.points, *(mark[1:] for mark in self.marks)]))
        first, last = (math.log2(x) for x in (self.points[0][0], self.points[-1][0]))
        wide = (right - left) / max(1.0, last - first)

        def place(x: float, y: float) -> tuple[float, float]:
            return left + wide * (math.log2(x) - first), bottom - (bottom - top) * y / ticks[-1]

        parts = [_rules(ticks, left, right, top, bottom, self.unit)]
        powers = range(math.ceil(first), math.floor(last) + 1, max(1, round((last - first) / 5)))
        ends = dict.fromkeys((self.points[0][0], self.points[-1][0]))
        for tick in [2**power for power in powers] if len(powers) > 1 else ends:
            x, y = place(tick, 0)
            parts.append(f'<text class="axis" x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{tick:,}</text>')
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in self.points))
        parts.append(f'<polyline points="{line}"/>')
        named = [("", *point) for point in self.points] + [*self.marks]
        for label, *point in named:
            x, y = place(*point)
            said = f"{label} {point[0]:,} {self.axis}: {_text(float(point[1]))} {self.unit}".strip()
            parts.append(
                f'<circle class="c{2 if label else 0}" cx="{x:.1f}" cy="{y:.1f}" r="{4 if label else 3}">'
                f"<title>{_esc(said)}</title></circle>"
            )
            if label:
                parts.append(f'<text x="{x + 22:.1f}" y="{y + 20:.1f}" text-anchor="end">{_esc(label)}</text>')
        parts.append(
            f'<text class="axis" x="{(left + right) / 2}" y="224" text-anchor="middle">{_esc(self.axis)}</text>'
        )
        values = [(f"{label} {x:,}".strip(), y) for label, x, y in named]
        said = _said(f"{self.title} in {self.axis}", values, self.unit)
        return f'<div class="half">{_heading(self.title, level)}{_svg(470, 228, said, parts)}</div>'

    def markdown(self, level: int) -> list[str]:
        """A table of the points, marks last."""
        rows = [*((f"{x:,}", y) for x, y in self.points), *((f"{x:,} ({label})", y) for label, x, y in self.marks)]
        return _md_table(self.title, level, (self.axis, self.unit), rows)


@dataclass(frozen=True)
class Samples:
    """Rows of text to read: white space is kept, long ones are cut. For the page only.

    Args:
        title: heading.
        rows: texts by name.
        tag: the name of a short text that is drawn above the others.
    """

    title: str
    rows: Sequence[Mapping[str, str]]
    tag: str = ""

    def html(self, level: int) -> str:
        """One frame a row; nothing if there is no row."""
        if not self.rows:
            return ""
        return _heading(self.title, level) + "".join(self._frame(row) for row in self.rows)

    def _frame(self, row: Mapping[str, str]) -> str:
        tag = ""
        if self.tag in row:
            tag = f'<p class="tag">{_esc(self.tag)} <b>{_esc(_cut(row[self.tag])) or "(empty)"}</b></p>'
        # A line feed right behind <pre> is no part of the text: with one of ours, the text's own first one stays.
        texts = "".join(
            f'<div><p>{_esc(name)}</p><pre dir="auto">\n{_esc(_cut(text))}</pre></div>'
            if text
            else f"<div><p>{_esc(name)}</p><p><i>(empty)</i></p></div>"
            for name, text in row.items()
            if name != self.tag
        )
        return f'<div class="sample">{tag}<div class="texts">{texts}</div></div>'

    def markdown(self, level: int) -> list[str]:
        """Nothing."""
        return []


@dataclass(frozen=True)
class Section:
    """Blocks under one heading that a reader folds and unfolds; unfolded on paper.

    Args:
        title: heading.
        blocks: what is in it.
        summary: stands beside the heading, so that a folded section says something.
        unfolded: how it is at first.
    """

    title: str
    blocks: Sequence[Block]
    summary: str = ""
    unfolded: bool = False

    def html(self, level: int) -> str:
        """An element that folds without a script."""
        body = "".join(block.html(level + 1) for block in self.blocks)
        return (
            f"<details{' open' if self.unfolded else ''}><summary>{_heading(self.title, level)} "
            f"<span>{_esc(self.summary)}</span></summary>{body}</details>"
        )

    def markdown(self, level: int) -> list[str]:
        """Its tables, with the summary above; nothing if it has none."""
        lines = [line for block in self.blocks for line in block.markdown(level + 1)]
        return ["", f"{'#' * level} {plain(self.title)}", "", plain(self.summary), *lines] if lines else []


@dataclass
class Report:
    """What a person sees of a stage's result.

    Args:
        title: name of the stage.
        figures: by their names; all that counts, without a word.
        sections: the most important first: what has no room on the page is left out from its end.
        verdict: one sentence: what came in, what became of it.
        look_at: what is unusual, each a sentence; empty = nothing is.
    """

    title: str
    figures: Mapping[str, Cell] = field(default_factory=dict)
    sections: Sequence[Block] = ()
    verdict: str = ""
    look_at: Sequence[str] = ()

    def html(self) -> str:
        """A whole page, below 1 MB whatever it is of."""
        figures = "".join(
            f"<div><dt>{_esc(name)}</dt><dd{_small(_text(value))}>{_esc(_cut(_text(value)))}</dd></div>"
            for name, value in self.figures.items()
        )
        look_at = "".join(f"<li>{_esc(_cut(line))}</li>" for line in self.look_at[:_MAX_BARS])
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_esc(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head>'
            f"<body><main><h1>{_esc(self.title)}</h1>"
            + f'<p class="verdict">{_esc(self.verdict)}</p>' * bool(self.verdict)
            + f'<ul class="look">{look_at}</ul>' * bool(look_at)
            + f"<dl>{figures}</dl>"
        )
        parts, rest = self._fitting(lambda block: block.html(2), _MAX_PAGE - len(page.encode()))
        return page + "".join(parts) + f"<p>{rest}</p>" * bool(rest) + "</main></body></html>\n"

    def markdown(self) -> str:
        """The same as text, below 1 MB too, without what is for the page only."""
        lines = [f"# {plain(self.title)}", ""]
        lines += [plain(self.verdict), ""] * bool(self.verdict)
        lines += [f"- look at: {plain(line)}" for line in self.look_at[:_MAX_BARS]]
        lines += [""] * bool(self.look_at)
        lines += [f"- **{plain(name)}**: {plain(_text(value))}" for name, value in self.figures.items()]
        head = _lines(lines)
        parts, rest = self._fitting(lambda block: _lines(block.markdown(2)), _MAX_PAGE - len(head.encode()))
        return head + "".join(parts) + f"\n{rest}\n" * bool(rest)

    def _fitting(self, written: Callable[[Block], str], room: int) -> tuple[list[str], str]:
        """The first sections that have room in so many bytes, written; and what is said of those that have none."""
        parts: list[str] = []
        for block in self.sections:
            part = written(block)
            room -= len(part.encode())
            if room < 0:
                rest = len(self.sections) - len(parts)
                return parts, f"{rest:,} more parts have no room here; _MANIFEST.json holds their numbers."
            parts.append(part)
        return parts, ""


def rows_said(ledger: Ledger, kept: str = "kept") -> str:
    """What became of the rows, by its reasons, for a verdict."""
    lost = sum(ledger.dropped.values())
    share = Percent.of(ledger.rows_kept, ledger.rows_in)
    text = f"{ledger.rows_in:,} in → {ledger.rows_kept:,} {kept} ({share})"
    if not lost:
        return f"{text}, none dropped"
    reasons = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
    said = names_said([f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons])
    return f"{text}, {lost:,} dropped: {said}"


def names_said(names: Sequence[str]) -> str:
    """The first of many names, for a sentence."""
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


# Blue, ochre and vermilion differ in lightness too: they are told apart by colour-blind eyes and on grey paper.
_CSS = """
:root{color-scheme:light;--ink:#1b1f24;--soft:#57616c;--line:#d9dee4;--bg:#fff;--card:#f6f8fa;
--c0:#3c6fd1;--c1:#e0a526;--c2:#c2402b;--c3:#2b8a78;--c4:#7d55b8}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;
--ink:#e8ebef;--soft:#9aa5b1;--line:#333b45;--bg:#15181c;--card:#1c2127;
--c0:#7aa2f0;--c1:#d9a441;--c2:#e5654f;--c3:#5bb8a5;--c4:#b294e0}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg);margin:0;overflow-wrap:anywhere}
main{max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
h3,h4{font-size:.95rem;margin:1.25rem 0 .35rem}
dl{display:flex;flex-wrap:wrap;gap:.75rem;margin:0}
dl div{flex:1 1 8.5rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .75rem}
dl div:has(.small){flex-basis:18rem}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums;white-space:nowrap}
dd.small{font:.8rem/1.4rem ui-monospace,monospace;white-space:normal}
.verdict{color:var(--ink);font-size:1.1rem;margin:0 0 .75rem}
.look{border-left:4px solid var(--c1);margin:0 0 1rem;padding:.1rem 0 .1rem 1.5rem}
.scroll{overflow-x:auto}table{border-collapse:separate;border-spacing:0;width:100%}
th:first-child,td:first-child{position:sticky;left:0;background:var(--bg)}
th,td{overflow-wrap:normal;padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.w{overflow-wrap:anywhere;min-width:12rem}tbody tr:hover>*{background:var(--card)}
th{color:var(--soft);font-weight:600;font-size:.85rem;vertical-align:bottom}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}
p{color:var(--soft);margin:.25rem 0}svg{display:block;width:100%;height:auto}
.bars{display:grid;grid-template-columns:fit-content(40%) 1fr auto;gap:.35rem .6rem;align-items:center;
font-size:.85rem;line-height:1.2}
.bars span:nth-child(3n){text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal}
.bars i{display:flex;min-width:5rem}
.bars b,.key b{display:block;height:1rem;min-width:2px;border-radius:2px;print-color-adjust:exact}
.key{font-size:.85rem;margin:0 0 .5rem}.key span{margin-right:1.25rem;white-space:nowrap}
.key b{display:inline-block;width:1rem;margin-right:.4rem;vertical-align:-.15rem}
b.c0{background:var(--c0)}b.c1{background:var(--c1)}b.c2{background:var(--c2)}b.c3{background:var(--c3)}
b.c4{background:var(--c4)}
svg text{fill:var(--ink);font-size:13px}svg .axis{fill:var(--soft);font-size:12px}
line{stroke:var(--line)}polyline{fill:none;stroke:var(--c0);stroke-width:2}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}
.half{display:inline-block;vertical-align:top;width:50%;box-sizing:border-box;padding-right:1rem}
details{border:1px solid var(--line);border-radius:.5rem;margin:.75rem 0;padding:0 1rem}
*:not(details)+details{margin-top:2rem}details[open]{padding-bottom:1rem}
summary+h3,summary+.half h3,summary+.half+.half h3{margin-top:.25rem}
summary{cursor:pointer;padding:.6rem 0;color:var(--soft)}
summary h2,summary h3{display:inline;color:var(--ink);margin:0 .5rem 0 .25rem}
.sample{border:1px solid var(--line);border-radius:.5rem;background:var(--card);
margin:.5rem 0;padding:.5rem .75rem;font-size:.85rem}
.texts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:0 1.5rem}
.texts div{min-width:0}.tag{unicode-bidi:isolate}.tag b{color:var(--ink)}
pre{font:.8rem/1.45 ui-monospace,monospace;white-space:pre-wrap;tab-size:4;margin:0}
@media(max-width:44rem){.half{width:100%;padding:0}main{margin:1rem auto}table{font-size:.85rem}
th,td{padding:.25rem .4rem}td.w{min-width:9rem}}
@media print{main{max-width:none;margin:0;padding:0}body{font-size:10pt}
details{border:0;padding:0}details::details-content{display:block;content-visibility:visible}
summary{list-style:none}h1,h2,h3,h4,summary{break-after:avoid}
tr,svg,.half,.sample,dl div{break-inside:avoid}.scroll{overflow:visible}}
""".replace("\n", "")


def _svg(width: float, height: float, said: str, parts: Iterable[str]) -> str:
    return (
        f'<div class="scroll"><svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{_attribute(said)}">'
        f"{''.join(parts)}</svg></div>"
    )


def _said(title: str, values: Iterable[tuple[str, float]], unit: str) -> str:
    """What a chart is to a reader who does not see it."""
    return f"{title}: " + "; ".join(
        f"{_cut(label, _MAX_CELL)}: {_text(value)} {unit}".rstrip() for label, value in values
    )


def _bars(said: str, rows: Iterable[tuple[str, str, str, float]], unit: str) -> str:
    """Lines of label, bar and value; of each also what it says to who points at it. A grid, so that texts keep size."""
    lines = "".join(
        f'<span title="{_attribute(_cut(full, _MAX_CELL))}">{_esc(_short_label(label))}</span><i>{drawn}</i>'
        f"<span>{_esc(f'{_text(value)} {unit}'.rstrip())}</span>"
        for label, full, drawn, value in rows
    )
    return f'<div class="bars" role="img" aria-label="{_attribute(said)}">{lines}</div>'


def _short_label(label: str) -> str:
    """Names of files differ at both ends."""
    half = _MAX_LABEL // 2 - 1
    return label if len(label) <= _MAX_LABEL else label[:half] + "…" + label[-half:]


def _ticks(most: float) -> list[int]:
    """Round numbers from 0 to ``most`` or a little more, at most five steps apart."""
    step = next(base * 10**power for power in count() for base in (1, 2, 5) if most <= 5 * base * 10**power)
    return list(range(0, max(1, math.ceil(most / step)) * step + 1, step))


def _rules(ticks: Sequence[int], left: float, right: float, top: float, bottom: float, unit: str) -> str:
    """The lines across a chart, at these values, with the unit above them."""
    parts = [f'<text class="axis" x="0" y="10">{_esc(unit)}</text>']
    for tick in ticks:
        y = bottom - (bottom - top) * tick / ticks[-1]
        parts.append(
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        )
    return "".join(parts)


def _short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 10 * size or (number >= size and letter != "k"):
            return f"{number / size:g}{letter}"
    return f"{number:,}"


def _heading(title: str, level: int) -> str:
    return f"<h{level}>{_esc(title)}</h{level}>"


def _small(text: str) -> str:
    return ' class="small"' if len(text) > 16 else ""


def _cut(text: str, most: int = _MAX_TEXT) -> str:
    shown = "\n".join(text[: most + 1].split("\n")[:_MAX_LINES])[:most]
    return text if shown == text else shown + "…"


def _text(cell: Cell) -> str:
    if isinstance(cell, bool | str | Percent):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.0f}" if cell.is_integer() else f"{cell:,.4g}" if abs(cell) < 10_000 else f"{cell:,.1f}"


def _esc(text: str) -> str:
    return html.escape(text.translate(VISIBLE), quote=False)


def _attribute(text: str) -> str:
    return html.escape(text.translate(VISIBLE))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines).translate(VISIBLE)


def _md_table(
    title: str, level: int, header: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = ""
) -> list[str]:
    lines = ["", f"{'#' * level} {plain(title)}", ""]
    if not rows:
        return [*lines, "Nothing."]
    if note:
        lines += [plain(note), ""]
    lines.append("| " + " | ".join(plain(cell) for cell in header) + " |")
    lines.append("|" + "---|" * len(header))
    lines += ["| " + " | ".join(plain(_text(cell)) for cell in row) + " |" for row in rows[:_MAX_ROWS]]
    if len(rows) > _MAX_ROWS:
        lines.append(f"\n({len(rows) - _MAX_ROWS:,} more rows are not shown)")
    return lines
