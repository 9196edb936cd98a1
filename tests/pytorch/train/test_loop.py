"""The loop: the same numbers every time, stopped by signals, updates that are not finite, and where rows went."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pairmill.errors import InputError
from pairmill.stages.train.run import loop
from pairmill.stages.train.run.job import STOPPED, Diverged
from pairmill.stages.train.run.signals import signals
from pairmill.stages.train.run.step import Stepper, StepResult
from tests.pytorch.train import tiny


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.data(tmp_path_factory.mktemp("data") / "sampled")


def test_a_seed_gives_the_same_numbers_every_time(sampled: Path, tmp_path: Path) -> None:
    one, two = (tiny.train(tiny.config(tmp_path / name, sampled)) for name in ("one", "two"))
    other = tiny.train(tiny.config(tmp_path / "three", sampled, "training.seed=1"))
    assert len(tiny.lines(one)) == len(tiny.lines(two)) > 6
    assert tiny.lines(one) == tiny.lines(two)
    assert tiny.digest(one) == tiny.digest(two) != tiny.digest(other)
    losses = [line["loss"] for line in tiny.lines(one)]
    assert losses[-1] < losses[0]


def test_every_row_is_accounted_for(sampled: Path, tmp_path: Path) -> None:
    ledger = tiny.train(tiny.config(tmp_path, sampled)).manifest.ledger
    assert ledger.rows_in == 120
    assert set(ledger.dropped) == {"left_at_end_of_epoch"}
    assert ledger.rows_kept + ledger.dropped["left_at_end_of_epoch"] == 120
    kept = tiny.train(tiny.config(tmp_path, sampled, "batch.tail=keep")).manifest.ledger
    assert (kept.rows_in, kept.rows_kept, kept.dropped) == (120, 120, {})


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: what a script starts in its background, CI's tests of torch too, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("at", [1, 5])
def test_a_signal_saves_and_the_same_command_goes_on(
    sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, at: int
) -> None:
    whole = tiny.train(tiny.config(tmp_path / "whole", sampled))
    config = tiny.config(tmp_path / "stopped", sampled)
    hear = signal.getsignal(number)
    with monkeypatch.context() as patch:
        step = Stepper.step

        def interrupted(self: Stepper, count: int, batch: Any) -> StepResult:
            if count == at:
                os.kill(os.getpid(), number)
            return step(self, count, batch)

        patch.setattr(Stepper, "step", interrupted)
        with pytest.raises(SystemExit) as stopped:
            tiny.train(config)
    assert stopped.value.code == (130 if number == signal.SIGINT else STOPPED)
    assert signal.getsignal(number) == hear
    assert [path.name for path in tiny.checkpoints(tmp_path / "stopped")] == [f"{at:08}"]
    resumed = tiny.train(config)
    assert tiny.digest(resumed) == tiny.digest(whole)
    assert tiny.lines(resumed) == tiny.lines(whole)
    assert tiny.events(resumed) == ["begun", "stopped", "resumed", "finished"]


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_ends_at_once_and_an_ignored_one_stays_ignored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with signals() as heard:
        os.kill(os.getpid(), signal.SIGINT)
        assert heard == ["SIGINT"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals() as heard:
            os.kill(os.getpid(), signal.SIGINT)
        assert heard == []
    finally:
        signal.signal(signal.SIGINT, before)


def spoil(patch: pytest.MonkeyPatch, steps: range | set[int], what: float = float("nan")) -> None:
    """Make loss and gradient of these steps not finite, the first time that they come."""
    now, done, step, scalar = [0], set[int](), Stepper.step, Stepper._scalar

    def counted(self: Stepper, number: int, batch: Any) -> StepResult:
        now[0] = number
        return step(self, number, batch)

    def spoiled(self: Stepper, *given: Any) -> torch.Tensor:
        found = scalar(self, *given)
        if now[0] in steps and now[0] not in done:
            done.add(now[0])
            return found * what
        return found

    patch.setattr(Stepper, "step", counted)
    patch.setattr(Stepper, "_scalar", spoiled)


def test_an_update_that_is_not_finite_is_left_out(
    sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {2, 4, 5})
    result = tiny.train(tiny.config(tmp_path, sampled))
    assert tiny.events(result) == ["begun", "skipped", "skipped", "skipped", "finished"]
    ledger = result.manifest.ledger
    assert ledger.dropped["not_finite"] > 0
    assert ledger.rows_in == 120
    assert all(line["loss"] is not None for line in tiny.lines(result) if line["kind"] == "step")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.data(tmp_path_factory.mktemp("data") / "long", rows=200, epochs=3)


def test_ten_in_a_row_go_back_once_to_a_checkpoint(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = "checkpoints.every_steps=4"
    spoil(monkeypatch, range(10, 20))
    result = tiny.train(tiny.config(tmp_path, long, every))
    assert tiny.events(result) == ["begun", *["skipped"] * 10, "rolled_back", "finished"]
    ledger = result.manifest.ledger
    # Steps 9 (good) is undone, as weights go back to step 8; 10 to 19 were left out.
    assert 0 < ledger.dropped["rolled_back"] < ledger.dropped["not_finite"]
    assert ledger.rows_in == 600
    (line,) = [line for line in result.manifest.data["events"] if line["event"] == "rolled_back"]
    assert (line["step"], line["to_step"], line["rows_undone"]) == (19, 8, ledger.dropped["rolled_back"])


def test_stopped_while_updates_are_left_out_it_goes_on_the_same(
    long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = "checkpoints.every_steps=4"
    digests = []
    for stop in (0, 14):
        with monkeypatch.context() as patch:
            spoil(patch, range(10, 20))
            config = tiny.config(tmp_path / str(stop), long, every)
            if stop:
                patch.setattr(loop, "signals", lambda stop=stop: _at(patch, stop))
                with pytest.raises(SystemExit):
                    tiny.train(config)
                patch.setattr(loop, "signals", _SIGNALS)
            digests.append(tiny.digest(tiny.train(config)))
    assert digests[0] == digests[1]


_SIGNALS = loop.signals


def _at(patch: pytest.MonkeyPatch, stop: int) -> Any:
    """A signal that comes at a step."""
    from contextlib import contextmanager

    @contextmanager
    def heard() -> Any:
        found: list[str] = []
        step = Stepper.step

        def noted(self: Stepper, number: int, batch: Any) -> StepResult:
            if number == stop:
                found.append("SIGTERM")
            return step(self, number, batch)

        Stepper.step = noted  # type: ignore[method-assign]
        yield found
        Stepper.step = step  # type: ignore[method-assign]

    return heard()


def test_twice_ten_in_a_row_stop_the_run(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, range(10, 99), float("inf"))
    with pytest.raises(Diverged, match="not finite in 10 steps in a row, also after going back to a checkpoint") as end:
        tiny.train(tiny.config(tmp_path, long, "checkpoints.every_steps=4"))
    assert end.value.exit_code == 6
    assert end.value.where == "step 29"
    assert [path.name for path in tiny.checkpoints(tmp_path)] == ["00000004", "00000008"]


def test_without_an_older_checkpoint_it_stops(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, range(1, 99))
    with pytest.raises(Diverged, match="no checkpoint is older"):
        tiny.train(tiny.config(tmp_path, long, "checkpoints.every_steps=4"))


def test_a_batch_without_a_label_is_an_error(sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = Stepper._labels

    def none(self: Stepper, number: int, batch: Any) -> int:
        for micro in batch.micro:
            micro.packed.labels.fill_(-100)
        return labelled(self, number, batch)

    monkeypatch.setattr(Stepper, "_labels", none)
    with pytest.raises(InputError, match=r"step 1, epoch 0, \d+ rows: a global batch has no label"):
        tiny.train(tiny.config(tmp_path, sampled))
