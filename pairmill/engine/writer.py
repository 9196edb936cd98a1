"""Writes the files of a shard or of a finished folder, and remembers size and digest of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from pairmill import storage
from pairmill.digest import digest_bytes, digest_file
from pairmill.engine.manifest import File, fingerprint_from
from pairmill.errors import PairmillError
from pairmill.report.model import Report
from pairmill.storage.base import Begun

# Concurrent copies and uploads: an object store answers one in 10 to 100 ms, and many as fast as one.
_AT_ONCE = 32


class Writer:
    """Writes files below ``folder``.

    In an object store they upload in the background; :meth:`flush` waits until all of them are there.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: list[File] = []
        self.scratch: list[str] = []
        """Paths of the scratch files among them."""
        self.begun: Mapping[str, Begun] = {}
        """Files to go on with, by path, where they are joined."""
        self._remote = storage.scheme(folder) != "file"
        self._pending: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def create(
        self, path: str, *, task: str = "", digest: Callable[[], str] | None = None, scratch: bool = False
    ) -> Iterator[Path]:
        """Yield a local file to fill; it appears at ``path`` below the folder if the block ends without an exception.

        Args:
            path: of the file below the folder.
            task: the data set that the file belongs to.
            digest: returns the digest of the written bytes (:mod:`pairmill.digest`), if the caller computed it on the
                way; without it the file is read once more.
            scratch: only a later round of shards reads the file, and no finished folder links it. It is not synced to
                disk: if the machine goes down, its size and digest show what was lost.
        """
        uri = storage.join(self._place(), path)
        with ExitStack() as stack:
            local = stack.enter_context(storage.store_for(uri).create(uri, durable=not scratch, final=True))
            yield local
            made = digest() if digest else digest_file(local)
            if scratch:
                self.scratch.append(path)
            self.files.append(File(path, local.stat().st_size, made, task))
            if self._remote:
                self._later(stack.pop_all().close)

    def write(self, path: str, data: bytes, *, task: str = "") -> None:
        """Write these bytes."""
        with self.create(path, task=task, digest=partial(digest_bytes, data)) as local:
            local.write_bytes(data)

    def join(self, path: str, pieces: Sequence[bytes | storage.Span], *, task: str = "") -> None:
        """Write bytes and spans of other files, in order, as :meth:`storage.Store.join` does."""
        uri = storage.join(self._place(), path)
        made = storage.store_for(uri).join(uri, pieces, final=True, begun=self.begun.get(path))
        self.files.append(File(path, made.size, made.digest, task))

    def write_report(self, report: Report) -> None:
        """Write the report as HTML and as Markdown."""
        self.write("report.html", report.html().encode())
        self.write("report.md", report.markdown().encode())

    def link(self, source_folder: str, file: File, *, task: str = "", path: str = "") -> None:
        """Add a file of another folder (a shard's) without moving its bytes through this process.

        With ``task`` it goes into a folder of that name and belongs to that task; with ``path`` it goes there.
        """
        mine = file._replace(path=f"{task}/{file.path}", task=task) if task else file._replace(path=path or file.path)
        self.put(storage.join(source_folder, file.path), mine)

    def put(self, source: str, file: File) -> None:
        """Add a file that has the bytes of the object at this URI."""
        target = storage.join(self._place(), file.path)
        copy = partial(storage.store_for(target).copy, source, target)
        self._later(copy) if self._remote else copy()
        self.files.append(file)

    def flush(self) -> None:
        """Wait until everything that was written or linked is stored.

        Raises:
            PairmillError: some of it could not be stored; no upload is pending any more.
        """
        if self._pool is not None:
            self._pool.shutdown()
        done, self._pending, self._pool = self._pending, [], None
        for item in done:
            item.result()

    def _place(self) -> str:
        """URI of the folder that files are written to."""
        return self.folder

    def _later(self, work: Callable[[], None]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._pending.append(self._pool.submit(work))


class AttemptWriter(Writer):
    """Writes where no other process writes: two writers of one shard never mix their files, whatever bytes they make.

    Once all is written, :meth:`settle` gives the files a folder of their own below ``home``; a record in ``home`` then
    says whose files are the shard's.
    """

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.home = home
        self._stack = ExitStack()
        self._attempt = ""

    def settle(self) -> str:
        """Wait until the files are stored; return the name of their folder below ``home``, or "" without files."""
        self.flush()
        if not self.files:
            return ""
        name = fingerprint_from(sorted([file.path, file.digest] for file in self.files))
        return storage.name_of(storage.store_for(self.home).settle(self._place(), name))

    def close(self) -> None:
        """Remove what is not settled."""
        with suppress(PairmillError):  # uploads that were pending when something else failed
            self.flush()
        self._stack.close()

    def _place(self) -> str:
        if not self._attempt:
            self._attempt = self._stack.enter_context(storage.store_for(self.home).attempt(self.home))
        return self._attempt


class FinishWriter(AttemptWriter):
    """Writes what a stage itself adds to its finished folder; what it links is noted, and linked by the runner.

    Args:
        folder: URI of the finished folder.
        home: URI of the folder that the files are written to until the runner links them.

    Attributes:
        links: the linked files, and the URI of the source of each.
    """

    def __init__(self, folder: str, home: str) -> None:
        super().__init__(home)
        self.folder = folder
        self.links: list[tuple[str, File]] = []

    def put(self, source: str, file: File) -> None:
        self.links.append((source, file))
