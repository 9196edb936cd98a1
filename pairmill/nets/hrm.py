"""hrm: a slow stack H and a fast stack L that take turns (arXiv 2506.21734, in HRM-Text's form without halting).

zH = x, zL = a fixed vector; H_cycles times { L_cycles times zL <- L(zL + zH); zH <- H(zH + zL) }; y = zH.
The last calls of H and the last calls of L are differentiated.
"""

from typing import Any

from torch import Tensor, nn

from pairmill.nets.block import View, differentiated, first_state, level
from pairmill.nets.settings import ModelSettings, Recorded
from pairmill.nets.shape import recorded, stacks


class HRM(nn.Module):
    """Two stacks that take turns."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        shapes = stacks(model)
        self.settings = model
        self.H_level, self.L_level = level(shapes["H"]), level(shapes["L"])
        self.register_buffer("zL_init", first_state(shapes["L"].width))

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        return take_turns(self, self.H_level, x, view, recorded(self.settings, steps))


def take_turns(net: Any, upper: Any, x: Tensor, view: View, last: Recorded) -> Tensor:
    """Return zH after all turns of a net's stack L and of ``upper``, of which the last calls are differentiated."""
    h_cycles, l_cycles = net.settings.H_cycles, net.settings.L_cycles
    z_h, z_l = x, net.zL_init.to(x.dtype).expand_as(x)
    for high in range(h_cycles):
        for low in range(high * l_cycles, (high + 1) * l_cycles):
            with differentiated(low >= h_cycles * l_cycles - last.low):
                z_l = net.L_level.core(z_l + z_h, view)
        with differentiated(high >= h_cycles - last.high):
            z_h = upper.core(z_h + z_l, view)
    return z_h
