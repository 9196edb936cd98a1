"""Saves checkpoints by steps, by time and at the end, and ends the run after a signal."""

import time
from collections.abc import Sequence
from dataclasses import asdict

from pairmill import log
from pairmill.interface.interrupt import INTERRUPTED
from pairmill.nets.trained import TOKENIZER
from pairmill.stages.train.data.steps import epochs_of
from pairmill.stages.train.run.checkpoint import Checkpoints, state_of
from pairmill.stages.train.run.job import STOPPED
from pairmill.stages.train.run.state import Callback, RunState
from pairmill.stages.train.run.update import Update
from pairmill.stages.train.watch.watcher import Watcher
from pairmill.training.schedules import saves_at


class Saving(Callback):
    """Saves. It comes last: a checkpoint has what the callbacks before it wrote.

    Args:
        checkpoints: of the run.
        heard: names of the signals that came.
        watcher: of rank 0; None on others.
    """

    def __init__(self, checkpoints: Checkpoints, heard: Sequence[str], watcher: Watcher | None) -> None:
        self._checkpoints, self._heard, self._watcher = checkpoints, heard, watcher
        self._clock = time.monotonic()

    def on_step(self, state: RunState, update: Update) -> None:
        minutes = state.settings.checkpoints.every_minutes
        due = bool(minutes) and time.monotonic() - self._clock >= minutes * 60
        flags = bool(self._heard), self._checkpoints.failed, due and state.ranks.rank == 0
        stop, failed, due = state.ranks.any(*flags)
        if failed:
            self._checkpoints.wait()
        # In a streak of updates that are left out, older checkpoints are what it may go back to.
        if update.last or stop or (not state.counts.bad and (due or saves_at(state.settings, state.step))):
            self._save(state)
        if stop:
            self._stop(state)

    def on_end(self, state: RunState) -> None:
        self._checkpoints.wait()

    def _save(self, state: RunState) -> None:
        tensors, numbers = state_of(state.net, state.optimizer)
        if self._watcher is not None:
            self._watcher.sync()
        says = {
            "run": state.job.key,
            "identity": state.job.identify(state.ranks.size),
            "total": state.total,
            "steps": state.steps,
            "epochs": epochs_of(state.job.inputs, state.settings),
            "threads": state.threads,
            "ranks": state.ranks.size,
            "optimizer": numbers,
            "feed": state.position,
            "counts": asdict(state.counts),
            "watch": self._watcher.state() if self._watcher is not None else {},
            "trained": state.describe().to_json(),
        }
        tokenizer = state.job.inputs.tokenizer
        self._checkpoints.save(state.step, tensors, says, {TOKENIZER: tokenizer} if tokenizer is not None else {})
        self._clock = time.monotonic()

    def _stop(self, state: RunState) -> None:
        self._checkpoints.wait()
        code = INTERRUPTED if self._heard[:1] == ["SIGINT"] else STOPPED
        if self._watcher is not None:
            self._watcher.event(state.step, "stopped", signal=self._heard[0] if self._heard else "")
            self._watcher.end()
            log.event(
                f"train: stopped after step {state.step:,} of {state.steps:,}; a checkpoint is saved, and the same "
                "command goes on",
                step=state.step,
                exit_code=code,
            )
        raise SystemExit(code)
