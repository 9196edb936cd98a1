"""The folders of samples on a node, and ``PLAN``, which names the current one."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from pairmill import storage
from pairmill.engine import manifest as manifests

PLAN = "PLAN"
PLACE = "/dev/shm/pairmill/{fingerprint}"  # noqa: S108 - as the sampler's DaemonSet
"""Where the arrays of a plan are made, by default."""


def folder_of(path: str, option: str, plan: str = "") -> Path:
    """Return the sampled folder of a path: the path itself, or below a node's folder that of ``plan``, or of ``PLAN``.

    It need not exist.
    """
    folder = storage.local_path(storage.normalise(path, option))
    if (folder / manifests.MANIFEST).exists():
        return folder
    if not plan:
        with suppress(OSError, UnicodeDecodeError):
            plan = _read(folder / PLAN)
    return folder / plan if manifests.is_fingerprint(plan) else folder


def _read(path: Path) -> str:
    # Others may write to the folder: opening a pipe of that name would block.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, 64).decode().strip() if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    finally:
        os.close(handle)
