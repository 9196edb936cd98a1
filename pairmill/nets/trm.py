"""trm: hrm with one stack, which takes the place of both (arXiv 2510.04871).

``trm_match_recurrence`` is the same net with hrm's cycles, and half the layers.
"""

from __future__ import annotations

from torch import Tensor, nn

from pairmill.nets.block import View, differentiated, first_state, level
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
        h_cycles, l_cycles = self.settings.H_cycles, self.settings.L_cycles
        last_high, last_low = recorded(self.settings)
        z_h, z_l = x, self.zL_init.to(x.dtype).expand_as(x)
        for high in range(h_cycles):
            for low in range(high * l_cycles, (high + 1) * l_cycles):
                with differentiated(low >= h_cycles * l_cycles - last_low):
                    z_l = self.L_level.core(z_l + z_h, view)
            with differentiated(high >= h_cycles - last_high):
                z_h = self.L_level.core(z_h + z_l, view)
        return z_h
