"""Files of keys in ranges, and what is found in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import shuffle
from pairmill.engine.stage import ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate import exact, exact_files
from pairmill.stages.curate.exact_files import ENTRY, SortedKeys
from pairmill.stages.curate.found import SplitShard
from tests.support import tools
from tests.support.data.near_duplicates import Shares, generated
from tests.support.stages import curating
from tests.support.stages.curating import curate


@pytest.mark.parametrize("rows", [0, 1, 900, 5000, 400_000])
def test_ranges_of_keys_are_the_whole_file_cut_at_any_number_of_bits(rows: int, tmp_path: Path) -> None:
    entries = np.zeros(rows, ENTRY)
    entries["high"] = np.random.default_rng(rows).integers(0, 1 << 63, rows, np.uint64) << np.uint64(1)
    entries["row"] = np.arange(rows)
    bounds = exact._write(Writer(str(tmp_path)), "keys", entries)
    assert len(bounds) <= 257
    file = SortedKeys(str(tmp_path / "keys"), tuple(bounds), 0, False, False, "key")
    assert file.entries == rows
    for bits in (0, 1, 5, 8, 10):
        read = np.concatenate([file.read(part, bits) for part in range(1 << bits)])
        assert sorted(read["row"].tolist()) == list(range(rows))
        assert (np.diff(read["high"].astype(np.float64)) >= 0).all()


def test_entries_are_by_the_whole_key_and_then_by_row() -> None:
    random = np.random.default_rng(5)
    entries = np.zeros(5_000, ENTRY)
    # Few keys, so that halves of different keys are equal too.
    entries["high"], entries["low"] = random.integers(0, 600, 5_000), random.integers(0, 4, 5_000)
    entries["row"] = np.arange(5_000)
    found = entries.take(exact._by_key(entries))
    assert found.tolist() == sorted(entries.tolist(), key=lambda one: (one[0], one[1], one[3]))
    assert len(np.unique(entries["high"])) <= 600 < len({one[:2] for one in entries.tolist()})


def rows_and_decisions(folder: Path) -> dict[str, str]:
    """Digests of the files that have no costs in them."""
    changing = ("_MANIFEST.json", "report.html", "report.md")
    return {path: digest for path, digest in tools.digests(folder).items() if path not in changing}


@pytest.mark.parametrize("fans", [[], [2]])
def test_any_number_of_partitions_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fans: list[int]
) -> None:
    some = [tuple(map(str, row)) for row in generated(3000, shares=Shares(copies=30))]
    rows = curating.write(tmp_path / "rows", {"a.jsonl": some[:1500], "b.jsonl": some[1500:]})
    said = "near: off\nheuristics: off\nexact: {max_instructions_per_response: 2}\n"
    whole = rows_and_decisions(curate(tmp_path / "one", rows, said))
    monkeypatch.setattr(exact_files, "_PARTITION_BYTES", 4000)
    monkeypatch.setattr(shuffle, "fans", lambda *_: fans)
    many = curate(tmp_path / "many", rows, said)
    assert rows_and_decisions(many) == whole
    assert len(curating.shards(tmp_path / "many")) > 40


def test_findings_of_many_ranges_of_keys_are_brought_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [tuple(map(str, row)) for row in generated(600, shares=Shares(copies=30))]
    files = {f"{number}.jsonl": some[150 * number : 150 * (number + 1)] for number in range(4)}
    rows = curating.write(tmp_path / "rows", files)
    read, run = list[int](), SplitShard.run

    def counted(shard: SplitShard, *given: Any) -> ShardResult:
        read.append(len(shard.parts))
        return run(shard, *given)

    monkeypatch.setattr(SplitShard, "run", counted)
    monkeypatch.setattr(exact_files, "_PARTITION_BYTES", 1000)
    monkeypatch.setattr(exact, "_TASKS_PER_SPLIT", 1)
    settings = "near: off\nheuristics: off\nexact: {mode: drop}\n"
    alone = rows_and_decisions(curate(tmp_path / "alone", rows, settings))
    ranges, read[:] = list(read), []
    monkeypatch.setattr(shuffle, "fans", lambda *_: [2])
    assert rows_and_decisions(curate(tmp_path / "together", rows, settings)) == alone
    # A shard of findings reads one file in place of one for each range of keys.
    assert len(ranges) == len(read) == 4
    assert min(ranges) > 8
    assert read == [1] * 4
