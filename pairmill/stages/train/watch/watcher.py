"""What a run tells people: rank 0 has one watcher, and tells it every step."""

import copy
import logging
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pairmill import log, storage
from pairmill.engine.writer import Writer
from pairmill.errors import PairmillError
from pairmill.report.model import Cell
from pairmill.stages.train.watch import tensorboard as boards
from pairmill.stages.train.watch.outliers import Outliers
from pairmill.stages.train.watch.progress import Progress, duration, summary
from pairmill.stages.train.watch.records import METRICS, HeldOut, Line, Lines, Record, Sample, last_of, perplexity, read
from pairmill.stages.train.watch.tensorboard import TensorBoard
from pairmill.stages.train.watch.trainjob import TrainJob
from pairmill.stages.train.watch.wandb import Wandb

_BOARD: Final = "tensorboard"
_SUMMARY: Final = {
    "Loss": "loss",
    "Accuracy": "accuracy",
    "Held-out loss": "heldout_loss",
    "Held-out loss, averaged weights": "heldout_ema_loss",
    "Held-out perplexity": "heldout_perplexity",
    "Tokens": "tokens",
    "Tokens/s": "tokens_per_s",
    "FLOPs": "flops",
}


@dataclass(frozen=True, kw_only=True)
class About:
    """What is trained.

    Args:
        name: what a person calls the run, e.g. ``hrm L on 3f2a…``.
        steps: T, planned steps.
        ranks: processes.
        devices: of all processes, as ``devices=`` of the report, e.g. ``8 x NVIDIA H100``.
        peak_flops: of all devices together, per second; 0 = not known.
        settings: what W&B lists.
    """

    name: str
    steps: int
    ranks: int = 1
    devices: str = "CPU"
    peak_flops: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)


class Watcher:
    """Writes metrics.jsonl and TensorBoard files, and shows progress.

    In the loop::

        watcher = Watcher(live, about, every_steps=10)
        watcher.begin(step, says["watch"])         # 0, {} for a new run
        for step in ...:
            watcher.record(Record(step=step, seconds=..., ...))
            watcher.evaluated(step, current, averaged)
            watcher.sync()                         # before the checkpoint is saved
            checkpoints.save(step, parts, says | {"watch": watcher.state()})
        watcher.event(step, "finished")
        watcher.end(out)                           # after a failure: watcher.close()

    A step is recorded and evaluated before its checkpoint is saved: lines after a checkpoint's step are made again.

    Args:
        live: URI of the folder of the files. Where it is not a local path, files are in a scratch folder, and are
            uploaded by :meth:`sync`.
        about: the run.
        every_steps: steps between lines of kind ``step``.
        tensorboard: write its files too.
        wandb: project of W&B; empty = off.

    Raises:
        UsageError: TensorBoard is wanted and not installed.
    """

    def __init__(
        self, live: str, about: About, *, every_steps: int = 10, tensorboard: bool = True, wandb: str = ""
    ) -> None:
        if tensorboard:
            boards.require()
        self._live, self._about, self._every = live, about, max(1, every_steps)
        self._project = wandb
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        if storage.scheme(live) == "file":
            self._folder = Path(storage.local_path(live))
        else:
            self._scratch = tempfile.TemporaryDirectory()
            self._folder = Path(self._scratch.name)
        self._with_board = tensorboard
        self._lines: Lines | None = None
        self._board: TensorBoard | None = None
        self._service: Wandb | None = None
        self._job: TrainJob | None = None
        self._progress: Progress | None = None
        self._sizes: dict[str, int] = {}
        self._clock = _Clock()
        self._closed = False

    def begin(self, step: int, state: Mapping[str, Any], earlier: Sequence[str] = ()) -> None:
        """Begin after ``step``: cut files back to it, and go on with the counts of the checkpoint.

        Args:
            step: of the checkpoint; 0 = from the start.
            state: what :meth:`state` said then; empty = from the start.
            earlier: URIs where lines up to ``step`` may be, if the folder has none: of another root, or of a finished
                run that is made again.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        mine = [storage.join(self._live, METRICS)] if self._scratch is not None else []
        if not (self._folder / METRICS).exists():
            self._download([*mine, *(earlier if step else ())])
        self._lines = Lines(self._folder / METRICS)
        self._lines.cut(step)
        self._totals = _Totals.from_state(state)
        self._outliers = Outliers.from_state(state.get("outliers", {}))
        self._clock = _Clock(earlier=float(state.get("seconds", 0.0)))
        # Another file: TensorBoard forgets what the files before it have after this step.
        self._board = TensorBoard(self._folder / _BOARD, step) if self._with_board else None
        if self._project:
            service_id = str(state.get("wandb", ""))
            self._service = Wandb(self._project, self._about.name, self._folder, self._about.settings, service_id)
        self._job = TrainJob(self._about.steps, step)
        self._progress = Progress(self._about.name, self._about.steps, step)
        self.event(step, "resumed" if step else "begun", ranks=self._about.ranks, devices=self._about.devices)

    @property
    def metrics(self) -> Path:
        """The file of lines, until :meth:`end`."""
        return self._folder / METRICS

    def due(self, step: int) -> bool:
        """Tell whether this step gets a line."""
        return step in {1, self._about.steps} or step % self._every == 0

    def record(self, record: Record, before: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Take note of a step; to be called for each, in order. A skipped one is an event too.

        Args:
            record: of the step.
            before: the loader's position before it.

        Returns:
            what sticks out of the step (:class:`Outliers`); None = nothing.
        """
        totals, clock = self._totals, self._clock
        totals.add(record)
        clock.add(record)
        if record.skipped:
            self.event(record.step, "skipped", loss=record.loss, grad_norm=record.grad_norm)
        if self._progress is not None:
            self._progress.update(record.step, record.loss, clock.tokens / clock.trained)
        if self.due(record.step):
            self._write("step", record.step, self._numbers(record))
            totals.since.clear()
            clock.restart()
        return self._outliers.add(record.step, {"loss": record.loss, "grad_norm": record.grad_norm}, before or {})

    @property
    def highest(self) -> list[dict[str, Any]]:
        """The steps that stuck out the most (:class:`Outliers`)."""
        return self._outliers.highest

    def evaluated(self, step: int, current: HeldOut, averaged: HeldOut | None = None) -> None:
        """Take note of held-out losses.

        Args:
            step: after which the weights are as they are.
            current: with the weights that are trained.
            averaged: with their moving average; None if there is none.
        """
        values: dict[str, object] = {"heldout_labels": current.labels}
        for name, result in (("heldout", current), ("heldout_ema", averaged)):
            if result is not None:
                values[f"{name}_loss"] = result.loss
                values[f"{name}_perplexity"] = perplexity(result.loss)
                values |= {f"{name}_loss/{source}": loss for source, loss in result.by_source.items()}
        self._write("heldout", step, values)
        if self._progress is not None:
            self._progress.evaluated(current.loss)

    def sample(self, step: int, samples: Sequence[Sample]) -> None:
        """Take note of texts that the model wrote."""
        if samples:
            self._write("sample", step, {"samples": [asdict(item) for item in samples]})

    def event(self, step: int, event: str, **says: object) -> None:
        """Take note that something happened: stopped, finished, or anything else worth a line."""
        self._write("event", step, {"event": event, **says})

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON-like."""
        service = self._service.id if self._service is not None else ""
        outliers = asdict(self._outliers)
        return {**asdict(self._totals), "outliers": outliers, "seconds": self._clock.seconds(), "wandb": service}

    def sync(self) -> None:
        """Write everything to disk, and upload it where the folder is remote. A failing upload is a warning."""
        assert self._lines is not None
        self._lines.sync()
        self._on_board(lambda board: board.flush())
        if self._scratch is not None:
            self._upload()

    def end(self, out: Writer | None = None) -> None:
        """Close the files and show a summary.

        Args:
            out: where copies of them go: ``metrics.jsonl`` and ``tensorboard/…``; None if the run is not finished.
        """
        self.sync()
        metrics = self.metrics
        if out is not None:
            out.write(METRICS, metrics.read_bytes())
            if self._with_board:
                out.write(f"{_BOARD}/{boards.FILE}", boards.of_metrics(metrics))
        last = last_of(read(metrics))
        self.close(failed=out is None)
        shown = (
            self._shown(last)
            if out is not None
            else {**self._shown(last), "Metrics": storage.join(self._live, METRICS)}
        )
        summary(self._about.name, shown, {name: last[name] for name in _SUMMARY.values() if name in last})

    def close(self, *, failed: bool = True) -> None:
        """Close the files without a word, after a failure too; a second time it does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._progress is not None:
            self._progress.close()
        self._on_board(lambda board: board.close())
        if self._service is not None:
            self._service.close(failed=failed)
        if self._lines is not None:
            self._lines.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _numbers(self, record: Record) -> dict[str, object]:
        clock, totals = self._clock, self._totals
        trained = clock.trained
        numbers: dict[str, object] = {
            "loss": record.loss,
            "accuracy": record.accuracy,
            "exact_accuracy": record.exact_accuracy,
            "perplexity": perplexity(record.loss),
            "lr": record.lr,
            "grad_norm": record.grad_norm,
            **({} if record.b is None else {"b": record.b}),
            **({"at": record.at} if record.at else {}),
            "tokens": totals.tokens,
            "labels": totals.labels,
            "slots_used": record.tokens / record.slots if record.slots else 0.0,
            "flops": totals.flops,
        }
        for name, (loss, labels) in sorted(totals.since.items()):
            if labels:
                numbers[f"loss/{name}"] = loss / labels
        for name, (labels, tokens) in sorted(totals.sources.items()):
            numbers |= {f"labels/{name}": labels, f"tokens/{name}": tokens}
        peak = self._about.peak_flops
        measured = {
            "tokens_per_s": clock.tokens / trained,
            "step_s": trained / clock.steps,
            "wait_s": clock.waited / clock.steps,
            **({"mfu": clock.flops / trained / peak} if peak else {}),
            **({"memory_gb": record.memory_gb} if record.memory_gb else {}),
            "seconds": clock.seconds(),
        }
        return {**numbers, **{name: _rounded(value) for name, value in measured.items()}}

    def _write(self, kind: str, step: int, values: Mapping[str, object]) -> None:
        assert self._lines is not None
        line = self._lines.write(kind, step, {**values, "time": round(time.time(), 3)})
        self._on_board(lambda board: board.write(line))
        if self._service is not None:
            self._service.write(line)
        if self._job is not None:
            self._job.write(line)

    def _on_board(self, work: Callable[[TensorBoard], None]) -> None:
        """TensorBoard shows what metrics.jsonl has: a failure of it does not stop a run."""
        if self._board is None:
            return
        try:
            work(self._board)
        except Exception as error:  # of another library's thread
            self._board = None
            message = f"train: nothing more is written for TensorBoard: {type(error).__name__}: {error}"
            log.event(message, level=logging.WARNING)

    def _download(self, uris: Sequence[str]) -> None:
        """Read lines of an earlier attempt, the first that there are; TensorBoard reads its files where they are."""
        for uri in uris:
            if storage.store_for(uri).exists(uri):
                (self._folder / METRICS).write_bytes(storage.store_for(uri).read(uri))
                return

    def _upload(self) -> None:
        for path in (self._folder / METRICS, *sorted((self._folder / _BOARD).glob("*"))):
            name, size = path.relative_to(self._folder).as_posix(), path.stat().st_size
            if self._sizes.get(name) == size:
                continue
            uri = storage.join(self._live, *name.split("/"))
            try:
                storage.store_for(uri).copy(str(path), uri)
                self._sizes[name] = size
            except PairmillError as error:  # the checkpoint that follows says whether a run can go on
                log.event(f"train: the copy of {name} for readers is old: {error}", level=logging.WARNING, uri=uri)

    def _shown(self, last: Line) -> dict[str, Cell]:
        result: dict[str, Cell] = {"Steps": f"{last['step']:,} of {self._about.steps:,}"} if "step" in last else {}
        for name, key in _SUMMARY.items():
            if isinstance(last.get(key), int | float):
                result[name] = f"{last[key]:.3g}" if key == "flops" else last[key]
        if "seconds" in last:
            result["Time"] = duration(last["seconds"])
        return result


@dataclass
class _Totals:
    """Sums since step 1, and by source since the line before: kept by checkpoints, so that lines come out the same.

    Args:
        sources: labels and tokens by source.
        since: sum of losses and labels by source.
    """

    tokens: int = 0
    labels: int = 0
    flops: float = 0.0
    sources: dict[str, list[int]] = field(default_factory=dict)
    since: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        mine = {name: state[name] for name in ("tokens", "labels", "flops", "sources", "since") if name in state}
        return cls(**copy.deepcopy(mine))

    def add(self, record: Record) -> None:
        self.tokens += record.tokens
        self.labels += record.labels
        self.flops += record.flops
        for name, item in record.sources.items():
            labels, tokens = self.sources.get(name, [0, 0])
            self.sources[name] = [labels + item.labels, tokens + item.tokens]
            if math.isfinite(item.loss):
                loss, counted = self.since.get(name, [0.0, 0])
                self.since[name] = [loss + item.loss, counted + item.labels]


@dataclass
class _Clock:
    """Times since the line before, in seconds."""

    earlier: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    trained: float = 1e-9
    steps: int = 0
    tokens: int = 0
    flops: float = 0.0

    def seconds(self) -> float:
        """Return those of the whole run."""
        return self.earlier + time.monotonic() - self.begun

    def add(self, record: Record) -> None:
        """Count a step."""
        self.steps += 1
        self.tokens += record.tokens
        self.flops += record.flops
        self.trained += record.seconds
        self.waited += record.wait_s

    def restart(self) -> None:
        """Begin the next line."""
        self.trained, self.waited, self.steps, self.tokens, self.flops = 1e-9, 0.0, 0, 0, 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
