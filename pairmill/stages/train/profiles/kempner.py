"""KempnerForge's numbers, its defects, and what it alone has: optimizers, shapes of the schedule, early checkpoints.

Not reproduced: weights in bfloat16 (ours are float32), and chunked loss, which is the same number.

Sources: Lion, arXiv 2302.06675, algorithm 2. Muon: Jordan et al. 2024, kellerjordan.github.io/posts/muon, here with
plain momentum. Schedule-free AdamW, arXiv 2405.15682, algorithm 1, here with decay after the step, and a mean whose
weights are the learning rates.

torch is imported by the optimizers alone: settings are read without it.
"""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

    from pairmill.stages.train.optimizers import Part
    from pairmill.stages.train.settings import OptimizerSettings

QUIRKS: Final = frozenset({"rate_from_zero", "z_loss_everywhere", "mean_of_means", "evaluation_across_documents"})

DEFAULTS: Final[dict[str, Any]] = {
    "model": {"net": "llama"},
    "optimizer": {
        "name": "adamw",
        "lr": 3e-4,
        "betas": [0.9, 0.95],
        "eps": 1e-8,
        "weight_decay": 0.1,
        "decay": "matrices",
        "clip": 1.0,
    },
    "schedule": {"shape": "cosine", "warmup_steps": 2000, "min_ratio": 0.1, "wsd_decay": "cosine"},
    "training": {"ema": "off"},
    "checkpoints": {"every_steps": 1000, "every_minutes": 0.0, "keep": 3},
    "watch": {"every_steps": 10},
}


def factor(
    step: int,
    total: int,
    shape: str,
    *,
    warmup: int,
    least: float,
    stable: int = 0,
    decay: int | None = None,
    wsd_decay: str = "cosine",
    alpha: float = 1.0,
) -> float:
    """The factor of the learning rate at an update from 1. The first one of a warm-up is 0.

    Args:
        step: the update.
        total: updates of the run.
        shape: constant, cosine, linear, sqrt, rex, wsd or none.
        warmup: updates.
        least: factor at the end.
        stable: of wsd, updates at 1 after the warm-up.
        decay: updates of the descent; None = the rest.
        wsd_decay: the shape of wsd's descent.
        alpha: exponent of rex.
    """
    done = step - 1
    if shape == "none":
        return 1.0
    if done < warmup:
        return done / warmup
    if shape == "constant":
        return 1.0
    stable = stable if shape == "wsd" else 0
    left = max(1, total - warmup - stable) if decay is None else decay
    x = min(1.0, max(0.0, (done - warmup - stable) / left))
    match wsd_decay if shape == "wsd" else shape:
        case "cosine":
            return least + 0.5 * (1 - least) * (1 + cos(pi * x))
        case "linear":
            return 1 - (1 - least) * x
        case "sqrt":
            return least + (1 - least) * sqrt(1 - x)
        case _:
            return max(least, float((1 - x) ** alpha))


def saves_early(step: int, first: int, last: int) -> bool:
    """Whether a step from ``first`` to ``last`` is kept: the first, and a power of two after it."""
    after = step - first
    return first <= step <= last and after & (after - 1) == 0


def z_loss(logits: Tensor) -> Tensor:
    """The mean of the squared logarithm of the normaliser over all positions, those without a label too.

    Args:
        logits: float32 [..., V].
    """
    return logits.logsumexp(-1).square().mean()


def lion(part: Part) -> None:
    """w ← w (1 - lr λ) - lr · sign(β1 m + (1 - β1) g), then m ← β2 m + (1 - β2) g."""
    import torch

    part.decay()
    beta1, beta2 = part.settings.betas
    mean = part.of("exp_avg")
    signs = list(torch._foreach_lerp(mean, part.gradients, 1 - beta1))
    torch._foreach_sign_(signs)
    torch._foreach_add_(part.weights, signs, alpha=-part.lr)
    torch._foreach_lerp_(mean, part.gradients, 1 - beta2)


MUON_MOMENTUM: Final = 0.95


def by_muon(parameter: Tensor) -> bool:
    """Whether Muon changes it: a matrix at most ten times as long as wide. AdamW changes the others."""
    return bool(parameter.ndim == 2 and max(parameter.shape) <= 10 * min(parameter.shape))


def state_of_muon(parameter: Tensor, settings: OptimizerSettings) -> tuple[str, ...]:
    """Names of the state of a parameter."""
    return ("exp_avg",) if by_muon(parameter) else ("exp_avg", "exp_avg_sq")


def muon(part: Part) -> None:
    """w ← w (1 - lr λ) - lr √max(1, rows / columns) · orthogonal(m), m ← 0.95 m + g. A sharded matrix is gathered."""
    from pairmill.stages.train.optimizers import adamw, local

    others, part = part.only(lambda one: not by_muon(one)), part.only(by_muon)
    if others.parameters:
        adamw(others)
    part.decay()
    for parameter, weight, gradient, state in zip(
        part.parameters, part.weights, part.gradients, part.state, strict=True
    ):
        mean: Any = state["exp_avg"]
        local(mean).mul_(MUON_MOMENTUM).add_(gradient)
        rows, columns = parameter.shape
        sharded = local(mean) is not mean
        update: Any = orthogonal(mean.full_tensor() if sharded else mean)
        if sharded:
            from torch.distributed.tensor import distribute_tensor

            update = distribute_tensor(update, mean.device_mesh, mean.placements).to_local()
        weight.add_(update, alpha=-part.lr * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    """About the nearest matrix whose singular values are 1, by Newton and Schulz's iteration of fifth order."""
    found = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    found = found / (found.norm() + 1e-7)
    for _ in range(rounds):
        square = found @ found.T
        found = 3.4445 * found + (-4.7750 * square + 2.0315 * square @ square) @ found
    return found.T if matrix.shape[0] > matrix.shape[1] else found


def schedule_free_adamw(part: Part) -> None:
    """z ← (z - lr · g / (√v / √(1 - β2^t) + eps)) (1 - lr λ), and w = β1 x + (1 - β1) z.

    x, the mean of all z weighed by their lr, is in the place of the EMA; z is the state ``base``. Gradients are at w.
    """
    import torch

    beta1, beta2 = part.settings.betas
    second, base, mean = part.of("exp_avg_sq"), part.of("base"), part.of("param_ema")
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, part.gradients, part.gradients, value=1 - beta2)
    roots = list(torch._foreach_sqrt(second))
    torch._foreach_div_(roots, [(1 - beta2**count) ** 0.5 for count in part.counts])
    torch._foreach_add_(roots, part.settings.eps)
    torch._foreach_addcdiv_(base, part.gradients, roots, value=-part.lr)
    decaying = [one for one, decays in zip(base, part.decays, strict=True) if decays]
    if decaying:
        torch._foreach_mul_(decaying, 1 - part.lr * part.settings.weight_decay)
    for weight, one, two, total in zip(part.weights, base, mean, part.sums, strict=True):
        two.lerp_(one, part.lr / total if total else 0.0)
        torch.lerp(two, one, 1 - beta1, out=weight)
