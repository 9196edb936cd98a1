"""Reports: self-contained, escaped, small."""

import re
from html.parser import HTMLParser

import pytest

from pairmill.report import Bars, Report, Table

NASTY = '<script>alert("x")</script> & \' http://example.com onload="x"'


class _Reader(HTMLParser):
    """Collects tags, attributes and text; complains of tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def whole(self) -> bool:
        return not self._open


def parse(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.whole()
    return reader


def nasty() -> Report:
    return Report(
        f"title {NASTY}",
        {f"figure {NASTY}": f"value {NASTY}", "rows": 1_234_567},
        [
            Table(
                f"table {NASTY}",
                (f"head {NASTY}", "n"),
                [(f"cell {NASTY}", 1234), ("x|y\nz", 0.123456)],
                f"note {NASTY}",
            ),
            Bars(f"chart {NASTY}", [(f"bar {NASTY}", 10.0), ("small", 1)], f"unit {NASTY}"),
        ],
    )


def test_a_page_needs_nothing_from_elsewhere() -> None:
    page = Report("t", {"a": 1}, [Table("t", ("a",), [(1,)]), Bars("b", [("x", 1)])]).html()
    reader = parse(page)
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert not set(reader.tags) & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
    names = {name for name, _ in reader.attributes}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "href", "srcset", "action"}
    assert page.startswith("<!doctype html>")
    assert '<meta charset="utf-8">' in page


def test_every_text_is_escaped() -> None:
    reader = parse(nasty().html())
    assert "script" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    text = "".join(reader.text)
    for part in ("title", "figure", "value", "table", "head", "cell", "note", "chart", "bar", "unit"):
        assert f"{part} {NASTY}" in text, part


def test_five_thousand_rows_stay_below_a_megabyte_and_say_what_is_missing() -> None:
    rows = [(f"task__{number}" + "x" * 80, "over_context", number, number * 1000, 0.5) for number in range(5_000)]
    bars = [(name, count) for name, _, count, *_ in rows]
    report = Report("t", {}, [Table("Tasks", ("Task", "Why", "A", "B", "C"), rows), Bars("Chart", bars)])
    page = report.html()
    parse(page)
    assert len(page.encode()) < 1_000_000
    assert "4,000 more rows are not shown" in page
    assert "4,960 smaller ones are not shown" in page
    assert "(4,000 more rows are not shown)" in report.markdown()
    assert page.count("<tr>") == 1_001


def test_numbers_are_grouped_and_right_aligned() -> None:
    page = Report("t", {"n": 1_234_567}, [Table("t", ("name", "n"), [("a", 1_000), ("b", 2.5)])]).html()
    assert "<dd>1,234,567</dd>" in page
    assert '<th class="n">n</th>' in page
    assert '<td class="n">1,000</td>' in page
    assert "<td>a</td>" in page


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (0, "0"),
        (-1234, "-1,234"),
        (2.0, "2"),
        (0.123456, "0.1235"),
        (12345.678, "12,345.7"),
        (1e-7, "1e-07"),
        ("1234", "1234"),
    ],
)
def test_cells_are_written_for_people(cell: str | int | float, text: str) -> None:
    assert f"<td>{text}</td>" in Report("t", {}, [Table("t", ("a",), [(cell,)])]).html().replace(' class="n"', "")
    assert f"| {text} |" in Report("t", {}, [Table("t", ("a",), [(cell,)])]).markdown()


def test_markdown_tables_are_not_broken_by_their_cells() -> None:
    lines = nasty().markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert "| x\\|y z | 0.1235 |" in rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert lines[0].startswith("# title")


def test_tables_and_charts_without_rows_say_so() -> None:
    report = Report("t", {}, [Table("Empty table", ("a", "b"), []), Bars("Empty chart", [])])
    assert "Empty table" in report.html()
    parse(report.html())
    assert report.markdown().count("Nothing.") == 2


def test_bars_are_as_long_as_their_values_say() -> None:
    page = Report("t", {}, [Bars("b", [("a", 100), ("b", 50), ("c", 0)])]).html()
    assert re.findall(r'width="([\d.]+)" height="16"', page) == ["420.0", "210.0", "0.0"]
    assert "nan" not in Report("t", {}, [Bars("b", [("a", 0), ("b", 0)])]).html()


def test_the_same_report_is_the_same_bytes() -> None:
    assert nasty().html() == nasty().html()
    assert nasty().markdown() == nasty().markdown()
