"""What TensorBoard and W&B are given: curves once, whatever was killed, and no run that depends on a service."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from pairmill import log
from pairmill.engine.writer import Writer
from pairmill.stages.train.watch import wandb
from pairmill.stages.train.watch.records import METRICS, HeldOut, OfSource, Record, Sample, numbers_of, read, tag_of
from pairmill.stages.train.watch.tensorboard import FILE
from pairmill.stages.train.watch.watcher import About, Watcher

STEPS = 20
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _files_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads files by name: second, host, process and a count, of which 10 sorts before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(1000))


def watcher(folder: Path, project: str = "") -> Watcher:
    about = About(name="tiny", steps=STEPS, settings={"optimizer": {"lr": 0.1}})
    return Watcher(str(folder), about, every_steps=2, wandb=project)


def steps(seen: Watcher, first: int, last: int, off: float = 0.0) -> None:
    for step in range(first, last + 1):
        sources = {"web/a": OfSource(10.0 * step, 10, 20)}
        numbers = {"accuracy": 0.5, "exact_accuracy": 0.0, "lr": 0.1, "grad_norm": 1.0, "flops": 1e6, "seconds": 0.5}
        loss = 1 / step + off
        seen.record(Record(step=step, loss=loss, tokens=20, labels=10, slots=40, sources=sources, **numbers))
        if step % 5 == 0:
            seen.evaluated(step, HeldOut(2.0 / step, 7, {"web/a": 3.0 / step}))
            seen.sample(step, [Sample("<b>a\n# b", "c\nd", "cot")])
            seen.sync()


def curves(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def check(found: EventAccumulator, metrics: Path) -> int:
    """Curves have what the lines have, each step once; returns how many points there are."""
    expected: dict[str, list[tuple[int, float]]] = {}
    for line in read(metrics):
        if line["kind"] in {"step", "heldout"}:
            for name, value in numbers_of(line).items():
                expected.setdefault(tag_of(name), []).append((line["step"], value))
    assert set(found.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        drawn = [(one.step, one.value) for one in found.Scalars(tag)]
        assert drawn == [(step, pytest.approx(value, rel=1e-6)) for step, value in points], tag
    return sum(map(len, expected.values()))


def test_curves_do_not_double_when_a_run_is_resumed(tmp_path: Path) -> None:
    seen = watcher(tmp_path)
    seen.begin(0, {})
    steps(seen, 1, 10)
    state = seen.state()
    steps(seen, 11, 17, off=5.0)
    seen.sync()  # killed here
    again = watcher(tmp_path)
    again.begin(10, state)
    steps(again, 11, 16)
    again.sync()  # and here
    again.close()
    again = watcher(tmp_path)
    again.begin(10, state)
    steps(again, 11, STEPS)
    again.sync()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3
    found = curves(tmp_path / "tensorboard")
    assert check(found, tmp_path / METRICS) > 150
    assert {"train/loss", "update/lr", "speed/tokens_per_s", "train_loss_by_source/web/a", "heldout/loss"} <= set(
        found.Tags()["scalars"]
    )
    (text,) = {one.tensor_proto.string_val[0] for one in found.Tensors("samples/1/text_summary")}
    assert text.decode() == "prompt (cot):\n\n    <b>a\n    # b\n\ntext:\n\n    c\n    d"
    out = Writer(str(tmp_path / "out"))
    again.end(out)
    assert [file.path for file in out.files] == [METRICS, f"tensorboard/{FILE}"]
    finished = curves(tmp_path / "out" / "tensorboard")
    check(finished, tmp_path / METRICS)
    assert finished.Scalars("train/loss")[0].wall_time == found.Scalars("train/loss")[0].wall_time


def test_a_start_without_checkpoint_forgets_the_one_before(tmp_path: Path) -> None:
    for off in (5.0, 0.0):
        seen = watcher(tmp_path)
        seen.begin(0, {})
        steps(seen, 1, 4, off)
        seen.sync()
    check(curves(tmp_path / "tensorboard"), tmp_path / METRICS)


class Service(ModuleType):
    """Stands in for the package of the service."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.finished: list[int] = []
        self.fails = ""
        self.Settings = SimpleNamespace
        self.Table = SimpleNamespace

    def setup(self) -> SimpleNamespace:
        """What it reads from the environment."""
        return SimpleNamespace(settings=SimpleNamespace(api_key=os.environ.get("WANDB_API_KEY"), mode="online"))

    def init(self, **options: Any) -> Service:
        if self.fails == "init":
            raise ConnectionError(f"no route to the service for {KEY}")
        self.begun.append(options)
        self.id = options["id"] or "abc123"
        return self

    @property
    def step(self) -> int:
        return max((step for step, _ in self.sent), default=0)

    def log(self, values: dict[str, Any], *, step: int) -> None:
        if self.fails == "log":
            raise ConnectionError("gone")
        assert step >= self.step, "it would refuse this"
        self.sent.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.finished.append(exit_code)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    return made


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(self.format(record))

    monkeypatch.setenv("PAIRMILL_LOG", "json")
    log.setup()
    handler = Handler(logging.WARNING)
    log.logger().addHandler(handler)
    yield said
    log.logger().handlers.clear()


def test_wandb_gets_each_line_once_and_goes_on_with_its_run(tmp_path: Path, service: Service) -> None:
    seen = watcher(tmp_path, "proj")
    seen.begin(0, {})
    steps(seen, 1, 10)
    state = seen.state()
    assert state["wandb"] == "abc123"
    steps(seen, 11, 13)  # killed here
    again = watcher(tmp_path, "proj")
    again.begin(10, state)
    steps(again, 11, STEPS)
    again.end(Writer(str(tmp_path / "out")))
    assert [one["id"] for one in service.begun] == [None, "abc123"]
    assert service.begun[0]["project"] == "proj"
    assert service.begun[0]["config"] == {"optimizer": {"lr": 0.1}}
    losses = [(step, values["train/loss"]) for step, values in service.sent if "train/loss" in values]
    assert dict(losses) == {step: 1 / step for step in (1, *range(2, STEPS + 1, 2))}
    texts = [values["samples"].data for _, values in service.sent if "samples" in values]
    assert texts == [[["cot", "<b>a\n# b", "c\nd"]]] * 4
    assert service.finished == [0]


@pytest.mark.parametrize("fails", ["init", "log", "no key", "not installed"])
def test_a_service_that_fails_is_one_warning_without_the_key(
    tmp_path: Path, service: Service, warnings: list[str], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    service.fails = fails
    if fails == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    if fails == "not installed":
        monkeypatch.setitem(sys.modules, "wandb", None)
    seen = watcher(tmp_path, "proj")
    seen.begin(0, {})
    steps(seen, 1, STEPS)
    seen.end()
    assert len(warnings) == 1
    assert "nothing more is sent to W&B" in warnings[0]
    assert KEY not in warnings[0]
    assert service.sent == []
    assert [line["step"] for line in read(tmp_path / METRICS) if line["kind"] == "step"][-1] == STEPS


def test_nothing_is_sent_without_a_project(tmp_path: Path, service: Service) -> None:
    seen = watcher(tmp_path)
    seen.begin(0, {})
    steps(seen, 1, 3)
    seen.end()
    assert service.begun == []
    assert wandb.__file__ != getattr(service, "__file__", None)
