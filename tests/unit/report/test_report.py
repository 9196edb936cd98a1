"""Reports: self-contained, escaped, small."""

import html
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from pairmill.engine.manifest import Ledger
from pairmill.report.charts import Bars, Curve, Grouped, Histogram, Stacked
from pairmill.report.markdown import plain
from pairmill.report.model import Block, Percent, Report, Samples, Section, Table, describe_names, describe_rows

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
            Stacked(f"stack {NASTY}", (f"part {NASTY}", "rest"), [(f"whole {NASTY}", (3, 1))], f"sum {NASTY}"),
            Grouped(f"group {NASTY}", (f"now {NASTY}", "then"), [(f"one {NASTY}", (3, 1))], f"each {NASTY}"),
            Section(
                f"section {NASTY}",
                [
                    Histogram(f"columns {NASTY}", [(f"bin {NASTY}", 5)], f"axis {NASTY}", f"count {NASTY}"),
                    Curve(f"line {NASTY}", [(1, 5)], f"across {NASTY}", f"up {NASTY}", [(f"mark {NASTY}", 1, 4)]),
                    Samples(f"samples {NASTY}", [{f"tag {NASTY}": f"tagged {NASTY}", f"name {NASTY}": NASTY * 2}]),
                    Samples("tagged", [{"tag": f"drawn above {NASTY}"}], tag="tag"),
                ],
                f"summary {NASTY}",
            ),
        ],
    )


def test_a_page_needs_nothing_from_elsewhere() -> None:
    blocks = [
        Table("t", ("a",), [(1,)]),
        Bars("b", [("x", 1)]),
        Stacked("s", ("a", "b"), [("x", (1, 2))]),
        Section("d", [Histogram("h", [("1", 1)]), Samples("r", [{"a": "b"}])]),
    ]
    page = Report("t", {"a": 1}, blocks).html()
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
    # A label that is too long for its chart is complete in the description.
    text = "".join(reader.text + [value or "" for name, value in reader.attributes if name == "title"])
    for part in (
        *("title", "figure", "value", "table", "head", "cell", "note", "chart", "bar", "unit", "stack", "part"),
        *("group", "now", "one", "each"),
        *("whole", "sum", "section", "columns", "bin", "axis", "count", "samples", "tag", "tagged", "name"),
        *("drawn above", "summary", "line", "across", "up", "mark"),
    ):
        assert f"{part} {NASTY}" in text, part


def test_five_thousand_rows_stay_below_a_megabyte_and_say_what_is_missing() -> None:
    rows = [(f"task__{number}" + "x" * 80, "over_context", number, number * 1000, 0.5) for number in range(5_000)]
    bars = [(name, count) for name, _, count, *_ in rows]
    report = Report("t", {}, [Table("Tasks", ("Task", "Why", "A", "B", "C"), rows), Bars("Chart", bars)])
    page = report.html()
    parse(page)
    assert len(page.encode()) < 1_000_000
    assert "4,500 more rows are not shown" in page
    assert "4,960 smaller ones are not shown" in page
    assert "(4,500 more rows are not shown)" in report.markdown()
    assert page.count("<tr>") == 501


def test_a_page_stays_below_a_megabyte_for_any_content() -> None:
    names = [f"{number:05}" + "𝔵<" * 50 for number in range(20_000)]  # 255 bytes: no file has a longer one
    cells = [(name, name, number) for number, name in enumerate(names)]
    blocks: list[Block] = [
        Bars("bars", [(name, number) for name, _, number in cells]),
        Stacked("shares", ("a", "b"), [(name, (number, 1)) for name, _, number in cells]),
        Grouped("twice", ("a", "b"), [(name, (number, 1)) for name, _, number in cells]),
        Table("table", ("Name", "Again", "Number"), cells, "note"),
        *(Section(name, [Samples("rows", [{"text": name}])], name) for name in names),
    ]
    report = Report("t", dict.fromkeys(names[:9], names[0]), blocks, verdict="whole", look_at=names)
    page = report.html()
    parse(page)
    assert 800_000 < len(page.encode()) < 1_000_000
    tables = [Section(name, [Table("table", ("Name",), [(name,)] * 400)]) for name in names]
    text = Report("t", {}, tables).markdown()
    assert 800_000 < len(text.encode()) < 1_000_000
    assert "more parts do not fit here" in text
    assert '<p class="verdict">whole</p>' in page
    assert re.search(r"<p>[\d,]+ more parts do not fit here; _MANIFEST.json holds their numbers.</p>", page)


def test_the_verdict_comes_first_and_then_what_to_look_at() -> None:
    report = Report("t", {"n": 1}, verdict="10 in → 9 kept", look_at=["a < b", "c"])
    assert '<h1>t</h1><p class="verdict">10 in → 9 kept</p><ul class="look"><li>a &lt; b</li><li>c</li></ul><dl>' in (
        report.html()
    )
    assert report.markdown() == "# t\n\n10 in → 9 kept\n\n- look at: a \\< b\n- look at: c\n\n- **n**: 1\n"


def test_what_became_of_rows_is_said_by_reason() -> None:
    ledger = Ledger(rows_in=1_000, rows_kept=1_000)
    assert describe_rows(ledger) == "1,000 in → 1,000 kept (100%), none dropped"
    ledger = Ledger(rows_in=1_000, rows_kept=900, dropped={"too_short": 30, "null_response": 70})
    assert describe_rows(ledger, "read") == "1,000 in → 900 read (90.0%), 100 dropped: 70 null response, 30 too short"
    assert describe_names([*"abcde"]) == "a, b, c, d, e"
    assert describe_names([*"abcdefg"]) == "a, b, c, d, e and 2 more"


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
        (Percent.ratio(1, 3), "33.3%"),
        (Percent.ratio(3, 3), "100%"),
        (Percent.ratio(0, 3), "0%"),
        (Percent.ratio(9_999, 10_000), "&gt;99.9%"),
        (Percent.ratio(9_994, 10_000), "99.9%"),
        (Percent.ratio(1, 10_000), "&lt;0.1%"),
        (Percent.ratio(0, 0), "–"),
    ],
)
def test_cells_are_written_for_people(cell: str | int | float, text: str) -> None:
    assert f"<td>{text}</td>" in Report("t", {}, [Table("t", ("a",), [(cell,)])]).html().replace(' class="n"', "")
    assert f"| {html.unescape(text)} |" in Report("t", {}, [Table("t", ("a",), [(cell,)])]).markdown()


def test_bars_whose_numbers_stand_in_a_table_are_for_the_page_only() -> None:
    bars = [("a", Percent(0.291)), ("b", Percent(0.048))]
    both, page_only = (Report("t", {}, [Bars("chart", bars, "above", tabled=tabled)]) for tabled in (True, False))
    assert "| a | 29.1% |" in both.markdown()
    assert page_only.markdown() == Report("t").markdown()
    assert page_only.html() == both.html()
    assert "29.1% above" in page_only.html()


ODD = [
    "a|b",
    "a\\|b",
    "a\\",
    "<script>alert(1)</script>",
    "<!-- x",
    "&lt;b&gt; &#60; Q&A",
    "*a* **b** _c_ __d__ ~~e~~ `f`",
    "[x](javascript:alert(1)) ![y](z) <http://x>",
    "'__init__.jsonl'",
    "c__t__u.jsonl",
    "line\nfeed\ttab",
]


@pytest.mark.parametrize("text", ODD)
def test_a_text_in_markdown_shows_itself_and_does_nothing(text: str) -> None:
    said = " ".join(text.split("\n")).replace("\t", " ")
    report = Report(text, {text: text}, [Table(text, (text, "n"), [(text, 1)], text)], text, [text]).markdown()
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    inline = [token for token in reader.parse(report) if token.type == "inline"]
    assert {token.type for token in reader.parse(report)} & {"html_block", "fence", "code_block"} == set()
    allowed = {"text", "text_special", "strong_open", "strong_close", "softbreak"}
    shown = []
    for token in inline:
        assert {part.type for part in token.children or ()} <= allowed
        shown.append("".join(part.content for part in token.children or () if part.type.startswith("text")))
    # Title, verdict, line to look at, figure; title of the table, its note, header and row.
    assert shown == [said, said, f"look at: {said}", f"{said}: {said}", said, said, said, "n", said, "1"]


def test_characters_that_a_terminal_acts_on_are_drawn() -> None:
    assert plain("a\x1b[31mb\x07\x7f\udc80") == "a␛\\[31mb␇␡\ufffd"


def test_markdown_tables_are_not_broken_by_their_cells() -> None:
    lines = nasty().markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert "| x\\|y z | 0.1235 |" in rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3
        assert not re.search(r"(?<!\\)<", row)
    assert lines[0].startswith("# title")


def test_tables_and_charts_without_rows_say_so() -> None:
    report = Report("t", {}, [Table("Empty table", ("a", "b"), []), Bars("Empty chart", [])])
    assert "Empty table" in report.html()
    parse(report.html())
    assert report.markdown().count("Nothing.") == 2


def drawn(block: Block) -> list[list[tuple[str, str]]]:
    """Colour and width of the bars of each line."""
    lines = re.findall(r"<i>(.*?)</i>", Report("t", {}, [block]).html())
    return [re.findall(r'<b class="(c\d)" style="(.*?)"></b>', line) for line in lines]


def test_bars_are_as_long_as_their_values_say() -> None:
    bars = Bars("b", [("a", 100), ("b", 50), ("c", 0)], colour=1)
    assert drawn(bars) == [[("c1", "width:100.0%")], [("c1", "width:50.0%")], []]
    assert drawn(Bars("b", [("a", 10**9), ("b", 1)]))[1] == [("c0", "width:0.0%")]
    assert "min-width:2px" in Report("t").html()  # what is there is seen
    assert drawn(Bars("b", [("a", 0), ("b", 0)])) == [[], []]


def test_the_same_report_is_the_same_bytes() -> None:
    assert nasty().html() == nasty().html()
    assert nasty().markdown() == nasty().markdown()


def test_stacked_bars_are_shares_of_their_own_whole() -> None:
    bars = [("large", (3_000_000, 1_000_000, 0)), ("small", (1, 1, 2)), ("none", (0, 0, 0)), ("few", (10**6, 1, 1))]
    stacked = Stacked("s", ("kept", "dropped", "odd"), bars, "rows")
    assert drawn(stacked) == [
        [("c0", "flex:1.0000 0 0"), ("c1", "flex:0.3333 0 0")],
        [("c0", "flex:0.5000 0 0"), ("c1", "flex:0.5000 0 0"), ("c2", "flex:1.0000 0 0")],
        [],
        [("c0", "flex:1.0000 0 0"), ("c1", "flex:0.0000 0 0"), ("c2", "flex:0.0000 0 0")],
    ]
    page = Report("t", {}, [stacked]).html()
    for colour, name in enumerate(("kept", "dropped", "odd")):
        assert f'<span><b class="c{colour}"></b>{name}</span>' in page
    for text in ("4,000,000 rows", "0 rows"):
        assert f">{text}<" in page
    assert 'title="large: 3,000,000 kept, 1,000,000 dropped, 0 odd"' in page


def test_grouped_bars_have_one_scale() -> None:
    grouped = Grouped("g", ("now", "then"), [("web", (40, 80)), ("books", (20, 0))], "%")
    assert drawn(grouped) == [
        [("c0", "width:50.0%"), ("c1", "width:100.0%")],
        [("c0", "width:25.0%"), ("c1", "visibility:hidden")],
    ]
    page = Report("t", {}, [grouped]).html()
    assert 'title="web: now 40, then 80 %"' in page
    assert ">20 %<" in page
    assert grouped.markdown(2) == []
    assert Grouped("g", ("now",), []).html(2) == ""


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (1, "0 1"),
        (3, "0 1 2 3"),
        (7, "0 2 4 6 8"),
        (100, "0 20 40 60 80 100"),
        (7_473, "0 2,000 4,000 6,000 8,000"),
        (16_000, "0 5,000 10k 15k 20k"),
        (112_000_000, "0 50M 100M 150M"),
    ],
)
def test_columns_stand_on_axes_of_round_numbers(most: int, ticks: str) -> None:
    page = Report("t", {}, [Histogram("h", [("8–15", most), ("16–31", 0)], "characters", "rows")]).html()
    drawn = re.findall(r'<text class="axis"[^>]*text-anchor="end">([\d,]+[kMG]?)</text>', page)
    assert drawn == ticks.split()
    for text in ("rows", "characters", "8–15", "16–31", f"8–15 characters: {most:,} rows", "16–31 characters: 0 rows"):
        assert f">{text}<" in page
    assert f'aria-label="h in characters: 8–15: {most:,} rows; 16–31: 0 rows"' in page


def test_columns_without_rows_have_no_height() -> None:
    page = Report("t", {}, [Histogram("h", [("0", 0), ("1", 1), ("2–3", 10**9)])]).html()
    assert re.findall(r'<rect[^>]* height="([\d.]+)"', page)[0] == "0.0"
    assert re.findall(r'<rect[^>]* height="([\d.]+)"', page)[1] == "1.5"  # what is there is seen
    assert "<svg" not in Report("t", {}, [Histogram("h", []), Histogram("h", [])]).html()
    assert "<svg" in Report("t", {}, [Histogram("h", [("0", 0)])]).html()


def test_many_bins_have_slanted_labels() -> None:
    few, many = ([(f"{2**i:,}–{2 ** (i + 1) - 1:,}", i) for i in range(count)] for count in (3, 20))
    assert "rotate" not in Report("t", {}, [Histogram("h", few)]).html()
    assert Report("t", {}, [Histogram("h", many)]).html().count("rotate") == 20


def test_curves_go_up_by_doublings_and_marks_stand_beside_them() -> None:
    curve = Curve("c", [(256, 1.0), (512, 2), (4096, 3.0)], "tokens", "bytes per token", [("held out", 4096, 1.5)])
    page = Report("t", {}, [curve]).html()
    parse(page)
    (line,) = re.findall(r'<polyline points="([^"]*)"', page)
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    # 52 to 446 are four doublings, 192 to 22 three bytes.
    assert points == [(52, 135.3), (150.5, 78.7), (446, 22)]
    (mark,) = re.findall(r'<circle class="c2" cx="([\d.]+)" cy="([\d.]+)"', page)
    assert mark == ("446.0", "107.0")
    for text in ("256", "512", "1,024", "4,096", "held out", "held out 4,096 tokens: 1.5 bytes per token"):
        assert f">{text}<" in page
    said = "c in tokens: 256: 1 bytes per token; 512: 2 bytes per token; 4,096: 3 bytes per token; held out 4,096: 1.5"
    assert f'aria-label="{said} bytes per token"' in page
    assert "| 512 | 2 |\n| 4,096 | 3 |\n| 4,096 (held out) | 1.5 |" in Report("t", {}, [curve]).markdown()
    assert "<svg" not in Report("t", {}, [Curve("c", [], "x", "y")]).html()
    page = Report("t", {}, [Curve("c", [(287, 1.0)], "x", "y")]).html()
    parse(page)
    assert page.count(">287<") == 1
    # Where there are less than two doublings, the ends have labels.
    page = Report("t", {}, [Curve("c", [(287, 1.0), (600, 2.0)], "x", "y")]).html()
    assert ">287<" in page
    assert ">600<" in page
    assert ">512<" not in page


def test_samples_keep_white_space_and_direction_and_are_cut() -> None:
    rows = [
        {"tag": "cot", "question": "\n\n  two\tfeeds", "answer": "x" * 501},
        {"tag": "", "question": "مرحبا", "answer": "".join(f"{line}\n" for line in range(100))},
        {"tag": "b", "question": "y" * 500, "answer": ""},
    ]
    page = Report("t", {}, [Samples("s", rows, tag="tag")]).html()
    parse(page)
    # The first line feed behind <pre> is the page's, not the text's.
    texts = re.findall(r'<pre dir="auto">\n(.*?)</pre>', page, re.DOTALL)
    assert texts == ["\n\n  two\tfeeds", "x" * 500 + "…", "مرحبا", "\n".join(map(str, range(16))) + "…", "y" * 500]
    assert re.findall(r"tag <b>(.*?)</b>", page) == ["cot", "(empty)", "b"]
    assert page.count("<i>(empty)</i>") == 1
    assert "<h2" not in Report("t", {}, [Samples("s", [])]).html()


def test_what_has_no_glyph_is_seen_and_what_is_no_unicode_is_written() -> None:
    table = Table("t", ("a",), [("a\0b\r\x1b\x7f\ud800",)])
    report = Report("t", {"f": "\ud800"}, [table, Samples("s", [{"a": "\0\t\n\ud83d"}])])
    for text in (report.html(), report.markdown()):
        assert "a␀b␍␛␡\ufffd" in text
        assert text.encode()
    assert '<pre dir="auto">\n␀\t\n\ufffd</pre>' in report.html()


def test_sections_fold_and_say_what_is_in_them() -> None:
    inner = [Table("inside", ("a",), [(1,)], "note"), Histogram("h", [("0", 1)])]
    report = Report("t", {}, [Section("one", inner, "1 row"), Section("two", inner[1:], unfolded=True)])
    page = report.html()
    parse(page)
    assert "<details><summary><h2>one</h2> <span>1 row</span></summary><h3>inside</h3>" in page
    assert "<details open><summary><h2>two</h2>" in page
    assert report.markdown() == "# t\n\n\n## one\n\n1 row\n\n### inside\n\nnote\n\n| a |\n|---|\n| 1 |\n"


def test_charts_for_the_page_leave_nothing_in_the_text() -> None:
    blocks = [Stacked("s", ("a",), [("x", (1,))]), Histogram("h", [("0", 1)]), Samples("r", [{"a": "b"}])]
    assert Report("t", {}, [*blocks]).markdown() == "# t\n\n"


def test_columns_of_long_texts_may_break_anywhere_and_others_may_not() -> None:
    page = Report("t", {}, [Table("t", ("a", "b", "n"), [("x" * 31, "short", 1), ("y", "z", 2)])]).html()
    assert f'<td class="w">{"x" * 31}</td><td>short</td><td class="n">1</td>' in page
    assert '<td class="w">y</td><td>z</td>' in page
