"""Files of arrays, mapped and never read as a whole; what pairmill recorded of them when it made them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill._native import Numbers
from pairmill.engine.manifest import File
from pairmill.errors import InputError, from_os_error
from pairmill.loader.arguments import os_errors


def map_array(path: Path) -> NDArray[Any]:
    """Return a one-dimensional ``.npy`` of numbers, any type, mapped read-only.

    Raises:
        InputError: it is absent, truncated or not such an array.
        StorageError: it cannot be read.
    """
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    except Exception as error:  # numpy parses the header as Python: SyntaxError, TokenError, OverflowError and more
        raise InputError(
            "not a complete .npy file", where=str(path), got=str(error), hint="make the folder again"
        ) from error
    if not isinstance(array, np.ndarray):  # of several arrays in one file, which numpy opens too
        raise InputError("not a complete .npy file", where=str(path), got=type(array).__name__, expected="one array")
    if array.ndim != 1 or array.dtype.kind not in "uif":
        got = f"dtype {array.dtype}, shape {array.shape}"
        raise InputError("not an array of numbers", where=str(path), got=got, expected="integers, one dimension")
    return array


def numbers(array: NDArray[Any]) -> Numbers:
    """Return an array of numbers as native code reads it; copied only if its byte order is not little-endian."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Numbers(little.view(np.uint8), f"{little.dtype.kind}{little.dtype.itemsize}")


class MappedFiles:
    """Files of a folder that are mapped into memory.

    If one is truncated in place, reading past its new end kills the process (SIGBUS), and no error can be raised there.
    If one is removed or replaced, what is mapped stays as it was.

    Args:
        folder: holds the files.
        names: of the files to map, below the folder.
        recorded: what the folder's manifest says of its files; empty if pairmill did not make it.
        others: files that are digested too, and not mapped.

    Raises:
        InputError: a file is absent, or its size is not the one in the manifest.
        StorageError: a file cannot be read.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], recorded: Sequence[File], others: Iterable[str] = ()
    ) -> None:
        self._folder, self._names = folder, [*names, *others]
        self._recorded = {file.path: file.digest for file in recorded}
        sizes = {file.path: file.size for file in recorded}
        self._mapped = {}
        for number, name in enumerate(self._names):
            path = folder / name
            with os_errors(path):
                stat = path.stat()
            if number < len(names):
                self._mapped[path] = stat
            if stat.st_size != sizes.get(name, stat.st_size):
                raise InputError(
                    "size differs from the manifest",
                    where=str(path),
                    got=f"{stat.st_size:,} bytes",
                    expected=f"{sizes[name]:,}",
                    hint="the file was changed after the folder was finished: remove the folder and make it again",
                )

    def check(self) -> None:
        """Raise InputError if a file was truncated since it was mapped."""
        for path, before in self._mapped.items():
            try:
                now = path.stat()
            except OSError:
                continue
            if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) and now.st_size < before.st_size:
                raise InputError(
                    "truncated while it was in use",
                    where=str(path),
                    got=f"{now.st_size:,} bytes",
                    expected=f"{before.st_size:,}",
                    hint="make the folder again and start a new process: the mapped file cannot be read any more",
                )

    def digests(self, like: str = "") -> dict[str, str]:
        """Digest all files, by name; those that no manifest lists are read, ``like`` a digest or SHA256."""
        unknown = [name for name in self._names if name not in self._recorded]
        uris = [str(self._folder / name) for name in unknown]
        read = storage.store_for(str(self._folder)).digests(uris, [like] * len(uris))
        result = {**self._recorded, **dict(zip(unknown, read, strict=True))}
        return {name: result[name] for name in self._names}
