"""Folders of unfinished downloads, so that a killed run continues them: one for each shard, used by one process."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pairmill import storage
from pairmill.storage import partials

CONTENT = "content"
"""Folder of the downloaded files within one of scratch."""


@contextmanager
def alone(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which is removed afterwards.

    Raises:
        BlockingIOError: another holds it, and ``wait`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        # For writing: NFS locks no file that is open for reading only.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if partials.names(path, handle):  # else its last holder has removed it
                try:
                    yield
                finally:
                    partials.remove(path)
                return
        finally:
            os.close(handle)


@contextmanager
def folder(root: str, key: str) -> Iterator[Path]:
    """Yield the scratch folder of a shard, locked for this process. It remains until :func:`clear`."""
    home = _home(root)
    if storage.scheme(root) != "file":
        partials.own(home.parent)
    with alone(home / f"{key}.lock"):
        (home / key).mkdir(exist_ok=True)
        yield home / key


def clear(root: str, keys: Iterable[str]) -> None:
    """Remove the scratch folders of these shards, except those that another process uses."""
    home = _home(root)
    if home.is_dir():
        if storage.scheme(root) != "file":
            partials.own(home.parent)
        for key in keys:
            with suppress(BlockingIOError), alone(home / f"{key}.lock", wait=False):
                shutil.rmtree(home / key, ignore_errors=True)


def _home(root: str) -> Path:
    if storage.scheme(root) == "file":
        return storage.local_path(storage.join(root, "fetch", "downloads"))
    # A bucket takes only whole objects, so a killed download continues in the scratch folder of this machine or pod.
    top = partials.scratch() / f"pairmill-downloads-{os.geteuid()}"
    return top / hashlib.sha256(root.encode()).hexdigest()[:16]
