"""The key of a shard: what counts, and what says why it does not."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import keys
from pairmill.engine.inputs import InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import File, Ledger
from pairmill.engine.options import RunConfig, option
from pairmill.engine.rounds import key_maker
from pairmill.engine.shards import run_shard
from pairmill.engine.stage import Shard, ShardRecord, ShardResult, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from tests.support.stages.four_rounds import Unique


class Form(Enum):
    RAW = 1
    FOLDED = 2


@dataclass(frozen=True)
class Bounds:
    least: int
    most: float | None = None


@dataclass(frozen=True)
class Filter(Shard[object]):
    file: InputFile
    record: ShardRecord
    bounds: Bounds
    form: Form
    weights: Mapping[str, float]
    names: tuple[str, ...]
    exact: bool
    text: bytes
    place: str = field(metadata=unkeyed("a place"))

    def run(self, context: object, out: Writer) -> ShardResult:
        return ShardResult(Ledger())


@dataclass(frozen=True)
class LeastAlone(Filter, reads=("least",)):
    pass


@dataclass(kw_only=True)
class Options(RunConfig):
    """Options."""

    least: int = option(1, help="a")
    other: str = option("x", help="b")
    place: str = option("here", help="p", changes_bytes=False)


PLAN: StagePlan[object] = StagePlan(inputs=[], build_context=object)


def record(**given: Any) -> ShardRecord:
    """A record of which one thing is another."""
    made = {"ledger": Ledger(3, 3, 3), "files": [File("rows", 7, "1" * 64)], "data": {"bounds": [1, 2]}}
    return ShardRecord(**{"name": "a", "key": "0" * 64, "cache": "folder", **made, **given})


FILTER = Filter(
    InputFile("here/a.jsonl", "a", 3, "2" * 64),
    record(),
    Bounds(3),
    Form.RAW,
    {"a": 1.0, "b": 2.0},
    ("a", "b"),
    True,
    b"text",
    "here",
    name="a",
)


def key_of(shard: Shard[Any], config: Options | None = None, plan: StagePlan[Any] = PLAN, version: int = 1) -> str:
    stage = type("Made", (Unique,), {"version": version})()
    return key_maker(stage, config or Options(root="r"), plan)(shard)


def test_each_value_counts() -> None:
    others = [
        replace(FILTER, file=replace(FILTER.file, digest="3" * 64)),
        replace(FILTER, file=replace(FILTER.file, uri="here/a.parquet")),
        replace(FILTER, file=replace(FILTER.file, task="b")),
        replace(FILTER, record=record(files=[File("rows", 7, "4" * 64)])),
        replace(FILTER, record=record(data={"bounds": [1, 3]})),
        replace(FILTER, record=record(ledger=Ledger(3, 2, 3, {"short": 1}))),
        replace(FILTER, record=record(name="b")),
        replace(FILTER, bounds=Bounds(4)),
        replace(FILTER, bounds=Bounds(3, 3)),
        replace(FILTER, bounds=Bounds(3, 3.0)),
        replace(FILTER, form=Form.FOLDED),
        replace(FILTER, weights={"a": 1.0}),
        replace(FILTER, weights={"a": 1.0, "c": 2.0}),
        replace(FILTER, weights={"a": 2.0, "b": 1.0}),
        replace(FILTER, names=("b", "a")),
        replace(FILTER, names=("a, b",)),
        replace(FILTER, exact=False),
        replace(FILTER, exact=1),  # type: ignore[arg-type]
        replace(FILTER, text=b"other"),
        LeastAlone(**{item.name: getattr(FILTER, item.name) for item in fields(FILTER)}),
    ]
    assert len({key_of(FILTER), *map(key_of, others)}) == len(others) + 1
    same = [
        replace(FILTER, place="there", name="b", size=9),
        replace(FILTER, file=replace(FILTER.file, uri="there/x.jsonl", size=4, stamp="s", promised=True)),
        replace(FILTER, record=record(cache="elsewhere", attempt="6" * 16, key="5" * 64)),
        replace(FILTER, weights={"b": 2.0, "a": 1.0}),
    ]
    assert {key_of(FILTER), *map(key_of, same)} == {key_of(FILTER)}
    assert key_of(FILTER, version=2) != key_of(FILTER)


def test_options_that_change_bytes_count_unless_the_class_says_what_it_reads() -> None:
    alone = LeastAlone(**{item.name: getattr(FILTER, item.name) for item in fields(FILTER)})
    least, other, place = (Options(root="r", **some) for some in ({"least": 2}, {"other": "y"}, {"place": "there"}))
    assert len({key_of(FILTER, config) for config in (None, least, other)}) == 3
    assert key_of(FILTER, place) == key_of(FILTER) != key_of(FILTER, plan=replace(PLAN, says={"revision": "a"}))
    assert key_of(alone, other) == key_of(alone) != key_of(alone, least)
    assert key_of(alone, plan=replace(PLAN, says={"revision": "a"})) == key_of(alone)
    # A path is not content: the plan says what is.
    assert key_of(alone, least, replace(PLAN, options={"least": 1})) == key_of(alone)


def test_what_cannot_be_keyed_is_refused() -> None:
    with pytest.raises(InternalError, match=r"what a value of this type is keyed by") as caught:
        key_of(replace(FILTER, bounds=Bounds(Path("here"))))  # type: ignore[arg-type]
    assert caught.value.where == "unique.Filter.bounds.least"
    assert caught.value.got == "PosixPath"

    @dataclass(frozen=True)
    class Wrong(Filter, reads=("most",)):
        pass

    with pytest.raises(InternalError, match="reads an option that the stage lacks"):
        key_of(Wrong(**{item.name: getattr(FILTER, item.name) for item in fields(FILTER)}))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package outside this repository."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "strange"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "limits.py").write_text("LEAST = 3\n")
    (package / "stage.py").write_text('"""Words."""\nfrom strange.limits import LEAST\nimport beside\nMOST = 9\n')
    (tmp_path / "beside.py").write_text("import json\n\ndef twice(x):\n    return 2 * x\n")
    (tmp_path / "other.py").write_text("X = 1\n")
    return tmp_path


def digest_of(module: str) -> str:
    keys.code_digest.cache_clear()
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] in {"strange", "beside", "other"}]:
        del sys.modules[name]
    return keys.code_digest(module)


def test_code_from_elsewhere_counts_with_all_that_it_imports_from_there(elsewhere: Path) -> None:
    before = digest_of("strange.stage")
    stage, limits, beside = (elsewhere / name for name in ("strange/stage.py", "strange/limits.py", "beside.py"))
    for path, text in (
        (stage, stage.read_text().replace("9", "8")),
        (limits, "LEAST = 4\n"),
        (beside, beside.read_text().replace("2 * x", "3 * x")),
    ):
        was = path.read_text()
        path.write_text(text)
        assert digest_of("strange.stage") != before, path
        path.write_text(was)
    stage.write_text(f'"""Other words."""\n# A comment.\n\n{stage.read_text().partition(chr(10))[2]}')
    (elsewhere / "other.py").write_text("X = 2\n")
    assert digest_of("strange.stage") == before
    with pytest.raises(InternalError, match="the code of a stage cannot be read"):
        digest_of("strange.absent")


def test_a_shard_that_runs_does_not_know_its_name(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Named(Shard[object]):
        def run(self, context: object, out: Writer) -> ShardResult:
            return ShardResult(Ledger(), {"name": self.name})

    record = run_shard("made", Named(name="a", key="6" * 64), None, str(tmp_path))()
    assert (record.name, record.data) == ("a", {"name": "6" * 64})
