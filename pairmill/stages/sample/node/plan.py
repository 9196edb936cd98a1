"""A sample's plan: which rows, and which of them at which position of which epoch.

A plan does not depend on how the arrays are laid out (:mod:`pairmill.stages.sample.node.layout`). It is made once, kept
below the project's root as ``plan/<name>.npy``, and carried out on any number of machines.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import InputRef, Manifest
from pairmill.errors import InternalError
from pairmill.formats.results import SampleResult
from pairmill.formats.sample_plan import FOLDER
from pairmill.formats.tokens import BYTES, INDEX, header
from pairmill.stages.sample.node.config import OutputFormat

if TYPE_CHECKING:
    from pairmill.engine.writer import Writer

HEADER_BYTES = 128
"""Of the header of a one-dimensional ``.npy``."""
VERSION = 6
"""Of the plans that this program carries out: that of the stage (pairmill/stages/sample/core.py)."""


def fingerprint_of(version: int, options: Mapping[str, Any], inputs: Iterable[InputRef], layout: OutputFormat) -> str:
    """Content identity of a sample: the name of its plan's folder, and of its own in a node's folder."""
    refs = [[ref.role, ref.fingerprint] for ref in inputs]
    return manifests.fingerprint_from("sample", version, {**options, "layout": layout}, refs)


class PlanArray:
    """A one-dimensional array of a plan: in memory, or an ``.npy`` on this machine.

    Args:
        values: the array, or the path of its file.
        keep: is kept as long as this is, as the folder of a scratch file.

    Attributes:
        dtype: of the values.
    """

    def __init__(self, values: NDArray[Any] | Path, keep: object = None) -> None:
        self._file = values if isinstance(values, Path) else None
        self._values = np.load(values, mmap_mode="r") if isinstance(values, Path) else values
        self._open = values.open("rb", 0) if isinstance(values, Path) else None
        self._keep = keep
        self.dtype: np.dtype[Any] = self._values.dtype

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def max(self) -> int:
        """The largest value; 0 if there is none. All are read for it, once."""
        return max((int(piece.max()) for piece in self.pieces()), default=0)

    def pieces(self, size: int = 1 << 17) -> Iterator[NDArray[Any]]:
        """Yield all values in order, at most ``size`` at a time; those of a file are not kept in memory."""
        for first in range(0, len(self), size):
            if self._open is None:
                yield self._values[first : first + size]
                continue
            count = min(size, len(self) - first)
            place = HEADER_BYTES + first * self.dtype.itemsize
            data = bytearray(count * self.dtype.itemsize)
            if os.preadv(self._open.fileno(), [data], place) != len(data):
                raise InternalError("a file of the plan became shorter", where=str(self._file))
            yield np.frombuffer(data, self.dtype)

    def array(self) -> NDArray[Any]:
        """Return all values, for random access; those of a file are mapped."""
        return self._values

    def save(self, path: Path) -> None:
        """Write the array as an ``.npy``; a file that is on the same file system becomes this one."""
        if self._file is not None:
            with suppress(OSError):
                os.replace(self._file, path)
                return
        with path.open("wb") as file:
            file.write(header(self.dtype, len(self)))
            for piece in self.pieces():
                file.write(piece.data)


@dataclass(frozen=True)
class PlannedDataset:
    """A data set of a plan: its name, its tokens, and how many of its rows are taken."""

    name: str
    length: int
    rows: int


@dataclass(frozen=True)
class SamplePlan:
    """Rows and epochs.

    Args:
        datasets: sorted by name.
        rows: the four index arrays of all rows that are taken, data set by data set in the order of the tokenized
            folder; int32 or int64, shape (rows,). Spans point into the data set's own ``tokens.npy``; responses are
            already cut to the context. Held-out rows may have the bytes of their responses too.
        epochs: for each epoch its rows in training order, as positions in ``rows``; uint32.
    """

    datasets: list[PlannedDataset]
    rows: dict[str, PlanArray]
    epochs: list[PlanArray]

    def save(self, out: Writer) -> None:
        columns = {**self.rows, **{f"epoch_{number}": order for number, order in enumerate(self.epochs)}}
        for name, values in columns.items():
            with out.create(f"{FOLDER}{name}.npy") as path:
                values.save(path)

    @classmethod
    def load(cls, home: str, manifest: Manifest, workers: int) -> SamplePlan:
        """Read the plan in the folder ``home``.

        Raises:
            InputError: a file differs from the manifest.
        """

        def column(name: str) -> PlanArray:
            data = manifests.read_file(home, manifest, f"{FOLDER}{name}.npy")
            return PlanArray(npy.read_array(io.BytesIO(data), allow_pickle=False))

        epochs = sum(file.path.startswith(f"{FOLDER}epoch_") for file in manifest.files)
        known = any(file.path == f"{FOLDER}{BYTES}.npy" for file in manifest.files)
        columns = (*INDEX, BYTES) if known else INDEX
        names = [*columns, *(f"epoch_{number}" for number in range(epochs))]
        with ThreadPoolExecutor(workers) as pool:
            arrays = list(pool.map(column, names))
        datasets = [PlannedDataset(**item) for item in SampleResult.from_manifest(manifest).sources]
        return cls(datasets, dict(zip(columns, arrays, strict=False)), arrays[len(columns) :])
