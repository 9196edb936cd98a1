"""Cutting raw files into pieces, and putting outputs together again, changes no row of any source."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.formats import slices
from pairmill.formats.slices import Slicing
from pairmill.sources.datasets import SOURCES
from pairmill.stages.clean import core, merge, sink
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from tests.support.helpers import python


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    done = python("examples/make_raw.py", str(folder), "sources=all")
    assert done.returncode == 0, done.stderr
    # Its blocks of sentences end where a file is cut.
    shutil.rmtree(folder / "bookcorpus")
    return folder


def clean(raw: Path, root: Path, **options: Any) -> tuple[Path, Manifest]:
    config = CleanConfig(raw=str(raw), root=str(root), workers=1, **options)
    result = runner.run(Clean(), config)
    return Path(result.uri), result.manifest


def rows_of(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Every output's rows in order."""
    found: dict[str, Any] = {}
    for path in manifest.data["outputs"]:
        if path.endswith(".jsonl"):
            found[path] = (folder / path).read_bytes()
        else:
            found[path] = pq.read_table(folder / path).combine_chunks().to_pydict()
    return found


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SLICING", Slicing(8000, 16000))
    monkeypatch.setattr(slices, "_BLOCK", 1000)
    monkeypatch.setattr(sink, "_HELD", 20_000)
    monkeypatch.setattr(merge, "_SMALL", 1500)
    monkeypatch.setattr(merge, "BATCH_BYTES", 6000)
    monkeypatch.setattr(merge, "_SHARD_OUTPUTS", 7)


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_rows_do_not_depend_on_how_files_are_cut(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    options = {"profile": profile, "max_reject_fraction": 1.0}
    if profile == "data_io":  # the examples hold records on which the reference crashes
        options["sources"] = [name for name in SOURCES if name in COMPLETE]
    plain, whole = clean(raw, tmp_path / "whole", **options)
    expected = rows_of(plain, whole)
    shrink(monkeypatch)
    folder, manifest = clean(raw, tmp_path / "cut", **options)
    assert len(manifest.shards) > 3 * len(whole.shards)
    found = rows_of(folder, manifest)
    assert list(found) == list(expected)
    for path, rows in expected.items():
        assert found[path] == rows, path
    assert manifest.data["outputs"] == whole.data["outputs"]
    assert manifest.ledger == whole.ledger
    if profile == "pairmill":
        assert {source for source, one in manifest.data["sources"].items() if one["ledger"]["rows_in"]} == {
            *SOURCES
        } - {"bookcorpus"}
        assert rejects(folder) == rejects(plain)
        assert len(rejects(folder)) == sum(one["rejects"] for one in whole.data["sources"].values())


def rejects(folder: Path) -> list[tuple[str, str, str]]:
    lines = [json.loads(line) for path in folder.glob("rejects/**/*.jsonl") for line in path.open()]
    return sorted((line["file"], line["place"], line["reason"]) for line in lines)


# Sources of whose example records none makes the reference crash.
COMPLETE = {"dmmath", "flan", "gsm8k_train", "openmathinstruct2", "scibench", "sudoku", "SYNTH", "textbookreasoning"}


def flan(folder: Path, *parts: list[tuple[str, str]]) -> None:
    """Part files of one subset, of (task, text)."""
    folder = folder / "flan" / "cot_zsopt_data"
    folder.mkdir(parents=True)
    for number, records in enumerate(parts):
        tasks, texts = zip(*records, strict=True)
        table = pa.table({"inputs": texts, "targets": texts, "_task_name": tasks})
        pq.write_table(table, folder / f"part.{number}.parquet")


def test_tasks_of_one_file_name_overwrite_each_other_for_data_io_alone(tmp_path: Path) -> None:
    flan(tmp_path, [("a/b", "1"), ("a_b", "2"), ("c", "3")], [("a?b", "4"), ("a/b", "5"), ("a_b", "6")])
    folder, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"], profile="data_io")
    # "a?b" was seen last; the others' rows are lost, and counted.
    path = "data_clustered/flan/cot_zsopt_data__"
    assert manifest.data["outputs"] == {f"{path}a_b.parquet": 1, f"{path}c.parquet": 1}
    assert pq.read_table(folder / f"{path}a_b.parquet")["instruction"].to_pylist() == ["4"]
    assert (manifest.ledger.rows_in, manifest.ledger.rows_kept, manifest.ledger.rows_out) == (6, 6, 2)
    assert manifest.ledger.notes == {"overwritten_by_a_task_of_the_same_file_name": 4}
    assert manifest.data["sources"]["flan"]["ledger"]["rows_out"] == 2

    folder, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"])
    rows = {
        name.removeprefix(path): pq.read_table(folder / name)["instruction"].to_pylist()
        for name in manifest.data["outputs"]
    }
    assert rows.pop("a_b.parquet") == ["2", "6"]
    assert rows.pop("c.parquet") == ["3"]
    assert sorted(rows.values()) == [["1", "5"], ["4"]]
    assert manifest.ledger.rows_out == 6


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_a_run_that_goes_on_gathers_as_one_that_was_not_interrupted(tmp_path: Path, profile: str) -> None:
    # Which task was seen last decides for data_io: what is read back must say so as well.
    flan(tmp_path, [("z", "0"), ("b?b", "1"), ("b/b", "2"), ("a", "3"), ("b_b", "4"), ("b!b", "5")], [("c", "6")])
    folder, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"], profile=profile)
    shards = set((tmp_path / "root/clean/shards").iterdir())
    expected = rows_of(folder, manifest)
    (folder / "_MANIFEST.json").unlink()
    again, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"], profile=profile)
    assert rows_of(again, manifest) == expected
    assert set((tmp_path / "root/clean/shards").iterdir()) == shards


def test_a_tasks_name_makes_no_hidden_file_and_none_that_is_too_long(tmp_path: Path) -> None:
    odd = ["x" * 300, "x" * 299 + "y", "../../etc/passwd", "\u200b\n\0", "あ" * 150]
    flan(tmp_path, [(name, str(number)) for number, name in enumerate(odd)])
    _, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"])
    names = [path.rsplit("/", 1)[1] for path in manifest.data["outputs"]]
    assert len(names) == len(odd)
    assert all(len(name.encode()) < 240 and not name.startswith(".") for name in names)
    assert not (tmp_path / "etc").exists()


def test_an_output_stands_even_if_no_row_goes_there(tmp_path: Path) -> None:
    folder = tmp_path / "openmathinstruct2" / "data"
    folder.mkdir(parents=True)
    record = {"problem": ["p"], "generated_solution": ["s"], "expected_answer": ["a"], "problem_source": ["math"]}
    pq.write_table(pa.table(record), folder / "train-00000-of-00001.parquet")
    made, manifest = clean(tmp_path, tmp_path / "root", sources=["openmathinstruct2"])
    path = "data_clustered/openmathinstruct2/"
    assert manifest.data["outputs"] == {f"{path}cot.parquet": 1, f"{path}direct.parquet": 0}
    table = pq.read_table(made / f"{path}direct.parquet")
    assert (table.num_rows, table.column_names) == (0, ["instruction", "response", "condition"])


def test_large_segments_are_copied_and_small_ones_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SLICING", Slicing(1, 1 << 40))
    flan(tmp_path, *[[("small", f"{part} {row}") for row in range(3)] + [("large", "x" * 5000)] for part in range(9)])
    monkeypatch.setattr(merge, "_SMALL", 900)
    folder, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"])
    assert len(manifest.shards) == 9
    path = folder / "data_clustered/flan"
    small = pq.ParquetFile(path / "cot_zsopt_data__small.parquet")
    assert small.metadata.num_row_groups == 1
    expected = [f"{part} {row}" for part in range(9) for row in range(3)]
    assert small.read()["instruction"].to_pylist() == expected
    assert pq.ParquetFile(path / "cot_zsopt_data__large.parquet").metadata.num_rows == 9


def test_a_damaged_segment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SLICING", Slicing(1, 1 << 40))
    flan(tmp_path, [("a", "1")], [("a", "2")])
    clean(tmp_path, tmp_path / "root", sources=["flan"])
    shards = tmp_path / "root/clean/shards"
    segments = list(shards.glob("*/*/_segments"))
    assert len(segments) == 2
    segments[0].write_bytes(segments[0].read_bytes()[:-1])
    for folder in [*shards.iterdir()]:  # the second round is to be done again
        if not list(folder.glob("*/_segments")):
            (folder / "_RECORD.json").unlink()
    (made,) = [path for path in (tmp_path / "root/clean").iterdir() if path.name != "shards"]
    (made / "_MANIFEST.json").unlink()
    # A record whose file has another size is no record: the shard is done again.
    folder, manifest = clean(tmp_path, tmp_path / "root", sources=["flan"])
    assert manifest.ledger.rows_out == 2
    assert pq.read_table(folder / "data_clustered/flan/cot_zsopt_data__a.parquet")["instruction"].to_pylist() == [
        "1",
        "2",
    ]
