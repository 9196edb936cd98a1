"""Pareto charts, and differences with intervals: points are where their numbers are, and a frontier is one."""

import random
import re
import xml.etree.ElementTree as ElementTree

from pairmill.report.model import Report
from pairmill.report.points import Difference, Intervals, Pareto, Spot
from tests.unit.report.test_report import NASTY, parse


def test_the_frontier_is_what_no_point_beats() -> None:
    draw = random.Random(1)
    spots = [Spot("a", draw.uniform(1, 9), draw.uniform(1, 9)) for _ in range(60)]
    best = Pareto("t", spots, "x", "y").frontier
    for spot in spots:
        beaten = any(other.x <= spot.x and other.y <= spot.y for other in spots if other is not spot)
        assert (spot in best) != beaten
    most = Pareto("t", spots, "x", "y", lower_is_better=False).frontier
    assert most[-1].y == max(spot.y for spot in spots)


def test_points_are_drawn_with_their_bands() -> None:
    chart = Pareto(
        "t", [Spot("a", 1e9, 2.0, (1.5, 2.5)), Spot("b", 4e9, 1.0), Spot("b", 2e9, 3.0, end=False)], "x", "y"
    )
    page = chart.html(2)
    parse(page)
    found = re.findall(r'class="(c\d)" cx="([0-9.]+)" cy="([0-9.]+)" r="(\d)"', page)
    assert [(colour, radius) for colour, _, _, radius in found] == [("c0", "5"), ("c1", "5"), ("c1", "2")]
    (a, b, way) = [(float(x), float(y)) for _, x, y, _ in found]
    assert a[0] < way[0] < b[0]
    assert b[1] > a[1] > way[1]
    assert page.count("<rect") == 1
    assert page.count('class="bound"') == 2
    table = chart.markdown(2)
    assert [line for line in table if line.startswith("| b")] == ["| b | 4e+09 | 1 | yes |"]
    ElementTree.fromstring(chart.svg())


def test_intervals_hold_their_difference_and_zero() -> None:
    rows = [Difference("all", -0.2, -0.3, -0.1), Difference("one seed", 0.1)]
    page = Intervals("t", rows, "nats").html(2)
    parse(page)
    (start, width), *none = re.findall(r'<rect class="c0" x="([0-9.]+)" width="([0-9.]+)"', page)
    assert none == []
    at, _ = (float(x) for x in re.findall(r'cx="([0-9.]+)"', page))
    assert float(start) < at < float(start) + float(width)
    (zero,) = re.findall(r'<line class="bound" x1="([0-9.]+)"', page)
    assert float(start) + float(width) < float(zero)


def test_any_name_and_number_fits() -> None:
    for nasty in NASTY:
        spots, rows = [Spot(nasty, 1e-9, -1e9, (-1e9, 1e9))], [Difference(nasty, 0.0, -1e-12, 1e12)]
        parse(Report("t", {}, [Pareto(nasty, spots, nasty, nasty), Intervals(nasty, rows, nasty)]).html())
    assert Pareto("t", [], "x", "y").html(2) == Intervals("t", [], "x").html(2) == ""
