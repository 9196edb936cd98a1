"""rins: the lower stack again and again, then the upper one once (arXiv 2502.07503).

z = a fixed vector; L_cycles times z <- L(z + x); y = H(z). The last L_bp_cycles calls of L, and H, are differentiated.
"""

from torch import Tensor, nn

from pairmill.nets.block import Stack, View, differentiated, first_state
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import recorded, stacks


class RINS(nn.Module):
    """A recurrent stack under one that is not."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        shapes = stacks(model)
        self.settings = model
        self.H_level, self.L_level = Stack(shapes["H"]), Stack(shapes["L"])
        self.register_buffer("zL_init", first_state(shapes["L"].width))

    def forward(self, x: Tensor, view: View, steps: int | None = None) -> Tensor:
        cycles, last = self.settings.L_cycles, recorded(self.settings).low
        z = self.zL_init.to(x.dtype).expand_as(x)
        for call in range(cycles):
            with differentiated(call >= cycles - last):
                z = self.L_level(z + x, view)
        return self.H_level(z, view)
