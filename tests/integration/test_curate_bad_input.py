"""What curate says of wrong settings and wrong data, as a person sees it: the message and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.digest import digest_bytes
from tests.support import tools
from tests.support.stages import curating
from tests.support.stages.curating import text

A, B = (("", text(seed), text(seed + 50)) for seed in (1, 2))


def run(tmp_path: Path, said: str, **options: object) -> tools.Done:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, B]})
    path = curating.settings(tmp_path, said)
    given = {"rows": rows, "root": tmp_path / "root", "curate_config": path, "workers": 1}
    return tools.stage("curate", **{**given, **options})


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        ("near: {mode: off}\nexactt: off\n", 2, "settings.yaml line 2: unknown key 'exactt'"),
        ("heuristics: {rules: [{metric: word, max: 3}]}\n", 2, "did you mean 'words'?"),
        ("decontaminate: {benchmarks: [{name: a, uri: /nowhere/a.jsonl, question: q}]}\n", 3, "/nowhere/a.jsonl"),
        ("decontaminate: {withheld: [theorem]}\n", 2, "theorem"),
        ("classifiers: [{name: q, kind: logit, model: /nowhere/q.npz, mode: report}]\n", 3, "/nowhere/q.npz"),
        (
            "filter: {rules: [{name: a, attribute: heuristics.wrods, max: 1}]}\n",
            2,
            "; write heuristics.r_words",
        ),
        ("heuristics: {mode: drop, rules: [{metric: words, field: response, min: 9999}]}\n", 3, "no row is left"),
    ],
)
def test_a_mistake_ends_the_stage_with_a_message(tmp_path: Path, said: str, code: int, message: str) -> None:
    done = run(tmp_path, said)
    assert done.code == code, done.err
    assert message in done.message
    assert done.out == ""
    assert tools.unfinished(tmp_path / "root", "curate") == []


@pytest.mark.parametrize("on", ["near", "exact"])
@pytest.mark.parametrize("column", ["instruction", "response", "condition"])
def test_a_text_that_is_not_utf8_is_named_whichever_operation_reads_it(tmp_path: Path, on: str, column: str) -> None:
    wrong = pa.array([b"well", b"\xff\xfe", b"well"]).cast(pa.binary())
    wrong = pa.Array.from_buffers(pa.string(), 3, wrong.buffers())
    texts = {name: pa.array([text(1), text(2), text(1)]) for name in ("condition", "instruction", "response")}
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({**texts, column: wrong}), tmp_path / "rows" / "x.parquet")
    modes = {
        name: "drop" if name == on else "off" for name in ("exact", "near", "decontaminate", "heuristics", "filter")
    }
    said = "".join(f"{name}: {{mode: {mode}}}\n" for name, mode in modes.items())
    done = run(tmp_path, said, rows=tmp_path / "rows")
    assert done.code == 3, done.err
    assert f"x.parquet row 2: {column} is not UTF-8" in done.message
    assert tools.unfinished(tmp_path / "root", "curate") == []


def test_a_benchmark_without_its_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_text(json.dumps({"question": "what?"}) + "\n")
    said = f"decontaminate: {{benchmarks: [{{name: a, uri: {tmp_path / 'exam.jsonl'}, question: q}}]}}\n"
    done = run(tmp_path, said)
    assert done.code in {2, 3}
    assert "q" in done.message
    assert "exam.jsonl" in done.message
    assert tools.unfinished(tmp_path / "root", "curate") == []


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"not a model")
    done = run(tmp_path, f"classifiers: [{{name: q, kind: logit, model: {tmp_path / 'model.npz'}, mode: report}}]\n")
    assert done.code == 3
    assert "model.npz" in done.message


def test_settings_that_are_not_there_are_named(tmp_path: Path) -> None:
    done = run(tmp_path, "", curate_config=tmp_path / "none.yaml")
    assert done.code == 2
    assert "none.yaml: the file does not exist" in done.message


def test_an_index_of_another_format_is_refused(tmp_path: Path) -> None:
    made = Path(tools.ended(run(tmp_path, "", write_index="true")).out.strip())
    index = made / "index" / "index.json"
    listed = tools.read_manifest(made)
    raw = index.read_bytes().replace(b'"format":2', b'"format":1')
    index.unlink()
    index.write_bytes(raw)
    for file in listed["files"]:
        if file["path"] == "index/index.json":
            file["blake3"] = digest_bytes(raw).removeprefix("blake3:")
    tools.write_manifest(made, listed)
    done = run(tmp_path, "", index=made)
    assert done.code == 3
    assert "the index has another format" in done.message


def test_the_commands_of_the_program_are_named(tmp_path: Path) -> None:
    done = tools.run([*tools.command("curate"), "explian"])
    assert done.code == 2
    assert "did you mean 'explain'?" in done.message


def test_rows_alone_are_enough(tmp_path: Path) -> None:
    rows = curating.write(tmp_path / "rows", {"x.jsonl": [A, B, A]})
    done = tools.ended(tools.stage("curate", rows=rows, root=tmp_path / "root"))
    folder = Path(done.out.strip())
    assert (folder / "report.html").is_file()
    assert done.said("3 rows in, 2 kept, 1 dropped")
    again = tools.ended(tools.stage("curate", rows=rows, root=tmp_path / "root"))
    assert again.out == done.out
    explained = tools.run([*tools.command("curate"), "explain", f"path={folder}", "row=x.jsonl:2"])
    assert "dup_exact" in tools.ended(explained).out
    shown = tools.run([*tools.command("curate"), "show", f"path={folder}", "rule=pair", "n=1"])
    assert "x.jsonl:0" in tools.ended(shown).out
