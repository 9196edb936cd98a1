"""Answers the prompts of the settings at the end, with the current weights."""

from pairmill.stages.train.run.state import Callback, RunState
from pairmill.stages.train.run.update import Update
from pairmill.stages.train.samples import answer_prompts
from pairmill.stages.train.watch.watcher import Watcher


class Sampling(Callback):
    """Writes texts after the last step. All ranks gather the weights; rank 0 answers.

    Args:
        watcher: of rank 0; None on others.
    """

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher

    def on_step(self, state: RunState, update: Update) -> None:
        evaluation, inputs = state.settings.evaluation, state.job.inputs
        if not update.last or not evaluation.prompts or inputs.tokenizer is None:
            return
        weights = state.gather_weights()
        if self._watcher is not None:
            net = state.build_whole(weights).to(state.ranks.device, state.precision)
            causal = state.settings.model.causal
            samples = answer_prompts(net, evaluation, inputs.tokenizer, state.job.tokenizer_info, causal)
            self._watcher.sample(state.step, samples)
