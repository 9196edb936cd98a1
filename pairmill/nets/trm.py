"""trm: hrm with one stack, which takes the place of both (arXiv 2510.04871).

``trm_match_recurrence`` is the same net with hrm's cycles, and half the layers.
"""

from torch import Tensor, nn

from pairmill.nets.block import View, first_state, level
from pairmill.nets.hrm import take_turns
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import recorded, stacks


class TRM(nn.Module):
    """One stack in both places."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        shape = stacks(model)["L"]
        self.settings = model
        self.L_level = level(shape)
        self.register_buffer("zL_init", first_state(shape.width))

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        return take_turns(self, self.L_level, x, view, recorded(self.settings))
