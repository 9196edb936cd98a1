"""transformer: one stack, called once. y = T(x)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from components.train.nets.block import Stack, View
from components.train.shape import stacks

if TYPE_CHECKING:
    from components.train.settings import ModelSettings


class Transformer(Stack):
    """y = T(x)."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(stacks(model)["H"])

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        return super().forward(x, view)
