"""What a stage reads: folders that pairmill finished, and folders that others made.

A finished pairmill folder names its files in its manifest. Any other folder is read as it is, found the way the
reference finds it: every regular file below it with a wanted extension, hidden ones included, links not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pairmill import manifest as manifests
from pairmill import storage
from pairmill.errors import InputError
from pairmill.manifest import InputRef


@dataclass(frozen=True)
class InputFile:
    """One file to read.

    Args:
        uri: where it stands.
        task: the data set it is: its path below the input folder with ``/`` (and ``\\``) replaced by ``__``.
        size: bytes.
        sha256: hexadecimal digest of its bytes; from the manifest where there is one, else computed.
    """

    uri: str
    task: str
    size: int
    sha256: str

    @property
    def kind(self) -> str:
        """The extension, which says how the bytes are read."""
        return self.uri.rsplit(".", 1)[-1]


@dataclass(frozen=True)
class Inputs:
    """The files of one or more input folders, with their content identity."""

    files: list[InputFile]
    refs: list[InputRef]
    rows: int | None
    """Rows by the manifests; None where any of the folders has none."""


def task_name(path: str) -> str:
    """Task name of a file's path below its input folder."""
    return path.replace("/", "__").replace("\\", "__")


def discover(uris: Sequence[str], extensions: Iterable[str], option: str) -> Inputs:
    """The row files below each of ``uris`` (a folder, a folder of a finished pairmill folder, or a single file).

    Raises:
        InputError: nothing there, an unfinished pairmill folder, or two files that give the same task name.
    """
    endings = {f".{extension}" for extension in extensions}
    files: list[InputFile] = []
    refs: list[InputRef] = []
    rows: int | None = 0
    for given in uris:
        uri = storage.normalise(given, option)
        found, ref, count = _discover_one(uri, endings, option)
        if not found:
            raise InputError(
                f"no {' or '.join(sorted(endings))} file there", where=f"{option}={uri}", hint="check the path"
            )
        files += found
        refs.append(ref)
        rows = None if rows is None or count is None else rows + count
    _refuse_collisions(files, option)
    return Inputs(files, refs, rows)


def _discover_one(uri: str, endings: set[str], role: str) -> tuple[list[InputFile], InputRef, int | None]:
    store = storage.store_for(uri)
    if store.exists(uri):
        if PurePosixPath(storage.name_of(uri)).suffix not in endings:
            return [], InputRef(role, ""), None
        entry = InputFile(uri, storage.name_of(uri), store.size(uri), store.digest(uri))
        _refuse_unfinished_parent(uri)
        return [entry], InputRef(role, manifests.content_key([entry.task, entry.sha256])[:16]), None
    manifest = manifests.read_whole(uri)
    if manifest is not None:
        files = [
            InputFile(storage.join(uri, file.path), file.task, file.size, file.sha256)
            for file in manifest.files
            if file.task and PurePosixPath(file.path).suffix in endings
        ]
        return files, InputRef(role, manifest.fingerprint), manifest.ledger.rows_out
    _refuse_unfinished_parent(uri)
    items = [item for item in store.list(uri) if PurePosixPath(item.path).suffix in endings]
    targets = [storage.join(uri, item.path) for item in items]
    files = [
        InputFile(target, task_name(item.path), item.size, digest)
        for target, item, digest in zip(targets, items, store.digests(targets), strict=True)
    ]
    return files, InputRef(role, manifests.content_key([[file.task, file.sha256] for file in files])[:16]), None


def _refuse_unfinished_parent(uri: str) -> None:
    # Someone may name <folder>/data of a folder whose making was interrupted.
    parent = storage.parent_of(uri)
    for folder in (parent, storage.parent_of(parent)):
        if not storage.is_top(folder):
            manifests.refuse_unfinished(folder)


def _refuse_collisions(files: Sequence[InputFile], option: str) -> None:
    seen: dict[str, str] = {}
    for file in files:
        other = seen.get(file.task)
        seen[file.task] = file.uri
        if other == file.uri:
            raise InputError("is given twice", where=option, got=file.uri, hint="name it once")
        if other is not None:
            raise InputError(
                f"two files give the task name {file.task!r}",
                where=option,
                got=f"{other} and {file.uri}",
                hint="rename one of them, or give the folder above both",
            )
