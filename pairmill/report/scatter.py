"""Points over two axes of one unit: what was predicted, over what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pairmill.report.charts import _BOTTOM, _LEFT, _TOP, _axis, _bar, _svg
from pairmill.report.html import Html, join, tag
from pairmill.report.model import Block, format_cell, heading
from pairmill.report.series import _number, _steps

_RIGHT: Final = 458.0


@dataclass(frozen=True)
class Agreement(Block):
    """Predicted over measured, with the line on which both are equal. For the page only: a table has the numbers.

    Args:
        title: heading.
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
        wide, high = (_RIGHT - _LEFT) / size, (_BOTTOM - _TOP) / size
        parts = [tag("text", "predicted", class_="axis", x=0, y=10)]
        for tick in ticks:
            x, y = _LEFT + wide * (tick - low), _BOTTOM - high * (tick - low)
            parts += [tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y), _axis(_number(tick), _LEFT - 8, y + 4, "end")]
            parts.append(_axis(_number(tick), x, _BOTTOM + 16, "end" if tick == ticks[-1] else "middle"))
        parts.append(tag("line", class_="bound", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_TOP))
        said = []
        for colour, (_, some) in enumerate(self.points):
            for label, measured, predicted in some:
                text = f"{label}: measured {format_cell(measured)}, predicted {format_cell(predicted)}"
                said.append(text)
                x, y = _LEFT + wide * (measured - low), _BOTTOM - high * (predicted - low)
                parts.append(
                    tag("circle", tag("title", text), class_=f"c{colour}", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4")
                )
        legend = [tag("span", _bar(colour), name) for colour, (name, _) in enumerate(self.points)]
        key = tag("p", *legend, class_="key") if len(legend) > 1 else ""
        axis = f"measured, {self.unit}" if self.unit else "measured"
        head = join(heading(self.title, level), key)
        return _svg(head, _BOTTOM + 38, _RIGHT, axis, f"{self.title}: " + "; ".join(said), parts)
