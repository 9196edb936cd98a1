"""What a training has left from a saved position on: micro-batches, steps, and what is left over, all counted."""

import json
from collections.abc import Mapping
from typing import Any

from pairmill import storage
from pairmill.errors import UsageError
from pairmill.loader import sidecar
from pairmill.loader.plan import World
from pairmill.loader.row_plan import RowPlan
from pairmill.loader.steps import count_steps
from pairmill.report.model import Percent, Report, Table
from pairmill.stages.sample.inspect.config import InspectConfig


def report_left(plan: RowPlan, world: World, config: InspectConfig) -> Report:
    """Count what is left of a plan of one folder, from its beginning without ``state``.

    Raises:
        UsageError: the file is not a saved position.
        InputError: it was saved with other data, or such ranks cannot read the folder.
        StorageError: it cannot be read.
    """
    state = _read(config.state) if config.state else plan.state(plan.begin())
    position = sidecar.position(plan, world, state)
    left, progress, k = (
        count_steps(plan, position, world, config.accumulate),
        plan.progress(position),
        config.accumulate,
    )
    step = state["step"] if "step" in state else position.batches // k
    epochs = len(plan.folders[0].epochs)
    estimate = plan.folders[0].metadata.total_steps(epochs, world.batch_tokens * k)
    return Report(
        "inspect",
        {
            "Epochs read": round(progress.epochs, 4),
            "Row": f"{progress.row:,} of {progress.rows:,} of epoch {progress.epoch}",
            "Of the epoch": Percent(progress.fraction),
            "Micro-batches left": left.micro_batches,
            "Steps left": left.steps,
            "Micro-batches left over": left.left_over,
            "Steps before": step,
            "Steps at the end": step + left.steps,
            "Steps at the end, HRM-Text's estimate": estimate,
            "Micro-batches of a step": k,
            "Ranks": world.ranks,
            "Slots of a rank": world.slots,
        },
        [
            Table(
                "Left by epoch",
                ("Epoch", "Micro-batches", "Steps", "Micro-batches left over"),
                [(f"epoch_{epoch}", count, count // k, count % k) for (_, epoch), count in left.epochs.items()],
                "A step does not take micro-batches of two epochs.",
            )
        ],
        verdict=f"{progress.epochs:.4f} of {epochs} epochs are read. {left.micro_batches:,} micro-batches are left: "
        f"{left.steps:,} steps of {k}, and {left.left_over:,} left over. The last step is {step + left.steps:,}.",
    )


def _read(given: str) -> Mapping[str, Any]:
    """Read a file with a saved position; of a checkpoint of train, what it says of its data."""
    uri = storage.normalise(given, "state")
    try:
        state = json.loads(storage.store_for(uri).read(uri))
        return dict(state["says"]["feed"] if "says" in state else state)
    except (ValueError, TypeError, KeyError) as error:
        expected = "JSON of a loader's state, of a checkpoint's record or of checkpoint_state_<tag>.json"
        raise UsageError("not a saved position", where=f"state={given}", got=str(error), expected=expected) from None
