"""Watches a run: metrics.jsonl, TensorBoard, W&B and progress. Rank 0 alone does."""

from pairmill import log, storage
from pairmill.stages.train.data.rows import spans_of
from pairmill.stages.train.run import hardware
from pairmill.stages.train.run.state import Callback, RunState
from pairmill.stages.train.run.update import Update
from pairmill.stages.train.watch.records import LIVE, METRICS, OfSource, Record
from pairmill.stages.train.watch.watcher import About, Watcher


class Watching(Callback):
    """Records every step. It comes first: the lines of a step are in its order.

    Args:
        watcher: of rank 0; None on others.
    """

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher

    def on_step(self, state: RunState, update: Update) -> None:
        if self._watcher is None:
            return
        outlier = self._watcher.record(_record(state, update), update.before)
        if outlier is not None:
            rows = spans_of(state.job.inputs, state.settings, state.ranks.size, update.before)
            self._watcher.event(state.step, "outlier", **outlier, rows=rows)

    def on_end(self, state: RunState) -> None:
        if self._watcher is not None:
            self._watcher.event(state.step, "finished")


def announce(state: RunState) -> None:
    """Log what is trained on what, and what a person should know before."""
    settings, devices = state.settings, hardware.devices(state.ranks)
    for note in settings.notes(state.total):
        log.event(f"train: {note}")
    log.event(
        f"train: {state.name}, {state.parameters:,} parameters, {state.steps:,} steps of {settings.batch.tokens:,} "
        f"slots; {devices}, {str(state.precision).removeprefix('torch.')}, attention by {state.path}, {state.threads} "
        "threads a process",
        parameters=state.parameters,
        steps=state.steps,
        attention=state.path,
        threads=state.threads,
        ranks=state.ranks.size,
    )


def begin_watcher(state: RunState) -> Watcher:
    """Open the files of the run, and cut them back to where it goes on."""
    watch, resumed = state.settings.watch, state.resumed
    about = About(
        name=state.name,
        steps=state.steps,
        ranks=state.ranks.size,
        devices=hardware.devices(state.ranks),
        peak_flops=hardware.peak(state.ranks),
        settings=state.settings.to_manifest(),
    )
    watcher = Watcher(
        storage.join(state.job.folder, LIVE),
        about,
        every_steps=watch.every_steps,
        tensorboard=watch.tensorboard,
        wandb=watch.wandb,
    )
    if resumed is None:
        watcher.begin(0, {})
        return watcher
    run = storage.parent_of(storage.parent_of(resumed.folder))
    # A finished run has them with its files, in a folder that its record names.
    names = [LIVE, *(name for name in storage.store_for(run).folders(run) if name != LIVE)]
    earlier = [*(storage.join(run, name, METRICS) for name in names), storage.join(run, METRICS)]
    watcher.begin(resumed.step, dict(resumed.says["watch"]), earlier)
    return watcher


def _record(state: RunState, update: Update) -> Record:
    batch, result = update.batch, update.result
    (loss, labels), (right, _), (exact, rows) = result.loss, result.accuracy, result.exact_accuracy
    return Record(
        step=state.step,
        loss=loss / labels,
        accuracy=right / labels,
        exact_accuracy=exact / rows,
        lr=result.lr,
        grad_norm=result.grad_norm,
        tokens=batch.tokens,
        labels=labels,
        slots=batch.slots,
        flops=result.flops,
        b=result.b,
        memory_gb=hardware.memory_gb(state.ranks.device),
        skipped=not result.finite,
        sources={name: OfSource(*sums) for name, sums in result.sources.items()},
        seconds=update.seconds,
        wait_s=update.wait_s,
        at=state.position["sources"] if state.job.inputs.kind == "rows" else {},
    )
