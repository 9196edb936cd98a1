"""Models by URI: digested in the plan, fetched once for all processes of a machine, compared when they are opened."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from pairmill import log, storage
from pairmill.digest import split
from pairmill.engine.content import Content, require_unchanged, whole
from pairmill.errors import InputError, from_os_error
from pairmill.storage.partials import own, scratch

T = TypeVar("T")
_BLOCK: Final = 1 << 20
_SHOWN: Final = 12


@dataclass(frozen=True)
class ModelFile:
    """A file of a model: its path below the model's URI (empty: the URI itself), digest and size in bytes."""

    path: str
    digest: str
    size: int
    stamp: str


@dataclass(frozen=True)
class Model:
    """A file or a folder that a scorer reads.

    Args:
        uri: normalised.
        option: the setting that names it, for messages.
        files: what it consists of, by path.
    """

    uri: str
    option: str
    files: tuple[ModelFile, ...]

    @classmethod
    def from_place(cls, given: str, option: str) -> Self:
        """Find and digest a model.

        Args:
            given: a path or URI of a file or a folder.
            option: the setting that names it, for messages.

        Raises:
            UsageError: no URI is given, or no backend serves it.
            InputError: there is nothing.
        """
        uri = storage.normalise(given, option)
        store = storage.store_for(uri)
        paths = [""] if store.exists(uri) else [entry.path for entry in store.list(uri)]
        if not paths:
            raise InputError(
                "the model is missing", where=f"{option}={uri}", expected="a file or a folder", hint="check the path"
            )
        digests = store.digested([_below(uri, path) for path in paths])
        files = [ModelFile(path, item.digest, item.size, item.stamp) for path, item in zip(paths, digests, strict=True)]
        return cls(uri, option, tuple(files))

    @property
    def identity(self) -> list[list[str]]:
        """What a key says of it: paths and digests."""
        return [[item.path, item.digest] for item in self.files]

    @property
    def where(self) -> str:
        """Setting and URI, for messages."""
        return f"{self.option}={self.uri}"

    def local(self) -> Path:
        """Return the file or folder on this machine: in place if it is there, else fetched once for all processes.

        What is fetched stays below TMPDIR, under its digest, for the next process.

        Raises:
            Changed: it is not what was digested in the plan.
        """
        if storage.scheme(self.uri) == "file":
            self.require_unchanged()
            return storage.local_path(self.uri)
        above = scratch() / f"pairmill-models-{os.getuid()}"
        own(above)
        if self.files[0].path == "":
            (file,) = self.files
            target = above / split(file.digest)[1]
            if not _is_there(target, file):
                self._fetch(file, above, target)
            return target
        folder = above / hashlib.sha256(repr(self.identity).encode()).hexdigest()
        for file in self.files:
            target = Path(storage.join(str(folder), *file.path.split("/")))
            if not _is_there(target, file):
                target.parent.mkdir(parents=True, exist_ok=True)
                self._fetch(file, target.parent, target)
        return folder

    def require_unchanged(self) -> None:
        """Raise Changed if a model that is used in place is not what was digested in the plan."""
        if storage.scheme(self.uri) == "file":
            for item in self.files:
                require_unchanged(_below(self.uri, item.path), Content(item.digest, item.stamp))

    @contextmanager
    def used(self, *names: str) -> Iterator[Path]:
        """Yield what ``file`` returns while the block runs. Raises Changed if the model changes meanwhile."""
        yield self.file(*names)
        self.require_unchanged()

    def file(self, *names: str) -> Path:
        """Return the file itself, or the first of these names in the folder.

        Raises:
            InputError: the folder has none of them.
        """
        local = self.local()
        if self.files[0].path == "":
            return local
        for name in names:
            if any(item.path == name for item in self.files):
                return local / name
        result = ", ".join(item.path for item in self.files[:_SHOWN])
        raise InputError("the folder has no model", where=self.where, got=result, expected=" or ".join(names))

    def _fetch(self, file: ModelFile, folder: Path, target: Path) -> None:
        uri = _below(self.uri, file.path)
        log.event(f"curate: fetching the model {uri}", uri=uri, bytes=file.size)
        try:
            handle, name = tempfile.mkstemp(dir=folder, prefix=".fetching-")
            try:
                with os.fdopen(handle, "wb") as sink, whole(uri, Content(file.digest)) as source:
                    shutil.copyfileobj(source, sink, _BLOCK)
                os.replace(name, target)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise from_os_error(error, str(target)) from error

    def load(self, read: Callable[[Path], T], path: Path, kind: str) -> T:
        """Read a file of the model. A ValueError, which says why it is not one, becomes the error :meth:`wrong`."""
        try:
            return read(path)
        except ValueError as error:
            raise self.wrong(path, kind, str(error)) from error

    def wrong(self, path: Path, kind: str, why: str = "") -> InputError:
        """Return the error for a file that is not a model of this kind; it says what was found.

        Args:
            path: the file on this machine.
            kind: what it should be: ``a KenLM model (ARPA or binary)``.
            why: what the library says.
        """
        name = "" if self.files[0].path == "" else f"/{path.name}"
        got = describe(path) + (f" ({' '.join(why.split())[:200]})" if why else "")
        return InputError(f"not {kind}", where=f"{self.where}{name}", got=got, hint="check the setting and the file")


def _below(uri: str, path: str) -> str:
    return storage.join(uri, *path.split("/")) if path else uri


def _is_there(target: Path, file: ModelFile) -> bool:
    # The folder is this user's own, and a file gets its name when its digest has been compared.
    return target.exists() and target.stat().st_size == file.size


_BEGINNINGS: Final = (
    (b"version https://git-lfs", "a pointer of Git LFS: the file itself was not fetched"),
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"(\xb5/\xfd", "a Zstandard file: unpack it first"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x80\x02", "a pickle"),
    (b"mmap lm http://kheafield.com/code", "a binary KenLM model"),
    (b"\\data\\", "a KenLM model in ARPA format"),
    (b"\xba\x16\x4f\x2f", "a fastText model"),
    (b"\x08", "a protobuf, as ONNX has it"),
)


def describe(path: Path) -> str:
    """Return what a file is, by its size and its beginning."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        return "an empty file"
    lower = head.lstrip().lower()
    if lower.startswith((b"<!doctype", b"<html", b"<?xml")):
        return f"a web page of {size:,} bytes"
    for beginning, name in _BEGINNINGS:
        if head.startswith(beginning):
            return f"{name}, {size:,} bytes"
    return f"{size:,} bytes that begin with {head[:16]!r}"
