"""Points with what is known of them: a Pareto chart, predictions over what was measured, differences with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pairmill.report.charts import _BOTTOM, _COLOURS, _LEFT, _TOP, _WIDTH, _axis, _bar, _describe, _short_label, _svg
from pairmill.report.html import Html, join, tag
from pairmill.report.model import Block, Cell, Table, format_cell, heading
from pairmill.report.series import _levels, _number, _steps

_RIGHT: Final = 446.0
_SQUARE: Final = 458.0
"""Where a chart with one unit on both axes ends."""
_MAX_NAME: Final = 24
_ROW: Final = 26
_SVG: Final = "http://www.w3.org/2000/svg"
_STYLE: Final = """
svg { background: #ffffff; font: 12px system-ui, sans-serif } text { fill: #57606a } line { stroke: #d8dee4 }
.c0 { fill: #3c6fd1 } .c1 { fill: #e0a526 } .c2 { fill: #c2402b } .c3 { fill: #2b8a78 } .c4 { fill: #7d55b8 }
.bound { stroke: #c2402b; stroke-width: 2; stroke-dasharray: 5 3 }
@media (prefers-color-scheme: dark) { svg { background: #0d1117 } text { fill: #8b949e } line { stroke: #30363d } }
"""
_NAMES: Final = 170.0
"""Room for the names of differences."""


@dataclass(frozen=True)
class Spot:
    """A point: what it is of, where it is, and the least and greatest y that it is the middle of.

    Args:
        name: of the line or colour that it belongs to.
        x: above 0.
        y: finite.
        band: of y; empty = none.
        end: whether it is what the name came to, and not a point on the way.
    """

    name: str
    x: float
    y: float
    band: tuple[float, ...] = ()
    end: bool = True


@dataclass(frozen=True)
class Pareto(Block):
    """Cost against loss, both better if lower; the dashed line joins the points that no other one beats in both.

    Args:
        spots: points, at most five names.
        axis: what x is, over an axis of logarithms.
        unit: what y is.
        lower_is_better: whether less y is better.
    """

    title: str
    spots: Sequence[Spot]
    axis: str
    unit: str
    lower_is_better: bool = True

    @property
    def frontier(self) -> list[Spot]:
        """The points that none beats, by x."""
        sign, result = (1 if self.lower_is_better else -1), []
        best = math.inf
        for spot in sorted(self.spots, key=lambda spot: (spot.x, sign * spot.y)):
            if sign * spot.y < best:
                best = sign * spot.y
                result.append(spot)
        return result

    def html(self, level: int) -> Html:
        if not self.spots:
            return Html()
        legend = [tag("span", _bar(at), _short_label(name, _MAX_NAME)) for at, name in enumerate(self._names)]
        head = join(heading(self.title, level), tag("p", *legend, class_="key"))
        spots = [(f"{spot.name} at {spot.x:.3g}", spot.y) for spot in self.spots]
        return _svg(head, _BOTTOM + 38, _RIGHT, self.axis, _describe(self.title, spots, self.unit), self.parts())

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(spot.name for spot in self.spots))

    def parts(self) -> list[Html]:
        """Return what is drawn: rules, the frontier, and the points."""
        logs = [math.log10(spot.x) for spot in self.spots]
        first, last = min(logs), max(logs)
        first, last = (first - 0.15, last + 0.15) if last - first < 0.3 else (first - 0.03, last + 0.03)
        ys = [y for spot in self.spots for y in (spot.y, *spot.band)]
        up = _steps(min(ys), max(ys), around=True)
        wide, high = (_RIGHT - _LEFT) / (last - first), (_BOTTOM - _TOP) / (up[-1] - up[0])

        def place(x: float, y: float) -> tuple[float, float]:
            return _LEFT + wide * (math.log10(x) - first), _BOTTOM - high * (y - up[0])

        parts = _levels(up, _RIGHT, self.unit, _number)
        for power in range(math.floor(first), math.ceil(last) + 1):
            for base in (1, 2, 5):
                if first <= math.log10(base) + power <= last:
                    x = _LEFT + wide * (math.log10(base) + power - first)
                    parts.append(_axis(f"{base}e{power}", x, _BOTTOM + 16))
        corners: list[str] = []
        for spot in self.frontier:
            x, y = place(spot.x, spot.y)
            corners += ([f"{x:.1f},{corners[-1].split(',')[1]}"] if corners else []) + [f"{x:.1f},{y:.1f}"]
        line = [point.split(",") for point in corners]
        for (x1, y1), (x2, y2) in pairwise(line):
            parts.append(tag("line", class_="bound", x1=x1, y1=y1, x2=x2, y2=y2))
        for at, name in enumerate(self._names):
            mine = [spot for spot in self.spots if spot.name == name]
            for spot in mine:
                x, y = place(spot.x, spot.y)
                colour = f"c{at % _COLOURS}"
                for low, top in [(min(spot.band), max(spot.band))] if spot.band else []:
                    parts.append(
                        tag(
                            "rect",
                            class_=colour,
                            x=x - 1,
                            width=2,
                            y=place(spot.x, top)[1],
                            height=max(1.0, high * (top - low)),
                        )
                    )
                tip = f"{name}, {spot.x:.3g} {self.axis}: {format_cell(float(spot.y))} {self.unit}"
                parts.append(tag("circle", tag("title", tip), class_=colour, cx=x, cy=y, r=5 if spot.end else 2))
        return parts

    def svg(self) -> str:
        """Return the chart as a file of its own, by day and by night."""
        names = [tag("text", name, x=_LEFT + 24 + 110 * at, y=10, class_="axis") for at, name in enumerate(self._names)]
        dots = [tag("circle", class_=f"c{at}", cx=_LEFT + 16 + 110 * at, cy=6, r=4) for at, _ in enumerate(self._names)]
        below = _axis(self.axis, (_LEFT + _RIGHT) / 2, _BOTTOM + 34)
        moved = tag("g", *self.parts(), below, transform="translate(0 22)")
        size = f"0 0 {_WIDTH} {_BOTTOM + 62:g}"
        made = tag(
            "svg", tag("title", self.title), tag("style", _STYLE), *dots, *names, moved, xmlns=_SVG, viewBox=size
        )
        return f"{made}\n"

    def markdown(self, level: int) -> list[str]:
        """Return a table of what each came to."""
        best = self.frontier
        rows: list[tuple[Cell, ...]] = [
            (spot.name, f"{spot.x:.3g}", float(spot.y), "yes" if spot in best else "no")
            for spot in self.spots
            if spot.end
        ]
        return Table(self.title, ("Of", self.axis, self.unit, "On the frontier"), rows).markdown(level)


@dataclass(frozen=True)
class Difference:
    """A difference and its interval; a whole line where there is none."""

    name: str
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Intervals(Block):
    """Differences, one below another on one scale, with their intervals and a line at 0.

    Args:
        rows: from above.
        axis: what they are differences of, and which side is which.
    """

    title: str
    rows: Sequence[Difference]
    axis: str

    def html(self, level: int) -> Html:
        if not self.rows:
            return Html()
        ends = [0.0, *(item for row in self.rows for item in (row.mean, row.low, row.high) if item is not None)]
        across = _steps(min(ends), max(ends), around=True)
        wide = (_WIDTH - 16 - _NAMES) / (across[-1] - across[0])

        def place(value: float) -> float:
            return _NAMES + wide * (value - across[0])

        bottom = 8.0 + _ROW * len(self.rows)
        parts = [tag("line", x1=place(tick), x2=place(tick), y1=4, y2=bottom) for tick in across]
        parts += [_axis(_number(tick), place(tick), bottom + 16) for tick in across]
        parts.append(tag("line", class_="bound", x1=place(0), x2=place(0), y1=4, y2=bottom))
        for number, row in enumerate(self.rows):
            y = 8.0 + _ROW * (number + 0.5)
            parts.append(
                tag(
                    "text",
                    _short_label(row.name, 22),
                    tag("title", row.name),
                    x=_NAMES - 10,
                    y=y + 4,
                    text_anchor="end",
                )
            )
            if row.low is not None and row.high is not None:
                x = place(row.low)
                parts.append(tag("rect", class_="c0", x=x, width=max(1.0, place(row.high) - x), y=y - 1, height=2))
            parts.append(
                tag("circle", tag("title", f"{row.name}: {row.mean:+.4g}"), class_="c0", cx=place(row.mean), cy=y, r=4)
            )
        described = _describe(self.title, [(row.name, row.mean) for row in self.rows], self.axis)
        return _svg(heading(self.title, level), bottom + 38, _WIDTH, self.axis, described, parts)


@dataclass(frozen=True)
class Agreement(Block):
    """Predicted over measured, with the line on which both are equal. For the page only: a table has the numbers.

    Args:
        points: by part: ``(label, measured, predicted)``, finite.
        unit: of both.
    """

    title: str
    points: Sequence[tuple[str, Sequence[tuple[str, float, float]]]]
    unit: str = ""

    def html(self, level: int) -> Html:
        values = [value for _, some in self.points for _, *both in some for value in both]
        if not values:
            return Html()
        ticks = _steps(min(values), max(values), around=True)
        low, size = ticks[0], ticks[-1] - ticks[0]
        wide, high = (_SQUARE - _LEFT) / size, (_BOTTOM - _TOP) / size
        parts = _levels(ticks, _SQUARE, "predicted", _number)
        for tick in ticks:
            x = _LEFT + wide * (tick - low)
            parts.append(_axis(_number(tick), x, _BOTTOM + 16, "end" if tick == ticks[-1] else "middle"))
        parts.append(tag("line", class_="bound", x1=_LEFT, x2=_SQUARE, y1=_BOTTOM, y2=_TOP))
        lines = []
        for colour, (_, some) in enumerate(self.points):
            for label, measured, predicted in some:
                text = f"{label}: measured {format_cell(measured)}, predicted {format_cell(predicted)}"
                lines.append(text)
                x, y = _LEFT + wide * (measured - low), _BOTTOM - high * (predicted - low)
                parts.append(
                    tag("circle", tag("title", text), class_=f"c{colour}", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4")
                )
        legend = [tag("span", _bar(colour), name) for colour, (name, _) in enumerate(self.points)]
        key = tag("p", *legend, class_="key") if len(legend) > 1 else ""
        axis = f"measured, {self.unit}" if self.unit else "measured"
        head = join(heading(self.title, level), key)
        return _svg(head, _BOTTOM + 38, _SQUARE, axis, f"{self.title}: " + "; ".join(lines), parts)
