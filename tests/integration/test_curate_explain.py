"""``explain`` and ``show`` on a folder that the stage made: what they say of each row is what became of it."""

from pathlib import Path

import pytest

from pairmill.engine import runner
from pairmill.formats import rows
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.finished import CuratedFolder
from pairmill.stages.curate.show import ShowConfig, show
from tests.support.data import curated_folder
from tests.support.data.curated_folder import GOLD, HELD_OUT, TASKS, WEB

CONFIG = """
decontaminate: {mode: off}
heuristics: {mode: report, profile: pairs}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The rows, and the folder that the stage made of them."""
    base = tmp_path_factory.mktemp("explain")
    given, _ = curated_folder.write(base)
    (base / "curate.yaml").write_text(CONFIG)
    training = [str(given / curated_folder.path_of(task)) for task in (GOLD, WEB)]
    config = CurateConfig(
        rows=[str(given)], root=str(base / "root"), curate_config=str(base / "curate.yaml"), workers=1
    )
    assert all(Path(path).is_file() for path in training)
    return str(given), runner.run(Curate(), config).uri


def test_each_row_is_said_to_be_kept_if_it_is(made: tuple[str, str]) -> None:
    given, path = made
    folder = CuratedFolder.open(path)
    seen = {"kept": 0, "dropped": 0}
    for task in folder.tasks:
        known = TASKS.get(task) or TASKS[HELD_OUT]
        left = [
            text for batch in rows.read(f"{path}/{folder.tasks[task].path}") for text in batch.instruction.to_pylist()
        ]
        assert folder.count(task) == len(known)
        for ordinal, case in enumerate(known):
            said = explain(ExplainConfig(path=path, row=f"{task}:{ordinal}", rows=[given])).splitlines()[0]
            kept = case.row.instruction in left
            assert said.startswith(f"{task}:{ordinal}: {'kept' if kept else 'dropped by '}"), said
            seen["kept" if kept else "dropped"] += 1
    assert seen["kept"] == folder.manifest.ledger.rows_kept
    assert seen["dropped"] == sum(folder.manifest.ledger.dropped.values()) >= 2


def test_a_kept_row_has_the_attributes_of_its_own_text(made: tuple[str, str]) -> None:
    given, path = made
    said = explain(ExplainConfig(path=path, row=f"{WEB}:5", rows=[given]))
    found = dict(line.split()[:2] for line in said.split("Attributes\n")[1].split("\n\n")[0].splitlines())
    assert found["origin.ordinal"] == "5"
    assert found["heuristics.r_words"] == "3"
    assert "The last row" in said


def test_a_removed_row_is_beside_the_kept_one_without_the_rows(made: tuple[str, str]) -> None:
    given, path = made
    with_rows, alone = (explain(ExplainConfig(path=path, row=f"{WEB}:2", rows=some)) for some in ([given], []))
    assert f"dropped by exact, rule pair (in the ledger: dup_exact); {GOLD}:1 is kept in its place" in with_rows
    assert with_rows == alone  # a sample in the manifest has its text
    assert show(ShowConfig(path=path, rule="pair")) == show(ShowConfig(path=path, rule="exact.pair", rows=[given]))
