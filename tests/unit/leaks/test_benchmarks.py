"""Where items of benchmarks are read from, and what a person is told when they cannot be."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage
from pairmill.engine.shards import run_shard
from pairmill.errors import InputError, UsageError
from pairmill.leaks import benchmarks, index
from pairmill.leaks.settings import Benchmark, Decontaminate
from pairmill.sources.origin import Hub as HubOrigin
from pairmill.sources.source import Unit
from tests.support.data.leaks import batch, built, written
from tests.support.servers.downloads import Hub
from tests.support.stages.fetching import Made, ask_here, declare, fetch, lines

QUESTION = "Which of the four barges on the long canal carries the ripe pears to the market at dawn"
RECORDS = [{"id": f"q{number}", "ask": f"{QUESTION} {number}", "reply": f"barge {number}"} for number in range(3)]


def mapped(uri: str | Path, **options: Any) -> Benchmark:
    return Benchmark(
        **{"name": "bench", "uri": str(uri), "question": "ask", "answers": "reply", "item": "id", **options}
    )


def items_of(benchmark: Benchmark, root: Path) -> list[tuple[str, str, list[str]]]:
    (found,) = benchmarks.find(Decontaminate(benchmarks=[benchmark]), root=str(root))
    return [tuple(item) for item in found.items()]  # type: ignore[misc]


WANTED = [(one["id"], one["ask"], [one["reply"]]) for one in RECORDS]


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_items_are_read_of_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bench.{kind}"
    match kind:
        case "jsonl":
            written(path, RECORDS)
        case "json":
            path.write_text(json.dumps(RECORDS))
        case "csv":
            path.write_text("id,ask,reply\n" + "".join(",".join(one.values()) + "\n" for one in RECORDS))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(RECORDS), path)
    assert items_of(mapped(path), tmp_path) == WANTED


def test_of_a_folder_the_test_split_is_read_and_hidden_files_are_not(tmp_path: Path) -> None:
    written(tmp_path / "data" / "test-00000.jsonl", RECORDS[:2])
    written(tmp_path / "data" / "test-00001.jsonl", RECORDS[2:])
    written(tmp_path / "data" / "train-00000.jsonl", [{"other": 1}])
    written(tmp_path / "data" / "_test.jsonl", [{"other": 1}])
    assert items_of(mapped(tmp_path / "data"), tmp_path) == WANTED
    numbered = items_of(mapped(tmp_path / "data", item=""), tmp_path)
    assert [name for name, _, _ in numbered] == ["0", "1", "2"]


def test_of_a_folder_without_splits_every_file_is_read(tmp_path: Path) -> None:
    written(tmp_path / "data" / "a.jsonl", RECORDS[:1])
    written(tmp_path / "data" / "b.jsonl", RECORDS[1:])
    assert items_of(mapped(tmp_path / "data"), tmp_path) == WANTED
    assert items_of(mapped(tmp_path / "data", files=["b*"]), tmp_path) == WANTED[1:]


def test_where_chooses_records_and_a_template_joins_fields(tmp_path: Path) -> None:
    path = written(
        tmp_path / "b.jsonl", [{"ask": f"Ask {number}", "more": "please", "n": number} for number in range(4)]
    )
    found = items_of(mapped(path, question="{ask}, {more}", answers="n", item="", where="n >= 2"), tmp_path)
    assert found == [("0", "Ask 2, please", ["2"]), ("1", "Ask 3, please", ["3"])]


def test_a_list_gives_several_answers_and_choices_the_right_one_and_its_letter(tmp_path: Path) -> None:
    records = [
        {"ask": "one", "all": ["a", "b"], "of": {"text": ["red", "blue"]}, "right": 1},
        {"ask": "two", "all": [], "of": {"text": ["red", "blue"]}, "right": "A"},
        {"ask": "three", "all": ["c"], "of": {"text": ["red", "blue"]}, "right": "blue"},
    ]
    path = written(tmp_path / "b.jsonl", records)
    several = items_of(mapped(path, answers="all", item=""), tmp_path)
    assert [answers for _, _, answers in several] == [["a", "b"], [], ["c"]]
    chosen = items_of(mapped(path, answers="right", choices="of.text", item=""), tmp_path)
    assert [answers for _, _, answers in chosen] == [["blue", "B"], ["red", "A"], ["blue", "B"]]
    assert [answers for _, _, answers in items_of(mapped(path, answers="", item=""), tmp_path)] == [[], [], []]


def refused(what: str, benchmark: Benchmark, root: Path) -> InputError:
    with pytest.raises(InputError, match=re.escape(what)) as error:
        items_of(benchmark, root)
    assert error.value.exit_code == 3
    return error.value


def test_a_benchmark_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    error = refused("the benchmark bench does not exist", mapped(tmp_path / "none"), tmp_path)
    assert error.where == str(tmp_path / "none")
    assert "path" in error.hint
    assert "uri: hf://datasets/owner/name" in refused("does not exist", mapped("owner/name"), tmp_path).hint


def test_a_file_that_is_not_named_is_said_with_those_that_are_there(tmp_path: Path) -> None:
    written(tmp_path / "data" / "a.jsonl", RECORDS)
    error = refused("the benchmark bench has no file", mapped(tmp_path / "data", files=["c*"]), tmp_path)
    assert (error.got, error.expected) == ("a.jsonl", "c*")
    (tmp_path / "data" / "a.bin").write_bytes(b"")
    error = refused("no reader for a file of the benchmark bench", mapped(tmp_path / "data" / "a.bin"), tmp_path)
    assert ".parquet" in error.expected


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_that_is_not_there_is_said_with_those_that_are(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bench.{kind}"
    if kind == "jsonl":
        written(path, RECORDS)
    else:
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    what = "benchmark bench: no question" if kind == "jsonl" else "column 'asked' is missing"
    error = refused(what, mapped(path, question="asked"), tmp_path)
    assert error.where.startswith(str(path))
    assert "id, ask, reply" in error.got
    assert error.hint == "did you mean 'ask'?"


@pytest.mark.parametrize(
    ("record", "what", "got"),
    [
        ({"id": "1", "ask": None, "reply": "x"}, "no question", "null"),
        ({"id": "1", "ask": {"a": 1}, "reply": "x"}, "the question is not text", "{'a': 1}"),
        ({"id": "1", "ask": "x"}, "no answers", "the fields id, ask"),
        ({"id": "1", "ask": "x", "reply": ["a", {}]}, "an answer is not text", "{}"),
        ({"id": {}, "ask": "x", "reply": "x"}, "the item is not text", "{}"),
        (["x"], "not a record of benchmark bench", "['x']"),
    ],
)
def test_a_record_that_makes_no_item_is_said_with_its_place(tmp_path: Path, record: Any, what: str, got: str) -> None:
    path = written(tmp_path / "b.jsonl", [RECORDS[0], record])
    error = refused(what, mapped(path), tmp_path)
    assert (error.where, error.got) == (f"{path} record 2", got)
    assert error.expected


@pytest.mark.parametrize(
    ("choices", "right", "what", "expected"),
    [
        (["a", "b"], 2, "the answer is none of the choices", "a number from 0 to 1, a letter from A to B"),
        (["a", "b"], -1, "the answer is none of the choices", "a number from 0"),
        (["a", "b"], None, "the answer is none of the choices", "a number from 0"),
        ("ab", 0, "the choices are not a list of texts", "a list at of"),
    ],
)
def test_a_choice_that_is_not_there_is_refused(
    tmp_path: Path, choices: Any, right: Any, what: str, expected: str
) -> None:
    path = written(tmp_path / "b.jsonl", [{"ask": "x", "of": choices, "right": right}])
    error = refused(what, mapped(path, answers="right", choices="of", item=""), tmp_path)
    assert error.expected.startswith(expected)
    assert "where:" in error.hint


def test_a_condition_that_fails_is_said_with_its_record(tmp_path: Path) -> None:
    path = written(tmp_path / "b.jsonl", RECORDS)
    error = refused("where: fails", mapped(path, where="ask > 1"), tmp_path)
    assert error.where == f"{path} record 1"


def test_a_benchmark_without_an_item_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "b.jsonl", RECORDS)
    error = refused("the benchmark bench has no item", mapped(path, where="id == 'none'"), tmp_path)
    assert (error.where, error.hint) == (str(path), "check where:")


def test_text_with_an_unpaired_surrogate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text('{"id": "1", "ask": "a \\ud800 b", "reply": "x"}\n')
    with pytest.raises(InputError, match="an unpaired surrogate is not text"):
        built(tmp_path, mapped(path))


@pytest.mark.parametrize(
    ("options", "where", "what"),
    [
        ({"question": "{ask"}, "question", "unmatched brace"),
        ({"answers": "a b"}, "answers", "not a valid path"),
        ({"choices": "{of}"}, "choices", "not a valid value"),
        ({"choices": "of", "answers": ""}, "choices", "needs answers"),
        ({"where": "import os"}, "where", "not a valid expression"),
        ({"question": " "}, "question", "is empty"),
        ({"name": ""}, "name", "is empty"),
    ],
)
def test_a_mapping_that_is_not_valid_names_its_key(options: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)) as error:
        mapped("b.jsonl", **options)
    assert error.value.where == where


def test_two_benchmarks_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"benchmarks.2..name: occurs twice; got 'bench'") as error:
        Decontaminate(benchmarks=[mapped("a.jsonl"), mapped("b.jsonl")])
    assert error.value.where == "benchmarks[2].name"
    with pytest.raises(UsageError, match=r"benchmarks.1..name: the name of a withheld source; got theoremqa"):
        Decontaminate(benchmarks=[mapped("a.jsonl", name="theoremqa")], withheld=["theoremqa"])


def test_the_key_follows_from_content_and_mapping_alone(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a.jsonl", RECORDS), written(tmp_path / "x" / "b.jsonl", RECORDS)

    def key(*some: Benchmark) -> str:
        return index.planned(Decontaminate(benchmarks=list(some)), root=str(tmp_path)).key

    first = key(mapped(one))
    assert first == key(mapped(other))
    assert key(mapped(one), mapped(other, name="more")) == key(mapped(other, name="more"), mapped(one))
    changed = written(tmp_path / "c.jsonl", RECORDS[:2])
    others = {
        key(mapped(changed)),
        key(mapped(one, item="")),
        key(mapped(one, name="other")),
        key(mapped(one, answers="")),
    }
    assert len(others | {first}) == 5
    off = index.planned(Decontaminate(mode="off", benchmarks=[mapped("nowhere.jsonl")]), root=str(tmp_path))
    assert (off.key, index.shards(off), index.scorer(off, []), index.items([])) == ("", [], None, {})
    assert index.planned(Decontaminate(), root=str(tmp_path)) == off


def test_the_shard_builds_an_index_that_finds_rows(tmp_path: Path) -> None:
    scorer, records = built(tmp_path, mapped(written(tmp_path / "b.jsonl", RECORDS)))
    assert index.items(records) == {"bench": 3}
    with scorer.opened() as run:
        scored = run(batch((RECORDS[1]["ask"], "It is barge 1."), ("Hello.", "Hi.")))
    assert scored.findings is not None
    assert [(one["item"], one["rule"]) for one in scored.findings.to_pylist() if one["rule"] != "variant"] == [
        ("q1", "question_answer")
    ]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub() as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


CARD = b"""---
configs:
- config_name: easy
  data_files:
  - {split: test, path: easy/test-*}
- config_name: hard
  data_files:
  - {split: test, path: hard/test-*}
---
"""


def test_a_benchmark_on_the_hub_is_downloaded_at_a_commit_that_stays(hub: Hub, tmp_path: Path) -> None:
    rows = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
    first = hub.add("o/bench", {"data/test-00000.jsonl": rows, "data/train-00000.jsonl": b'{"other": 1}\n'})
    asked = mapped("hf://datasets/o/bench")
    assert items_of(asked, tmp_path) == WANTED
    hub.add("o/bench", {"data/test-00000.jsonl": rows[: rows.index(b"\n") + 1]})
    assert items_of(asked, tmp_path) == WANTED
    assert len(items_of(asked, tmp_path / "another root")) == 1
    assert len(items_of(mapped(f"hf://datasets/o/bench@{first}"), tmp_path)) == 3
    assert len(items_of(mapped(f"o/bench@{first}"), tmp_path)) == 3
    notes = tmp_path / "curate" / "benchmarks"
    for note in notes.iterdir():
        note.write_text("{")
    error = refused("not a note of a benchmark's commit", asked, tmp_path)
    assert error.where.startswith(str(notes))
    assert error.hint == "delete it, and the present commit is taken"


def test_of_a_data_set_with_configurations_one_is_named(hub: Hub, tmp_path: Path) -> None:
    rows = [json.dumps(record).encode() + b"\n" for record in RECORDS]
    hub.add("o/bench", {"README.md": CARD, "easy/test-0.jsonl": rows[0], "hard/test-0.jsonl": rows[1]})
    assert items_of(mapped("hf://datasets/o/bench", config="hard"), tmp_path) == WANTED[1:2]
    assert items_of(mapped("hf://datasets/o/bench/easy/test-0.jsonl"), tmp_path) == WANTED[:1]
    error = refused("the benchmark bench has several configurations", mapped("hf://datasets/o/bench"), tmp_path)
    assert error.expected == "config: with one of easy, hard"
    error = refused("no such configuration", mapped("hf://datasets/o/bench", config="soft"), tmp_path)
    assert (error.got, error.expected) == ("'soft'", "config: with one of easy, hard")
    error = refused("has no file", mapped("hf://datasets/o/bench", config="hard", split="dev"), tmp_path)
    assert "easy/test-0.jsonl" in error.got


def test_what_the_hub_does_not_have_is_said(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/bench", {"test.jsonl": b"{}\n"})
    refused("the data set does not exist", mapped("hf://datasets/o/none"), tmp_path)
    error = refused("the revision does not exist", mapped("hf://datasets/o/bench@gone"), tmp_path)
    assert "uri:" in error.hint
    refused("has no file", mapped("hf://datasets/o/bench/none"), tmp_path)
    with pytest.raises(UsageError, match="not a valid address"):
        items_of(mapped("hf://o/model"), tmp_path)


class Withholding(Made):
    """Files that begin with ``test`` are not trained on."""

    def units(self, files: Any, card: Any, profile: Any, options: Any) -> list[Unit]:
        taken = [path for path in files if path.endswith(".jsonl")]
        aside = tuple(path for path in taken if path.startswith("test"))
        return [Unit("data/made.jsonl", tuple(path for path in taken if path not in aside), aside)]


def test_what_a_source_withholds_is_a_benchmark_without_a_mapping(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = declare(monkeypatch, HubOrigin("o/made", ("*.jsonl",)))
    monkeypatch.setattr(type(source), "units", Withholding.units)
    raw = tmp_path / "raw"
    (raw / "made").mkdir(parents=True)
    (raw / "made" / "train.jsonl").write_bytes(lines(3))
    (raw / "made" / "test.jsonl").write_bytes(b'{"bad": 1}\n' + lines(3, seed=100))
    scorer, records = built(tmp_path, withheld=["made"], raw=str(raw))
    assert index.items(records) == {"made": 3}
    with scorer.opened() as run:
        scored = run(batch(("What is 100 + 2?", "102"), ("What is 0 + 2?", "2")))
    assert scored.findings is not None
    (found,) = scored.findings.to_pylist()
    assert (found["ordinal"], found["benchmark"], found["item"]) == (0, "made", "test.jsonl:3")


def test_of_a_fetched_folder_the_withheld_files_are_read_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hub: Hub
) -> None:
    hub.add("o/made", {"train.jsonl": lines(3), "test.jsonl": lines(2, seed=100)})
    source = declare(monkeypatch, HubOrigin("o/made", ("*.jsonl",)))
    monkeypatch.setattr(type(source), "units", Withholding.units)
    raw = fetch(tmp_path).uri
    assert index.items(built(tmp_path, withheld=["made"], raw=raw)[1]) == {"made": 2}
    settings = Decontaminate(withheld=["theoremqa"])
    with pytest.raises(InputError, match=r"theoremqa was not fetched.*got made") as error:
        benchmarks.find(settings, root=str(tmp_path), raw=raw)
    assert "sources=theoremqa" in error.value.hint


def test_withheld_names_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown source; got theoremq.*did you mean 'theoremqa'"):
        benchmarks.find(Decontaminate(withheld=["theoremq"]), root=str(tmp_path), raw="x")
    with pytest.raises(UsageError, match=r"the raw files are not given.*raw="):
        benchmarks.find(Decontaminate(withheld=["theoremqa"]), root=str(tmp_path))
    declare(monkeypatch, HubOrigin("o/made", ("*.jsonl",)))
    (tmp_path / "raw" / "made").mkdir(parents=True)
    (tmp_path / "raw" / "made" / "train.jsonl").write_bytes(lines(3))
    with pytest.raises(InputError, match=r"made withholds no split; got train.jsonl"):
        benchmarks.find(Decontaminate(withheld=["made"]), root=str(tmp_path), raw=str(tmp_path / "raw"))


def test_benchmark_and_index_may_be_in_a_bucket(s3: str, tmp_path: Path) -> None:
    local = written(tmp_path / "b.jsonl", RECORDS)
    uri = storage.join(s3, "benchmarks", "b.jsonl")
    storage.store_for(uri).write(uri, local.read_bytes())
    settings = Decontaminate(benchmarks=[mapped(storage.join(s3, "benchmarks"))])
    plan = index.planned(settings, root=storage.join(s3, "root"))
    assert plan.key == index.planned(Decontaminate(benchmarks=[mapped(local)]), root=str(tmp_path)).key
    made = [replace(shard, key=plan.key) for shard in index.shards(plan)]
    records = [run_shard("curate", shard, None, storage.join(s3, "shards"))() for shard in made]
    scorer = index.scorer(plan, records)
    assert scorer is not None
    assert scorer.uri.startswith(s3)
    for _ in range(2):
        with scorer.opened() as run:
            assert run(batch((RECORDS[2]["ask"], "No."))).counts["hits bench"] >= 1
