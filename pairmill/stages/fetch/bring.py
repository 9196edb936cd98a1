"""The shards of fetch: one file of the Hub, one split streamed through ``datasets``, one archive, or one extract."""

import hashlib
import re
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from pairmill import storage
from pairmill.digest import digest_file
from pairmill.engine.content import Content, whole
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import MANIFEST, STARTED, File, Ledger
from pairmill.engine.shards import RECORD
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, PairmillError
from pairmill.log import event
from pairmill.net import drive, http, hub
from pairmill.sources.files.card import CARD, CARD_BYTES
from pairmill.sources.files.extracts import described, extract_path, published_path
from pairmill.sources.origin import Database, HubRows
from pairmill.sources.source import Source
from pairmill.stages.fetch import archive, database_rows, hub_rows, scratch
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.extract import Place, extract
from pairmill.stages.fetch.given import FILES, GivenData

_HUB_SAYS = "the Hub's digests of the file name its bytes"
_SMALL: Final = 8 << 20
"""A file of fewer bytes takes less time than a process to start."""
# Names that have a meaning in our folders.
_OURS = frozenset({MANIFEST, STARTED, RECORD})


@dataclass(frozen=True)
class Brought:
    """The data of a shard's record.

    Args:
        source: name of the source.
        fetched: when, in UTC.
        sha256: of an archive or a file over https, the digest of its bytes.
        records: of an extract, how many records of the source are in it.
        listed: of an extract, the paths of all files that the source has where it is published.
    """

    source: str
    fetched: str
    sha256: str = ""
    records: int = 0
    listed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FetchFiles(Shard[FetchConfig], reads=()):
    """Brings some files of one source."""

    work = "fetch files"

    source: str

    def run(self, context: FetchConfig, out: Writer) -> ShardResult:
        result = Brought(self.source, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.bring(context, out))
        ledger = Ledger(measures={"files": len(out.files), "raw_bytes": sum(item.size for item in out.files)})
        values = {name: value for name, value in asdict(result).items() if value or name == "sha256"}
        return ShardResult(ledger, values)

    @abstractmethod
    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        """Write the files; returns what the record says of them, see :class:`Brought`."""


@dataclass(frozen=True)
class HubFile(FetchFiles):
    """A file of the Hub."""

    repository: hub.Repository = field(metadata=unkeyed(_HUB_SAYS))
    commit: str = field(metadata=unkeyed(_HUB_SAYS))
    file: hub.RemoteFile
    given: GivenData | None = field(default=None, metadata=unkeyed("its name is that of the source"))
    check: bool = field(default=False, metadata=unkeyed("whether what is brought is refused"))

    @property
    def waits(self) -> bool:
        return self.file.size <= _SMALL

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        with scratch.folder(config.root, self.key) as folder:
            path = _safe(f"{FILES}/{self.file.path}" if self.given else self.file.path, self.repository.name)
            content = folder / scratch.CONTENT / path
            hub.download(self.repository, self.commit, self.file, content, folder / "version")
            if self.given is not None and self.check:
                self.given.check(str(content), self.file.path)
            _finished(content)
            out.link(str(folder / scratch.CONTENT), File(path, self.file.size, digest_file(content), self.source))
            out.flush()
        return {}


@dataclass(frozen=True)
class HubSplit(FetchFiles):
    """A split of a data set, streamed through ``datasets``."""

    origin: HubRows
    commit: str
    split: str
    fields: tuple[str, ...]

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        repo = self.origin.repo
        create = _creator(out, self.source, repo)
        hub_rows.stream(self.origin, self.commit, self.split, data_set(repo, self.source), self.fields, create)
        return {}


@dataclass(frozen=True)
class FirstRows(FetchFiles):
    """The first rows of a data set that is streamed through ``datasets``: its splits one after another."""

    origin: HubRows
    commit: str
    fields: tuple[str, ...]
    limit: int

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        repo, left = self.origin.repo, self.limit
        create = _creator(out, self.source, repo, limit=self.limit)
        repository = data_set(repo, self.source)
        for split in self.origin.splits:
            if left:
                left -= hub_rows.stream(self.origin, self.commit, split, repository, self.fields, create, limit=left)
        names = [published_path(file.path, self.limit) for file in out.files]
        listed = sorted({*names, *(f"{split}-00000.parquet" for split in self.origin.splits)})
        return {"records": self.limit - left, "listed": listed}


@dataclass(frozen=True)
class QueryRows(FetchFiles):
    """Rows of a database, as its driver gives them now.

    ``revision`` is when they were asked for, and ``sha256`` what came then: what comes another time has to be the same.
    """

    origin: Database
    revision: str
    limit: int
    sha256: str = field(default="", metadata=unkeyed("what comes is compared with it"))

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        name = database_rows.FILE
        with out.create(extract_path(name, self.limit) if self.limit else name, task=self.source) as path:
            records = database_rows.write(self.origin, path, self.limit)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if self.limit:
            return {"records": records, "listed": [name]}
        if self.sha256 not in ("", sha256):
            raise InputError(
                "the database gives other rows than it gave when they were locked",
                where=self.origin.address,
                got=sha256,
                expected=self.sha256,
                hint=f"update={self.source} takes those of now",
            )
        return {"sha256": sha256}


@dataclass(frozen=True)
class FirstRecords(FetchFiles):
    """The first records of a source, file by file.

    Args:
        wanted: the files that are read, in the order of their records.
        aside: files of splits that are withheld; of these too the first records are kept.
        listed: paths of all files of the source.
        card: the data set's card, kept as it is.
        limit: how many records.
        reads: what reads the files.
    """

    wanted: tuple[Place, ...]
    aside: tuple[Place, ...]
    listed: tuple[str, ...]
    card: Place | None
    limit: int
    reads: Source

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        with scratch.folder(config.root, self.key) as folder:
            records = self.write(out, folder)
        return {"records": records, "listed": list(self.listed)}

    def write(self, out: Writer, folder: Path) -> int:
        """Write the extracts; return how many records of ``wanted`` they have."""
        if self.card is not None and self.card not in (*self.wanted, *self.aside):
            with self.card.opened() as card:
                out.write(CARD, card.read(CARD_BYTES), task=self.source)
        self._first(self.aside, out, folder)
        return self._first(self.wanted, out, folder)

    def _first(self, places: Sequence[Place], out: Writer, folder: Path) -> int:
        left, files = self.limit, 0
        for place in places:
            path = extract_path(_safe(place.path, place.where), self.limit)
            below = folder / f"{hashlib.sha256(place.path.encode()).hexdigest()[:16]}"
            with out.create(path, task=self.source) as target:
                left -= extract(place, left, target, below, self.reads)
            files += 1
            if not left:
                break
        if places:
            event(f"fetch: {self.source}: the first {self.limit - left} records are in {files} of its files")
        return self.limit - left


@dataclass(frozen=True)
class Archive(FetchFiles):
    """A file over https (``url``) or in storage (``uri``): kept as it is, or unpacked by ``patterns``.

    ``prefix`` goes before the members' names.

    ``revision`` names its bytes: a commit, a server's version, or a digest. ``version`` and ``sha256`` of a file over
    https are those of the lock. Once the digest is known, only the digest decides: after a move servers report other
    versions for the same bytes.

    With a ``limit`` the first records of its members are kept, as ``reads`` orders and reads them. The archive is
    downloaded all the same: its members come in any order.
    """

    revision: str
    patterns: tuple[str, ...]
    strip: int
    url: str = ""
    uri: str = field(default="", metadata=unkeyed("a place; the revision names the bytes"))
    version: str = field(default="", metadata=unkeyed("it is the revision, where a server is asked for it"))
    sha256: str = field(default="", metadata=unkeyed("what the revision gives is compared with it"))
    prefix: str = ""
    limit: int = 0
    reads: Source | None = None

    def bring(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        if self.limit:
            return self._first_records(config, out)
        if self.uri:
            with whole(self.uri, Content(self.sha256)) as file:
                _unpack(file, self.uri, self, out)
            return {"sha256": self.sha256}
        with scratch.folder(config.root, self.key) as folder:
            return {"sha256": _download(self, folder, out)}

    def _first_records(self, config: FetchConfig, out: Writer) -> dict[str, Any]:
        assert self.reads is not None
        with scratch.folder(config.root, self.key) as folder:
            home = folder / "members"
            shutil.rmtree(home, ignore_errors=True)  # of a run that was killed
            members = Writer(str(home))
            if self.uri:
                with whole(self.uri, Content(self.sha256)) as file:
                    _unpack(file, self.uri, self, members)
                sha256 = self.sha256
            else:
                sha256 = _download(self, folder, members)
            places = {
                file.path: Place(file.path, self.source, uri=storage.join(str(home), *file.path.split("/")))
                for file in members.files
            }
            work = first_records(self.reads, "", places, self.limit)
            records = work.write(out, folder)
            shutil.rmtree(home, ignore_errors=True)
        return {"sha256": sha256, "records": records, "listed": list(work.listed)}


def first_records(
    source: Source, card: str, places: Mapping[str, Place], limit: int, listed: Sequence[str] = (), size: int = 1
) -> FirstRecords:
    """Make the shard that makes an extract of the files that a source has at these places, by path.

    ``listed`` are the paths of all its files, if ``places`` are those of a larger extract.
    """
    listed = sorted(listed or places)
    units = source.units(listed, card, "pairmill", source.options().when_named())
    wanted = dict.fromkeys(path for unit in units for path in unit.files)
    aside = dict.fromkeys(path for unit in units for path in unit.withheld)
    if not wanted and not aside:
        raise InputError(f"no file of {source.name}", where=source.name, got=", ".join(listed[:5]))
    return FirstRecords(
        source=source.name,
        wanted=tuple(places[path] for path in wanted if path in places),
        aside=tuple(places[path] for path in aside if path in places),
        listed=tuple(listed),
        card=places.get(CARD),
        limit=limit,
        reads=source,
        name=f"{source.name} {described(limit)}",
        size=size,
    )


def data_set(repo: str, source: str) -> hub.Repository:
    """Return a data set of the Hub, with what to do when the locked revision is gone."""
    return hub.Repository(repo, "dataset", f"update={source} locks the source to what is published now")


def _download(work: Archive, folder: Path, out: Writer) -> str:
    """Download an archive and extract the wanted members; return its sha256."""
    source = work.source
    hint = f"update={source} takes what is published now; raw= what you have"
    name = web_name(work.url, source)
    local, note = folder / scratch.CONTENT / name, folder / "version"
    version = http.UNTOLD if work.version.startswith(http.UNTOLD) else work.version
    for again in (False, True):
        drive.download(work.url, local, note, expected="" if work.sha256 else version, hint=hint)
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
        out.link(str(folder / scratch.CONTENT), File(name, local.stat().st_size, digest_file(local), source))
        out.flush()
        return sha256
    try:
        with local.open("rb") as file:
            _unpack(file, work.url, work, out)
    except PairmillError:
        local.unlink()  # the same bytes would fail again
        raise
    return sha256


def web_name(url: str, source: str) -> str:
    """Return the name that a file over https gets: the last part of its path, or what the link says after ``#``."""
    address, _, name = url.partition("#")
    return _safe(name or storage.name_of(address.split("?")[0]) or source, url)


def _finished(local: Path) -> None:
    """Make a file read-only that will be in a finished folder, perhaps as a hard link."""
    with suppress(PermissionError):  # begun by another user, whose it is
        local.chmod(local.stat().st_mode & 0o7555)


def _unpack(file: BinaryIO, where: str, work: Archive, out: Writer) -> None:
    create = _creator(out, work.source, where, prefix=work.prefix)
    if not archive.unpack(file, where, work.patterns, work.strip, create):
        raise InputError(f"no file of {work.source} in it", where=where, expected=", ".join(work.patterns))


def _creator(
    out: Writer, source: str, where: str, *, prefix: str = "", limit: int = 0
) -> Callable[[str], AbstractContextManager[Path]]:
    def create(path: str) -> AbstractContextManager[Path]:
        named = _safe(prefix + path, where)
        return out.create(extract_path(named, limit) if limit else named, task=source)

    return create


def _safe(path: str, where: str) -> str:
    """Return the path of a raw file; refuse it if it leaves its folder, is a name of ours, or cannot be written."""
    whole = all(part not in {"", ".", ".."} for part in path.split("/"))
    if not whole or path in _OURS or re.search("[\0\ud800-\udfff]", path):
        raise InputError("a wanted file has a name that cannot be kept", where=where, got=repr(path))
    return path
