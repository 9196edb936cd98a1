"""Token-array folders: one folder per data set with five one-dimensional ``.npy`` files, and ``tokenizer_info.json``.

The format is data_io's (docs/format.md section 4): ``tokens`` (uint32) has for each row the instruction span, directly
followed by the response span; ``inst_start, inst_len, resp_start, resp_len`` (uint64) are their positions. Files are
``.npy`` format 1.0, C order, little-endian (numpy.lib.format). A sixth file is ours, and may be absent:
``resp_bytes`` (uint64), the bytes of each response's text.
"""

import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pairmill import storage
from pairmill.digest import Digest
from pairmill.engine.content import UNKNOWN, Content, whole
from pairmill.errors import Changed, InputError

INFO = "tokenizer_info.json"
INDEX = ("inst_start", "inst_len", "resp_start", "resp_len")
TOKENS = "tokens"
ARRAYS = (TOKENS, *INDEX)
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
    """Write a one-dimensional ``.npy`` of ``length`` values given in chunks, and return the digest of the file.

    A thread makes the next chunk, casts it to ``dtype`` without a check and digests it while the present one is
    written: both take about as long.
    """

    head = header(np.dtype(dtype), length)
    digest = Digest(head)
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
    return digest.text()


@contextmanager
def writers(create: Callable[[str], AbstractContextManager[Path]]) -> Iterator[dict[str, NpyWriter]]:
    """Writers of the five arrays of a data set, by name; ``create`` opens the local file of an array."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(NpyWriter(stack.enter_context(create(f"{name}.npy")), dtype))
            for name, dtype in DTYPES.items()
        }


class Array(NamedTuple):
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
        if content.promised and content.size != (size := store.size(uri) if store.exists(uri) else -1):
            raise InputError(
                "is missing, or not what its manifest says",
                where=uri,
                got="nothing" if size < 0 else f"{size:,} bytes",
                expected=f"{content.size:,} bytes",
                hint="run the stage that made it again with verify=true, which finds and replaces damaged files",
            )
        with store.open(uri) as file:
            shape, dtype = _header_of(file, uri)
            offset, size = file.tell(), file.seek(0, io.SEEK_END)
        wrong = ""
        if len(shape) != 1:
            wrong = f"shape {shape}"
        elif dtype.kind not in "ui":
            wrong = f"dtype {dtype}"
        elif size != offset + shape[0] * dtype.itemsize:
            wrong = f"{size} bytes for shape {shape} of {dtype}"
        if wrong:
            raise InputError("not a one-dimensional array of integers", where=uri, got=wrong, hint="tokenize again")
        return cls(uri, dtype, shape[0], offset, content)

    @classmethod
    def from_size(cls, uri: str, dtype: type[np.generic], size: int) -> Self:
        """Return one that pairmill wrote, by the bytes of its file: nothing is read."""
        return cls(uri, np.dtype(dtype), (size - HEAD) // np.dtype(dtype).itemsize, HEAD)

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


def joined(dtype: type[np.generic], arrays: Sequence[Array]) -> list[bytes | storage.Span]:
    """Return the pieces of a ``.npy`` with the values of arrays of this type, in order."""
    spans = [
        storage.Span(item.uri, item.offset, item.offset + item.length * item.dtype.itemsize)
        for item in arrays
        if item.length
    ]
    return [header(np.dtype(dtype), sum(item.length for item in arrays)), *spans]


HEAD: Final = len(header(np.dtype(np.uint64), 0))
"""Bytes before the values in the files that pairmill writes."""
_LONGESTHEADER: Final = 1 << 20
_PARSING: Final = threading.Lock()
"""Held while numpy parses a header as Python: in 3.11 two threads that parse count one depth of recursion, and fail."""


def _header_of(file: BinaryIO, uri: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type. Raises InputError if it is not a header."""
    try:
        version = npy.read_magic(file)
        size, reader = (2, npy.read_array_header_1_0) if version == (1, 0) else (4, npy.read_array_header_2_0)
        length = file.read(size)
        header = io.BytesIO(length + file.read(min(int.from_bytes(length, "little"), _LONGESTHEADER)))
        with _PARSING:
            shape, _, dtype = reader(header)
    except Exception as error:  # numpy parses the header as Python, which raises SyntaxError, TokenError and more
        raise InputError("not a readable .npy file", where=uri, got=str(error)) from error
    return shape, dtype


@dataclass(frozen=True)
class Dataset:
    """A data set of a tokenized folder.

    Attributes:
        name: what rules call it.
        contents: the expected contents of its arrays; their sizes too, and digests, as far as they are known.
        sampled: in place of the digest of ``tokens.npy`` in the key, where no manifest says it.
    """

    name: str
    uri: str
    contents: Mapping[str, Content] = field(default_factory=dict)
    sampled: str = ""

    @cached_property
    def key(self) -> str:
        """Return the content identity, whatever its name and place: of the five arrays that it cannot be without."""
        digests = {name: self.contents[name].digest for name in ARRAYS}
        digests["tokens"] = self.sampled or digests["tokens"]
        # What fingerprint_from(list(digests.items())) is, in a tenth of its time.
        pairs = ",".join(f'["{name}","{digest}"]' for name, digest in digests.items())
        return hashlib.sha256(f"[[{pairs}]]".encode()).hexdigest()[:16]

    @property
    def own(self) -> str:
        """Its name in its folder, which files of rows and of attributes have too; rules may call it another."""
        return storage.name_of(self.uri)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Its rows, and its tokens; by the sizes of files that a manifest promises, without a read."""
        tokens, rows = self.contents.get("tokens", UNKNOWN), self.contents.get("inst_len", UNKNOWN)
        if tokens.promised and rows.promised and min(tokens.size, rows.size) >= HEAD:
            return (rows.size - HEAD) // 8, (tokens.size - HEAD) // 4
        return self.array("inst_len").length, self.array().length

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
