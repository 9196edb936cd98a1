"""Arrays of files, mapped and never read as a whole, as native code reads them; and what is recorded of the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill._native import Numbers
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, from_os_error
from pairmill.loader.arguments import reading


def mapped(path: Path) -> NDArray[Any]:
    """A one-dimensional ``.npy`` of numbers, any type, mapped read-only.

    Raises:
        InputError: it is absent, cut off or no such array.
        StorageError: it cannot be read.
    """
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    except Exception as error:  # numpy parses the header as Python: SyntaxError, TokenError, OverflowError and more
        raise InputError(
            "is not a complete .npy file", where=str(path), got=str(error), hint="make the folder again"
        ) from error
    if not isinstance(array, np.ndarray):  # of several arrays in one file, which numpy opens too
        raise InputError("is not a complete .npy file", where=str(path), got=type(array).__name__, expected="one array")
    if array.ndim != 1 or array.dtype.kind not in "uif":
        raise InputError(
            "is no array of numbers",
            where=str(path),
            got=f"{array.dtype} of shape {array.shape}",
            expected="one dimension of integers",
        )
    return array


class Mapped:
    """Files that are mapped into memory, as large as they were before.

    One that is made shorter in place ends the process that reads behind its new end (SIGBUS), and no error can be
    raised there. One that is removed or replaced stays as it was where it is mapped.

    Args:
        paths: of the files, not mapped yet.

    Raises:
        InputError: one is not there.
        StorageError: one cannot be seen.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._found = {}
        for path in paths:
            with reading(path):
                self._found[path] = path.stat()

    def check(self) -> None:
        """See that none was made shorter.

        Raises:
            InputError: one was.
        """
        for path, found in self._found.items():
            try:
                now = path.stat()
            except OSError:
                continue
            if (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino) and now.st_size < found.st_size:
                raise InputError(
                    "was made shorter while it was read",
                    where=str(path),
                    got=f"{now.st_size:,} bytes",
                    expected=f"{found.st_size:,}",
                    hint="make the folder again, and start anew: what is mapped of it cannot be read any more",
                )


def numbers(array: NDArray[Any]) -> Numbers:
    """What native code reads of a one-dimensional array of numbers; a copy only where bytes stand in another order."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Numbers(little.view(np.uint8), f"{little.dtype.kind}{little.dtype.itemsize}")


def recorded(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Hexadecimal sha256 of those of a folder's files that pairmill recorded when it made them, by name.

    Raises:
        InputError: pairmill has not finished the folder, or such a file has another size by now.
    """
    manifest = manifests.read(str(folder))
    wanted = set(names)
    known = [file for file in manifest.files if file.path in wanted] if manifest else []
    for file in known:
        size = (folder / file.path).stat().st_size
        if size != file.size:
            raise InputError(
                "is not what its manifest says",
                where=str(folder / file.path),
                got=f"{size:,} bytes",
                expected=f"{file.size:,}",
                hint="it was changed after the folder was finished: remove the folder and make it again",
            )
    return {file.path: file.sha256 for file in known}


def digests(folder: Path, names: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Hexadecimal sha256 of a folder's files, in the order of their names; those that are not known are read."""
    others = [name for name in names if name not in known]
    found = storage.store_for(str(folder)).digests([str(folder / name) for name in others])
    every = {**known, **dict(zip(others, found, strict=True))}
    return [every[name] for name in names]
