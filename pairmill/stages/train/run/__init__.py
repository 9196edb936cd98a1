"""A run: :mod:`loop` reads from its newest checkpoint to its end; what is done between steps are callbacks.

Its modules need torch, which takes seconds, and are imported at their first use: plans, settings and reused runs do
without.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name not in {"loop", "measure", "parallel"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
