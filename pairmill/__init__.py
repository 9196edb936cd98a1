"""pairmill: instruction/response pairs from raw data to token arrays in /dev/shm, as a Kubeflow pipeline.

The names below are stable (docs/python.md). Each is imported when it is asked for: ``import pairmill`` takes no time.
"""

import importlib
from typing import Any

_MODULES = {
    "api": ("Result", "open", "run"),
    "errors": ("InputError", "PairmillError", "StorageError", "UsageError"),
    "loader": ("Batch", "Loader", "MixturePlan", "Phase", "RowPlan", "StreamPlan"),
    "stages.fetch.config": ("FetchConfig",),
    "stages.clean.config": ("CleanConfig",),
    "stages.curate.config": ("CurateConfig",),
    "stages.select.config": ("SelectConfig",),
    "stages.train_tokenizer.config": ("TrainTokenizerConfig",),
    "stages.tokenize.config": ("TokenizeConfig",),
    "stages.mix.config": ("MixConfig",),
    "stages.sample.config": ("SampleConfig",),
    "stages.train.config": ("TrainConfig",),
    "stages.evaluate.config": ("EvaluateConfig",),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    """Return a name of :data:`_MODULES`, or ``__version__``, which takes a tenth of a start to read."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pairmill")
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
