"""Token by token: prompts, the cache of keys and values, the engine. What needs torch is imported at its first use."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name not in {"engine", "likelihood"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
