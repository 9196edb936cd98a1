"""Goes back to a checkpoint, once, after ten updates in a row that were not finite."""

from typing import Final

from pairmill import log
from pairmill.stages.train.run.checkpoint import Checkpoints, restore
from pairmill.stages.train.run.job import Diverged
from pairmill.stages.train.run.state import Callback, RunState
from pairmill.stages.train.run.update import Counts, Update
from pairmill.stages.train.watch.watcher import Watcher

_IN_A_ROW: Final = 10


class Recovery(Callback):
    """Undoes updates that led nowhere.

    Args:
        checkpoints: of the run.
        watcher: of rank 0; None on others.
    """

    def __init__(self, checkpoints: Checkpoints, watcher: Watcher | None) -> None:
        self._checkpoints, self._watcher = checkpoints, watcher

    def on_step(self, state: RunState, update: Update) -> None:
        counts = state.counts
        if counts.bad < _IN_A_ROW:
            return
        # The weights of the last good step led here, so a checkpoint before it is taken.
        result = None if counts.went_back else self._checkpoints.newest(before=state.step - counts.bad)
        if result is None:
            why = "also after going back to a checkpoint" if counts.went_back else "and no checkpoint is older"
            loss, labels = update.result.loss
            raise Diverged(
                f"loss or gradient were not finite in {_IN_A_ROW} steps in a row, {why}",
                where=f"step {state.step}",
                got=f"loss {loss / labels}, gradient norm {update.result.grad_norm}",
                hint="lower optimizer.lr, set optimizer.clip, or a longer schedule.warmup_steps",
            )
        self._checkpoints.wait()
        restore(self._checkpoints, result, state.net, state.optimizer)
        undone = counts.trained - Counts(**result.says["counts"]).trained
        counts.trained -= undone
        counts.rolled_back += undone
        counts.went_back, counts.bad = True, 0
        says = {"to_step": result.step, "rows_undone": undone, "rows_not_finite": counts.not_finite}
        if self._watcher is not None:
            self._watcher.event(state.step, "rolled_back", **says)
            log.event(
                f"train: step {state.step}: loss or gradient were not finite {_IN_A_ROW} times in a row; weights and "
                f"optimizer go back to step {result.step}, data and schedule go on; {undone:,} rows are undone",
                **says,
            )
