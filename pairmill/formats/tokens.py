"""Token-array folders: one folder per data set with five one-dimensional ``.npy`` files, and ``tokenizer_info.json``.

The format is data_io's (docs/format.md section 4): ``tokens`` (uint32) has for each row the instruction span, directly
followed by the response span; ``inst_start, inst_len, resp_start, resp_len`` (uint64) are their positions. Files are
``.npy`` format 1.0, C order, little-endian (numpy.lib.format). A sixth file is ours, and may be absent:
``resp_bytes`` (uint64), the bytes of each response's text.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pairmill import storage
from pairmill.address import refuse
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, Content, whole
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.links import list_folder
from pairmill.engine.manifest import fingerprint_from
from pairmill.engine.results import HeldOutRows
from pairmill.errors import Changed, InputError

INFO = "tokenizer_info.json"
INDEX = ("inst_start", "inst_len", "resp_start", "resp_len")
ARRAYS = ("tokens", *INDEX)
DTYPES: dict[str, type[np.generic]] = {"tokens": np.uint32, **dict.fromkeys(INDEX, np.uint64)}
BYTES = "resp_bytes"
"""Bytes of UTF-8 of each response, as it was before the tokenizer; folders of others, and with data_io, lack it."""
BYTES_DTYPE = np.uint64
ROWS = "rows"
"""Ordinal in the row file of each tokenized row, where tokenize dropped some; a data set without it has all rows."""
ROWS_DTYPE = np.int64
UNKNOWN_BYTES = -1
"""In samples, of a response whose text is not known: it was cut, or its data set lacks the array."""

Ints = NDArray[np.int64]


def narrowest(largest: int) -> np.dtype[Any]:
    """int32 if it holds numbers of 0 to ``largest``, else int64."""
    return np.dtype(np.int32 if largest < 2**31 else np.int64)


class NpyWriter:
    """Appends to a one-dimensional ``.npy`` of unknown length; the header is rewritten at the end."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self._dtype = np.dtype(dtype)
        self._length = 0
        self._file = path.open("wb")
        self._head = self._file.write(header(self._dtype, 0))

    def append(self, values: NDArray[Any]) -> None:
        """Append values, cast to the writer's dtype without a check."""
        # Never a mapped file: on a full tmpfs a mapped write raises SIGBUS, not an error.
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
                if self._file.write(header(self._dtype, self._length)) != self._head:
                    raise AssertionError("numpy pads every one-dimensional header to one size")


def header(dtype: np.dtype[Any], length: int) -> bytes:
    out = io.BytesIO()
    npy.write_array_header_1_0(out, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)})
    return out.getvalue()


def write_npy(path: Path, dtype: type[np.generic], length: int, chunks: Iterable[NDArray[Any]]) -> str:
    """Write a one-dimensional ``.npy`` of ``length`` values given in chunks, and return the sha256 of the file.

    A thread makes the next chunk, casts it to ``dtype`` without a check and digests it while the present one is
    written: both take about as long.
    """

    head = header(np.dtype(dtype), length)
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
    """Writers of the five arrays of a data set, by name; ``create`` opens the local file of an array."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(NpyWriter(stack.enter_context(create(f"{name}.npy")), dtype))
            for name, dtype in DTYPES.items()
        }


@dataclass(frozen=True)
class Array:
    """A one-dimensional ``.npy`` of integers; its values start at byte ``offset`` of the object."""

    uri: str
    dtype: np.dtype[Any]
    length: int
    offset: int
    content: Content = UNKNOWN

    @classmethod
    def open(cls, uri: str, content: Content = UNKNOWN) -> Self:
        """Read the header. ``content`` is the expected content, which is compared when all of it is read.

        Raises:
            InputError: absent, not an ``.npy`` of one dimension and integers, or shorter than its header says.
        """
        store = storage.store_for(uri)
        with store.open(uri) as file:
            shape, dtype = _header_of(file, uri)
            offset = file.tell()
        wrong = ""
        if len(shape) != 1:
            wrong = f"shape {shape}"
        elif dtype.kind not in "ui":
            wrong = f"dtype {dtype}"
        elif store.size(uri) != offset + shape[0] * dtype.itemsize:
            wrong = f"{store.size(uri)} bytes for shape {shape} of {dtype}"
        if wrong:
            raise InputError("not a one-dimensional array of integers", where=uri, got=wrong, hint="tokenize again")
        return cls(uri, dtype, shape[0], offset, content)

    def pieces(self, size: int = 1 << 17) -> Iterator[NDArray[Any]]:
        """Yield all values in order, ``size`` at a time.

        Raises:
            Changed: after the last value: the object has not the expected content, or another header than before.
        """
        with whole(self.uri, self.content) as file:
            if _header_of(file, self.uri) != ((self.length,), self.dtype):
                raise Changed("changed while it was read", where=self.uri, hint="run the same command again")
            while data := file.read(size * self.dtype.itemsize):
                yield np.frombuffer(data, self.dtype)


_LONGEST_HEADER: Final = 1 << 20
_PARSING: Final = threading.Lock()
"""Held while numpy parses a header as Python: in 3.11 two threads that parse count one depth of recursion, and fail."""


def _header_of(file: BinaryIO, uri: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type. Raises InputError if it is not a header."""
    try:
        version = npy.read_magic(file)
        size, reader = (2, npy.read_array_header_1_0) if version == (1, 0) else (4, npy.read_array_header_2_0)
        length = file.read(size)
        header = io.BytesIO(length + file.read(min(int.from_bytes(length, "little"), _LONGEST_HEADER)))
        with _PARSING:
            shape, _, dtype = reader(header)
    except Exception as error:  # numpy parses the header as Python, which raises SyntaxError, TokenError and more
        raise InputError("not a readable .npy file", where=uri, got=str(error)) from error
    return shape, dtype


@dataclass(frozen=True)
class Dataset:
    """A data set of a tokenized folder: its name, the URI of its folder, and the expected contents of its arrays."""

    name: str
    uri: str
    contents: Mapping[str, Content] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Content identity, whatever its name and place: of the five arrays that it cannot be without."""
        return fingerprint_from([[name, self.contents[name].sha256] for name in ARRAYS])

    @property
    def has_bytes(self) -> bool:
        """Whether the bytes of its responses are known."""
        return BYTES in self.contents

    def ordinals(self) -> Ints | None:
        """Return the ordinals in the row file of its rows, int64 [rows]; None if it has all rows of the file.

        Whoever puts attributes of rows beside tokens asks here which rows there are.
        """
        if ROWS not in self.contents and not storage.store_for(self.uri).exists(storage.join(self.uri, f"{ROWS}.npy")):
            return None
        parts = [np.empty(0, np.int64), *self.array(ROWS).pieces()]
        return np.concatenate(parts).astype(np.int64)

    def array(self, name: str = "tokens") -> Array:
        """Return the array of tokens, or another one."""
        return Array.open(storage.join(self.uri, f"{name}.npy"), self.contents.get(name, UNKNOWN))

    def index(self, size: int = 1 << 15, *, with_bytes: bool = False) -> Iterator[dict[str, Ints]]:
        """Yield the four index arrays as int64, ``size`` rows at a time, checked against each other and ``tokens.npy``.

        ``with_bytes`` adds :data:`BYTES`, if the data set has them.

        Raises:
            InputError: lengths differ, a span is outside the tokens, or the spans do not have as many tokens in all.
        """
        length = self.array().length
        names = (*INDEX, BYTES) if with_bytes and self.has_bytes else INDEX
        raw = {name: self.array(name) for name in names}
        if len({array.length for array in raw.values()}) != 1:
            raise InputError(
                "the index arrays differ in length", where=self.uri, got=str({k: v.length for k, v in raw.items()})
            )
        first = total = 0
        for columns in zip(*(array.pieces(size) for array in raw.values()), strict=True):
            for name, values in zip(names, columns, strict=True):
                most = 2**63 - 1 if name == BYTES else length
                if int(values.max()) > most or int(values.min()) < 0:
                    what = "has a wrong number" if name == BYTES else "points outside the tokens"
                    raise InputError(f"{name} {what}", where=self.uri, expected=f"0 to {most}")
            index = {name: values.astype(np.int64) for name, values in zip(names, columns, strict=True)}
            for part in ("inst", "resp"):
                ends = index[f"{part}_start"] + index[f"{part}_len"]
                if int(ends.max()) > length:
                    row = int(ends.argmax())
                    raise InputError(
                        "a span ends after the last token",
                        where=f"{self.uri} row {first + row + 1}",
                        got=str(int(ends[row])),
                        expected=f"<= {length}",
                    )
            total += int(index["inst_len"].sum() + index["resp_len"].sum())
            first += len(index["inst_len"])
            yield index
        if total != length:
            raise InputError(
                "tokens.npy has another length than all spans together",
                where=self.uri,
                got=str(length),
                expected=str(total),
            )


@dataclass(frozen=True)
class Folder:
    """A tokenized folder: its data sets sorted by name by code point, and what identifies its content."""

    uri: str
    tasks: list[Dataset]
    info: dict[str, Any]
    fingerprint: str
    rows: int | None
    """Rows by the manifest; None for a folder without one."""
    tokenizer: str = ""
    """First 16 digits of the tokenizer.json's sha256, by the manifest."""


def open_folder(
    given: str, option: str, *, tolerate_strays: bool, verify: bool = False, held_out: bool = False
) -> Folder:
    """Open a tokenized folder, made by pairmill or by others.

    Args:
        given: path or URI.
        option: the option that named it, for messages.
        tolerate_strays: skip folders with none of the five arrays; the reference fails on them.
        verify: digest the arrays of a finished folder now, not when they are read.
        held_out: open the held-out rows instead; their data sets begin with HELD_OUT.

    Raises:
        InputError: the folder is absent, unfinished or damaged, or has no held-out rows.
    """
    refuse(given, option, fetch="tokenized")
    uri = storage.normalise(given, option)
    store = storage.store_for(uri)
    manifest = manifests.read_intact(uri)
    # By name: a listing may be older than the latest write.
    if not store.exists(storage.join(uri, INFO)):
        raise InputError(
            f"not a tokenized folder: {INFO} does not exist", where=f"{option}={uri}", hint="check the path"
        )
    try:
        data = manifests.read_file(uri, manifest, INFO)
        info = json.loads(data)
        if not isinstance(info, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise InputError("not a JSON object", where=storage.join(uri, INFO), got=str(error)) from error
    if manifest is not None:
        tasks = [item for item in _promised(uri, manifest, verify) if item.name.startswith(HELD_OUT) == held_out]
        if held_out and not tasks:
            raise _nothing_held_out(option, uri)
        if not tasks:
            raise _no_task(option, uri)
        tokenizer = next((ref.fingerprint for ref in manifest.inputs if ref.role == "tokenizer"), "")
        rows = HeldOutRows.count(manifest) if held_out else manifest.ledger.rows_out
        return Folder(uri, tasks, info, manifest.fingerprint, rows, tokenizer)
    # A data set is a folder of the first floor.
    paths = {entry.path for entry in list_folder(uri, lambda link: link.find("/") == len(link) - 1)}
    if held_out:
        if HELD_OUT + INFO not in paths:
            raise _nothing_held_out(option, uri)
        inner = open_folder(storage.join(uri, HELD_OUT.rstrip("/")), option, tolerate_strays=tolerate_strays)
        return replace(inner, uri=uri, tasks=[replace(item, name=HELD_OUT + item.name) for item in inner.tasks])
    names = names_in(uri, paths, tolerate_strays=tolerate_strays)
    if not names:
        raise _no_task(option, uri)
    tasks = [Dataset(name, storage.join(uri, name)) for name in names]
    read = [INFO, *(f"{name}/{array}.npy" for name in names for array in ARRAYS)]
    read += [path for name in names if (path := f"{name}/{BYTES}.npy") in paths]
    result = dict(zip(read, store.digested([storage.join(uri, path) for path in read]), strict=True))
    Content(result[INFO].sha256).require(storage.join(uri, INFO), hashlib.sha256(data).hexdigest())
    contents = {path: Content(item.sha256, item.stamp) for path, item in result.items()}
    tasks = [_task(task.name, task.uri, contents) for task in tasks]
    return Folder(uri, tasks, info, fingerprint_from([(path, item.sha256) for path, item in result.items()]), None)


def names_in(uri: str, paths: Collection[str], *, tolerate_strays: bool) -> list[str]:
    """Return the data sets of a tokenized folder with these files, sorted.

    Raises:
        InputError: a data set lacks an array.
    """
    names = []
    if HELD_OUT + INFO in paths:  # a tokenized folder of its own
        paths = [path for path in paths if not path.startswith(HELD_OUT)]
    for name in sorted({path.split("/", 1)[0] for path in paths if "/" in path}):
        files = [f"{name}/{array}.npy" for array in ARRAYS]
        missing = [path for path in files if path not in paths]
        if len(missing) == len(files) and tolerate_strays:
            continue
        if missing:
            raise InputError(
                "arrays of this data set are missing", where=storage.join(uri, name), got=", ".join(missing)
            )
        names.append(name)
    return names


def _no_task(option: str, uri: str) -> InputError:
    return InputError(
        "no data set in the tokenized folder",
        where=f"{option}={uri}",
        expected=f"folders with the arrays {', '.join(ARRAYS)}; links are followed with links=follow",
        hint="check the path, or tokenize again",
    )


def _nothing_held_out(option: str, uri: str) -> InputError:
    return InputError(
        "the tokenized folder has no held-out rows",
        where=f"{option}={uri}",
        expected=f"a folder with {HELD_OUT}",
        hint="clean with holdout=, as in holdout=0.01, and tokenize what that gives",
    )


def _task(name: str, uri: str, contents: Mapping[str, Content]) -> Dataset:
    """``contents``: by path below the folder."""
    mine = {array: contents[path] for array in (*ARRAYS, BYTES, ROWS) if (path := f"{name}/{array}.npy") in contents}
    return Dataset(name, uri, mine)


def _promised(uri: str, manifest: manifests.Manifest, verify: bool) -> list[Dataset]:
    wrong = manifests.find_damage(uri, manifest.files, verify=True) if verify else []
    if wrong:
        raise InputError(
            f"{len(wrong)} of its files differ from its manifest",
            where=uri,
            got=wrong[0],
            hint="tokenize again with verify=true",
        )
    stamps = {entry.path: entry.stamp for entry in storage.store_for(uri).list(uri)}
    contents = {file.path: Content(file.sha256, stamps.get(file.path, ""), not verify) for file in manifest.files}
    return [_task(name, storage.join(uri, name), contents) for name in sorted(manifest.tasks())]
