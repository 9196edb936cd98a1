"""What a run computes on: devices, precision, threads, memory."""

import resource
import sys

import torch

from pairmill.cpu import available_cores
from pairmill.nets import cost
from pairmill.stages.train.run.parallel import Ranks


def settle(threads: int, ranks: Ranks) -> int:
    """Make this process compute the same bits every time, as far as its device can.

    Args:
        threads: of a process; 0 = its share of the cores.
        ranks: all processes.

    Returns:
        The number of threads, of which the bits of sums follow on a CPU.
    """
    count = threads or max(1, available_cores() // ranks.on_machine)
    torch.set_num_threads(count)
    if ranks.device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        # All memory is written before it is read; filling it first would take a tenth of the time.
        torch.utils.deterministic.fill_uninitialized_memory = False
    return count


def precision(asked: str, device: torch.device) -> torch.dtype:
    """Choose the type of activations: auto is bfloat16 on a GPU, float32 on a CPU."""
    if asked == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    result: torch.dtype = getattr(torch, asked)
    return result


def devices(ranks: Ranks) -> str:
    """Name what all processes run on, such as ``8 x NVIDIA H100``; all have the same device."""
    name = torch.cuda.get_device_name(ranks.device) if ranks.device.type == "cuda" else "CPU"
    return name if ranks.size == 1 else f"{ranks.size} x {name}"


def peak(ranks: Ranks) -> float:
    """Return FLOP/s of all devices together; 0 = not known."""
    result = cost.peak(torch.cuda.get_device_name(ranks.device)) if ranks.device.type == "cuda" else None
    return (result or 0.0) * ranks.size


def memory_gb(device: torch.device) -> float:
    """Return the most memory so far, 10^9 bytes: of the device, or resident on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device)) / 1e9
    # Of Linux in KiB, of macOS in bytes.
    result = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return result / 1e9
