"""Merging runs: the same parts with fewer requests, whatever the sizes."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pairmill.engine import runs as runs_module
from pairmill.engine import shuffle
from pairmill.engine.keys import identify
from pairmill.engine.manifest import content_key
from pairmill.engine.rounds import with_keys
from pairmill.engine.runs import Range, Run, Runs, RunWriter
from pairmill.engine.shards import Todo, run_shard
from pairmill.engine.shuffle import Shuffled, fans
from pairmill.errors import StorageError
from tests.support.helpers import draws
from tests.support.objectstores.counted import counted
from tests.support.processes.crash_points import crashes

ROW = np.dtype([("key", "<u8"), ("at", "<u4")])
TERABYTE = 10**12
SLICE, KEYS = 62_500, 33 * 12
"""Rows of a slice of 64 MiB, and bytes of the band keys of a row."""


def written(folder: Path, slices: list[list[int]], parts: int) -> Runs:
    """A file for each slice, with a run of rows of these parts, or two if there are many."""
    runs = []
    for number, some in enumerate(slices):
        path = folder / f"slice-{number}"
        with path.open("wb") as file:
            writer = RunWriter(file, parts)
            for few in (some[:5], some[5:]):
                rows = np.zeros(len(few), ROW)
                rows["key"], rows["at"] = np.arange(len(few)) + 100 * number, few
                writer.write(np.array(few, np.uint32), rows)
        runs += [Run(str(path), start, (number,), f"key of {number}") for start in writer.starts]
    return Runs(parts, tuple(runs), size=ROW.itemsize * sum(map(len, slices)))


def merged(runs: Runs, cache: Path | str, levels: int = shuffle.LEVELS) -> tuple[Shuffled, list[int]]:
    """Run the rounds; return the runs, and how many shards each round had."""
    rounds = with_keys(shuffle.rounds("keys", runs, levels), lambda shard: content_key(identify(shard, ())))
    counts: list[int] = []
    shards = next(rounds)
    while True:
        assert len({shard.name for shard in shards}) == len({shard.key for shard in shards}) == len(shards)
        counts.append(len(shards))
        for shard in shards:
            run_shard("toy", shard, None, str(cache))()
        try:
            shards = rounds.send(Todo.look_up(shards, str(cache), verify=True).records())
        except StopIteration as end:
            return end.value, counts


def parts_of(shuffled: Shuffled, parts: int) -> list[tuple[list[tuple[int, int]], list[int]]]:
    found = []
    for part in range(parts):
        rows, owners = shuffled.runs(part).rows(part, ROW)
        found.append((rows.tolist(), owners.tolist()))
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_FEW": 0, "_CHUNK": 1 << 20, "_PER_REQUEST": 1 << 20, "_BLOCK": 1_000}.items():
        monkeypatch.setattr(shuffle, name, value)


@pytest.mark.usefixtures("small")
@settings(deadline=None, max_examples=draws(60))
@given(
    st.lists(st.lists(st.integers(0, 8), max_size=12), max_size=14),
    st.sampled_from([1, 100, 1_000]),
    st.sampled_from([1, 30, 1_000]),
    st.sampled_from([1, 50, 10_000]),
)
def test_merged_parts_are_those_of_the_slices(
    tmp_path_factory: pytest.TempPathFactory, slices: list[list[int]], block: int, copied: int, file: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    runs = written(folder, slices, 9)
    expected = parts_of(Shuffled((runs,)), 9)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_BLOCK": block, "_COPIED": copied, "_FILE": file, "_CELLS": file}.items():
            patch.setattr(shuffle, name, value)
        # Of so little nothing would be merged at a block of a few bytes.
        patch.setattr(shuffle, "fans", lambda count, *_: [3, 3] if count else [])
        found, counts = merged(runs, folder / "cache")
    assert parts_of(found, 9) == expected
    for together in (2, 4):
        several = []
        for start, stop, some in found.neighbours(together):
            assert stop - start <= together
            for rows, owners in some.rows_by_part(start, stop, ROW):
                several.append((rows.tolist(), owners.tolist()))
        assert several == expected
    assert all(counts) == bool(runs.runs)
    assert all(len(stripe.runs) <= -(-len(runs.runs) // 9) for stripe in found.stripes)


@pytest.mark.parametrize("levels", [1, 2])
def test_few_runs_are_read_as_they_are(tmp_path: Path, levels: int) -> None:
    runs = written(tmp_path, [[0, 1, 1], [2]], 3)
    assert merged(runs, tmp_path / "cache", levels) == (Shuffled((runs,)), [0] * levels)


@pytest.mark.usefixtures("small")
def test_one_changed_slice_merges_its_neighbours_again_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "fans", lambda count, *_: [2])
    runs = written(tmp_path, [[0], [1], [0], [1], [1]], 2)
    changed = Runs(2, (*runs.runs[:4], Run(runs.runs[4].uri, 0, (4,), "another")), size=runs.size)

    def keys(given: Runs) -> list[str]:
        shards = next(shuffle.rounds("keys", given))
        return [content_key(identify(shard, ())) for shard in shards]

    assert [one == other for one, other in zip(keys(runs), keys(changed), strict=True)] == [True, True, False]


def requests(slices: int, parts: int, size: int) -> float:
    """How many a shuffle makes, on paper, without those of tables."""
    chosen = fans(slices, parts, size)
    cell, total = size / slices / parts, 0.0
    for fan in chosen:
        total += size / min(size / slices, shuffle._BLOCK / fan)
        cell *= fan
    return total + size / cell


@pytest.mark.parametrize(("terabytes", "levels"), [(0.001, 0), (0.01, 1), (0.1, 1), (1, 2), (10, 2), (100, 2)])
def test_requests_grow_with_the_data_alone(terabytes: float, levels: int) -> None:
    slices = int(terabytes * TERABYTE / 1_000 / SLICE)
    size = slices * SLICE * KEYS
    parts = 1 << (size // 12 // (1 << 23)).bit_length()
    assert len(fans(slices, parts, size)) == levels
    assert requests(slices, parts, size) / slices < 100
    assert max(fans(slices, parts, size), default=0) < 512


def test_a_level_more_is_taken_where_it_costs_less() -> None:
    assert fans(16_000, 8_192, 16_000 * SLICE * KEYS) == [38, 38]
    assert fans(160, 128, 160 * SLICE * KEYS) == [22]
    assert fans(0, 5, 0) == []


NUMBERS: NDArray[np.int64] = np.array([5, 5, 90, 1, 0, 0, 3])


@pytest.mark.parametrize(
    ("most", "bounds"), [(10, [(0, 2), (2, 3), (3, 7)]), (1, [(0, 1), (1, 2), (2, 3), (3, 6), (6, 7)]), (999, [(0, 7)])]
)
def test_neighbours_are_cut_at_most_so_large(most: int, bounds: list[tuple[int, int]]) -> None:
    assert list(shuffle.cuts(NUMBERS, most)) == bounds
    assert list(shuffle.cuts(NUMBERS[:0], most)) == []


def test_a_part_that_is_larger_than_a_block_is_copied_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "fans", lambda count, *_: [8])
    monkeypatch.setattr(shuffle, "_BLOCK", 64)
    runs = written(tmp_path, [[1] * 400, [0, 1], [1] * 300], 2)
    sizes: list[int] = []
    blocks = functools.partial(Range.blocks)

    def noted(item: Range, size: int):  # type: ignore[no-untyped-def]
        for data in blocks(item, size):
            sizes.append(len(data))
            yield data

    monkeypatch.setattr(Range, "blocks", noted)
    found, _ = merged(runs, tmp_path / "cache")
    assert parts_of(found, 2) == parts_of(Shuffled((runs,)), 2)
    assert max(sizes) <= 64 < sum(sizes)


@pytest.mark.parametrize(("code", "name"), [(errno.ENOSPC, "segments"), (errno.EIO, "segments"), (errno.EIO, "fill")])
def test_a_disk_that_fails_fails_the_shard_and_the_next_run_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    monkeypatch.setattr(shuffle, "fans", lambda count, *_: [2])
    runs = written(tmp_path, [[0, 1, 1], [1, 1], [0]], 2)
    cache = tmp_path / "cache"

    def failing(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(runs_module if name == "fill" else shuffle, name, failing)
        with pytest.raises(StorageError, match="toy: "):
            merged(runs, cache)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    assert parts_of(merged(runs, cache)[0], 2) == parts_of(Shuffled((runs,)), 2)


def test_a_kill_at_every_call_of_the_store_leaves_what_the_next_run_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "fans", lambda count, *_: [2, 2])
    runs = written(tmp_path, [[0, 1, 1], [1, 1], [0], [1]], 2)
    cache, expected = tmp_path / "cache", parts_of(Shuffled((runs,)), 2)
    killed = 0
    for _ in crashes(lambda: merged(runs, cache), cache):
        assert parts_of(merged(runs, cache)[0], 2) == expected
        shutil.rmtree(cache)
        killed += 1
    assert killed > 10


@pytest.mark.parametrize(
    ("block", "file", "stripes", "reads"),
    [
        (4_000, 7_000, [(0, 20)], 4 + 2 * 4),  # two blocks and a tenth are two
        (3_500, 7_000, [(0, 20)], 4 + 3 * 4),
        (1 << 20, 3_000, [(0, 7), (7, 14), (14, 20)], 3 * (4 + 4)),
    ],
)
def test_a_small_rest_makes_no_block_and_no_stripe_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    file: int,
    stripes: list[tuple[int, int]],
    reads: int,
) -> None:
    for name, value in {"_BLOCK": block, "_FILE": file, "fans": lambda *_: [4]}.items():
        monkeypatch.setattr(shuffle, name, value)
    (tmp_path / "bucket").mkdir()
    runs = written(tmp_path / "bucket", [[part for part in range(20) for _ in range(9)]] * 4, 20)
    # Each slice has its first five rows in another run.
    there = [replace(run, uri=f"s3://bucket/{Path(run.uri).name}") for run in runs.runs[1::2]]
    runs = replace(runs, runs=tuple(there), size=4 * (20 * 9 - 5) * ROW.itemsize)
    with counted(tmp_path) as store:
        shards = next(shuffle.rounds("keys", runs, levels=1))
        assert [(shard.first, shard.stop) for shard in shards] == stripes
        store.requests.clear()
        for shard in shards:
            run_shard("toy", replace(shard, key=f"{shard.first:064}"), None, "s3://bucket/cache")()
        assert store.requests["GET"] == reads


def requested(folder: Path, slices: int) -> float:
    """Requests for each slice, to merge runs of as many parts and to read all parts."""
    (folder / "bucket").mkdir(parents=True)
    parts = slices // 2
    random = np.random.default_rng(slices)
    with counted(folder) as store:
        runs = []
        for number in range(slices):
            uri = f"s3://bucket/slice-{number}"
            with store.create(uri) as local, local.open("wb") as file:
                writer = RunWriter(file, parts)
                writer.write(random.integers(0, parts, 400).astype(np.uint32), np.zeros(400, ROW))
            runs.append(Run(uri, 0, (number,), str(number)))
        before = store.requests.total()
        shuffled, _ = merged(Runs(parts, tuple(runs), size=slices * 400 * ROW.itemsize), "s3://bucket/cache")
        rows = [shuffled.runs(part).rows(part, ROW)[0] for part in range(parts)]
        assert sum(map(len, rows)) == slices * 400
        return (store.requests.total() - before) / slices


def test_requests_are_counted_to_grow_with_the_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some thousandths of what is shipped: of 96 slices 4,600 cells, of 288 there are 41,000.
    sizes = {"_FEW": 64, "_BLOCK": 128 << 10, "_CHUNK": 1_200, "_FILE": 512 << 10, "_PER_REQUEST": 1_000}
    for name, value in sizes.items():
        monkeypatch.setattr(shuffle, name, value)
    few, many = requested(tmp_path / "few", 96), requested(tmp_path / "many", 288)
    monkeypatch.setattr(shuffle, "_FEW", 1 << 40)
    straight = requested(tmp_path / "straight", 96)
    assert straight == 48 + 1
    assert many < 1.25 * few < straight / 2  # a level more is what it may take
