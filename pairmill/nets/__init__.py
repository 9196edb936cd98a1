"""Nets: settings, shapes, costs, modules, trained weights. They know no stage: train trains them, others ask them.

    from pairmill.nets import ModelSettings, build, initialise

    net = build(ModelSettings.for_net("hrm", layers=4, width=128, heads=4), vocab_size=512, positions=256)
    initialise(net, seed=0)

Names that need torch are imported at their first use, so that settings are read and costs are counted without it.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from pairmill.nets.settings import NETS, ModelSettings

_LATE: Final = {
    "Net": "net",
    "Packed": "batch",
    "Run": "run",
    "build": "builder",
    "initialise": "initial",
    "sees": "attention",
}

__all__ = ["NETS", "ModelSettings"]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
