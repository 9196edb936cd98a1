"""A real training run: it learns; killed and started again it is the same run; on other numbers of processes too."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.loader import Loader, RowPlan
from pairmill.loader.torch import tensors

ROOT = Path(__file__).resolve().parents[2]
STEPS = 160

Line = dict[str, Any]


class Fork:
    """A process of the example that has torch already: to import it takes longer than the steps."""

    def __init__(self, arguments: list[str], environment: dict[str, str], error: Path) -> None:
        self.returncode: int | None = None
        self.error = error
        self.pid = os.fork()
        if not self.pid:
            os.dup2(os.open(error, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            os.environ.update(environment)
            code = 1
            try:
                example().main(arguments)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[None, bytes]:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < deadline, self.error.read_text()
            time.sleep(0.01)
        return None, self.error.read_bytes()


Process = Fork | subprocess.Popen[bytes]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples/train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(sampled: Path, run: Path, ranks: int = 1, **options: int) -> list[Process]:
    """The example, one process for each rank, with what torchrun gives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(sampled), str(run), *(f"{k}={v}" for k, v in options.items())]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return [Fork(arguments, where | {"RANK": str(rank)}, Path(f"{run}.{rank}.error")) for rank in range(ranks)]


def command(sampled: Path, run: Path, **options: int) -> list[Process]:
    """The example as its users start it."""
    line = [sys.executable, ROOT / "examples/train.py", sampled, run, *(f"{k}={v}" for k, v in options.items())]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return [subprocess.Popen(line, env=environment, stderr=subprocess.PIPE)]


def finish(processes: list[Process]) -> None:
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error.decode()


def kill(processes: list[Process], when: Callable[[], bool]) -> None:
    """SIGKILL to all of them, at once when something has happened."""
    deadline = time.monotonic() + 300
    while not when():
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes), "ended before it was killed"
        time.sleep(0.01)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.communicate()
        assert process.returncode == -signal.SIGKILL


def lines(log: Path) -> list[Line]:
    """A log's whole lines: the last one of a process that was killed may be cut."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def logs(run: Path) -> dict[str, list[Line]]:
    return {log.stem: lines(log) for log in sorted((run / "log").glob("*.jsonl"))}


@pytest.fixture(scope="module")
def whole(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("run") / "whole"
    finish(command(sampled, run, steps=STEPS, checkpoint_every=40))
    return run


def test_the_loss_falls(whole: Path) -> None:
    ((name, steps),) = logs(whole).items()
    assert name == "000000-0of1"
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    losses = np.array([line["loss"] for line in steps])
    print(f"\nloss of 20 steps each: {losses.reshape(-1, 20).mean(1).round(3).tolist()}")
    assert abs(losses[0] - np.log(512)) < 0.7, "a model that knows nothing yet"
    assert losses[-60:].mean() < 0.35 * losses[:20].mean()


def test_killed_and_started_again_it_is_the_same_run(sampled: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "killed"
    first, second = run / "log/000000-0of1.jsonl", run / "log/000080-0of1.jsonl"
    options = {"steps": STEPS, "checkpoint_every": 40}
    kill(start(sampled, run, **options), lambda: first.exists() and first.read_bytes().count(b"\n") >= 85)
    kill(start(sampled, run, **options), lambda: second.exists() and second.read_bytes().count(b"\n") >= 45)
    finish(start(sampled, run, **options))

    expected = logs(whole)["000000-0of1"]
    found = logs(run)
    assert [(name, len(found[name]) // 40) for name in found] == [
        ("000000-0of1", 2),
        ("000080-0of1", 1),
        ("000120-0of1", 1),
    ]
    for name, steps in found.items():
        # Numbers of JSON are exact: losses and rows are the same to the last bit, also of what was done twice.
        begin = int(name.split("-")[0])
        assert steps == expected[begin : begin + len(steps)], name
    one, other = (torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (whole, run))
    assert one["data"] == other["data"]
    assert one["data"]["batches"] == STEPS
    assert len(one["model"]) > 20
    assert all(torch.equal(value, other["model"][name]) for name, value in one["model"].items())
    moments = [(key, name) for key, values in one["optimizer"]["state"].items() for name in values]
    assert len(moments) > 60
    assert all(torch.equal(one["optimizer"]["state"][k][n], other["optimizer"]["state"][k][n]) for k, n in moments)


def test_two_then_three_then_one_process_take_the_same_rows(sampled: Path, tmp_path: Path) -> None:
    run = tmp_path / "elastic"
    first = run / "log/000000-0of2.jsonl"
    options = {"checkpoint_every": 15}
    # Killed in mid-step, some steps after its last checkpoint.
    kill(
        start(sampled, run, 2, steps=1000, **options), lambda: first.exists() and first.read_bytes().count(b"\n") >= 18
    )
    finish(start(sampled, run, 3, steps=30, **options))
    finish(start(sampled, run, 1, steps=45, **options))

    found = logs(run)
    parts = {(0, 2): (1, 15), (15, 3): (16, 30), (30, 1): (31, 45)}
    assert sorted(found) == sorted(f"{begin:06}-{r}of{ranks}" for begin, ranks in parts for r in range(ranks))
    taken: list[list[int]] = []
    for (begin, ranks), (low, high) in parts.items():
        each = [
            [line for line in found[f"{begin:06}-{rank}of{ranks}"] if low <= line["step"] <= high]
            for rank in range(ranks)
        ]
        assert [len(steps) for steps in each] == [high - low + 1] * ranks
        for at in zip(*each, strict=True):
            assert len({line["step"] for line in at}) == len({line["loss"] for line in at}) == 1
            assert all(line["rows"] for line in at)
            step = sorted(row for line in at for row in line["rows"])
            # Each step starts where the one before ended, in whichever process.
            assert step == [[0, 0, len(taken) + number] for number in range(len(step))]
            taken += step
    data = torch.load(run / "checkpoint.pt", weights_only=True)["data"]
    assert (data["batches"], data["epoch"], data["start_row"]) == (45, 0, len(taken))
    assert len(taken) > 400


def test_the_examples_attention_is_prefixlm(sampled: Path) -> None:
    """Against the convention, slot by slot."""
    train = example()
    batch = next(iter(Loader(RowPlan(sampled), batch_tokens=600)))
    sees = train.who_sees_whom(tensors(batch), batch.scalars["numseqs"]).numpy()
    expected = np.zeros_like(sees)
    end = 0
    for row in range(batch.scalars["numseqs"]):
        start, prefix = end, int(batch["prefix_lens"][row])
        end = start + prefix + int(batch["causal_lens"][row])
        expected[start : start + prefix, start : start + prefix] = True
        for slot in range(start + prefix, end):
            expected[slot, start : slot + 1] = True
    assert end == batch.scalars["total_seqlen"] < 600
    assert np.array_equal(sees[:end, :], expected[:end, :])
    assert not sees[end:, :end].any()
    assert sees[end:].any(1).all(), "a softmax over nothing is not a number"
