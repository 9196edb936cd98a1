"""The device of a process."""

from typing import Any

import torch

from pairmill.errors import UsageError


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Choose a process's device.

    Args:
        name: cpu, cuda, or auto: a GPU if there is one.
        local_rank: number of the process on its machine; each has a GPU of its own.

    Raises:
        UsageError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise UsageError(
            "no such device",
            where=f"device={name}",
            got=f"{torch.cuda.device_count()} GPUs, and this is process {local_rank} of its machine",
            expected="a GPU for each process",
            hint="start fewer processes, or give device=cpu",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def place(net: Any, device: str, precision: str) -> Any:
    """Move a net, or a tensor, to a device, in the precision that names a dtype of torch.

    Raises:
        UsageError: there is no such device.
    """
    return net.to(choose_device(device), dtype_of(precision))


def dtype_of(precision: str) -> torch.dtype:
    """Return the dtype of torch with this name, such as float32."""
    dtype: torch.dtype = getattr(torch, precision)
    return dtype
