"""Held-out loss, by source: every row of the held-out data, or a fixed part of them, once."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pairmill.errors import InputError
from pairmill.loader.held_out import HeldOut
from pairmill.nets.batch import Microbatch, Packed, read_held_out
from pairmill.nets.net import Net, Sees
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.watch.records import HeldOut as Losses
from pairmill.training.settings import TrainSettings

TOGETHER = 1024
"""Labels whose logits are held at a time: 256 MiB for 65,536 ids in float32."""


def compute_held_out_loss(
    net: Net, sees: Callable[[Packed], Sees], held_out: HeldOut, settings: TrainSettings, ranks: Ranks
) -> Losses:
    """Compute the mean loss of a labelled token over at most ``evaluation.rows`` held-out rows, always the same ones.

    It is that of the weights that the net has now: exchange them with the EMA and call it again for both. All ranks
    call it, and all get the same.

    Args:
        net: which may be sharded.
        sees: makes the attention of a batch.
        held_out: what to evaluate on.
        ranks: of the run.

    Raises:
        InputError: no row has a label.
    """
    slots = settings.batch.tokens // (ranks.size * settings.batch.accumulate)
    sums = np.zeros((2, len(held_out.sources)))
    with torch.no_grad():
        for batch in read_held_out(held_out, settings.evaluation.rows, slots, ranks.device, ranks.rank, ranks.size):
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
    for slots in packed.labelled().split(TOGETHER):
        losses = functional.cross_entropy(net.logits(y[slots]), packed.labels[slots], reduction="none")
        numbers, exact = batch.sources[slots].cpu().numpy(), losses.double().cpu().numpy()
        # Added up in float64 and in the order of the slots, so that sums do not depend on the device's.
        sums[0] += np.bincount(numbers, exact, sums.shape[1])
        sums[1] += np.bincount(numbers, minlength=sums.shape[1])
