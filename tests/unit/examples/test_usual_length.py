"""The example of a stage of one's own: what it keeps, in one process and as a program, whole and in parts."""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.errors import InputError
from pairmill.formats import row_files
from pairmill.formats.slices import Slicing
from pairmill.rowstage import join
from tests.support import tools
from tests.support.helpers import PATIENCE, REPOSITORY
from tests.support.stages import curating

FOLDER = REPOSITORY / "examples" / "stages"
FIELDS = ("condition", "instruction", "response")
REASON = "unusual_length"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("usual_length")


def given(base: Path) -> Path:
    """Write two tasks, one of them a Parquet file of five row groups."""
    some = [("direct", f"q {at}", "word " * (20 + at % 7)) for at in range(100)]
    for at in (3, 50, 95):
        some[at] = ("direct", f"q {at}", "word " * 5000)
    folder = base / "rows"
    tools.write_rows(folder / "a.jsonl", [("direct", "q", "yes"), *some[:20]])
    pq.write_table(
        pa.table(dict(zip(FIELDS, zip(*some, strict=True), strict=True))), folder / "b.parquet", row_group_size=20
    )
    return folder


def run(example: ModuleType, rows: Path, root: Path, **options: object) -> Path:
    config = example.UsualLengthConfig(rows=[str(rows)], root=str(root), **{"workers": 1, **options})
    return Path(runner.run(example.UsualLength(), config).uri)


def test_the_program_keeps_what_is_nearest_to_the_usual_length(tmp_path: Path) -> None:
    rows = given(tmp_path)
    arguments = [str(FOLDER / "usual_length.py"), f"rows={rows}", f"root={tmp_path / 'root'}", "keep=0.96", "workers=2"]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    manifest = curating.manifest(folder)
    assert manifest.ledger.rows_in == 121
    assert manifest.ledger.dropped == {REASON: 5}
    assert [one["ordinal"] for one in curating.decisions(folder, "usual_length", "b.parquet")] == [3, 50, 95]
    assert [one["ordinal"] for one in curating.decisions(folder, "usual_length", "a.jsonl")] == [0, 4]
    texts = [len(response) for name in ("a.jsonl", "b.parquet") for _, _, response in curating.kept(folder, name)]
    assert len(texts) == 116
    assert max(texts) < 1000
    distances = curating.attributes(folder, "usual_length", "b.parquet")["distance"].to_pylist()
    assert len(distances) == 97
    assert statistics.median(distances) < 0.5
    assert "| unusual_length | 5 |" in (folder / "report.md").read_text()


def test_what_is_written_in_parts_is_what_is_written_whole(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = given(tmp_path)
    whole = run(example, rows, tmp_path / "whole")
    monkeypatch.setattr(row_files, "SLICING", Slicing(1, open_from=1, cut_from=1))
    monkeypatch.setattr(join, "PARTS_FROM", 1)
    parts = run(example, rows, tmp_path / "parts")
    assert pq.ParquetFile(parts / "b.parquet").metadata.num_row_groups == 5
    for name in ("a.jsonl", "b.parquet"):
        assert curating.kept(parts, name) == curating.kept(whole, name)
        mine, other = (curating.decisions(folder, "usual_length", name) for folder in (parts, whole))
        assert [(one["ordinal"], one["detail"]) for one in mine] == [(one["ordinal"], one["detail"]) for one in other]
        mine, other = (curating.attributes(folder, "origin", name) for folder in (parts, whole))
        assert mine.equals(other)
    mine, other = curating.manifest(parts), curating.manifest(whole)
    assert (mine.ledger, mine.shards) == (other.ledger, other.shards)
    assert [(file.path, file.task) for file in mine.files] == [(file.path, file.task) for file in other.files]


def test_an_option_redoes_the_choice_and_what_is_written_alone(example: ModuleType, tmp_path: Path) -> None:
    rows, root = given(tmp_path), tmp_path / "root"

    def made() -> set[str]:
        return set(curating.shards(root, "usual_length"))

    run(example, rows, root)
    before = made()
    run(example, rows, root, keep=0.5)
    assert len(made() - before) == 3  # the choice, and both files
    assert run(example, rows, root) == run(example, rows, root, workers=2)
    assert len(made() - before) == 3


def test_a_rule_that_drops_all_is_refused(example: ModuleType, tmp_path: Path) -> None:
    tools.write_rows(tmp_path / "rows" / "c.jsonl", [("direct", "q", "yes")])
    with pytest.raises(InputError, match=r"no row is left.*1 rows, of which 1 are dropped as unusual_length"):
        run(example, tmp_path / "rows", tmp_path / "root", keep=0.1)
