"""The rounds of near deduplication on the recorded rows: the same decisions however the work is cut."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.engine.writer import Writer
from pairmill.stages.curate.near.core import NearInput
from pairmill.stages.curate.near.settings import NearSettings
from tests.support.stages.near_rounds import Found, run, slices_of, table_bytes


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[Path]:
    """The recorded files, whose names begin with their rank."""
    found = sorted((shared / "conformance/curate/dedup").glob("[0-9]*_*.parquet"))
    assert found, "no recorded rows"
    return found


@pytest.fixture(scope="module")
def copies(shared: Path) -> int:
    """How many recorded rows are a copy of one before them."""
    truth = pq.read_table(shared / "conformance/curate/dedup/truth.parquet").to_pylist()
    groups = {one["group"] for one in truth if one["label"] == "duplicate"}
    count = len([one for one in truth if one["label"] == "duplicate"]) - len(groups)
    assert count > 0
    return count


@pytest.fixture(scope="module")
def once(rows: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    slices = [one for path in rows for one in slices_of(path)]
    return run(NearInput(NearSettings(), slices), str(tmp_path_factory.mktemp("cache")))


def test_a_run_of_all_files_compares_few_pairs(rows: list[Path], copies: int, once: Found) -> None:
    assert once.costs["rows"] == sum(pq.read_metadata(path).num_rows for path in rows)
    assert len(once.removed()) > 0.95 * copies
    assert once.costs["verifications"] <= 3 * once.costs["rows"]
    assert once.costs["unverified"] == 0


@pytest.mark.parametrize(("shares", "parts"), [(2, 1), (7, 1), (1, 100), (7, 3)])
def test_shares_and_slices_give_equal_bytes(
    rows: list[Path], once: Found, shares: int, parts: int, tmp_path: Path
) -> None:
    # The recorded files have one row group each.
    cut = [tmp_path / path.name for path in rows]
    for path, copy in zip(rows, cut, strict=True):
        table = pq.read_table(path)
        pq.write_table(table, copy, row_group_size=-(-len(table) // 10))
    group_bytes = max(path.stat().st_size for path in cut) // parts if parts > 1 else 0
    slices = [one for path in cut for one in slices_of(path, group_bytes=group_bytes)]
    assert parts == 1 or len(slices) > len(rows)
    found = run(NearInput(NearSettings(), slices), str(tmp_path / "cache"), shares=shares)
    assert {task: table_bytes(table) for task, table in found.tasks.items()} == {
        task: table_bytes(table) for task, table in once.tasks.items()
    }


def test_files_one_after_another_give_the_decisions_of_one_run(rows: list[Path], copies: int, tmp_path: Path) -> None:
    plain = NearSettings(refine=False)
    slices = [one for path in rows for one in slices_of(path)]
    together = run(NearInput(plain, slices), str(tmp_path / "together"))
    tables: dict[str, bytes] = {}
    index: list[str] = []
    for path in rows:
        found = run(NearInput(plain, slices_of(path), index=index, write_index=True), str(tmp_path / "cache"))
        tables |= {task: table_bytes(table) for task, table in found.tasks.items()}
        home = tmp_path / f"after {path.name}"
        assert found.found.index is not None
        found.found.index.link(Writer(str(home)), "near")
        index = [str(home / "near")]
    assert tables == {task: table_bytes(table) for task, table in together.tasks.items()}
    assert len(together.removed()) > 0.95 * copies
