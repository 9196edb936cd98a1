"""Lines over steps: what is drawn is what was given, inside the chart, in few bytes."""

import random
import re

import pytest

from pairmill.report.model import Report
from pairmill.report.series import _BOTTOM, _LEFT, _RIGHT, _TOP, Lines, Series, _number, _steps
from tests.unit.report.test_report import NASTY, parse


def drawn(page: str, element: str) -> list[list[tuple[float, float]]]:
    found = re.findall(rf'<{element} class="c\d" points="([^"]*)"', page)
    return [[(float(x), float(y)) for x, y in (one.split(",") for one in points.split())] for points in found]


def test_points_are_where_their_numbers_are() -> None:
    page = Lines("t", [Series("a", [(0, 2.0), (50, 6.0), (100, 4.0)])], unit="nats").html(2)
    ((first, middle, last),) = drawn(page, "polyline")
    assert first == (_LEFT, _BOTTOM)
    assert middle == ((_LEFT + _RIGHT) / 2, _TOP)
    assert last == (_RIGHT, (_BOTTOM + _TOP) / 2)
    assert '<text class="axis" x="44.0" y="196.0" text-anchor="end">2</text>' in page
    assert 'aria-label="t in nats: a from 2 at 0 to 4 at 100 steps"' in page
    parse(page)


def test_a_band_is_drawn_and_an_outlier_does_not_flatten_the_line() -> None:
    points = [(float(step), 1.0 + step / 100) for step in range(101)]
    band = [(y - 0.1, y + (1e9 if x == 50 else 0.1)) for x, y in points]
    page = Lines("t", [Series("a", points, band)]).html(2)
    ((*line,),), ((*area,),) = drawn(page, "polyline"), drawn(page, "polygon")
    assert len(area) == 2 * len(line)
    assert min(y for _, y in area) == _TOP
    assert max(y for _, y in line) - min(y for _, y in line) > 0.3 * (_BOTTOM - _TOP)
    for x, y in [*line, *area]:
        assert _LEFT <= x <= _RIGHT
        assert _TOP <= y <= _BOTTOM


@pytest.mark.parametrize("low", [0.0, -3.0, 1e-9, 1e-4, 0.3, 7.0, 1e6, 2.5e12])
@pytest.mark.parametrize("length", [1e-9, 1e-4, 0.01, 1.0, 9.99, 1e5, 3e12])
def test_ticks_are_few_round_numbers_around_what_is_shown(low: float, length: float) -> None:
    if length < 1e-6 * abs(low):
        return  # below what an axis can say
    ticks = _steps(low, low + length, around=True)
    assert 2 <= len(ticks) <= 7
    assert ticks[0] <= low + 1e-6 * length
    assert ticks[-1] >= low + length - 1e-6 * length
    assert all(len(_number(tick)) <= 9 for tick in _steps(low, low + length) if abs(low) < 10 * length)


def test_an_axis_is_written_in_one_way() -> None:
    for most, names in (
        (0.002, ["0", "5e-4", "1e-3", "1.5e-3", "2e-3"]),
        (20_000_000, ["0", "5M", "10M", "15M", "20M"]),
        (20_000, ["0", "5k", "10k", "15k", "20k"]),
    ):
        page = Lines("t", [Series("a", [(0, 0.0), (9, most)])], zero=True).html(2)
        assert re.findall(r'x="44.0" y="[^"]*" text-anchor="end">([^<]*)<', page) == names
    page = Lines("t", [Series("a", [(0, 1.0), (12_000, 2.0)])]).html(2)
    assert re.findall(r'y="208.0" text-anchor="\w+">([^<]*)<', page) == ["0", "5k", "10k"]


@pytest.mark.parametrize("points", [[(1, 0.0)], [(1, 5.0)], [(3, 2.0), (9, 2.0)], [(1, -4.0)], [(1, 0.0), (2, 0.0)]])
def test_a_line_that_does_not_vary_is_drawn(points: list[tuple[float, float]]) -> None:
    for zero in (False, True):
        if zero and points[0][1] < 0:
            continue
        page = Lines("t", [Series("a", points)], zero=zero, marks=[1]).html(2)
        parse(page)
        assert len(re.findall("<circle", page)) == len(points)
        assert "nan" not in page


def test_nothing_is_nothing() -> None:
    assert Lines("t", [Series("a", [])]).html(2) == ""
    assert Lines("t", []).markdown(2) == []


def test_names_are_text_and_short() -> None:
    page = Report("t", {}, [Lines(NASTY, [Series(NASTY, [(1, 1.0)]), Series("x" * 500, [(1, 2.0)])], unit=NASTY)])
    assert "<script" not in page.html()
    assert "x" * 200 not in page.html()
    parse(page.html())
    assert "<script" not in page.markdown().replace("\\<", "")


def test_text_has_a_table_of_some_points() -> None:
    draw = random.Random(1)
    many = Series("many", [(step, draw.random()) for step in range(1000)])
    text = Lines("Loss", [many, Series("few", [(500, 7.25)])], unit="nats").markdown(2)
    rows = [line for line in text if line.startswith("| ")][1:]
    assert len(rows) == 12
    assert rows[0].endswith("| – |")
    assert rows[-1] == f"| 999 | {many.points[-1][1]:,.4g} | 7.25 |"
