"""Rules of curate that meet: one that reports beside one that drops, one field alone, nothing asked at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.curate.config import CurateConfig
from components.curate.core import Curate
from components.curate.explain import ExplainConfig, explain
from tests.support.curating import curate, decisions, kept, manifest, settings, text, write

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
    passed_on = Curate().given(CurateConfig(rows=[str(given)], root=str(tmp_path / "off"), curate_config=off))
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
    said = "overrides: [{prefix: web, exact: off}, {prefix: data__web, near: off}]\nsource_priority: [gold]\n"
    curate(tmp_path, given, said)
    found = [record.getMessage() for record in caplog.records if "no task begins" in record.getMessage()]
    assert found == [
        "curate: overrides: no task begins with 'web'; the first of them is 'data__web.jsonl'",
        "curate: source_priority: no task begins with 'gold'; the first of them is 'data__web.jsonl'",
    ]
