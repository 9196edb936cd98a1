"""The report of select: every count of the manifest is there, the rows to judge by, and nothing of a text is markup."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.formats.results.rows import SelectResult
from pairmill.stages.select.report.page import report_of
from pairmill.stages.select.settings import Settings
from pairmill.stages.select.summary import metrics_of
from tests.unit.report.test_report import parse

NASTY = '</pre></details><script>alert("x")</script><img src=http://example.com onload=x> & مرحبا 🧮'


def sample(task: str, ordinal: int, value: float) -> dict[str, Any]:
    return {"value": value, "task": task, "ordinal": ordinal, "instruction": NASTY, "response": f"response {ordinal}"}


def lengths(rows: int, response: int, bins: dict[int, int]) -> dict[str, Any]:
    return {
        "rows": rows,
        "instruction": 10 * rows,
        "response": response,
        "bins": [bins.get(at, 0) for at in range(32)],
    }


def divergence(rows: int, uniform: float, selected: float) -> dict[str, Any]:
    return {
        "rows": rows,
        "raw": 1.5,
        "uniform": uniform,
        "selected": selected,
        "reduction": uniform - selected,
        "selected_unsmoothed": 2.0,
        "mean_features_raw": 212.5,
        "mean_features_selected": 185.25,
    }


DATA: dict[str, Any] = {
    "settings": Settings().to_manifest(),
    "method": "dsir",
    "mode": "drop",
    "budget": {"unit": "rows", "asked": 100, "taken": 90},
    "rows": 1000,
    "candidates": 800,
    "chosen": 90,
    "outside": 7,
    "rankings": [
        {"name": "sea", "share": 0.75, "rows": 70, "tokens": 0},
        {"name": "law", "share": 0.25, "rows": 20, "tokens": 0},
    ],
    "groups": {
        "by": "topic.name",
        "number": 2,
        "short": 1,
        "redistributed": 12.5,
        "groups": [
            {"group": "a", "candidates": 700, "asked": 45.5, "quota": 58, "taken": 58, "rows": 58},
            {"group": "", "candidates": 100, "asked": 44.5, "quota": 32, "taken": 32, "rows": 32},
        ],
    },
    "divergences": {"sea": divergence(70, 1.25, 1.0), "law": divergence(20, 1.0, 1.125)},
    "sources": {
        "gold": {"rows": 600, "chosen": 89, "characters": 60_000, "characters_chosen": 4_000},
        "web": {"rows": 300, "chosen": 1, "characters": 60_000, "characters_chosen": 1_000},
        "none": {"rows": 100, "chosen": 0, "characters": 10, "characters_chosen": 0},
    },
    "lengths": {
        "before": lengths(1000, 120_010, {0: 5, 3: 10, 7: 985}),
        "after": lengths(90, 5_000, {0: 1, 7: 89}),
    },
    "samples": {
        "sea": {"best": [sample("gold.jsonl", 3, 2.5)], "worst": [sample("web.jsonl", 4, -2.5)]},
        "law": {"best": [sample("gold.jsonl", 5, 1.5)], "worst": [sample("web.jsonl", 6, -1.5)]},
    },
}


def manifest(data: dict[str, Any]) -> Manifest:
    ledger = Ledger(1000, 90, 90, dropped={"not_selected_dsir": 910})
    return Manifest("select", 1, "0123456789abcdef", {}, [InputRef("rows", "00")], ledger, [], data=data)


def plain(page: str) -> str:
    return re.sub(r' class="[nw]"', "", page)


def test_every_count_is_on_the_page() -> None:
    page = plain(report_of(manifest(DATA)).html())
    for row in (
        ("sea", "70", "1.5", "1.25", "1", "0.25", "212.5", "185.2"),
        ("law", "25.0%", "20", "22.2%"),
        ("gold", "600", "89", "14.8%", "60.0%", "98.9%", "80.0%"),
        ("Response", "120", "55.56"),
        ("4 to 7", "1.0%", "0%"),
        ("64 to 127", "98.5%", "98.9%"),
        ("(no value)", "100", "44.5", "32", "32", "32", "32.0%"),
        ("method", '"off"'),
        ("sidecar", "null"),
    ):
        assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" in page, row
    for text in (
        "Less is taken than was asked for: 90 of 100 rows.",
        "7 rows were taken by dsir, and went for the bounds of attributes.where.",
        "The rows chosen for law are no nearer to it than a uniform sample.",
        "Chosen responses are much shorter than others: 46.3% of the mean length.",
        "Less than 2% is chosen of web.",
        "Groups with less than their part of the budget: 1. 12 rows went to other groups.",
    ):
        assert text in page, text


def test_texts_of_rows_are_text() -> None:
    page = report_of(manifest(DATA)).html()
    assert "<script" not in page
    assert "<img" not in page
    assert page.count('alert("x")') == 4
    for name in ("response 3", "response 4", "web.jsonl:6"):
        assert name in page
    parse(page)


def test_a_choice_of_attributes_alone_has_a_report() -> None:
    data = copy.deepcopy(DATA) | {"divergences": {}, "groups": {}, "mode": "report", "outside": 0}
    data["rankings"], data["samples"] = data["rankings"][:1], {"attributes": data["samples"]["sea"]}
    report = report_of(manifest(data))
    text = report.markdown()
    assert "Next: read the best and worst rows, then set mode: drop in select_config.yaml." in text
    assert "How near" not in text
    parse(report.html())


def test_metrics_are_numbers_to_compare_runs_by() -> None:
    assert metrics_of(SelectResult.from_manifest(manifest(DATA))) == {
        "candidates": 800,
        "chosen": 90,
        "chosen_fraction": 0.09,
        "kl_reduction_sea": 0.25,
        "kl_reduction_law": -0.125,
        "mean_response_characters_before": 120.01,
        "mean_response_characters_after": pytest.approx(55.556),
    }
