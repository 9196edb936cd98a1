"""A stage of four rounds: what it accounts for, what is done again, shares, and a kill at every call of the store."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import MANIFEST, Ledger
from pairmill.engine.options import WorkerSlice
from pairmill.engine.runner import Result
from pairmill.engine.shards import Todo
from pairmill.engine.stage import Rounds, Shard, Stage
from pairmill.errors import InternalError
from tests.support import tools
from tests.support.crash_points import crashes
from tests.support.four_rounds import Unique, UniqueConfig, UniquePlan
from tests.support.helpers import contents, writable

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

    def share(self, number: int, count: int, round_: int) -> Result:
        return runner.run_share(Unique(), self.config(round=round_), WorkerSlice(number, count))

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
    (kitchen.root / "unique/shards" / runner.first_round(Unique(), kitchen.config())[0].key / gone).unlink()
    assert kitchen.run().manifest == first.manifest
    assert kitchen.ran() == ["cut a.txt"]


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
        for path in shard.glob("letters/a"):
            overwrite(path, b"z" + path.read_bytes()[1:])
    shutil.rmtree(first.uri)
    assert kitchen.run().manifest == first.manifest
    assert contents(kitchen.root) == before
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len([text for text in TEXTS.values() if "\na" in f"\n{text}"])
    assert all("letters/a: sha256" in text for text in warnings)


def test_what_was_made_of_changed_bytes_is_made_again(kitchen: Kitchen) -> None:
    """A file that no later round but the next reads was changed, and read by it, before verify=true looks."""
    first = kitchen.run()
    before = contents(kitchen.root)
    cut = kitchen.root / "unique" / "shards" / runner.first_round(Unique(), kitchen.config())[0].key / "lines"
    overwrite(cut, cut.read_bytes().replace(b"apple", b"grape"))
    for path in kitchen.root.rglob("_RECORD.json"):
        if path.parent != cut.parent:
            path.unlink()
    shutil.rmtree(first.uri)
    assert "grape" in (Path(kitchen.run().uri) / "a.txt").read_text()  # sizes are as they were
    (Path(first.uri) / MANIFEST).unlink()
    assert kitchen.run(verify=True).manifest == first.manifest
    assert contents(kitchen.root) == before


@pytest.mark.parametrize("count", [1, 3, 7])
def test_workers_share_every_round(kitchen: Kitchen, tmp_path: Path, count: int) -> None:
    alone = kitchen.run(root=str(tmp_path / "alone"))
    everything = kitchen.ran()
    ran: list[str] = []
    for round_ in (1, 2, 3, 4):
        for number in range(1, count + 1):
            result = kitchen.share(number, count, round_)
            mine = kitchen.ran()
            assert sorted(result.manifest.shards) == [name.split(" ", 1)[-1] for name in mine]
            assert not Path(result.uri).exists()
            ran += mine
    assert sorted(ran) == everything
    assert kitchen.share(1, 2, 5).manifest.shards == {}  # a round that the stage does not have
    finished = kitchen.run()
    assert kitchen.ran() == []
    assert finished.manifest == alone.manifest
    assert contents(Path(finished.uri)) == contents(Path(alone.uri))


def test_shares_do_together_what_short_rounds_before_them_have_left(kitchen: Kitchen, tmp_path: Path) -> None:
    alone = kitchen.run(root=str(tmp_path / "alone"))
    everything = kitchen.ran()
    for number in (1, 2):
        kitchen.share(number, 2, 1)
    assert kitchen.ran() == sorted(FIRST)
    # Rounds 2 and 3 are not shared out: the first to come does all of them, and of round 4 its share alone.
    assert len(kitchen.share(2, 2, 4).manifest.shards) == 2
    ran = kitchen.ran()
    assert [name for name in ran if not name.startswith("write")] == sorted([*SECOND, "decide"])
    # What is left of a round is done by whoever needs it.
    shards = next(one for one in _replayed(kitchen, 1) if one.name == "c")
    shutil.rmtree(kitchen.root / "unique" / "shards" / shards.key)
    kitchen.share(1, 2, 4)
    assert kitchen.ran() == sorted(["find c", *(set(LAST) - set(ran))])
    assert sorted([*FIRST, *ran, *(set(LAST) - set(ran))]) == everything
    assert kitchen.run().manifest == alone.manifest
    assert kitchen.ran() == []


def _replayed(kitchen: Kitchen, rounds: int) -> Sequence[Shard[Any]]:
    """The shards of the round after this many, all of which are done."""
    stage, config = Unique(), kitchen.config()
    generator = stage.rounds(config, stage.plan(config))
    shards = next(generator)
    for _ in range(rounds):
        shards = generator.send(Todo.of(shards, str(kitchen.root / "unique" / "shards"), verify=False).records())
    return shards


def test_a_share_of_a_round_whose_inputs_are_incomplete_does_nothing(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kitchen.share(1, 2, 1)
    assert len(kitchen.ran()) == 2
    for round_ in (2, 3, 4):
        assert kitchen.share(1, 2, round_).manifest.shards == {}
    assert kitchen.ran() == []
    assert "unique: share 1/2 of round 4: round 1 is incomplete" in caplog.text
    kitchen.run()
    assert len(kitchen.ran()) == len([*FIRST, *SECOND, *LAST]) + 1 - 2


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
