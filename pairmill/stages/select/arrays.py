"""Arrays that shards of select hand to one another: ``.npy`` files with a value for each row of a block, or counts."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.stage import ShardFile, ShardRecord
from pairmill.engine.writer import Writer

COUNTS: Final = "counts.npy"
WEIGHTS: Final = "weights.npy"


def save(out: Writer, path: str, array: NDArray[Any]) -> None:
    """Write an array as scratch."""
    with out.create(path, scratch=True) as local, local.open("wb") as file:
        np.save(file, array)


def save_parts(out: Writer, path: str, kind: str, shape: tuple[int, ...], parts: Iterable[NDArray[Any]]) -> None:
    """Write an array as scratch, given its parts in C order, so that its rows are not held twice."""
    with out.create(path, scratch=True) as local, local.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.writelines(part.astype(kind, copy=False).tobytes() for part in parts)


def load(source: ShardRecord | ShardFile, path: str = "") -> NDArray[Any]:
    """Read an array of a shard; ``path`` is that of the file in a record."""
    uri = source.uri(path) if isinstance(source, ShardRecord) else source.uri
    with storage.store_for(uri).open(uri) as file:
        array: NDArray[Any] = np.load(file)
    return array


def load_rows(uri: str, start: int, stop: int) -> NDArray[Any]:
    """Read rows ``[start, stop)`` along the last axis of an array."""
    with storage.store_for(uri).open(uri) as file:
        np.lib.format.read_magic(file)
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
        head, rows = file.tell(), stop - start
        array: NDArray[Any] = np.empty((math.prod(shape[:-1]), rows), kind)
        for line, into in enumerate(array):
            file.seek(head + (line * shape[-1] + start) * kind.itemsize)
            into[:] = np.frombuffer(file.read(rows * kind.itemsize), kind)
    return array.reshape(*shape[:-1], rows)


def files_of(record: ShardRecord) -> Mapping[str, ShardFile]:
    """Return the files of a record by path, for shards that read some of them."""
    return {file.path: ShardFile(record.uri(file.path), file.path, file.size, file.digest) for file in record.files}
