"""The data sets, one file each, found by being here. To add one: its file, and its fixture."""

import importlib
import pkgutil

from pairmill.sources.source import Source


def _load() -> dict[str, Source]:
    result: dict[str, Source] = {}
    for module in pkgutil.iter_modules(__path__):
        names = vars(importlib.import_module(f"{__name__}.{module.name}"))
        (kind,) = [
            item
            for item in names.values()
            if isinstance(item, type) and issubclass(item, Source) and item.__module__ == f"{__name__}.{module.name}"
        ]
        source: Source = kind()
        result[source.name] = source
    return dict(sorted(result.items()))


SOURCES: dict[str, Source] = _load()
"""By name."""
