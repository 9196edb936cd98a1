"""report.html and report.md: a verdict, key figures, then blocks to look at; self-contained, without scripts.

Kubeflow shows HTML artifacts in a sandboxed frame, 600 pixels wide in its side panel. So everything is inline, text
never shrinks with the page, and the page stays below 1 MB. Charts take their colours from report.css: one colour means
one thing throughout a report, by day and by night.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pairmill.report import format_number
from pairmill.report.html import Html, join, tag
from pairmill.report.markdown import VISIBLE, plain

_MAX_PAGE = 900_000
"""Bytes; Kubeflow's interface shows at most 1 MB of an artifact."""
_MAX_ROWS = 500
_FRAME = 480
"""Pixels of height in a notebook."""
_DENSE = 12
"""Columns above which a table has small letters, so that a screen of 1280 pixels shows them all."""
_NARROW = 2
"""Columns that fit on a page of 400 pixels."""
_MAX_LOOK_AT = 40
_MAX_NAMES = 5
_MAX_TEXT = 500
_MAX_LINES = 16
MAX_CELL = 300
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_FIGURE = re.compile("none|never|\u2013|[-+<]?[0-9][0-9.,]*(e[-+]?[0-9]+)?(\u2011[0-9,]+)?([%\u00d7]| [kMGTP]?B)?")
"""A number with its sign and unit, a range of numbers, or the words that are beside such in a column."""


class Percent(float):
    """A share from 0 to 1, written in per cent."""

    @classmethod
    def ratio(cls, part: float, whole: float) -> Percent:
        """``part / whole``; of nothing, not a number."""
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


class Bytes(int):
    """A number of bytes, written in the unit that suits it: ``1.2 MB``."""

    def __str__(self) -> str:
        power = min((len(f"{int(self)}") - 1) // 3, len(_UNITS) - 1)
        return f"{self / 1000**power:,.3g} {_UNITS[power]}" if power else f"{int(self)} B"


Cell = str | int | float


def format_cell(cell: Cell) -> str:
    """Numbers are grouped by thousands."""
    return str(cell) if isinstance(cell, bool | str | Percent | Bytes) else format_number(cell)


def cut(text: str, most: int = _MAX_TEXT) -> str:
    """Return the beginning of a long text."""
    shown = "\n".join(text[: most + 1].split("\n")[:_MAX_LINES])[:most]
    return text if shown == text else shown + "…"


def heading(title: str, level: int) -> Html:
    return tag(f"h{level}", title)


class Block:
    """A part of a report; :meth:`html` alone if it is for the page only."""

    def html(self, level: int) -> Html:
        """Part of a page, nothing if the block is empty; ``level`` is the level of its heading."""
        raise NotImplementedError

    def markdown(self, level: int) -> list[str]:
        """Lines that say the same."""
        return []


def _is_figure(cell: Cell) -> bool:
    """Return whether a cell is a number, also one that is written with a sign, a unit or a range."""
    return isinstance(cell, int | float) or _FIGURE.fullmatch(str(cell)) is not None


class Link(str):
    """A text of a table that leads to ``to``, an address relative to the page."""

    to: str

    def __new__(cls, text: str, to: str) -> Link:
        """Return the text with its address."""
        made = super().__new__(cls, text)
        made.to = to
        return made


def _names(header: Sequence[str]) -> str:
    """Return the names of columns as variables of CSS."""
    quoted = (re.sub(r'["\\]', r"\\\g<0>", " ".join(name.split())) for name in header)
    return ";".join(f'--n{at}:"{name}"' for at, name in enumerate(quoted, 1))


def _shown(cell: Cell) -> str:
    text = cut(format_cell(cell), MAX_CELL)
    return tag("a", text, href=cell.to) if isinstance(cell, Link) else text


@dataclass(frozen=True)
class Table(Block):
    """A table: numbers, and texts that are numbers, are right-aligned; numbers are grouped by thousands."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def html(self, level: int) -> Html:
        if not self.rows:
            return join(heading(self.title, level), tag("p", "Nothing."))
        columns = list(zip(*self.rows, strict=True))
        numeric = ["n" if all(map(_is_figure, column)) else "" for column in columns]
        # Long cells may break anywhere, so that short ones beside them need not.
        wide = [
            mark or ("w" if any(len(str(cell)) > 30 for cell in column) else "")
            for mark, column in zip(numeric, columns, strict=True)
        ]
        head = [tag("th", cell, class_=mark) for cell, mark in zip(self.header, numeric, strict=True)]
        body = [
            tag("tr", *(tag("td", _shown(cell), class_=mark) for cell, mark in zip(row, wide, strict=True)))
            for row in self.rows[:_MAX_ROWS]
        ]
        rest = len(self.rows) - _MAX_ROWS
        note = self.note + (f" {rest:,} more rows are not shown." if rest > 0 else "")
        # On a narrow page each row of many columns is a card, whose cells say what they are.
        dense = " dense" if len(self.header) > _DENSE else ""
        many = {"class_": f"many{dense}", "style": _names(self.header)} if len(self.header) > _NARROW else {}
        table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), **many)
        return join(heading(self.title, level), tag("p", note), tag("div", table, class_="scroll"))

    def markdown(self, level: int) -> list[str]:
        lines = ["", f"{'#' * level} {plain(self.title)}", ""]
        if not self.rows:
            return [*lines, "Nothing."]
        if self.note:
            lines += [plain(self.note), ""]
        lines += ["| " + " | ".join(map(plain, self.header)) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(plain(format_cell(cell)) for cell in row) + " |" for row in self.rows[:_MAX_ROWS]]
        if len(self.rows) > _MAX_ROWS:
            lines.append(f"\n({len(self.rows) - _MAX_ROWS:,} more rows are not shown)")
        return lines

    def text(self) -> str:
        """Return the table as lines for a terminal, its columns aligned: the first left, those with numbers right."""
        lines = [[*self.header], *([format_cell(cell) for cell in row] for row in self.rows)]
        columns = list(zip(*lines, strict=True))
        numeric = [
            at > 0 and any(_is_figure(cell) and cell != "\u2013" for cell in column[1:])
            for at, column in enumerate(columns)
        ]
        widths = [max(map(len, column)) for column in columns]
        texts = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            )
            for line in lines
        ]
        return "".join(f"{text.rstrip()}\n" for text in texts)


@dataclass(frozen=True)
class Samples(Block):
    """Rows of text to read: white space is kept, long texts are cut. For the page only.

    Args:
        rows: texts by name.
        tag: the name of a short text that is shown above the others.
    """

    title: str
    rows: Sequence[Mapping[str, str]]
    tag: str = ""

    def html(self, level: int) -> Html:
        return join(heading(self.title, level), *map(self._frame, self.rows)) if self.rows else Html()

    def _frame(self, row: Mapping[str, str]) -> Html:
        above = []
        if self.tag in row:
            value = tag("b", cut(row[self.tag]) or "(empty)")
            above = [tag("p", f"{self.tag} ", value, class_="tag")]
        # A line feed right after <pre> is not part of the text: after ours, the text's own first one stays.
        texts = [
            tag("div", tag("p", name), tag("pre", "\n", cut(text), dir="auto") if text else tag("p", _EMPTY))
            for name, text in row.items()
            if name != self.tag
        ]
        return tag("div", *above, tag("div", *texts, class_="texts"), class_="sample")


_EMPTY = tag("i", "(empty)")


@dataclass(frozen=True)
class Section(Block):
    """Blocks under one heading that a reader folds and unfolds; unfolded on paper.

    Args:
        blocks: its content.
        summary: shown beside the heading, so that a folded section says something.
        unfolded: how it is at first.
    """

    title: str
    blocks: Sequence[Block]
    summary: str = ""
    unfolded: bool = False

    def html(self, level: int) -> Html:
        summary = tag("summary", heading(self.title, level), " ", tag("span", self.summary))
        return tag("details", summary, *(block.html(level + 1) for block in self.blocks), open=self.unfolded)

    def markdown(self, level: int) -> list[str]:
        """Return its tables after the summary; nothing if it has none."""
        lines = [line for block in self.blocks for line in block.markdown(level + 1)]
        return ["", f"{'#' * level} {plain(self.title)}", "", plain(self.summary), *lines] if lines else []


@dataclass
class Report:
    """What a person sees of a stage's result.

    Args:
        title: name of the stage.
        figures: the key figures by name.
        sections: the most important first: what does not fit on the page is left out from the end.
        verdict: one sentence: what came in, what became of it.
        look_at: what is unusual, each a sentence; empty = nothing.
        command: that makes it; empty = not known. For the page only.
        options: what it was made with, by name. For the page only.
        links: the pages that it follows from. For the page only.
        vanished: what lost most of its rows (:mod:`pairmill.engine.vanished`), above the sections; None = nothing did.
    """

    title: str
    figures: Mapping[str, Cell] = field(default_factory=dict)
    sections: Sequence[Block] = ()
    verdict: str = ""
    look_at: Sequence[str] = ()
    command: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[Link] = ()
    vanished: Table | None = None

    def html(self) -> str:
        """Return a whole page, always below 1 MB."""
        style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
        figures = {name: format_cell(value) for name, value in self.figures.items()}
        look_at = [tag("li", cut(line)) for line in self.look_at[:_MAX_LOOK_AT]]
        body = join(
            heading(self.title, 1),
            tag("p", self.verdict, class_="verdict") if self.verdict else "",
            tag("ul", *look_at, class_="look") if look_at else "",
            tag(
                "dl",
                *(
                    tag("div", tag("dt", name), tag("dd", cut(value), class_="small" if len(value) > 16 else ""))
                    for name, value in figures.items()
                ),
            ),
            self._made_by() if self.command else "",
            tag("p", "Follows from: ", *self._links()) if self.links else "",
        )
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">{tag("title", self.title)}'
            f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body><main>{body}'
        )
        parts, rest = self._that_fit(lambda block: block.html(2), _MAX_PAGE - len(page.encode()))
        return page + "".join(parts) + (tag("p", rest) if rest else "") + "</main></body></html>\n"

    def _made_by(self) -> Html:
        command = tag("p", "Made by ", tag("code", self.command))
        rows = [(name, value or "(empty)") for name, value in self.options.items()]
        table = Table("That its bytes follow from", ("Option", "Value"), rows)
        return join(command, Section("Options", [table], f"{len(rows)}").html(2) if rows else "")

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for a notebook, whose style it leaves alone."""
        frame = tag("iframe", srcdoc=self.html(), sandbox=True, width="100%", height=_FRAME, style="border:0")
        return str(frame)

    def _links(self) -> Iterator[str]:
        for at, link in enumerate(self.links):
            yield from [" · "] if at else []
            yield tag("a", link, href=link.to)

    def markdown(self) -> str:
        """Return the same as text, also below 1 MB, without the blocks that are for the page only."""
        lines = [f"# {plain(self.title)}", ""]
        lines += [plain(self.verdict), ""] if self.verdict else []
        if self.look_at:
            lines += [*(f"- look at: {plain(line)}" for line in self.look_at[:_MAX_LOOK_AT]), ""]
        lines += [f"- **{plain(name)}**: {plain(format_cell(value))}" for name, value in self.figures.items()]
        head = _text(lines)
        parts, rest = self._that_fit(lambda block: _text(block.markdown(2)), _MAX_PAGE - len(head.encode()))
        return head + "".join(parts) + (f"\n{rest}\n" if rest else "")

    def _that_fit(self, write: Callable[[Block], str], room: int) -> tuple[list[str], str]:
        """Return the first sections, as many as fit into ``room`` bytes; then a sentence about the others, if any."""
        parts: list[str] = []
        blocks = [*([self.vanished] if self.vanished else []), *self.sections]
        for block in blocks:
            part = write(block)
            room -= len(part.encode())
            if room < 0:
                rest = len(blocks) - len(parts)
                return parts, f"{rest:,} more parts do not fit here; _MANIFEST.json holds their numbers."
            parts.append(part)
        return parts, ""


class RowCounts(Protocol):
    """Rows in, kept and dropped by reason, as a ledger has them."""

    rows_in: int
    rows_kept: int
    dropped: dict[str, int]


def describe_rows(ledger: RowCounts, kept: str = "kept") -> str:
    """Return what became of the rows, for a verdict: how many were kept, how many dropped for each reason."""
    lost = sum(ledger.dropped.values())
    share = Percent.ratio(ledger.rows_kept, ledger.rows_in)
    text = f"{ledger.rows_in:,} in → {ledger.rows_kept:,} {kept} ({share})"
    if not lost:
        return f"{text}, none dropped"
    reasons = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
    names = describe_names([f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons])
    return f"{text}, {lost:,} dropped: {names}"


def describe_names(names: Sequence[str]) -> str:
    """Return the first of many names, for a sentence."""
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines).translate(VISIBLE)
