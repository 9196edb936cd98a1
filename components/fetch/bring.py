"""The shards of fetch: one file of the Hub, one split streamed through ``datasets``, or one archive."""

from __future__ import annotations

import hashlib
import re
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from components.fetch import archive, hub_rows, scratch
from components.fetch.config import FetchConfig
from components.fetch.given import FILES, GivenData
from pairmill import storage
from pairmill.engine.content import Content, whole
from pairmill.engine.manifest import MANIFEST, STARTED, File, Ledger
from pairmill.engine.shards import RECORD
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, PairmillError
from pairmill.log import event
from pairmill.net import http, hub
from sources.origin import HubRows

# Names that have a meaning in our folders.
_OURS = frozenset({MANIFEST, STARTED, RECORD})


@dataclass(frozen=True)
class Brought:
    """The data of a shard's record.

    Args:
        source: name of the source.
        fetched: when, in UTC.
        sha256: of an archive or a file over https, the digest of its bytes.
    """

    source: str
    fetched: str
    sha256: str = ""


@dataclass(frozen=True)
class FetchFiles(Shard[FetchConfig]):
    """Brings some files of one source."""

    source: str

    def run(self, context: FetchConfig, out: Writer) -> ShardResult:
        sha256 = self.bring(context, out)
        ledger = Ledger(measures={"files": len(out.files), "raw_bytes": sum(one.size for one in out.files)})
        fetched = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return ShardResult(ledger, asdict(Brought(self.source, fetched, sha256)))

    @abstractmethod
    def bring(self, config: FetchConfig, out: Writer) -> str:
        """Write the files; returns the digest of an archive or of a file over https, else an empty text."""


@dataclass(frozen=True)
class HubFile(FetchFiles):
    """A file of the Hub."""

    repository: hub.Repository
    commit: str
    file: hub.RemoteFile
    given: GivenData | None = None
    check: bool = False

    def bring(self, config: FetchConfig, out: Writer) -> str:
        with scratch.folder(config.root, self.key) as folder:
            path = _safe(f"{FILES}/{self.file.path}" if self.given else self.file.path, self.repository.name)
            content = folder / scratch.CONTENT / path
            sha256 = hub.download(self.repository, self.commit, self.file, content, folder / "version")
            if self.given is not None and self.check:
                self.given.check(str(content), self.file.path)
            _finished(content)
            out.link(str(folder / scratch.CONTENT), File(path, self.file.size, sha256, self.source))
            out.flush()
        return ""


@dataclass(frozen=True)
class HubSplit(FetchFiles):
    """A split of a data set, streamed through ``datasets``."""

    origin: HubRows
    commit: str
    split: str
    fields: tuple[str, ...]

    def bring(self, config: FetchConfig, out: Writer) -> str:
        repo = self.origin.repo
        create = _creator(out, self.source, repo)
        hub_rows.stream(self.origin, self.commit, self.split, data_set(repo, self.source), self.fields, create)
        return ""


@dataclass(frozen=True)
class Archive(FetchFiles):
    """A file over https (``url``) or in storage (``uri``): kept as it is, or unpacked by ``patterns``.

    ``prefix`` goes before the members' names.

    ``version`` and ``sha256`` of a file over https are those of the lock. Once the digest is known, only the digest
    decides: after a move servers report other versions for the same bytes.
    """

    patterns: tuple[str, ...]
    strip: int
    url: str = ""
    uri: str = ""
    version: str = ""
    sha256: str = ""
    prefix: str = ""

    def bring(self, config: FetchConfig, out: Writer) -> str:
        if self.uri:
            with whole(self.uri, Content(self.sha256)) as file:
                _unpack(file, self.uri, self, out)
            return self.sha256
        with scratch.folder(config.root, self.key) as folder:
            return _download(self, folder, out)


def data_set(repo: str, source: str) -> hub.Repository:
    """A data set of the Hub, with what to do when the locked revision is gone."""
    return hub.Repository(repo, "dataset", f"update={source} locks the source to what is published now")


def _download(work: Archive, folder: Path, out: Writer) -> str:
    """Download an archive and extract the wanted members; return its sha256."""
    source = work.source
    hint = f"update={source} takes what is published now; raw= what you have"
    name = _safe(storage.name_of(work.url.split("?")[0]) or source, work.url)
    local, note = folder / scratch.CONTENT / name, folder / "version"
    version = http.UNTOLD if work.version.startswith(http.UNTOLD) else work.version
    expected = "" if work.sha256 else version
    for again in (False, True):
        http.download(work.url, local, note, expected=expected, hint=hint)
        with local.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if not work.sha256 or sha256 == work.sha256:
            break
        local.unlink()
        if again or note.read_text() != version:
            raise InputError(
                f"the file that {source} is locked to is no longer published",
                where=work.url,
                got=f"sha256 {sha256}",
                expected=f"sha256 {work.sha256}",
                hint=hint,
            )
        event(f"fetch: {work.url}: sha256 {sha256}, expected {work.sha256}; fetching it once more")
    if not work.patterns:
        _finished(local)
        out.link(str(folder / scratch.CONTENT), File(name, local.stat().st_size, sha256, source))
        out.flush()
        return sha256
    try:
        with local.open("rb") as file:
            _unpack(file, work.url, work, out)
    except PairmillError:
        local.unlink()  # the same bytes would fail again
        raise
    return sha256


def _finished(local: Path) -> None:
    """Make a file read-only that will be in a finished folder, perhaps as a hard link."""
    with suppress(PermissionError):  # begun by another user, whose it is
        local.chmod(local.stat().st_mode & 0o7555)


def _unpack(file: BinaryIO, where: str, work: Archive, out: Writer) -> None:
    create = _creator(out, work.source, where, work.prefix)
    if not archive.unpack(file, where, work.patterns, work.strip, create):
        raise InputError(f"no file of {work.source} in it", where=where, expected=", ".join(work.patterns))


def _creator(out: Writer, source: str, where: str, prefix: str = "") -> Callable[[str], AbstractContextManager[Path]]:
    return lambda path: out.create(_safe(prefix + path, where), task=source)


def _safe(path: str, where: str) -> str:
    """Return the path of a raw file; refuse it if it leaves its folder, is a name of ours, or cannot be written."""
    whole = all(part not in {"", ".", ".."} for part in path.split("/"))
    if not whole or path in _OURS or re.search("[\0\ud800-\udfff]", path):
        raise InputError("a wanted file has a name that cannot be kept", where=where, got=repr(path))
    return path
