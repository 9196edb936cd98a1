"""The report of clean: every count of the manifest is there, whatever the rows hold."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.stages.clean.report import report_of

NASTY = '</pre></details><script>alert("x")</script><img src=http://example.com onerror=x> & مرحبا 🧮'
CITATION = "Doe, Roe: A Set of <Problems>. 2021, arXiv:2101.00001"


def source(
    kept: int = 900,
    dropped: dict[str, int] | None = None,
    notes: dict[str, int] | None = None,
    rejects: int = 0,
    reasons: list[tuple[str, int, str, str, str, str]] | None = None,
) -> dict[str, Any]:
    dropped = {"proof_question": 75, "null_response": 25} if dropped is None else dropped
    ledger = Ledger(kept + sum(dropped.values()), kept, kept * 2, dropped, notes or {})
    sample = {"condition": "synth,cot", "instruction": "What is\n\n  2 + 2?", "response": NASTY}
    return {
        "ledger": ledger.__dict__,
        "rejects": rejects,
        "reject_reasons": [
            dict(zip(("reason", "count", "file", "place", "found", "write"), one, strict=True))
            for one in reasons or [("b", 1, "f", "row 1", "null", "")]
        ],
        "reject_files": ["rejects/data/a.jsonl.jsonl", "rejects/data/b.jsonl.jsonl"] if rejects else [],
        "instruction_bits": [0, 0, 0, 12, 0, 1788, 0, 0],
        "response_bits": [3, 4, 1793, *[0] * 20],
        "samples": [{**sample, "instruction": f"{number}: {sample['instruction']}"} for number in range(3)],
        "about": {"licence": "CC-BY-4.0", "citation": CITATION},
    }


def manifest(sources: dict[str, dict[str, Any]], outputs: dict[str, int] | None = None) -> Manifest:
    return Manifest(
        stage="clean",
        version=1,
        fingerprint="0123456789abcdef",
        options={},
        inputs=[InputRef("raw", "00")],
        ledger=Ledger.sum(Ledger(**one["ledger"]) for one in sources.values()),
        files=[],
        data={"sources": sources, "outputs": outputs or {"data/a.jsonl": 1800}},
    )


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def section(page: str, name: str) -> str:
    """The part of a page that is about one source."""
    found = re.search(rf"<details[^>]*><summary><h2>{re.escape(name)}</h2>.*?</details>", page, re.DOTALL)
    assert found, name
    return found.group()


def test_every_count_of_a_source_is_on_the_page() -> None:
    one = source(123_400, {"proof_question": 7_001, "null_response": 602}, {"code (one answer left out)": 55}, 602)
    page = report_of(manifest({"first": one, "second": source()})).html()
    row = "".join(f'<td class="n">{cell}</td>' for cell in ("131,003", "123,400", "7,603", "602", "246,800", "94.2%"))
    assert f"<tr><td>first</td>{row}</tr>" in page
    assert "first: 123,400 kept, 7,001 dropped, 602 malformed" in page
    mine = section(page, "first")
    assert "131,003 in · 94.2% kept · 246,800 rows out · 602 malformed" in mine
    for text in ("proof_question", "7,001 records", "null_response", "602 records", "55 records"):
        assert f">{text}<" in mine
    assert mine.index("proof_question") < mine.index("null_response")
    assert "7,076 records" in page  # 7,001 and 75: over all sources
    for figure in ("132,003", "124,300", "7,703", "248,600", "0123456789abcdef"):
        assert f"<dd>{figure}</dd>" in page


def test_lengths_are_columns_from_the_first_used_bin_to_the_last() -> None:
    mine = section(report_of(manifest({"first": source()})).html(), "first")
    instruction, response = re.findall(r'<div class="half">(.*?)</svg>', mine)
    assert re.findall(r"<g><title>(.*?)</title>", instruction) == [
        "4–7 characters: 12 rows",
        "8–15 characters: 0 rows",
        "16–31 characters: 1,788 rows",
    ]
    assert re.findall(r"<g><title>(.*?)</title>", response) == [
        "0 characters: 3 rows",
        "1 characters: 4 rows",
        "2–3 characters: 1,793 rows",
    ]
    assert "Length of instructions in characters" in instruction
    assert "Length of responses in characters" in response


def test_large_bins_are_named_by_their_bounds() -> None:
    one = source() | {"response_bits": [0] * 17 + [5]}
    assert "65,536–131,071 characters: 5 rows" in report_of(manifest({"first": one})).html()


def test_samples_stand_as_they_are_and_are_no_markup() -> None:
    page = report_of(manifest({"first": source()})).html()
    tags = _Tags(page)
    assert not tags.names & {"script", "img", "link", "iframe", "a", "form"}
    assert not tags.attributes & {"src", "href", "onerror"}
    mine = section(page, "first")
    texts = [unescape(text) for text in re.findall(r'<pre dir="auto">\n(.*?)</pre>', mine, re.DOTALL)]
    assert texts == [text for number in range(3) for text in (f"{number}: What is\n\n  2 + 2?", NASTY)]
    assert mine.count("<b>synth,cot</b>") == 3


def test_malformed_records_stand_with_their_origin_at_their_source() -> None:
    many = [
        ("null_response", 36, "first/part <9>.parquet", "row 9", "null", "where: has(response)"),
        ("response_is_no_text", 1, "first/part <10>.parquet", "row 12", "a list of 2", "response: response[0]"),
    ]
    odd = [("unpaired_surrogate", 1, "second/amps.tar.gz", "member math/x row 3: y.txt", "'\\ud800'", "")]
    page = report_of(manifest({"first": source(rejects=37, reasons=many), "second": source(rejects=1, reasons=odd)}))
    first, second = section(page.html(), "first"), section(page.html(), "second")
    # Columns with a long cell may break anywhere.
    first, second = (re.sub(r'<td class="w">', "<td>", one) for one in (first, second))
    assert (
        '<td>null_response</td><td class="n">36</td><td>first/part &lt;9&gt;.parquet row 9</td><td>null</td>'
        "<td>where: has(response)</td>"
    ) in first
    assert "<td>a list of 2</td><td>response: response[0]</td>" in first
    assert "rejects/data/a.jsonl.jsonl and 1 files more" in first
    assert "<td>second/amps.tar.gz member math/x row 3: y.txt</td>" in second
    assert "Malformed records" not in section(report_of(manifest({"third": source()})).html(), "third")


@pytest.mark.parametrize(("count", "unfolded"), [(1, True), (4, True), (5, False), (25, False)])
def test_sources_are_unfolded_while_they_are_few(count: int, unfolded: bool) -> None:
    page = report_of(manifest({f"source{number:02}": source() for number in range(count)})).html()
    assert section(page, "source00").startswith("<details open>" if unfolded else "<details>")


def test_every_licence_and_citation_is_in_one_table() -> None:
    fetched = source() | {
        "about": {
            "licence": "MIT",
            "citation": "Somebody",
            "revision": "0123456789abcdef0123456789abcdef01234567",
            "origin": "https://example.com/set",
        }
    }
    page = report_of(manifest({"first": source(), "second": fetched})).html()
    assert "<th>Source</th><th>Licence</th><th>Revision</th><th>Origin</th><th>Citation</th>" in page
    assert "<td>CC-BY-4.0</td><td>–</td><td>–</td>" in page
    assert "Doe, Roe: A Set of &lt;Problems&gt;. 2021, arXiv:2101.00001" in page
    assert "<td>MIT</td><td>0123456789ab…</td><td>https://example.com/set</td>" in page
    assert "_MANIFEST.json" in page
    assert "Revision" not in report_of(manifest({"first": source()})).html()


def test_two_thousand_files_and_nasty_texts_stay_readable() -> None:
    worst = {"condition": "synth,noisy,cot", "instruction": "<&>\"'" * 120, "response": "🧮" * 600}
    one = source(rejects=90, reasons=[("null_response", 9, "x" * 200, "row 1", "y" * 200, "z" * 200)] * 10) | {
        "samples": [worst] * 3,
        "instruction_bits": [7] * 24,
        "response_bits": [7] * 24,
    }
    sources = {f"source{number:02}": one for number in range(25)}
    outputs = {f"data_clustered/flan/task_{number:04}.parquet": number for number in range(2_000)}
    report = report_of(manifest(sources, outputs))
    page = report.html()
    assert len(page.encode()) < 1_000_000
    files = section(page, "Files")
    assert files.startswith("<details>")
    assert files.count("<tr>") == 51
    assert files.index("task_1999") < files.index("task_1950")
    assert "task_1949" not in files
    assert "2,000 with 1,999,000 rows" in files
    assert f"1,950 more hold {sum(range(1_950)):,} rows" in files
    assert "more hold" not in section(report_of(manifest(sources)).html(), "Files")


def test_the_text_has_tables_only() -> None:
    sources = {
        "first": source(
            notes={"code (one answer left out)": 55},
            rejects=1,
            reasons=[("null_response", 1, "first/a|b", "row 7", "null", "")],
        ),
        "second": source(dropped={}),
    }
    text = report_of(manifest(sources)).markdown()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# clean",
        "## Sources",
        "## Dropped, by reason",
        "## Noted of records that were kept",
        "## first",
        "### Dropped, by reason",
        "### Noted of records that were kept",
        "### Malformed records",
        "## Licences and citations",
        "## Files",
        "### By rows",
    ]
    for line in (
        "| first | 1,000 | 900 | 100 | 1 | 1,800 | 90.0% |",
        "| second | 900 | 900 | 0 | 0 | 1,800 | 100% |",
        "| proof_question | 75 |",
        "| code (one answer left out) | 55 |",
        "| null_response | 1 | first/a\\|b row 7 | null |  |",
        "| data/a.jsonl | 1,800 |",
    ):
        assert line in text.splitlines()
    assert "script" not in text
    assert "2 + 2" not in text


def test_a_source_without_rows_has_a_report() -> None:
    empty = source(0, {}) | {"samples": [], "instruction_bits": [0] * 40, "response_bits": [0] * 40}
    page = report_of(manifest({"first": empty}, {"data/a.jsonl": 0})).html()
    assert "0 in · – kept · 0 rows out" in page
    assert "nan" not in page
    assert '<div class="half">' not in page
    assert "<svg" not in section(page, "first")


def test_a_manifest_that_was_read_again_has_the_same_report() -> None:
    sources = {"second": source(), "first": source(dropped={"b": 1, "a": 1, "c": 2}, rejects=1)}
    made = manifest(sources, {"data/b": 1, "data/a": 1})
    again = Manifest.load(made.dump(), "here")
    assert report_of(again).html() == report_of(made).html()
    assert report_of(again).markdown() == report_of(made).markdown()
