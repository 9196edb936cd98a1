"""Components of more rows than memory has arrays of: the same bytes as from arrays, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.engine.runs import Range
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.stages.curate.near import components, ranges
from pairmill.stages.curate.near.components import Join
from pairmill.stages.curate.near.records import EDGE, ROW

NAMES = (components.MEMBERS, components.EDGES, components.FAMILIES)


def put(path: Path, values: NDArray[Any]) -> Range:
    path.write_bytes(values.tobytes())
    return Range(str(path), 0, values.nbytes)


def shard(folder: Path, sizes: list[int], edges: list[NDArray[Any]], group_size: int, seed: int = 0) -> Join:
    """Slices of these sizes, and a file for each table of ranks; the last two are families."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    tables = []
    for place, count in enumerate(sizes):
        rows = np.zeros(count, ROW)
        rows["row"], rows["size"] = np.arange(count), random.integers(0, 900, count)
        tables.append(put(folder / f"rows{place}", rows))
    files = []
    for place, ends in enumerate(edges):
        pairs = np.empty(len(ends), EDGE)
        pairs["low"], pairs["high"] = ends[:, 0], ends[:, 1]
        files.append(put(folder / f"pairs{place}", pairs))
    bases = tuple(np.cumsum([0, *sizes]).tolist())
    pairs_at, families = tuple(files[:-2]), tuple(files[-2:])
    return Join("inputs", pairs_at, families, tuple(tables), bases, group_size, name="near components")


def made(join: Join, folder: Path) -> tuple[dict[str, Any], list[bytes]]:
    result = join.run(None, Writer(str(folder)))
    return result.data, [(folder / name).read_bytes() for name in NAMES]


def graph(random: np.random.Generator, rows: int) -> NDArray[np.uint64]:
    """Edges of one of several shapes, with repetitions."""
    count = int(random.integers(0, 2 * rows))
    shape = random.integers(0, 5)
    if shape == 0:  # a long chain, in any order
        order = random.permutation(rows)
        ends = np.stack([order[:-1], order[1:]], axis=1)
    elif shape == 1:  # stars
        ends = np.stack([random.integers(0, max(1, rows // 20), count), random.integers(0, rows, count)], axis=1)
    elif shape == 2:  # neighbours
        at = random.integers(0, rows, count)
        ends = np.stack([at, np.minimum(rows - 1, at + random.integers(0, 4, count))], axis=1)
    else:
        ends = random.integers(0, rows, (count // (1 if shape == 3 else 5), 2))
    ends = ends[random.permutation(len(ends))]
    again = ends[random.random(len(ends)) < 0.3]
    found = np.concatenate([ends, again]).astype(np.uint64)
    if random.random() < 0.3:  # longer responses rank first: a rank is no number
        found |= random.integers(0, 9, found.shape).astype(np.uint64) << np.uint64(40)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_bytes_are_those_of_arrays_in_memory(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 30, 5).tolist()
    sizes[2] += 1
    edges = [graph(random, sum(sizes)) for _ in range(4)]
    join = shard(tmp_path / "in", sizes, edges, int(random.choice([1, 3_000, 40_000])), seed)
    monkeypatch.setattr(components, "_EDGES", 16)
    expected = made(join, tmp_path / "held")
    monkeypatch.setattr(components, "_HELD", 0)
    monkeypatch.setattr(ranges, "_BLOCK", 7)
    for most in (1, 9, 1000):
        monkeypatch.setattr(components, "_RANGE", most)
        got = made(join, tmp_path / f"ranges of {most}")
        assert got[0] == expected[0]
        assert got[1] == expected[1]


def test_memory_does_not_grow_with_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    for module, name in ((components, "_EDGES"), (components, "_ROWS"), (ranges, "_BLOCK"), (components, "_RANGE")):
        monkeypatch.setattr(module, name, 1 << 11)
    few, many = 1 << 15, 1 << 16
    peaks = {}
    for rows in (few, many):
        edges = [random.integers(0, rows, (rows // 2, 2)).astype(np.uint64) for _ in range(3)]
        join = shard(tmp_path / str(rows), [1 << 11] * (rows >> 11), edges, 4 << 20)
        for name, held in (("arrays", 1 << 40), ("ranges", 0)):
            monkeypatch.setattr(components, "_HELD", held)
            # The lower of two: when the interpreter looks for garbage is chance, and that adds up to what a run holds.
            for again in range(2):
                tracemalloc.start()
                join.run(None, Writer(str(tmp_path / f"{rows} {name} {again}")))
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                peaks[rows, name] = min(peak, peaks.get((rows, name), peak))
    grown = {name: peaks[many, name] - peaks[few, name] for name in ("arrays", "ranges")}
    assert grown["arrays"] > 20 * (many - few)
    # Two bits a row are held in any case, and a file for each range; what other threads of this process hold is chance.
    assert grown["ranges"] < grown["arrays"] / 10
    assert peaks[many, "ranges"] < peaks[many, "arrays"] / 2


def test_nothing_is_left_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no names, so a kill at any time leaves none either."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(components, "_HELD", 0)
    monkeypatch.setattr(components, "_RANGE", 9)
    join = shard(tmp_path / "in", [40], [np.array([[1, 2], [3, 39], [20, 39]], np.uint64)] * 3, 3_000)
    seen = []
    group = ranges.Ranges.group

    def watched(one: ranges.Ranges, weight: int, group_size: int) -> None:
        group(one, weight, group_size)
        seen.append(one.components)
        assert not [*(tmp_path / "scratch").iterdir()]

    monkeypatch.setattr(ranges.Ranges, "group", watched)
    made(join, tmp_path / "out")
    assert len(seen) == 1


def test_more_rows_than_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="4,294,967,295"):
        ranges.Ranges(2**32, 1 << 24)
