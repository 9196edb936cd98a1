"""A run from its newest checkpoint to its end: steps, evaluation, checkpoints, signals, and what is done about NaN.

Killed at any instant and started again, it ends with the same weights: to the bit on a CPU with as many ranks, but for
rounding with any number of them. A checkpoint has all that a step follows from: weights, optimizer, random numbers, the
position in the data, and counts.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from pairmill import log, storage
from pairmill.errors import InputError, PairmillError
from pairmill.formats.settings_file import differences
from pairmill.interface.interrupt import INTERRUPTED
from pairmill.stages.train import final, hardware, parallel
from pairmill.stages.train.checkpoint import Checkpoints, Found, restore, state_of
from pairmill.stages.train.data import scheduled_steps, total_steps
from pairmill.stages.train.data.feed import Feed, GlobalBatch
from pairmill.stages.train.evaluate import held_out_loss
from pairmill.stages.train.generate.samples import answers
from pairmill.stages.train.nets import attention, build, initialise
from pairmill.stages.train.optimizers import make
from pairmill.stages.train.report.summary import Facts, data_of
from pairmill.stages.train.schedules import ema_beta, saves_at
from pairmill.stages.train.settings import defaults
from pairmill.stages.train.step import Stepped, Stepper
from pairmill.stages.train.trained import NAME, TOKENIZER, Trained
from pairmill.stages.train.watch.records import LIVE, METRICS, OfSource, Record
from pairmill.stages.train.watch.watcher import About, Watcher

if TYPE_CHECKING:
    from pairmill.engine.writer import Writer
    from pairmill.stages.train.data import Inputs
    from pairmill.stages.train.parallel import Ranks
    from pairmill.stages.train.settings import TrainSettings
    from pairmill.stages.train.start import Start

STOPPED: Final = 75
"""Exit code of a run that a signal ended after it saved a checkpoint; the same command goes on. EX_TEMPFAIL."""
CHECKPOINTS: Final = "checkpoints"
_IN_A_ROW: Final = 10


class Diverged(PairmillError):
    """Loss or gradient were not finite ten times in a row, and going back to a checkpoint did not help. Exit code 6."""

    exit_code = 6


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run.

    Attributes:
        key: of the run: data, settings and first weights; its checkpoints say it.
        folder: URI that has ``checkpoints/`` and ``live/`` (metrics.jsonl) of the run.
        inputs: the data.
        settings: of the run.
        start: weights of an earlier run; None = new ones.
        resume_from: URI of another folder of the same run to go on from, if ``folder`` has no checkpoint.
        price: of a device for an hour.
        tokenizer_info: which tokens begin and end texts (:class:`pairmill.stages.train.trained.Trained`).
        data: what is read, for the report: a name -> text.
    """

    key: str
    folder: str
    inputs: Inputs
    settings: TrainSettings
    start: Start | None = None
    resume_from: str = ""
    price: float = 0.0
    tokenizer_info: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run.

    Attributes:
        digest: hexadecimal sha256 over names, dtypes, shapes and bytes of all final tensors, EMA included.
        steps: made.
        rows: what became of each row, by reason; ``trained`` are those whose update is in the weights.
        data: for the manifest (:func:`pairmill.stages.train.report.summary.data_of`, and more), JSON-like.
    """

    digest: str
    steps: int
    rows: Mapping[str, int]
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """What a run counts, beside what its watcher does. Checkpoints keep it.

    Attributes:
        trained: rows whose update is in the weights.
        not_finite: rows of updates that were left out.
        rolled_back: rows whose update was undone.
        left: rows that no rank got, by source and epoch.
        absent: how often a parameter had no gradient.
        bad: updates left out in a row.
        went_back: whether it has gone back to a checkpoint.
    """

    trained: int = 0
    not_finite: int = 0
    rolled_back: int = 0
    left: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    bad: int = 0
    went_back: bool = False

    def rows(self) -> dict[str, int]:
        """What became of each row."""
        return {
            "trained": self.trained,
            "not_finite": self.not_finite,
            "rolled_back": self.rolled_back,
            "left_at_end_of_epoch": sum(self.left.values()),
        }


class _Item(NamedTuple):
    """A batch, the loader's position after it, and whether it is the last one."""

    batch: GlobalBatch
    position: dict[str, Any]
    last: bool


def fit(job: Job, ranks: Ranks, out: Writer | None) -> Outcome:
    """Train to the end. All ranks call it; rank 0 gives ``out`` and writes the final files there.

    Raises:
        SystemExit: with :data:`STOPPED`, after SIGTERM or SIGUSR1 and a checkpoint; with 130 after Ctrl-C and one.
        InputError: a checkpoint is of another run; a batch has no label.
        StorageError: a checkpoint cannot be saved.
        Diverged: loss or gradient were not finite ten times in a row, twice.
    """
    with ExitStack() as stack:
        run = _Run(job, ranks, stack)
        run.train()
        return run.finish(out)


class _Run:
    """A run on this rank."""

    def __init__(self, job: Job, ranks: Ranks, stack: ExitStack) -> None:
        settings = job.settings
        self.job, self.ranks, self.settings = job, ranks, settings
        self.heard = stack.enter_context(signals())
        options = settings.checkpoints
        self.checkpoints = Checkpoints(
            storage.join(job.folder, CHECKPOINTS), ranks, keep=options.keep, asynchronous=options.asynchronous
        )
        found = self._found()
        ranks.agree("the run", {"key": job.key, "step": found.step if found else 0})
        says: Mapping[str, Any] = found.says if found else {}
        # Bits follow from the number of threads too: where there are as many ranks, a process keeps its own.
        kept: int = says["threads"] if says.get("ranks") == ranks.size else 0
        self.threads = hardware.settle(settings.training.threads or kept, ranks)
        # Counted once: a run that goes on keeps its schedule.
        self.total: int = says.get("total") or scheduled_steps(job.inputs, settings, ranks.size)
        self.steps: int = says.get("steps") or total_steps(job.inputs, settings, ranks.size)
        self.precision = hardware.precision(settings.training.precision, ranks.device)
        self.path = attention.choose(settings.training.attention_path, ranks.device, self.precision)
        self._build()
        self.feed = Feed(job.inputs, settings, ranks.rank, ranks.size, ranks.device)
        stack.callback(self.feed.close)
        self.counts, self.step = Counts(), 0
        if found is not None:
            self._go_on(found)
        self.position = self.feed.state_dict()
        self.stepper = Stepper(
            self.net,
            self.optimizer,
            settings,
            self.total,
            ranks,
            self.path,
            job.inputs.sources,
            job.inputs.vocab_size,
        )
        self.watcher = self._watcher(found, stack) if ranks.rank == 0 else None
        self.clock = time.monotonic()

    # The beginning

    def _found(self) -> Found | None:
        """The checkpoint to go on from."""
        found = self.checkpoints.newest()
        where = self.job.folder
        if found is None and self.job.resume_from:
            where = self.job.resume_from
            self.checkpoints_from = _elsewhere(where, self.ranks)
            found = self.checkpoints_from.newest()
            if found is None:
                raise InputError("no complete checkpoint", where=f"resume_from={where}", hint="leave it out")
        else:
            self.checkpoints_from = self.checkpoints
        if found is not None and found.says.get("run") != self.job.key:
            raise InputError(
                "a checkpoint of another run",
                where=found.folder,
                got=_differs(found.says.get("identity", {}), self._identity()),
                expected="the same data, settings and first weights",
                hint="weights_from= takes its weights and begins a new run",
            )
        return found

    def _identity(self) -> dict[str, Any]:
        job = self.job
        start = [job.start.digest, job.start.take] if job.start else []
        said = {"settings": self.settings.said(), **self.settings.processes(self.ranks.size)}
        return {"data": job.inputs.digest, "weights_from": start, **said}

    def _build(self) -> None:
        job, settings, ranks = self.job, self.settings, self.ranks
        with torch.device("meta"):
            net = build(settings.model, job.inputs.vocab_size, job.inputs.positions)
        parallel.shard(net, ranks, self.precision)
        initialise(net, settings.training.seed)
        self.net = net
        if job.start is not None:
            job.start.weights(net, ranks)
        self.beta = ema_beta(settings, self.total)
        self.optimizer = make(settings.optimizer, parallel.parameters(net).items(), self.beta)
        if job.start is not None:
            job.start.state(net, self.optimizer, ranks)
        if settings.training.compile:
            net.compile()

    def _go_on(self, found: Found) -> None:
        restore(self.checkpoints_from, found, self.net, self.optimizer)
        self.feed.load_state_dict(found.says["feed"])
        self.counts = Counts(**found.says["counts"])
        self.step = found.step
        if self.ranks.rank == 0:
            log.event(f"train: goes on after step {found.step:,} of {self.steps:,}", step=found.step, uri=found.folder)

    def _watcher(self, found: Found | None, stack: ExitStack) -> Watcher:
        settings, size = self.settings, sum(one.numel() for one in self.optimizer.parameters.values())
        watch, model = settings.watch, settings.model
        name = model.net if model.size == "none" else f"{model.net} {model.size}"
        for note in settings.notes(self.total):
            log.event(f"train: {note}")
        log.event(
            f"train: {name}, {size:,} parameters, {self.steps:,} steps of {settings.batch.tokens:,} slots; "
            f"{hardware.devices(self.ranks)}, {str(self.precision).removeprefix('torch.')}, "
            f"attention by {self.path}, {self.threads} threads a process",
            parameters=size,
            steps=self.steps,
            attention=self.path,
            threads=self.threads,
            ranks=self.ranks.size,
        )
        about = About(
            name=name,
            steps=self.steps,
            ranks=self.ranks.size,
            devices=hardware.devices(self.ranks),
            peak_flops=hardware.peak(self.ranks),
            settings=settings.said(),
        )
        watcher = Watcher(
            storage.join(self.job.folder, LIVE),
            about,
            every_steps=watch.every_steps,
            tensorboard=watch.tensorboard,
            wandb=watch.wandb,
        )
        stack.callback(watcher.close)
        if found is None:
            watcher.begin(0, {})
        else:
            run = storage.parent_of(storage.parent_of(found.folder))
            # A finished run has them with its files, in a folder that its record names.
            names = [LIVE, *(name for name in storage.store_for(run).folders(run) if name != LIVE)]
            earlier = [*(storage.join(run, name, METRICS) for name in names), storage.join(run, METRICS)]
            watcher.begin(found.step, dict(found.says["watch"]), earlier)
        return watcher

    # Steps

    def train(self) -> None:
        """All steps that are left."""
        for item in self._items():
            with self.ranks.together(f"step {self.step + 1}"):
                stepped = self.stepper.step(self.step + 1, item.batch)
            self.step += 1
            self.position = item.position
            self._count(item.batch, stepped)
            if self.watcher is not None:
                self.watcher.record(self._record(item.batch, stepped))
            self._check(stepped)
            with self._paused():
                self._after(item.last)

    def _items(self) -> Iterator[_Item]:
        """Batches, each drawn one step ahead: so the last one is known."""
        batches = self.feed.batches()
        upcoming = next(batches, None)
        while upcoming is not None:
            batch, position = upcoming, self.feed.state_dict()
            with self.watcher.waiting() if self.watcher is not None else nullcontext():
                upcoming = next(batches, None)
            yield _Item(batch, position, upcoming is None)

    def _count(self, batch: GlobalBatch, stepped: Stepped) -> None:
        counts = self.counts
        if stepped.finite:
            counts.trained += batch.rows
            counts.bad = 0
        else:
            counts.not_finite += batch.rows
            counts.bad += 1
        # By epoch: an end of an epoch that is seen again after a checkpoint does not count twice.
        counts.left |= self.feed.left
        for name in stepped.absent:
            counts.absent[name] = counts.absent.get(name, 0) + 1

    def _record(self, batch: GlobalBatch, stepped: Stepped) -> Record:
        (loss, labels), (right, _), (exact, rows) = stepped.loss, stepped.accuracy, stepped.exact_accuracy
        return Record(
            step=self.step,
            loss=loss / labels,
            accuracy=right / labels,
            exact_accuracy=exact / rows,
            lr=stepped.lr,
            grad_norm=stepped.grad_norm,
            tokens=batch.tokens,
            labels=labels,
            slots=batch.slots,
            flops=stepped.flops,
            b=stepped.b,
            memory_gb=hardware.memory_gb(self.ranks.device),
            skipped=not stepped.finite,
            sources={name: OfSource(*sums) for name, sums in stepped.sources.items()},
        )

    def _check(self, stepped: Stepped) -> None:
        """Go back to a checkpoint, once, after ten updates in a row that were not finite."""
        counts = self.counts
        if counts.bad < _IN_A_ROW:
            return
        # The weights of the last good step led here, so a checkpoint before it is taken.
        found = None if counts.went_back else self.checkpoints.newest(before=self.step - counts.bad)
        if found is None:
            why = "also after going back to a checkpoint" if counts.went_back else "and no checkpoint is older"
            raise Diverged(
                f"loss or gradient were not finite in {_IN_A_ROW} steps in a row, {why}",
                where=f"step {self.step}",
                got=f"loss {stepped.loss[0] / stepped.loss[1]}, gradient norm {stepped.grad_norm}",
                hint="lower optimizer.lr, set optimizer.clip, or a longer schedule.warmup_steps",
            )
        self.checkpoints.wait()
        restore(self.checkpoints, found, self.net, self.optimizer)
        undone = counts.trained - Counts(**found.says["counts"]).trained
        counts.trained -= undone
        counts.rolled_back += undone
        counts.went_back, counts.bad = True, 0
        says = {"to_step": found.step, "rows_undone": undone, "rows_not_finite": counts.not_finite}
        if self.watcher is not None:
            self.watcher.event(self.step, "rolled_back", **says)
            log.event(
                f"train: step {self.step}: loss or gradient were not finite {_IN_A_ROW} times in a row; weights and "
                f"optimizer go back to step {found.step}, data and schedule go on; {undone:,} rows are undone",
                **says,
            )

    def _after(self, last: bool) -> None:
        """Evaluate, save and stop, where it is time to."""
        every, options = self.settings.evaluation.every_steps, self.settings.checkpoints
        if last or (every and self.step % every == 0):
            self._evaluate()
        if last:
            self._sample()
        due = bool(options.every_minutes) and time.monotonic() - self.clock >= options.every_minutes * 60
        stop, failed, due = self.ranks.any(bool(self.heard), self.checkpoints.failed, due and self.ranks.rank == 0)
        if failed:
            self.checkpoints.wait()
        # In a streak of updates that are left out, older checkpoints are what it may go back to.
        if last or stop or (not self.counts.bad and (due or saves_at(self.settings, self.step))):
            self._save()
        if stop:
            self._stop()

    def _evaluate(self) -> None:
        held_out = self.job.inputs.held_out
        if held_out is not None:
            current, averaged = self._held_out(), None
            if self.optimizer.averages:
                self._swap()
                averaged = self._held_out()
                self._swap()
            if self.watcher is not None:
                self.watcher.evaluated(self.step, current, averaged)

    def _swap(self) -> None:
        """Exchange weights and their average."""
        self.optimizer.swap_ema()
        parallel.reshard(self.net)

    def _held_out(self) -> Any:
        def sees(packed: Any) -> Any:
            return attention.sees(packed, causal=self.settings.model.attention == "causal", path=self.path)

        assert self.job.inputs.held_out is not None
        with self.ranks.together("the held-out loss"):
            return held_out_loss(self.net, sees, self.job.inputs.held_out, self.settings, self.ranks)

    def _sample(self) -> None:
        """Answer the prompts of the settings, with the current weights."""
        asked, inputs = self.settings.evaluation, self.job.inputs
        if not asked.prompts or inputs.tokenizer is None:
            return
        weights = final.weights(self.net, self.optimizer, self.ranks)
        if self.watcher is not None:
            net = final.plain(weights, self.settings.model, inputs).to(self.ranks.device, self.precision)
            causal = self.settings.model.attention == "causal"
            said = answers(net, asked, inputs.tokenizer, self.job.tokenizer_info, causal)
            self.watcher.sample(self.step, said)

    def _save(self) -> None:
        tensors, numbers = state_of(self.net, self.optimizer)
        watch: dict[str, Any] = {}
        if self.watcher is not None:
            self.watcher.sync()
            watch = self.watcher.state()
        inputs = self.job.inputs
        says = {
            "run": self.job.key,
            "identity": self._identity(),
            "total": self.total,
            "steps": self.steps,
            "threads": self.threads,
            "ranks": self.ranks.size,
            "optimizer": numbers,
            "feed": self.position,
            "counts": asdict(self.counts),
            "watch": watch,
            "trained": self._trained().said(),
        }
        files = {"tokenizer.json": inputs.tokenizer} if inputs.tokenizer is not None else {}
        self.checkpoints.save(self.step, tensors, says, files)
        self.clock = time.monotonic()

    def _stop(self) -> None:
        self.checkpoints.wait()
        code = INTERRUPTED if self.heard[:1] == ["SIGINT"] else STOPPED
        if self.watcher is not None:
            self.watcher.event(self.step, "stopped", signal=self.heard[0] if self.heard else "")
            self.watcher.end()
            log.event(
                f"train: stopped after step {self.step:,} of {self.steps:,}; a checkpoint is saved, and the same "
                "command goes on",
                step=self.step,
                exit_code=code,
            )
        raise SystemExit(code)

    def _paused(self) -> AbstractContextManager[None]:
        return self.watcher.paused() if self.watcher is not None else nullcontext()

    # The end

    def finish(self, out: Writer | None) -> Outcome:
        """Write the final files. All ranks call it."""
        self.checkpoints.wait()
        files = final.tensors(self.net, self.optimizer, self.ranks)
        rows = self.counts.rows()
        if self.watcher is None or out is None:
            return Outcome(digest="", steps=self.step, rows=rows)
        final.write(files, out)
        digest = final.digest(files)
        self.watcher.event(self.step, "finished")
        data = data_of(self.watcher.metrics, self._facts())
        trained = self._trained(data["last"])
        out.write(NAME, trained.dump())
        if self.job.inputs.tokenizer is not None:
            out.write(TOKENIZER, self.job.inputs.tokenizer)
        self.watcher.end(out)
        made = {"digest": digest, "rows": rows, "threads": self.threads, "torch": torch.__version__}
        return Outcome(digest=digest, steps=self.step, rows=rows, data={**data, **made})

    def _trained(self, results: Mapping[str, Any] | None = None) -> Trained:
        inputs, settings = self.job.inputs, self.settings
        return Trained(
            model=dataclasses.asdict(settings.model),
            vocab_size=inputs.vocab_size,
            positions=inputs.positions,
            tokenizer_info=dict(self.job.tokenizer_info),
            profile=settings.profile,
            ema=self.beta if self.beta is not None or not self.optimizer.averages else 0.0,
            steps=self.step,
            settings=settings.said(),
            data={"plan": inputs.digest, **({"tokenizer": inputs.tokenizer_digest} if inputs.tokenizer_digest else {})},
            results=dict(results or {}),
        )

    def _facts(self) -> Facts:
        inputs, settings, model = self.job.inputs, self.settings, self.settings.model
        return Facts(
            net=model.net if model.size == "none" else f"{model.net} {model.size}",
            parameters=sum(one.numel() for one in self.optimizer.parameters.values()),
            vocab_size=inputs.vocab_size,
            steps=self.steps,
            precision=str(self.precision).removeprefix("torch."),
            attention=self.path,
            devices=hardware.devices(self.ranks),
            device_count=self.ranks.size,
            processes=settings.processes(self.ranks.size).get("processes", 0),
            peak_flops=hardware.peak(self.ranks),
            price_per_hour=self.job.price,
            ema_beta=self.beta or 0.0,
            absent=self.counts.absent,
            plan=inputs.digest,
            data=self.job.data,
            epochs=settings.training.epochs or None,
            profile=settings.profile,
            settings=settings.said(),
            differences=differences(settings.said(), defaults(settings.profile, model.net, model.size).said()),
        )


def _elsewhere(given: str, ranks: Ranks) -> Checkpoints:
    """The checkpoints below a folder, or in it."""
    uri = storage.normalise(given, "resume_from")
    inside = storage.join(uri, CHECKPOINTS)
    return Checkpoints(inside if storage.store_for(inside).folders(inside) else uri, ranks)


def _differs(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """What is different, by name."""
    found = differences(mine, theirs)
    shown = [f"{name.removeprefix('settings.')} {there} (here {here})" for name, (there, here) in found.items()]
    return ", ".join(shown[:5]) or "another version of the trainer"


@contextmanager
def signals() -> Iterator[list[str]]:
    """Note SIGTERM, SIGUSR1 and Ctrl-C in place of ending: the names of those that came. Only a main thread hears them.

    A second Ctrl-C ends at once. Where Ctrl-C is ignored, as in the background of a shell, it stays so.
    """
    heard: list[str] = []

    def hear(number: int, _: object) -> None:
        heard.append(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(number, before[number])

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    wanted: list[int] = [signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        wanted.append(signal.SIGINT)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
