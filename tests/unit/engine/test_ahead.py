"""Files that are joined while their pieces are made: in order, by whom, and what is left of a killed run."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairmill import _native, storage
from pairmill.engine.ahead import JoinedAhead, Joins
from pairmill.errors import StorageError
from pairmill.storage import Span, local
from pairmill.storage.base import Begun
from tests.support.processes.kill_points import die_before

HEAD = b"head"
NAMES = [f"piece {number}" for number in range(6)]


def span_of(folder: Path, name: str) -> Span:
    return Span(str(folder / name), 1, 1 + len(name))


def written(folder: Path) -> Joins:
    """Write the pieces; return what the plan says of them. The file of a piece has its name between two bytes."""
    for name in NAMES:
        storage.store_for(str(folder)).write(str(folder / name), f"[{name}]".encode())
    return Joins(
        {"task": NAMES, "other": ["one", "two"]}, len(HEAD), lambda record: {"x": span_of(folder, record.name)}
    )


def join(folder: Path, begun: Begun | None) -> bytes:
    target = str(folder / "target")
    pieces = [HEAD, *(span_of(folder, name) for name in NAMES)]
    storage.store_for(target).join(target, pieces, begun=begun)
    return (folder / "target").read_bytes()


EXPECTED = HEAD + "".join(NAMES).encode()


def record(name: str) -> Any:
    return SimpleNamespace(name=name)


def test_pieces_are_joined_in_their_order_whenever_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joins, shard, cache = written(tmp_path), SimpleNamespace(name="task"), tmp_path / "cache"
    with JoinedAhead(joins, str(cache), 3) as ahead:
        for number in (1, 3, 0, 2, 5):
            ahead.add(record(NAMES[number]))
        ahead.add(record("of no task"))
        ahead.hand_over([shard, SimpleNamespace(name="later")])
        begun = shard.begun["x"]
        assert [span for span, _ in begun.spans] == [span_of(tmp_path, name) for name in NAMES[:4]]
        assert begun.path.read_bytes()[len(HEAD) :] == "".join(NAMES[:4]).encode()
        assert join(tmp_path, begun) == EXPECTED
        assert not begun.path.exists()
    assert not [*cache.iterdir()]


@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_is_joined_ahead_where_each_process_has_a_file_to_join(tmp_path: Path, processes: int) -> None:
    joins, shard = written(tmp_path), SimpleNamespace(name="task", begun=None)
    with JoinedAhead(joins, str(tmp_path / "cache"), processes) as ahead:
        ahead.add(record(NAMES[0]))
        ahead.hand_over([shard])
    assert shard.begun is None
    assert not (tmp_path / "cache").exists()


def test_a_failure_leaves_all_of_it_to_the_second_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joins, shard, cache = written(tmp_path), SimpleNamespace(name="task", begun=None), tmp_path / "cache"
    copy, copies = _native.copy_digested, []

    def fail(*given: Any) -> tuple[int, int, bytes]:
        copies.append(given)
        if len(copies) == 3:
            raise OSError(28, "No space left on device")
        return copy(*given)

    with monkeypatch.context() as patched, JoinedAhead(joins, str(cache), 3) as ahead:
        patched.setattr(local, "copy_digested", fail)
        for name in NAMES:
            ahead.add(record(name))
        ahead.hand_over([shard])
        assert not [*cache.iterdir()]  # the disk may be full because of it
    assert (shard.begun, len(copies)) == (None, 3)
    assert join(tmp_path, None) == EXPECTED


def test_a_defect_is_not_taken_for_a_failure_of_the_disk(tmp_path: Path) -> None:
    joins = Joins({"task": NAMES}, 4, lambda record: {"x": span_of(tmp_path, record.nothing)})
    with JoinedAhead(joins, str(tmp_path / "cache"), 2) as ahead:
        ahead.add(record(NAMES[0]))
        with pytest.raises(AttributeError, match="nothing"):
            ahead.hand_over([])


def test_an_error_of_the_disk_that_comes_late_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joins, shard = written(tmp_path), SimpleNamespace(name="task", begun=None)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched, JoinedAhead(joins, str(tmp_path / "cache"), 3) as ahead:
        patched.setattr(os, "fdatasync", fail)
        for name in NAMES:
            ahead.add(record(name))
        ahead.hand_over([shard])
        with pytest.raises(StorageError, match="Input/output error"):
            join(tmp_path, shard.begun)
    assert shard.begun is None
    assert not [*(tmp_path / "cache").iterdir()]


def killed(work: Callable[[], object]) -> bool:
    """Do this in a forked process; return whether it was killed."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("at", ["change of a name", "copy"])
def test_a_run_that_is_killed_at_any_instant_leaves_no_result_and_nothing_for_good(tmp_path: Path, at: str) -> None:
    joins, cache, copy = written(tmp_path), tmp_path / "cache", _native.copy_digested
    number = left = 0

    def run() -> None:
        shard = SimpleNamespace(name="task")
        with JoinedAhead(joins, str(cache), 3) as ahead:
            for name in NAMES[:-1]:
                ahead.add(record(name))
            ahead.hand_over([shard])
            assert join(tmp_path, shard.begun["x"]) == EXPECTED

    def die() -> None:
        def count(*given: Any) -> tuple[int, int, bytes]:
            nonlocal left
            left -= 1
            result = copy(*given)
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        if at == "copy":
            local.copy_digested = count
        else:
            die_before(number)
        run()

    while True:
        number = left = number + 1
        (tmp_path / "target").unlink(missing_ok=True)
        if not killed(die):
            break
        target = tmp_path / "target"
        assert not target.exists() or target.read_bytes() == EXPECTED
        assert not killed(run)
        assert target.read_bytes() == EXPECTED
        assert not [*cache.iterdir(), *tmp_path.glob("*.partial"), *tmp_path.glob(".*.partial")]
    assert number > (2 if at == "change of a name" else 6)
