"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon), here with plain momentum, as KempnerForge has it."""

from typing import Any, Final

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from pairmill.training.optimizers.adam import adamw
from pairmill.training.optimizers.optimizer import Part, Rule, local
from pairmill.training.settings import OptimizerSettings

MOMENTUM: Final = 0.95


def takes(parameter: Tensor) -> bool:
    """Tell whether Muon changes it: a matrix at most ten times as long as wide. AdamW changes the others."""
    return bool(parameter.ndim == 2 and max(parameter.shape) <= 10 * min(parameter.shape))


def name_state(parameter: Tensor, settings: OptimizerSettings) -> tuple[str, ...]:
    """Name the state of a parameter."""
    return ("exp_avg",) if takes(parameter) else ("exp_avg", "exp_avg_sq")


def muon(part: Part) -> None:
    """Apply w ← w (1 - lr λ) - lr √max(1, rows / columns) · orthogonal(m), m ← 0.95 m + g; gather sharded matrices."""
    others, part = part.select(lambda parameter: not takes(parameter)), part.select(takes)
    if others.parameters:
        adamw(others)
    part.decay()
    for parameter, weight, gradient, state in zip(
        part.parameters, part.weights, part.gradients, part.state, strict=True
    ):
        mean: Any = state["exp_avg"]
        local(mean).mul_(MOMENTUM).add_(gradient)
        rows, columns = parameter.shape
        if isinstance(mean, DTensor):
            whole: Any = orthogonalise(mean.full_tensor())
            update: Any = distribute_tensor(whole, mean.device_mesh, mean.placements).to_local()
        else:
            update = orthogonalise(mean)
        weight.add_(update, alpha=-part.lr * max(1.0, rows / columns) ** 0.5)


def orthogonalise(matrix: Tensor, rounds: int = 5) -> Tensor:
    """Approximate the nearest matrix whose singular values are 1, by Newton and Schulz's iteration of fifth order."""
    made = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    made = made / (made.norm() + 1e-7)
    for _ in range(rounds):
        square = made @ made.T
        made = 3.4445 * made + (-4.7750 * square + 2.0315 * square @ square) @ made
    return made.T if matrix.shape[0] > matrix.shape[1] else made


MUON: Final = Rule(name_state, muon)
