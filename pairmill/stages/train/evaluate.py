"""Held-out loss, by source: every row of the held-out data, or a fixed part of them, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pairmill.errors import InputError
from pairmill.stages.train.watch.records import HeldOut as Losses

if TYPE_CHECKING:
    from pairmill.stages.train.batch import Packed
    from pairmill.stages.train.data import HeldOut
    from pairmill.stages.train.data.feed import Microbatch
    from pairmill.stages.train.nets import Net, Sees
    from pairmill.stages.train.parallel import Ranks
    from pairmill.stages.train.settings import TrainSettings

TOGETHER = 1024
"""Labels whose logits are held at a time: 256 MiB for 65,536 ids in float32."""


def held_out_loss(
    net: Net, sees: Callable[[Packed], Sees], held_out: HeldOut, settings: TrainSettings, ranks: Ranks
) -> Losses:
    """The mean loss of a labelled token over the held-out rows, at most ``evaluation.rows`` of them, always the same.

    It is that of the weights that the net has now: exchange them with the EMA and call it again for both. All ranks
    call it, and all get the same.

    Args:
        net: which may be sharded.
        sees: makes the attention of a batch.
        held_out: what to evaluate on.
        settings: of the run.
        ranks: of the run.

    Raises:
        InputError: no row has a label.
    """
    slots = settings.batch.tokens // (ranks.size * settings.batch.accumulate)
    sums = np.zeros((2, len(held_out.sources)))
    with torch.no_grad():
        for batch in held_out.batches(settings.evaluation.rows, slots, ranks.rank, ranks.size, ranks.device):
            _add(sums, net, sees, batch)
    loss, labels = ranks.sum(torch.from_numpy(sums).to(ranks.device)).cpu().numpy()
    if not labels.sum():
        raise InputError("no held-out row has a label", where="held_out", got=", ".join(held_out.sources))
    by_source = {
        name: float(total / count) for name, total, count in zip(held_out.sources, loss, labels, strict=True) if count
    }
    return Losses(float(loss.sum() / labels.sum()), int(labels.sum()), by_source)


def _add(sums: NDArray[np.float64], net: Net, sees: Callable[[Packed], Sees], batch: Microbatch) -> None:
    packed = batch.packed
    # All ranks compute this, also one whose batch has no label.
    y = net(packed, sees(packed))
    for some in packed.labelled().split(TOGETHER):
        losses = functional.cross_entropy(net.logits(y[some]), packed.labels[some], reduction="none")
        numbers, exact = batch.sources[some].cpu().numpy(), losses.double().cpu().numpy()
        # Added up in float64 and in the order of the slots, so that sums do not depend on the device's.
        sums[0] += np.bincount(numbers, exact, sums.shape[1])
        sums[1] += np.bincount(numbers, minlength=sums.shape[1])
