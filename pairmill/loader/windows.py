"""Flat token files as fixed-length windows: one indexable source of batches for a mixture.

A window is ``seq_len + 1`` tokens of one file and the next begins ``seq_len`` tokens later. So every token of a file
but the last is an input once, and every token but the first a label once. Unused slots of a file's last window are
padded, not dropped. What KempnerForge does in place of this is in docs/differences.md.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pairmill import _native
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, content_key
from pairmill.errors import InputError, UsageError
from pairmill.formats import window_files
from pairmill.formats.tokens import BYTES, INDEX
from pairmill.loader import arguments
from pairmill.loader.arguments import instances, integer, os_errors, shown, string
from pairmill.loader.arrays import MappedFiles, map_array, numbers
from pairmill.loader.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Tokens = NDArray[np.integer[Any]]

# Raised when the same files give other windows.
_VERSION = 1
_RAW = ".bin"
_INDEX = frozenset(f"{name}.npy" for name in INDEX)
_BYTES = f"{BYTES}.npy"


class Windows:
    """Windows over token arrays; see `of_files` and `of_arrays`. It never changes, and threads may share it.

    Window w of a file of t tokens is its tokens [w * seq_len, w * seq_len + seq_len], and there are
    ceil((t - 1) / seq_len) of them; windows are numbered through the files in order.

    Attributes:
        name: what a mixture calls this source; not part of the digest.
        seq_len: slots of a window.
        eos_id: the id that ends a document if windows are packed, else None.
        fields: names of the arrays that `fill` writes.
        tokenizer: what the folder says about its tokenizer, if it says something.
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
        files: MappedFiles | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.name, self.seq_len = string(name, "name"), integer(seq_len, "seq_len", 1)
        self.eos_id = None if eos_id is None else integer(eos_id, "eos_id", 0)
        for array, place in zip(arrays, places, strict=True):
            _check(array, place)
        self.fields = fields_of(self.eos_id)
        self.tokenizer = tokenizer
        self._places, self._digests, self._files = list(places), digests, files
        self._held = _native.TokenArrays([numbers(array) for array in arrays])
        self._whole: Windows | None = None  # of which these are some: it digests the files once for all parts
        self._chosen: Ints | None = None
        self._lengths = np.array([len(array) for array in arrays], np.int64)
        targets = self._lengths - 1
        self._ends = np.cumsum(-(-targets // self.seq_len))
        self.tokens = int(self._lengths.sum())
        self.windows = int(self._ends[-1]) if len(arrays) else 0
        self.padded = self.windows * self.seq_len - int(targets.sum())
        if not self.windows:
            got = f"{len(arrays)} files of {self.tokens} tokens"
            raise InputError("no window", where=self.name, got=got, expected="a file of at least 2 tokens")

    @classmethod
    def of_files(
        cls,
        folder: str | Path,
        *,
        seq_len: int,
        pattern: str | Sequence[str] = "*.npy",
        dtype: DTypeLike | None = None,
        eos_id: int | Literal["recorded"] | None = "recorded",
        name: str | None = None,
    ) -> Self:
        """Map the token files of a folder into memory, in the order of their paths.

        Args:
            folder: on this machine.
            seq_len: slots of a window.
            pattern: glob below the folder, or several, of one-dimensional `.npy` files, or `.bin` files of ids without
                a header. The four index arrays of a task or an epoch are left out: of these five files only
                `tokens.npy` has tokens.
            dtype: of the ids in `.bin` files, which do not say it: little-endian, as "uint16". A `.npy` file says its
                own, which must be this one if it is given.
            eos_id: the id that ends a document; if there is one, windows are packed: `doc_ids` is written too, and
                nothing is predicted from the end of a document. By default the id that the folder's `windows.json`
                records, which tokenize writes with windows=true, and none if there is no such file; None = no id.
            name: of the source; None = the folder's name.

        Raises:
            StorageError: the folder or a file cannot be read.
            InputError: no file, an unfinished folder of pairmill, or a file that is empty, truncated, damaged, or of
                another dimension or kind of number.
            UsageError: no dtype for raw files, or an invalid argument.
        """
        folder = Path(arguments.path(folder, "folder")).expanduser()
        patterns = [pattern] if isinstance(pattern, str) else instances(pattern, str, "pattern", "a glob or several")
        with os_errors(folder):
            os.scandir(folder).close()  # a glob finds nothing if it may not look
            try:
                matches = {path for item in patterns for path in folder.glob(item) if path.is_file()}
            except (ValueError, NotImplementedError, IndexError) as error:
                expected = "a pattern below the folder, e.g. *.npy"
                raise UsageError("not a pattern", where="pattern", got=shown(pattern), expected=expected) from error
            paths = sorted(path for path in matches if not _is_index(path))
            if not paths:
                got = f"only index arrays for {pattern!r}" if matches else f"no match for {pattern!r}"
                raise InputError("no token files", where=str(folder), got=got, hint="check the folder and the pattern")
            names = [path.relative_to(folder).as_posix() for path in paths]
            recorded = window_files.end_of_document(folder)
            files = MappedFiles(folder, names, _recorded(folder))
            given = None if dtype is None else _token_type(dtype)
            arrays = [_mapped(path, given) for path in paths]
            tokenizer = Tokenizer.above(folder)

        def digests() -> list[str]:
            # A raw file does not say the type of its ids: the same bytes with another type are other data.
            types = [array.dtype.str if path.suffix == _RAW else "" for path, array in zip(paths, arrays, strict=True)]
            return [f"{digest} {dtype}" for digest, dtype in zip(files.digests().values(), types, strict=True)]

        title = name or folder.resolve().name
        places = [str(path) for path in paths]
        end = recorded if eos_id == "recorded" else eos_id
        return cls(arrays, places, digests, seq_len=seq_len, eos_id=end, name=title, files=files, tokenizer=tokenizer)

    @classmethod
    def of_arrays(
        cls, arrays: Sequence[Tokens], *, seq_len: int, eos_id: int | None = None, name: str = "arrays"
    ) -> Self:
        """Take arrays as files: integers [tokens] each, contiguous, kept and not copied. Otherwise as `of_files`."""
        arrays = instances(arrays, np.ndarray, "arrays", "arrays of token ids, at least one")

        def digests() -> list[str]:
            return [f"{hashlib.sha256(array.data).hexdigest()} {array.dtype.str}" for array in arrays]

        places = [f"{name}[{number}]" for number in range(len(arrays))]
        return cls(arrays, places, digests, seq_len=seq_len, eos_id=eos_id, name=name)

    def __len__(self) -> int:
        return self.windows

    @cached_property
    def digest(self) -> str:
        """Hexadecimal sha256 over what the windows hold: the files' bytes in order, `seq_len`, `eos_id`.

        The first time, files are read if no `_MANIFEST.json` beside them lists their digests.
        """
        if self._whole is not None and self._chosen is not None:
            content: list[object] = ["some windows", self._whole.digest, hashlib.sha256(self._chosen.data).hexdigest()]
        else:
            with os_errors(self.name):
                content = ["windows", _VERSION, self.seq_len, self.eos_id, list(self._digests())]
        return content_key(*content)

    def only(self, indices: Ints) -> Self:
        """Return these windows alone, int64 [n], numbered from 0 in this order; other data, so another digest.

        Raises:
            UsageError: none, or no such window.
        """
        indices = np.ascontiguousarray(indices, np.int64)
        if not len(indices) or int(indices.min()) < 0 or int(indices.max()) >= self.windows:
            expected = f"at least one of 0 to {self.windows - 1}"
            raise UsageError("no such window", where=self.name, got=shown(indices), expected=expected)
        result = copy(self)
        vars(result).pop("digest", None)
        result._whole = self if self._whole is None else self._whole
        result._chosen = indices if self._chosen is None else self._chosen[indices]
        result.windows = len(indices)
        return result

    def check(self) -> None:
        """Raise InputError if a file was truncated since it was mapped."""
        if self._files is not None:
            self._files.check()

    def empty(self, count: int) -> dict[str, Ints]:
        """Return new arrays for `fill`: int64 [count, seq_len] for each of `fields`, not yet written."""
        return {field: np.empty((count, self.seq_len), np.int64) for field in self.fields}

    def fill(self, indices: Ints, out: Mapping[str, Ints]) -> None:
        """Write windows, without the interpreter's lock.

        Args:
            indices: which, int64 [b], of 0 to `windows` - 1.
            out: int64 [b, seq_len], C-contiguous, for each of `fields`. `input_ids`: the window's tokens but the last,
                then 0. `labels`: its tokens but the first, then -100; if packed, also -100 where `input_ids` is
                `eos_id`. `doc_ids`: how many `eos_id` come before it in the window; padding is a document of its own.

        Raises:
            UsageError: no such window, or `out` is not as described.
            InputError: a window has an id below 0 or above 2**63 - 1; the message names the file.
        """
        try:
            indices = np.ascontiguousarray(indices, np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            where = f"{self.name}: indices"
            raise UsageError("not indices", where=where, got=shown(indices), expected="int64 [b]") from error
        outside = (indices < 0) | (indices >= self.windows)
        if outside.any():
            got = str(int(indices[outside][0]))
            raise UsageError("no such window", where=self.name, got=got, expected=f"0 to {self.windows - 1}")
        if self._chosen is not None:
            indices = self._chosen[indices]
        files = np.searchsorted(self._ends, indices, side="right")
        first = np.where(files > 0, self._ends[files - 1], 0)
        starts = (indices - first) * self.seq_len
        lengths = np.minimum(self._lengths[files] - starts, self.seq_len + 1)
        try:
            doc_ids, ids, labels = None if self.eos_id is None else out["doc_ids"], out["input_ids"], out["labels"]
            bad = self._held.fill(files, starts, lengths, ids, labels, doc_ids=doc_ids, eos_id=self.eos_id)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            expected = f"{self.fields}: int64 [{len(indices)}, {self.seq_len}], C-contiguous and writeable"
            where = f"{self.name}: out"
            raise UsageError(
                "these arrays cannot be filled", where=where, got=repr(error), expected=expected
            ) from error
        if bad is not None:
            raise InputError(
                "not a token id",
                where=f"{self._places[files[bad]]} from token {starts[bad]} on",
                got="a number below 0 or above 2**63 - 1",
                hint="tokenize again; for a raw file, check dtype",
            )


def _recorded(folder: Path) -> Sequence[File]:
    """Return what a manifest says of flat files: that of their folder, or of the tokenized folder above."""
    if window_files.end_of_document(folder) is None:
        made = manifests.read(str(folder))
        return made.files if made else ()
    above = manifests.read(str(folder.resolve().parent))
    inside = f"{window_files.FOLDER}/"
    files = above.files if above else ()
    return [file._replace(path=file.path.removeprefix(inside)) for file in files if file.path.startswith(inside)]


def fields_of(eos_id: int | None) -> tuple[str, ...]:
    """Return names of a window's arrays; documents are numbered if an id ends them."""
    return ("input_ids", "labels") if eos_id is None else ("input_ids", "labels", "doc_ids")


def _is_index(path: Path) -> bool:
    """Return whether this is one of four index arrays in one folder, or the bytes of responses beside them."""
    known = path.name in _INDEX or path.name == _BYTES
    return known and all((path.parent / name).is_file() for name in _INDEX)


def _token_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        result = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        result = np.dtype(object)
    if result.kind not in "ui" or not result.isnative:
        expected = "a little-endian integer, e.g. uint16"
        raise UsageError("not a dtype of token ids", where="dtype", got=repr(dtype), expected=expected)
    return result


def _mapped(path: Path, given: np.dtype[Any] | None) -> Tokens:
    size = path.stat().st_size
    if not size:
        raise InputError("empty file", where=str(path), hint="it was truncated, or nothing was written to it")
    if path.suffix == ".npy":
        array = map_array(path)
        if given not in {None, array.dtype}:
            raise InputError("wrong dtype", where=str(path), got=str(array.dtype), expected=str(given))
    elif path.suffix != _RAW:
        raise InputError("not a token file", where=str(path), expected=f".npy or {_RAW}", hint="check the pattern")
    elif given is None:
        raise UsageError(
            "raw files do not say the dtype of their ids",
            where=str(path),
            expected="dtype=",
            hint="pass the one that they were written with: uint16 and uint32 look alike",
        )
    elif size % given.itemsize:
        raise InputError("truncated, or another dtype", where=str(path), got=f"{size} bytes", expected=str(given))
    else:
        array = np.memmap(path, given, "r")
    if size != (end := getattr(array, "offset", 0) + array.nbytes):
        raise InputError("not a complete .npy file", where=str(path), got=f"{size} bytes", expected=str(end))
    return np.asarray(array)


def _check(array: Tokens, place: str) -> None:
    wrong = ""
    if array.ndim != 1:
        wrong = f"shape {array.shape}"
    elif array.dtype.kind not in "ui" or not array.dtype.isnative:
        wrong = f"dtype {array.dtype.str}"
    elif not len(array):
        wrong = "no token"
    elif not (array.flags.c_contiguous and array.flags.aligned):
        wrong = "elements that are not contiguous"
    if wrong:
        raise InputError("not a token array", where=place, got=wrong, expected="integers [tokens], contiguous")
