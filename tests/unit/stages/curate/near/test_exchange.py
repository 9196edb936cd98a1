"""Components of pairs in parts: those of SQLite's recursion, whatever their shape and however they are cut."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.engine import shuffle
from pairmill.engine.runs import Range
from pairmill.engine.writer import Writer
from pairmill.errors import StorageError
from pairmill.stages.curate.near import exchange, parts, ranks
from pairmill.stages.curate.near.components import Candidates, Groups
from pairmill.stages.curate.near.records import EDGE, MEMBER
from tests.support.cases import cases
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.stages.near_rounds import run_rounds

Pairs = NDArray[np.uint64]


def put(path: Path, pairs: Pairs) -> Range:
    path.write_bytes(np.ascontiguousarray(pairs, np.uint64).tobytes())
    return Range(str(path), 0, path.stat().st_size)


def candidates(folder: Path, sizes: list[int], edges: list[Pairs], families: list[Pairs], group: int) -> Candidates:
    """Slices of these sizes, and the edges and families of each partition."""
    folder.mkdir(exist_ok=True)
    placed = {
        name: tuple(put(folder / f"{name}{place}", pairs) for place, pairs in enumerate(some))
        for name, some in (("edges", edges), ("families", families))
    }
    bases = tuple(np.cumsum([0, *sizes]).tolist())
    return Candidates("inputs", **placed, rows=(), bases=bases, sketches=0, group_size=group)


def small(monkeypatch: pytest.MonkeyPatch, *, pairs: int, rows: int, few: int) -> None:
    """Small parts of pairs, ranges of rows, and what the last shard joins."""
    monkeypatch.setattr(exchange, "_PAIRS", pairs)
    monkeypatch.setattr(exchange, "_ROWS", rows)
    monkeypatch.setattr(exchange, "_FEW", few)
    monkeypatch.setattr(exchange, "_SCATTERED", 40 * EDGE.itemsize)
    monkeypatch.setattr(parts, "_BLOCK", 13)


def read(groups: Groups, bases: tuple[int, ...]) -> tuple[dict[int, int], list[Pairs], list[Pairs]]:
    """The group of each row that has one, and the edges and families of each group."""
    group = {}
    for place, members, digest in groups.members:
        assert len(digest) == 32
        for at, number in members.array(MEMBER).tolist():
            group[bases[place] + at] = number
    pairs = [
        [runs.rows(number, EDGE)[0].view(np.uint64).reshape(-1, 2) for number in range(groups.count)]
        for runs in (groups.edges, groups.families)
    ]
    return group, pairs[0], pairs[1]


def labels(pairs: list[tuple[int, int]]) -> dict[int, int]:
    """The smallest row of the component of each row, by SQLite."""
    database = sqlite3.connect(":memory:")
    database.execute("create table pair (a integer, b integer, primary key (a, b)) without rowid")
    database.executemany("insert or ignore into pair values (?, ?)", [*pairs, *((b, a) for a, b in pairs)])
    query = """with recursive reached (start, row) as (
        select a, a from pair union select start, b from reached join pair on a = row
    ) select row, min(start) from reached group by row"""
    return dict(database.execute(query))


def chain(random: np.random.Generator, rows: int) -> Pairs:
    order = random.permutation(rows)
    return np.stack([order[:-1], order[1:]], axis=1).astype(np.uint64)


def ascending(random: np.random.Generator, rows: int) -> Pairs:
    return np.stack([np.arange(rows - 1), np.arange(1, rows)], axis=1).astype(np.uint64)


def stars(random: np.random.Generator, rows: int) -> Pairs:
    centres = random.integers(0, max(1, rows // 50), rows)
    return np.stack([centres, random.integers(0, rows, rows)], axis=1).astype(np.uint64)


def giant(random: np.random.Generator, rows: int) -> Pairs:
    return random.integers(0, rows, (3 * rows, 2)).astype(np.uint64)


def couples(random: np.random.Generator, rows: int) -> Pairs:
    return random.permutation(rows)[: rows // 2 * 2].reshape(-1, 2).astype(np.uint64)


def sparse(random: np.random.Generator, rows: int) -> Pairs:
    return random.integers(0, rows, (rows // 3, 2)).astype(np.uint64)


SHAPES = (chain, ascending, stars, giant, couples, sparse)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", cases(range(3), 2))
def test_components_are_those_of_another_program(
    shape: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 60, 6).tolist()
    sizes[1], sizes[3], sizes[5] = 40, 0, 30
    pairs = shape(random, sum(sizes))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs.sort(axis=1)
    if seed % 2:  # longer responses rank first: a rank is no number
        preference = random.integers(0, 1 << 24, sum(sizes), np.uint64) << np.uint64(40)
        pairs |= preference[pairs]
    # A pair is in up to 20 partitions; some are entries of families.
    repeated = random.permutation(np.repeat(pairs, random.integers(1, 20, len(pairs)), axis=0))
    edges, families = repeated[: len(repeated) * 2 // 3], repeated[len(repeated) * 2 // 3 :]
    given = candidates(tmp_path / "in", sizes, np.array_split(edges, 7), np.array_split(families, 7), 160)
    small(monkeypatch, pairs=int(random.choice([150, 700])), rows=int(random.choice([35, 90])), few=seed * 30)
    records, groups = run_rounds(exchange.joined(given), str(tmp_path / "cache"), [])

    group, found_edges, found_families = read(groups, given.bases)
    numbers = ranks.numbers(repeated)
    expected = labels([tuple(pair) for pair in numbers.tolist()])
    assert set(group) == set(expected)
    by_component = defaultdict(set)
    for row, label in expected.items():
        by_component[label].add(group[row])
    assert all(len(some) == 1 for some in by_component.values()), "a component is in two groups"
    for found, dealt in ((found_edges, edges), (found_families, families)):
        assert sorted(map(tuple, np.concatenate(found).tolist())) == sorted({tuple(pair) for pair in dealt.tolist()})
        for number, some in enumerate(found):
            assert {group[int(row)] for row in ranks.numbers(some).ravel()} <= {number}
    if groups.count > 4 and len(by_component) > 20:
        assert len(set(group.values())) > groups.count // 3, "components are in few groups"
    assert len(records) > 10


@pytest.mark.parametrize("few", [0, 1 << 20])
def test_groups_are_about_equally_large_whatever_components_are(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Components of 10 rows: the first of them by any order is not just any.
    rows = np.random.default_rng(1).permutation(20_000).reshape(-1, 10).astype(np.uint64)
    pairs = np.concatenate([np.stack([rows[:, 0], rows[:, other]], axis=1) for other in range(1, 10)])
    given = candidates(tmp_path / "in", [20_000], [pairs], [pairs[:0]], pairs.nbytes // 8)
    small(monkeypatch, pairs=4_000, rows=5_000, few=few)
    _, groups = run_rounds(exchange.joined(given), str(tmp_path / "cache"), [])
    group, *_ = read(groups, given.bases)
    counts = np.bincount(list(group.values()), minlength=groups.count)
    assert groups.count == 8
    assert counts.sum() == 20_000
    assert counts.min() > 1_900
    assert counts.max() < 3_200


@pytest.mark.parametrize(
    ("rows", "pairs", "few"),
    [
        (10_000_000, 50_000_000, True),
        (20_000_000, 50_000_000, False),
        (200_000_000, 5_000_000, True),
        (1_000_000_000, 5_000_000, False),
        (10_000_000, 110_000_000, False),
        (1_000_000_000, 0, True),
    ],
)
def test_a_shard_joins_what_takes_little_of_its_memory(rows: int, pairs: int, few: bool) -> None:
    edges = (Range("edges", 0, pairs * EDGE.itemsize),)
    given = Candidates("inputs", edges, families=(), rows=(), bases=(0, rows), sketches=0, group_size=1)
    assert given.few == few


@pytest.mark.parametrize("shape", [chain, ascending, stars, giant])
def test_rounds_grow_with_the_logarithm_of_the_rows(
    shape: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, levels = np.random.default_rng(5), []
    for rows in (300, 30_000):
        pairs = shape(random, rows)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        given = candidates(tmp_path / str(rows), [rows], np.array_split(pairs, 2), [pairs[:0], pairs[:0]], 1 << 20)
        small(monkeypatch, pairs=len(pairs) // 2, rows=rows, few=1)
        monkeypatch.setattr(exchange, "_SCATTERED", 1 << 30)
        monkeypatch.setattr(parts, "_BLOCK", 1 << 20)
        ran: list[list[str]] = []
        run_rounds(exchange.joined(given), str(tmp_path / f"cache {rows}"), ran)
        levels.append(sum(any(name.startswith("near range") for name in names) for names in ran))
    assert 2 < levels[0] <= levels[1]
    # A level leaves 3/4 of a component at most, on average.
    assert levels[1] - levels[0] <= math.log(100, 4 / 3)
    assert levels[1] <= math.log(30_000, 4 / 3) / 2


@pytest.mark.parametrize(("few", "levels"), [(1 << 20, False), (30, True)])
def test_groups_are_as_many_as_their_rows_need_however_many_parts_have_a_row(
    few: int, levels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = stars(np.random.default_rng(4), 120)
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    rows = len(np.unique(pairs))
    # The centre of a star is in most parts; half of all rows have no pair.
    given = candidates(tmp_path / "in", [120, 120], np.array_split(pairs, 3), [pairs[:0]] * 3, 2_000)
    given = given._replace(sketches=240 * 1_000)
    small(monkeypatch, pairs=10, rows=70, few=few)
    ran: list[list[str]] = []
    _, groups = run_rounds(exchange.joined(given), str(tmp_path / "cache"), ran)
    assert any(name.startswith("near range") for names in ran for name in names) == levels
    assert groups.count == math.ceil((rows * 1_000 + len(pairs) * EDGE.itemsize) / 2_000)


def test_names_are_drawn_without_loss() -> None:
    names = np.array([0, 1, 2, (1 << 64) - 1, 1 << 40, 77 << 40 | 5], np.uint64)
    orders = set()
    for level in range(-1, 40):
        numbers = parts.drawn(names, level)
        assert len(set(numbers.tolist())) == len(names)
        assert parts.undrawn(numbers, level).tolist() == names.tolist()
        orders.add(tuple(np.argsort(numbers).tolist()))
    assert len(orders) > 30, "levels draw the same order"


def shuffled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Candidates:
    """Pairs that take every kind of round, with merges between them."""
    monkeypatch.setattr(shuffle, "fans", lambda runs, *_: [2] if runs else [])
    small(monkeypatch, pairs=150, rows=100, few=30)
    pairs = chain(np.random.default_rng(3), 120)
    return candidates(folder, [60, 60], np.array_split(np.repeat(pairs, 2, axis=0), 2), [pairs[:9], pairs[:0]], 900)


def outcome(groups: Groups, bases: tuple[int, ...]) -> tuple[Any, ...]:
    """The groups, and all that is in them."""
    group, *pairs = read(groups, bases)
    return groups.key, group, [some.tolist() for of_kind in pairs for some in of_kind]


def test_a_kill_at_every_call_of_the_store(tmp_path: Path, shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, root = shuffled(tmp_path / "in", monkeypatch), shm / "root"
    root.mkdir()
    ran: list[list[str]] = []
    expected = outcome(run_rounds(exchange.joined(given), str(shm / "whole"), ran)[1], given.bases)
    kinds = {name.split()[1] for names in ran for name in names}
    assert kinds == {"pairs", "part", "asks", "range", "answers", "names", "last", "groups", "members"}
    instant = 0
    for instant in crashes(lambda: run_rounds(exchange.joined(given), str(root), []), root, stride=3 * STRIDE):
        again = run_rounds(exchange.joined(given), str(root), [])[1]
        assert outcome(again, given.bases) == expected, f"killed at instant {instant}"
        shutil.rmtree(root)
        root.mkdir()
    assert instant > 100


def test_a_full_disk_is_said_whatever_is_written(tmp_path: Path, shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = shuffled(tmp_path / "in", monkeypatch)
    create, paths, full = Writer.create, dict.fromkeys(["none"]), ["none"]

    @contextmanager
    def creating(writer: Writer, path: str, **more: Any) -> Iterator[Path]:
        with create(writer, path, **more) as local:
            paths[path] = None
            yield Path("/dev/full") if path == full[0] else local

    monkeypatch.setattr(Writer, "create", creating)
    expected = outcome(run_rounds(exchange.joined(given), str(shm / "whole"), [])[1], given.bases)
    assert len(paths) == 9
    for full[0] in [*paths][1:]:
        with pytest.raises(StorageError, match="no space left"):
            run_rounds(exchange.joined(given), str(shm / "root"), [])
    full[0] = "none"
    assert outcome(run_rounds(exchange.joined(given), str(shm / "root"), [])[1], given.bases) == expected
