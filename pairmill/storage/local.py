"""Files as objects."""

from __future__ import annotations

import errno
import glob
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pairmill import partials
from pairmill.errors import Changed, InputError
from pairmill.log import event
from pairmill.storage.base import Creation, Entry, Store, translated
from pairmill.storage.uris import local_path

_PARTIAL = re.compile(r"^\..+\.[^.]+\.partial$")
_TICK = 20_000_000
"""Nanoseconds: longer than the kernel's clock takes to move on (1 to 10 ms)."""
_UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class LocalStore(Store):
    """Files below a mounted file system. Accepts plain paths and ``file://`` URIs.

    A file being written is a hidden sibling ``.<name>.<random>.partial`` whose writer holds a lock on it. Whoever
    writes the same name later removes siblings that nobody holds: what a killed writer left goes when its work is
    done again, and a living writer's file is never touched.
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
                        elif entry.is_file() and not _PARTIAL.match(entry.name):
                            path = os.path.relpath(entry.path, top).replace(os.sep, "/")
                            facts = entry.stat()
                            found.append(Entry(path, facts.st_size, _stamp(facts)))
        if links:
            event(f"{prefix}: {links} symbolic links below it are not followed")
        return sorted(found, key=lambda entry: entry.path)

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
            end.parent.mkdir(parents=True, exist_ok=True)
            _sweep(end)
            link = end.with_name(f".{end.name}.{secrets.token_hex(4)}.partial")
            try:
                os.link(start, link)
            except FileNotFoundError:
                # Between its name and its link the source was replaced by another writer, who wrote the same.
                if not start.is_file():
                    raise
                self.copy(source, target)
                return
            except OSError as error:
                if error.errno not in _UNLINKABLE:
                    raise
                # As a link would be: what is finished stays read-only.
                final = not start.stat().st_mode & 0o222
                with self.create(target, final=final) as path:
                    shutil.copyfile(start, path)
                return
            # Where both names are links to one inode rename() does nothing, so the name may have to go by hand; where
            # another writer swept the link away, the same copy stands there already.
            try:
                with suppress(FileNotFoundError):
                    os.replace(link, end)
            finally:
                link.unlink(missing_ok=True)
            if not end.is_file():
                self.copy(source, target)

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
            hint="run the same command when nobody writes to it any more",
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
            self._handle, self._path = partials.hold(self._make)
            return self._path

    def _make(self) -> tuple[int, Path]:
        target = self._target
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
        return handle, Path(name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                with translated(str(self._target)):
                    self._commit()
        finally:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)

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


def _sweep(target: Path) -> None:
    """Remove what killed writers of ``target`` left."""
    for _ in partials.sweep(target.parent.glob(f".{glob.escape(target.name)}.*.partial")):
        pass
