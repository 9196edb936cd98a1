"""The runner on a toy stage: resume, failures, fingerprints, pools, and processes that are killed."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.engine.manifest import MANIFEST, STARTED
from pairmill.engine.options import StageConfig, WorkerSlice, option
from pairmill.engine.runner import RECORD, Result, Together
from pairmill.engine.stage import ShardResult, fingerprint_of
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError, PairmillError, StageFailure, StorageError, UsageError
from tests.support.helpers import PATIENCE, SOON, alive, contents, environment, start, until, writable
from tests.support.objectstores.fixtures import Use
from tests.support.objectstores.proxy import Drawn, FaultProxy
from tests.support.objectstores.servers import S3Server
from tests.support.processes import nursery
from tests.support.processes.nursery import Child
from tests.support.stages.toy_stage import COMMAND, Toy, ToyConfig, ToyPlan, Upper
from tests.support.tools import shard_files

TEXTS = {"a.txt": "one\ntwo\n", "b.txt": "three\n\nfour", "c.txt": "five", "d.txt": ""}


class Bench:
    """A toy project in a folder."""

    def __init__(self, folder: Path) -> None:
        self.source, self.root, self.marks = folder / "source", folder / "root", folder / "marks"
        for path in (self.source, self.marks):
            path.mkdir(parents=True)
        for name, text in TEXTS.items():
            self.put(name, text)

    def put(self, name: str, text: str) -> None:
        (self.source / name).write_text(text)

    def config(self, **options: Any) -> ToyConfig:
        values = {"root": str(self.root), "source": str(self.source), "marks": str(self.marks), "workers": 1}
        return ToyConfig(**{**values, **options})

    def run(self, **options: Any) -> Result:
        return runner.run(Toy(), self.config(**options))

    def process(self, **options: Any) -> "subprocess.Popen[str]":
        values = {"root": self.root, "source": self.source, "marks": self.marks, "workers": 1, **options}
        return start(COMMAND, *(f"{key}={value}" for key, value in values.items()))

    def fork(self, **options: Any) -> Child:
        """A process of the stage whose start and end no test looks at."""
        values = {"root": self.root, "source": self.source, "marks": self.marks, "workers": 1, **options}
        arguments = [f"{key}={value}" for key, value in values.items()]
        return nursery.shared().start("tests.support.stages.toy_program", arguments, environment())

    def processed(self) -> list[str]:
        """Names of the shards processed since the last call, one for each time."""
        found = sorted(path.name.rsplit(".", 2)[0] for path in self.marks.iterdir())
        for path in self.marks.iterdir():
            path.unlink()
        return found

    def workers(self) -> set[int]:
        """Processes that have processed a shard."""
        return {int(path.name.rsplit(".", 2)[1]) for path in self.marks.iterdir()}

    def shard(self, name: str) -> Path:
        """Folder of a shard."""
        key = next(shard.key for shard in runner.first_round(Toy(), self.config()) if shard.name == name)
        return self.root / "toy" / "shards" / key


def printed(process: Child) -> str:
    """What a process that ends well has printed."""
    assert process.stdout is not None
    text = process.stdout.read().decode()
    assert process.wait() == 0, text
    return text


def upper(name: str, key: str = "0" * 64, size: int = 1) -> Upper:
    return Upper(name, "", "uri", "!", "marks", False, name=name, key=key, size=size)


def planned(*shards: Upper, **given: Any) -> ToyPlan:
    return ToyPlan(**{"inputs": [], "build_context": str, "shards": list(shards), **given})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- the folder -----------------------------------------------------------------------------------------------------


def test_a_run_makes_a_finished_folder_named_by_its_fingerprint(bench: Bench) -> None:
    result = bench.run()
    assert not result.reused
    assert result.uri == f"{bench.root}/toy/{result.manifest.fingerprint}"
    folder = Path(result.uri)
    assert (folder / "upper" / "a.txt").read_text() == "ONE!\nTWO!\n"
    reports = ["report.html", "report.md"]
    assert sorted(contents(folder)) == [MANIFEST, STARTED, *reports, *(f"upper/{name}" for name in sorted(TEXTS))]
    assert [file.path for file in result.manifest.files] == sorted(set(contents(folder)) - {MANIFEST, STARTED})
    assert manifests.read(result.uri) == result.manifest
    assert (result.manifest.ledger.rows_in, result.manifest.ledger.rows_kept) == (6, 5)
    assert result.manifest.ledger.dropped == {"empty": 1}
    assert result.manifest.data == {"lines": [2, 2, 1, 0]}
    assert set(result.manifest.shards) == set(TEXTS)


def test_a_second_run_does_nothing(bench: Bench) -> None:
    first = bench.run()
    before = contents(bench.root)
    bench.processed()
    second = bench.run()
    assert (second.reused, second.uri, second.manifest) == (True, first.uri, first.manifest)
    assert bench.processed() == []
    assert contents(bench.root) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_the_context_is_built_once_and_only_for_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    calls = []
    greeting = Toy.greeting

    def counted(stage: Toy, config: ToyConfig) -> str:
        calls.append(config.root)
        return greeting(stage, config)

    monkeypatch.setattr(Toy, "greeting", counted)
    result = bench.run(workers=workers)
    assert len(calls) == 1
    records = [json.loads((bench.shard(name) / RECORD).read_bytes()) for name in TEXTS]
    assert [record["data"]["greeting"] for record in records] == ["hello"] * 4
    assert bench.run(workers=workers).reused
    shutil.rmtree(result.uri)
    assert not bench.run(workers=workers).reused
    assert len(calls) == 1


def test_a_plan_without_shards_gives_a_folder_without_files(bench: Bench) -> None:
    for name in TEXTS:
        (bench.source / name).unlink()
    result = bench.run()
    assert result.manifest.tasks() == {}
    assert bench.run().reused


def test_pool_and_one_process_give_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    for number in range(6):
        bench.put(f"more {number}.txt", f"line {number}\n" * (number + 1))
    bench.run()
    bench.processed()
    other = tmp_path / "elsewhere" / "other root"
    bench.run(root=str(other), workers=2)
    assert len(bench.workers() - {os.getpid()}) >= 1
    assert os.getpid() not in bench.workers()
    assert contents(other) == contents(bench.root)


# --- shares ---------------------------------------------------------------------------------------------------------


def alone(number: int, count: int, patience: float = 0.0) -> Together:
    return Together(WorkerSlice(number, count), patience, pause=0.05)


@pytest.mark.parametrize("count", [2, 5])
def test_pods_that_share_a_stage_do_each_shard_once_and_one_of_them_finishes(tmp_path: Path, count: int) -> None:
    whole, shared = Bench(tmp_path / "whole").run(), Bench(tmp_path / "shared")
    pods = [shared.fork(share=f"{number}/{count}", finish=str(number == 1).lower()) for number in range(1, count + 1)]
    made = f"{shared.root}/toy/{whole.manifest.fingerprint}"
    assert [printed(pod).splitlines()[-1] for pod in pods] == [made] * count
    assert shared.processed() == sorted(TEXTS)
    assert contents(Path(made)) == contents(Path(whole.uri))
    assert shared.run().reused


def test_a_share_publishes_nothing_and_says_what_it_did(tmp_path: Path) -> None:
    whole, bench = Bench(tmp_path / "whole").run(), Bench(tmp_path / "shared")
    result = runner.run_share(Toy(), bench.config(), alone(1, 3))
    assert not Path(result.uri).exists()
    assert sorted(result.manifest.shards) == [f"round 1: {name}" for name in bench.processed()]
    assert result.manifest.ledger == whole.manifest.ledger
    finished = bench.run()
    assert bench.processed() == []
    assert finished.manifest == whole.manifest
    assert contents(Path(finished.uri)) == contents(Path(whole.uri))
    # A share of what is finished does nothing, and says that it did not.
    late = runner.run_share(Toy(), bench.config(), alone(1, 2))
    assert (late.reused, late.manifest.shards, late.uri) == (True, {}, finished.uri)


def test_what_other_shares_leave_undone_is_done_here_from_the_smallest_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sizes = {shard.name: shard.size for shard in runner.first_round(Toy(), bench.config())}
    mine = [shard.name for shard in Together(WorkerSlice(1, 2)).deal(runner.first_round(Toy(), bench.config()))]
    order: list[str] = []
    run_shard = Upper.run

    def noted(shard: Upper, context: Any, out: Any) -> Any:
        order.append(shard.path)
        return run_shard(shard, context, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Upper, "run", noted)
        start = time.monotonic()
        assert runner.run(Toy(), bench.config(), alone(1, 2, patience=0.3)).manifest.shards.keys() == TEXTS.keys()
        assert time.monotonic() - start > 0.3
    assert order[: len(mine)] == mine
    others = order[len(mine) :]
    assert sorted(others) == sorted(sizes.keys() - set(mine))
    assert [sizes[name] for name in others] == sorted(sizes[name] for name in others)
    assert f"toy: other shares have {len(others)} shards left and make no progress" in caplog.text


def test_shares_that_wait_take_over_different_shards(bench: Bench) -> None:
    left = [upper(str(size), size=size) for size in (9, 7, 5, 3, 1)]
    taken = [[shard.size for shard in alone(number, 9).take_over(left, 2)] for number in (1, 2, 3, 4)]
    assert taken == [[1, 3], [5, 7], [9, 1], [3, 5]]


def test_shares_of_another_size_go_on_with_what_is_done(tmp_path: Path) -> None:
    whole, bench = Bench(tmp_path / "whole").run(), Bench(tmp_path / "shared")
    begun = bench.fork(share="2/3")  # it waits for the other two, which never begin
    done = [shard.name for shard in Together(WorkerSlice(2, 3)).deal(runner.first_round(Toy(), bench.config()))]
    until(lambda: all((bench.shard(name) / RECORD).exists() for name in done), "the shards of share 2/3")
    begun.kill()
    begun.wait(PATIENCE)
    assert bench.processed() == sorted(done)
    parts = [bench.fork(share=f"{number}/8", finish=str(number == 1).lower()) for number in range(1, 9)]
    assert [part.wait(PATIENCE) for part in parts] == [0] * 8
    assert not set(bench.processed()) & set(done)
    assert bench.run().manifest == whole.manifest


def test_a_share_for_which_there_is_no_shard_says_so(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.run()
    assert runner.run_share(Toy(), bench.config(), alone(99, 99)).reused
    assert "toy: share 99/99 has nothing to do" in caplog.text


def test_a_share_waits_as_long_as_the_others_make_progress(bench: Bench) -> None:
    shards = [shard.name for shard in Together(WorkerSlice(1, 2)).deal(runner.first_round(Toy(), bench.config()))]
    assert len(shards) >= 2
    late = bench.fork(share="1/2", finish="true")
    result = runner.run_share(Toy(), bench.config(), alone(2, 2, patience=PATIENCE))
    printed(late)
    assert len(result.manifest.shards) == len(TEXTS) - len(shards)
    assert bench.processed() == sorted(TEXTS)


def test_a_failed_shard_fails_its_share_and_whoever_takes_it_over(bench: Bench) -> None:
    bench.put("a.txt", "input error, in the longest text of them all, so that it is dealt first\n")
    for part in (alone(1, 2), alone(2, 2)):
        with pytest.raises(StageFailure, match="bad text"):
            runner.run_share(Toy(), bench.config(), part)
    assert len(bench.processed()) >= len(TEXTS) - 1


def test_only_a_share_can_be_asked_to_finish(bench: Bench) -> None:
    with pytest.raises(UsageError, match="finish: needs share"):
        bench.config(finish=True)


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/0"])
def test_a_text_that_is_not_a_share_is_refused(bench: Bench, share: str) -> None:
    with pytest.raises(UsageError, match="not a valid share"):
        bench.config(share=share)


def test_shares_are_dealt_from_the_largest_shard_to_the_smallest() -> None:
    shards = [upper(str(size), size=size) for size in (1, 9, 5, 7, 3)]
    assert [shard.size for shard in Together(WorkerSlice(1, 2)).deal(shards)] == [9, 5, 1]
    assert [shard.size for shard in Together(WorkerSlice(2, 2)).deal(shards)] == [7, 3]
    assert WorkerSlice.all(1) == []
    assert WorkerSlice.all(3) == ["1/3", "2/3", "3/3"]
    assert [WorkerSlice.parse(text) for text in WorkerSlice.all(2)] == [WorkerSlice(1, 2), WorkerSlice(2, 2)]


# --- two writers ----------------------------------------------------------------------------------------------------


def test_of_two_records_of_a_shard_the_first_is_everybodys(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    record = bench.shard("a.txt") / RECORD
    other = json.loads(record.read_bytes())
    other["data"]["greeting"] = "of another program"
    del other["sha256"]
    run = Upper.run

    def slower(self: Upper, context: str, out: Writer) -> ShardResult:
        made = run(self, context, out)
        if self.path == "a.txt":
            record.write_bytes(
                manifests.seal(manifests.canonical(other))
            )  # while this run was at work, another one has committed
        return made

    shutil.rmtree(bench.root)
    monkeypatch.setattr(Upper, "run", slower)
    bench.run()
    assert json.loads(record.read_bytes())["data"]["greeting"] == "of another program"


def test_a_record_of_lost_files_does_not_win(bench: Bench) -> None:
    first = bench.run()
    (shard_files(bench.shard("a.txt")) / "upper" / "a.txt").unlink()
    (Path(first.uri) / "upper" / "a.txt").unlink()
    bench.processed()
    again = bench.run()
    assert (again.reused, bench.processed()) == (False, ["a.txt"])
    assert again.manifest == first.manifest
    assert manifests.read_intact(again.uri) == first.manifest


# --- resume ---------------------------------------------------------------------------------------------------------


def test_a_run_goes_on_where_the_one_before_ended(bench: Bench) -> None:
    bench.put("c.txt", "input error")
    with pytest.raises(StageFailure):
        bench.run()
    assert bench.processed() == ["a.txt", "b.txt", "c.txt", "d.txt"]
    bench.put("c.txt", "mended")
    bench.run()
    assert bench.processed() == ["c.txt"]


def test_one_changed_file_is_one_shard_done_again(bench: Bench) -> None:
    first = bench.run()
    bench.processed()
    bench.put("b.txt", "other")
    second = bench.run()
    assert bench.processed() == ["b.txt"]
    assert second.uri != first.uri
    assert (Path(first.uri) / "upper" / "b.txt").read_text() == "THREE!\nFOUR!\n"  # a finished folder never changes
    assert (Path(second.uri) / "upper" / "b.txt").read_text() == "OTHER!\n"
    bench.put("b.txt", TEXTS["b.txt"])
    assert bench.run().uri == first.uri
    assert bench.processed() == []


def test_one_more_file_is_one_more_shard_and_one_less_is_none(bench: Bench) -> None:
    bench.run()
    bench.processed()
    bench.put("e.txt", "new")
    bench.run()
    assert bench.processed() == ["e.txt"]
    (bench.source / "a.txt").unlink()
    result = bench.run()
    assert bench.processed() == []
    assert not (Path(result.uri) / "upper" / "a.txt").exists()


def test_an_option_that_changes_bytes_makes_every_shard_again(bench: Bench) -> None:
    bench.run()
    bench.processed()
    assert (Path(bench.run(suffix="?").uri) / "upper" / "c.txt").read_text() == "FIVE?\n"
    assert bench.processed() == sorted(TEXTS)


def test_a_record_without_manifest_is_reused_whoever_wrote_it(bench: Bench) -> None:
    result = bench.run()
    shutil.rmtree(result.uri)
    bench.processed()
    again = bench.run()
    assert (again.reused, bench.processed()) == (False, [])
    assert again.manifest == result.manifest


def _damage_record(shard: Path) -> None:
    (shard / RECORD).write_text('{"ledger":')


def _empty_record(shard: Path) -> None:
    (shard / RECORD).write_text("[]")


def _foreign_record(shard: Path) -> None:
    raw = json.loads((shard / RECORD).read_text())
    raw["ledger"]["rows_found"] = 3
    (shard / RECORD).write_text(json.dumps(raw))


def _flip_record(shard: Path) -> None:
    data = (shard / RECORD).read_bytes()
    assert data.count(b'"rows_in":2') == 1
    (shard / RECORD).write_bytes(data.replace(b'"rows_in":2', b'"rows_in":3'))


def _remove_file(shard: Path) -> None:
    (shard_files(shard) / "upper" / "a.txt").unlink()


def _cut_file(shard: Path) -> None:
    writable(shard_files(shard) / "upper" / "a.txt").write_text("ONE")


def _remove_record(shard: Path) -> None:
    (shard / RECORD).unlink()


@pytest.mark.parametrize(
    "harm", [_damage_record, _empty_record, _foreign_record, _flip_record, _remove_file, _cut_file, _remove_record]
)
def test_a_shard_whose_record_or_file_is_damaged_is_done_again(bench: Bench, harm: Any) -> None:
    result = bench.run()
    before = contents(bench.root)
    shutil.rmtree(result.uri)
    harm(bench.shard("a.txt"))
    bench.processed()
    bench.run()
    assert bench.processed() == ["a.txt"]
    assert contents(bench.root) == before


def test_a_changed_digit_in_a_record_is_found_and_said_without_verify(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    result = bench.run()
    before = contents(bench.root)
    shutil.rmtree(result.uri)
    _flip_record(bench.shard("a.txt"))
    bench.processed()
    caplog.set_level(logging.INFO, "pairmill")
    bench.run()
    assert bench.processed() == ["a.txt"]
    assert contents(bench.root) == before
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("a.txt: run again, _RECORD.json was changed")


def _without_digest(data: bytes, **changes: object) -> bytes:
    raw = json.loads(data)
    del raw["sha256"]
    return json.dumps({**raw, **changes}).encode()


def test_what_an_older_pairmill_wrote_without_a_digest_is_made_again_with_a_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    result = bench.run()
    before = contents(bench.root)
    manifest = Path(result.uri, MANIFEST)
    manifest.write_bytes(_without_digest(manifest.read_bytes(), format=1))
    for name in ("a.txt", "b.txt"):
        record = bench.shard(name) / RECORD
        raw = json.loads(record.read_bytes())
        record.write_text(json.dumps({key: raw[key] for key in ("ledger", "files", "data")}))
    bench.processed()
    caplog.set_level(logging.INFO, "pairmill")
    assert not bench.run().reused
    assert bench.processed() == ["a.txt", "b.txt"]
    assert contents(bench.root) == before
    (shards,) = [record.message for record in caplog.records if "shards run again" in record.message]
    assert shards.startswith("2 shards run again")
    (folder,) = [record.message for record in caplog.records if "made again" in record.message]
    assert "older pairmill" in folder


def _remove_data(folder: Path) -> None:
    (folder / "upper" / "b.txt").unlink()


def _cut_data(folder: Path) -> None:
    os.truncate(writable(folder / "upper" / "b.txt"), 1)


def _grow_data(folder: Path) -> None:
    writable(folder / "upper" / "b.txt").write_bytes(b"x" * 1000)


@pytest.mark.parametrize("harm", [_remove_data, _cut_data, _grow_data])
def test_a_finished_folder_that_was_damaged_is_healed_with_a_warning(
    bench: Bench, harm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = bench.run()
    before = contents(bench.root)
    harm(Path(result.uri))
    caplog.set_level(logging.INFO, "pairmill")
    again = bench.run()
    assert not again.reused
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "upper/b.txt" in warnings[0]
    assert contents(bench.root) == before
    assert bench.run().reused


@pytest.mark.parametrize("data", [b"", b"{", b'{"format": 99}'])
def test_a_finished_folder_whose_manifest_cannot_be_read_is_healed(bench: Bench, data: bytes) -> None:
    # Its own hint is "run the stage that made it again": that must not end in the same error.
    result = bench.run()
    before = contents(bench.root)
    (Path(result.uri) / MANIFEST).write_bytes(data)
    assert not bench.run().reused
    assert contents(bench.root) == before


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_every_failure_is_listed_and_all_other_shards_are_committed(bench: Bench, workers: int) -> None:
    bench.put("b.txt", "input error")
    bench.put("c.txt", "storage error")
    bench.put("e.txt", "x" * 100)  # larger shards start first: failures are listed in the plan's order all the same
    bench.put("f.txt", "fine" + "x" * 200)
    with pytest.raises(StageFailure) as caught:
        bench.run(workers=workers)
    error = caught.value
    assert [name for name, _ in error.failures] == ["b.txt", "c.txt"]
    assert error.exit_code == 4
    for part in ("toy: 2 of 6 shards failed", "\n  b.txt: the file: bad text", "\n  c.txt: the file: no space left"):
        assert part in str(error)
    assert not (bench.root / "toy" / manifests.MANIFEST).exists()
    assert sorted(bench.processed()) == ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"]
    assert {path.parent.name for path in bench.root.rglob(RECORD)} == {
        bench.shard(name).name for name in ("a.txt", "d.txt", "e.txt", "f.txt")
    }
    assert sorted(path.name for path in (bench.root / "toy").iterdir()) == ["shards"]


@pytest.mark.parametrize(
    ("text", "kind", "exit_code", "said"),
    [
        ("input error", InputError, 3, "bad text"),
        ("storage error", StorageError, 4, "no space left"),
        ("usage error", UsageError, 2, "bad option"),
        ("os error", StorageError, 4, "/the/file"),
        ("a bug", InternalError, 5, "ZeroDivisionError: oops; this is a defect of pairmill"),
        ("out of memory", InternalError, 5, "lower workers="),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_exit_code_is_that_of_what_went_wrong(
    bench: Bench, text: str, kind: type[PairmillError], exit_code: int, said: str, workers: int
) -> None:
    bench.put("c.txt", text)
    with pytest.raises(StageFailure) as caught:
        bench.run(workers=workers)
    (name, error), *rest = caught.value.failures
    assert (name, rest, type(error)) == ("c.txt", [], kind)
    assert caught.value.exit_code == error.exit_code == exit_code
    assert said in str(caught.value)


def test_a_shard_that_failed_after_writing_has_no_record(bench: Bench) -> None:
    bench.put("a.txt", "later: storage error")
    with pytest.raises(StageFailure):
        bench.run()
    shard = bench.shard("a.txt")
    assert contents(shard) == {}
    bench.processed()
    with pytest.raises(StageFailure):
        bench.run()
    assert bench.processed() == ["a.txt"]


def test_a_ledger_that_does_not_reconcile_fails_its_shard(bench: Bench) -> None:
    bench.put("c.txt", "lose a row")
    with pytest.raises(
        StageFailure, match=r"toy: c.txt: the ledger does not reconcile.*1 in, 0 kept, 0 dropped"
    ) as caught:
        bench.run()
    assert caught.value.exit_code == 5
    assert not (bench.shard("c.txt") / RECORD).exists()


def test_other_rows_than_the_stage_before_wrote_fail_the_stage_before_anything_is_published(bench: Bench) -> None:
    with pytest.raises(InputError, match=r"got 6 rows; expected 7 rows") as caught:
        bench.run(expect=7)
    assert caught.value.exit_code == 3
    assert sorted(path.name for path in (bench.root / "toy").iterdir()) == ["shards"]
    assert bench.run(expect=6).manifest.ledger.rows_in == 6


def test_what_a_stage_refuses_between_rounds_is_not_published_and_the_shards_stay(bench: Bench) -> None:
    with pytest.raises(InputError, match="too bad"):
        bench.run(refuse="too bad")
    assert sorted(path.name for path in (bench.root / "toy").iterdir()) == ["shards"]
    bench.processed()
    bench.run()
    assert bench.processed() == []


def test_a_plan_that_names_a_shard_twice_is_a_defect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "plan", lambda self, config: planned(upper("a"), upper("a")))
    with pytest.raises(InternalError, match="two shards of a round have the same name"):
        bench.run()
    assert not bench.root.exists()


def test_a_killed_worker_is_an_error_with_a_hint_and_no_hang(bench: Bench) -> None:
    bench.put("b.txt", "killed")
    process = bench.process(workers=2)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (5, "")
    assert "a worker process was killed" in errors
    assert "lower workers=" in errors
    bench.put("b.txt", "mended")
    assert bench.run().manifest.ledger.rows_in == 4


class _Held(FaultProxy):
    """Keeps records of shards waiting until four shards were worked on."""

    marks: Path

    def draw(self, method: str, target: str, body: bytes = b"") -> Drawn:
        if method == "PUT" and target.endswith(RECORD):
            until(lambda: len(list(self.marks.iterdir())) >= 4, "four shards on two workers")
        return super().draw(method, target, body)


def test_workers_store_a_shard_while_they_work_on_the_next(bench: Bench, s3_server: S3Server, use: Use) -> None:
    expected = bench.run().manifest
    bench.processed()
    with _Held(s3_server, faults=[]) as proxy:
        proxy.marks = bench.marks
        use(proxy.environment())
        made = bench.run(root=s3_server.bucket(), workers=2).manifest
        assert len(bench.workers()) == 2
        assert made.dump() == expected.dump()
        # Of a worker that is killed with two shards, both are named, and the next run does what is left.
        bench.put("e.txt", "killed")
        with pytest.raises(StageFailure, match="a worker process was killed"):
            bench.run(root=s3_server.bucket(), workers=2)


# --- fingerprints ---------------------------------------------------------------------------------------------------


def test_the_fingerprint_and_manifest_depend_on_no_place_and_no_number_of_workers(bench: Bench, tmp_path: Path) -> None:
    first = bench.run()
    other = Bench(tmp_path / "quite" / "another place")
    second = other.run(workers=2)
    third = other.run(root=(tmp_path / "as a URI").as_uri())
    assert second.uri != first.uri
    assert first.manifest.dump() == second.manifest.dump() == third.manifest.dump()
    text = first.manifest.dump().decode()
    for place in (str(tmp_path), os.uname().nodename, str(os.getpid())):
        assert place not in text


def test_the_fingerprint_does_not_depend_on_the_order_in_which_options_are_declared(bench: Bench) -> None:
    @dataclass(kw_only=True)
    class One(StageConfig):
        a: int = option(1, help="a")
        b: str = option("x", help="b")
        place: str = option("here", help="p", changes_bytes=False)

    @dataclass(kw_only=True)
    class Other(StageConfig):
        b: str = option("x", help="b")
        place: str = option("there", help="p", changes_bytes=False)
        a: int = option(1, help="a")

    def fingerprint(config: Any) -> str:
        return fingerprint_of(Toy, config, planned(), [])

    fingerprints = {fingerprint(kind(root="r")) for kind in (One, Other)}
    assert len(fingerprints) == 1
    assert fingerprint(One(root="r", a=2)) not in fingerprints


def test_the_fingerprint_depends_on_input_stage_version_and_byte_options(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(**options: Any) -> str:
        config = bench.config(**options)
        return fingerprint_of(Toy, config, Toy().plan(config), runner.first_round(Toy(), config))

    found = [fingerprint(), fingerprint(suffix="?"), fingerprint(profile="data_io")]
    bench.put("a.txt", "ONE\ntwo\n")
    found.append(fingerprint())
    monkeypatch.setattr(Toy, "version", 2)
    found.append(fingerprint())
    monkeypatch.setattr(Toy, "name", "toy2")
    found.append(fingerprint())
    assert len(set(found)) == 6
    assert all(len(one) == 16 and set(one) <= set("0123456789abcdef") for one in found)


def test_the_fingerprint_follows_from_shards_in_order_and_from_all_that_the_manifest_says(bench: Bench) -> None:
    a, b = upper("a", "0" * 64), upper("b", "1" * 64)
    refs = [[manifests.InputRef(role, "0" * 16)] for role in ("raw", "rows")]
    plans = [
        planned(a, b),
        planned(b, a),
        planned(a),
        planned(a, replace(b, name="c")),
        planned(a, replace(b, key="2" * 64)),
        planned(a, b, says={"licence": "MIT"}),
        planned(a, b, says={"licence": "CC0"}),
        planned(a, b, inputs=refs[0]),
        planned(a, b, inputs=refs[1]),
        planned(a, b, options={"suffix": "?"}),
    ]
    found = [fingerprint_of(Toy, bench.config(), plan, plan.shards) for plan in plans]
    assert len(set(found)) == len(plans)
    # Where shards are and how large they are is not content.
    moved = planned(replace(a, uri="elsewhere"), replace(b, size=3), rows_expected=5)
    assert fingerprint_of(Toy, bench.config(), moved, moved.shards) == found[0]


def test_the_fingerprint_is_frozen(bench: Bench) -> None:
    # A change here makes every project's results anew: it must be meant.
    config = make_dataclass("Config", [("x", int, option(1, help="x"))])
    plan = planned(upper("a", "0" * 64), inputs=[manifests.InputRef("raw", "0" * 16)], says={"licence": "MIT"})
    assert fingerprint_of(Toy, config(), plan, plan.shards) == "c163b48de5d3dad3"
    names = {"root", "profile", "workers", "share", "finish", "verify", "max_record_bytes", "max_expansion"}
    names |= {"fail_on", "links", "policy", "policy_on"}
    assert {item.name for item in fields(StageConfig)} == names


def old_results(bench: Bench, count: int, version: int) -> None:
    """As if so many results had been made by a version."""
    bench.run()
    (made,) = bench.root.glob(f"toy/*/{MANIFEST}")
    raw = {**json.loads(made.read_bytes()), "version": version}
    del raw["sha256"]
    for number in range(count):
        folder = bench.root / "toy" / f"{number:016x}"
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST).write_bytes(manifests.seal(json.dumps({**raw, "fingerprint": folder.name}).encode()))


@pytest.mark.parametrize("share", ["", "1/2"])
def test_the_log_says_why_results_of_an_older_version_are_made_again(
    share: str, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old_results(bench, 2, 2)
    (bench.root / "toy" / f"{1:016x}" / MANIFEST).write_text("{")  # one that nobody can read says nothing
    monkeypatch.setattr(Toy, "version", 4)
    monkeypatch.setattr(Toy, "history", {2: "a was wrong", 3: "b was wrong", 4: "c was wrong"})
    caplog.set_level(logging.INFO)
    if share:
        runner.run_share(Toy(), bench.config(share=share), Together(WorkerSlice.parse(share), 0.0))
    else:
        bench.run()
    base = bench.root / "toy"
    said = f"toy: results of an older version below {base} are not used again: a was wrong; b was wrong; c was wrong"
    assert [one.getMessage() for one in caplog.records if "not used" in one.getMessage()] == [said]


def test_of_many_old_results_a_few_are_looked_at_and_none_where_there_is_nothing_to_make(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old_results(bench, 40, 1)
    monkeypatch.setattr(Toy, "version", 2)
    monkeypatch.setattr(Toy, "history", {2: "a was wrong"})
    caplog.set_level(logging.INFO)
    looked: list[str] = []
    version_of = manifests.version_of
    monkeypatch.setattr(manifests, "version_of", lambda folder: looked.append(folder) or version_of(folder))
    bench.run()
    assert 0 < len(looked) <= 16
    assert "a was wrong" in caplog.text
    looked.clear()
    assert bench.run().reused
    assert looked == []


# --- processes ------------------------------------------------------------------------------------------------------


def test_two_runs_at_once_both_succeed_with_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    bench.put("together.txt", "together, and so long that it is dealt first\n")
    for number in range(8):
        bench.put(f"more {number}.txt", f"line {number}\n")
    both = [bench.fork(), bench.fork()]
    one, other = (printed(process).splitlines()[-1] for process in both)
    assert len(bench.workers()) == 2  # they did overlap
    assert one == other
    alone = bench.run(root=str(tmp_path / "alone"))
    assert contents(bench.root) == contents(tmp_path / "alone")
    assert one.endswith(alone.manifest.fingerprint)


def test_workers_die_soon_after_a_parent_that_was_killed(bench: Bench) -> None:
    bench.put("a.txt", "slow")
    bench.put("b.txt", "endless, and long so that it starts first")
    bench.put("c.txt", "endless, and long so that it starts second")
    parent = bench.process(workers=2)
    until(lambda: len(bench.workers()) == 2, "both workers at work")
    workers = bench.workers()
    assert all(alive(pid) for pid in workers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(alive(pid) for pid in workers), "workers outlive their parent", seconds=SOON)
    parent.communicate()


def test_an_interrupt_ends_the_run_and_its_workers_at_once_and_the_next_run_goes_on(bench: Bench) -> None:
    bench.put("b.txt", "endless, and long so that it starts first")
    process = bench.process(workers=2)
    until(lambda: len(list(bench.root.rglob(RECORD))) == 3, "the other three shards")
    workers = bench.workers()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (130, "")
    assert "run the same command to resume" in errors
    assert "Traceback" not in errors
    until(lambda: not any(alive(pid) for pid in workers), "workers outlive an interrupted run", seconds=SOON)
    bench.put("b.txt", "mended")
    bench.processed()
    bench.run()
    assert bench.processed() == ["b.txt"]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_begin_while_the_stage_prepares_and_an_interrupt_ends_them_all_with_one_message(bench: Bench) -> None:
    process = bench.process(workers=2, prepared="endless")
    until(lambda: bench.workers() == {process.pid}, "the context")
    started = children(process.pid)
    assert len(started) >= 2
    # Ctrl-C reaches the whole group at once, workers that are still importing included.
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (130, "")
    assert "run the same command to resume" in errors
    assert "Traceback" not in errors
    until(lambda: not any(alive(pid) for pid in started), "workers outlive an interrupted run", seconds=SOON)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_be_prepared_is_an_error_and_no_shard_is_done(bench: Bench, workers: int) -> None:
    with pytest.raises(InputError, match="bad text"):
        bench.run(workers=workers, prepared="input error")
    assert bench.workers() == {os.getpid()}
    assert not list(bench.root.rglob(RECORD))
    until(lambda: not multiprocessing.active_children(), "workers outlive the run", seconds=SOON)


def _kill_at(bench: Bench, marks: int) -> None:
    process = bench.process(workers=1)
    until(lambda: len(list(bench.marks.iterdir())) >= marks or process.poll() is not None, "work")
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_killed_at_any_time_and_run_again_gives_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    for number in range(4):
        bench.put(f"more {number}.txt", f"slow {number}\n")
    expected = bench.run(root=str(tmp_path / "whole"))
    bench.processed()
    for marks in (1, 3, 5):
        _kill_at(bench, marks)
    bench.run()
    assert contents(bench.root / "toy" / expected.manifest.fingerprint) == contents(Path(expected.uri))


def test_available_cores_is_at_least_one_and_at_most_those_of_this_process() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
