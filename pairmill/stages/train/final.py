"""The files of a finished run: whole tensors, and a digest of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pairmill.engine.manifest import canonical
from pairmill.stages.train import parallel
from pairmill.stages.train.trained import EMA, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from pairmill.engine.writer import Writer
    from pairmill.stages.train.data import Inputs
    from pairmill.stages.train.nets import Net
    from pairmill.stages.train.optimizers import Optimizer
    from pairmill.stages.train.parallel import Ranks
    from pairmill.stages.train.settings import ModelSettings


def weights(net: Net, optimizer: Optimizer, ranks: Ranks) -> dict[str, Tensor]:
    """The whole weights and buffers, on the CPU; on ranks but 0 they are empty. All ranks call it."""
    return dict(parallel.whole({**optimizer.parameters, **dict(net.named_buffers())}, ranks))


def plain(weights: Mapping[str, Tensor], model: ModelSettings, inputs: Inputs) -> Net:
    """A whole net with these weights, on the CPU, that no rank shares."""
    from pairmill.stages.train.nets import build

    net = build(model, inputs.vocab_size, inputs.positions)
    net.load_state_dict(weights)
    net.eval().requires_grad_(False)
    return net


def tensors(net: Net, optimizer: Optimizer, ranks: Ranks) -> dict[str, dict[str, Tensor]]:
    """The whole tensors of each file, on the CPU: those of rank 0; of others nothing. All ranks call it."""
    averaged = {name: one["param_ema"] for name, one in optimizer.state.items() if "param_ema" in one}
    found = {WEIGHTS: weights(net, optimizer, ranks), EMA: dict(parallel.whole(averaged, ranks))}
    return {file: found[file] for file in found if found[file]} if ranks.rank == 0 else {}


def digest(files: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Hexadecimal sha256 over names, dtypes, shapes and bytes of all tensors, whatever files they are in."""
    import torch

    made = hashlib.sha256()
    for file, found in sorted(files.items()):
        for name, one in sorted(found.items()):
            made.update(canonical([file.partition(".")[0], name, str(one.dtype), list(one.shape)]))
            made.update(one.contiguous().reshape(-1).view(torch.uint8).numpy())
    return made.hexdigest()


def write(files: Mapping[str, Mapping[str, Tensor]], out: Writer) -> None:
    """Write them."""
    from safetensors.torch import save_file

    for file, found in files.items():
        with out.create(file) as path:
            save_file({name: one.contiguous() for name, one in found.items()}, path, metadata={"format": "pt"})
