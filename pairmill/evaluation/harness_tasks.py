"""Tasks of lm-evaluation-harness as benchmarks, named ``lm_eval/<task>``; without the harness itself."""

import importlib.metadata
from typing import Final

from pairmill import storage
from pairmill.engine.manifest import digest_files
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Harness
from pairmill.extras import require

PREFIX: Final = "lm_eval/"
VERSION: Final = 1


def is_task(name: str) -> bool:
    """Return whether a benchmark is a task of the harness."""
    return name.startswith(PREFIX)


def check() -> None:
    """Raise UsageError if the harness is not installed."""
    require("harness", "lm_eval", where="evaluate")


def locate(settings: Harness) -> tuple[str, str, *tuple[object, ...]]:
    """Return folder and revision of the tasks, and what they follow from: the version and files of ``settings.tasks``.

    What the harness reads from the Hub is of its task's revision; requests that were written down are not read again.

    Raises:
        UsageError: the harness is not installed, or ``settings.tasks`` is not on this machine.
    """
    check()
    version, files, folder = importlib.metadata.version("lm_eval"), "", ""
    if settings.tasks:
        uri = storage.normalise(settings.tasks, "harness.tasks")
        if storage.scheme(uri) != "file":
            raise UsageError("not a folder of this machine", where="harness.tasks", got=uri)
        store = storage.store_for(uri)
        paths = sorted(item.path for item in store.list(uri) if "__pycache__" not in item.path)
        files = digest_files(uri, paths)
        folder = str(storage.local_path(uri))
    return folder, f"lm-evaluation-harness {version}", "lm_eval", VERSION, version, files, settings.shots
