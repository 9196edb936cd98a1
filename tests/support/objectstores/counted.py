"""An object store in a folder that counts requests, by kind: what a bucket would be asked, in this process.

with counted(tmp_path) as store:
    ...  # s3://bucket/... is below tmp_path
assert store.requests["GET"] < 100
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from pairmill import storage
from pairmill.storage.base import Store
from pairmill.storage.local import LocalStore
from pairmill.storage.remote import PART, Absent, Body, Place, RemoteStore, Stat, Taken


class CountedStore(RemoteStore):
    """Objects are files below a folder.

    Attributes:
        requests: how many, by method; a page of a listing is a LIST.
        sent: bytes that were written, and ``received`` those that were read.
    """

    loggers = ()

    def __init__(self, folder: Path) -> None:
        super().__init__("s3")
        self._folder, self._lock = folder, Lock()
        self.requests: Counter[str] = Counter()
        self.sent = self.received = 0

    def _count(self, method: str, times: int = 1) -> None:
        with self._lock:
            self.requests[method] += times

    def _path(self, place: Place) -> Path:
        return self._folder / place.bucket / place.key

    def _connected(self) -> Any:
        return self

    def _failures(self, place: Place) -> AbstractContextManager[None]:
        return nullcontext()

    def _stat(self, place: Place) -> Stat:
        self._count("HEAD")
        try:
            facts = self._path(place).stat()
        except (FileNotFoundError, NotADirectoryError):
            raise Absent("no such object", where=place.uri) from None
        return Stat(facts.st_size, str(facts.st_mtime_ns), datetime.fromtimestamp(facts.st_mtime, UTC))

    def _get(self, place: Place, start: int, end: int, body: Body) -> None:
        self._count("GET")
        try:
            with self._path(place).open("rb") as file:
                file.seek(start)
                data = file.read(end - start)
                body.version = str(os.fstat(file.fileno()).st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            raise Absent("no such object", where=place.uri) from None
        with self._lock:
            self.received += len(data)
        body.write(data)

    def _page(self, place: Place, token: str, most: int) -> tuple[list[tuple[str, Stat]], str]:
        self._count("LIST")
        top, (above, _, first) = self._folder / place.bucket, place.key.rpartition("/")
        names = []
        for folder, folders, files in os.walk(top / above):
            if folder == os.fspath(top / above):
                folders[:] = [name for name in folders if name.startswith(first)]
            names += [os.path.relpath(os.path.join(folder, name), top) for name in files]
        names = sorted(name for name in names if name.startswith(place.key) and name > token)
        facts = [(name, (top / name).stat()) for name in names[:most]]
        return [(name, Stat(one.st_size, str(one.st_mtime_ns))) for name, one in facts], (
            names[most - 1] if len(names) > most else ""
        )

    def _folders(self, place: Place, token: str) -> tuple[list[str], str]:
        self._count("LIST")
        top = self._path(place)
        with suppress(FileNotFoundError, NotADirectoryError):
            return [f"{place.key}{entry.name}/" for entry in os.scandir(top) if entry.is_dir()], ""
        return [], ""

    def _put(self, place: Place, data: bytes, *, replace: bool) -> None:
        self._count("PUT")
        path = self._path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not replace and path.exists():
            raise Taken("there already", where=place.uri)
        path.write_bytes(data)
        with self._lock:
            self.sent += len(data)

    def _put_large(self, place: Place, path: Path) -> None:
        size = path.stat().st_size
        self._count("PUT", 2 + -(-size // PART))
        target = self._path(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
        with self._lock:
            self.sent += size

    def _copy(self, source: Place, target: Place, stat: Stat) -> None:
        self._count("PUT")
        to = self._path(target)
        to.parent.mkdir(parents=True, exist_ok=True)
        os.link(self._path(source), to)

    def _delete(self, place: Place) -> None:
        self._count("DELETE")
        self._path(place).unlink(missing_ok=True)


@contextmanager
def counted(folder: Path) -> Iterator[CountedStore]:
    """Have ``s3://`` in this folder."""
    store, local = CountedStore(folder), LocalStore()

    def chosen(kind: str) -> Store:
        return store if kind == "s3" else local

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_store", chosen)
        yield store
