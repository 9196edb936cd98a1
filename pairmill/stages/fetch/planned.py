"""A source before anything is downloaded: what it is locked to, and where its raw folder will be."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, InputRef, Manifest
from pairmill.engine.stage import ShardRecord
from pairmill.errors import InputError
from pairmill.sources.files.extracts import described
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.origin import Database, Folder, Git, Hub, HubRows, Manual, Web
from pairmill.sources.source import Source
from pairmill.stages.fetch.bring import Brought
from pairmill.stages.fetch.given import GivenData
from pairmill.stages.fetch.lock import Pin

RAW = "raw"
"""The folder of raw data below the root, and what its manifests say is their stage."""


@dataclass(frozen=True)
class PlannedSource:
    """What is known of a source before anything is downloaded.

    Args:
        source: its declaration.
        identity: digest of what its raw folder will contain; empty if its files are given.
        pin: what it is locked to; None if its files are given.
        revision: a commit, or the sha256 of an archive; empty until the archive is downloaded. Of an extract of files
            without a commit, a digest of what is known of them and of how the source reads them.
        given: the files that exist already, under ``raw=`` or where the source says.
        limit: of an extract, how many records; 0 = the published files.
        known: of an extract of given files, what an earlier fetch knew of them.
    """

    source: Source
    identity: str
    pin: Pin | None = None
    revision: str = ""
    given: RawFolder | None = None
    limit: int = 0
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Its folder below the root."""
        if isinstance(self.source, GivenData):
            return self.source.folder(self.revision)
        folder = self.revision if len(self.revision) == 40 else self.revision[:16]
        return f"{RAW}/{self.source.name}/{folder}" + (f"-first-{self.limit}" if self.limit else "")

    @property
    def ref(self) -> InputRef:
        """Its files by content, wherever they are; an archive that is not downloaded yet by its server's version."""
        if self.given is not None:
            content: list[object] = [[path, self.given.digests[path]] for path in self.given.sizes]
        else:
            content = [self.revision or (self.pin and self.pin.revision), declared(self.source)]
            content += [self.limit] if self.limit else []
        return InputRef.from_content(self.source.name, content)

    @property
    def about(self) -> dict[str, str]:
        """What manifests say about it."""
        revision = f"sha256 {self.revision}" if len(self.revision) == 64 else self.revision
        if self.limit and len(self.revision) != 40:
            revision = f"version {self.pin.revision}" if self.pin else ""  # only a part of the bytes was read
        return {
            "origin": describe(self.source),
            "revision": revision or "as given",
            **self.known,
            **(self.given.about if self.given is not None else {}),  # what an earlier fetch knew
            **({"extract": described(self.limit)} if self.limit else {}),
            "licence": (self.pin.licence if self.pin else "") or self.source.licence,
            "citation": self.source.citation,
        }

    def place(self, root: str) -> str:
        """URI of finished data, once it is fetched."""
        assert isinstance(self.source, GivenData)
        return self.source.place(root, self.revision)

    def folder(self, root: str) -> str:
        """URI of its raw folder."""
        return storage.join(root, *self.path.split("/"))

    def finished(self, root: str, *, verify: bool = False) -> Manifest | None:
        """Return the manifest of its raw folder if it is intact and has what the source declares now.

        With ``verify`` any other manifest is deleted, because later checks look at sizes only.
        """
        if not self.revision:
            return None
        folder = self.folder(root)
        return manifests.load_or_discard(
            folder, lambda made: made.fingerprint == self.identity, verify=verify, discard=verify
        )

    def brought(self, records: Sequence[ShardRecord]) -> list[ShardRecord]:
        """Return the records of its shards."""
        return [record for record in records if record.read(Brought).source == self.source.name]

    def files(self, root: str, records: Sequence[ShardRecord]) -> Sequence[File]:
        """Return its raw files: given ones, those that its shards brought, or those of its finished raw folder."""
        if self.given is not None:
            given = self.given
            return [File(given.place(path), size, given.digests[path]) for path, size in given.sizes.items()]
        brought = self.brought(records)
        if brought:
            return [file for record in brought for file in record.files]
        finished = self.finished(root)
        if finished is None:
            raise InputError(
                f"the raw data of {self.source.name} was removed or changed while fetch ran",
                where=self.folder(root),
                hint="run the same command again",
            )
        return finished.files


def describe(source: Source) -> str:
    """Return a source's origin as one text: what a lock entry is for."""
    origin = source.origin
    if isinstance(source, GivenData):
        return source.address.locked
    if isinstance(origin, Hub):
        return f"hub:{origin.repo}@{origin.revision}"
    if isinstance(origin, HubRows):
        return f"hub rows:{origin.repo}/{origin.config}@{origin.revision}"
    if isinstance(origin, Git):
        return f"git:{origin.repository}@{origin.revision}"
    if isinstance(origin, Web):
        return origin.url
    if isinstance(origin, Database):
        return f"database:{origin.address} {origin.query}"
    return origin.page if isinstance(origin, Manual) else "given"


def declared(source: Source) -> list[object]:
    """Return the parts of a source's declaration that decide which files are fetched, and whether they are accepted."""
    if isinstance(source.origin, HubRows):
        # Columns of mixed types are refused if they are read, and let pass if not.
        return [asdict(source.origin), sorted({*source.fields, *source.optional})]
    # Where given files are is not part of what they are, and which of them are read is in their revision.
    return [] if isinstance(source.origin, Folder) else [asdict(source.origin)]


def of_extract(source: Source, limit: int) -> list[object]:
    """Return what decides which records are the first, beside the files."""
    return [limit, source.version, source.lines_per_record]


def members(source: Source) -> tuple[tuple[str, ...], int]:
    """Return the members to unpack of a source's archive, and how many leading folders to strip."""
    if isinstance(source.origin, Git):
        return source.origin.files, 1  # a forge's archive has one folder, named after the commit
    return (source.origin.unpack if isinstance(source.origin, Web) else ()), 0
