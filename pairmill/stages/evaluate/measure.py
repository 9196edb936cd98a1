"""The losses of held-out rows, by torch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pairmill.loader.held_out import HeldOutRows
from pairmill.nets import attention
from pairmill.nets.batch import Microbatch, read_held_out

_TOGETHER = 1024
"""Labels whose logits are held at a time."""


def measure_rows(
    net: Any, held: HeldOutRows, rows: int, slots: int, sizes: NDArray[np.int64], kind: Any, *, causal: bool
) -> NDArray[Any]:
    """Return a row of ``kind`` (source, tokens, bytes, loss) of each row that is measured, in their order.

    Args:
        net: on its device.
        held: held-out rows.
        rows: how many of them; 0 = all.
        slots: tokens of a batch.
        sizes: bytes that each token writes; int64 [vocabulary].
        kind: dtype of the result.
        causal: whether prompts see only what is before them.
    """
    device = next(net.parameters()).device
    path = attention.choose("auto", device, next(net.parameters()).dtype)
    parts = []
    with torch.inference_mode():
        for batch in read_held_out(held, rows, slots, device):
            sees = attention.sees(batch.packed, causal=causal, path=path)
            parts.append(_measure(net, sees, batch, sizes, kind))
    return np.concatenate(parts)


def _measure(net: Any, sees: Any, batch: Microbatch, sizes: NDArray[np.int64], kind: Any) -> NDArray[Any]:
    packed = batch.packed
    starts: Sequence[int] = packed.starts
    made = np.zeros(len(starts) - 1, kind)
    y = net(packed, sees)
    for some in packed.labelled().split(_TOGETHER):
        labels = packed.labels[some]
        losses = functional.cross_entropy(net.logits(y[some]), labels, reduction="none").double().cpu().numpy()
        row = np.searchsorted(np.array(starts), some.cpu().numpy(), side="right") - 1
        made["loss"] += np.bincount(row, losses, len(made))
        made["tokens"] += np.bincount(row, minlength=len(made)).astype(np.int32)
        made["bytes"] += np.bincount(row, sizes[labels.cpu().numpy()], len(made)).astype(np.int64)
    made["source"] = batch.sources[list(starts[:-1])].cpu().numpy()
    return made
