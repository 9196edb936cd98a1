"""The nets: one file each, a line in NETS, and what they are in numbers in :data:`components.train.shape.KINDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch import nn

from components.train.nets.hrm import HRM
from components.train.nets.initial import initialise
from components.train.nets.llama import Llama
from components.train.nets.net import Net, Sees
from components.train.nets.rins import RINS
from components.train.nets.text import TextNet
from components.train.nets.transformer import Transformer
from components.train.nets.trm import TRM
from components.train.nets.ut import UT
from components.train.shape import stacks

if TYPE_CHECKING:
    from components.train.settings import ModelSettings

__all__ = ["Net", "Sees", "build", "initialise"]

NETS: Final[dict[str, type[nn.Module]]] = {
    "transformer": Transformer,
    "hrm": HRM,
    "trm": TRM,
    "trm_match_recurrence": TRM,
    "rins": RINS,
    "ut": UT,
}
"""What is between embedding and head; ``llama`` has its own of both."""


def build(model: ModelSettings, vocab_size: int, positions: int) -> Net:
    """A net with undefined weights, on torch's default device; no random number is drawn.

    With ``torch.device("meta")`` around it, it takes no memory. :func:`initialise` or a state gives the weights.

    Args:
        model: the settings.
        vocab_size: V, padding included.
        positions: the longest row that it is trained on; kept as ``net.positions``.
    """
    if model.net == "llama":
        net: Net = Llama(model, vocab_size)
    else:
        shapes = stacks(model)
        net = TextNet(NETS[model.net](model), shapes.get("H") or shapes["L"], vocab_size)
    net.positions = positions
    return net
