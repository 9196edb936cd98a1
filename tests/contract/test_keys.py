"""Equal keys mean equal bytes: whatever a stage's ``process`` reads of its options is in the key of the shard."""

import dataclasses
import json
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage
from pairmill.engine import runner, shards
from pairmill.engine.keys import identify
from pairmill.engine.options import RunConfig, byte_options
from pairmill.engine.rounds import rounds_of
from pairmill.engine.stage import Shard, ShardRecord, Stage, fingerprint_of
from pairmill.formats.slices import Slicing
from pairmill.formats.templates import DEFAULT, TEMPLATES
from pairmill.sources.origin import Manual
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.tokenize import core as tokenize
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.train_tokenizer import core as train_tokenizer
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from tests.support.stages.fetching import declare, lines
from tests.support.tokenizers.sides import trained

C = TypeVar("C", bound=RunConfig)


def recording(config: C) -> tuple[C, set[str]]:
    """The same options, and the names of those that are read of them, by whatever method."""
    read: set[str] = set()
    names = {item.name for item in dataclasses.fields(config)}

    def get(self: Any, name: str) -> Any:
        if name in names:
            read.add(name)
        return object.__getattribute__(self, name)

    watched = dataclasses.replace(config)
    read.clear()
    watched.__class__ = type("Watched", (type(config),), {"__getattribute__": get})
    return watched, read


def other(config: RunConfig, name: str) -> Any:
    """Another value of an option."""
    value = getattr(config, name)
    if name == "profile":
        return "pairmill" if value == "data_io" else "data_io"
    return (
        [*value, value[-1]]
        if isinstance(value, list)
        else not value
        if isinstance(value, bool)
        else value + type(value)(1)
    )


def rows(folder: Path) -> Path:
    folder.mkdir()
    texts = [[f"{word} {number}" for number in range(60)] for word in ("direct", "question", "answer")]
    texts[0] = ["direct"] * 60
    pq.write_table(
        pa.table(texts, ["condition", "instruction", "response"]), folder / "large.parquet", row_group_size=20
    )
    for name in ("small.jsonl", "limited.jsonl"):
        with (folder / name).open("w") as file:
            for row in zip(*texts, strict=True):
                file.write(json.dumps(dict(zip(("condition", "instruction", "response"), row, strict=True))) + "\n")
    return folder


def of_fetch(tmp_path: Path, options: dict[str, Any]) -> tuple[Stage[Any, Any], RunConfig]:
    (tmp_path / "raw" / "made").mkdir(parents=True)
    (tmp_path / "raw" / "made" / "a.jsonl").write_bytes(lines(3))
    return Fetch(), FetchConfig(root=str(tmp_path / "root"), raw=str(tmp_path / "raw"), sources=["made"])


def of_clean(tmp_path: Path, options: dict[str, Any]) -> tuple[Stage[Any, Any], RunConfig]:
    of_fetch(tmp_path, options)
    return Clean(), CleanConfig(root=str(tmp_path / "root"), raw=str(tmp_path / "raw"), sources=["made"], **options)


def of_train(tmp_path: Path, options: dict[str, Any]) -> tuple[Stage[Any, Any], RunConfig]:
    (tmp_path / "rules.yaml").write_text("- prefix: limited\n  max_per_file: 2\n")
    given = {"rows": [str(rows(tmp_path / "rows"))], "prefix_config_path": str(tmp_path / "rules.yaml")}
    return train_tokenizer.TrainTokenizer(), TrainTokenizerConfig(root=str(tmp_path / "root"), **given, **options)


def of_tokenize(tmp_path: Path, options: dict[str, Any]) -> tuple[Stage[Any, Any], RunConfig]:
    special = sorted(TEMPLATES[DEFAULT].tokens)
    trained(["question answer"] * 9, 300, True, special).save(str(tmp_path / "tokenizer.json"))
    given = {"rows": [str(rows(tmp_path / "rows"))], "tokenizer": str(tmp_path / "tokenizer.json")}
    return tokenize.Tokenize(), TokenizeConfig(root=str(tmp_path / "root"), **given, **options)


def first_rounds(
    rounds: Generator[Sequence[Shard[Any]], list[ShardRecord], Any], done: list[list[ShardRecord]], most: int = 9
) -> Iterator[Sequence[Shard[Any]]]:
    """The shards of each of the first rounds, where the records of those before are in ``done`` by then."""
    with suppress(StopIteration):
        yield next(rounds)
        for number in range(most - 1):
            yield rounds.send(done[number])


CASES = [
    (of_clean, {}),
    (of_clean, {"profile": "data_io"}),
    (of_train, {}),
    (of_train, {"profile": "data_io"}),
    (of_tokenize, {}),
    (of_tokenize, {"profile": "data_io"}),
    (of_fetch, {}),
]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_every_option_that_a_shard_reads_is_in_its_key(
    make: Callable[[Path, dict[str, Any]], tuple[Stage[Any, Any], RunConfig]],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(monkeypatch, Manual("", "", ""))
    for module in (train_tokenizer, tokenize):
        monkeypatch.setattr(module, "SLICING", Slicing(1, 1))
    stage, config = make(tmp_path, options)
    watched, read = recording(config)
    plan = stage.plan(watched)
    context = plan.context
    rounds = rounds_of(stage, watched, plan)
    cache = storage.join(config.root, "shards")
    inspected = 0
    done: list[list[ShardRecord]] = []
    for number, some in enumerate(first_rounds(rounds, done)):
        records = []
        for shard in some:
            read.clear()
            records.append(shards.run_shard(stage.name, shard, context, cache)())
            for name in sorted(read & byte_options(config).keys()):
                changed = dataclasses.replace(config, **{name: other(config, name)})
                again = list(first_rounds(rounds_of(stage, changed, stage.plan(changed)), list(done), number + 1))
                keys = {one.key for one in again[number]}
                assert shard.key not in keys, f"{stage.name}: {shard.name} reads {name}, which is not in its key"
                inspected += 1
        done.append(records)
    assert inspected >= {"fetch": 0, "clean": 1, "tokenize": 4, "train_tokenizer": 9}[stage.name]


def test_what_python_s_own_tables_decide_is_in_the_keys_of_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.11 and 3.12 know other letters: where a word ends, what is white space, what a case folds to."""
    declare(monkeypatch, Manual("", "", ""))
    stage, config = of_clean(tmp_path, {})
    keys = {shard.key for shard in runner.first_round(stage, config)}
    monkeypatch.setattr(unicodedata, "unidata_version", "1.0.0")
    assert keys.isdisjoint(shard.key for shard in runner.first_round(stage, config))


def test_what_python_s_own_tables_decide_is_in_the_name_of_a_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, config = of_train(tmp_path, {})
    before = runner.first_round(stage, config)
    fingerprint = fingerprint_of(stage, config, stage.plan(config), before)
    monkeypatch.setattr(unicodedata, "unidata_version", "1.0.0")
    assert fingerprint_of(stage, config, stage.plan(config), before) != fingerprint
    # The words that are counted are split by tables of our own.
    assert [shard.key for shard in before] == [shard.key for shard in runner.first_round(stage, config)]


def test_a_class_that_was_renamed_is_keyed_as_before() -> None:
    @dataclass(frozen=True)
    class Old:
        uri: str

    before = identify(Old("a"), ())

    @dataclass(frozen=True)
    class New:
        keyed_as: ClassVar[str] = Old.__qualname__

        uri: str

    @dataclass(frozen=True)
    class Further(New):
        pass

    assert identify(New("a"), ()) == before
    assert identify(Further("a"), ()) != before
