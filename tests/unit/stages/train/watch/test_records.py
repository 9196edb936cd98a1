"""metrics.jsonl: exact, never torn, and the same after any kill; the watcher without TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairmill import log, storage
from pairmill.engine.writer import Writer
from pairmill.stages.train.watch import progress
from pairmill.stages.train.watch.records import (
    MEASURED,
    METRICS,
    HeldOut,
    Line,
    Lines,
    OfSource,
    Record,
    Sample,
    exact,
    last_of,
    perplexity,
    read,
)
from pairmill.stages.train.watch.watcher import About, Watcher

STEPS = 40


def float32(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def record(step: int, *, skipped: bool = False) -> Record:
    """A step whose numbers follow from its number."""
    draw = random.Random(step)
    parts = {name: OfSource(float32(draw.uniform(50, 90)), draw.randint(20, 30), 60) for name in ("web", "chat/direct")}
    if step % 3 == 0:
        del parts["web"]
    return Record(
        step=step,
        loss=math.nan if skipped else float32(draw.uniform(2, 9)),
        accuracy=draw.random(),
        exact_accuracy=0.0,
        lr=1e-3 / step,
        grad_norm=draw.uniform(0, 1),
        tokens=60 * len(parts),
        labels=sum(one.labels for one in parts.values()),
        slots=160,
        flops=1e9 / 3,
        b=2,
        memory_gb=1.25,
        skipped=skipped,
        sources=parts,
        seconds=0.5,
        wait_s=0.125,
    )


def watcher(folder: object, every: int = 4, **more: Any) -> Watcher:
    about = About(name="hrm tiny", steps=STEPS, ranks=2, **more)
    return Watcher(str(folder), about, every_steps=every, tensorboard=False)


def steps(seen: Watcher, first: int, last: int) -> dict[str, Any]:
    """Tell of these steps as the loop does; return the state of the last checkpoint, at multiples of 10."""
    state: dict[str, Any] = {}
    for step in range(first, last + 1):
        seen.record(record(step))
        if step % 10 == 0:
            seen.evaluated(step, HeldOut(3.5 - step / 100, 99, {"web": 3.25}), HeldOut(4.0, 99))
            seen.sample(step, [Sample("2 + 2", "4", "direct")])
            seen.sync()
            state = {"step": step, "watch": json.loads(json.dumps(seen.state()))}
    return state


def said(path: Path) -> list[Line]:
    """What follows from data."""
    return [exact(line) for line in read(path) if line["kind"] != "event"]


@pytest.fixture
def whole(tmp_path: Path) -> list[Line]:
    seen = watcher(tmp_path / "whole")
    seen.begin(0, {})
    steps(seen, 1, STEPS)
    seen.end()
    return said(tmp_path / "whole" / METRICS)


def test_a_line_has_all_that_is_promised_exactly(tmp_path: Path) -> None:
    seen = watcher(tmp_path, peak_flops=1e15)
    seen.begin(0, {})
    steps(seen, 1, 12)
    lines = list(read(tmp_path / METRICS))
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("event", 0),
        ("step", 1),
        ("step", 4),
        ("step", 8),
        ("heldout", 10),
        ("sample", 10),
        ("step", 12),
    ]
    line, records = lines[3], [record(step) for step in range(1, 9)]
    mine = records[-1]
    assert line["loss"] == mine.loss
    assert line["lr"] == mine.lr
    assert line["perplexity"] == math.exp(mine.loss)
    assert line["tokens"] == sum(one.tokens for one in records)
    assert line["labels"] == sum(one.labels for one in records)
    assert line["slots_used"] == 120 / 160
    assert line["flops"] == sum(one.flops for one in records)
    assert line["b"] == 2
    web = [one.sources["web"] for one in records[4:] if "web" in one.sources]
    assert len(web) == 3
    assert line["loss/web"] == sum(one.loss for one in web) / sum(one.labels for one in web)
    assert line["tokens/chat/direct"] == 8 * 60
    assert line.keys() >= MEASURED
    assert line["mfu"] == pytest.approx(line["tokens_per_s"] / 105 * mine.flops / 1e15, rel=1e-4)
    assert (line["step_s"], line["wait_s"]) == (0.5, 0.125)
    held_out = lines[4]
    assert (held_out["heldout_loss"], held_out["heldout_loss/web"], held_out["heldout_ema_loss"]) == (3.4, 3.25, 4.0)
    assert held_out["heldout_perplexity"] == math.exp(3.4)
    assert lines[5]["samples"] == [{"prompt": "2 + 2", "text": "4", "condition": "direct"}]


@pytest.mark.parametrize("killed", [1, 9, 10, 11, 13, 20, 27, 39, 40])
def test_lines_are_the_same_whenever_the_run_was_killed(tmp_path: Path, whole: list[Line], killed: int) -> None:
    seen = watcher(tmp_path)
    seen.begin(0, {})
    kept = steps(seen, 1, killed)
    with (tmp_path / METRICS).open("ab") as file:
        file.write(b'{"step": 40, "kind": "st')  # of a machine that went down
    again = watcher(tmp_path)
    again.begin(kept.get("step", 0), kept.get("watch", {}))
    steps(again, kept.get("step", 0) + 1, STEPS)
    again.end()
    assert len(whole) == 11 + 4 + 4
    assert said(tmp_path / METRICS) == whole
    events = [line["event"] for line in read(tmp_path / METRICS) if line["kind"] == "event"]
    assert events == (["begun", "resumed"] if kept else ["begun", "begun"])


def test_skipped_steps_are_events_and_have_no_loss(tmp_path: Path) -> None:
    seen = watcher(tmp_path)
    seen.begin(0, {})
    for step in range(1, 9):
        seen.record(record(step, skipped=step > 5))
    seen.event(8, "rolled_back", to_step=4)
    lines = list(read(tmp_path / METRICS))
    assert [(line["step"], line["loss"]) for line in lines if line.get("event") == "skipped"] == [
        (6, None),
        (7, None),
        (8, None),
    ]
    assert lines[-1].items() >= {"kind": "event", "event": "rolled_back", "to_step": 4}.items()
    assert lines[-2]["loss"] is None
    assert lines[-2]["perplexity"] is None
    seen.close()
    seen.close()  # after a failure it may come twice


def test_cut_keeps_what_is_whole_and_not_later(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    lines = Lines(path)
    for step in range(1, 6):
        lines.write("step", step, {"loss": 1 / step, "text": "zwölf\n"})
    text = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(text) if byte == ord("\n")]
    assert len(ends) == 5
    looked = 0
    sizes = {*range(0, len(text), 7), *(end + by for end in ends for by in (-1, 0, 1)), len(text)}
    for size in sorted(sizes):
        for step in (0, 2, 5):
            path.write_bytes(text[:size])
            again = Lines(path)
            again.cut(step)
            again.close()
            there = sum(end <= size for end in ends)
            assert path.read_bytes() == text[: [0, *ends][min(there, step)]]
            looked += 1
    assert looked > 150
    # What is written next is a line of its own.
    lines.write("step", 6, {})
    assert [line["step"] for line in read(path)] == [1, 2, 3, 4, 5, 6]


def test_a_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path / METRICS)
    written: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: written.append(bytes(data)) or write(file, data))
    lines.write("step", 1, {"loss": 0.1, "many": ["x" * 10_000]})
    assert len(written) == 1
    assert written[0].endswith(b"\n")
    assert b'"loss": 0.1,' in written[0]


def test_what_is_not_finite_is_null_and_has_no_last_value() -> None:
    assert math.isnan(perplexity(math.inf))
    assert perplexity(100.0) == math.exp(20)
    lines = [{"kind": "step", "step": 1, "loss": 2.0}, {"kind": "event", "step": 3, "loss": 9.0}]
    assert last_of(lines) == {"step": 1, "loss": 2.0}


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), getattr(record, "fields", {})))


@pytest.fixture
def logged() -> Iterator[Logged]:
    handler = Logged()
    log.logger().addHandler(handler)
    level = log.logger().level
    log.logger().setLevel(logging.INFO)
    yield handler
    log.logger().removeHandler(handler)
    log.logger().setLevel(level)


def test_progress_is_a_line_with_what_a_person_asks_for(
    tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMILL_LOG", "json")
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    seen = watcher(tmp_path)
    seen.begin(0, {})
    steps(seen, 1, STEPS)
    seen.event(STEPS, "finished")
    seen.end(Writer(str(tmp_path / "out")))
    lines = [line for line in logged.lines if "steps_planned" in line[1]]
    assert len(lines) == STEPS
    message, fields = lines[10]
    assert message.startswith("train: step 11 of 40, loss ")
    assert ", held-out 3.4000, " in message
    assert " tokens/s, " in message
    assert message.endswith(" left")
    assert fields["step"] == 11
    assert fields["loss"] == record(11).loss
    message, fields = logged.lines[-1]
    assert message.startswith("hrm tiny: Steps 40 of 40, Loss ")
    assert fields["heldout_loss"] == 3.1
    assert "time" not in fields  # it is that of the line
    assert (tmp_path / "out" / METRICS).read_bytes() == (tmp_path / METRICS).read_bytes()


def test_a_terminal_shows_a_bar_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    monkeypatch.setenv("PAIRMILL_LOG", "human")
    console = Console(stderr=True, force_terminal=True, width=140, color_system=None)
    monkeypatch.setattr("pairmill.terminal._console", console)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    seen = watcher(tmp_path)
    seen.begin(0, {})
    steps(seen, 1, STEPS)
    seen.end()
    out, err = capsys.readouterr()
    assert out == ""
    assert "40/40" in err
    assert f"held-out 3.1000  loss {record(STEPS).loss:.4f}  " in err
    assert "Held-out perplexity" in err
    assert str(tmp_path / METRICS) in err.replace("\n", "")


def test_readers_of_a_bucket_see_the_run_at_each_checkpoint(s3: str, tmp_path: Path, whole: list[Line]) -> None:
    live = storage.join(s3, "live")
    uri = storage.join(live, METRICS)
    seen = watcher(live)
    seen.begin(0, {})
    board = seen.metrics.parent / "tensorboard"
    board.mkdir()
    (board / "events").write_bytes(b"as TensorBoard's writer leaves them")
    kept = steps(seen, 1, 25)
    assert storage.store_for(live).size(storage.join(live, "tensorboard", "events")) == 35
    (tmp_path / "seen").write_bytes(storage.store_for(uri).read(uri))
    assert said(tmp_path / "seen")[-1]["step"] == 20
    again = watcher(live)  # on another machine: it has nothing but the bucket
    again.begin(kept["step"], kept["watch"])
    steps(again, 21, STEPS)
    again.end()
    (tmp_path / "seen").write_bytes(storage.store_for(uri).read(uri))
    assert said(tmp_path / "seen") == whole


def test_a_bucket_that_refuses_is_a_warning(s3: str, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    from pairmill.errors import StorageError

    live = storage.join(s3, "live")
    seen = watcher(live)
    seen.begin(0, {})

    def refuse(*_: object) -> None:
        raise StorageError("no", where=live)

    monkeypatch.setattr(storage.store_for(live), "copy", refuse)
    steps(seen, 1, 10)
    assert any("metrics.jsonl for readers is old" in message for message, _ in logged.lines)
    monkeypatch.undo()
    steps(seen, 11, 20)
    assert storage.store_for(live).exists(storage.join(live, METRICS))
