"""What curate cannot work with: an exit code, a message that says what to do, and nothing that a reader takes."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.digest import digest_file, split
from tests.support import tools
from tests.support.stages import curating
from tests.support.stages.curating import text

USAGE, INPUT, STORAGE = 2, 3, 4
ROWS = [("", text(at), text(at + 100)) for at in range(6)]


def run(base: Path, said: str = "", root: str = "root", **options: object) -> tools.Done:
    """The stage over rows of its own, as a process."""
    base.mkdir(parents=True, exist_ok=True)
    if not (base / "rows").exists():
        curating.write(base / "rows", {"a.jsonl": ROWS, "b.parquet": [*ROWS[:2], ("", text(90), text(91))]})
    given = {"rows": base / "rows", "root": base / root, "curate_config": curating.settings(base, said), "workers": 1}
    return tools.stage("curate", **{**given, **options})


def refused(done: tools.Done, code: int, *said: object) -> None:
    """It ended with this code and said all of this in its last line."""
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    for one in said:
        assert str(one) in done.message, done.message


def nothing_is_left(root: Path) -> None:
    assert not list(root.rglob(tools.MANIFEST))
    assert not tools.partials(root)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("exakt: {mode: drop}\n", ["line 1", "exakt", "did you mean", "exact"]),
        ("near: drop\nheuristics: {rules: [{metric: wrods, min: 3}]}\n", ["line 2", "wrods", "did you mean 'words'"]),
        ("heuristics: {profile: seed_wep}\n", ["seed_wep", "seed_web"]),
        ("near: {mode: dorp}\n", ["dorp", "drop"]),
        ("near: {bandz: 3}\n", ["line 1", "bandz", "bands"]),
        ("near: [\n", ["line 2", "settings.yaml"]),
        ("filter: {rules: [{name: a, attribute: heuristics.i_wrods, max: 1}]}\n", ["i_wrods"]),
    ],
)
def test_unknown_operation_or_metric(said: str, expected: list[str], tmp_path: Path) -> None:
    refused(run(tmp_path, said), USAGE, *expected)
    nothing_is_left(tmp_path / "root")


def test_configuration_that_is_absent(tmp_path: Path) -> None:
    refused(run(tmp_path, curate_config=tmp_path / "none.yaml"), USAGE, "none.yaml")


BENCHMARK = "decontaminate: {{benchmarks: [{{name: exam, uri: {}, question: q, answers: a}}]}}\n"


def test_benchmark_that_is_not_there(tmp_path: Path) -> None:
    refused(run(tmp_path, BENCHMARK.format(tmp_path / "exam.jsonl")), INPUT, "exam", tmp_path / "exam.jsonl")
    nothing_is_left(tmp_path / "root")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_benchmark_that_lacks_its_column(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"exam.{kind}"
    if kind == "jsonl":
        path.write_text(json.dumps({"question": "Who?", "a": "He."}) + "\n")
    else:
        pq.write_table(pa.table({"question": ["Who?"], "a": ["He."]}), path)
    refused(run(tmp_path, BENCHMARK.format(path)), INPUT, path, "q", "question")
    nothing_is_left(tmp_path / "root")


def test_model_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    said = f"classifiers: [{{name: x, kind: logit, mode: report, model: {path}, field: response}}]\n"
    refused(run(tmp_path, said), INPUT, "x", path, "missing")
    path.write_bytes(b"<!DOCTYPE html><html>sign in</html>")
    refused(run(tmp_path, said), INPUT, path)
    nothing_is_left(tmp_path / "root")


def test_model_whose_program_is_absent_or_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"<!DOCTYPE html><html>sign in</html>")
    done = run(tmp_path, f"language: {{mode: report, model: {path}}}\n")
    if importlib.util.find_spec("fasttext") is None:
        refused(done, USAGE, "language", "pip install '.[")
    else:
        refused(done, INPUT, path, "a web page")
    nothing_is_left(tmp_path / "root")


def test_row_file_that_changed_since_clean(tmp_path: Path) -> None:
    first = tools.folder(run(tmp_path))
    path = first / "a.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"river", b"rover", 1))
    done = run(tmp_path, rows=first, root="other")
    refused(done, INPUT, path, "manifest")
    path.write_bytes(data[:-10])
    refused(run(tmp_path, rows=first, root="other"), INPUT, first, "a.jsonl: ", "run the stage that made it again")
    nothing_is_left(tmp_path / "other")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder with an index."""
    return tools.folder(run(tmp_path_factory.mktemp("indexed"), write_index="true"))


def test_index_that_is_none_or_of_other_settings(indexed: Path, tmp_path: Path) -> None:
    refused(run(tmp_path, index=tmp_path / "none"), INPUT, tmp_path / "none", "write_index=true")
    refused(run(tmp_path, index=tmp_path / "rows"), INPUT, "write_index=true")
    refused(run(tmp_path, "exact: {form: raw}\n", index=indexed), INPUT, indexed, "form")
    refused(run(tmp_path, "near: {bands: 20}\n", index=indexed), INPUT, "index", "settings")
    nothing_is_left(tmp_path / "root")


@pytest.mark.parametrize("name", ["index/index.json", "index/near/index.json"])
@pytest.mark.parametrize("how", ["version", "damaged", "gone"])
def test_index_of_another_version_or_damaged(name: str, how: str, indexed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(indexed, tmp_path / "earlier" / indexed.name)
    path = folder / name
    if how == "gone":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        raw = json.loads(path.read_bytes())
        path.unlink()  # a link of the copy's own
        path.write_text(json.dumps({**raw, "format": 99}))
        manifest = tools.read_manifest(folder)
        for file in manifest["files"]:
            if file["path"] == name:
                file |= {"size": path.stat().st_size, "blake3": split(digest_file(path))[1]}
        tools.write_manifest(folder, manifest)
    done = run(tmp_path, index=folder)
    refused(done, INPUT, folder)
    if how == "version":
        assert "format" in done.message
        assert "99" in done.message
    nothing_is_left(tmp_path / "root")


def test_nothing_is_kept(tmp_path: Path) -> None:
    said = "heuristics: {mode: drop, profile: none, rules: [{metric: words, min: 100000}]}\n"
    done = run(tmp_path, said)
    refused(done, INPUT, "no row is left", "heuristic:", "report")
    nothing_is_left(tmp_path / "root")


def test_rows_without_a_row(tmp_path: Path) -> None:
    curating.write(tmp_path / "rows", {"a.jsonl": []})
    refused(run(tmp_path), INPUT, "no row")
    nothing_is_left(tmp_path / "root")


SAID = "pii: {mode: report}\nexact: {instruction: report}\nnear: {mode: report}\n"


@pytest.mark.parametrize("mode", ["report", "redact"])
def test_private_texts_are_in_neither_manifest_nor_report_nor_log(mode: str, tmp_path: Path) -> None:
    private = [("", f"{text(1)} Write to jane.roe@mail.example today. {text(2)}", text(3))]
    longer = [("", text(70), "b" * 1995 + " jane.roe@mail.example")] * 2
    curating.write(tmp_path / "rows", {"a.jsonl": [*private, *private, *ROWS], "b.jsonl": longer})
    done = run(tmp_path, SAID.replace("report", mode, 1))
    folder = tools.folder(done)
    manifest = tools.read_manifest(folder)
    found = manifest["data"]["samples"]
    assert {one["instruction"] for one in found["pii.EMAIL"]} == {""}
    assert any("<EMAIL>" in one["instruction"] for one in found["exact.pair"])
    for said in ((folder / tools.MANIFEST).read_text(), (folder / "report.html").read_text(), done.err):
        assert "jane" not in said
        assert "mail.example" not in said


def test_full_disk(tmp_path: Path, small_disk: Callable[[int], tools.Disk]) -> None:
    """Space ends in every phase, also in rounds that are only read by later ones."""
    many = {f"{at}.jsonl": [("", text(at * 50 + row), text(row) * 3) for row in range(40)] for at in range(4)}
    curating.write(tmp_path / "rows", many)
    plenty = small_disk(64 << 20)
    wanted = tools.digests(tools.folder(run(tmp_path, root=str(plenty.path / "root"), write_index="true")))
    needed = plenty.used()
    for part in (0.05, 0.4, 0.7, 0.9):
        disk = small_disk(int(needed * part) // 4096 * 4096)
        done = run(tmp_path, root=str(disk.path / "root"), write_index="true")
        refused(done, STORAGE, "no space left", "free space")
        nothing_is_left(disk.path)
        disk.resize(64 << 20)
        assert tools.digests(tools.folder(run(tmp_path, root=str(disk.path / "root"), write_index="true"))) == wanted
