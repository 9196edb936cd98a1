"""Killed between any two steps, and at every call of the store: started again, the same weights and the same lines.

A forked child does each run that is killed, so that torch is imported once.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.runner import Result
from pairmill.stages.train.run.step import Stepper, StepResult
from tests.pytorch.train import tiny
from tests.support.processes.crash_points import crashes

EVERY = ("checkpoints.every_steps=3", "checkpoints.keep=2")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.data(tmp_path_factory.mktemp("data") / "sampled", rows=100)


@pytest.fixture(scope="module")
def whole(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return tiny.train(tiny.config(tmp_path_factory.mktemp("whole"), sampled, *EVERY))


def killed(work: Callable[[], object]) -> None:
    """Do this in a child, which is killed before it is done."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it was killed"
    assert os.WTERMSIG(status) == signal.SIGKILL


def dying(at: int, during: bool) -> None:
    """Let this process be killed before a step, or between its gradients and its update."""
    step, told = Stepper.step, Stepper._scalar

    def die(self: Stepper, number: int, batch: Any) -> StepResult:
        if number == at:
            if not during:
                os.kill(os.getpid(), signal.SIGKILL)
            Stepper._scalar = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,method-assign]
        return step(self, number, batch)

    Stepper.step = die  # type: ignore[method-assign]
    assert told is not None


def same(again: Result, whole: Result) -> None:
    assert tiny.digest(again) == tiny.digest(whole)
    assert tiny.lines(again) == tiny.lines(whole)
    assert again.manifest.ledger == whole.manifest.ledger


def test_between_any_two_steps(sampled: Path, whole: Result, tmp_path: Path) -> None:
    steps = whole.manifest.data["last"]["step"]
    assert steps > 10
    for at in range(1, steps + 1):
        later = at % 4 < 2
        config = tiny.config(tmp_path / str(at), sampled, *EVERY, f"checkpoints.asynchronous={str(later).lower()}")

        def work(at: int = at, config: Any = config) -> None:
            dying(at, during=at % 2 == 0)
            tiny.train(config)

        killed(work)
        again = tiny.train(config)
        same(again, whole)
        # A checkpoint that is written while training goes on may not be there yet.
        if at <= 3 or not later:
            assert tiny.events(again) == ["begun", "resumed" if at > 3 else "begun", "finished"]


def test_again_and_again(sampled: Path, whole: Result, tmp_path: Path) -> None:
    """After each checkpoint, and once more right after it went on."""
    config = tiny.config(tmp_path, sampled, *EVERY)
    for at in (2, 4, 4, 5, 7, 9, 10, 11):

        def work(at: int = at) -> None:
            dying(at, during=False)
            tiny.train(config)

        killed(work)
    same(tiny.train(config), whole)


def test_at_every_call_of_the_store(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    sampled = tiny.data(tmp_path_factory.mktemp("data") / "short", rows=16)
    settings = (
        "checkpoints.every_steps=1",
        "checkpoints.keep=1",
        "checkpoints.asynchronous=false",
        "schedule.warmup_steps=1",
    )
    whole = tiny.train(tiny.config(tmp_path / "whole", sampled, *settings))
    assert whole.manifest.data["last"]["step"] == 2
    roots = iter(tmp_path / str(number) for number in range(1, 10_000))
    root, looked = next(roots), 0

    def work() -> None:
        tiny.train(tiny.config(root, sampled, *settings))

    for number in crashes(work, tmp_path, stride=5):
        again = tiny.train(tiny.config(root, sampled, *settings))
        assert tiny.digest(again) == tiny.digest(whole), number
        assert tiny.lines(again) == tiny.lines(whole), number
        root, looked = next(roots), looked + 1
    assert looked > 5
