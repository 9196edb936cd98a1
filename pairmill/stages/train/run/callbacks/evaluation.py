"""Computes the loss of held-out rows, of the weights and of their average."""

from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.net import Sees
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.held_out import compute_held_out_loss
from pairmill.stages.train.run.state import Callback, RunState
from pairmill.stages.train.run.update import Update
from pairmill.stages.train.watch.records import HeldOut as Losses
from pairmill.stages.train.watch.watcher import Watcher


class Evaluation(Callback):
    """Evaluates every ``evaluation.every_steps`` steps and at the end, if there are held-out rows.

    Args:
        watcher: of rank 0; None on others.
    """

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher

    def on_step(self, state: RunState, update: Update) -> None:
        every = state.settings.evaluation.every_steps
        if state.job.inputs.held_out is None or not (update.last or (every and state.step % every == 0)):
            return
        current, averaged = _compute(state), None
        if state.optimizer.averages:
            _swap(state)
            averaged = _compute(state)
            _swap(state)
        if self._watcher is not None:
            self._watcher.evaluated(state.step, current, averaged)


def _swap(state: RunState) -> None:
    """Exchange weights and their average."""
    state.optimizer.swap_ema()
    parallel.reshard(state.net)


def _compute(state: RunState) -> Losses:
    def sees(packed: Packed) -> Sees:
        return attention.sees(packed, causal=state.settings.model.causal, path=state.path)

    held_out = state.job.inputs.held_out
    assert held_out is not None
    with state.ranks.together("the held-out loss"):
        return compute_held_out_loss(state.net, sees, held_out, state.settings, state.ranks)
