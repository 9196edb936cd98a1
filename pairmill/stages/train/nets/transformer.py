"""transformer: one stack, called once. y = T(x)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from pairmill.stages.train.nets.block import Stack, View
from pairmill.stages.train.shape import stacks

if TYPE_CHECKING:
    from pairmill.stages.train.settings import ModelSettings


class Transformer(Stack):
    """y = T(x)."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(stacks(model)["H"])

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        return super().forward(x, view)
