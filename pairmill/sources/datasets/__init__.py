"""The data sets, one file each, found by being here. To add one: its file, and its fixture."""

from __future__ import annotations

import importlib
import pkgutil

from pairmill.sources.source import Source


def _load() -> dict[str, Source]:
    found: dict[str, Source] = {}
    for module in pkgutil.iter_modules(__path__):
        names = vars(importlib.import_module(f"{__name__}.{module.name}"))
        (kind,) = [
            one
            for one in names.values()
            if isinstance(one, type) and issubclass(one, Source) and one.__module__ == f"{__name__}.{module.name}"
        ]
        source: Source = kind()
        found[source.name] = source
    return dict(sorted(found.items()))


SOURCES: dict[str, Source] = _load()
"""By name."""
