"""Attributes beside the rows, and rows that are held out: from raw files to what a loader reads."""

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairmill.engine import inputs, runner
from pairmill.engine.manifest import Manifest
from pairmill.engine.results import HeldOutRows
from pairmill.errors import InputError, UsageError
from pairmill.formats import slices
from pairmill.formats.rows import Row
from pairmill.formats.slices import Slicing
from pairmill.sources.datasets import SOURCES
from pairmill.sources.origin import Manual
from pairmill.sources.parsed import MalformedRecord, Parsed
from pairmill.sources.source import Context
from pairmill.stages.clean import core, merge, sink
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from pairmill.text import light
from tests.support import tools
from tests.support.helpers import draws
from tests.support.stages.fetching import Made

YAML = """
name: mine
files: "*.jsonl"
condition: direct
instruction: q
response: a
format: {format}
attributes:
  number: {{path: n, type: integer}}
  url: meta.url
  when: {{path: when, type: date}}
  tags: {{path: tags, type: texts}}
"""
TYPES = {"number": "int64", "url": "string", "when": "timestamp[us, tz=UTC]", "tags": "list<element: string>"}


def records(count: int, questions: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    made = []
    for number in range(count):
        spaces = rng.choice([" ", "  ", "\n", " \u200b"])
        one = {"q": f"What is{spaces}{rng.randrange(questions)}?", "a": f"answer {number} " + "x" * rng.randrange(40)}
        one |= {"n": number, "meta": {"url": f"http://x/{number}"}, "when": "2020-01-02", "tags": ["a"] * (number % 3)}
        for name in rng.sample(["meta", "when", "tags"], rng.randrange(3)):
            if rng.random() < 0.5:
                one[name] = None
            else:
                del one[name]
        made.append(one)
    return made


class Cleaned(NamedTuple):
    folder: Path
    manifest: Manifest

    def rows(self, path: str) -> list[dict[str, Any]]:
        if path.endswith(".jsonl"):
            return [json.loads(line) for line in (self.folder / path).read_text("utf-8").splitlines()]
        found: list[dict[str, Any]] = pq.read_table(self.folder / path).to_pylist()
        return found

    def attributes(self, task: str, side: str = "") -> list[dict[str, Any]]:
        path = self.folder / f"{side}attributes/source/{task}.parquet"
        table = pq.read_table(path)
        assert {field.name: str(field.type) for field in table.schema} == TYPES
        found: list[dict[str, Any]] = table.to_pylist()
        return found


def clean(
    top: Path, data: list[list[dict[str, Any]]], kind: str = "jsonl", workers: int = 1, **options: Any
) -> Cleaned:
    raw = top / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    (raw / "mine.yaml").write_text(YAML.format(format=kind), "utf-8")
    for number, some in enumerate(data):
        (raw / f"{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some), "utf-8")
    config = CleanConfig(sources=[str(raw / "mine.yaml")], root=str(top / "root"), workers=workers, **options)
    result = runner.run(Clean(), config)
    return Cleaned(Path(result.uri), result.manifest)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Many shards, many segments, and several of those to a row group."""
    patch.setattr(core, "SLICING", Slicing(4000, 8000))
    patch.setattr(slices, "_BLOCK", 1000)
    patch.setattr(sink, "_HELD_ROWS", 7)
    patch.setattr(merge, "_SMALL", 1500)
    patch.setattr(merge, "BATCH_ROWS", 15)


def expected_of(record: dict[str, Any]) -> dict[str, Any]:
    when = record.get("when") and "2020-01-02 00:00:00+00:00"
    url = record["meta"]["url"] if record.get("meta") else None
    return {"number": record["n"], "url": url, "when": when, "tags": record.get("tags")}


def said(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "when": one["when"] and str(one["when"])} for one in found]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("pieces", [False, True])
def test_attributes_are_those_of_the_rows_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, pieces: bool
) -> None:
    if pieces:
        shrink(monkeypatch)
    data = [records(120, 30), records(60, 30, 1)]
    found = clean(tmp_path, data, kind)
    (path,) = found.manifest.data["outputs"]
    task = sink.task_of(path)
    every = [one for some in data for one in some]
    assert said(found.attributes(task)) == [expected_of(one) for one in every]
    assert [row["response"] for row in found.rows(path)] == [one["a"].strip() for one in every]
    assert len(found.manifest.shards) >= (5 if pieces else 1)
    groups = pq.ParquetFile(found.folder / f"attributes/source/{task}.parquet").metadata
    sizes = [groups.row_group(at).num_rows for at in range(groups.num_row_groups)]
    assert (len(sizes) > 5) == pieces
    if kind == "parquet":
        rows = pq.ParquetFile(found.folder / path).metadata
        assert sizes == [rows.row_group(at).num_rows for at in range(rows.num_row_groups)]
    # No stage takes them for rows, and they are checked as rows are.
    for place in (found.folder, found.folder / "data", found.folder / "data_clustered"):
        if place.exists():
            rows_found = inputs.discover([str(place)], ("jsonl", "parquet"), "rows").files
            assert [file.uri.rsplit("/data", 1)[1] for file in rows_found] == [path.removeprefix("data")]
    assert "| when | date |" in report_of(found.manifest).markdown()
    (found.folder / f"attributes/source/{task}.parquet").write_bytes(b"x" * 10)
    assert tools.run([*tools.command("verify"), str(found.folder)]).code


def test_without_attributes_and_holdout_nothing_is_beside_the_rows(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "d.jsonl").write_text('{"q": "a", "a": "b"}\n', "utf-8")
    (raw / "s.yaml").write_text("name: s\nfiles: d.jsonl\ncondition: direct\ninstruction: q\nresponse: a\n", "utf-8")
    result = runner.run(Clean(), CleanConfig(sources=[str(raw / "s.yaml")], root=str(tmp_path / "root")))
    assert {file.path for file in result.manifest.files} == {
        "data/s.jsonl",
        "records/s.jsonl.pq",
        "report.html",
        "report.md",
    }
    assert "holdout" not in result.manifest.options
    assert "held_out" not in result.manifest.data
    assert "attributes" not in result.manifest.data["sources"]["s"]


def test_a_value_of_another_type_is_counted_and_the_line_to_write_is_named(tmp_path: Path) -> None:
    data = records(300, 30)
    data[7]["n"] = data[9]["n"] = "about 7"
    data[11]["tags"] = {"a": 1}
    (raw := tmp_path / "raw").mkdir()
    tools.write_lines(raw / "0.jsonl", data)
    (raw / "mine.yaml").write_text(YAML.format(format="jsonl"), "utf-8")
    done = tools.stage("clean", sources=raw / "mine.yaml", root=tmp_path / "root")
    assert done.code == 3
    assert "3 of 300 records of mine are malformed" in done.message
    assert "mine/0.jsonl row 8: attribute_number_not_integer (found 'about 7', 2 such)" in done.message
    assert "mine/0.jsonl row 12: attribute_tags_not_texts (found an object with a)" in done.message
    assert "write in file://" in done.message or "write in /" in done.message
    assert "number: {path: n, type: text}" in done.message
    found = clean(tmp_path, [data], max_reject_fraction=0.02)
    assert found.manifest.ledger.dropped == {"attribute_number_not_integer": 2, "attribute_tags_not_texts": 1}
    assert len(found.attributes("mine.jsonl")) == found.manifest.ledger.rows_out == 297


def test_a_path_that_no_record_has_is_refused(tmp_path: Path) -> None:
    data = [{**one, "meta": {"uri": "u"}} for one in records(5, 3)]
    with pytest.raises(InputError, match=r"mine.yaml line 10, attributes: url: no record of mine has 'meta.url'"):
        clean(tmp_path, [data])


def split(found: Cleaned) -> tuple[list[str], list[str]]:
    """The lines of training and of held-out rows."""
    (path,) = found.manifest.data["outputs"]
    held = found.folder / "holdout" / path
    return (found.folder / path).read_text().splitlines(), held.read_text().splitlines() if held.exists() else []


@settings(max_examples=draws(16), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 150),
    questions=st.integers(1, 60),
    holdout=st.sampled_from(["0.05", "0.3", "0.9", "1", "7", "40", "1000"]),
    seed=st.integers(0, 9),
    cut=st.integers(0, 150),
)
def test_any_sharding_splits_rows_the_same_way(
    tmp_path_factory: pytest.TempPathFactory, count: int, questions: int, holdout: str, seed: int, cut: int
) -> None:
    top = tmp_path_factory.mktemp("split")
    data = records(count, questions, seed)
    everything = split(clean(top / "all", [data]))[0]
    results: list[Any] = []
    for number, parts in enumerate(([data], [data[:cut], data[cut:]])):
        with pytest.MonkeyPatch.context() as patch:
            if number:
                shrink(patch)
            try:
                found = clean(top / str(number), parts, holdout=holdout)
            except InputError as error:
                results.append(str(error))
                continue
            training, held = split(found)
            assert said(found.attributes("mine.jsonl", "holdout/")) == [
                expected_of(one) for one, line in zip(data, everything, strict=True) if line in set(held)
            ]
            assert len(found.attributes("mine.jsonl")) == len(training)
            results.append((training, held))
    assert results[0] == results[1]
    if isinstance(results[0], str):
        assert "no row is held out" in results[0]
        return
    training, held = results[0]
    sides = set(held)
    assert [line for line in everything if line not in sides] == training
    assert [line for line in everything if line in sides] == held
    asked = [{light(json.loads(line)["instruction"]) for line in lines} for lines in (training, held)]
    assert not asked[0] & asked[1]
    if "." not in holdout:
        assert 0 < len(held) <= min(int(holdout), len(everything) // 2)


def test_what_is_held_out_is_counted_and_reported(tmp_path: Path, small_pieces: None) -> None:
    first = clean(tmp_path, [records(200, 60)], holdout="0.2")
    manifest, ledger = first.manifest, first.manifest.ledger
    held = manifest.data["held_out"]["holdout/data/mine.jsonl"]
    assert 10 < held < 80
    assert (ledger.rows_in, ledger.rows_kept, ledger.rows_out) == (200, 200, 200 - held)
    assert ledger.notes == {"held_out": held}
    assert manifest.data["sources"]["mine"]["ledger"]["notes"] == {"held_out": held}
    assert manifest.data["outputs"] == {"data/mine.jsonl": 200 - held}
    assert manifest.options["holdout"] == "0.2"
    page = report_of(manifest).markdown()
    assert f"{200 - held:,} rows out and {held:,} held out." in page
    assert f"| holdout/data/mine.jsonl | {held} | {200 - held} |" in page
    tasks = {file.path: file.task for file in manifest.files}
    assert tasks["holdout/data/mine.jsonl"] == "holdout/mine.jsonl"
    assert tasks["holdout/attributes/source/mine.jsonl.parquet"] == ""
    # Another amount cleans nothing again, and two processes make the same bytes.
    again = clean(tmp_path, [], holdout="0.4", workers=2)
    assert len(split(again)[1]) > held
    assert set(split(first)[1]) < set(split(again)[1])
    assert len(list((tmp_path / "root").glob("**/_hashes"))) == len(manifest.shards)


def test_attributes_of_held_out_parquet_are_those_of_its_rows(tmp_path: Path, small_pieces: None) -> None:
    found = clean(tmp_path, [records(200, 60)], "parquet", holdout="0.3")
    for side in ("", "holdout/"):
        path = f"{side}data_clustered/mine/all.parquet"
        numbers = [int(row["response"].split()[1]) for row in found.rows(path)]
        assert len(numbers) > 20
        assert [one["number"] for one in found.attributes("mine__all.parquet", side)] == numbers
        kept, beside = (
            pq.ParquetFile(found.folder / name).metadata
            for name in (path, f"{side}attributes/source/mine__all.parquet.parquet")
        )
        sizes = [[file.row_group(at).num_rows for at in range(file.num_row_groups)] for file in (kept, beside)]
        assert sizes[0] == sizes[1]


class Turns(Made):
    """Two rows of each record; the question that decides is that of the record, and not of a row."""

    attributes: ClassVar[Mapping[str, str]] = {"topic": "text"}

    def parse(self, record: Any, context: Context) -> Parsed:
        return [Row("direct", f"{record['topic']}: {record['q']} {turn}", "yes") for turn in range(2)]

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        if record["topic"] == "none":
            raise MalformedRecord("no_topic")
        return {"topic": record["topic"]}

    def first_question(self, record: Any, rows: Sequence[Row]) -> str:
        assert len(rows) == 2
        return str(record["topic"])


def test_a_python_source_says_its_attributes_and_its_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Turns("turns", Manual("", "", ""))
    monkeypatch.setitem(SOURCES, "turns", source)
    (folder := tmp_path / "raw" / "turns").mkdir(parents=True)
    topics = [*(f"topic {number % 20}" for number in range(100)), "none"]
    tools.write_lines(folder / "a.jsonl", [{"topic": topic, "q": str(at)} for at, topic in enumerate(topics)])
    config = CleanConfig(
        sources=["turns"],
        raw=str(tmp_path / "raw"),
        root=str(tmp_path / "root"),
        holdout="0.3",
        max_reject_fraction=0.1,
    )
    result = runner.run(Clean(), config)
    assert result.manifest.ledger.dropped == {"no_topic": 1}
    sides = []
    for side in ("", "holdout/"):
        (path,) = [file.path for file in result.manifest.files if file.path.startswith(f"{side}attributes/")]
        topics = pq.read_table(Path(result.uri) / path)["topic"].to_pylist()
        (rows,) = [file for file in result.manifest.files if file.task and file.path.startswith(f"{side}data/")]
        lines = [json.loads(line) for line in (Path(result.uri) / rows.path).read_text().splitlines()]
        assert [line["instruction"].split(":")[0] for line in lines] == topics
        sides.append(set(topics))
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]


def test_only_training_rows_are_found_unless_asked(tmp_path: Path) -> None:
    found = clean(tmp_path, [records(200, 60)], holdout="0.2")
    held = HeldOutRows.count(found.manifest)
    for place in ("", "/data"):
        one = inputs.discover([str(found.folder) + place], ("jsonl", "parquet"), "rows")
        assert [file.task for file in one.files] == ["mine.jsonl"]
    assert inputs.discover([str(found.folder)], ("jsonl",), "rows").rows == 200 - held
    both = inputs.discover([str(found.folder)], ("jsonl",), "rows", held_out=True)
    assert ([file.task for file in both.files], both.rows) == (["mine.jsonl", "holdout/mine.jsonl"], 200)
    # Named by its path it is a folder of rows like others, without the attributes beside them.
    apart = inputs.discover([str(found.folder / "holdout")], ("jsonl", "parquet"), "rows")
    assert [file.task for file in apart.files] == ["data__mine.jsonl"]
    config = TrainTokenizerConfig(rows=[str(found.folder)], root=str(tmp_path / "root"), vocab_size=300)
    assert runner.run(TrainTokenizer(), config).manifest.ledger.rows_in == 200 - held


def test_holdout_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holdout: neither a fraction nor .* 5%.*write holdout=0\.05"):
        CleanConfig(root=str(tmp_path), holdout="5%")


def finished(top: Path, stage: str) -> Path:
    """The one folder that a stage made."""
    (folder,) = (path for path in (top / "root" / stage).iterdir() if (path / tools.MANIFEST).exists())
    return folder


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tools.Done]:
    """A whole line with rows held out."""
    top = tmp_path_factory.mktemp("line")
    (top / "raw").mkdir()
    tools.write_lines(top / "raw" / "0.jsonl", records(300, 100))
    (top / "raw" / "mine.yaml").write_text(YAML.format(format="parquet"), "utf-8")
    options = {"sources": top / "raw" / "mine.yaml", "root": top / "root", "output_path": top / "out", "epochs": 3}
    options |= {"vocab_size": 300, "holdout": 25, "prefix_config_path": tools.rules(top / "rules.yaml")}
    return top, tools.ended(tools.run(tools.command("run", **options)))


def test_the_pipeline_samples_held_out_rows_apart(line: tuple[Path, tools.Done]) -> None:
    top, done = line
    summary = [one.split() for one in done.out.splitlines()]
    assert [one[0] for one in summary if one and one[0] in tools.STAGES] == [*tools.LINE]
    assert sum(one[:3] == ["sample,", "held", "out"] for one in summary) == 1
    assert f"  held out: {top / 'out-holdout'}" in done.out.splitlines()
    cleaned = finished(top, "clean")
    tokenized = finished(top, "tokenize")
    manifest = tools.read_manifest(tokenized)
    held = manifest["data"]["held_out"]["holdout/mine__all.parquet"]
    assert 0 < held <= 25
    assert tools.read_manifest(cleaned)["ledger"]["rows_out"] == manifest["ledger"]["rows_out"] == 300 - held
    assert len(list((top / "out").glob("epoch_*"))) == 3
    assert len(list((top / "out-holdout").glob("epoch_*"))) == 1
    assert tools.read_manifest(top / "out")["ledger"]["rows_kept"] == 300 - held
    sampled = tools.read_manifest(top / "out-holdout")
    assert (sampled["ledger"]["rows_in"], sampled["ledger"]["rows_out"]) == (held, held)
    assert "holdout/mine__all.parquet" in sampled["data"]["analytics"]
    shown = tools.run(
        [
            *tools.command("sample"),
            "inspect",
            f"path={top / 'out-holdout'}",
            "ranks=2",
            "batch_tokens=4096",
            "tail=keep",
        ]
    )
    assert shown.code == 0, shown.err


def test_the_held_out_folder_is_a_tokenized_folder(line: tuple[Path, tools.Done], tmp_path: Path) -> None:
    top, _ = line
    tokenized = finished(top, "tokenize")
    rules = tools.rules(tmp_path / "rules.yaml")
    inner = tools.stage(
        "sample", tokenized_path=tokenized / "holdout", output_path=tmp_path / "a", prefix_config_path=rules
    )
    assert inner.code == 0, inner.err
    # A plan of held-out rows is carried out as any other, on another machine as well.
    plans = [
        path.parent for path in (top / "root" / "sample").glob("*/_MANIFEST.json") if '"held_out"' in path.read_text()
    ]
    (plan,) = plans
    assert tools.stage("sample", plan=plan, output_path=tmp_path / "b").code == 0
    made, planned = tools.digests(tmp_path / "b"), tools.digests(top / "out-holdout")
    names = ["tokens.npy", *(name for name in planned if name.startswith("epoch_0/"))]
    assert len(names) == 1 + 5
    assert [made[name] for name in names] == [planned[name] for name in names]
    none = tools.stage("sample", tokenized_path=tokenized / "holdout", output_path=tmp_path / "c", held_out=True)
    assert none.code == 3
    assert "has no held-out rows" in none.message
    assert "holdout=0.01" in none.message


def test_held_out_rows_are_sampled_as_without_a_mixture(line: tuple[Path, tools.Done], tmp_path: Path) -> None:
    given = {"tokenized_path": finished(line[0], "tokenize"), "held_out": True}
    one = tools.ended(tools.stage("sample", **given, output_path=tmp_path / "one"))
    # Not even looked for: no mixture is planned of held-out rows.
    two = tools.ended(tools.stage("sample", **given, output_path=tmp_path / "two", mixture=tmp_path / "none"))
    assert one.out == two.out
    assert "Mixture" not in two.out
    found = tools.digests(tmp_path / "one-holdout")
    assert len(found) == 1 + 5 + 2
    assert tools.digests(tmp_path / "two-holdout") == found


def test_held_out_rows_bring_the_bytes_of_their_responses(line: tuple[Path, tools.Done], tmp_path: Path) -> None:
    top, _ = line
    tokenized = finished(top, "tokenize")
    task = tokenized / "holdout/mine__all.parquet"
    rows = pq.read_table(next((finished(top, "clean") / "holdout").rglob("mine/all.parquet"))).to_pylist()
    sizes = [len(row["response"].encode()) for row in rows]
    assert np.load(task / "resp_bytes.npy").tolist() == sizes
    lengths = np.load(task / "inst_len.npy").astype(int) + np.load(task / "resp_len.npy").astype(int)
    whole = top / "out-holdout"
    assert sorted(np.load(whole / "epoch_0/resp_bytes.npy").tolist()) == sorted(sizes)
    assert not list((top / "out").rglob("resp_bytes.npy"))
    # A row is known by its first tokens: of one that was cut, how much text is left is not.
    context = int(np.median(lengths))
    for kind in ("truncate", "split", "drop"):
        rules = tools.rules(tmp_path / f"{kind}.yaml", f"- prefix: mine__\n  long_context: {kind}\n")
        given = {"tokenized_path": tokenized, "held_out": True, "min_resp_length": 1, "context_size": context}
        tools.ended(tools.stage("sample", **given, output_path=tmp_path / kind, prefix_config_path=rules))
        found = np.load(tmp_path / f"{kind}-holdout/epoch_0/resp_bytes.npy").tolist()
        kept = sorted(size for size, length in zip(sizes, lengths.tolist(), strict=True) if length <= context)
        assert sorted(one for one in found if one >= 0) == kept
        assert (-1 in found) == (kind != "drop")
    # Folders without them, of older versions or of others, are sampled as before.
    copied = tmp_path / "copied"
    shutil.copytree(tokenized / "holdout", copied / "holdout")
    for path in copied.rglob("resp_bytes.npy"):
        path.unlink()
    for name in ("tokenizer_info.json", "tokenizer.json"):
        shutil.copy(tokenized / name, copied)
    tools.ended(tools.stage("sample", tokenized_path=copied, held_out=True, output_path=tmp_path / "old"))
    assert not list((tmp_path / "old-holdout").rglob("resp_bytes.npy"))
    assert tools.digests(tmp_path / "old-holdout")["tokens.npy"] == tools.digests(whole)["tokens.npy"]


def test_flat_token_files_of_held_out_rows_are_apart_too(line: tuple[Path, tools.Done], tmp_path: Path) -> None:
    top, _ = line
    (tokenizer,) = (path.parent for path in (top / "root" / "tokenizer").glob("*/tokenizer.json") if path.is_file())
    made = tools.folder(
        tools.stage("tokenize", rows=finished(top, "clean"), tokenizer=tokenizer, root=tmp_path, windows=True)
    )
    for side in ("", "holdout/"):
        assert sorted(path.name for path in (made / f"{side}windows").iterdir()) == [
            "mine__all.parquet.npy",
            "windows.json",
        ]
    sizes = [len(np.load(made / f"{side}windows/mine__all.parquet.npy")) for side in ("", "holdout/")]
    assert sizes[0] > sizes[1] > 0
