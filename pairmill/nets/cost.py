"""What a net costs: parameters, FLOPs, memory, and the share of a GPU's peak that a rate is. No torch."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import StackShape, calls, recorded_calls, stacks

PEAKS: Final = {
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "H800": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10G": 125e12,
    "4090": 330e12,
    "3090": 142e12,
}
"""FLOP/s of dense bfloat16, by a part of the GPU's name; the first that fits counts."""


def _width(made: Mapping[str, StackShape]) -> int:
    """Return the width of the residual stream: all stacks have the same."""
    return next(iter(made.values())).width


def parameters(model: ModelSettings, vocab_size: int) -> int:
    """Count trained weights, embedding and head included."""
    made = stacks(model)
    width = _width(made)
    blocks = sum(stack.layers * stack.block_parameters for stack in made.values())
    return blocks + model.kind.norms(model) + vocab_size * width * (1 if model.tied else 2)


def _pairs(starts: Sequence[int], prefixes: Sequence[int]) -> int:
    """Count the pairs of slots of which one sees the other: p² + pq + q(q + 1)/2, summed over rows of p + q slots."""
    total = 0
    for (start, end), prefix in zip(pairwise(starts), prefixes, strict=True):
        rest = end - start - prefix
        total += prefix * prefix + prefix * rest + rest * (rest + 1) // 2
    return total


def flops(
    model: ModelSettings,
    vocab_size: int,
    starts: Sequence[int],
    prefixes: Sequence[int],
    labels: int,
    steps: int | None = None,
) -> float:
    """Count FLOPs of training on a batch, forward and backward: what the rows need, whatever path computes it.

    A call costs twice its weights for each token, and twice that again backward where it is differentiated; attention
    four times the width for each pair of slots.

    Args:
        vocab_size: V.
        starts: of the rows (:class:`~pairmill.nets.batch.Packed`).
        prefixes: of the rows; zeros where attention is causal.
        labels: positions that the head runs on.
        steps: of hrm: differentiated calls.
    """
    tokens, pairs = starts[-1], _pairs(starts, [0] * len(prefixes) if model.causal else prefixes)
    forward, backward, made = calls(model), recorded_calls(model, steps), stacks(model)
    blocks = sum(
        stack.layers
        * (2 * tokens * stack.block_parameters + 4 * pairs * stack.width)
        * (forward[letter] + 2 * backward[letter])
        for letter, stack in made.items()
    )
    return float(blocks + 6 * vocab_size * _width(made) * labels)


def memory(
    model: ModelSettings, vocab_size: int, slots: int, labels: int, *, ranks: int = 1, half: bool = False
) -> int:
    """Estimate the bytes that a rank needs: weights, gradients, optimizer and activations. Workspaces are not counted.

    Args:
        model: the settings, with the largest number of differentiated calls.
        vocab_size: V.
        slots: of this rank.
        labels: of these, positions that the head runs on.
        ranks: that share weights and optimizer (FSDP2).
        half: activations, and the weights that compute them, are bfloat16.
    """
    weights, size = parameters(model, vocab_size), 2 if half else 4
    # float32: the weight, its gradient, two moments, their average.
    held = 5 * 4 * weights // ranks + (size * weights if half or ranks > 1 else 0)
    backward = recorded_calls(model, model.bp_max)
    per_slot = sum(
        stack.layers * backward[letter] * (_SAVED_WIDTHS * stack.width + _SAVED_FEEDS * stack.feed)
        for letter, stack in stacks(model).items()
    )
    # Logits in the type of the activations and as float32, and the gradient of each.
    return held + size * slots * per_slot + 2 * (size + 4) * labels * vocab_size


_SAVED_WIDTHS: Final = 13
_SAVED_FEEDS: Final = 4
"""Numbers that a differentiated block keeps for each slot, in units of h and of f; a test counts them."""


def peak(gpu: str) -> float | None:
    """Return FLOP/s of a GPU by its name as the driver gives it; None if it is not known."""
    return next((rate for name, rate in PEAKS.items() if name in gpu), None)


def utilisation(flops_per_second: float, gpu: str, gpus: int) -> float | None:
    """Return the share of the peak of all GPUs (MFU); None if the GPU is not known."""
    most = peak(gpu)
    return None if most is None else flops_per_second / (most * gpus)


def flops_per_token(model: ModelSettings, vocab_size: int, length: int) -> int:
    """Return KempnerForge's estimate for llama: windows of one document, the head on all positions."""
    (stack,) = stacks(model).values()
    weights = stack.layers * stack.block_parameters + vocab_size * stack.width
    return 6 * weights + 12 * stack.layers * stack.width * length
