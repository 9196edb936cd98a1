"""Writers of one name that make other bytes each time: a folder is always of one writer, whatever is killed when."""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pairmill import verify
from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.engine.manifest import MANIFEST
from pairmill.engine.runner import RECORD, Result
from pairmill.storage.local import LocalStore
from tests.support import tools
from tests.support.helpers import contents, draws
from tests.support.processes.crash_points import CrashPoints, crashes
from tests.support.stages.toy_stage import Toy, ToyConfig

NAMES = ["a.txt", "b.txt", "c.txt"]


class Table:
    """A project of the stage that draws its bytes."""

    def __init__(self, folder: Path) -> None:
        self.source, self.root, self.marks = folder / "source", folder / "root", folder / "marks"
        self.source.mkdir(parents=True)
        self.marks.mkdir()
        for name in NAMES:
            (self.source / name).write_text(f"line of {name}\n")

    def run(self) -> Result:
        places = {"root": str(self.root), "source": str(self.source), "marks": str(self.marks)}
        return runner.run(Toy(), ToyConfig(workers=1, chance=True, **places))

    def require_one_writer(self, result: Result) -> None:
        """Each shard, and the end, is of one writer, and the folder is what its manifest says."""
        assert verify.verify(result.uri) == f"{result.uri}\n"
        folder, data = Path(result.uri), result.manifest.data
        for name, drawn in zip(NAMES, data["drawn"], strict=True):
            assert (folder / "one" / name).read_text() == (folder / "two" / name).read_text() == drawn
        assert (folder / "end").read_text() == data["end"]
        for record in self.root.glob(f"toy/shards/*/{RECORD}"):
            files = tools.read_json(record)["files"]
            where = tools.shard_files(record.parent)
            assert tools.digests(where) == tools.recorded({"files": files})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def together(works: list[Callable[[], object]]) -> list[int]:
    """Do these at once, each in a process of its own; returns how they ended."""
    children = []
    for work in works:
        child = os.fork()
        if not child:
            try:
                work()
                os._exit(0)
            except BaseException as error:
                print(f"{error!r}", file=sys.stderr)
            finally:
                os._exit(1)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_several_runs_at_once_end_in_a_folder_of_one_writer(table: Table) -> None:
    for _ in range(draws(16)):
        assert together([table.run] * 4) == [0] * 4
        result = table.run()
        assert result.reused
        table.require_one_writer(result)
        # Nothing of the others is left.
        left = [path for path in table.root.rglob("*") if path.name.startswith(".") or "end-" in path.name]
        assert left == []
        assert len(list(table.root.glob("toy/shards/*/*"))) == 2 * len(NAMES)
        tools.remove(table.root)


def test_runs_at_once_that_are_killed_leave_what_the_next_mends(table: Table) -> None:
    drawn = random.Random(7)
    ends = set[int]()

    def dies(number: int) -> Callable[[], object]:
        def work() -> None:
            CrashPoints(number).install(LocalStore)
            table.run()

        return work

    for _ in range(draws(20)):
        codes = together([dies(drawn.randrange(1, 160)) for _ in range(3)])
        assert set(codes) <= {0, -signal.SIGKILL}
        ends |= set(codes)
        for manifest in table.root.glob(f"toy/*/{MANIFEST}"):
            # What has a manifest is whole, wherever the runs were killed.
            assert manifests.read_intact(str(manifest.parent)) is not None
            assert verify.verify(str(manifest.parent))
        table.require_one_writer(table.run())
        tools.remove(table.root)
    assert ends == {0, -signal.SIGKILL}


def test_a_run_mends_what_one_that_was_killed_made_of_other_bytes(tmp_path: Path) -> None:
    with tools.shm_folder() as folder:
        table = Table(folder)
        table.run()
        tools.remove(table.root)
        for _ in crashes(table.run, table.root, stride=7):
            result = table.run()
            table.require_one_writer(result)
            before = contents(table.root)
            assert table.run().reused
            assert contents(table.root) == before
            assert not [path for path in contents(table.root) if ".partial" in path and "_RECORD" not in path]
            tools.remove(table.root)
