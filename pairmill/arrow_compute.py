"""``pyarrow.compute``, imported by the first function that is used: 34 ms that a run without work does not spend."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("pyarrow.compute"), name)
