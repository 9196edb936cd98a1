"""Lines over steps: how numbers went during a run, each with the band that its points are the middle of."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pairmill.report.charts import _BOTTOM, _LEFT, _TOP, _axis, _bar, _compact, _short_label, _svg
from pairmill.report.html import Html, join, tag
from pairmill.report.model import Block, Cell, Table, cut, format_cell, heading

_RIGHT: Final = 458.0
_EDGE: Final = 468.0
_MAX_NAME: Final = 24
_MAX_DOTS: Final = 40
"""Points of a line that are also drawn as dots, so that a line of one point is seen."""
_SMALL: Final = 0.01
_ROWS: Final = 12
_ROOM: Final = 0.5
"""A band may go beyond the points by this part of their range; what is further out is drawn at the edge."""


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: for the legend.
        points: ``(x, y)`` in order of x; y is finite.
        band: for each point the least and the greatest value that it is the middle of; empty = no band.
    """

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Dot:
    """A point that leads to a place of the page.

    Args:
        x, y: of it; y is drawn inside the chart.
        to: the address, as ``#step-12``.
        name: what is there.
    """

    x: float
    y: float
    to: str
    name: str


@dataclass(frozen=True)
class Lines(Block):
    """A chart of at most five lines. Two charts in succession are side by side.

    Args:
        series: the lines; those without points are left out.
        axis: what x is.
        unit: what y is.
        zero: the y axis begins at 0.
        marks: x of vertical lines.
        tabled: also show some points as a table in text.
        dots: points that lead somewhere.
    """

    title: str
    series: Sequence[Series]
    axis: str = "steps"
    unit: str = ""
    zero: bool = False
    marks: Sequence[float] = ()
    tabled: bool = True
    dots: Sequence[Dot] = ()

    def html(self, level: int) -> Html:
        shown = [item for item in self.series if item.points]
        if not shown:
            return Html()
        xs = [x for item in shown for x, _ in item.points]
        first, last = min(xs), max(xs)
        across, up = _steps(first, last), self._scale(shown)
        wide = (_RIGHT - _LEFT) / ((last - first) or 1.0)
        high = (_BOTTOM - _TOP) / (up[-1] - up[0])

        def place(x: float, y: float) -> str:
            inside = min(max(y, up[0]), up[-1])
            return f"{_LEFT + wide * (x - first):.1f},{_BOTTOM - high * (inside - up[0]):.1f}"

        # One way of writing for the whole axis.
        name = _scientific if max(map(abs, up)) < _SMALL else _number if max(up) < 10_000 else partial(_large, up[-1])
        parts = _levels(up, _RIGHT, self.unit, name)
        for tick in across:
            if first <= tick <= last:
                label = _number(tick) if last < 10_000 else _large(last, tick)
                x = _LEFT + wide * (tick - first)
                # In the middle of the last tick a name would leave the chart.
                at_end = x > _RIGHT - 10
                parts.append(_axis(label, _EDGE if at_end else x, _BOTTOM + 16, "end" if at_end else "middle"))
        for at in self.marks:
            if first <= at <= last:
                x = _LEFT + wide * (at - first)
                parts.append(tag("line", class_="bound", x1=x, x2=x, y1=_TOP, y2=_BOTTOM))
        # Bands first, so that no line is under one.
        for colour, item in enumerate(shown):
            if item.band:
                lows = [place(x, low) for (x, _), (low, _) in zip(item.points, item.band, strict=True)]
                highs = [place(x, high) for (x, _), (_, high) in zip(item.points, item.band, strict=True)]
                parts.append(tag("polygon", class_=f"c{colour}", points=" ".join([*lows, *reversed(highs)])))
        for colour, item in enumerate(shown):
            line = tag("polyline", class_=f"c{colour}", points=" ".join(place(*point) for point in item.points))
            dots = []
            if len(item.points) <= _MAX_DOTS:
                for point in item.points:
                    cx, cy = place(*point).split(",")
                    dots.append(tag("circle", class_=f"c{colour}", cx=cx, cy=cy, r="2.5"))
            parts.append(tag("g", tag("title", self._describe(item)), line, *dots))
        for dot in self.dots:
            if first <= dot.x <= last:
                cx, cy = place(dot.x, dot.y).split(",")
                circle = tag("circle", tag("title", dot.name), class_="c4", cx=cx, cy=cy, r="5")
                parts.append(tag("a", circle, href=dot.to, aria_label=dot.name))
        legend = [tag("span", _bar(colour), _short_label(item.name, _MAX_NAME)) for colour, item in enumerate(shown)]
        key = tag("p", *legend, class_="key") if len(shown) > 1 else ""
        described = f"{self.title} in {self.unit or 'numbers'}: " + "; ".join(map(self._describe, shown))
        head = join(heading(self.title, level), key)
        # What is inside of an image cannot be followed.
        role = "group" if self.dots else "img"
        return _svg(head, _BOTTOM + 38, _RIGHT, self.axis, described, parts, role=role)

    def markdown(self, level: int) -> list[str]:
        """Return a table of some of the points."""
        shown = [item for item in self.series if item.points]
        if not shown or not self.tabled:
            return []
        xs = sorted({x for item in shown for x, _ in item.points})
        every = [xs[round(at * (len(xs) - 1) / (_ROWS - 1))] for at in range(_ROWS)] if len(xs) > _ROWS else xs
        rows: list[tuple[Cell, ...]] = []
        for x in every:
            latest = [[y for at, y in item.points if at <= x] for item in shown]
            rows.append((_number(x), *(item[-1] if item else "–" for item in latest)))
        note = f"In {self.unit}; the latest of each." if self.unit else "The latest of each."
        return Table(self.title, (self.axis, *(item.name for item in shown)), rows, note).markdown(level)

    def _scale(self, shown: Sequence[Series]) -> list[float]:
        ys = [y for item in shown for _, y in item.points]
        low, high = min(ys), max(ys)
        room = _ROOM * (high - low)
        for item in shown:
            for least, most in item.band:
                low, high = max(min(low, least), min(ys) - room), min(max(high, most), max(ys) + room)
        return _steps(0.0 if self.zero else low, high, around=True)

    def _describe(self, series: Series) -> str:
        (x, y), (to, end) = series.points[0], series.points[-1]
        name = cut(series.name, 100)
        if len(series.points) == 1:
            return f"{name} {format_cell(float(y))} at {_number(x)} {self.axis}"
        ends = f"from {format_cell(float(y))} at {_number(x)} to {format_cell(float(end))} at {_number(to)}"
        return f"{name} {ends} {self.axis}"


def _steps(low: float, high: float, *, around: bool = False) -> list[float]:
    """Return round numbers, at most five steps apart, that lie between ``low`` and ``high``, or around both."""
    if not high > low:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(base * power for base in (1, 2, 5, 10, 20) if high - low <= 5 * base * power * (1 + 1e-9))
    start, stop = low / step, high / step
    begin, end = (math.floor(start + 1e-9), math.ceil(stop - 1e-9)) if around else (math.ceil(start), math.floor(stop))
    return [round(at * step, 12 - math.floor(math.log10(step))) for at in range(begin, max(begin + 1, end) + 1)]


def _levels(ticks: Sequence[float], right: float, unit: str, name: Callable[[float], str]) -> list[Html]:
    """Lines across a chart from the first to the last of these values, with their names, and the unit above them."""
    parts = [tag("text", unit, class_="axis", x=0, y=10)]
    for tick in ticks:
        y = _BOTTOM - (_BOTTOM - _TOP) / (ticks[-1] - ticks[0]) * (tick - ticks[0])
        parts += [tag("line", x1=_LEFT, x2=right, y1=y, y2=y), _axis(name(tick), _LEFT - 8, y + 4, "end")]
    return parts


def _number(value: float) -> str:
    """Write a number as short as an axis has room for."""
    if float(value).is_integer() and abs(value) >= 1:
        return _compact(int(value))
    return f"{value:.4g}" if not value or 1e-3 <= abs(value) < 10_000 else _scientific(value)


def _scientific(value: float) -> str:
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}" if value else "0"


def _large(last: float, tick: float) -> str:
    """Return a format for an axis that ends at ``last``: thousands, millions or thousands of millions."""
    size, letter = next(item for item in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if last >= 10 * item[0] or item[0] == 1e3)
    return f"{tick / size:.6g}{letter}" if tick else "0"
