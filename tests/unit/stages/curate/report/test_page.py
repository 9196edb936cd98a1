"""The report of curate: every count of the manifest is there, evidence beside it, and it stays small."""

import copy
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.manifest import Ledger, Manifest, read
from pairmill.stages.curate.report.page import report_of
from tests.support.data import curated_folder
from tests.unit.report.test_report import parse

NASTY = '</pre></details><script>alert("x")</script><img src=http://example.com onload=x> & مرحبا 🧮'


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    _, curated = curated_folder.write(tmp_path)
    found = read(str(curated))
    assert found is not None
    return found


def cells(page: str, *row: str) -> str:
    """A line of a table, without the classes of its cells."""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"


def plain(page: str) -> str:
    return re.sub(r' class="[nw]"', "", page)


def section(page: str, name: str) -> str:
    found = re.search(rf"<details[^>]*><summary><h2>{re.escape(name)}</h2>.*?</details>", page, re.DOTALL)
    assert found, name
    return found.group()


def test_every_count_is_on_the_page(manifest: Manifest) -> None:
    page = plain(report_of(manifest).html())
    for row in (
        ("exact", "drop", "pair", "2", "2", "0", "instruction and response are equal"),
        ("heuristics", "report", "r_url_ratio_max", "1", "0", "1", ""),
        ("filter", "report", "–", "0", "0", "0", ""),
        ("web", "6", "2", "33.3%", "contaminated_question_answer (25.0%)"),
        ("gold", "3", "3", "100%", "–"),
        ("web", "pair", "2", "33.3%"),
        ("sums", "12", "1", "8.3%", "1", "1 question_answer", "1 web"),
        ("near", "8", "900", "2,000", "3", "0"),
        ("exact", "9", "1,000", "300", "–", "–"),
        ("near.min_response", "20"),
    ):
        assert cells(page, *row) in page, row
    assert "web: 2 kept, 2 duplicates, 2 leaks and held out, 0 quality" in page
    assert 'title="web → gold: 1 rows"' in page
    assert ">max 0.2<" in page


def test_the_verdict_says_what_happened_and_what_to_do(manifest: Manifest) -> None:
    said = report_of(manifest).verdict
    assert said.startswith("Rows: 9 in → 5 kept (55.6%), 4 dropped: ")
    assert "Next: read the samples of heuristics: r_url_ratio_max, which only report." in said
    manifest.data["operations"]["heuristics"]["would_go"] = {}
    assert "Next: read the pairs closest to each threshold" in report_of(manifest).verdict
    manifest.data["settings"]["report_all"] = True
    assert "Nothing was dropped, since report_all" in report_of(manifest).verdict
    manifest.data["settings"]["report_all"] = False
    manifest.ledger = Ledger(rows_in=4, dropped={"dup_near": 4})
    assert "Next: raise the bound of the rule that dropped most" in report_of(manifest).verdict


def test_what_is_unusual_is_said(manifest: Manifest) -> None:
    said = report_of(manifest).look_at
    assert "Benchmarks leak into the rows: sums (1 of 12 items); rows dropped: 1." in said
    data = manifest.data
    data["matrix"] = {"web": {"gold": 4}}
    leaks = data["operations"]["decontaminate"]
    leaks["rules"], leaks["would_go"] = {"question_answer": {"report": 1}}, {"question_answer": 1}
    data["operations"]["heuristics"]["would_go"]["r_url_ratio_max"] = 5
    data["costs"]["near"]["unverified"] = 1_234
    said = report_of(manifest).look_at
    assert "Most of a source repeats rows of another: web by gold (66.7%)." in said
    assert any(line.endswith("rows only reported: 1; decontaminate: {mode: drop} removes them.") for line in said)
    assert "Rules that only report find a large share of the rows: heuristics: r_url_ratio_max (55.6%)." in said
    (line,) = (line for line in said if line.startswith("Pairs of rows that were not compared"))
    assert "too many rows are alike in the same way: 1,234." in line


def test_samples_are_side_by_side_with_what_differs_marked(manifest: Manifest) -> None:
    page = report_of(manifest).html()
    near = section(page, "Samples of near")
    assert "dropped · near: strong · instruction 0.910, response 0.875" in near
    assert "<b>data__web.parquet:0</b></p><p><b>data__gold.jsonl:0</b>" in near
    assert "<mark>trace</mark>" in near
    assert "<mark>follow</mark>" in near
    assert "<h3>near: strong</h3>" in section(page, "Closest to a threshold")
    leaks = section(page, "Items of sums")
    assert "<b>sums item 7</b>" in leaks
    assert "<p>question</p>" in leaks
    assert "<h3>r_url_ratio_max</h3>" in section(page, "Samples of heuristics")
    assert list(re.findall(r"Samples of (\w+)<", page)) == ["exact", "near", "decontaminate", "heuristics"]


def test_a_question_in_a_response_is_beside_the_response(manifest: Manifest) -> None:
    sample = manifest.data["samples"]["decontaminate.question_answer"][0]
    sample |= {"instruction": "Write a text.", "response": sample["other_instruction"], "detail": "response"}
    leaks = section(report_of(manifest).html(), "Items of sums")
    assert "<p>response</p>" in leaks
    assert "<p>question and answer</p>" in leaks
    assert "Write a text." not in leaks
    assert "<mark>3</mark>" in leaks  # of the answer, which the response lacks


def test_texts_with_personal_data_are_not_on_the_page(manifest: Manifest) -> None:
    sample = {
        "task": "data__gold.jsonl",
        "ordinal": 0,
        "rule": "EMAIL",
        "action": "redact",
        "instruction": "write to ann@example.org",
        "response": "I wrote",
        "detail": "1 span",
    }
    manifest.data["operations"]["pii"] = {
        "mode": "redact",
        "modes": {"EMAIL": "redact"},
        "rules": {"EMAIL": {"redact": 1}},
        "would_go": {},
        "by_source": {},
    }
    manifest.data["samples"]["pii.EMAIL"] = [sample]
    manifest.ledger.note("redacted")
    report = report_of(manifest)
    assert "data__gold.jsonl:0" in section(report.html(), "Samples of pii")
    for text in (report.html(), report.markdown()):
        assert "ann@" not in text
        assert "redacted · pii: EMAIL · 1 span" in text
    assert report.figures["Rows changed"] == 1


def test_a_manifest_that_was_read_again_gives_the_same_report(manifest: Manifest) -> None:
    again = Manifest.load(manifest.dump(), "memory")
    first, second = report_of(manifest), report_of(again)
    assert first.html() == second.html()
    assert first.markdown() == second.markdown()
    shuffled = copy.deepcopy(again)
    shuffled.data = dict(reversed(list(json.loads(json.dumps(again.data)).items())))
    shuffled.data["operations"] = dict(reversed(list(again.data["operations"].items())))
    assert report_of(shuffled).html() == first.html()


def test_operations_that_were_off_leave_nothing(manifest: Manifest) -> None:
    manifest.data = {"settings": {}, "sources": {}, "operations": {}}
    manifest.ledger = Ledger()
    page = report_of(manifest).html()
    parse(page)
    assert "Rows: 0 in → 0 kept" in page
    for absent in ("Samples of", "Closest to", "Near duplicates", "Benchmarks", "Attributes with"):
        assert absent not in page


def _texts(value: Any) -> Any:
    """The same data with every text made nasty; names are as they were."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return f"{value} {NASTY}" if isinstance(value, str) else value


def test_every_text_is_escaped(manifest: Manifest) -> None:
    data = _texts(manifest.data)
    data["sources"] = {f"{name} {NASTY}": one for name, one in data["sources"].items()}
    data["operations"]["heuristics"]["rules"] = {f"rule {NASTY}": {"report": 1}}
    data["operations"]["near"]["by_source"] = {f"source {NASTY}": {f"found {NASTY}": 1}}
    data["matrix"] = {f"line {NASTY}": {f"column {NASTY}": 1}}
    data["benchmarks"] = {f"benchmark {NASTY}": data["benchmarks"]["sums"]}
    data["samples"] |= {f"language.{NASTY}": data["samples"]["heuristics.r_url_ratio_max"]}
    data["histograms"] = {f"heuristics.{NASTY}": data["histograms"]["heuristics.r_url_ratio"]}
    data["costs"] = {f"costs {NASTY}": {f"column {NASTY}": 3}}
    manifest.data = data
    page = report_of(manifest).html()
    reader = parse(page)
    assert {"script", "img"}.isdisjoint(reader.tags)
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in {"src", "href"}]
    shown = unescape(page)
    for name in ("rule", "source", "found", "line", "column", "benchmark", "costs"):
        assert f"{name} {NASTY}" in shown, name


def test_a_hundred_thousand_tasks_stay_small(manifest: Manifest) -> None:
    data = manifest.data
    names = [f"source_{number:06}_{'x' * 60}" for number in range(5_000)]
    data["sources"] = {name: {"rows": 100, "kept": 40, "dropped": {"dup_near": 60}} for name in names}
    data["matrix"] = {name: dict.fromkeys(names[:10], 3) for name in names}
    rules = {f"rule_{number}": {"report": number + 1} for number in range(3_000)}
    data["operations"]["heuristics"] = {
        "mode": "report",
        "modes": {},
        "rules": rules,
        "would_go": {},
        "by_source": {name: {"rule_1": 3} for name in names},
    }
    sample = {**data["samples"]["near.strong"][0], "instruction": "a " * 1_000, "response": "b " * 1_000}
    sample |= {"other_instruction": "c " * 1_000, "other_response": "b c " * 500}
    data["samples"] = {f"heuristics.{name}": [sample] * 20 for name in rules} | {"near.strong": [sample] * 20}
    data["closest"] = {f"heuristics.{name}": [sample] * 20 for name in rules}
    data["benchmarks"] = {f"benchmark_{number}": data["benchmarks"]["sums"] for number in range(1_000)}
    data["histograms"] = {
        f"heuristics.metric_{number}": {"counts": [5] * 50, "edges": list(range(51)), "bounds": [None, number % 7]}
        for number in range(500)
    }
    report = report_of(manifest)
    page, text = report.html(), report.markdown()
    parse(page)
    assert len(page.encode()) < 1_000_000
    assert len(text.encode()) < 1_000_000
    for said in (
        "and 4,900 more sources",
        "and 2,804 more rules",
        "and 900 more benchmarks",
        "and 4,900 more lines",
        "and 2,952 more rules",
        "and 470 more below attributes/",
    ):
        assert said in page, said


def test_questions_that_were_not_compared_are_said(manifest: Manifest) -> None:
    assert not [one for one in report_of(manifest).look_at if "was not compared" in one]
    manifest.data["costs"]["decontaminate"] = {"rows": 6, "unscored": 1234}
    report = report_of(manifest)
    assert [one for one in report.look_at if one.startswith("1,234 times a benchmark's question was not compared")]
    assert "1,234" in section(report.html(), "Further counts")
