"""Nets: settings, shapes, costs, modules, trained weights. They know no stage: train trains them, others ask them.

    from pairmill.nets import ModelSettings, build, initialise

    net = build(ModelSettings.for_net("hrm", layers=4, width=128, heads=4), vocab_size=512, positions=256)
    initialise(net, seed=0)

What needs torch, which takes seconds to import, is imported at its first use: settings are read and costs are counted
without it.
"""

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
_MODULES: Final = ("checkpoint", "device", "tensor_file")

__all__ = ["NETS", "ModelSettings"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
