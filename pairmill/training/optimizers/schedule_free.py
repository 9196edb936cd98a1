"""Schedule-free AdamW, arXiv 2405.15682, algorithm 1, as KempnerForge has it.

Decay comes after the step, and the weights of the mean are the learning rates.
"""

from typing import Final

import torch

from pairmill.training.optimizers.optimizer import Part, Rule


def schedule_free_adamw(part: Part) -> None:
    """Apply z ← (z - lr · g / (√v / √(1 - β2^t) + eps)) (1 - lr λ), and w = β1 x + (1 - β1) z.

    x, the mean of all z weighed by their lr, is in the place of the EMA; z is the state ``base``. Gradients are at w.
    """
    beta1, beta2 = part.settings.betas
    second, base, mean = (part.local_state(name) for name in ("exp_avg_sq", "base", "param_ema"))
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, part.gradients, part.gradients, value=1 - beta2)
    roots = list(torch._foreach_sqrt(second))
    torch._foreach_div_(roots, [(1 - beta2**count) ** 0.5 for count in part.counts])
    torch._foreach_add_(roots, part.settings.eps)
    torch._foreach_addcdiv_(base, part.gradients, roots, value=-part.lr)
    decaying = [z for z, decays in zip(base, part.decays, strict=True) if decays]
    if decaying:
        torch._foreach_mul_(decaying, 1 - part.lr * part.settings.weight_decay)
    for weight, z, x, total in zip(part.weights, base, mean, part.sums, strict=True):
        x.lerp_(z, part.lr / total if total else 0.0)
        torch.lerp(x, z, 1 - beta1, out=weight)


SCHEDULE_FREE_ADAMW: Final = Rule(lambda *_: ("exp_avg_sq", "base", "param_ema"), schedule_free_adamw)
