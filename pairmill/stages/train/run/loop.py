"""A run from its newest checkpoint to its end.

Killed at any instant and started again, it ends with the same weights: to the bit on a CPU with as many ranks, but for
rounding with any number of them. A checkpoint has all that a step follows from: weights, optimizer, random numbers, the
position in the data, and counts.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from pairmill import storage
from pairmill.engine.writer import Writer
from pairmill.nets.batch import GlobalBatch
from pairmill.nets.trained import CHECKPOINTS
from pairmill.stages.train.data.feed import Feed
from pairmill.stages.train.run.build import build_state, find_checkpoint, resume
from pairmill.stages.train.run.callbacks.evaluation import Evaluation
from pairmill.stages.train.run.callbacks.recovery import Recovery
from pairmill.stages.train.run.callbacks.sampling import Sampling
from pairmill.stages.train.run.callbacks.saving import Saving
from pairmill.stages.train.run.callbacks.watching import Watching, announce, begin_watcher
from pairmill.stages.train.run.checkpoint import Checkpoints
from pairmill.stages.train.run.final import write_results
from pairmill.stages.train.run.job import Job, Outcome
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.signals import signals
from pairmill.stages.train.run.step import Stepper
from pairmill.stages.train.run.update import Update


def fit(job: Job, ranks: Ranks, out: Writer | None) -> Outcome:
    """Train to the end. All ranks call it; rank 0 gives ``out`` and writes the final files there.

    Raises:
        SystemExit: with :data:`STOPPED`, after SIGTERM or SIGUSR1 and a checkpoint; with 130 after Ctrl-C and one.
        InputError: a checkpoint is of another run; a batch has no label.
        StorageError: a checkpoint cannot be saved.
        Diverged: loss or gradient were not finite ten times in a row, twice.
    """
    with ExitStack() as stack:
        heard = stack.enter_context(signals())
        options = job.settings.checkpoints
        folder = storage.join(job.folder, CHECKPOINTS)
        checkpoints = Checkpoints(folder, ranks, keep=options.keep, asynchronous=options.asynchronous)
        resumed = find_checkpoint(job, ranks, checkpoints)
        ranks.agree("the run", {"key": job.key, "step": resumed.step if resumed else 0})

        state = build_state(job, ranks, resumed)
        feed = Feed(job.inputs, job.settings, ranks.rank, ranks.size, ranks.device)
        stack.callback(feed.close)
        resume(state, feed, checkpoints)
        stepper = Stepper(
            state.net,
            state.optimizer,
            job.settings,
            total=state.total,
            ranks=ranks,
            path=state.path,
            sources=job.inputs.sources,
            vocab_size=job.inputs.vocab_size,
        )
        watcher = None
        if ranks.rank == 0:
            announce(state)
            watcher = begin_watcher(state)
            stack.callback(watcher.close)
        callbacks = (
            Watching(watcher),
            Recovery(checkpoints, watcher),
            Evaluation(watcher),
            Sampling(watcher),
            Saving(checkpoints, heard, watcher),
        )

        for item in _look_ahead(feed):
            begun = time.monotonic()
            with ranks.together(f"step {state.step + 1}"):
                result = stepper.step(state.step + 1, item.batch)
            state.step += 1
            before, state.position = state.position, item.position
            seconds = time.monotonic() - begun + item.wait_s
            update = Update(item.batch, result, item.last, seconds, item.wait_s, before)
            state.counts.add(update, feed.left)
            for callback in callbacks:
                callback.on_step(state, update)
        for callback in callbacks:
            callback.on_end(state)
        return write_results(state, watcher, out)


class _Item(NamedTuple):
    """A batch, the loader's position after it, whether it is the last one, and seconds of waiting for the next one."""

    batch: GlobalBatch
    position: dict[str, Any]
    last: bool
    wait_s: float


def _look_ahead(feed: Feed) -> Iterator[_Item]:
    """Yield batches, each drawn one step ahead: so the last one is known."""
    batches = feed.batches()
    upcoming = next(batches, None)
    while upcoming is not None:
        batch, position, begun = upcoming, feed.state_dict(), time.monotonic()
        upcoming = next(batches, None)
        yield _Item(batch, position, upcoming is None, time.monotonic() - begun)
