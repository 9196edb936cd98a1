"""The generated raw data meet every rule of every source, and are the same each time."""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.options import Profile
from pairmill.sources.datasets import SOURCES
from pairmill.sources.files.splits import SplitOptions
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from tests.support.cases import cases
from tests.support.helpers import REPOSITORY

# Rules that no generated record may meet, because the bytes of the first four sources are recorded (tests/golden).
UNMET = {"scibench": {"empty_answer"}}


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "examples"))
        return importlib.import_module("make_raw")


@pytest.fixture(scope="module")
def raw(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    maker.make(folder, list(maker.SOURCES))
    return folder


def cleaned(raw: Path, root: Path, profile: Profile = "pairmill") -> dict[str, Any]:
    config = CleanConfig(raw=str(raw), root=str(root), workers=1, profile=profile)
    return runner.run(Clean(), config).manifest.data


@pytest.fixture(scope="module")
def ours(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cleaned(raw, tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def theirs(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cleaned(raw, tmp_path_factory.mktemp("root"), "data_io")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_source_is_made(maker: ModuleType, raw: Path) -> None:
    assert set(maker.SOURCES) == set(SOURCES)
    assert {path.name for path in raw.iterdir()} == set(SOURCES)


def test_same_seed_same_bytes(maker: ModuleType, raw: Path, tmp_path: Path) -> None:
    maker.make(tmp_path, list(maker.SOURCES))
    assert contents(tmp_path) == contents(raw)


def test_a_source_does_not_depend_on_the_others(maker: ModuleType, raw: Path, tmp_path: Path) -> None:
    maker.make(tmp_path, ["sudoku", "tasksource"])
    assert contents(tmp_path / "tasksource") == contents(raw / "tasksource")
    assert contents(tmp_path / "sudoku") == contents(raw / "sudoku")


@pytest.mark.parametrize("name", SOURCES)
def test_every_reason_to_drop_is_met(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    text = (REPOSITORY / "pairmill" / "sources" / "datasets" / f"{name.lower()}.py").read_text()
    wanted = set(re.findall(r'(?<!\w)Drop\("(\w+)"\)', text)) - UNMET.get(name, set())
    wanted |= {"withheld_split"} if issubclass(SOURCES[name].options, SplitOptions) or name == "c4" else set()
    met = set()
    for data in (ours, theirs):
        ledger = data["sources"][name]["ledger"]
        met |= set(ledger["dropped"]) | {note.split(" (")[0] for note in ledger["notes"]}
        assert data["sources"][name]["rejects"] == 0
        assert ledger["rows_in"] > 0
    assert wanted <= met, f"no record is dropped as {', '.join(wanted - met)}"


@pytest.mark.parametrize("name", ["math_train", "numinamath", "openmathinstruct2", "scienceqa", "textbookreasoning"])
def test_records_give_two_rows(name: str, ours: dict[str, Any]) -> None:
    ledger = ours["sources"][name]["ledger"]
    assert ledger["rows_kept"] < ledger["rows_out"] <= 2 * ledger["rows_kept"]


@pytest.mark.parametrize(("name", "labels"), [("ampsmathematica", 36), ("flan", 100), ("tasksource", 24)])
def test_labels_come_by_the_dozen(name: str, labels: int, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for data in (ours, theirs):
        assert sum(f"/{name}/" in path for path in data["outputs"]) >= labels


def test_scale_multiplies_rows(maker: ModuleType, ours: dict[str, Any], tmp_path: Path) -> None:
    names = ["SYNTH", "flan", "amps_khan"]
    maker.make(tmp_path / "raw", names, scale=3)
    scaled = cleaned(tmp_path / "raw", tmp_path / "root")
    for name in names:
        assert scaled["sources"][name]["ledger"]["rows_in"] == 3 * ours["sources"][name]["ledger"]["rows_in"]


@pytest.mark.parametrize("files", cases([1, 3], 1))
@pytest.mark.parametrize("family", ["parquet", "jsonl", "jsonl.gz", "text"])
def test_families_have_the_size_that_was_asked_for(maker: ModuleType, family: str, files: int, tmp_path: Path) -> None:
    size = 6_000_000
    maker.make_family(tmp_path / "raw", family, size, files)
    made = [path for path in (tmp_path / "raw").rglob("*") if path.is_file() and path.name != "README.md"]
    assert len(made) == (1 if family.startswith("jsonl") else files)
    assert 0.9 < sum(path.stat().st_size for path in made) / size < 2.3
    (data,) = cleaned(tmp_path / "raw", tmp_path / "root")["sources"].values()
    assert data["rejects"] == 0
    assert data["ledger"]["rows_in"] == data["ledger"]["rows_kept"] > 1000


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["a", "sources=gsm9k"], ["a", "scale=0"], ["a", "seed=1"]], ids=" ".join
)
def test_wrong_arguments_are_refused(maker: ModuleType, arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"python examples/make_raw\.py"):
        maker.main(arguments)
