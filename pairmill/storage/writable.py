"""Whether a folder of this machine can be made and written, before hours of work are to be put there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pairmill.errors import StorageError, from_os_error


def require_writable(option: str, path: Path, folder: Path) -> Path:
    """Return the nearest folder at or above ``folder`` that exists, once a folder was made in it, and removed.

    Args:
        option: the option that named it, for the error.
        path: what the option says.
        folder: the folder that will be made.

    Raises:
        StorageError: nothing can be made there.
    """
    existing = next(item for item in (folder, *folder.parents) if item.exists() or item.is_symlink())
    try:
        if not existing.is_dir():
            raise NotADirectoryError(20, os.strerror(20), str(existing))
        if existing == folder and os.access(existing, os.W_OK | os.X_OK):
            return existing
        with tempfile.TemporaryDirectory(prefix=".pairmill-", dir=existing):
            return existing
    except OSError as error:
        wrong = from_os_error(error, str(existing))
        raise StorageError(
            "cannot be written",
            where=f"{option}={path}",
            got=f"{wrong.got or wrong.what} at {existing}",
            expected="a folder that you may write to",
            hint=f"write {option}=<a folder of yours>",
        ) from error
