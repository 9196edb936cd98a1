"""Rules of curate that meet: one that reports beside one that drops, one field alone, nothing asked at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairmill.formats.given import instead_of
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from pairmill.stages.curate.explain import ExplainConfig, explain
from tests.support.stages.curating import curate, decisions, kept, manifest, settings, text, write

_A = ("direct", "what is it", "an answer")
_OTHER = ("direct", "what is it", "another")
_ALONE = "near: off\nheuristics: off\n"


@pytest.mark.parametrize(
    ("said", "reason"),
    [("instruction: drop", "dup_exact"), ("max_responses_per_instruction: 1", "cap_instruction")],
)
def test_copies_that_are_only_reported_still_count_for_the_rules_that_remove(
    tmp_path: Path, said: str, reason: str
) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [_A, _A, _OTHER]})
    folder = curate(tmp_path, given, f"exact: {{pair: report, {said}}}\n{_ALONE}")
    assert kept(folder, "a.jsonl") == [_A]
    assert manifest(folder).ledger.dropped == {reason: 2}
    found = [
        (one["ordinal"], one["rule"]) for one in decisions(folder, "exact", "a.jsonl") if one["action"] != "report"
    ]
    assert found == [(1, "instruction"), (2, "instruction")]


def test_copies_that_one_source_keeps_still_count_for_its_other_rules(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [_A, _A], "b.jsonl": [_A, _OTHER]})
    said = f"exact: {{instruction: drop}}\n{_ALONE}overrides: [{{prefix: b, exact: {{pair: report}}}}]\n"
    folder = curate(tmp_path, given, said)
    assert [len(kept(folder, name)) for name in ("a.jsonl", "b.jsonl")] == [1, 0]


def test_a_cap_counts_no_copies_that_go(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [_A, _A, _A, _OTHER]})
    folder = curate(tmp_path, given, f"exact: {{max_responses_per_instruction: 2}}\n{_ALONE}")
    assert kept(folder, "a.jsonl") == [_A, _OTHER]


@pytest.mark.parametrize("said", ["mode: report", "pair: report"])
def test_near_deduplication_removes_the_copies_that_exact_deduplication_only_reports(tmp_path: Path, said: str) -> None:
    row = ("", text(1), text(2))
    given = write(tmp_path / "in", {"a.jsonl": [row, row, ("", text(3), text(4))]})
    folder = curate(tmp_path, given, f"exact: {{{said}}}\nheuristics: off\n")
    assert kept(folder, "a.jsonl") == [row, ("", text(3), text(4))]
    assert manifest(folder).ledger.dropped == {"dup_near": 1}


def test_one_field_alone_drops_nothing_unless_it_is_asked_to(tmp_path: Path) -> None:
    files = {"a.jsonl": [("", text(1), text(2)), ("", text(1), text(3))]}
    given = write(tmp_path / "in", files)
    folder = curate(tmp_path / "report", given, "near: {fields: instruction}\nheuristics: off\n")
    assert [one["action"] for one in decisions(folder, "near", "a.jsonl")] == ["report"]
    folder = curate(tmp_path / "drop", given, "near: {mode: drop, fields: instruction}\nheuristics: off\n")
    assert manifest(folder).ledger.dropped == {"dup_near": 1}


def test_rows_that_are_passed_on_are_the_place_that_was_given(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"data/a.jsonl": [_A]})
    off = settings(tmp_path, "".join(f"{one}: off\n" for one in ("exact", "near", "decontaminate", "heuristics")))
    passed_on = instead_of("curate", CurateConfig(rows=[str(given)], root=str(tmp_path / "off"), curate_config=off))
    assert passed_on is not None
    assert passed_on.uris == (str(given),)
    asked = curate(tmp_path / "on", given)
    assert [file.task for file in manifest(asked).files if file.task] == ["data__a.jsonl"]


def test_rows_and_spans_that_are_redacted_are_counted_apart(tmp_path: Path) -> None:
    rows = [("", "mail a@example.com and b@example.com", "call +49 30 1234567"), ("", "no data", "here")]
    given = write(tmp_path / "in", {"a.jsonl": rows})
    folder = curate(tmp_path, given, "pii: {mode: redact}\n")
    made = manifest(folder)
    assert made.ledger.notes == {"redacted": 1}
    assert made.ledger.measures == {"redacted_EMAIL": 2, "redacted_PHONE": 1}
    assert "**Rows changed**: 1\n" in (folder / "report.md").read_text()


def test_scores_of_documents_have_their_own_names(tmp_path: Path) -> None:
    document = text(1, 300)
    given = write(tmp_path / "in", {"a.jsonl": [("", "", document), ("", "", document + " once more")]})
    folder = curate(tmp_path, given, "exact: off\n")
    said = explain(ExplainConfig(path=str(folder), row="a.jsonl:1"))
    assert "containment 1.000, Jaccard index 0." in " ".join(said.split())


def test_near_reports_what_it_would_drop_of_copies_that_are_kept(tmp_path: Path) -> None:
    row = ("", text(1), text(2))
    given = write(tmp_path / "in", {"a.jsonl": [row, row, row]})
    for mode, dropped in (("drop", {"dup_near": 2}), ("report", {})):
        folder = curate(tmp_path / mode, given, f"exact: {{pair: report}}\nnear: {mode}\nheuristics: off\n")
        assert manifest(folder).ledger.dropped == dropped
        assert manifest(folder).data["operations"]["near"]["owned"] == {"equal_instruction": 2}
        assert manifest(folder).data["operations"]["exact"]["owned"] == {}


def test_a_prefix_that_no_task_has_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = write(tmp_path / "in", {"data/web.jsonl": [_A]})
    said = "overrides: [{prefix: web, exact: off}, {prefix: data__web, near: off}]\n"
    said += "source_priority: [gold, {match: [silver*, tin*], not: '*web*'}, {match: '*web*'}]\n"
    curate(tmp_path, given, said)
    found = [record.getMessage() for record in caplog.records if "no task " in record.getMessage()]
    assert found == [
        "curate: overrides: no task begins with 'web'; the first of them is 'data__web.jsonl'",
        "curate: source_priority: no task begins with 'gold'; the first of them is 'data__web.jsonl'",
        "curate: source_priority: no task is meant by 'match silver*, tin* not *web*'; the first of them is "
        "'data__web.jsonl'",
    ]


def test_a_rule_that_reports_shows_its_own_mode_and_what_drop_would_remove(tmp_path: Path) -> None:
    rows = [("", f"question {at // 3}", f"answer {at}") for at in range(12)]
    given = write(tmp_path / "in", {"a.jsonl": [*rows, rows[0]]})
    folder = curate(tmp_path / "report", given, _ALONE)
    exact = manifest(folder).data["operations"]["exact"]
    assert exact["modes"] == {"pair": "drop", "instruction": "report"}
    assert exact["would_go"] == {"instruction": 8}
    report = (folder / "report.md").read_text()
    assert "| exact | report | instruction | 8 | 0 | 8 |" in report
    assert "| exact | drop | pair | 1 | 1 | 0 |" in report
    assert "**Would go, only reported**: 8\n" in report
    assert "exact: instruction" in (folder / "report.html").read_text().partition("Would go in mode drop, by rule")[2]
    assert Curate().metrics(manifest(folder))["would_go_fraction"] == round(8 / 13, 6)
    folder = curate(tmp_path / "drop", given, f"exact: {{instruction: drop}}\n{_ALONE}")
    assert len(kept(folder, "a.jsonl")) == 4
    exact = manifest(folder).data["operations"]["exact"]
    assert exact["rules"]["instruction"]["drop"] == 8
    assert exact["would_go"] == {}


def test_rows_that_several_rules_report_are_counted_once(tmp_path: Path) -> None:
    rows = [("", "one question", "one answer"), ("", "one question", "other"), ("", "another", "one answer")]
    given = write(tmp_path / "in", {"a.jsonl": [*rows, ("", "one question", "one answer again"), ("", "x", "other")]})
    folder = curate(
        tmp_path, given, "near: off\nheuristics: {mode: report, rules: [{metric: words, field: response, min: 2}]}"
    )
    data = manifest(folder).data
    assert data["operations"]["exact"]["would_go"] == {"instruction": 2, "response": 2}
    found = {one["ordinal"] for name in ("exact", "heuristics") for one in decisions(folder, name, "a.jsonl")}
    assert data["sources"]["a"]["would_go"] == len(found) == 4


def test_a_filter_with_rules_of_both_modes_has_the_decisions_of_both(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [_A, _OTHER, ("", "what is it", "a far longer answer")]})
    rules = [
        "{name: long, attribute: heuristics.r_words, max: 3}",
        "{name: question, attribute: heuristics.i_words, max: 2, mode: report}",
    ]
    folder = curate(tmp_path, given, f"near: off\nfilter: {{mode: drop, rules: [{', '.join(rules)}]}}\n")
    found = [(one["ordinal"], one["rule"], one["action"]) for one in decisions(folder, "filter", "a.jsonl")]
    assert found == [
        (0, "question", "report"),
        (1, "question", "report"),
        (2, "long", "drop"),
        (2, "question", "report"),
    ]
    data = manifest(folder).data["operations"]["filter"]
    assert (data["modes"], data["would_go"]) == ({"long": "drop", "question": "report"}, {"question": 2})


def test_leaks_that_only_report_show_their_mode(tmp_path: Path) -> None:
    question = f"How many apples has Ann left at the end if she buys 12 apples and then gives some away: {text(3)}"
    (tmp_path / "exam.jsonl").write_text(f'{{"q": "{question}", "a": "7"}}\n')
    rows = [("", question, "she has 7"), ("", question.replace("12", "30"), "she has 25"), _A]
    given = write(tmp_path / "in", {"a.jsonl": rows})
    exam = f"{{name: exam, uri: {tmp_path / 'exam.jsonl'}, question: q, answers: a}}"
    folder = curate(tmp_path, given, f"decontaminate: {{mode: drop, benchmarks: [{exam}]}}\n{_ALONE}")
    found = manifest(folder).data["operations"]["decontaminate"]
    assert found["modes"] == {"question_answer": "drop", "variant": "report"}
    assert found["would_go"] == {"variant": 1}
