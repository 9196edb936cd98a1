"""Checkpoints of one process: killed at every call, damaged, pruned, without space; the format of their files."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pairmill.digest import digest_file
from pairmill.errors import InputError, StorageError
from pairmill.nets import tensor_file
from pairmill.nets.tensor_file import Kind, Reader
from pairmill.nets.trained import RECORD
from pairmill.stages.train.run import checkpoint
from pairmill.stages.train.run.checkpoint import Checkpoints
from pairmill.stages.train.run.parallel import Ranks
from pairmill.storage import local

FILES = {"tokenizer.json": b'{"model": {}}'}


def tensors(step: int) -> dict[str, Tensor]:
    """Several dtypes and shapes; a frozen vector in bfloat16, a number, no rows at all."""
    generator = torch.Generator().manual_seed(step)
    return {
        "model.weight": torch.randn(5, 3, generator=generator),
        "model.z": torch.randn(7, generator=generator).bfloat16(),
        "optimizer.weight.step": torch.tensor(float(step)),
        "model.empty": torch.empty(0, 4),
        "model.flags": torch.tensor([True, False, step % 2 == 0]),
        "model.count": torch.tensor([step, -1]),
    }


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(one, second[name]) for name, one in first.items())


def loaded(checkpoints: Checkpoints, step: int) -> bool:
    """Whether the newest checkpoint is that of a step, with all it has."""
    found = checkpoints.newest()
    if found is None or found.step != step:
        return False
    into = {name: torch.zeros_like(one) for name, one in tensors(step).items()}
    found.load(into)
    return same(into, tensors(step)) and found.says == {"place": [step, 0.1]} and found.read("tokenizer.json") != b""


def saved(folder: Path, *steps: int, keep: int = 3, asynchronous: bool = True) -> Checkpoints:
    checkpoints = Checkpoints(str(folder), Ranks(), keep=keep, asynchronous=asynchronous)
    for step in steps:
        checkpoints.save(step, tensors(step), {"place": (step, 0.1)}, FILES)
    checkpoints.wait()
    return checkpoints


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_saved_comes_back(tmp_path: Path, asynchronous: bool) -> None:
    assert saved(tmp_path, asynchronous=asynchronous).newest() is None
    checkpoints = saved(tmp_path, 1, 2, 5, 9, keep=2, asynchronous=asynchronous)
    assert loaded(checkpoints, 9)
    assert sorted(os.listdir(tmp_path)) == ["00000005", "00000009"]
    assert sorted(os.listdir(tmp_path / "00000009")) == [RECORD, "part-0of1.safetensors", "tokenizer.json"]
    found = checkpoints.newest(before=9)
    assert found is not None
    assert found.step == 5
    assert checkpoints.newest(before=5) is None
    assert loaded(Checkpoints(tmp_path.as_uri(), Ranks()), 9)


def test_a_run_that_went_back_leaves_nothing_later(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    saved(tmp_path, 2)
    assert sorted(os.listdir(tmp_path)) == ["00000001", "00000002"]


def test_the_run_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    mine, says = tensors(3), {"place": [3, 0.1]}
    checkpoints.save(3, mine, says, FILES)
    for one in mine.values():
        one.zero_()
    says["place"].clear()
    checkpoints.wait()
    assert loaded(checkpoints, 3)


def test_random_numbers_go_on(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    expected = torch.rand(3)
    torch.manual_seed(7)
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load_random_states(found)
    assert torch.equal(torch.rand(3), expected)


_CALLS = {"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.scandir"}


def _in_child(folder: Path, kill_at: int) -> int:
    """Save steps 2 and 3 in a process that ends, as by SIGKILL, before its n-th call on the folder. Its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = 0

    def hook(name: str, args: tuple[Any, ...]) -> None:
        nonlocal calls
        if name in _CALLS and str(folder) in str(args[0]):
            calls += 1
            if calls == kill_at:
                os._exit(9)

    sys.addaudithook(hook)
    saved(folder, 2, 3, keep=1)
    os._exit(0)


def test_killed_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Waits that only matter where the machine goes down, or another process writes.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(local, "_TICK", 0)
    found: list[int] = []
    for kill_at in range(1, 1000):
        folder = tmp_path / str(kill_at)
        saved(folder, 1, keep=1)
        ended = _in_child(folder, kill_at)
        checkpoints = saved(folder)
        found.append(next(step for step in (1, 2, 3) if loaded(checkpoints, step)))
        assert loaded(saved(folder, 2, 3, keep=1), 3)
        # Killed between the last file and its folder: that stays, empty.
        assert [path.name for path in folder.iterdir() if any(path.iterdir())] == ["00000003"]
        assert len(os.listdir(folder / "00000003")) == 3
        if ended == 0:
            break
    assert len(found) > 40
    assert found == sorted(found)
    assert set(found) == {1, 2, 3}


def damage(folder: Path, how: str) -> None:
    part, record = folder / "part-0of1.safetensors", folder / RECORD
    for path in (part, record):
        path.chmod(0o644)
    if how == "cut":
        part.write_bytes(part.read_bytes()[:-9])
    elif how == "flipped":
        data = bytearray(part.read_bytes())
        data[-3000] ^= 4
        part.write_bytes(data)
    elif how == "gone":
        part.unlink()
    elif how == "no record":
        record.unlink()
    elif how == "record cut":
        record.write_bytes(record.read_bytes()[:-40])
    elif how == "record flipped":
        record.write_bytes(record.read_bytes().replace(b'"place":[2', b'"place":[3'))
    else:
        (folder / "tokenizer.json").write_bytes(b"{}")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("cut", "part-0of1.safetensors: 6000 bytes, expected 6009"),
        ("flipped", "part-0of1.safetensors: other content"),
        ("gone", "part-0of1.safetensors: missing"),
        ("no record", "it was not finished"),
        ("record cut", "_RECORD.json is damaged"),
        ("record flipped", "_RECORD.json is damaged"),
        ("tokenizer", "tokenizer.json: 2 bytes, expected 13"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, how: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, 1, 2)
    damage(tmp_path / "00000002", how)
    with caplog.at_level(logging.WARNING):
        assert loaded(saved(tmp_path), 1)
    (message,) = [one.getMessage() for one in caplog.records]
    assert message.startswith("train: the checkpoint of step 2 is not used: ")
    assert str(tmp_path / "00000002") in message
    if how in ("cut", "flipped"):
        assert "part-0of1.safetensors: " in message
    else:
        assert says in message
    # The run reaches that step again.
    assert loaded(saved(tmp_path, 2), 2)


def test_a_part_cut_after_it_was_found_is_refused(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    found = checkpoints.newest()
    assert found is not None
    damage(tmp_path / "00000001", "cut")
    with pytest.raises(InputError, match="is cut short"):
        checkpoints.load_random_states(found)
    damage(tmp_path / "00000001", "tokenizer")
    with pytest.raises(InputError, match="differs from its checkpoint's record"):
        found.read("tokenizer.json")
    with pytest.raises(InputError, match="not a file of the checkpoint"):
        found.read("none.json")


def test_another_net_is_refused(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    found = checkpoints.newest()
    assert found is not None
    with pytest.raises(InputError, match="does not fit the net; got no such tensor") as failed:
        found.load({"model.other": torch.zeros(2)})
    assert "00000001: model.other" in str(failed.value)
    for wrong in (torch.zeros(5, 4), torch.zeros(5, 3).double()):
        with pytest.raises(InputError, match="shape=\\(5, 3\\)"):
            found.load({"model.weight": wrong})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_says_how_much_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    checkpoints = saved(tmp_path, 1, asynchronous=asynchronous)
    monkeypatch.setattr(checkpoint._Saving, "_free", lambda self: 12_345)
    with pytest.raises(StorageError) as failed:  # noqa: PT012
        checkpoints.save(2, tensors(2), {})
        checkpoints.wait()
    assert "00000002: no space for a checkpoint; got 12,345 bytes free; expected 1,0" in str(failed.value)
    assert "earlier checkpoints are complete" in str(failed.value)
    assert not checkpoints.failed
    assert loaded(checkpoints, 1)


def test_a_disk_that_fills_up_while_a_part_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path, 1)

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tensor_file, "write", full)
        checkpoints.save(2, tensors(2), {})
        with pytest.raises(StorageError, match=r"no space for a checkpoint; got .* bytes free"):
            checkpoints.save(3, tensors(3), {})
    assert loaded(checkpoints, 1)
    checkpoints.save(3, tensors(3), {"place": [3, 0.1]}, FILES)
    assert loaded(checkpoints, 3)


def test_an_error_in_the_background_is_seen_at_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path)

    def broken(*_: object) -> str:
        raise ValueError("a defect")

    monkeypatch.setattr(tensor_file, "write", broken)
    checkpoints.save(1, tensors(1), {})
    assert checkpoints._thread is not None
    checkpoints._thread.join()
    assert checkpoints.failed
    with pytest.raises(checkpoint.InternalError, match="unexpected ValueError: a defect"):
        checkpoints.wait()


# The files


def test_the_library_reads_our_files(tmp_path: Path) -> None:
    mine = tensors(4)
    with (tmp_path / "ours").open("wb") as file:
        kinds = {name: Kind.from_tensor(tensor) for name, tensor in mine.items()}
        digest = tensor_file.write(file, kinds, mine.items(), {"a": "é"})

    assert digest == digest_file(tmp_path / "ours")
    assert same(load_file(tmp_path / "ours"), mine)


def test_we_read_the_librarys_files(tmp_path: Path) -> None:
    mine = tensors(4)
    save_file(mine, tmp_path / "theirs", metadata={"a": "é"})
    with (tmp_path / "theirs").open("rb") as file:
        reader = Reader(file, "theirs")
        assert reader.metadata == {"a": "é"}
        assert same({name: reader.rows(name) for name in mine}, mine)
        for first in range(5):
            for count in range(6 - first):
                rows = reader.rows("model.weight", first, count)
                assert torch.equal(rows, mine["model.weight"][first : first + count])


def test_other_files_are_refused() -> None:
    header = json.dumps({"x": {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    for data in (b"\xff" * 20, b"\2\0\0\0\0\0\0\0[]", len(header).to_bytes(8, "little") + header):
        with pytest.raises(InputError, match="file: not a safetensors file"):
            Reader(io.BytesIO(data), "file")
    for data in (b"", b"\x09\0\0\0\0\0\0\0{}"):
        with pytest.raises(InputError, match="file: is cut short"):
            Reader(io.BytesIO(data), "file")
