"""Which source a task belongs to, by its name alone."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

HELD_OUT: Final = "holdout/"
"""How the names of tasks of held-out rows begin."""
_FOLDERS: Final = ("data__", "data_clustered__")


def source_of(task: str) -> str:
    """Return the source of a task: of ``<set>__<file>`` the set, of ``<file>`` its stem; of held-out rows the same.

    A task's name is the path of its file below the input folder, ``/`` as ``__``; the folders ``data/`` and
    ``data_clustered/`` of a cleaned data set are no sources.
    """
    name = task.removeprefix(HELD_OUT)
    for folder in _FOLDERS:
        name = name.removeprefix(folder)
    folder, result, _ = name.partition("__")
    return folder if result and folder else PurePosixPath(name).stem
