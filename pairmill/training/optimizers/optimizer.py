"""What every optimizer does: its rule, part by part, and the mean of the weights (EMA); the norm of gradients."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from pairmill.training.optimizers import OPTIMIZERS
from pairmill.training.settings import OptimizerSettings

_AT_ONCE: Final = 1 << 26
"""Elements that are updated together: the update takes memory for about twice as many."""


@dataclass(frozen=True)
class Part:
    """Parameters that are updated together, and what belongs to each. All tensors are this rank's rows.

    Attributes:
        parameters: as the net has them: DTensors, if sharded.
        weights: float32.
        gradients: float32; not to be changed.
        state: tensors by name of the state, as many as weights.
        counts: how often each has been changed, this step included.
        sums: of the learning rates of each, this step included.
        decays: whether weight decay applies to each.
        lr: of this step.
    """

    parameters: list[Tensor]
    weights: list[Tensor]
    gradients: list[Tensor]
    state: list[dict[str, Tensor]]
    counts: list[int]
    sums: list[float]
    decays: list[bool]
    lr: float
    settings: OptimizerSettings

    def local_state(self, name: str) -> list[Tensor]:
        """Return a tensor of the state of each parameter, this rank's rows."""
        return [local(state[name]) for state in self.state]

    def select(self, wanted: Callable[[Tensor], bool]) -> Part:
        """Return the parameters that are wanted."""
        kept = [number for number, parameter in enumerate(self.parameters) if wanted(parameter)]
        values = {name: value for name, value in vars(self).items() if name not in ("lr", "settings")}
        parts = {name: [value[number] for number in kept] for name, value in values.items()}
        return Part(**parts, lr=self.lr, settings=self.settings)

    def decay(self) -> None:
        """Take the decaying part of the weights away."""
        decaying = [weight for weight, decays in zip(self.weights, self.decays, strict=True) if decays]
        if decaying and self.settings.weight_decay:
            torch._foreach_mul_(decaying, 1 - self.lr * self.settings.weight_decay)


class Rule(NamedTuple):
    """How an optimizer changes weights.

    Attributes:
        name_state: names the state of a parameter.
        update: changes weights and state of some parameters.
    """

    name_state: Callable[[Tensor, OptimizerSettings], tuple[str, ...]]
    update: Callable[[Part], None]


_FROM_WEIGHTS: Final = ("base", "param_ema")
"""State that begins as the weights; other state begins as 0."""


class Optimizer:
    """Changes parameters by their gradients. A parameter without one is left out: no decay, no EMA, its count stays.

    Args:
        parameters: named; initialised.
        ema: part of the mean of the weights that a step keeps; None = no mean.

    Attributes:
        parameters: by name; plain tensors or DTensors.
        state: by name of the parameter and of the tensor (``exp_avg``, ``exp_avg_sq``, ``param_ema``): float32, made
            like the parameter, so sharded as it is. All of them exist from the start.
        steps: by name of the parameter, how often it was changed (the t of its bias correction).
        averages: whether there is a mean of the weights, ``param_ema``.
    """

    def __init__(
        self, settings: OptimizerSettings, parameters: Iterable[tuple[str, Tensor]], ema: float | None = None
    ) -> None:
        self._settings, self._ema = settings, ema
        module, _, name = OPTIMIZERS[settings.name].rule.partition(".")
        rule: Rule = getattr(importlib.import_module(f"pairmill.training.optimizers.{module}"), name)
        self._update = rule.update
        self.parameters = dict(parameters)
        self.steps = dict.fromkeys(self.parameters, 0)
        self._sums = dict.fromkeys(self.parameters, 0.0)
        self.state: dict[str, dict[str, Tensor]] = {}
        for name, parameter in self.parameters.items():
            weight = parameter.detach()
            names = dict.fromkeys((*rule.name_state(weight, settings), *(("param_ema",) if ema is not None else ())))
            self.state[name] = {
                item: weight.clone() if item in _FROM_WEIGHTS else torch.zeros_like(weight) for item in names
            }
        self.averages = all("param_ema" in state for state in self.state.values())

    def step(self, lr: float) -> None:
        """Change every parameter that has a gradient, then its EMA."""
        with torch.no_grad():
            self._step(lr)

    def _step(self, lr: float) -> None:
        given = [name for name, parameter in self.parameters.items() if parameter.grad is not None]
        for names in _in_parts(given, self.parameters):
            for name in names:
                self.steps[name] += 1
                self._sums[name] += lr
            parameters = [self.parameters[name] for name in names]
            part = Part(
                parameters=parameters,
                weights=[local(item) for item in parameters],
                gradients=[local(item.grad) for item in parameters if item.grad is not None],
                state=[self.state[name] for name in names],
                counts=[self.steps[name] for name in names],
                sums=[self._sums[name] for name in names],
                decays=[self._settings.decay == "all" or item.ndim >= 2 for item in parameters],
                lr=lr,
                settings=self._settings,
            )
            self._update(part)
            if self._ema is not None:
                torch._foreach_lerp_(part.local_state("param_ema"), part.weights, 1 - self._ema)

    def zero_grad(self) -> None:
        """Forget the gradients (None)."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def swap_ema(self) -> None:
        """Exchange weights and EMA; twice = as before. Without an EMA nothing happens."""
        for name, parameter in self.parameters.items() if self.averages else ():
            weight, mean = local(parameter.detach()), local(self.state[name]["param_ema"])
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)

    def numbers(self) -> dict[str, Any]:
        """Return what belongs to the state beside tensors, JSON-like."""
        return {"steps": dict(self.steps), "sums": dict(self._sums)}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Take what :meth:`numbers` gave."""
        for name in self.parameters:
            self.steps[name] = int(numbers["steps"][name])
            self._sums[name] = float(numbers["sums"][name])


def make(settings: OptimizerSettings, parameters: Iterable[tuple[str, Tensor]], ema: float | None = None) -> Optimizer:
    """Make the optimizer that the settings name.

    Args:
        parameters: named, as of ``net.named_parameters()``; already initialised, as the EMA begins with them.
        ema: beta (:func:`~pairmill.training.schedules.choose_ema_beta`); None = no mean.
    """
    return Optimizer(settings, parameters, ema)


def clip(parameters: Iterable[Tensor], most: float) -> Tensor:
    """Scale all gradients so that their joint norm is at most ``most``; 0 = leave them.

    Returns:
        The norm before, float32 of no dimension: over all ranks where parameters are sharded. All ranks call it.
    """
    gradients = [item.grad for item in parameters if item.grad is not None]
    if not gradients:
        return torch.zeros(())
    rows = [local(item) for item in gradients]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(rows)))
    sharded = next((item for item in gradients if item is not local(item)), None)
    if sharded is not None:
        # Then every gradient is, and a row is on one rank alone.
        squares = norm.square()
        for group in sharded.device_mesh.get_all_groups():
            torch.distributed.all_reduce(squares, group=group)
        norm = squares.sqrt()
    if most:
        torch._foreach_mul_(rows, torch.clamp(most / (norm + 1e-6), max=1.0))
    return norm


def local(tensor: Any) -> Any:
    """Return this rank's rows of a DTensor, which share its memory; a plain tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _in_parts(names: Iterable[str], parameters: Mapping[str, Tensor]) -> Iterator[list[str]]:
    part: list[str] = []
    elements = 0
    for name in names:
        size = local(parameters[name]).numel()
        if part and elements + size > _AT_ONCE:
            yield part
            part, elements = [], 0
        part.append(name)
        elements += size
    if part:
        yield part
