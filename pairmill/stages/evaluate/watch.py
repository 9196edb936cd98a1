"""``pairmill evaluate watch=<run> every=<steps>``: the checkpoints of a run are asked as they appear.

A checkpoint that is due is taken first: its files are linked below ``<root>/evaluate/watched/``, so that the run may
delete it. Then a process of its own asks it. Its figures are a file that is written last, ``results/<step>.json``; what
was taken is deleted after that. So a watcher that is killed at any instant goes on with what has no result, and what
the process had answered is found by content.
"""

import logging
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import canonical, fingerprint_from
from pairmill.engine.options import arguments_of
from pairmill.errors import InputError, InternalError, UsageError
from pairmill.evaluation import benchmarks, harness_tasks
from pairmill.formats.training_results import EvaluateResult
from pairmill.interface.cli import Outcome
from pairmill.interface.parent import start
from pairmill.log import event
from pairmill.nets.trained import CHECKPOINTS, RECORD, STEP, TrainedCheckpoint
from pairmill.stages.evaluate import served
from pairmill.stages.evaluate.config import WatchConfig
from pairmill.stages.evaluate.curves import RESULTS, WATCHED, Curves, metrics_of, results_of
from pairmill.storage.partials import own, scratch

_POLL: Final = 5.0
"""Seconds between two looks at the run."""
_SHARDS: Final = ("train", "shards")


@dataclass(frozen=True)
class TakenCheckpoint:
    """A checkpoint that was taken, and where."""

    checkpoint: TrainedCheckpoint
    folder: str

    @property
    def step(self) -> int:
        """The step that it was saved after."""
        return self.checkpoint.step


class Ask(Protocol):
    """Asks a checkpoint, and returns the URI of the result."""

    def __call__(self, config: WatchConfig, asked: TakenCheckpoint, /) -> str:
        """Ask it."""


class NoRun(InputError):
    """The run has not begun."""


def watch(config: WatchConfig) -> str:
    """Ask the checkpoints as they appear; return the table as text."""
    return Curves.read([_follow(config)]).text()


def watch_as_task(config: WatchConfig) -> Outcome:
    """Ask the checkpoints as they appear, in a pod of Kubeflow; its output is the folder of the figures."""
    place = _follow(config)
    curves = Curves.read([place])
    return Outcome(
        stdout=f"{place}\n",
        parameters={"output": place},
        metrics=curves.newest(),
        report=curves.report,
        manifest=lambda: b"",  # each evaluation has its own
        metadata={"data": place},
        finished=False,  # a run in MLflow has no tags of one result
    )


def _follow(config: WatchConfig) -> str:
    """Ask the checkpoints as they appear; return the URI of the folder of their figures."""
    for name in ("share", "model"):
        if getattr(config, name):
            raise UsageError("not with watch=", where=name, got=getattr(config, name), hint="leave it out")
    for name in config.asked:
        harness_tasks.check() if harness_tasks.is_task(name) else benchmarks.named(name).check()
    watcher = Watcher(config, _await_run(config))
    watcher.work()
    return watcher.place


def _await_run(config: WatchConfig) -> str:
    until = time.monotonic() + 3600 * config.idle_hours
    while True:
        try:
            return find_run(config.run)
        except NoRun:
            if not config.wait or time.monotonic() >= until:
                raise
            time.sleep(_POLL)


def find_run(given: str) -> str:
    """Return the URI of the folder of checkpoints of the run that is meant; it need not have one yet.

    Raises:
        NoRun: there is none yet.
        InputError: there are several.
    """
    uri = storage.normalise(given, "watch")
    store = storage.store_for(uri)
    if storage.name_of(uri) == CHECKPOINTS or any(map(STEP.fullmatch, store.folders(uri))):
        return uri
    if CHECKPOINTS in store.folders(uri) or len(storage.name_of(uri)) == 64:
        return storage.join(uri, CHECKPOINTS)
    top = storage.join(uri, *_SHARDS)
    runs = list(store.folders(top))
    if len(runs) == 1:
        return storage.join(top, runs[0], CHECKPOINTS)
    where, expected = f"watch={given}", "the root of a training that has begun, or the folder of its checkpoints"
    if runs:
        got, hint = ", ".join(name[:16] for name in runs), f"watch={storage.join(top, runs[-1])}"
        raise InputError("several runs", where=where, got=got, expected=expected, hint=hint)
    got, hint = f"no folder {'/'.join(_SHARDS)}/<run>", "start the training first; idle_hours=1 waits an hour for it"
    raise NoRun("no run of train", where=where, got=got, expected=expected, hint=hint)


class Watcher:
    """Takes the checkpoints that are due, and has them asked, one after another.

    Args:
        checkpoints: URI of their folder.
        ask: asks one.
    """

    def __init__(self, config: WatchConfig, checkpoints: str, ask: Ask | None = None) -> None:
        self._config, self._checkpoints, self._ask = config, checkpoints, ask or ask_by_process
        self._run = storage.name_of(storage.parent_of(checkpoints))[:16]
        root = storage.normalise(config.root, "root")
        if storage.scheme(root) != storage.scheme(checkpoints):
            expected = f"a folder of {storage.scheme(checkpoints)}, where the checkpoints are"
            raise UsageError("not in the storage of the run", where="root", got=config.root, expected=expected)
        self.place = storage.join(root, *WATCHED, f"{self._run}-{self._key()[:8]}")
        self._store = storage.store_for(root)
        self._refused: set[int] = set()

    def _key(self) -> str:
        config = self._config
        asked = {name: config.places.get(name, "") for name in config.asked}
        held_out = storage.normalise(config.held_out, "held_out") if config.held_out else ""
        serves = bool(config.serve)
        more = [config.scorings] if config.scorings else []  # of which the first is the figure
        return fingerprint_from(config.settings.to_manifest(), asked, held_out, config.training, serves, *more)

    def work(self) -> None:
        """Ask until the last step of the run has its figures, or until all that there are have them."""
        self._tabulate()  # a watcher may be killed between a result and the table
        busy = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            while True:
                self.take()
                due = self.due()
                if due:
                    job = pool.submit(self._answer, due[0])
                    while not wait([job], timeout=_POLL).done:
                        self.take()  # before the run deletes them
                    job.result()
                    busy = time.monotonic()
                elif not self._config.wait or self._is_over():
                    return
                elif self._config.idle_hours and time.monotonic() >= busy + 3600 * self._config.idle_hours:
                    text = "evaluate: ended without the last step: no other checkpoint came within idle_hours"
                    event(text, level=logging.WARNING, run=self._run)
                    return
                else:
                    time.sleep(_POLL)

    def take(self) -> None:
        """Link the files of the complete checkpoints that are due, if they are not taken yet."""
        known = self._known()
        for name in sorted(filter(STEP.fullmatch, self._store.folders(self._checkpoints))):
            uri = storage.join(self._checkpoints, name)
            if not self._store.exists(storage.join(uri, RECORD)):
                continue
            try:
                checkpoint = TrainedCheckpoint.find(uri)
                if checkpoint is None or not self._is_due(checkpoint, known):
                    continue
                if manifests.find_damage(uri, checkpoint.files):
                    continue
                self._link(checkpoint)
            except InputError as error:  # deleted while it was looked at
                self._warn(int(name), str(error))
                continue
            known[checkpoint.step] = checkpoint.content

    def _is_due(self, checkpoint: TrainedCheckpoint, known: Mapping[int, str]) -> bool:
        if checkpoint.step in known:
            return known[checkpoint.step] != checkpoint.content  # a run that went back saved it again
        every = self._config.every
        first = checkpoint.step // every and checkpoint.step // every not in {step // every for step in known}
        return bool(first) or checkpoint.step >= int(checkpoint.says.get("steps", sys.maxsize))

    def _link(self, checkpoint: TrainedCheckpoint) -> None:
        folder = self._folder(checkpoint)
        storage.clear(folder)
        for name in (*(file.path for file in checkpoint.files), RECORD):  # the record last
            self._store.copy(storage.join(checkpoint.uri, name), storage.join(folder, name))

    def _folder(self, checkpoint: TrainedCheckpoint) -> str:
        return storage.join(self.place, CHECKPOINTS, checkpoint.content[:16], f"{checkpoint.step:08}")

    def _warn(self, step: int, why: str) -> None:
        if step not in self._refused:
            self._refused.add(step)
            text = f"evaluate: the checkpoint of step {step:,} was deleted before it was taken; raise checkpoints.keep"
            event(text, level=logging.WARNING, why=why)

    def _known(self) -> dict[int, str]:
        """Return the contents of what has a result, or is taken, by step."""
        results = {step: str(result["content"]) for step, result in results_of(self.place)}
        return results | {asked.step: asked.checkpoint.content for _, asked in self._taken() if asked is not None}

    def _taken(self) -> Iterator[tuple[str, TakenCheckpoint | None]]:
        """Yield the folders of what was taken; None is of one that was not finished, or is half deleted."""
        top = storage.join(self.place, CHECKPOINTS)
        for content in self._store.folders(top):
            folder = storage.join(top, content)
            checkpoint = TrainedCheckpoint.find(folder)
            yield folder, None if checkpoint is None else TakenCheckpoint(checkpoint, checkpoint.uri)

    def due(self) -> list[TakenCheckpoint]:
        """Return what is taken and has no result, by step; the rest is deleted."""
        results = {step: result["content"] for step, result in results_of(self.place)}
        due = []
        for folder, asked in self._taken():
            if asked is None or results.get(asked.step) == asked.checkpoint.content:
                storage.clear(folder)
            else:
                due.append(asked)
        return sorted(due, key=lambda asked: asked.step)

    def _is_over(self) -> bool:
        return any(step >= result["steps"] for step, result in results_of(self.place))

    def _tabulate(self) -> None:
        self._store.write(storage.join(self.place, "table.csv"), Curves.read([self.place]).csv().encode())

    def _answer(self, asked: TakenCheckpoint) -> None:
        uri = self._ask(self._config, asked)
        manifest = manifests.read(uri)
        if manifest is None:
            raise InternalError("the evaluation left no result", where=uri)
        metrics = metrics_of(EvaluateResult.from_manifest(manifest))
        says = asked.checkpoint.says
        steps, epochs = int(says.get("steps", 0)), says.get("epochs")
        result = {
            "run": self._run,
            "step": asked.step,
            "steps": steps,
            "tokens": says.get("watch", {}).get("tokens"),
            "epoch_fraction": epochs * asked.step / steps if epochs and steps else None,
            "content": asked.checkpoint.content,
            "fingerprint": manifest.fingerprint,
            "metrics": [list(metric) for metric in metrics],
        }
        target = storage.join(self.place, RESULTS, f"{asked.step:08}.json")
        self._store.write(target, canonical(result) + b"\n")
        storage.clear(storage.parent_of(asked.folder))
        self._tabulate()
        shown = ", ".join(f"{metric.metric} {metric.value:.4g}" for metric in metrics[:5] if metric.value is not None)
        event(f"evaluate: step {asked.step:,}: {shown}", step=asked.step, result=uri)


def ask_by_process(config: WatchConfig, asked: TakenCheckpoint) -> str:
    """Ask a checkpoint in a process of its own: that of ``pairmill evaluate``, whose memory is free after it."""
    if not config.serve:
        return start("evaluate", *arguments_of(config.asked_of(asked.folder)))
    with _exported(config, asked) as folder, served.running(config.serve, folder) as url:
        revision = f"server.revision='{asked.checkpoint.content[:16]}'"
        more = {"set": [*config.set, revision], "tokenizer": f"{folder}/tokenizer.json"}
        return start("evaluate", *arguments_of(config.asked_of(url, **more)))


@contextmanager
def _exported(config: WatchConfig, asked: TakenCheckpoint) -> Iterator[str]:
    """Export a checkpoint to a folder of this machine: beside it, or in scratch if it is in a bucket."""
    top = storage.parent_of(asked.folder)
    if storage.scheme(top) == "file":
        folder = storage.local_path(storage.join(top, "exported"))
    else:
        folder = scratch() / f"pairmill-{storage.name_of(storage.parent_of(storage.parent_of(top)))}" / "exported"
        own(folder.parent)
    shutil.rmtree(folder, ignore_errors=True)  # of a watcher that was killed
    tokenizer = [f"tokenizer={config.tokenizer}"] if config.tokenizer else []
    weights = f"weights={config.settings.net.weights}"
    start("train", "export", f"run={asked.folder}", f"output={folder}", weights, *tokenizer)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder if storage.scheme(top) == "file" else folder.parent, ignore_errors=True)
