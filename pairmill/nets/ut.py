"""ut: one stack, again and again on its own output (Universal Transformer, arXiv 1807.03819, without halting).

z = a fixed vector; ``cycles`` times z <- L(z + x); y = z. The last bp_cycles calls are differentiated.
"""

from torch import Tensor, nn

from pairmill.nets.block import View, differentiated, first_state, level
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import recorded, stacks


class UT(nn.Module):
    """One recurrent stack."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        shape = stacks(model)["L"]
        self.settings = model
        self.L_level = level(shape)
        self.register_buffer("zL_init", first_state(shape.width))

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        cycles, last = self.settings.cycles, recorded(self.settings).low
        z = self.zL_init.to(x.dtype).expand_as(x)
        for call in range(cycles):
            with differentiated(call >= cycles - last):
                z = self.L_level.core(z + x, view)
        return z
