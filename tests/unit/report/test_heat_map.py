"""Heat maps and distributions: every number can be read, colours follow the numbers, bounds are where they belong."""

import re
from html import unescape

import pytest

from pairmill.report.charts import Distribution, HeatMap
from pairmill.report.model import Block, Report

NASTY = '<b onload="x">&"'


def page(block: Block) -> str:
    return Report("t", {}, [block]).html().split("<main>", 1)[1]


def heats(text: str) -> list[tuple[str, int]]:
    """The number and the colour of each cell that has a colour."""
    return [(cell, int(heat)) for heat, cell in re.findall(r'<td[^>]*style="--heat:(\d+)%"[^>]*>([^<]*)</td>', text)]


def test_each_cell_has_its_number_and_says_what_it_is() -> None:
    counts = {"web": {"books": 12_345, "web": 7}, "news": {"books": 1}}
    text = page(HeatMap("map", counts, "repeats", "kept", "rows", "a note"))
    assert '<th title="books" scope="col"><span>books</span></th>' in text
    assert '<th title="web" scope="row">web</th>' in text
    assert re.search(r'<td title="web → books: 12,345 rows" style="--heat:\d+%">12.3k</td>', text)
    assert '<td title="12,352 rows">12.4k</td>' in text  # the sum of the line
    assert text.count("<td>·</td>") == 1  # news → web, which is nothing
    assert "repeats ↓ kept →" in text
    assert "<p>a note</p>" in text


def test_more_is_darker_and_the_darkest_can_still_be_read() -> None:
    counts = {"a": {f"{exponent}": 10**exponent for exponent in range(6)}}
    found = dict(heats(page(HeatMap("map", counts, "l", "c"))))
    shades = [found[number] for number in ("1", "10", "100", "1,000", "10k", "100k")]
    assert shades == sorted(set(shades))
    assert shades[0] > 0
    assert shades[-1] == 55


def test_names_that_do_not_fit_are_added_up() -> None:
    counts = {f"source {line:02}": {f"source {column:02}": 1 for column in range(30)} for line in range(30)}
    counts["source 00"]["source 00"] = 1000
    text = page(HeatMap("map", counts, "l", "c"))
    assert text.count('scope="row"') == 10
    assert text.count('scope="col"') == 11  # and the sum
    assert 'title="source 00 → source 00: 1,000 rows"' in text
    assert 'title="all others → all others: 441 rows"' in text
    sums = [int(number.replace(",", "")) for number in re.findall(r'<td title="([\d,]+) rows">', text)]
    assert sum(sums) == 900 + 999
    lines = [line for line in HeatMap("map", counts, "l", "c").markdown(2) if line.startswith("| source")]
    assert lines[0] == "| source 00 | source 00 | 1,000 |"
    assert len(lines) == 40
    assert "860 smaller ones are not shown." in HeatMap("map", counts, "l", "c").markdown(2)


def test_nothing_gives_nothing() -> None:
    empty: list[dict[str, dict[str, int]]] = [{}, {"a": {}}, {"a": {"b": 0}}]
    for counts in empty:
        assert HeatMap("map", counts, "l", "c").html(2) == ""
    assert Distribution("d", [], [0.0]).html(2) == Distribution("d", [0, 0], [0.0, 1.0, 2.0]).html(2) == ""


def columns(text: str) -> list[str]:
    return re.findall(r'<rect class="(c\d)"', text)


def test_columns_beyond_a_bound_have_another_colour() -> None:
    edges = [0.0, 0.25, 0.5, 0.75, 1.0]
    both = page(Distribution("d", [5, 5, 5, 5], edges, 0.25, 0.6, "ratio", "rows"))
    # The column from .5 to .75 is partly within.
    assert columns(both) == ["c1", "c0", "c0", "c1"]
    assert columns(page(Distribution("d", [5, 5, 5, 5], edges))) == ["c0"] * 4
    lines = re.findall(r'<line class="bound" x1="([\d.]+)"', both)
    # 52 to 458 are four columns.
    assert lines == ["153.5", "295.6"]
    for said in (">min 0.25<", ">max 0.6<", ">0.25 to 0.5: 5 rows<", ">ratio<"):
        assert said in both
    assert 'aria-label="d in ratio, min 0.25, max 0.6: 0 to 0.25: 5 rows; ' in both


def test_columns_below_and_above_all_edges_are_open() -> None:
    text = page(Distribution("d", [1, 2, 3, 4], [10, 20, 50], high=60, unit="rows"))
    for said in ("below 10: 1 rows", "10 to 20: 2 rows", "20 to 50: 3 rows", "50 or more: 4 rows"):
        assert f">{said}<" in text
    assert columns(text) == ["c0"] * 4
    assert re.findall(r'<line class="bound" x1="([\d.]+)"', text) == ["390.3"]  # 60 in bins as wide as the last
    assert columns(page(Distribution("d", [1, 1, 1, 1], [10, 20, 50], low=50)))[:3] == ["c1"] * 3


def test_what_is_beyond_a_bound_is_counted() -> None:
    chart = Distribution("d", [5, 0, 7, 1], [0.0, 0.25, 0.5, 0.75, 1.0], 0.25, 0.6)
    assert chart.beyond() == 6
    assert chart.ranges() == ["0 to 0.25", "0.5 to 0.75", "0.75 to 1"]


def test_a_bound_outside_the_edges_is_at_the_rim() -> None:
    text = page(Distribution("d", [1, 1], [0.0, 0.5, 1.0], low=-5.0, high=1000.0))
    assert re.findall(r'<line class="bound" x1="([\d.]+)"', text) == ["52.0", "458.0"]
    assert columns(text) == ["c0", "c0"]


@pytest.mark.parametrize(
    "block",
    [
        HeatMap(NASTY, {NASTY: {f"{NASTY}2": 1}}, NASTY, NASTY, NASTY, NASTY),
        Distribution(NASTY, [1], [0.0, 1.0], 0.5, 0.7, NASTY, NASTY),
    ],
)
def test_texts_are_escaped(block: Block) -> None:
    text = page(block)
    assert "<b onload" not in text
    assert NASTY in unescape(text)
