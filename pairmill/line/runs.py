"""Runs: trainings of one configuration on several samples and seeds, each evaluated, for comparisons and searches.

What a run consists of is written once, as functions over a :class:`Task`: a stage and its options in, what it made out.
Two things execute them.

- :class:`Here`: each task is a process of this machine, started as Kubeflow's launcher starts it. Runs go side by side.
- :class:`pairmill.kubeflow.tasks.Tasks`: each task is one of a Kubeflow pipeline, and runs are iterations of a loop.

So a pipeline of runs has three parts: a stage that says which runs there are (a list of texts by name), the runs, and a
stage that reads what they made. ``pairmill/line/compare.py`` is one::

    checked = task("compare", root=…, plans=…)                       # its output ``runs`` is the list
    for run in …:                                                    # Here.each, or a loop of Kubeflow
        sampled = task("sample", again=run.again, …)
        made = train_and_evaluate(task, sampled.output, run.set, given)
    task("compare", …, trained=…, evaluated=…)

Every task is a stage with a content key. A run that another comparison has had is found finished, and a comparison that
is killed goes on where it was.

This module needs no kfp.
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Protocol, Self, TextIO, TypeVar

from pairmill.cpu import available_cores
from pairmill.engine.manifest import fingerprint_from
from pairmill.errors import PairmillError
from pairmill.formats.settings_file import DEFAULT
from pairmill.interface import chain, launcher
from pairmill.line.stages import EVERY

MEMORY: Final = "/dev/shm"  # noqa: S108 - the place of arrays
TRAINED_PLACE: Final = "/dev/shm/pairmill/{fingerprint}"  # noqa: S108 - as pairmill.stages.train has it
"""Where a run makes its arrays, by default."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class StageRun:
    """What a task made: here texts and lists, in a pipeline placeholders of kfp.

    Args:
        outputs: by name; every stage has ``output`` (the URI of its folder) and ``fingerprint``.
    """

    outputs: Mapping[str, Any]

    @property
    def output(self) -> Any:
        """The URI of the finished folder."""
        return self.outputs["output"]


class Task(Protocol):
    """Executes a stage."""

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        """Run ``stage`` (a name of ``EVERY``) with these options: texts, numbers or outputs."""


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """What all runs of a pipeline share.

    Args:
        held_out: plan or folder of held-out rows; every run is evaluated on all of them.
        train_config: of every training.
        benchmarks: that are asked, joined by commas; empty = held-out loss alone.
        data: where benchmarks are, as of evaluate.
        training: rows that questions are looked for in, as of evaluate.
        evaluate_config: of every evaluation.
        evaluate_set: settings of it, in place of the file's.
        samples_path: where a run makes its arrays.
        tokenizer: tokenizer.json of the data; empty = that of the project's tokenized folder.
    """

    root: Any
    held_out: Any
    train_config: Any
    benchmarks: Any = ""
    data: Any = ""
    training: Any = ""
    evaluate_config: Any = DEFAULT
    evaluate_set: Any = "net.weights=ema"
    samples_path: Any = TRAINED_PLACE
    tokenizer: Any = ""

    @classmethod
    def from_values(cls, values: Any, **more: Any) -> Self:
        """Make them of the parameters that a pipeline has of the same names, and of more."""
        names = [item.name for item in fields(cls) if item.name not in more and hasattr(values, item.name)]
        return cls(**{name: getattr(values, name) for name in names}, **more)


@dataclass(frozen=True)
class MadeRun:
    """The training of a run, and its evaluation."""

    trained: StageRun
    evaluated: StageRun


def train_and_evaluate(task: Task, sampled: Any, settings: Any, given: SharedOptions) -> MadeRun:
    """Train on a sample, and evaluate what came of it.

    Args:
        task: executes both.
        sampled: URI of a plan of sample, or of a sampled folder of this machine.
        settings: of the training, in place of the file's, joined by commas: its seed and its length.
        given: what all runs share.
    """
    trained = task(
        "train",
        root=given.root,
        sampled=sampled,
        held_out=given.held_out,
        train_config=given.train_config,
        set=settings,
        tokenizer=given.tokenizer,
        samples_path=given.samples_path,
    )
    evaluated = task(
        "evaluate",
        root=given.root,
        model=trained.output,
        held_out=given.held_out,
        benchmarks=given.benchmarks,
        data=given.data,
        training=given.training,
        evaluate_config=given.evaluate_config,
        set=given.evaluate_set,
        samples_path=given.samples_path,
    )
    return MadeRun(trained, evaluated)


@dataclass
class Ended:
    """A task that ended: its stage, exit code, seconds, and whether its result was there already."""

    stage: str
    exit_code: int
    seconds: float
    reused: bool = False
    folder: str = ""


class RunFailure(PairmillError):
    """A task failed. The exit code is that of its program."""

    def __init__(self, stage: str, exit_code: int) -> None:
        super().__init__(f"task {stage} failed", got=f"exit code {exit_code}", hint="see its message above")
        self.exit_code = exit_code if 0 < exit_code < 128 else 5


@dataclass
class Here:
    """Executes tasks as processes of this machine.

    Args:
        at_once: tasks side by side; 0 = one for each core.
        show: gets every task that ended.
        output: where tasks write their results for people; None = nowhere.
    """

    at_once: int = 0
    show: Callable[[Ended], None] = lambda _: None
    output: TextIO | None = None
    ended: list[Ended] = field(default_factory=list)
    """Every task that ended, in that order."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _failure: RunFailure | None = None

    @property
    def processes(self) -> int:
        """How many tasks go side by side."""
        return self.at_once or available_cores()

    def each(self, body: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do ``body`` for every item, some at once; return the results in the order of the items.

        After a failure no other task begins; those that run end first.

        Raises:
            RunFailure: of the first task that failed.
        """
        with ThreadPoolExecutor(self.processes) as pool:
            futures = [pool.submit(body, item) for item in items]
            done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in done if future.exception() is not None]
            if failed or waiting:
                self._stopped.set()
                for future in waiting:
                    future.cancel()
        if self._failure is not None:
            raise self._failure
        for future in failed:
            future.result()
        return [future.result() for future in futures]

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        if self._stopped.is_set():
            raise RunFailure(stage, 0)
        begun = time.monotonic()
        outputs = {"output", "fingerprint", *EVERY[stage].outputs}
        with tempfile.TemporaryDirectory(prefix="pairmill-") as folder:
            done = chain.run_stage(stage, options, outputs, Path(folder), self._environment(), self.output)
        ended = Ended(stage, done.code, time.monotonic() - begun)
        if not done.code:
            made = done.artifact(launcher.MANIFEST)
            ended.reused, ended.folder = made["reused"] == "true", str(made["data"])
        with self._lock:
            self.ended.append(ended)
            self.show(ended)
            if ended.exit_code:
                self._failure = self._failure or RunFailure(stage, ended.exit_code)
                self._stopped.set()
        if self._failure is not None:
            raise self._failure
        return StageRun(done.output["parameterValues"])

    def _environment(self) -> dict[str, str]:
        if self.processes == 1:
            return dict(os.environ)
        # Tasks side by side that each take every core wait for one another.
        threads = str(max(1, available_cores() // self.processes))
        return {"OMP_NUM_THREADS": threads, **os.environ}


@contextlib.contextmanager
def arrays(given: str, *identity: str) -> Iterator[str]:
    """Yield where runs of this machine make their arrays: ``<folder>/{fingerprint}``.

    Args:
        given: a folder, which stays; empty = one in memory, which is removed in the end.
        identity: texts that the name of that folder follows from: what a killed command leaves in memory is found by
            the one that goes on, and removed.
    """
    if given:
        yield f"{Path(given).absolute()}/{{fingerprint}}"
        return
    place = Path(MEMORY if Path(MEMORY).is_dir() else tempfile.gettempdir())
    top = place / f"pairmill-{identity[0]}-{fingerprint_from(*identity[1:])}"
    try:
        # Held-out rows are made beside samples.
        yield f"{top}/samples/{{fingerprint}}"
    finally:
        remove(top)


def remove(folder: str | os.PathLike[str]) -> None:
    """Remove a folder of arrays; a kill never leaves half of it under its name, where it would pass for a sample."""
    gone = f"{os.fspath(folder)}.gone"
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
