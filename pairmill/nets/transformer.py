"""transformer: one stack, called once. y = T(x)."""

from torch import Tensor

from pairmill.nets.block import Stack, View
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import stacks


class Transformer(Stack):
    """y = T(x)."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(stacks(model)["H"])

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        return super().forward(x, view)
