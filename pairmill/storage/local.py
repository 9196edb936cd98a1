"""Files of a mounted file system as objects."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import BinaryIO

from pairmill._native import copy_digested
from pairmill.cpu import available_cores
from pairmill.digest import digest_files, digest_joined, is_blake3
from pairmill.errors import Changed, InputError, StorageError, from_os_error
from pairmill.storage import partials
from pairmill.storage.base import Beginning, Begun, Digested, Entry, Span, Store, each, translated
from pairmill.storage.uris import join, local_path, local_text, parent_of

_PARTIAL = re.compile(r"\..+\.[^.]+\.partial", re.DOTALL)
_ATTEMPT = ".attempt."
_TICK = 20_000_000
"""Nanoseconds: more than a tick of the kernel's clock (1 to 10 ms)."""
_SYNCED = 64 << 20
"""Bytes of a large file that a thread copies, and asks the disk to write."""
_UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class LocalStore(Store):
    """Files, by plain paths or ``file://`` URIs.

    A file that is being written is a hidden, locked sibling ``.<name>.<machine>-<process>-<random>.partial``. The next
    writer of the same name removes siblings that are not locked, those of other machines after a day without a write
    (:mod:`pairmill.storage.partials`). If a partial file is removed all the same, it is written again.
    """

    seek_cost = 64 << 10

    def exists(self, uri: str) -> bool:
        return local_path(uri).is_file()

    def size(self, uri: str) -> int:
        path = local_path(uri)
        with translated(uri):
            if path.is_dir():
                raise InputError("a folder, not an object", where=uri)
            return path.stat().st_size

    def list(self, prefix: str) -> list[Entry]:
        return [*self.list_with_links(prefix)[0]]

    def list_with_links(self, prefix: str, *, follow: bool = False) -> tuple[Sequence[Entry], Sequence[str]]:
        top = local_path(prefix)
        result: list[Entry] = []
        links = []
        # By the folders above it: a link to one of them has no end.
        stack: list[tuple[Path, frozenset[str]]] = [(top, frozenset())] if top.is_dir() else []
        with translated(prefix):
            while stack:
                folder, above = stack.pop()
                above |= {os.path.realpath(folder)} if follow else set()
                # Once a folder: of 100,000 files this took longer than looking at them.
                before = "" if folder == top else os.path.relpath(folder, top).replace(os.sep, "/") + "/"
                with os.scandir(folder) as entries:
                    for entry in entries:
                        path = before + entry.name
                        # A link can lead anywhere, and object stores have none. The reference skips them silently.
                        if entry.is_symlink() and not follow:
                            links.append(f"{path}/" if entry.is_dir() else path)
                        elif _PARTIAL.fullmatch(entry.name):
                            continue
                        elif entry.is_dir():
                            if not follow or os.path.realpath(entry.path) not in above:
                                stack.append((Path(entry.path), above))
                        elif entry.is_file():
                            facts = entry.stat()
                            result.append(Entry(path, facts.st_size, _stamp(facts), facts.st_mtime))
        return sorted(result, key=lambda entry: entry.path), sorted(links)

    def scan(self, prefix: str, start: str) -> Iterator[Entry]:
        top = local_text(prefix)
        with translated(prefix), suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(name for name in os.listdir(top) if name.startswith(start)):
                for entry in self.list(join(prefix, name)):
                    yield replace(entry, path=f"{name}/{entry.path}")

    def folders(self, prefix: str) -> Sequence[str]:
        # Another run may remove it meanwhile.
        with (
            translated(prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(local_path(prefix)) as entries,
        ):
            return sorted(
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not _PARTIAL.fullmatch(entry.name) and _holds_any(entry.path)
            )
        return []

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
            # Two changes within a tick of the kernel's clock have one time: wait until the file is older.
            young = facts.st_mtime_ns + _TICK - time.time_ns()
            if 0 < young <= _TICK:
                time.sleep(young / 1e9)
                facts = local_path(uri).stat()
            return _stamp(facts)

    def stamps(self, uris: Sequence[str]) -> Sequence[str]:
        # One lookup for each of many, and one wait for the youngest.
        facts = []
        for uri in uris:
            with translated(uri):
                facts.append(os.stat(local_text(uri)))
        youngest = max((item.st_mtime_ns for item in facts), default=0) + _TICK - time.time_ns()
        return [self.stamp(uri) for uri in uris] if 0 < youngest <= _TICK else [_stamp(item) for item in facts]

    @contextmanager
    def pinned(self, uri: str, stamp: str) -> Iterator[BinaryIO]:
        with self.open(uri) as file:
            _require_stamp(file, stamp, uri)
            try:
                yield file
            except (Exception, GeneratorExit):
                # A reader may fail in any way on a file that changed.
                _require_stamp(file, stamp, uri)
                raise
            # A replaced file does not matter here: the opened one was read.
            _require_stamp(file, stamp, uri)

    def digested(self, uris: Sequence[str], like: Sequence[str] = ()) -> Sequence[Digested]:
        known = [*like] or [""] * len(uris)
        result: list[Digested | None] = [None] * len(uris)
        # Of a few long files threads read pieces, which one thread for each file would not.
        ours = [number for number, digest in enumerate(known) if is_blake3(digest)]
        stamps = [self.stamp(uris[number]) for number in ours]
        paths = [local_path(uris[number]) for number in ours]
        try:
            for number, path, stamp, digest in zip(ours, paths, stamps, digest_files(paths), strict=True):
                facts = path.stat()
                if digest and _stamp(facts) == stamp:
                    result[number] = Digested(digest, facts.st_size, stamp)
        except OSError as error:
            raise from_os_error(error, error.filename) from error
        left = [number for number, item in enumerate(result) if item is None]
        others = iter(super().digested([uris[number] for number in left], [known[number] for number in left]))
        return [item or next(others) for item in result]

    def file(self, uri: str) -> Path | None:
        return local_path(uri)

    def create(self, uri: str, *, durable: bool = True, final: bool = False) -> AbstractContextManager[Path]:
        return _Creation(local_path(uri), durable, final=final)

    def commit(self, uri: str, data: bytes) -> bytes:
        with _Creation(local_path(uri), durable=True, replace=False) as path, translated(uri):
            path.write_bytes(data)
        return self.read(uri)

    def copy(self, source: str, target: str) -> None:
        # A hard link is the cheapest copy, and correct because objects are replaced and never changed.
        start, end = local_path(source), local_path(target)
        with translated(target):
            for _ in range(partials.TRIED):
                end.parent.mkdir(parents=True, exist_ok=True)
                _sweep(end)
                try:
                    link = partials.link(_real(start), end.parent, partials.head_of(end))
                except FileNotFoundError:
                    # Another writer replaced the source, with the same bytes, while it was looked up.
                    if not start.is_file():
                        raise
                    continue
                except OSError as error:
                    if error.errno not in _UNLINKABLE:
                        raise
                    # Read-only if the source is, as a link would be.
                    final = not start.stat().st_mode & 0o222
                    with self.create(target, final=final) as path:
                        shutil.copyfile(start, path)
                    return
                try:
                    os.replace(link, end)
                    return
                except FileNotFoundError:
                    # A link is not locked: another writer of the same name took it for a leftover.
                    continue
                finally:
                    # rename() does nothing if both names are links to one inode.
                    partials.remove(link)
            raise partials.removed(end)

    def begin_join(self, folder: str, place: int) -> Beginning:
        return _Beginning(self, local_path(folder), place)

    def join(
        self, uri: str, pieces: Sequence[bytes | Span], *, final: bool = False, begun: Begun | None = None
    ) -> Digested:
        spans = [piece for piece in pieces if isinstance(piece, Span)]
        uris = [*dict.fromkeys(span.uri for span in spans)]
        stamps = dict(zip(uris, self.stamps(uris), strict=True))
        if begun is not None:
            first = [span for span, _ in begun.spans]
            head = len(pieces[0]) if isinstance(pieces[0], bytes) else -1
            if (begun.place, first) != (head, [*pieces[1 : len(first) + 1]]) or any(
                stamps[span.uri] != stamp for span, stamp in begun.spans
            ):
                begun = None
        creation = _Creation(local_path(uri), durable=True, final=final, begun=begun)
        with creation as path, translated(uri), path.open("r+b") as file:
            there, known = (len(begun.spans), begun.digested) if begun and creation.adopted else (0, ())
            size, copied = 0, list[tuple[Span, int]]()
            for number, piece in enumerate(pieces):
                if isinstance(piece, bytes):
                    file.seek(size)
                    size += file.write(piece)
                    continue
                if not 0 < number <= there:
                    copied += _parts(piece, size)
                size += piece.stop - piece.start
            file.flush()
            # The disk writes what is there while the rest is copied.
            with ThreadPoolExecutor(1) as disk:

                def copy(item: tuple[Span, int], _: Event) -> tuple[tuple[int, bytes], Future[None]]:
                    span, place = item
                    with self.pinned(span.uri, stamps[span.uri]) as source:
                        digested = _copy(source.fileno(), file.fileno(), span, place)
                    return digested, disk.submit(os.fdatasync, file.fileno())

                made = each(copy, copied, available_cores())
                digest = digest_joined(path, [*known, *(digested for digested, _ in made)], available_cores())
                for _, item in made:
                    item.result()
            return Digested(digest, size)

    def modified(self, uri: str) -> datetime | None:
        with translated(uri), suppress(FileNotFoundError, NotADirectoryError):
            return datetime.fromtimestamp(os.stat(local_text(uri)).st_mtime, UTC)
        return None

    def dated(self, prefix: str, name: str) -> Mapping[str, datetime | None]:
        # Of 10,000 folders, :meth:`folders` takes half a second: it looks into each for an object.
        top = local_text(prefix)
        result: dict[str, datetime | None] = {}
        with translated(prefix), suppress(FileNotFoundError, NotADirectoryError), os.scandir(top) as entries:
            for folder in sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)):
                try:
                    result[folder] = datetime.fromtimestamp(os.stat(f"{top}/{folder}/{name}").st_mtime, UTC)
                except FileNotFoundError:
                    result[folder] = None
        return result

    @contextmanager
    def attempt(self, folder: str) -> Iterator[str]:
        home = local_path(folder)
        self.forget_attempts(folder)
        with translated(folder):
            handle, path = partials.make_folder(home, _ATTEMPT)
        try:
            yield join(folder, path.name)
        finally:
            os.close(handle)
            shutil.rmtree(path, ignore_errors=True)

    def forget_attempts(self, folder: str) -> None:
        partials.sweep_folder(local_path(folder), _ATTEMPT)

    def leftovers(self, prefix: str) -> Sequence[Entry]:
        result, top = [], local_text(prefix)
        for folder, folders, files in os.walk(top):
            for name in filter(_PARTIAL.fullmatch, [*folders, *files]):
                path = os.path.join(folder, name)
                inside = [os.path.join(place, each) for place, _, names in os.walk(path) for each in names]
                with suppress(FileNotFoundError):  # its writer has ended
                    facts = [os.lstat(item) for item in (path, *inside)]
                    size = sum(item.st_size for item in facts[bool(inside) :])
                    written = max(item.st_mtime for item in facts)
                    result.append(Entry(os.path.relpath(path, top).replace(os.sep, "/"), size, written=written))
            folders[:] = [name for name in folders if not _PARTIAL.fullmatch(name)]
        return sorted(result, key=lambda entry: entry.path)

    def drop_leftovers(self, prefix: str, leftovers: Iterable[Entry]) -> None:
        for _ in partials.sweep(local_path(prefix) / entry.path for entry in leftovers):
            pass

    def drop_empty(self, folders: Iterable[str]) -> None:
        for uri in folders:
            for folder, _, _ in os.walk(local_text(uri), topdown=False):
                with suppress(OSError):  # something is in it
                    os.rmdir(folder)

    def settle(self, attempt: str, name: str) -> str:
        source = local_path(attempt)
        target = source.with_name(name)
        with translated(attempt):
            source.chmod(0o777 & ~_umask())
            try:
                source.rename(target)
            except FileNotFoundError:
                raise partials.removed(source) from None
            except OSError:
                # It exists: another writer, perhaps a killed one, made the same bytes.
                for folder, _, files in os.walk(source):
                    into = target / Path(folder).relative_to(source)
                    into.mkdir(parents=True, exist_ok=True)
                    for file in files:
                        os.replace(Path(folder, file), into / file)
        return join(parent_of(attempt), name)

    def delete(self, uri: str) -> None:
        with translated(uri):
            local_path(uri).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _stamp(facts: os.stat_result) -> str:
    # Not the change time of the inode: making a hard link changes it.
    return f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"


def _require_stamp(file: BinaryIO, stamp: str, uri: str) -> None:
    if (result := _stamp(os.fstat(file.fileno()))) != stamp:
        raise Changed(
            "changed while it was read",
            where=uri,
            got=f"device:inode:bytes:time {result}",
            expected=stamp,
            hint="run the same command when nothing writes to it any more",
        )


def _parts(span: Span, place: int) -> Iterator[tuple[Span, int]]:
    """Cut a span that goes to this place into what one thread copies."""
    for start in range(span.start, span.stop, _SYNCED):
        yield Span(span.uri, start, min(start + _SYNCED, span.stop)), place + start - span.start


def _copy(source: int, target: int, span: Span, place: int) -> tuple[int, bytes]:
    """Copy a span of an open file to a place of another; return which pieces of that were digested on the way."""
    count, first, values = copy_digested(source, target, span.start, span.stop, place)
    if count < span.stop - span.start:
        got, expected = f"{span.start + count} bytes", f"{span.stop} bytes"
        raise StorageError("ends too early", where=span.uri, got=got, expected=expected)
    return first, values


class _Beginning(Beginning):
    """A partial file that :meth:`LocalStore.join` goes on with."""

    def __init__(self, store: LocalStore, folder: Path, place: int) -> None:
        self._store, self._place = store, place
        self._size, self._spans = place, list[tuple[Span, str]]()
        self._digested = list[tuple[int, bytes]]()
        self._disk, self._synced = ThreadPoolExecutor(1), list[Future[None]]()
        with translated(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            self._handle, self._path = partials.make(folder, _ATTEMPT)

    def append(self, span: Span, stop: Event) -> None:
        stamp = self._store.stamp(span.uri)
        with self._store.pinned(span.uri, stamp) as source, translated(str(self._path)):
            for part, place in _parts(span, self._size):
                if not stop.is_set():
                    self._digested.append(_copy(source.fileno(), self._handle, part, place))
        self._size += span.stop - span.start
        self._spans.append((span, stamp))
        self._synced.append(self._disk.submit(os.fdatasync, self._handle))

    def leave(self) -> Begun:
        with translated(str(self._path)):
            for item in self._synced:
                item.result()
            os.ftruncate(self._handle, self._size)
        self._release()
        return Begun(self._path, self._place, tuple(self._spans), tuple(self._digested))

    def close(self) -> None:
        partials.remove(self._path)
        self._release()

    def _release(self) -> None:
        self._disk.shutdown(cancel_futures=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class _Creation:
    """A partial file that becomes an object.

    Args:
        target: path of the object.
        durable: whether the disk has it before it appears.
        replace: whether it replaces an object that exists.
        final: whether it is read-only.
        begun: a file that becomes the partial file, unless it was removed.

    Attributes:
        adopted: whether it did.
    """

    def __init__(
        self, target: Path, durable: bool, *, replace: bool = True, final: bool = False, begun: Begun | None = None
    ) -> None:
        self._target, self._durable, self._replace = target, durable, replace
        self._mode = 0o444 if final else 0o666
        self._begun, self.adopted = begun, False

    def __enter__(self) -> Path:
        target = self._target
        with translated(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target)
            head = partials.head_of(target)
            if self._begun is not None:
                with suppress(OSError):  # it is joined from its first span on
                    self._handle, self._path = partials.adopt(self._begun.path, target.parent, head)
                    self.adopted = True
                    return self._path
            self._handle, self._path = partials.make(target.parent, head)
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
        """Commit. If another machine, which does not see our lock, removed the partial file, write it again."""
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
        # mkstemp makes files private; a committed file follows the umask like any other.
        self._path.chmod(self._mode & ~_umask())
        if self._durable:
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        if self._replace or not self._linked():
            os.replace(self._path, self._target)

    def _linked(self) -> bool:
        """Link the target to the partial file unless it exists. Return whether the target exists now.

        A file system without links (a mounted bucket) has no such atomic step: if two writers both find no target,
        the later one wins.
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
    """Return whether there is an object below a folder. (Object stores have no empty folders.)"""
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in names if not _PARTIAL.match(name))
    return any(path.is_file() and not path.is_symlink() for path in paths)


def _real(path: Path) -> Path:
    """Resolve a symbolic link: link(2) would link the link itself."""
    result = os.path.realpath(path)
    if os.path.islink(result):
        raise FileNotFoundError(errno.ENOENT, "a symbolic link to itself", str(path))
    return Path(result)


def _sweep(target: Path) -> None:
    """Remove the partial files of killed writers of ``target``."""
    partials.sweep_folder(target.parent, partials.head_of(target))
