"""Flat token files as fixed-length windows: one indexable source of batches, as a mixture needs it.

A window is ``seq_len + 1`` tokens of one file and the next begins ``seq_len`` further, so that every token but a file's
last is an input once and every one but its first a label once. What a file's last window leaves of its slots is padded,
not dropped. The parity mode :mod:`pairmill.compat.kempner` cuts, loses and guesses as the program does that it follows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pairmill import _native
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError, UsageError
from pairmill.formats.tokens import INDEX, Array
from pairmill.loader import arguments
from pairmill.loader.arguments import reading, several, shown, text, whole
from pairmill.loader.arrays import Mapped, digests, recorded
from pairmill.loader.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Tokens = NDArray[np.integer[Any]]

# Raised when the same files give other windows.
_VERSION = 1
_RAW = ".bin"
_INDEX = frozenset(f"{name}.npy" for name in INDEX)


class Windows:
    """Windows over token arrays; see `of_files` and `of_arrays`. It never changes, and threads may share it.

    Window w of a file of t tokens is its tokens [w * seq_len, w * seq_len + seq_len], of which the file has
    ceil((t - 1) / seq_len); windows are numbered through the files in order.

    Attributes:
        name: what a mixture calls this source; not part of the digest.
        seq_len: slots of a window.
        eos_id: the id that ends a document, where windows are packed; else None.
        fields: names of the arrays that `fill` writes.
        tokenizer: what the folder says of its tokenizer, if it says something.
        tokens: tokens in all files.
        windows: number of windows, which is also `len()`.
        padded: slots of these windows that hold no token.
    """

    def __init__(
        self,
        arrays: Sequence[Tokens],
        places: Sequence[str],
        digests: Callable[[], Sequence[str]],
        *,
        seq_len: int,
        eos_id: int | None,
        name: str,
        mapped: Mapped | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        seq_len = whole(seq_len, "seq_len")
        eos_id = None if eos_id is None else whole(eos_id, "eos_id", most=2**64)
        name = text(name, "name")
        if seq_len < 1:
            raise UsageError("is no length of a window", where="seq_len", got=str(seq_len), expected=">= 1")
        if eos_id is not None and not 0 <= eos_id < 2**63:
            raise UsageError("is no token id", where="eos_id", got=str(eos_id), expected="0 to 2**63 - 1, or None")
        for array, place in zip(arrays, places, strict=True):
            _check(array, place)
        self.name, self.seq_len, self.eos_id = name, seq_len, eos_id
        self.fields = fields_of(eos_id)
        self._places, self._digests, self._mapped = list(places), digests, mapped
        self.tokenizer = tokenizer
        self._held = _native.TokenArrays(arrays)
        self._lengths = np.array([len(array) for array in arrays], np.int64)
        targets = self._lengths - 1
        self._ends = np.cumsum(-(-targets // seq_len))
        self.tokens = int(self._lengths.sum())
        self.windows = int(self._ends[-1]) if len(arrays) else 0
        self.padded = self.windows * seq_len - int(targets.sum())
        if not self.windows:
            raise InputError(
                "has no window",
                where=name,
                got=f"{len(arrays)} files of {self.tokens} tokens",
                expected="2 or more in one",
            )

    @classmethod
    def of_files(
        cls,
        folder: str | Path,
        *,
        seq_len: int,
        pattern: str = "*.npy",
        dtype: DTypeLike | None = None,
        eos_id: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Map the token files of a folder into memory, in the order of their paths.

        Args:
            folder: on this machine.
            seq_len: slots of a window.
            pattern: glob below the folder. Beside the four index arrays of a task or an epoch `tokens.npy` alone is one
                of tokens, and they are left out. `.npy` files are of one dimension, `.bin` files ids without a header.
            dtype: of the ids in `.bin` files, which do not say it: little-endian, as "uint16". A `.npy` file says its
                own, which must be this if it is given.
            eos_id: the id that ends a document; given, windows are packed: `doc_ids` is written too, and nothing is
                to be predicted from the end of a document.
            name: of the source; None = that of the folder.

        Raises:
            StorageError: the folder or a file cannot be read.
            InputError: no file, an unfinished folder of pairmill, or a file that is empty, truncated, damaged, of
                another dimension or kind of number.
            UsageError: no dtype for raw files, or an argument that is none.
        """
        folder = Path(arguments.path(folder, "folder")).expanduser()
        with reading(folder):
            return cls._of_files(folder, seq_len, text(pattern, "pattern"), dtype, eos_id, name)

    @classmethod
    def _of_files(
        cls, folder: Path, seq_len: int, pattern: str, dtype: DTypeLike | None, eos_id: int | None, name: str | None
    ) -> Self:
        os.scandir(folder).close()  # a glob finds nothing where it may not look
        try:
            found_all = [path for path in folder.glob(pattern) if path.is_file()]
        except (ValueError, NotImplementedError, IndexError) as error:
            raise UsageError(
                "is not a pattern", where="pattern", got=shown(pattern), expected="as *.npy, below the folder"
            ) from error
        paths = sorted(path for path in found_all if not _is_index(path))
        if not paths:
            got = f"index arrays alone that match {pattern!r}" if found_all else f"nothing that matches {pattern!r}"
            raise InputError("no token file", where=str(folder), got=got, hint="check both")
        names = [path.relative_to(folder).as_posix() for path in paths]
        known = recorded(folder, names)
        given = None if dtype is None else _token_type(dtype)
        files = Mapped(paths)
        arrays = [_mapped(path, given) for path in paths]

        def found() -> list[str]:
            # A raw file says nothing of its ids: other ones of the same bytes are other data.
            return [
                f"{digest} {array.dtype.str if path.suffix == _RAW else ''}"
                for digest, array, path in zip(digests(folder, names, known), arrays, paths, strict=True)
            ]

        return cls(
            arrays,
            [str(path) for path in paths],
            found,
            seq_len=seq_len,
            eos_id=eos_id,
            name=name or folder.resolve().name,
            mapped=files,
            tokenizer=Tokenizer.above(folder),
        )

    @classmethod
    def of_arrays(
        cls, arrays: Sequence[Tokens], *, seq_len: int, eos_id: int | None = None, name: str = "arrays"
    ) -> Self:
        """Take arrays as files: integers [tokens] each, contiguous, kept and not copied. Otherwise as `of_files`."""
        arrays = several(arrays, np.ndarray, "arrays", "arrays of token ids, one or more")

        def found() -> list[str]:
            return [f"{hashlib.sha256(array.data).hexdigest()} {array.dtype.str}" for array in arrays]

        places = [f"{name}[{number}]" for number in range(len(arrays))]
        return cls(arrays, places, found, seq_len=seq_len, eos_id=eos_id, name=name)

    def __len__(self) -> int:
        return self.windows

    @cached_property
    def digest(self) -> str:
        """Hexadecimal sha256 over what the windows hold: the files' bytes in order, `seq_len`, `eos_id`.

        The first time, files are read that no `_MANIFEST.json` beside them lists with its sha256.
        """
        with reading(self.name):
            return content_key("windows", _VERSION, self.seq_len, self.eos_id, list(self._digests()))

    def check(self) -> None:
        """See that no file was made shorter since it was mapped.

        Raises:
            InputError: one was.
        """
        if self._mapped is not None:
            self._mapped.check()

    def empty(self, count: int) -> dict[str, Ints]:
        """New arrays for `fill`: int64 [count, seq_len] for each of `fields`, not yet written."""
        return {field: np.empty((count, self.seq_len), np.int64) for field in self.fields}

    def fill(self, indices: Ints, out: Mapping[str, Ints]) -> None:
        """Write windows, without the interpreter's lock.

        Args:
            indices: which, int64 [b], of 0 to `windows` - 1.
            out: int64 [b, seq_len], C-contiguous, for each of `fields`. `input_ids`: the window's tokens but the last,
                then 0. `labels`: its tokens but the first, then -100; packed, -100 too where `input_ids` is `eos_id`.
                `doc_ids`: how many `eos_id` stand before in the window; padding is a document of its own.

        Raises:
            UsageError: no such window, or `out` is not that.
            InputError: a window has an id below 0 or above 2**63 - 1; which file is said.
        """
        try:
            indices = np.ascontiguousarray(indices, np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                "are not indices", where=f"{self.name}: indices", got=shown(indices), expected="int64 [b]"
            ) from error
        outside = (indices < 0) | (indices >= self.windows)
        if outside.any():
            got = str(int(indices[outside][0]))
            raise UsageError("has no such window", where=self.name, got=got, expected=f"0 to {self.windows - 1}")
        files = np.searchsorted(self._ends, indices, side="right")
        first = np.where(files > 0, self._ends[files - 1], 0)
        starts = (indices - first) * self.seq_len
        lengths = np.minimum(self._lengths[files] - starts, self.seq_len + 1)
        try:
            doc_ids = None if self.eos_id is None else out["doc_ids"]
            bad = self._held.fill(files, starts, lengths, out["input_ids"], out["labels"], doc_ids, self.eos_id)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            shape = f"int64 [{len(indices)}, {self.seq_len}], C-contiguous and writeable"
            raise UsageError(
                "are no arrays to fill", where=f"{self.name}: out", got=repr(error), expected=f"{self.fields}: {shape}"
            ) from error
        if bad is not None:
            raise InputError(
                "holds what is no token id",
                where=f"{self._places[files[bad]]} from token {starts[bad]} on",
                got="a number below 0 or above 2**63 - 1",
                hint="tokenize again; of a raw file, check dtype",
            )


def fields_of(eos_id: int | None) -> tuple[str, ...]:
    """Names of a window's arrays, where this id ends documents or none does."""
    return ("input_ids", "labels") if eos_id is None else ("input_ids", "labels", "doc_ids")


def _is_index(path: Path) -> bool:
    """Whether this is one of four index arrays that lie together."""
    return path.name in _INDEX and all((path.parent / name).is_file() for name in _INDEX)


def _token_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise UsageError(
            "is no dtype", where="dtype", got=repr(dtype), expected="uint16, uint32 or the like"
        ) from error
    if found.kind not in "ui" or not found.isnative:
        raise UsageError("is no dtype of token ids", where="dtype", got=str(found), expected="a little-endian integer")
    return found


def _mapped(path: Path, given: np.dtype[Any] | None) -> Tokens:
    size = path.stat().st_size
    if not size:
        raise InputError("is empty", where=str(path), hint="it was truncated, or nothing was written to it")
    if path.suffix == ".npy":
        array = Array.of(str(path))
        if given not in {None, array.dtype}:
            raise InputError("is of another dtype", where=str(path), got=str(array.dtype), expected=str(given))
        dtype, offset, length = array.dtype, array.offset, array.length
    elif path.suffix != _RAW:
        raise InputError(
            "is no token file by its name", where=str(path), expected=f".npy or {_RAW}", hint="see pattern"
        )
    elif given is None:
        raise UsageError(
            "raw files do not say the dtype of their ids",
            where=str(path),
            expected="dtype=",
            hint="give the one that they were written with: uint16 and uint32 look alike",
        )
    elif size % given.itemsize:
        raise InputError("is truncated, or of another dtype", where=str(path), got=f"{size} bytes", expected=str(given))
    else:
        dtype, offset, length = given, 0, size // given.itemsize
    if not length:
        raise InputError("holds no token", where=str(path), hint="leave it out with pattern")
    return np.asarray(np.memmap(path, dtype, "r", offset, (length,)))


def _check(array: Tokens, place: str) -> None:
    wrong = ""
    if array.ndim != 1:
        wrong = f"shape {array.shape}"
    elif array.dtype.kind not in "ui" or not array.dtype.isnative:
        wrong = f"dtype {array.dtype.str}"
    elif not len(array):
        wrong = "no token"
    elif not (array.flags.c_contiguous and array.flags.aligned):
        wrong = "elements that do not follow each other in memory"
    if wrong:
        raise InputError("is no token array", where=place, got=wrong, expected="integers [tokens], contiguous")
