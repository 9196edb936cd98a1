"""Initial weights: each tensor follows from the seed and its name alone."""

import hashlib

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from pairmill.nets.net import Net

WRAPPED_STD = 1.014762601732121
"""1 / the standard deviation of fmod(z, 3), for z normal."""


def draw(seed: int, name: str, shape: torch.Size, *, wrapped: bool) -> Tensor:
    """Draw a tensor of unit standard deviation, float32 on the CPU, that follows from seed, name and shape.

    Args:
        seed: of the run.
        name: of the tensor in the state of the net.
        shape: of the whole tensor.
        wrapped: a draw beyond three standard deviations wraps round to its remainder, as in HRM-Text.
    """
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    drawn = torch.randn(shape, generator=generator)
    return drawn.fmod_(3).mul_(WRAPPED_STD) if wrapped else drawn


@torch.no_grad()
def initialise(net: Net, seed: int, dtype: torch.dtype = torch.float32) -> None:
    """Give all parameters and buffers their initial values.

    Each tensor is drawn whole, on the CPU, by a generator whose seed is a sha256 of ``seed`` and its name. A rank of
    FSDP2 keeps its part of it. So neither the number of ranks, nor the device, nor other parameters change a value.

    Args:
        net: with memory (after ``to_empty``), sharded or not.
        seed: of the run.
        dtype: of the parameters. Values are drawn in float32.
    """
    for path, module in net.named_modules():
        for short, held in module.named_parameters(recurse=False):
            # An assignment to ``data`` keeps the parameter that an optimizer may hold.
            if held.dtype != dtype:
                held.data = held.data.to(dtype)
            if module.std is None:
                held.fill_(1)
                continue
            name = f"{path}.{short}"
            whole = draw(seed, name, held.shape, wrapped=net.wrapped).mul_(module.std).to(dtype)
            if isinstance(held, DTensor):
                # No rank sends its own: all have drawn the same.
                whole = distribute_tensor(whole.to(held.device), held.device_mesh, held.placements, src_data_rank=None)
            held.copy_(whole)
        for short, held in module.named_buffers(recurse=False):
            held.copy_(draw(seed, f"{path}.{short}", held.shape, wrapped=True))
