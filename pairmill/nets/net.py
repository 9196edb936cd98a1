"""What the trainer knows of a net."""

from collections.abc import Callable

from torch import Tensor, nn

from pairmill.nets.batch import Packed

Sees = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of one batch: query [c, H, d], key and value [c, KV, d] (KV divides H) -> [c, H, d].

:func:`pairmill.nets.attention.sees` makes it once a batch. A net calls it once for each block and each
recurrent call, always in the same order: generation counts the calls, and gives each a cache of its own.
"""


class Net(nn.Module):
    """A language model.

    A module that has parameters of its own says in ``std`` how they are drawn (None: they are ones).

    Attributes:
        wrapped: whether initial weights wrap round at three standard deviations.
        positions: of the longest row that it is made for.
    """

    wrapped = True
    positions: int

    def forward(self, batch: Packed, sees: Sees, steps: int | None = None) -> Tensor:
        """Compute what the head reads, [c, h] in the type of the activations.

        Args:
            batch: of one rank.
            sees: its attention.
            steps: of hrm: how many calls are differentiated; None = as few as there may be.
        """
        raise NotImplementedError

    def logits(self, y: Tensor) -> Tensor:
        """Compute logits of the next token, float32 [n, V], for n of the rows that :meth:`forward` gave.

        Under FSDP2 the caller registers it (``register_fsdp_forward_method``).
        """
        raise NotImplementedError

    def blocks(self) -> list[nn.Module]:
        """List the modules that FSDP2 wraps one by one."""
        raise NotImplementedError
