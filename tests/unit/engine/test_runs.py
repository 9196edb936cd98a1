"""Arrays in scratch files: runs of parts, ranges, segments."""

import pickle
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from pairmill import storage
from pairmill.engine.runs import Range, Run, Runs, RunWriter, fill, segments
from pairmill.errors import StorageError
from pairmill.stages.curate.near.stored import distinct
from tests.support.objectstores.counted import counted

ROW = np.dtype([("key", "<u8"), ("at", "<u4")])


def rows_of(parts: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a part each, ascending, and a key that tells them apart."""
    found = np.zeros(len(parts), ROW)
    found["key"] = np.arange(len(parts)) + 1000 * seed
    found["at"] = parts
    return np.array(parts), found


def written(path: Path, runs: list[list[int]], parts: int) -> Runs:
    with path.open("wb") as file:
        file.write(b"before the runs")
        writer = RunWriter(file, parts, file.tell())
        for seed, some in enumerate(runs):
            writer.write(*rows_of(some, seed))
    return Runs(parts, tuple(Run(str(path), start, (7 + place,)) for place, start in enumerate(writer.starts)))


def test_a_part_of_several_runs_is_read_in_their_order_with_its_owners(tmp_path: Path) -> None:
    runs = written(tmp_path / "file", [[0, 0, 2, 2, 2], [1, 2], [0, 3]], 4)
    rows, owner = runs.rows(2, ROW)
    assert rows["key"].tolist() == [2, 3, 4, 1001]
    assert owner.tolist() == [7, 7, 7, 8]
    assert [len(runs.rows(part, ROW)[0]) for part in range(4)] == [3, 1, 4, 1]


def test_rows_come_in_any_order_and_those_of_a_part_stay_in_theirs(tmp_path: Path) -> None:
    runs = written(tmp_path / "file", [[2, 0, 2, 3, 0, 2]], 4)
    assert [runs.rows(part, ROW)[0]["key"].tolist() for part in range(4)] == [[1, 4], [], [0, 2, 5], [3]]


def test_a_part_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parts below 3"):
        written(tmp_path / "file", [[0, 3]], 3)


def test_what_is_merged_is_read_in_pieces_of_whole_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.engine.runs._PIECE", 3 * ROW.itemsize)
    counts = [2, 0, 2, 5, 0, 1, 1, 1, 0]  # of nine owners, in the second of three parts
    with (tmp_path / "file").open("wb") as file:
        rows = rows_of([1] * sum(counts), 3)[1]
        sizes = np.concatenate([[4] * 9, np.array(counts) * ROW.itemsize, [0] * 9])
        runs = RunWriter(file, 27)
        runs.write_bytes(sizes, [np.zeros(36, np.uint8), rows])
    merged = Runs(3, (Run(str(tmp_path / "file"), runs.starts[0], tuple(range(20, 29))),))
    ranges, cells, owners = merged.cells(1)
    assert [item.size // ROW.itemsize for item in ranges] == [4, 5, 3]
    assert (cells // ROW.itemsize).tolist() == [2, 2, 5, 1, 1, 1]
    assert owners.tolist() == [20, 22, 23, 25, 26, 27]
    assert merged.rows(1, ROW)[0].tolist() == rows.tolist()
    assert merged.cells(2)[0] == []


def test_an_empty_run_is_not_written(tmp_path: Path) -> None:
    assert len(written(tmp_path / "file", [[], [0], []], 1).runs) == 1
    assert RunWriter(BytesIO(), 3).starts == []


def test_a_part_that_no_run_has_is_empty(tmp_path: Path) -> None:
    rows, owner = written(tmp_path / "file", [[0], [2]], 3).rows(1, ROW)
    assert (len(rows), len(owner), rows.dtype) == (0, 0, ROW)


def test_a_part_in_a_bucket_is_that_of_a_file(s3: str, tmp_path: Path) -> None:
    runs = written(tmp_path / "file", [[0, 1, 1]] * 20, 2)
    uri = f"{s3}/file"
    storage.store_for(uri).write(uri, (tmp_path / "file").read_bytes())
    there = Runs(2, tuple(Run(uri, run.start, run.owners) for run in runs.runs))
    for part in (0, 1):
        here, owner = runs.rows(part, ROW)
        rows, owners = there.rows(part, ROW)
        assert rows.tolist() == here.tolist()
        assert owners.tolist() == owner.tolist()


def test_parts_that_are_read_together_take_the_requests_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    runs = written(tmp_path / "bucket" / "file", [[0, 1, 1, 3], [2, 3]], 4)
    with counted(tmp_path) as store:
        there = Runs(4, tuple(Run("s3://bucket/file", run.start, run.owners) for run in runs.runs))
        parts = [(rows.tolist(), owners.tolist()) for rows, owners in there.rows_by_part(1, 4, ROW)]
        assert store.requests == {"GET": 4}
    expected = [runs.rows(part, ROW) for part in (1, 2, 3)]
    assert parts == [(rows.tolist(), owners.tolist()) for rows, owners in expected]


@pytest.mark.parametrize("kept", [16 << 20, 0])
@pytest.mark.parametrize("nearby", [64 << 10, 48, 1])
def test_tables_of_parts_nearby_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nearby: int, kept: int
) -> None:
    # Six owners in two runs: 48 bytes are the ends of two parts of the larger one.
    monkeypatch.setattr("pairmill.engine.runs._TABLE", nearby)
    monkeypatch.setattr("pairmill.engine.runs._TABLES", kept)
    (tmp_path / "bucket").mkdir()
    path, parts, random = tmp_path / "bucket" / "file", 7, np.random.default_rng(1)
    runs, expected = [], [list[int]() for _ in range(parts)]
    with path.open("wb") as file:
        at = 0
        for owners in ((0, 1, 2), (3,)):
            sizes = random.integers(1, 4, (parts, len(owners)))
            rows = rows_of(list(range(sizes.sum())), at)[1]
            writer = RunWriter(file, sizes.size, at)
            writer.write_bytes(ROW.itemsize * sizes.ravel(), [rows])
            for part, some in zip(expected, np.split(rows["key"], np.cumsum(sizes.sum(axis=1))[:-1]), strict=True):
                part += some.tolist()
            runs.append(Run("s3://bucket/file", at, owners))
            at = file.tell()
    with counted(tmp_path) as store:
        there = Runs(parts, tuple(runs), first=10)
        for part in (*range(10, 17), 12, 10):
            assert there.rows(part, ROW)[0]["key"].tolist() == expected[part - 10]
        windows = {64 << 10: 1, 48: 4, 1: 7}[nearby] if kept else 9
        assert store.requests == {"GET": 2 * (9 + windows)}
        sent = pickle.loads(pickle.dumps(there))
        assert sent == there
        assert sent.rows(16, ROW)[0]["key"].tolist() == expected[6]


def test_blocks_of_a_range_make_the_range(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    assert b"".join(Range(str(path), 10, 75).blocks(20)) == bytes(range(10, 85))
    assert [len(one) for one in Range(str(path), 10, 75).blocks(20)] == [20, 20, 20, 15]


def test_an_array_is_filled_by_requests_of_some_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(40)))
    asked, read = list[int](), Range.read

    def reading(item: Range) -> bytes:
        asked.append(item.size)
        return read(item)

    monkeypatch.setattr("pairmill.engine.runs._FILLED", 6)
    monkeypatch.setattr(Range, "read", reading)
    data = np.empty(18, np.uint8)
    fill(data, [Range(str(tmp_path / "file"), start, size) for start, size in ((20, 13), (3, 0), (0, 5))])
    assert data.tolist() == [*range(20, 33), *range(5)]
    assert asked == [6, 6, 1, 5]


def test_a_file_that_is_too_short_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123")
    with pytest.raises(StorageError, match=str(path)):
        Range(str(path), 2, 3).read()


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_segments_are_copied_in_their_order(count: int) -> None:
    random = np.random.default_rng(count)
    data = random.integers(0, 256, 5_000, dtype=np.uint8)
    sizes = random.integers(0, 200, count)
    starts = random.integers(0, 4_800, count)
    expected = b"".join(data[at : at + size].tobytes() for at, size in zip(starts, sizes, strict=True))
    assert segments(data, starts, sizes).tobytes() == expected


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (4, 1), (3, 2), (0, 5), (0, -1)])
def test_a_segment_beyond_the_data_is_refused(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="not within the 4 bytes"):
        segments(np.zeros(4, np.uint8), np.array([start]), np.array([size]))


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_distinct_numbers_ascend(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 300, count, dtype=np.uint64)
    expected = sorted(set(values.tolist()))
    assert distinct(values).tolist() == expected
