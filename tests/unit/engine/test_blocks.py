"""Rounds of many shards: records in blocks, which are a shortcut that may be stale, damaged or gone."""

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import blocks, runner, shards
from pairmill.engine.manifest import File, Ledger
from pairmill.engine.options import WorkerSlice
from pairmill.engine.processes import _Shared, _Unpickler
from pairmill.engine.records import ShardRecord
from pairmill.engine.runner import RECORD, Together
from pairmill.engine.shards import Todo, run_shard
from pairmill.storage import LocalStore
from tests.support.helpers import contents
from tests.support.objectstores.counted import counted
from tests.support.stages.toy_stage import Toy
from tests.support.tools import shard_files
from tests.unit.engine.test_runner import Bench, upper

FILES = [f"{number:02}.txt" for number in range(11)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A toy of 11 shards, of which 3 are many, and 4 fill a block."""
    monkeypatch.setattr(blocks, "MANY", 3)
    monkeypatch.setattr(blocks, "RECORDS", 4)
    bench = Bench(tmp_path)
    for path in bench.source.iterdir():
        path.unlink()
    for name in FILES:
        bench.put(name, f"line of {name}\n")
    return bench


def made(bench: Bench) -> dict[str, Any]:
    """All that counts: blocks differ with who wrote them and when."""
    return {path: data for path, data in contents(bench.root).items() if not path.startswith("toy/blocks/")}


def written(bench: Bench) -> list[Path]:
    return sorted((bench.root / "toy" / "blocks").glob("*/*"))


class Calls:
    """Counts calls of a store's methods by name and last part of the URI; the call of this number, of those that change
    something, ends the process, as it were."""

    def __init__(self, patch: pytest.MonkeyPatch, killed: int = -1) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.changes = 0
        for name in ("read", "exists", "write", "commit", "settle", "copy", "delete"):
            patch.setattr(LocalStore, name, self._counted(name, getattr(LocalStore, name), killed))

    def _counted(self, name: str, method: Any, killed: int) -> Any:
        def call(store: LocalStore, uri: str, *rest: Any, **named: Any) -> Any:
            if "/end-" not in uri:
                self.counts[name, uri.rsplit("/", 1)[-1]] += 1
            if name not in {"read", "exists"}:
                self.changes += 1
                if self.changes - 1 == killed:
                    raise KeyboardInterrupt
            return method(store, uri, *rest, **named)

        return call


def test_a_round_of_more_than_a_dozen_shards_in_a_bucket_is_looked_up_by_one_list(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_FEW", 10)
    planned, context = runner.first_round(Toy(), bench.config()), Toy().plan(bench.config()).context
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with counted(tmp_path / "store") as store:
        for shard in planned[:2]:
            run_shard("toy", shard, context, "s3://bucket/shards")()
        assert not store.exists("s3://bucket/none")  # it asks once whether there is a bucket
        # Of those that are there: the record, twice, and their files.
        for wanted, looked_for in ((planned, 2), (planned[:10], 10)):
            store.requests.clear()
            todo = Todo.look_up(wanted, "s3://bucket/shards", verify=False)
            assert sorted(todo.done) == FILES[:2]
            assert len(todo.left) == len(wanted) - 2
            assert store.requests == {"HEAD": looked_for, "GET": 2, "LIST": 2 + (len(wanted) > 10)}


def test_a_round_of_many_shards_is_resumed_without_a_request_for_each_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.run()
    before = made(bench)
    assert [path.stat().st_size > 4 * 100 for path in written(bench)] == [True, True, True]
    shutil.rmtree(first.uri)
    bench.processed()
    calls = Calls(monkeypatch)
    assert bench.run().manifest == first.manifest
    assert bench.processed() == []
    assert calls.counts["read", RECORD] == 0
    assert sum(count for (name, _), count in calls.counts.items() if name == "read") <= 3 + len(FILES)  # of the source
    assert made(bench) == before


def test_records_that_are_in_no_block_are_read_and_become_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.run()
    for gone in (Path(first.uri), bench.root / "toy" / "blocks"):
        shutil.rmtree(gone)
    calls = Calls(monkeypatch)
    bench.run()
    assert calls.counts["read", RECORD] == len(FILES)
    shutil.rmtree(first.uri)
    bench.run()
    assert calls.counts["read", RECORD] == len(FILES)


def test_one_more_file_reads_the_blocks_of_all_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    bench.processed()
    bench.put("00 and a half.txt", "new")
    calls = Calls(monkeypatch)
    bench.run()
    assert bench.processed() == ["00 and a half.txt"]
    assert calls.counts["read", RECORD] == 1  # what was committed just now


def _remove_record(shard: Path) -> None:
    (shard / RECORD).unlink()


def _remove_file(shard: Path) -> None:
    (shard_files(shard) / "upper" / "04.txt").unlink()


def _grow_file(shard: Path) -> None:
    path = shard_files(shard) / "upper" / "04.txt"
    path.unlink()
    path.write_text("longer than it was")


def _remove_shard(shard: Path) -> None:
    shutil.rmtree(shard)


@pytest.mark.parametrize("harm", [_remove_record, _remove_file, _grow_file, _remove_shard])
def test_what_is_not_there_is_done_again_whatever_a_block_has(bench: Bench, harm: Any) -> None:
    first = bench.run()
    before = made(bench)
    shutil.rmtree(first.uri)
    harm(bench.shard("04.txt"))
    bench.processed()
    for _ in range(2):
        assert bench.run().manifest == first.manifest
        shutil.rmtree(first.uri)
    assert bench.processed() == ["04.txt"]
    bench.run()
    assert made(bench) == before


@pytest.mark.parametrize(
    "change", [lambda data: b"", lambda data: data[:-1], lambda data: data.replace(b"1\n", b"2\n", 1)]
)
def test_a_block_that_is_damaged_or_of_another_format_is_as_none(bench: Bench, change: Any) -> None:
    first = bench.run()
    before = made(bench)
    shutil.rmtree(first.uri)
    for path in written(bench):
        path.write_bytes(change(path.read_bytes()))
    bench.processed()
    bench.run()
    assert (bench.processed(), made(bench)) == ([], before)


def test_verify_reads_every_record_and_every_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.run()
    shutil.rmtree(first.uri)
    (damaged := shard_files(bench.shard("04.txt")) / "upper" / "04.txt").chmod(0o600)
    damaged.write_bytes(b"X" * damaged.stat().st_size)
    calls = Calls(monkeypatch)
    bench.processed()
    bench.run(verify=True)
    assert bench.processed() == ["04.txt"]
    assert calls.counts["read", RECORD] >= len(FILES)


def test_a_run_killed_at_any_change_of_the_store_goes_on_to_the_same_bytes(tmp_path: Path, bench: Bench) -> None:
    whole = bench.run()
    expected, number = made(bench), 0
    while True:
        shutil.rmtree(bench.root)
        bench.processed()
        with pytest.MonkeyPatch.context() as patch:
            calls = Calls(patch, number)
            try:
                bench.run()
                break
            except KeyboardInterrupt:
                pass
        done = {path.parent.name for path in bench.root.rglob(RECORD)}
        first = bench.processed()
        assert bench.run().manifest == whole.manifest
        assert made(bench) == expected
        # Nothing that has a record is done twice.
        assert len(first) + len(bench.processed()) <= len(FILES) + (len(first) - len(done & _keys(bench)))
        number += 7
    assert calls.changes > 3 * len(FILES)


def _keys(bench: Bench) -> set[str]:
    return {shard.key for shard in runner.first_round(Toy(), bench.config())}


def share(bench: Bench, number: int, count: int, **options: Any) -> list[str]:
    """What a share did, which waits for nobody."""
    runner.run_share(Toy(), bench.config(**options), Together(WorkerSlice(number, count), 0.0, pause=0.01))
    return bench.processed()


def test_an_array_of_another_size_goes_on_with_what_the_first_one_left(bench: Bench, tmp_path: Path) -> None:
    whole = bench.run()
    expected = made(bench)
    shutil.rmtree(bench.root)
    bench.processed()
    bench.put("05.txt", "input error")
    with pytest.raises(runner.StageFailure):
        share(bench, 3, 4)
    first = bench.processed()
    bench.put("05.txt", "line of 05.txt\n")
    second = [name for number in range(1, 9) for name in share(bench, number, 8)]
    assert sorted({*first, *second}) == FILES
    assert set(first) & set(second) <= {"05.txt"}
    assert bench.run().manifest == whole.manifest
    assert made(bench) == expected


def test_of_more_shares_than_shards_some_have_nothing_to_do(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run(refuse="") and shutil.rmtree(bench.root)
    caplog.set_level(logging.INFO)
    bench.processed()
    assert share(bench, 1, 99) == FILES  # nobody else comes
    assert share(bench, 99, 99) == []
    assert "toy: share 99/99 has nothing to do" in caplog.text


def test_a_share_reads_blocks_of_others_and_writes_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    share(bench, 1, 2)
    shutil.rmtree(bench.root / "toy" / "blocks")
    share(bench, 2, 2)
    assert len(written(bench)) == 2  # of its own five records; those of the other share are that one's to write
    share(bench, 1, 2)
    calls = Calls(monkeypatch)
    share(bench, 1, 2)
    assert calls.counts["read", RECORD] == 0


# --- records --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", ["", "00" * 8, "0123456789abcdef"])
def test_a_record_says_what_was_packed(attempt: str) -> None:
    said: Any = {"ledger": Ledger(3, 2, 2, {"empty": 1}), "data": {"ü": [1, 2.5, None]}, "scratch": ["b"]}
    files = [File("a", 7, "1" * 64, "task"), File("b", 8, "blake3:" + "2" * 64)]
    record = ShardRecord("name", "00" * 32, "s3://b/shards", files=files, attempt=attempt, **said)
    again = ShardRecord.unpack(record.packed, "other", "file:///c")
    assert (again.ledger, again.data, again.scratch, again.files) == (*said.values(), files)
    assert again.key == "00" * 32
    assert again.folder == "/".join(["file:///c", "00" * 32, *filter(None, [attempt])])
    assert again.lasting() == files[:1]
    assert len(record.packed) < 300
    assert again != record == ShardRecord.unpack(record.packed, "name", "s3://b/shards")


def test_what_shards_have_in_common_goes_to_a_process_once() -> None:
    common = tuple(f"s3://bucket/slice {number}" for number in range(2_000))
    shards = [upper(str(number), size=number) for number in range(5)]
    for shard in shards:
        object.__setattr__(shard, "path", common)
    shared, sent, kept = _Shared(shards), set[int](), dict[int, object]()
    sizes = []
    for shard in shards:
        fresh, data = shared.dump(shard, sent)
        kept |= fresh
        again = _Unpickler(data, kept).load()
        assert again == shard
        assert again.path is kept[id(common)]
        sizes.append((len(fresh), len(data) < 1_000))
    assert sizes == [(1, True), *[(0, True)] * 4]
