"""Files as objects."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pairmill.errors import Changed, InputError
from pairmill.log import event
from pairmill.storage import partials
from pairmill.storage.base import Creation, Entry, Store, translated
from pairmill.storage.uris import local_path

_PARTIAL = re.compile(r"\..+\.[^.]+\.partial", re.DOTALL)
_TICK = 20_000_000
"""Nanoseconds: longer than the kernel's clock takes to move on (1 to 10 ms)."""
_UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class LocalStore(Store):
    """Files below a mounted file system. Accepts plain paths and ``file://`` URIs.

    A file being written is a hidden sibling ``.<name>.<machine>-<process>-<random>.partial`` whose writer holds a lock
    on it (of a long name its first characters and its digest). Whoever writes the same name later removes siblings
    that nobody holds, those of other machines a day after they were last written: what a killed writer left goes when
    its work is done again, and a living writer's file is not touched. If it is removed all the same, it is written
    again.
    """

    seek_cost = 64 << 10

    def exists(self, uri: str) -> bool:
        return local_path(uri).is_file()

    def size(self, uri: str) -> int:
        path = local_path(uri)
        with translated(uri):
            if path.is_dir():
                raise InputError("is a folder, no object", where=uri)
            return path.stat().st_size

    def list(self, prefix: str) -> list[Entry]:
        top = local_path(prefix)
        found: list[Entry] = []
        links = 0
        with translated(prefix):
            stack = [top] if top.is_dir() else []
            while stack:
                with os.scandir(stack.pop()) as entries:
                    for entry in entries:
                        # A link can lead anywhere, and an object store has none: the reference skips them silently.
                        if entry.is_symlink():
                            links += 1
                        elif entry.is_dir():
                            stack.append(Path(entry.path))
                        elif entry.is_file() and not _PARTIAL.fullmatch(entry.name):
                            path = os.path.relpath(entry.path, top).replace(os.sep, "/")
                            facts = entry.stat()
                            found.append(Entry(path, facts.st_size, _stamp(facts)))
        if links:
            event(f"{prefix}: {links} symbolic links below it are not followed; one that is named exactly is")
        return sorted(found, key=lambda entry: entry.path)

    def folders(self, prefix: str) -> Sequence[str]:
        top = local_path(prefix)
        if not top.is_dir():
            return []
        with translated(prefix), os.scandir(top) as entries:
            return sorted(
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and _holds_any(entry.path)
            )

    def read(self, uri: str) -> bytes:
        with translated(uri):
            return local_path(uri).read_bytes()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        with translated(uri), local_path(uri).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def open(self, uri: str) -> BinaryIO:
        with translated(uri):
            return local_path(uri).open("rb")

    def stamp(self, uri: str) -> str:
        with translated(uri):
            facts = local_path(uri).stat()
            # Two changes within a tick of the kernel's clock leave one time: what is digested must be older than that.
            young = facts.st_mtime_ns + _TICK - time.time_ns()
            if 0 < young <= _TICK:
                time.sleep(young / 1e9)
                facts = local_path(uri).stat()
            return _stamp(facts)

    @contextmanager
    def pinned(self, uri: str, stamp: str) -> Iterator[BinaryIO]:
        with self.open(uri) as file:
            _require_stamp(file, stamp, uri)
            try:
                yield file
            except (Exception, GeneratorExit):
                # Of what changed meanwhile a reader may say anything.
                _require_stamp(file, stamp, uri)
                raise
            # A file that was replaced is not looked at: what was opened is what was read.
            _require_stamp(file, stamp, uri)

    def file(self, uri: str) -> Path | None:
        return local_path(uri)

    def create(self, uri: str, *, durable: bool = True, final: bool = False) -> Creation:
        return _LocalCreation(local_path(uri), durable, final=final)

    def commit(self, uri: str, data: bytes) -> bytes:
        with _LocalCreation(local_path(uri), durable=True, replace=False) as path, translated(uri):
            path.write_bytes(data)
        return self.read(uri)

    def copy(self, source: str, target: str) -> None:
        # A hard link is the cheapest copy, and right because objects are only ever replaced, never changed.
        start, end = local_path(source), local_path(target)
        with translated(target):
            for _ in range(partials.TRIED):
                end.parent.mkdir(parents=True, exist_ok=True)
                _sweep(end)
                try:
                    link = partials.link(_real(start), end.parent, partials.head_of(end))
                except FileNotFoundError:
                    # Between its name and its link the source was replaced by another writer, who wrote the same.
                    if not start.is_file():
                        raise
                    continue
                except OSError as error:
                    if error.errno not in _UNLINKABLE:
                        raise
                    # As a link would be: what is finished stays read-only.
                    final = not start.stat().st_mode & 0o222
                    with self.create(target, final=final) as path:
                        shutil.copyfile(start, path)
                    return
                try:
                    os.replace(link, end)
                    return
                except FileNotFoundError:
                    # Nobody holds a link: another writer of the same name took it for a leftover.
                    continue
                finally:
                    # Where both names are links to one inode rename() does nothing.
                    partials.remove(link)
            raise partials.removed(end)

    def delete(self, uri: str) -> None:
        with translated(uri):
            local_path(uri).unlink(missing_ok=True)


def _stamp(facts: os.stat_result) -> str:
    # Not the time of the inode's change: a hard link alone moves it.
    return f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"


def _require_stamp(file: BinaryIO, stamp: str, uri: str) -> None:
    if (found := _stamp(os.fstat(file.fileno()))) != stamp:
        raise Changed(
            "changed while it was read",
            where=uri,
            got=f"device:inode:bytes:time {found}",
            expected=stamp,
            hint="run the same command once nothing writes to it any more",
        )


class _LocalCreation(Creation):
    def __init__(self, target: Path, durable: bool, *, replace: bool = True, final: bool = False) -> None:
        self._target, self._durable, self._replace = target, durable, replace
        self._mode = 0o444 if final else 0o666

    def __enter__(self) -> Path:
        target = self._target
        with translated(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target)
            self._handle, self._path = partials.make(target.parent, partials.head_of(target))
            return self._path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                with translated(str(self._target)):
                    self._committed()
            elif isinstance(error, FileNotFoundError) and error.filename == str(self._path):
                raise partials.removed(self._path) from error
        finally:
            partials.remove(self._path)
            os.close(self._handle)

    def _committed(self) -> None:
        """Commit; where another machine, which sees no locks of this one, removed what was written, write it again."""
        for _ in range(partials.TRIED):
            try:
                self._commit()
                return
            except FileNotFoundError:
                if self._path.exists() or not self._target.parent.is_dir():
                    raise
            self._write_again()
        raise partials.removed(self._path)

    def _write_again(self) -> None:
        old = self._handle
        source = partials.written(self._path, old)
        self._handle, self._path = partials.make(self._target.parent, partials.head_of(self._target))
        try:
            with source.open("rb") as left, open(self._handle, "wb", closefd=False) as again:
                shutil.copyfileobj(left, again, 1 << 20)
        finally:
            os.close(old)

    def _commit(self) -> None:
        # mkstemp makes files that nobody else may read; what is committed follows the umask like any other file.
        mask = os.umask(0)
        os.umask(mask)
        self._path.chmod(self._mode & ~mask)
        if self._durable:
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        if self._replace or not self._linked():
            os.replace(self._path, self._target)

    def _linked(self) -> bool:
        """Make the target a link to what was written unless it stands there; whether one of both is so.

        A file system without links (a mounted bucket) has no such step: there the later of two writers wins, if both
        found nothing at the same time.
        """
        try:
            os.link(self._path, self._target)
        except FileExistsError:
            return True
        except OSError as error:
            if error.errno not in _UNLINKABLE:
                raise
            return self._target.exists()
        return True


def _holds_any(folder: str) -> bool:
    """Whether an object is below a folder: an object store has no empty ones."""
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in names if not _PARTIAL.match(name))
    return any(path.is_file() and not path.is_symlink() for path in paths)


def _real(path: Path) -> Path:
    """What a link leads to: link(2) would give the link itself a second name."""
    found = os.path.realpath(path)
    if os.path.islink(found):
        raise FileNotFoundError(errno.ENOENT, "a link that leads to itself", str(path))
    return Path(found)


def _sweep(target: Path) -> None:
    """Remove what killed writers of ``target`` left."""
    partials.sweep_folder(target.parent, partials.head_of(target))
