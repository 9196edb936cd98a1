"""Where samples lie on a node: a folder for each, and ``PLAN``, which names the wanted one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pairmill import manifest as manifests
from pairmill import storage

PLAN = "PLAN"


def folder_of(path: str, option: str, plan: str = "") -> Path:
    """The sampled folder that a path means: itself, or below a node's folder that of ``plan``, or of ``PLAN``.

    It need not be there.
    """
    folder = storage.local_path(storage.normalise(path, option))
    if (folder / manifests.MANIFEST).exists():
        return folder
    if not plan:
        with suppress(OSError, UnicodeDecodeError):
            plan = (folder / PLAN).read_text().strip()
    return folder / plan if manifests.is_fingerprint(plan) else folder
