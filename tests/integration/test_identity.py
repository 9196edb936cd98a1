"""A result's name follows from all that made it and all that it says, and from nothing else."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import MANIFEST
from pairmill.engine.options import Profile
from pairmill.engine.runner import Result
from pairmill.errors import InputError
from pairmill.formats.rows import Row
from pairmill.sources.datasets import SOURCES
from pairmill.sources.files.raw import PLACES, places
from pairmill.sources.files.splits import TrainOnly
from pairmill.sources.origin import Hub as HubFiles
from pairmill.sources.origin import Manual
from pairmill.sources.parsed import Labelled, Parsed
from pairmill.sources.source import Context, Source, Unit
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.core import Sample
from pairmill.stages.sample.run import run as sampled
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.support import tools
from tests.support.helpers import contents
from tests.support.servers.downloads import Hub
from tests.support.stages.fetching import Made, ask_here, declare, fetch, index, lines

FIVE_LINES = "name: mine\n{where}\ncondition: direct\ninstruction: question\nresponse: answer\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub() as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


def describe(path: Path, where: str, *more: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FIVE_LINES.format(where=where) + "".join(f"{line}\n" for line in more))
    return str(path)


def cleaned(root: Path, raw: object, *sources: str, **options: Any) -> Result:
    config = CleanConfig(root=str(root), raw=str(raw), sources=list(sources) or ["made"], workers=1, **options)
    return runner.run(Clean(), config)


def outputs(result: Result) -> dict[str, bytes]:
    return {path: data for path, data in contents(Path(result.uri)).items() if path.startswith("data")}


def about(result: Result, source: str = "mine") -> dict[str, str]:
    found: dict[str, Any] = result.manifest.data["sources"][source]
    return found.get("about", found)


def card(**splits: object) -> bytes:
    listed = "".join(f"  - {{split: {split}, path: {json.dumps(path)}}}\n" for split, path in splits.items())
    return f"---\nconfigs:\n- config_name: default\n  data_files:\n{listed}---\n".encode()


def give(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def same(one: Result, other: Result) -> bool:
    """Whether two results, reports included, are the same to the byte."""
    return contents(Path(one.uri)) == contents(Path(other.uri)) and Path(one.uri).name == Path(other.uri).name


# --- what the plan makes of the files ---------------------------------------------------------------------------------


class OfSplits(Made):
    """The training split; records of the test split are counted and dropped."""

    options = TrainOnly
    splits = ("train", "test")
    output = "data/mine.jsonl"
    units = Source.units  # type: ignore[assignment]


@pytest.mark.parametrize("how", ["a built-in source", "a YAML file"])
def test_a_mended_card_gives_the_rows_and_the_name_of_its_revision(
    how: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = describe(tmp_path / "mine.yaml", "hub: o/n")
    if how == "a built-in source":
        source = "mine"
        monkeypatch.setitem(SOURCES, source, OfSplits(source, HubFiles("o/n", ("*.jsonl",))))
    data = {"a.jsonl": lines(15), "b.jsonl": lines(90, 1000)}
    hub.add("o/n", {**data, "README.md": card(train="a.jsonl", test="b.jsonl")})
    wrong = cleaned(tmp_path / "root", fetch(tmp_path / "root", source).uri, source)
    assert wrong.manifest.ledger.rows_out == 15
    commit = hub.add("o/n", {**data, "README.md": card(train="b.jsonl", test="a.jsonl")})
    mended = cleaned(tmp_path / "root", fetch(tmp_path / "root", source, update=["all"]).uri, source)
    assert (mended.reused, mended.manifest.ledger.rows_out) == (False, 90)
    assert about(mended)["revision"] == commit
    assert Path(mended.uri).name != Path(wrong.uri).name
    fresh = cleaned(tmp_path / "fresh", fetch(tmp_path / "fresh", source).uri, source)
    assert same(mended, fresh)


def test_a_card_that_moves_no_row_still_names_its_revision_and_cleans_nothing_again(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = describe(tmp_path / "mine.yaml", "hub: o/n")
    data = {"a.jsonl": lines(15), "README.md": card(train="a.jsonl")}
    hub.add("o/n", data)
    first = cleaned(tmp_path, fetch(tmp_path, source).uri, source)
    commit = hub.add("o/n", {**data, "README.md": card(train="a.jsonl") + b"More words.\n"})
    caplog.set_level("INFO")
    second = cleaned(tmp_path, fetch(tmp_path, source, update=["all"]).uri, source)
    assert (second.reused, about(second)["revision"]) == (False, commit)
    assert about(first)["revision"] != commit
    assert outputs(first) == outputs(second)
    assert "clean: 1 of 1 shards reused" in caplog.text


def test_the_order_that_a_card_gives_its_files_is_that_of_the_rows(tmp_path: Path) -> None:
    source = describe(tmp_path / "mine.yaml", "hub: o/n")
    data = {"a.jsonl": lines(3), "b.jsonl": lines(3, 1000)}
    names, found = set(), set()
    for order in (["a.jsonl", "b.jsonl"], ["b.jsonl", "a.jsonl"]):
        raw = give(tmp_path / "raw" / "mine", {**data, "README.md": card(train=order)}).parent
        result = cleaned(tmp_path / "root", raw, source)
        assert outputs(result) == {
            "data/mine.jsonl": outputs(cleaned(tmp_path / order[0], raw, source))["data/mine.jsonl"]
        }
        names.add(Path(result.uri).name)
        found.add(outputs(result)["data/mine.jsonl"])
    assert (len(names), len(found)) == (2, 2)


class Planned(Source):
    """Says what its units are by what a test told it."""

    name = "made"
    licence, citation, origin = "CC0-1.0", "Nobody", Manual("", "", "")
    unit: Unit

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [self.unit]

    def parse(self, record: Any, context: Context) -> Parsed:
        row = Row(context.tag, record["question"], record["answer"])
        return Labelled(record["question"][-1], row) if "{}" in self.unit.output else row


AB = ("a.jsonl", "b.jsonl")
PLANS = {
    "the base": Unit("data/made.jsonl", AB, tag="direct"),
    "another order": Unit("data/made.jsonl", AB[::-1], tag="direct"),
    "a part withheld": Unit("data/made.jsonl", AB[:1], AB[1:], "direct"),
    "the other part withheld": Unit("data/made.jsonl", AB[1:], AB[:1], "direct"),
    "another tag": Unit("data/made.jsonl", AB, tag="cot"),
    "another output": Unit("data/other.jsonl", AB, tag="direct"),
    "another kind": Unit("data/made.parquet", AB, tag="direct"),
    "an output a label": Unit("data/{}.jsonl", AB, tag="direct"),
    "an empty label more": Unit("data/{}.jsonl", AB, tag="direct", labels=("x",)),
}


def test_all_that_a_plan_makes_of_the_same_files_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Planned()
    monkeypatch.setitem(SOURCES, "made", source)
    raw = give(tmp_path / "raw" / "made", {"a.jsonl": lines(3), "b.jsonl": lines(3, 1000)}).parent
    names = set()
    for number, unit in enumerate(PLANS.values()):
        source.unit = unit
        result = cleaned(tmp_path / "root", raw)
        assert same(result, cleaned(tmp_path / f"fresh{number}", raw))
        names.add(Path(result.uri).name)
    assert len(names) == len(PLANS)


# --- what a manifest says ---------------------------------------------------------------------------------------------


def test_a_corrected_licence_and_citation_arrive_and_nothing_else_is_done_again(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.add("o/n", {"a.jsonl": lines(15), "README.md": card(train="a.jsonl")})
    names, rows = set(), set()
    caplog.set_level("INFO")
    for words in ({}, {"licence": "MIT"}, {"licence": "MIT", "citation": "Me: Mine"}, {"citation": "Me: Mine"}):
        source = describe(tmp_path / "mine.yaml", "hub: o/n", *(f"{key}: '{value}'" for key, value in words.items()))
        caplog.clear()
        raw = fetch(tmp_path / "root", source)
        result = cleaned(tmp_path / "root", raw.uri, source)
        expected = {"licence": "none stated", "citation": "none stated", **words}
        (whole,) = (tmp_path / "root" / "raw" / "mine").glob(f"*/{MANIFEST}")
        for found in (
            about(raw),
            index(raw, "mine")["about"],
            json.loads(whole.read_bytes())["data"]["about"],
            about(result),
        ):
            assert expected.items() <= found.items()
        names.add((Path(raw.uri).name, Path(result.uri).name))
        rows.add(outputs(result)["data/mine.jsonl"])
        if len(names) > 1:
            assert not hub.requests
            assert "clean: 1 of 1 shards reused" in caplog.text
        # Raw data that is gone from the cache is not asked for either.
        if (tmp_path / "root" / "fetch" / "shards").exists():
            tools.remove(tmp_path / "root" / "fetch" / "shards")
        hub.requests.clear()
        assert cleaned(tmp_path / "root", tmp_path / "root" / "raw", source).uri == result.uri
    assert (len(names), len(rows)) == (4, 1)


def test_a_corrected_licence_arrives_in_clean_without_a_fetch(tmp_path: Path) -> None:
    give(tmp_path / "raw" / "mine", {"train.jsonl": lines(3)})
    source = describe(tmp_path / "mine.yaml", "hub: o/n")
    raw = fetch(tmp_path / "root", source, raw=str(tmp_path / "raw"))
    for place in (tmp_path / "raw", raw.uri):
        describe(tmp_path / "mine.yaml", "hub: o/n")
        first = cleaned(tmp_path / "root", place, source)
        describe(tmp_path / "mine.yaml", "hub: o/n", "licence: MIT")
        second = cleaned(tmp_path / "root", place, source)
        assert (about(first)["licence"], about(second)["licence"]) == ("none stated", "MIT")
        assert outputs(first) == outputs(second)


# --- identity is content ----------------------------------------------------------------------------------------------


def test_neither_spelling_nor_order_of_sources_is_part_of_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    give(tmp_path / "raw", {"mine/train.jsonl": lines(3), "made/train.jsonl": lines(4, 70)})
    declare(monkeypatch, Manual("", "", ""))
    path = Path(describe(tmp_path / "yaml" / "mine.yaml", "hub: o/n"))
    (tmp_path / "another.yml").write_bytes(path.read_bytes())
    spelled = [str(path), "yaml/mine.yaml", "./yaml/../yaml/mine.yaml", path.as_uri(), "another.yml"]
    for stage, run in (("clean", cleaned), ("fetch", lambda root, raw, *given: fetch(root, *given, raw=str(raw)))):
        base = run(tmp_path / "base", tmp_path / "raw", "made", spelled[0])
        assert base.manifest.options["sources"] == ["made", "mine"]
        for number, given in enumerate(spelled):
            for sources in ((given, "made"), ("made", given)):
                assert run(tmp_path / "base", tmp_path / "raw", *sources).reused
            assert same(run(tmp_path / f"{stage}{number}", tmp_path / "raw", given, "made"), base)
        text = base.manifest.dump().decode() + (Path(base.uri) / "report.html").read_text()
        assert str(tmp_path) not in text


def test_no_place_is_in_the_manifest_of_what_is_made_of_given_files(tmp_path: Path) -> None:
    """The same files at two places are the same data, read where they were given last."""
    names, manifests = set(), set()
    for place in ("one", "two", "one"):
        give(tmp_path / place, {"rows/a.jsonl": lines(3)})
        source = describe(tmp_path / place / "mine.yaml", "files: rows/*.jsonl", "licence: MIT")
        raw = fetch(tmp_path / "root", source)
        assert places(raw.uri) == {"mine": str(tmp_path / place / "rows")}
        assert fetch(tmp_path / "root", source).reused
        result = cleaned(tmp_path / "root", raw.uri, source)
        names.add((Path(raw.uri).name, Path(result.uri).name))
        manifests.add(result.manifest.dump())
        for one in (raw, result):
            assert str(tmp_path) not in one.manifest.dump().decode()
            for file in one.manifest.files:
                assert str(tmp_path).encode() not in (Path(one.uri) / file.path).read_bytes(), file.path
    assert (len(names), len(manifests)) == (1, 1)
    # Files may go away from where they were given: they are read where they are now, and nothing is made again.
    tools.remove(tmp_path / "one")
    moved = fetch(tmp_path / "root", str(tmp_path / "two" / "mine.yaml"))
    assert moved.reused
    again = cleaned(tmp_path / "root", moved.uri, str(tmp_path / "two" / "mine.yaml"))
    assert (again.uri, again.reused) == (result.uri, True)
    # A damaged file of places is none: clean says what to do, and fetch writes it again.
    for damaged in (b'{"mine": ', b"[]", b'{"mine": "ftp://x"}', b'{"mine": ""}', b'{"mine": "/a\\ud800"}', b"\xff"):
        (Path(moved.uri) / PLACES).write_bytes(damaged)
        with pytest.raises(InputError, match=r"the place of the raw files of mine is not known.*run fetch again"):
            cleaned(tmp_path / "other", moved.uri, str(tmp_path / "two" / "mine.yaml"))
    assert fetch(tmp_path / "root", str(tmp_path / "two" / "mine.yaml")).reused
    assert places(raw.uri) == {"mine": str(tmp_path / "two" / "rows")}


def test_an_extract_of_given_files_has_one_name_wherever_they_are(tmp_path: Path) -> None:
    give(tmp_path / "one", {"rows/a.jsonl": lines(3)})
    describe(tmp_path / "one" / "mine.yaml", "files: rows/*.jsonl")
    first = fetch(tmp_path / "first", str(tmp_path / "one" / "mine.yaml"), limit=2)
    (tmp_path / "one").rename(tmp_path / "two")
    second = fetch(tmp_path / "second", str(tmp_path / "two" / "mine.yaml"), limit=2)
    assert same(first, second)


def test_what_fetch_says_does_not_depend_on_what_was_there_before(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/n", {"a.jsonl": lines(15)})
    hub.add("o/m", {"b.jsonl": lines(4)})
    one = describe(tmp_path / "one.yaml", "hub: o/n")
    two = describe(tmp_path / "two.yaml", "hub: o/m")
    Path(two).write_text(Path(two).read_text().replace("name: mine", "name: other"))
    fetch(tmp_path / "grown", one)
    assert same(fetch(tmp_path / "grown", one, two), fetch(tmp_path / "fresh", two, one))


# --- old projects -----------------------------------------------------------------------------------------------------


HISTORIES = [(stage.name, stage.version, stage.history) for stage in (Fetch, Clean, TrainTokenizer, Tokenize, Sample)]


@pytest.mark.parametrize(("stage", "version", "history"), HISTORIES)
def test_every_version_says_why_the_one_before_is_not_used(stage: str, version: int, history: dict[int, str]) -> None:
    assert sorted(history) == list(range(2, version + 1)), stage
    for reason in history.values():
        assert reason[0].islower()
        assert reason[-1] != "."


def test_results_of_an_older_version_are_made_again_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    declare(monkeypatch, Manual("", "", ""))
    raw = give(tmp_path / "raw" / "made", {"a.jsonl": lines(3)}).parent
    caplog.set_level("INFO")
    version = Clean.version
    monkeypatch.setattr(Clean, "version", version - 2)
    old = cleaned(tmp_path / "root", raw)
    assert "not used again" not in caplog.text
    monkeypatch.setattr(Clean, "version", version)
    new = cleaned(tmp_path / "root", raw)
    assert (new.reused, Path(new.uri).name != Path(old.uri).name) == (False, True)
    (said,) = (one.getMessage() for one in caplog.records if "not used again" in one.getMessage())
    assert str(tmp_path / "root" / "clean") in said
    assert said.endswith(f": {Clean.history[version - 1]}; {Clean.history[version]}")
    assert "shards reused" not in caplog.text
    caplog.clear()
    assert cleaned(tmp_path / "root", raw).reused
    assert "not used again" not in caplog.text


def test_a_plan_of_an_older_version_is_made_again_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokenized = tmp_path / "tokenized"
    index = {"inst_start": [0, 5], "inst_len": [2, 2], "resp_start": [2, 7], "resp_len": [3, 3]}
    for name, values in {"tokens": range(10), **index}.items():
        (tokenized / "made").mkdir(parents=True, exist_ok=True)
        np.save(tokenized / "made" / f"{name}.npy", np.array(values, np.uint32 if name == "tokens" else np.uint64))
    (tokenized / "tokenizer_info.json").write_text('{"vocab_size": 10}')
    options: dict[str, Any] = {"tokenized_path": str(tokenized), "output_path": "", "root": str(tmp_path / "root")}
    caplog.set_level("INFO")
    monkeypatch.setattr(Sample, "version", Sample.version - 1)
    monkeypatch.setattr("pairmill.stages.sample.draft.VERSION", Sample.version)
    old = sampled(SampleConfig(**options))
    monkeypatch.undo()
    caplog.set_level("INFO")
    new = sampled(SampleConfig(**options))
    assert (new.reused, new.parameters["fingerprint"] != old.parameters["fingerprint"]) == (False, True)
    (said,) = (one.getMessage() for one in caplog.records if "not used again" in one.getMessage())
    assert said.endswith(f": {Sample.history[Sample.version]}")
    caplog.clear()
    assert sampled(SampleConfig(**options)).reused
    assert "not used again" not in caplog.text
