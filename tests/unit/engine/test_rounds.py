"""A stage of four rounds: what it accounts for, what is done again, shares, and a kill at every call of the store."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import MANIFEST, Ledger
from pairmill.engine.options import WorkerSlice
from pairmill.engine.rounds import abreast, rounds_of
from pairmill.engine.runner import Result, Together
from pairmill.engine.shards import Todo
from pairmill.engine.stage import Rounds, Shard, Stage
from pairmill.errors import InternalError
from tests.support import tools
from tests.support.helpers import PATIENCE, contents, writable
from tests.support.processes.crash_points import crashes
from tests.support.stages.four_rounds import Unique, UniqueConfig, UniquePlan

TEXTS = {
    "a.txt": "apple\nbread\n\n",
    "b.txt": "apple\ncherry\nbread\n",
    "c.txt": "date\ncherry\napricot\n",
    "d.txt": "egg\n",
}
WITHOUT = {"a.txt": "apple\nbread\n", "b.txt": "cherry\n", "c.txt": "date\napricot\n", "d.txt": "egg\n"}
FIRST = [f"cut {name}" for name in TEXTS]
SECOND = [f"find {letter}" for letter in "abcde"]
LAST = [f"write {name}" for name in TEXTS]


class Kitchen:
    """A project of the stage in a folder."""

    def __init__(self, folder: Path) -> None:
        self.source, self.root, self.marks = folder / "source", folder / "root", folder / "marks"
        self.source.mkdir(parents=True)
        self.marks.mkdir()
        for name, text in TEXTS.items():
            self.put(name, text)

    def put(self, name: str, text: str) -> None:
        (self.source / name).write_text(text)

    def config(self, **given: Any) -> UniqueConfig:
        places = {"root": str(self.root), "source": str(self.source), "marks": str(self.marks)}
        return UniqueConfig(**{"workers": 1, **places, **given})

    def run(self, stage: Stage[Any, Any] | None = None, **given: Any) -> Result:
        return runner.run(stage or Unique(), self.config(**given))

    def share(self, number: int, count: int, patience: float = 0.0) -> Result:
        return runner.run_share(Unique(), self.config(), Together(WorkerSlice(number, count), patience, pause=0.05))

    def ran(self) -> list[str]:
        """The shards run since the last call, one for each time."""
        found = sorted(path.name.rsplit(".", 2)[0] for path in self.marks.iterdir())
        for path in self.marks.iterdir():
            path.unlink()
        return found


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    return Kitchen(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_four_rounds_account_for_every_row(kitchen: Kitchen, workers: int) -> None:
    result = kitchen.run(workers=workers)
    assert {name: (Path(result.uri) / name).read_text() for name in WITHOUT} == WITHOUT
    ledger = result.manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.rows_out) == (10, 6, 6)
    assert ledger.dropped == {"empty": 1, "repeated": 3}
    assert set(result.manifest.shards) == set(TEXTS)
    assert kitchen.ran() == sorted([*FIRST, *SECOND, "decide", *LAST])
    assert kitchen.run(workers=workers).reused


class Forgetful(Unique):
    """It leaves its last round out of the ledger."""

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        return Stage.ledger(self, plan, rounds)


class Noting(Unique):
    """It counts what its last round dropped as a note on rows that are still there."""

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        total = Stage.ledger(self, plan, rounds)
        total.note("repeated", 3)
        return total


class Vague(Unique):
    """Its numbers add up, but nobody learns why rows are gone."""

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        total = super().ledger(plan, rounds)
        total.dropped = {"gone": 4}
        return total


class Inventive(Unique):
    """It drops rows that nobody has read."""

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        total = super().ledger(plan, rounds)
        total.rows_in += 1
        total.drop("invented")
        return total


class Unbalanced(Unique):
    """It drops rows and keeps them too."""

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        total = super().ledger(plan, rounds)
        total.rows_kept += 3
        return total


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (Forgetful, "does not reconcile with its rounds; got 10 rows in, 9 rows out; expected 10 rows in, 6 rows out"),
        (Noting, "does not reconcile with its rounds; got 10 rows in, 9 rows out"),
        (Vague, "lacks rows that a round dropped; got 0 "),
        (Inventive, "does not reconcile with its rounds; got 11 rows in"),
        (Unbalanced, "does not reconcile: rows were lost or counted twice; got 10 in, 9 kept, 4 dropped"),
    ],
)
def test_a_ledger_that_does_not_account_for_all_rounds_publishes_nothing(
    kitchen: Kitchen, stage: type[Unique], said: str
) -> None:
    with pytest.raises(InternalError) as caught:
        kitchen.run(stage())
    assert said in str(caught.value)
    assert [path.name for path in (kitchen.root / "unique").iterdir()] == ["shards"]


def test_one_changed_input_redoes_its_own_slices_and_no_others(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.ran()
    kitchen.put("c.txt", "date\ncherry\navocado\n")  # one other line with an a, which nobody else has
    kitchen.run()
    assert kitchen.ran() == ["cut c.txt", "find a", "write c.txt"]
    kitchen.put("a.txt", "apple\n")  # b.txt keeps its bread now
    assert (Path(kitchen.run().uri) / "b.txt").read_text() == "cherry\nbread\n"
    assert kitchen.ran() == ["cut a.txt", "decide", "find b", "write a.txt", "write b.txt"]


@pytest.mark.parametrize("gone", ["letters/a", "lines"])
def test_a_slice_that_was_lost_is_made_again_with_nothing_after_it(kitchen: Kitchen, gone: str) -> None:
    first = kitchen.run()
    kitchen.ran()
    shutil.rmtree(first.uri)
    (first_files(kitchen) / gone).unlink()
    assert kitchen.run().manifest == first.manifest
    assert kitchen.ran() == ["cut a.txt"]


def first_files(kitchen: Kitchen) -> Path:
    """The folder with the files of the first shard."""
    shard = runner.first_round(Unique(), kitchen.config())[0]
    return tools.shard_files(kitchen.root / "unique" / "shards" / shard.key)


def overwrite(path: Path, data: bytes) -> None:
    before = path.stat()
    assert before.st_size == len(data)
    writable(path).write_bytes(data)
    path.chmod(before.st_mode)


def test_a_changed_byte_of_a_scratch_file_is_found_before_a_later_round_reads_it(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    first = kitchen.run()
    before = contents(kitchen.root)
    kitchen.ran()
    for shard in (kitchen.root / "unique" / "shards").iterdir():
        for path in shard.glob("*/letters/a"):
            overwrite(path, b"z" + path.read_bytes()[1:])
    shutil.rmtree(first.uri)
    assert kitchen.run().manifest == first.manifest
    assert contents(kitchen.root) == before
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len([text for text in TEXTS.values() if "\na" in f"\n{text}"])
    assert all("letters/a: blake3" in text for text in warnings)


def test_what_was_made_of_changed_bytes_is_made_again(kitchen: Kitchen) -> None:
    """A file that no later round but the next reads was changed, and read by it, before verify=true looks."""
    first = kitchen.run()
    before = contents(kitchen.root)
    cut = first_files(kitchen) / "lines"
    overwrite(cut, cut.read_bytes().replace(b"apple", b"grape"))
    for path in kitchen.root.rglob("_RECORD.json"):
        if path.parent != cut.parent.parent:
            path.unlink()
    shutil.rmtree(first.uri)
    assert "grape" in (Path(kitchen.run().uri) / "a.txt").read_text()  # sizes are as they were
    (Path(first.uri) / MANIFEST).unlink()
    assert kitchen.run(verify=True).manifest == first.manifest
    assert contents(kitchen.root) == before


@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_share_goes_through_every_round_and_leaves_only_the_end(kitchen: Kitchen, tmp_path: Path, count: int) -> None:
    alone = kitchen.run(root=str(tmp_path / "alone"))
    everything = kitchen.ran()
    # Without others it does their shards too, in every round.
    result = kitchen.share(count, count)
    assert kitchen.ran() == everything
    assert {name.partition(":")[0] for name in result.manifest.shards} == {f"round {n}" for n in (1, 2, 3, 4)}
    assert len(result.manifest.shards) == len(everything)
    assert not Path(result.uri).exists()
    finished = kitchen.run()
    assert kitchen.ran() == []
    assert finished.manifest == alone.manifest
    assert contents(Path(finished.uri)) == contents(Path(alone.uri))


def test_shares_at_the_same_time_do_each_shard_of_every_round_once(kitchen: Kitchen, tmp_path: Path) -> None:
    alone = kitchen.run(root=str(tmp_path / "alone"))
    everything = kitchen.ran()
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda number: kitchen.share(number, 3, patience=PATIENCE), (1, 2, 3)))
    assert kitchen.ran() == everything
    done = [name for one in results for name in one.manifest.shards]
    assert len(done) == len(set(done)) == len(everything)
    assert kitchen.run().manifest == alone.manifest
    assert kitchen.ran() == []


def test_what_is_lost_of_an_earlier_round_is_done_again_by_a_share(kitchen: Kitchen, tmp_path: Path) -> None:
    alone = kitchen.run(root=str(tmp_path / "alone"))
    kitchen.share(1, 2)
    kitchen.ran()
    lost = next(one for one in _replayed(kitchen, 1) if one.name == "c")
    shutil.rmtree(kitchen.root / "unique" / "shards" / lost.key)
    kitchen.share(2, 2)
    assert kitchen.ran() == ["find c"]
    assert kitchen.run().manifest == alone.manifest
    assert kitchen.ran() == []


def _replayed(kitchen: Kitchen, rounds: int) -> Sequence[Shard[Any]]:
    """The shards of the round after this many, all of which are done."""
    stage, config = Unique(), kitchen.config()
    generator = rounds_of(stage, config, stage.plan(config))
    shards = next(generator)
    for _ in range(rounds):
        shards = generator.send(Todo.look_up(shards, str(kitchen.root / "unique" / "shards"), verify=False).records())
    return shards


def states(home: Path) -> Sequence[Path]:
    """The folders of results, finished or not."""
    return [path for path in home.glob("*") if path.name != "shards"]


def test_killed_at_every_call_of_the_store_a_run_goes_on_to_the_same_bytes() -> None:
    with tools.shm_folder() as folder:
        kill_everywhere(Kitchen(folder))


def kill_everywhere(kitchen: Kitchen) -> None:
    for name in ("a.txt", "d.txt"):
        (kitchen.source / name).unlink()
    expected = kitchen.run(root=str(kitchen.root / ".." / "undisturbed"))
    wanted = contents(Path(expected.uri))
    everything = kitchen.ran()
    left = set()
    for _ in crashes(kitchen.run, kitchen.root):
        for folder in states(kitchen.root / "unique"):
            # What has a manifest is whole, wherever the run was killed.
            assert folder.name == expected.manifest.fingerprint
            assert not (folder / MANIFEST).exists() or contents(folder) == wanted
        before = kitchen.ran()
        assert contents(Path(kitchen.run().uri)) == wanted
        after = kitchen.ran()
        # Each shard is run once, except the one that was killed.
        assert set(before) | set(after) == set(everything)
        assert len(before) + len(after) - len(everything) in (0, 1)
        left.add(len(after))
        shutil.rmtree(kitchen.root)
    # The later the kill, the less was left: it went through every shard of every round.
    assert left == set(range(len(everything) + 1))


def test_rounds_abreast_get_their_own_records() -> None:
    def doubling(name: str, rounds: int) -> Generator[list[str], list[str], list[str]]:
        seen: list[str] = []
        for number in range(rounds):
            seen += yield [f"{name}{number}"] * number
        return seen

    def together() -> Generator[list[str], list[str], None]:
        results = yield from abreast(doubling("a", 3), doubling("b", 0), doubling("c", 2))  # type: ignore[arg-type,misc]
        ended.append(results)

    ended: list[Any] = []
    rounds = together()
    first = next(rounds)
    second = rounds.send(first)
    third = rounds.send([f"<{shard}>" for shard in second])
    assert (first, second, third) == ([], ["a1", "c1"], ["a2", "a2"])
    with pytest.raises(StopIteration):
        rounds.send(["<a2>", "<A2>"])
    assert ended == [[["<a1>", "<a2>", "<A2>"], [], ["<c1>"]]]
