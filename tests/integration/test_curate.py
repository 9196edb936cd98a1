"""The curate stage from rows to a finished folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.engine.options import WorkerSlice
from pairmill.engine.results import HeldOutRows
from pairmill.engine.runner import Together
from pairmill.errors import InputError, UsageError
from pairmill.formats import attributes as formats
from pairmill.formats import row_files
from pairmill.formats.given import instead_of
from pairmill.formats.rows import FIELDS
from pairmill.formats.slices import Slicing
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from tests.support import tools
from tests.support.data.near_duplicates import Shares, generated
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.stages import curating
from tests.support.stages.curating import WORDS, attributes, curate, decisions, kept, manifest, text

A, B, C = (("", text(seed), text(seed + 50)) for seed in (1, 2, 3))
ONLY_EXACT = "near: off\nheuristics: off\n"


def test_a_copy_goes_and_the_first_stays_whatever_the_format(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"a/x.jsonl": [A, B, A], "b/y.parquet": [B, C]})
    folder = curate(tmp_path / "root", rows, ONLY_EXACT)
    assert kept(folder, "a/x.jsonl") == [A, B]
    assert kept(folder, "b/y.parquet") == [C]
    assert decisions(folder, "exact", "a__x.jsonl")[0] == {
        "ordinal": 2,
        "rule": "pair",
        "action": "drop",
        "other_task": "a__x.jsonl",
        "other_ordinal": 0,
    }
    drops = [one for one in decisions(folder, "exact", "b__y.parquet") if one["action"] == "drop"]
    assert [(one["ordinal"], one["other_task"], one["other_ordinal"]) for one in drops] == [(0, "a__x.jsonl", 1)]
    ledger = manifest(folder).ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.dropped) == (5, 3, {"dup_exact": 2})
    assert manifest(folder).data["sources"] == {
        "a": {"rows": 3, "kept": 2, "would_go": 0, "dropped": {"dup_exact": 1}},
        "b": {"rows": 2, "kept": 1, "would_go": 0, "dropped": {"dup_exact": 1}},
    }


def test_each_kept_row_says_where_it_was(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, A, B, A, C]})
    folder = curate(tmp_path / "root", rows, ONLY_EXACT)
    assert attributes(folder, "origin", "x.jsonl")["ordinal"].to_pylist() == [0, 2, 4]
    again = curate(
        tmp_path / "root",
        folder,
        ONLY_EXACT + "exact: off\nfilter: {rules: [{name: late, attribute: origin.ordinal, max: 3, mode: drop}]}\n",
    )
    assert attributes(again, "origin", "x.jsonl")["ordinal"].to_pylist() == [0, 2]


def test_a_source_of_higher_priority_keeps_its_rows(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"a/x.jsonl": [A, B], "web/y.jsonl": [B, A, C]})
    folder = curate(tmp_path / "root", rows, ONLY_EXACT + "source_priority: [web]\n")
    assert kept(folder, "web/y.jsonl") == [B, A, C]
    assert kept(folder, "a/x.jsonl") == []


def test_report_counts_what_drop_removes_and_removes_nothing(tmp_path: Path) -> None:
    near = ("", A[1] + " and so on", A[2])
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, B, A, near, C], "y.jsonl": [B, near]})

    def counts(folder: Path) -> dict[str, dict[str, int]]:
        operations = manifest(folder).data["operations"]
        return {
            name: {rule: sum(actions.values()) for rule, actions in one["rules"].items() if rule != "response"}
            for name, one in operations.items()
        }

    dropped = curate(tmp_path / "root", rows)
    reported = curate(tmp_path / "root", rows, "exact: report\nnear: report\n")
    assert counts(dropped) == counts(reported)
    assert counts(dropped)["exact"]["pair"] == 3
    assert sum(counts(dropped)["near"].values()) == 1
    assert manifest(reported).ledger.rows_kept == manifest(reported).ledger.rows_in == 7
    assert kept(reported, "x.jsonl") == [A, B, A, near, C]


def test_report_all_lets_every_operation_look_at_every_row(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, A, B]})
    folder = curate(tmp_path / "root", rows, "report_all: true\n")
    operations = manifest(folder).data["operations"]
    assert operations["exact"]["rules"]["pair"] == {"report": 1}
    assert operations["near"]["rules"] == {"equal_instruction": {"report": 1}}
    assert manifest(folder).ledger.rows_kept == 3
    table = (folder / "report.md").read_text().split("## What was found")[1].split("\n## ")[0]
    assert "| decontaminate | report |" in table
    assert "| drop |" not in table


def test_a_cap_keeps_the_best_ranked_rows_of_a_question(tmp_path: Path) -> None:
    answers = [("", A[1], text(seed)) for seed in range(60, 65)]
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [*answers, answers[1]]})
    folder = curate(tmp_path / "root", rows, ONLY_EXACT + "exact: {max_responses_per_instruction: 2}\n")
    assert kept(folder, "x.jsonl") == answers[:2]
    assert manifest(folder).ledger.dropped == {"cap_instruction": 3, "dup_exact": 1}
    caps = [one for one in decisions(folder, "exact", "x.jsonl") if one["action"] == "cap"]
    assert [(one["ordinal"], one["rule"], one["other_ordinal"]) for one in caps] == [
        (2, "instruction", 0),
        (3, "instruction", 0),
        (4, "instruction", 0),
    ]


@pytest.mark.parametrize("field", ["instruction", "response"])
def test_a_cap_of_one_field_counts_rows_that_are_nearly_equal(field: str, tmp_path: Path) -> None:
    alike = [f"{text(59)} {end}" for end in WORDS[:30]]
    made = [
        ("", one, text(seed)) if field == "instruction" else ("", text(seed), one) for seed, one in enumerate(alike)
    ]
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [*made, B]})
    said = f"exact: off\nheuristics: off\nnear: {{fields: {field}, max_similar: 25}}\n"
    folder = curate(tmp_path / "root", rows, said)
    assert kept(folder, "x.jsonl") == [*made[:25], B]
    assert manifest(folder).ledger.dropped == {"cap_near": 5}
    assert [
        (one["ordinal"], one["action"], one["other_task"], one["other_ordinal"])
        for one in decisions(folder, "near", "x.jsonl")
    ] == [(ordinal, "cap", "x.jsonl", 0) for ordinal in range(25, 30)]
    reported = curate(tmp_path / "root", rows, said.replace("max_similar", "mode: report, max_similar"))
    assert kept(reported, "x.jsonl") == [*made, B]
    assert len(decisions(reported, "near", "x.jsonl")) == 5


def test_the_longest_response_can_be_preferred(tmp_path: Path) -> None:
    answers = [("", A[1], text(60, words)) for words in (20, 40, 30)]
    rows = curating.write(tmp_path / "rows", {"x.jsonl": answers})
    said = ONLY_EXACT + "prefer: longest_response\nexact: {max_responses_per_instruction: 1}\n"
    folder = curate(tmp_path / "root", rows, said)
    assert kept(folder, "x.jsonl") == [answers[1]]


def test_rows_of_other_conditions_can_be_kept_apart(tmp_path: Path) -> None:
    other = ("cot", A[1], A[2])
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, other, other]})
    assert kept(curate(tmp_path / "root", rows), "x.jsonl") == [A]
    assert kept(curate(tmp_path / "root", rows, "same_condition_only: true\n"), "x.jsonl") == [A, other]


def test_settings_differ_by_prefix(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"a.jsonl": [A, A], "b.jsonl": [A, A], "c.jsonl": [A, B]})
    said = ONLY_EXACT + "overrides: [{prefix: b, exact: off}, {prefix: a, exact: report}]\n"
    folder = curate(tmp_path / "root", rows, said)
    assert [len(kept(folder, path)) for path in ("a.jsonl", "b.jsonl", "c.jsonl")] == [2, 2, 1]
    assert decisions(folder, "exact", "b.jsonl") == []


def distinct(count: int, words: int) -> list[tuple[str, str, str]]:
    """Rows of random words."""
    made = generated(count, shares=Shares(0, 0, 0, 0, 0), length=words)
    return [("", row.instruction or "", row.response or "") for row in made]


def held_out(folder: Path) -> Path:
    """A finished folder of another stage that holds out a row, with attributes."""
    curating.write(folder, {"data/x.jsonl": [A, B, C], "holdout/data/x.jsonl": [A]})
    files = []
    for path, some in (("attributes/source/x.jsonl.parquet", 3), ("holdout/attributes/source/x.jsonl.parquet", 1)):
        (folder / path).parent.mkdir(parents=True)
        with (folder / path).open("wb") as file, formats.AttributesWriter(file, {"date": "integer"}) as writer:
            writer.write(formats.table_of({"date": "integer"}, [(2000 + at,) for at in range(some)]))
    for path, task in (("data/x.jsonl", "x.jsonl"), ("holdout/data/x.jsonl", "holdout/x.jsonl")):
        files.append((path, task))
    files += [("attributes/source/x.jsonl.parquet", ""), ("holdout/attributes/source/x.jsonl.parquet", "")]
    digests = tools.digests(folder)
    listed = [File(path, (folder / path).stat().st_size, digests[path], task) for path, task in files]
    ledger = Ledger(4, 4, 3)
    data = {"held_out": {"holdout/data/x.jsonl": 1}, "conditions": {"mine": {"token": "<mine>", "sources": ["x"]}}}
    Manifest("clean", 1, "0" * 16, {}, [InputRef("raw", "0")], ledger, listed, data=data).finish(str(folder))
    return folder


def test_a_cap_does_not_count_held_out_rows(tmp_path: Path) -> None:
    said = "exact: off\nheuristics: off\nnear: {fields: instruction, max_similar: 1}\n"
    folder = curate(tmp_path / "root", held_out(tmp_path / "clean"), said)
    assert kept(folder, "data/x.jsonl") == [A, B, C]
    assert kept(folder, "holdout/data/x.jsonl") == [A]


def test_held_out_rows_stay_and_what_repeats_them_goes(tmp_path: Path) -> None:
    folder = curate(tmp_path / "root", held_out(tmp_path / "clean"))
    assert kept(folder, "data/x.jsonl") == [B, C]
    assert kept(folder, "holdout/data/x.jsonl") == [A]
    found = manifest(folder)
    assert found.ledger.dropped == {"held_out": 1}
    assert HeldOutRows.count(found) == 1
    assert found.data["conditions"]["mine"]["token"] == "<mine>"
    assert attributes(folder, "source", "x.jsonl")["date"].to_pylist() == [2001, 2002]
    assert pq.read_table(folder / "holdout/attributes/source/x.jsonl.parquet")["date"].to_pylist() == [2000]


def test_near_duplicates_of_held_out_rows_go_for_the_same_reason(tmp_path: Path) -> None:
    clean = held_out(tmp_path / "clean")
    near = tmp_path / "near"
    curating.write(near, {"z.jsonl": [("", A[1] + " and so on", A[2])]})
    folder = curate(tmp_path / "root", [clean, near])
    assert kept(folder, "z.jsonl") == []
    assert manifest(folder).ledger.dropped == {"held_out": 2}


def test_attributes_of_the_input_can_be_filtered(tmp_path: Path) -> None:
    said = "exact: off\nnear: off\nfilter: {mode: drop, rules: [{name: new, attribute: source.date, max: 2001}]}\n"
    folder = curate(tmp_path / "root", held_out(tmp_path / "clean"), said)
    assert kept(folder, "data/x.jsonl") == [A, B]
    assert manifest(folder).ledger.dropped == {"filter:new": 1}
    assert decisions(folder, "filter", "x.jsonl")[0]["detail"] == "2002 > 2001"


def test_the_same_bytes_with_any_number_of_workers_and_shares(tmp_path: Path) -> None:
    near = ("", A[1] + " and so on", A[2])
    files = {
        f"s{at}/x.{kind}": [A, ("", text(at + 90), text(at + 190)), near, B]
        for at, kind in enumerate(["jsonl", "parquet"] * 3)
    }
    rows = curating.write(tmp_path / "rows", files)
    first = curate(tmp_path / "one", rows, workers=1, write_index=True)
    for workers in (2, 7):
        other = curate(tmp_path / str(workers), rows, workers=workers, write_index=True)
        assert tools.digests(other) == tools.digests(first)
    shared = tmp_path / "shared"
    shared.mkdir()
    config = CurateConfig(
        rows=[str(rows)], root=str(shared), curate_config=curating.settings(shared, ""), workers=1, write_index=True
    )
    for part in WorkerSlice.all(3):
        runner.run_share(Curate(), config, Together(WorkerSlice.parse(part), patience=0.0))
    before = curating.shards(shared)
    assert tools.digests(Path(runner.run(Curate(), config).uri)) == tools.digests(first)
    assert curating.shards(shared) == before


def test_a_changed_file_redoes_its_own_slices(tmp_path: Path) -> None:
    files = {f"{name}.jsonl": [("", text(at), text(at + 50)), A] for at, name in enumerate("abcd", 10)}
    rows = curating.write(tmp_path / "rows", files)
    curate(tmp_path / "root", rows, ONLY_EXACT)
    before = curating.shards(tmp_path / "root")
    curating.write(tmp_path / "rows", {"d.jsonl": [("", text(80), text(81)), A]})
    curate(tmp_path / "root", rows, ONLY_EXACT)
    new = set(curating.shards(tmp_path / "root")) - set(before)
    # Its keys; three kinds of groups; what was found; its decisions and rows, totals and the summary.
    assert len(new) <= 1 + 3 + 1 + 2 + 2 + 1


def test_a_changed_threshold_reads_no_text(tmp_path: Path) -> None:
    clean = held_out(tmp_path / "clean")
    said = "filter: {{mode: report, rules: [{{name: new, attribute: source.date, max: {}}}]}}\n"
    curate(tmp_path / "root", clean, said.format(2001))
    before = curating.shards(tmp_path / "root")
    curate(tmp_path / "root", clean, said.format(2000))
    new = set(curating.shards(tmp_path / "root")) - set(before)
    # The decision alone: counts that come out the same are not added up again, and no row changes.
    assert len(new) == 1


@pytest.mark.parametrize("said", ["exact: off\nnear: off\ndecontaminate: off\nheuristics: off\n"])
def test_rows_are_passed_on_if_nothing_is_asked(tmp_path: Path, said: str) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, A]})
    path = curating.settings(tmp_path, said)
    config = CurateConfig(rows=[str(rows)], root=str(tmp_path / "root"), curate_config=path)
    given = instead_of("curate", config)
    assert given is not None
    assert given.uris == (str(rows),)
    reference = CurateConfig(rows=[str(rows)], root=str(tmp_path / "root"), profile="data_io", curate_config=path)
    assert instead_of("curate", reference) is not None


def test_an_index_ranks_before_new_rows(tmp_path: Path) -> None:
    near = ("", A[1] + " and so on", A[2])
    first = curating.write(tmp_path / "first", {"z.jsonl": [A, B]})
    second = curating.write(tmp_path / "second", {"a.jsonl": [B, near, C]})
    third = curating.write(tmp_path / "third", {"0.jsonl": [C, A]})
    one = curate(tmp_path / "root", first, write_index=True)
    two = curate(tmp_path / "root", second, index=str(one), write_index=True)
    assert kept(two, "a.jsonl") == [C]
    assert {row["other_task"] for row in decisions(two, "exact", "a.jsonl")} == {"z.jsonl"}
    assert decisions(two, "near", "a.jsonl")[0]["other_task"] == "z.jsonl"
    with pytest.raises(InputError, match="no row is left"):
        curate(tmp_path / "root", third, index=str(two))


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A]})
    folder = curate(tmp_path / "root", rows)
    with pytest.raises(InputError, match="the folder has no index"):
        curate(tmp_path / "root", rows, index=str(folder))
    with pytest.raises(InputError, match="not a finished folder of curate"):
        curate(tmp_path / "root", rows, index=str(rows))
    indexed = curate(tmp_path / "root", rows, write_index=True)
    with pytest.raises(InputError, match="the index was made with other settings"):
        curate(tmp_path / "root", rows, "exact: {form: raw}\n", index=str(indexed))


def test_nothing_kept_is_an_error_that_names_the_reason(tmp_path: Path) -> None:
    clean = held_out(tmp_path / "clean")
    said = "filter: {mode: drop, rules: [{name: old, attribute: source.date, min: 2050}]}\n"
    with pytest.raises(InputError, match="3 are dropped as filter:old"):
        curate(tmp_path / "root", clean, said + ONLY_EXACT + "exact: off\n")
    assert tools.unfinished(tmp_path / "root", "curate") == []


def test_a_filter_of_an_unknown_attribute_is_refused(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A]})
    with pytest.raises(
        UsageError, match=r"no operation makes such an attribute.*got sorce.date; expected heuristics.i_"
    ):
        curate(tmp_path / "root", rows, "filter: {rules: [{name: a, attribute: sorce.date, max: 1}]}\n")
    clean = held_out(tmp_path / "clean")
    for wrong, right in (("sorce.date", "source.date"), ("heuristics.r_wrods", "heuristics.r_words")):
        with pytest.raises(UsageError, match=f"filter rule a: .*got {wrong};.*; write {right}"):
            curate(tmp_path / "root", clean, f"filter: {{rules: [{{name: a, attribute: {wrong}, max: 1}}]}}\n")


def test_a_row_file_that_changed_since_its_manifest_is_refused(tmp_path: Path) -> None:
    clean = held_out(tmp_path / "clean")
    path = clean / "data/x.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"a", b"e", 1))
    with pytest.raises(Exception, match="is not what its manifest says"):
        curate(tmp_path / "root", clean)
    assert tools.unfinished(tmp_path / "root", "curate") == []


BENCHMARK = "decontaminate: {{benchmarks: [{{name: exam, uri: {uri}, question: q, answers: a}}]}}\n"


def exam(path: Path, questions: Sequence[tuple[str, str]]) -> str:
    """The settings that compare rows with these questions and answers."""
    path.write_text("".join(json.dumps({"q": question, "a": answer}) + "\n" for question, answer in questions))
    return BENCHMARK.format(uri=path)


def test_a_leaked_question_goes_and_its_item_is_named(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, B, C]})
    folder = curate(tmp_path / "root", rows, exam(tmp_path / "exam.jsonl", [(text(70), "no"), (B[1], B[2])]))
    assert kept(folder, "x.jsonl") == [A, C]
    (found,) = decisions(folder, "decontaminate", "x.jsonl")
    assert (found["rule"], found["action"], found["benchmark"], found["item"]) == (
        "question_answer",
        "drop",
        "exam",
        "1",
    )
    data = manifest(folder).data
    assert data["benchmarks"]["exam"] == {
        "items": 2,
        "hit": 1,
        "rows": 1,
        "by_rule": {"question_answer": 1},
        "by_source": {"x": 1},
    }
    (sample,) = data["samples"]["decontaminate.question_answer"]
    assert (sample["instruction"], sample["other_instruction"], sample["other_response"]) == (B[1], B[1], B[2])


def test_a_new_benchmark_runs_decontamination_alone(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, B], "y.jsonl": [C]})
    first = exam(tmp_path / "first.jsonl", [(text(70), "no")])
    curate(tmp_path / "root", rows, first)
    before = curating.shards(tmp_path / "root")
    curate(tmp_path / "root", rows, exam(tmp_path / "second.jsonl", [(B[1], B[2])]))
    new = names_of(tmp_path / "root", set(curating.shards(tmp_path / "root")) - set(before))
    # The index, the scores of both files, and of the file with a leak the decision and what follows from it.
    assert new == {
        "leaks.bin": 1,
        "counts": 2,
        "removed": 1,
        "x.jsonl": 1,
        "totals": 1,
        "summary": 1,
    }


def names_of(root: Path, keys: set[str]) -> dict[str, int]:
    """How many shards of each kind there are, by what they wrote."""
    kinds: dict[str, int] = {}
    for key in keys:
        record = json.loads((root / "curate" / "shards" / key / "_RECORD.json").read_text())
        paths = {file["path"] for file in record["files"]}
        kind = (
            "counts"
            if "counts" in record["data"]
            else next((path for path in sorted(paths) if path in ("leaks.bin", "removed", "x.jsonl")), "")
            or ("totals" if "totals.json" in paths else "summary" if "summary.json" in paths else "attributes")
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def test_a_run_that_is_killed_at_any_instant_is_finished_by_the_next(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, A, B]})
    whole = tools.digests(curate(tmp_path / "whole", rows, ONLY_EXACT + "exact: {response: off, instruction: off}\n"))
    root = tmp_path / "root"
    root.mkdir()
    path = curating.settings(root, ONLY_EXACT + "exact: {response: off, instruction: off}\n")
    config = CurateConfig(rows=[str(rows)], root=str(root), curate_config=path, workers=1)
    instant = 0
    for instant in crashes(lambda: runner.run(Curate(), config), root, stride=STRIDE):
        result = runner.run(Curate(), config)
        assert tools.digests(Path(result.uri)) == whole, f"killed at instant {instant}"
        shutil.rmtree(root / "curate")
    assert instant > 40


def test_raw_keys_find_rows_of_the_same_bytes_only(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [("", "a  b", "c"), ("", "a b", "c"), ("", "a b", "c")]})
    said = "near: off\nheuristics: off\nexact: {{form: {}}}\n"
    assert manifest(curate(tmp_path / "root", rows, said.format("light"))).ledger.rows_kept == 1
    assert manifest(curate(tmp_path / "root", rows, said.format("raw"))).ledger.rows_kept == 2


def test_slices_of_any_size_give_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = list(generated(400, seed=3))
    path = tmp_path / "rows" / "x.parquet"
    path.parent.mkdir()
    table = pa.table(list(zip(*some, strict=True)), list(FIELDS))
    pq.write_table(table, path, row_group_size=30)
    pq.write_table(table.slice(100, 100), tmp_path / "rows" / "y.parquet")
    said = exam(tmp_path / "exam.jsonl", [(some[7].instruction or "", some[7].response or "")])
    whole = curate(tmp_path / "whole", path.parent, said)
    monkeypatch.setattr(row_files, "SLICING", Slicing(1, 1))
    cut = curate(tmp_path / "cut", path.parent, said)
    names = {path for path in tools.digests(whole) if not path.startswith(("_", "report"))}
    assert len(names) >= 10
    assert {name: tools.digests(cut)[name] for name in names} == {name: tools.digests(whole)[name] for name in names}
    assert len(curating.shards(tmp_path / "cut")) > len(curating.shards(tmp_path / "whole")) + 20


def test_files_one_after_another_give_the_result_of_one_run(tmp_path: Path) -> None:
    some = [tuple(map(str, row)) for row in generated(600, seed=5)]
    parts = {f"{at}.jsonl": some[at * 200 : at * 200 + 200] for at in range(3)}
    said = "heuristics: off\nnear: {refine: false}\nexact: {max_responses_per_instruction: 2}\n"
    together = curate(tmp_path / "root", curating.write(tmp_path / "all", parts), said)
    index = ""
    removed = 0
    for name, part in parts.items():
        folder = curating.write(tmp_path / name[0], {name: part})
        made = curate(tmp_path / "root", folder, said, index=index, write_index=True)
        index = str(made)
        assert kept(made, name) == kept(together, name)
        for operation in ("exact", "near"):
            mine, theirs = (decisions(one, operation, name) for one in (made, together))
            assert mine == theirs
            removed += sum(one["action"] != "report" for one in mine)
    assert removed >= 30


def test_personal_data_is_replaced_in_kept_rows(tmp_path: Path) -> None:
    row = ("", "Whom do I ask?", "Write to jane.doe@example.com or from 8.8.8.8.")
    rows = curating.write(tmp_path / "rows", {"x.parquet": [row, A, row], "y.jsonl": [B]})
    folder = curate(tmp_path / "root", rows, "pii: redact\n")
    assert kept(folder, "x.parquet") == [("", "Whom do I ask?", "Write to <EMAIL> or from <IP>."), A]
    assert [(one["rule"], one["action"]) for one in decisions(folder, "pii", "x.parquet")] == [
        ("EMAIL", "redact"),
        ("IP", "redact"),
    ]
    assert manifest(folder).ledger.notes["redacted"] == 1
    reported = curate(tmp_path / "root", rows, "pii: report\n")
    assert kept(reported, "x.parquet") == [row, A]
    assert manifest(reported).data["operations"]["pii"]["rules"] == {"EMAIL": {"report": 1}, "IP": {"report": 1}}


def test_attributes_have_the_rows_and_row_groups_of_the_file(tmp_path: Path) -> None:
    some = distinct(1500, 500)
    some[3::7] = [some[3]] * len(some[3::7])
    rows = curating.write(tmp_path / "rows", {"x.parquet": some})
    folder = curate(tmp_path / "root", rows, "near: off\n")
    file = pq.ParquetFile(folder / "x.parquet").metadata
    groups = [file.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert len(groups) >= 2
    for operation in ("heuristics", "origin"):
        beside = pq.ParquetFile(folder / "attributes" / operation / "x.parquet.parquet").metadata
        assert [beside.row_group(at).num_rows for at in range(beside.num_row_groups)] == groups
    words = attributes(folder, "heuristics", "x.parquet")["i_words"].to_pylist()
    assert words == [len(instruction.split()) for _, instruction, _ in kept(folder, "x.parquet")]


def test_a_metric_out_of_its_bounds_drops_rows_where_it_is_asked_to(tmp_path: Path) -> None:
    one, two, three, four = distinct(4, 40)
    loud = ("", one[1], "http://a.example/b http://c.example/d http://e.example/f")
    other = ("", three[1], loud[2])
    rows = curating.write(tmp_path / "rows", {"web.jsonl": [loud, two], "book.jsonl": [other, four]})
    folder = curate(tmp_path / "root", rows, "overrides: [{prefix: web, heuristics: drop}]\n")
    assert kept(folder, "web.jsonl") == [two]
    assert kept(folder, "book.jsonl") == [other, four]
    found = manifest(folder)
    assert found.ledger.dropped == {"heuristic:r_url_ratio_max": 1}
    rules = found.data["operations"]["heuristics"]
    assert rules["rules"]["r_url_ratio_max"] == {"drop": 1, "report": 1}
    assert rules["by_source"]["book"]["r_url_ratio_max"] == 1
    assert found.data["histograms"]["heuristics.r_url_ratio"]["bounds"] == [None, 0.2]
    assert sum(found.data["histograms"]["heuristics.r_url_ratio"]["counts"]) == 4


def test_rows_are_signed_again_only_where_other_rows_are_compared(tmp_path: Path) -> None:
    some = distinct(4, 30)
    same = [(condition, instruction, "yes") for condition, instruction, _ in some]
    rows = curating.write(tmp_path / "rows", {"m.jsonl": [*same[:2], same[0]], "n.jsonl": [some[2]]})
    curate(tmp_path / "root", rows)
    before = curating.shards(tmp_path / "root")
    # Now another row is the first with the response "yes"; which rows are copies is as before.
    curating.write(tmp_path / "rows", {"a.jsonl": [same[3]]})
    curate(tmp_path / "root", rows)
    new = set(curating.shards(tmp_path / "root")) - set(before)
    signed = [key for key in new if list((tmp_path / "root" / "curate" / "shards" / key).glob("*/rows.bin"))]
    assert len(signed) == 1
