"""Charts of a report: bars and heat maps as HTML, so that their texts keep their size; others as inline SVG."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from pairmill.report.html import Html, join, tag
from pairmill.report.model import MAX_CELL, Block, Table, cut, format_cell, heading

_MAX_BARS = 40
_MAX_LINES = 10
_MAX_PAIRS = 40
_NARROW = 24
_OTHERS = "all others"
_DARKEST = 55
"""Per cent of colour in a cell of a heat map: its number has to stay readable by day and by night."""
_MAX_LABEL = 42
_COLOURS = 5
_WIDTH, _LEFT, _TOP, _BOTTOM = 470, 52.0, 22.0, 192.0
"""Of an SVG: its width, and the left, upper and lower edge of the chart in it."""


@dataclass(frozen=True)
class Bars(Block):
    """A horizontal bar chart of ``(label, value)``.

    Args:
        bars: in the order in which they are drawn.
        unit: written after the values.
        colour: 0 = the usual one; others as for the parts of :class:`Stacked`.
        tabled: also show the bars as a table in text; False if a table beside them has the numbers.
        most: value of a bar of full length; None = the largest of them.
    """

    title: str
    bars: Sequence[tuple[str, float]]
    unit: str = ""
    colour: int = 0
    tabled: bool = True
    most: float | None = None

    def html(self, level: int) -> Html:
        most = self.most or max((value for _, value in self.bars[:_MAX_BARS]), default=0) or 1
        rows = [
            (label, label, [_bar(self.colour, f"width:{100 * value / most:.1f}%")] if value else [], value)
            for label, value in self.bars
        ]
        described = _describe(self.title, self.bars[:_MAX_BARS], self.unit)
        return _bars(heading(self.title, level), described, rows, self.unit, "smaller ones")

    def markdown(self, level: int) -> list[str]:
        return Table(self.title, ("", self.unit), self.bars).markdown(level) if self.tabled else []


@dataclass(frozen=True)
class Stacked(Block):
    """Horizontal bars of equal length, each cut into shares of its whole, so 20 rows and 200 million can be compared.

    For the page only: a table beside it has the numbers.

    Args:
        parts: names of the parts; the first has the usual colour.
        bars: ``(label, values)`` with a value for each part.
        unit: written after the sum of a bar.
    """

    title: str
    parts: Sequence[str]
    bars: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""

    def html(self, level: int) -> Html:
        legend = [tag("span", _bar(colour), name) for colour, name in enumerate(self.parts)]
        rows = []
        for label, values in self.bars:
            tip = ", ".join(f"{format_cell(value)} {name}" for name, value in zip(self.parts, values, strict=True))
            # Widths are shares of what is left after the two pixels that every bar has: a small share stays visible.
            drawn = [
                _bar(colour, f"flex:{value / max(values):.4f} 0 0") for colour, value in enumerate(values) if value
            ]
            rows.append((label, f"{label}: {tip}", drawn, sum(values)))
        head = join(heading(self.title, level), tag("p", *legend, class_="key"))
        return _bars(head, f"{self.title}; the numbers are in the table", rows, self.unit, "")


@dataclass(frozen=True)
class Grouped(Block):
    """A horizontal bar chart with several bars a label, all on one scale: a share now, and what it was before.

    For the page only: a table beside it has the numbers.

    Args:
        parts: names of the bars of a label; the first has the usual colour, and its value is written.
        bars: ``(label, values)`` with a value for each part.
        unit: written after the values.
    """

    title: str
    parts: Sequence[str]
    bars: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""

    def html(self, level: int) -> Html:
        most = max((value for _, values in self.bars[:_MAX_BARS] for value in values), default=0) or 1
        legend = [tag("span", _bar(colour), name) for colour, name in enumerate(self.parts)]
        rows = []
        for label, values in self.bars:
            tip = ", ".join(f"{name} {format_cell(value)}" for name, value in zip(self.parts, values, strict=True))
            # Nothing keeps its place, so that the others of a label are where they are in other labels.
            styles = [f"width:{100 * value / most:.1f}%" if value else "visibility:hidden" for value in values]
            drawn = tag("u", *(_bar(colour, style) for colour, style in enumerate(styles)))
            rows.append((label, f"{label}: {tip} {self.unit}".rstrip(), [drawn], values[0]))
        head = join(heading(self.title, level), tag("p", *legend, class_="key"))
        return _bars(head, f"{self.title}; the numbers are in the table", rows, self.unit, "smaller ones")


@dataclass(frozen=True)
class Histogram(Block):
    """A column chart of ``(bin, count)``. Two in succession are side by side. For the page only.

    Args:
        bins: their labels and counts, in order, without gaps.
        axis: what the labels are.
        unit: what is counted.
    """

    title: str
    bins: Sequence[tuple[str, int]]
    axis: str = ""
    unit: str = ""

    def html(self, level: int) -> Html:
        if not self.bins:
            return Html()
        ticks = _ticks(max(number for _, number in self.bins))
        right = 466.0
        slot = (right - _LEFT) / len(self.bins)
        longest = max(len(label) for label, _ in self.bins)
        slanted = 6.6 * longest + 4 > slot
        parts = [_rules(ticks, right, self.unit)]
        column = min(48.0, slot - 2)
        for index, (label, number) in enumerate(self.bins):
            middle = _LEFT + slot * (index + 0.5)
            height = max(1.5 if number else 0.0, (_BOTTOM - _TOP) * number / ticks[-1])
            x, y = middle + 4 * slanted, _BOTTOM + 14
            turn = f"rotate(-50 {x:.1f} {y:.1f})" if slanted else ""
            bar = tag("rect", class_="c0", x=middle - column / 2, y=_BOTTOM - height, width=column, height=height)
            anchor = "end" if slanted else "middle"
            text = tag("text", label, class_="axis", x=x, y=y, text_anchor=anchor, transform=turn)
            parts.append(tag("g", tag("title", f"{label} {self.axis}: {number:,} {self.unit}"), bar, text))
        bottom = _BOTTOM + 36 + (6.6 * longest * 0.77 if slanted else 0)
        described = _describe(f"{self.title} in {self.axis}", self.bins, self.unit)
        return _svg(heading(self.title, level), bottom, right, self.axis, described, parts)


@dataclass(frozen=True)
class Curve(Block):
    """A line through points ``(x, y)`` over an axis of doublings.

    Args:
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

    def html(self, level: int) -> Html:
        if not self.points:
            return Html()
        named = [*(("", *point) for point in self.points), *self.marks]
        ticks = _ticks(max(y for _, _, y in named))
        right = 446.0
        first, last = (math.log2(x) for x in (self.points[0][0], self.points[-1][0]))
        wide = (right - _LEFT) / max(1.0, last - first)

        def place(x: float, y: float) -> tuple[float, float]:
            return _LEFT + wide * (math.log2(x) - first), _BOTTOM - (_BOTTOM - _TOP) * y / ticks[-1]

        parts = [_rules(ticks, right, self.unit)]
        powers = range(math.ceil(first), math.floor(last) + 1, max(1, round((last - first) / 5)))
        ends = dict.fromkeys((self.points[0][0], self.points[-1][0]))
        labelled = [2**power for power in powers] if len(powers) > 1 else ends
        parts += [_axis(f"{tick:,}", place(tick, 0)[0], _BOTTOM + 16) for tick in labelled]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in self.points))
        parts.append(tag("polyline", points=line))
        for label, at, value in named:
            x, y = place(at, value)
            tip = f"{label} {at:,} {self.axis}: {format_cell(float(value))} {self.unit}".strip()
            colour, radius = ("c2", 4) if label else ("c0", 3)
            parts.append(tag("circle", tag("title", tip), class_=colour, cx=x, cy=y, r=radius))
            if label:
                parts.append(tag("text", label, x=x + 22, y=y + 20, text_anchor="end"))
        values = [(f"{label} {x:,}".strip(), y) for label, x, y in named]
        described = _describe(f"{self.title} in {self.axis}", values, self.unit)
        return _svg(heading(self.title, level), 228.0, right, self.axis, described, parts)

    def markdown(self, level: int) -> list[str]:
        """Return a table of the points, marks last."""
        rows = [*((f"{x:,}", y) for x, y in self.points), *((f"{x:,} ({label})", y) for label, x, y in self.marks)]
        return Table(self.title, (self.axis, self.unit), rows).markdown(level)


@dataclass(frozen=True)
class Distribution(Block):
    """A column chart of numbers counted between edges, with the bounds of a rule as lines. For the page only.

    Columns beyond a bound have the colour of what is dropped.

    Args:
        counts: of each bin; one fewer than the edges, or one more: the first is then below all, the last above all.
        edges: in ascending order.
        low: the least value that is kept; None = any.
        high: the greatest value that is kept; None = any.
        axis: what the edges are.
        unit: what is counted.
    """

    title: str
    counts: Sequence[int]
    edges: Sequence[float]
    low: float | None = None
    high: float | None = None
    axis: str = ""
    unit: str = ""

    def html(self, level: int) -> Html:
        if not any(self.counts):
            return Html()
        ticks, right = _ticks(max(self.counts)), 458.0
        slot = (right - _LEFT) / len(self.counts)
        open_ended = len(self.counts) > len(self.edges)
        parts = [_rules(ticks, right, self.unit)]
        for index, (number, (start, stop)) in enumerate(zip(self.counts, self._bins(), strict=True)):
            if not number:
                continue
            height = max(1.5, (_BOTTOM - _TOP) * number / ticks[-1])
            beyond = self._is_beyond(start, stop)
            wide = min(48.0, max(1.0, slot - 1))
            x, y = _LEFT + slot * (index + 0.5) - wide / 2, _BOTTOM - height
            bar = tag("rect", class_="c1" if beyond else "c0", x=x, y=y, width=wide, height=height)
            parts.append(tag("g", tag("title", f"{_between(start, stop)}: {number:,} {self.unit}"), bar))
        step = max(1, math.ceil(len(self.edges) / 5))
        for index in range(0, len(self.edges), step):
            x = _LEFT + slot * (index + open_ended)
            # A label in the middle of the last edge would leave the chart.
            parts.append(_axis(f"{self.edges[index]:.3g}", x, _BOTTOM + 16, "end" if x > right - 20 else "middle"))
        for name, bound in self._bounds():
            x = _LEFT + slot * min(len(self.counts), max(0.0, self._place(bound) + open_ended))
            anchor = "end" if x > (_LEFT + right) / 2 else "start"
            away = -5.0 if anchor == "end" else 5.0
            parts.append(tag("line", class_="bound", x1=x, x2=x, y1=4.0, y2=_BOTTOM))
            parts.append(tag("text", f"{name} {_compact(bound)}", x=x + away, y=12.0, text_anchor=anchor))
        values = [(_between(*ends), number) for ends, number in zip(self._bins(), self.counts, strict=True) if number]
        bounds = "".join(f", {name} {_compact(bound)}" for name, bound in self._bounds())
        described = _describe(f"{self.title} in {self.axis}{bounds}", values, self.unit)
        return _svg(heading(self.title, level), _BOTTOM + 38, right, self.axis, described, parts)

    def beyond(self) -> int:
        """Return what is counted in bins that are wholly beyond a bound."""
        return sum(n for n, ends in zip(self.counts, self._bins(), strict=True) if self._is_beyond(*ends))

    def ranges(self) -> list[str]:
        """Return the bins that count anything, as words."""
        return [_between(*ends) for n, ends in zip(self.counts, self._bins(), strict=True) if n]

    def _is_beyond(self, start: float, stop: float) -> bool:
        return (self.low is not None and stop <= self.low) or (self.high is not None and start >= self.high)

    def _bins(self) -> list[tuple[float, float]]:
        edges = [-math.inf, *self.edges, math.inf] if len(self.counts) > len(self.edges) else [*self.edges]
        return list(pairwise(edges))

    def _bounds(self) -> list[tuple[str, float]]:
        return [(name, bound) for name, bound in (("min", self.low), ("max", self.high)) if bound is not None]

    def _place(self, value: float) -> float:
        """Return where a value is, in bins from the first edge."""
        index = min(max(bisect_right(self.edges, value) - 1, 0), len(self.edges) - 2)
        start, stop = self.edges[index], self.edges[index + 1]
        return index + (value - start) / (stop - start)


@dataclass(frozen=True)
class HeatMap(Block):
    """A table of counts by two names: the more, the darker, and each with its number.

    Args:
        counts: by the name of the line, then by the name of the column.
        lines: what the lines are.
        columns: what the columns are.
        unit: what is counted.
        note: how to read it.
    """

    title: str
    counts: Mapping[str, Mapping[str, int]]
    lines: str
    columns: str
    unit: str = "rows"
    note: str = ""

    def html(self, level: int) -> Html:
        cells = {(line, column): n for line, result in self.counts.items() for column, n in result.items() if n}
        if not cells:
            return Html()
        # One order for lines and columns, so that what is within one name is on the diagonal.
        weights: dict[str, int] = {}
        for (line, column), number in cells.items():
            for name in {line, column}:
                weights[name] = weights.get(name, 0) + number
        order = sorted(weights, key=lambda name: (-weights[name], name))
        used, met = {line for line, _ in cells}, {column for _, column in cells}
        lines, columns = (_first([name for name in order if name in some]) for some in (used, met))
        shown: dict[tuple[str, str], int] = {}
        for (line, column), number in cells.items():
            at = line if line in lines else _OTHERS, column if column in columns else _OTHERS
            shown[at] = shown.get(at, 0) + number
        most = max(shown.values())
        head = [_name(name, tag("span", _short_label(name, _NARROW)), "col") for name in columns]
        body = []
        for line in lines:
            numbers = {column: shown.get((line, column), 0) for column in columns}
            drawn = [_heat(number, most, f"{line} → {name}", self.unit) for name, number in numbers.items()]
            total = sum(numbers.values())
            sum_ = tag("td", _compact(total), title=f"{total:,} {self.unit}")
            body.append(tag("tr", _name(line, _short_label(line, _NARROW), "row"), *drawn, sum_))
        corner = tag("th", f"{self.lines} ↓ {self.columns} →")
        top = tag("thead", tag("tr", corner, *head, _name("all", tag("span", "all"), "col")))
        table = tag("table", top, tag("tbody", *body), class_="heat")
        note = tag("p", self.note) if self.note else ""
        return join(heading(self.title, level), note, tag("div", table, class_="scroll"))

    def markdown(self, level: int) -> list[str]:
        """Return a table of the largest counts."""
        rows = [(line, column, n) for line, result in self.counts.items() for column, n in result.items() if n]
        rows.sort(key=lambda row: (-row[2], row[0], row[1]))
        rest = f"{len(rows) - _MAX_PAIRS:,} smaller ones are not shown." if len(rows) > _MAX_PAIRS else ""
        note = " ".join(part for part in (self.note, rest) if part)
        return Table(self.title, (self.lines, self.columns, self.unit), rows[:_MAX_PAIRS], note).markdown(level)


def _first(names: Sequence[str]) -> list[str]:
    """Return the first names; where there are more, the last is a name for all others."""
    return list(names) if len(names) <= _MAX_LINES else [*names[: _MAX_LINES - 1], _OTHERS]


def _name(name: str, inside: str, scope: str) -> Html:
    return tag("th", inside, title=cut(name, MAX_CELL), scope=scope)


def _heat(number: int, most: int, text: str, unit: str) -> Html:
    if not number:
        return tag("td", "·")
    # By logarithms: one pair of sources that has most of all would leave the others white.
    share = math.log1p(number) / math.log1p(most)
    title = f"{cut(text, MAX_CELL)}: {number:,} {unit}"
    return tag("td", _compact(number), title=title, style=f"--heat:{_DARKEST * share:.0f}%")


def _between(start: float, stop: float) -> str:
    if math.isinf(start):
        return f"below {_compact(stop)}"
    return f"{_compact(start)} or more" if math.isinf(stop) else f"{_compact(start)} to {_compact(stop)}"


def _compact(number: float) -> str:
    """Return a number of at most three or four digits, exact below 10,000."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= 10**4 and abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


def _bar(colour: int, style: str = "") -> Html:
    return tag("b", class_=f"c{colour % _COLOURS}", style=style)


def _describe(title: str, values: Iterable[tuple[str, float]], unit: str) -> str:
    """Describe a chart in words, for screen readers."""
    parts = (f"{cut(label, MAX_CELL)}: {format_cell(value)} {unit}".rstrip() for label, value in values)
    return f"{title}: " + "; ".join(parts)


def _bars(
    head: Html, described: str, rows: Sequence[tuple[str, str, Sequence[Html], float]], unit: str, what: str
) -> Html:
    """Lines of label, title of the label, bars and value, in a grid; nothing if there is no line."""
    if not rows:
        return Html()
    lines = [
        join(
            tag("span", _short_label(label), title=cut(full, MAX_CELL)),
            tag("i", *drawn),
            tag("span", f"{format_cell(value)} {unit}".rstrip()),
        )
        for label, full, drawn, value in rows[:_MAX_BARS]
    ]
    rest = len(rows) - _MAX_BARS
    note = tag("p", " ".join(f"{rest:,} {what or 'more'} are not shown.".split())) if rest > 0 else ""
    return join(head, tag("div", *lines, class_="bars", role="img", aria_label=described), note)


def _short_label(label: str, most: int = _MAX_LABEL) -> str:
    """Return names of files differ at both ends."""
    half = most // 2 - 1
    return label if len(label) <= most else label[:half] + "…" + label[-half:]


def _svg(
    head: Html, height: float, right: float, axis: str, described: str, parts: Sequence[Html], role: str = "img"
) -> Html:
    """Return a chart in half of the page's width, with the name of its axis below it."""
    below = _axis(axis, (_LEFT + right) / 2, height - 4)
    svg = tag("svg", *parts, below, viewBox=f"0 0 {_WIDTH} {height:g}", role=role, aria_label=described)
    return tag("div", head, tag("div", svg, class_="scroll"), class_="half")


def _axis(text: str, x: float, y: float, anchor: str = "middle") -> Html:
    return tag("text", text, class_="axis", x=x, y=y, text_anchor=anchor)


def _ticks(most: float) -> list[int]:
    """Return round numbers from 0 to ``most`` or a little more, at most five steps apart."""
    step = next(base * 10**power for power in count() for base in (1, 2, 5) if most <= 5 * base * 10**power)
    return list(range(0, max(1, math.ceil(most / step)) * step + 1, step))


def _rules(ticks: Sequence[int], right: float, unit: str) -> Html:
    """Lines across a chart at these values, with the unit above them."""
    parts = [tag("text", unit, class_="axis", x=0, y=10)]
    for tick in ticks:
        y = _BOTTOM - (_BOTTOM - _TOP) * tick / ticks[-1]
        parts += [tag("line", x1=_LEFT, x2=right, y1=y, y2=y), _axis(_short_number(tick), _LEFT - 8, y + 4, "end")]
    return join(*parts)


def _short_number(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 10 * size or (number >= size and letter != "k"):
            return f"{number / size:g}{letter}"
    return f"{number:,}"
