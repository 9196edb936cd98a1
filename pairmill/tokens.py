"""Token-array folders: one folder per task with five one-dimensional ``.npy`` files, and ``tokenizer_info.json``.

The format is data_io's (docs/format.md section 4): ``tokens`` uint32 holds for each row the instruction span directly
followed by its response span; ``inst_start, inst_len, resp_start, resp_len`` uint64 say where. Files are ``.npy``
format 1.0, C order, little-endian (numpy.lib.format).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pairmill import manifest as manifests
from pairmill import storage
from pairmill.errors import InputError
from pairmill.manifest import content_key

INFO = "tokenizer_info.json"
INDEX = ("inst_start", "inst_len", "resp_start", "resp_len")
ARRAYS = ("tokens", *INDEX)
DTYPES: dict[str, type[np.generic]] = {"tokens": np.uint32, **dict.fromkeys(INDEX, np.uint64)}

Ints = NDArray[np.int64]


class NpyWriter:
    """Writes a one-dimensional ``.npy`` of unknown length by appending; the header is patched at the end."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self._dtype = np.dtype(dtype)
        self._length = 0
        self._file = path.open("wb")
        self._head = self._file.write(_header(self._dtype, 0))

    def append(self, values: NDArray[Any]) -> None:
        """Append values, cast to the writer's dtype without a check."""
        # Plain writes, never a mapped file: a full tmpfs answers a mapped write with SIGBUS, not with an error.
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self._length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                if self._file.write(_header(self._dtype, self._length)) != self._head:
                    raise AssertionError("numpy pads every one-dimensional header to one size")


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    out = io.BytesIO()
    npy.write_array_header_1_0(out, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)})
    return out.getvalue()


def write_npy(path: Path, dtype: type[np.generic], length: int, chunks: Iterable[NDArray[Any]]) -> str:
    """Write a one-dimensional ``.npy`` of ``length`` values given in chunks; returns the sha256 of the file.

    Chunks are made, cast to ``dtype`` without a check, and digested by a thread of their own, one ahead of what is
    written: either takes about as long.
    """
    from concurrent.futures import ThreadPoolExecutor

    head = _header(np.dtype(dtype), length)
    digest = hashlib.sha256(head)
    given = iter(chunks)

    def following() -> memoryview | None:
        for values in given:
            data = np.ascontiguousarray(values, dtype).data
            digest.update(data)
            return data
        return None

    with path.open("wb") as file, ThreadPoolExecutor(1) as ahead:
        file.write(head)
        pending = ahead.submit(following)
        while (data := pending.result()) is not None:
            pending = ahead.submit(following)
            file.write(data)
    return digest.hexdigest()


@contextmanager
def writers(create: Callable[[str], AbstractContextManager[Path]]) -> Iterator[dict[str, NpyWriter]]:
    """The five arrays of a task by name, to append to; ``create`` gives the local file for the name of an array's."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(NpyWriter(stack.enter_context(create(f"{name}.npy")), dtype))
            for name, dtype in DTYPES.items()
        }


def open_npy(uri: str) -> tuple[BinaryIO, np.dtype[Any], int]:
    """An open file standing at its first value, the dtype, and the length of a one-dimensional ``.npy``.

    Raises:
        InputError: absent, no ``.npy``, of another shape or kind, or shorter than its header says.
    """
    store = storage.store_for(uri)
    file = store.open(uri)
    try:
        version = npy.read_magic(file)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = reader(file)
    except (ValueError, EOFError, OSError) as error:
        file.close()
        raise InputError("is not a readable .npy file", where=uri, got=str(error)) from error
    wrong = ""
    if len(shape) != 1:
        wrong = f"shape {shape}"
    elif dtype.kind not in "ui":
        wrong = f"dtype {dtype}"
    elif store.size(uri) != file.tell() + shape[0] * dtype.itemsize:
        wrong = f"{store.size(uri)} bytes for shape {shape} of {dtype}"
    if wrong:
        file.close()
        raise InputError("is no one-dimensional integer array", where=uri, got=wrong, hint="tokenize again")
    return file, dtype, shape[0]


def load(uri: str) -> NDArray[Any]:
    """A whole one-dimensional ``.npy``."""
    file, dtype, length = open_npy(uri)
    with file:
        return np.frombuffer(file.read(length * dtype.itemsize), dtype)


def chunks(uri: str, size: int = 1 << 20) -> Iterator[NDArray[Any]]:
    """A one-dimensional ``.npy`` in pieces of ``size`` bytes."""
    file, dtype, _ = open_npy(uri)
    with file:
        while data := file.read(size // dtype.itemsize * dtype.itemsize):
            yield np.frombuffer(data, dtype)


@dataclass(frozen=True)
class Task:
    """One task of a tokenized folder: the URI of its folder and its name."""

    name: str
    uri: str

    def index(self) -> dict[str, Ints]:
        """The four index arrays as int64, checked against each other and against ``tokens.npy``.

        Raises:
            InputError: lengths differ, or a span lies outside the tokens.
        """
        raw = {name: load(storage.join(self.uri, f"{name}.npy")) for name in INDEX}
        rows = {len(array) for array in raw.values()}
        if len(rows) != 1:
            raise InputError(
                "the index arrays differ in length", where=self.uri, got=str({k: len(v) for k, v in raw.items()})
            )
        file, _, length = open_npy(storage.join(self.uri, "tokens.npy"))
        file.close()
        for name, array in raw.items():
            if len(array) and (int(array.max()) > length or int(array.min()) < 0):
                raise InputError(f"{name} points outside the tokens", where=self.uri, expected=f"0 to {length}")
        index = {name: array.astype(np.int64) for name, array in raw.items()}
        for part in ("inst", "resp"):
            ends = index[f"{part}_start"] + index[f"{part}_len"]
            if len(ends) and int(ends.max()) > length:
                row = int(ends.argmax())
                raise InputError(
                    "a span ends behind the tokens",
                    where=f"{self.uri} row {row}",
                    got=str(int(ends[row])),
                    expected=f"<= {length}",
                )
        total = int(index["inst_len"].sum() + index["resp_len"].sum())
        if total != length:
            raise InputError(
                "tokens.npy is of another length than the spans", where=self.uri, got=str(length), expected=str(total)
            )
        return index


@dataclass(frozen=True)
class Folder:
    """A tokenized folder: its tasks sorted by name by code point, and what identifies its content."""

    uri: str
    tasks: list[Task]
    info: dict[str, Any]
    fingerprint: str
    rows: int | None
    """Rows by the manifest; None for a folder that others made."""


def open_folder(given: str, option: str, *, tolerate_strays: bool) -> Folder:
    """Open a tokenized folder, of pairmill or of others.

    Args:
        given: path or URI.
        option: the option that named it, for messages.
        tolerate_strays: pass over folders that hold none of the five arrays, rather than fail as the reference does.

    Raises:
        InputError: absent, unfinished, damaged, or without tasks.
    """
    uri = storage.normalise(given, option)
    store = storage.store_for(uri)
    manifest = manifests.read_whole(uri)
    entries = store.list(uri)
    paths = {entry.path for entry in entries}
    if INFO not in paths:
        raise InputError(f"no {INFO}: not a tokenized folder", where=f"{option}={uri}", hint="check the path")
    try:
        info = json.loads(store.read(storage.join(uri, INFO)))
        if not isinstance(info, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise InputError("is not a JSON object", where=storage.join(uri, INFO), got=str(error)) from error
    if manifest is not None:
        names = sorted(manifest.tasks())
        tasks = [Task(name, storage.join(uri, name)) for name in names]
        return Folder(uri, tasks, info, manifest.fingerprint, manifest.ledger.rows_out)
    tasks = []
    read = [INFO]
    for name in sorted({path.split("/", 1)[0] for path in paths if "/" in path}):
        files = [f"{name}/{array}.npy" for array in ARRAYS]
        missing = [path for path in files if path not in paths]
        if len(missing) == len(files) and tolerate_strays:
            continue
        if missing:
            raise InputError("an array of this task is missing", where=storage.join(uri, name), got=", ".join(missing))
        tasks.append(Task(name, storage.join(uri, name)))
        read += files
    digests = store.digests([storage.join(uri, path) for path in read])
    return Folder(uri, tasks, info, content_key(list(zip(read, digests, strict=True)))[:16], None)


def gather(
    uri: str, starts: Ints, lengths: Ints, *, chunk: int = 4 << 20, gap: int = 16 << 10
) -> Iterator[NDArray[Any]]:
    """Values of ``[start, start + length)`` for each span, concatenated in the order given, in pieces.

    Spans that follow each other in the file, or lie at most ``gap`` values apart, are read at once; a read is about
    ``chunk`` values, so memory does not follow the file.

    Args:
        uri: a one-dimensional ``.npy``.
        starts: int64, shape (n,).
        lengths: int64, shape (n,), none negative.
    """
    used = lengths > 0
    starts, lengths = starts[used], lengths[used]
    if not len(starts):
        return
    pieces = -(-lengths // chunk)
    if int(pieces.max()) > 1:
        within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        rest = np.repeat(lengths, pieces) - within * chunk
        starts, lengths = np.repeat(starts, pieces) + within * chunk, np.minimum(rest, chunk)
    ends = starts + lengths
    apart = np.ones(len(starts), np.bool_)
    distance = starts[1:] - ends[:-1]
    apart[1:] = (distance < 0) | (distance > gap)
    block = (np.cumsum(lengths) - lengths) // chunk
    apart[1:] |= block[1:] != block[:-1]
    first = np.flatnonzero(apart)
    file, dtype, _ = open_npy(uri)
    with file:
        base = file.tell()
        for low, high in zip(first, [*first[1:], len(starts)], strict=True):
            begin = int(starts[low])
            count = int(ends[high - 1]) - begin
            file.seek(base + begin * dtype.itemsize)
            read = np.frombuffer(file.read(count * dtype.itemsize), dtype)
            if int(lengths[low:high].sum()) == count:
                yield read
                continue
            sizes = lengths[low:high]
            offsets = starts[low:high] - begin - (np.cumsum(sizes) - sizes)
            yield read[np.arange(int(sizes.sum())) + np.repeat(offsets, sizes)]
