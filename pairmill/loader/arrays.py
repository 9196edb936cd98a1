"""Arrays of files, mapped and never read as a whole, as the native code reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill._native import Numbers
from pairmill.errors import InputError, from_os_error


def mapped(path: Path) -> NDArray[Any]:
    """A one-dimensional ``.npy`` of numbers, any type, mapped read-only.

    Raises:
        InputError: it is absent, cut off or no such array.
        StorageError: it cannot be read.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    except ValueError as error:
        raise InputError(
            "is no complete .npy file", where=str(path), got=str(error), hint="make the folder again"
        ) from error
    if array.ndim != 1 or array.dtype.kind not in "uif":
        raise InputError(
            "is no array of numbers",
            where=str(path),
            got=f"{array.dtype} of shape {array.shape}",
            expected="one dimension of integers",
        )
    return array


def numbers(array: NDArray[Any]) -> Numbers:
    """What native code reads of a one-dimensional array of numbers; a copy only where bytes stand in another order."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Numbers(little.view(np.uint8), f"{little.dtype.kind}{little.dtype.itemsize}")
