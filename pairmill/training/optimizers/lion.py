"""Lion, arXiv 2302.06675, algorithm 2."""

from typing import Final

import torch

from pairmill.training.optimizers.optimizer import Part, Rule


def lion(part: Part) -> None:
    """Apply w ← w (1 - lr λ) - lr · sign(β1 m + (1 - β1) g), then m ← β2 m + (1 - β2) g."""
    part.decay()
    beta1, beta2 = part.settings.betas
    mean = part.local_state("exp_avg")
    signs = list(torch._foreach_lerp(mean, part.gradients, 1 - beta1))
    torch._foreach_sign_(signs)
    torch._foreach_add_(part.weights, signs, alpha=-part.lr)
    torch._foreach_lerp_(mean, part.gradients, 1 - beta2)


LION: Final = Rule(lambda *_: ("exp_avg",), lion)
