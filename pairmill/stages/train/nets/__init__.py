"""The nets: one file each, a line in NETS, and what they are in numbers in ``shape.KINDS``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch import nn

from pairmill.stages.train.nets.hrm import HRM
from pairmill.stages.train.nets.initial import initialise
from pairmill.stages.train.nets.llama import Llama
from pairmill.stages.train.nets.net import Net, Sees
from pairmill.stages.train.nets.rins import RINS
from pairmill.stages.train.nets.text import TextNet
from pairmill.stages.train.nets.transformer import Transformer
from pairmill.stages.train.nets.trm import TRM
from pairmill.stages.train.nets.ut import UT
from pairmill.stages.train.shape import stacks

if TYPE_CHECKING:
    from pairmill.stages.train.settings import ModelSettings

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
