"""A net by the name that its settings have, looked up in :data:`pairmill.nets.settings.NETS`."""

import importlib

from pairmill.nets.net import Net
from pairmill.nets.settings import ModelSettings
from pairmill.nets.text import TextNet


def build(model: ModelSettings, vocab_size: int, positions: int) -> Net:
    """Build a net with undefined weights, on torch's default device; draw no random number.

    With ``torch.device("meta")`` around it, it takes no memory. ``initialise`` or a state gives the weights.

    Args:
        vocab_size: V, padding included.
        positions: the longest row that it is trained on; kept as ``net.positions``.
    """
    module, _, name = model.kind.module.partition(".")
    kind = getattr(importlib.import_module(f"pairmill.nets.{module}"), name)
    net: Net = kind(model, vocab_size) if issubclass(kind, Net) else TextNet(kind(model), model, vocab_size)
    net.positions = positions
    return net
