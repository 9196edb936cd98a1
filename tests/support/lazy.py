"""Modules that take long to import, for the tests that use them and not for each process that collects tests."""

import importlib
from typing import Any


class Module:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks each global whether it is a test or a fixture
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
