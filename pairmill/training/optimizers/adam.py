"""AdamW and AdamATan2.

Sources: AdamW, arXiv 1711.05101, algorithm 2; its arc tangent in place of a division and an eps, arXiv 2407.05872,
section 4.3, here as HRM-Text has it: the correction of the first moment is outside the arc tangent.
"""

from typing import Final

import torch
from torch import Tensor

from pairmill.training.optimizers.optimizer import Part, Rule
from pairmill.training.settings import OptimizerSettings


def name_state(parameter: Tensor, settings: OptimizerSettings) -> tuple[str, ...]:
    """Name the state of a parameter: without beta1 there is no first moment."""
    return ("exp_avg", "exp_avg_sq") if settings.betas[0] else ("exp_avg_sq",)


def update_moments(part: Part) -> tuple[list[Tensor], list[Tensor]]:
    """Return the first moments (the state itself, uncorrected), and the corrected roots of the second ones (new)."""
    beta1, beta2 = part.settings.betas
    first = part.gradients
    if beta1:
        first = part.local_state("exp_avg")
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, part.gradients, alpha=1 - beta1)
    second = part.local_state("exp_avg_sq")
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, part.gradients, part.gradients, value=1 - beta2)
    roots = list(torch._foreach_sqrt(second))
    torch._foreach_div_(roots, [(1 - beta2**count) ** 0.5 for count in part.counts])
    return list(first), roots


def compute_rates(part: Part) -> list[float]:
    """Return minus the learning rate of each, divided by the correction of its first moment."""
    return [-part.lr / (1 - part.settings.betas[0] ** count) for count in part.counts]


def adam_atan2(part: Part) -> None:
    """Apply w ← w (1 - lr λ) - lr / (1 - β1^t) · atan2(m, √v / √(1 - β2^t)); atan2(0, 0) is 0."""
    part.decay()
    first, updates = update_moments(part)
    for moment, root in zip(first, updates, strict=True):
        torch.atan2(moment, root, out=root)
    torch._foreach_mul_(updates, compute_rates(part))
    torch._foreach_add_(part.weights, updates)


def adamw(part: Part) -> None:
    """Apply w ← w (1 - lr λ) - lr / (1 - β1^t) · m / (√v / √(1 - β2^t) + eps)."""
    part.decay()
    first, roots = update_moments(part)
    torch._foreach_add_(roots, part.settings.eps)
    updates = list(torch._foreach_div(first, roots))
    torch._foreach_mul_(updates, compute_rates(part))
    torch._foreach_add_(part.weights, updates)


ADAM_ATAN2: Final = Rule(name_state, adam_atan2)
ADAMW: Final = Rule(name_state, adamw)
