"""Where the raw files of a source are, and what is known about them.

``raw`` is the result of the fetch stage, or a folder with one folder per source. Its files are there as published or,
as fetch writes them, in a folder named after their revision.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, Content, whole
from pairmill.engine.links import leave_out, list_folder
from pairmill.engine.manifest import MANIFEST, STARTED, File
from pairmill.engine.vanished import UNMATCHED_SOURCE
from pairmill.errors import InputError, UsageError
from pairmill.formats.file_slice import RANDOM_ACCESS
from pairmill.formats.results.raw import FetchResult, RawResult
from pairmill.sources.files.card import CARD, CARD_BYTES
from pairmill.sources.files.extracts import Extract, extract_path, published_path
from pairmill.sources.files.patterns import matching
from pairmill.sources.origin import Folder, is_within
from pairmill.sources.source import Source

FETCH = "fetch"
"""Name of the stage whose folders are an index of raw data."""

PLACES = "_PLACES.json"
"""In such a folder, where given files are, by source. A place is not content, so no digest is over it."""


@dataclass
class RawFolder:
    """The raw files of one source.

    Args:
        uri: folder that the files are below.
        sizes: bytes by path. Of an extract these are the paths of the published files.
        digests: by path, of the files where it is known (:mod:`pairmill.digest`).
        about: what a manifest says about them: revision, licence, citation, origin.
        stamps: of the files as they were when they were digested, or listed, by path.
        digested: paths whose digest is of the file as it was read here.
        given: whether others may change the files: then they are compared before the work starts.
        extract: if the files are an extract, what is known of it.
    """

    uri: str
    sizes: dict[str, int]
    digests: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)
    digested: set[str] = field(default_factory=set)
    given: bool = False
    extract: Extract | None = None

    @property
    def promised(self) -> Set[str]:
        """The paths whose digest is known from a manifest only."""
        return self.digests.keys() - self.digested

    def place(self, path: str) -> str:
        """Return the path of a file below the folder."""
        return extract_path(path, self.extract.limit) if self.extract else path

    def uri_of(self, path: str) -> str:
        """Return the URI of a file."""
        return storage.join(self.uri, *self.place(path).split("/"))

    def listed(self) -> list[str]:
        """Return the paths that the source's units are made of, sorted: of an extract those of all published files."""
        return sorted(self.extract.listed if self.extract else self.sizes)

    def card(self) -> str:
        """Return the head of the data set's card, or empty.

        Raises:
            Changed: it is not what the manifest says.
        """
        if CARD not in self.sizes:
            return ""
        # It decides which files are trained on.
        content = self.content(CARD) if CARD in self.digests else UNKNOWN
        with whole(storage.join(self.uri, CARD), content) as file:
            return file.read(CARD_BYTES).decode("utf-8", "replace")

    def digest(self, paths: list[str], *, verify: bool = False, like: str = "") -> None:
        """Digest the files whose digest is not known; ``verify``: also those that a manifest has a digest of.

        Args:
            verify: see above.
            like: what a new digest is made like (:class:`pairmill.digest.Digest`).

        Raises:
            Changed: a file differs from the manifest, or keeps changing.
        """
        store = storage.store_for(self.uri)
        again = verify or self.given
        wanted = dict.fromkeys(paths)
        unknown = [path for path in wanted if path not in self.digests or (again and path not in self.digested)]
        uris = [self.uri_of(path) for path in unknown]
        digested = store.digested(uris, [self.digests.get(path, like) for path in unknown])
        for path, uri, item in zip(unknown, uris, digested, strict=True):
            if path in self.digests:
                self.content(path).require(uri, item.digest)
            self.digests[path], self.sizes[path], self.stamps[path] = item.digest, item.size, item.stamp
            self.digested.add(path)
        if any(path.endswith(RANDOM_ACCESS) for path in self.promised & wanted.keys()):
            result = {entry.path: entry.stamp for entry in store.list(self.uri)}
            self.stamps |= {
                path: result.get(self.place(path), "") for path in self.promised if path.endswith(RANDOM_ACCESS)
            }

    def content(self, path: str) -> Content:
        """Return what a file has to be."""
        return Content(self.digests[path], self.stamps.get(path, ""), path in self.promised)


def places(folder: str) -> dict[str, str]:
    """Return the content of :data:`PLACES`; without what cannot be a place, because no digest is over the file."""
    uri = storage.join(folder, PLACES)
    store = storage.store_for(uri)
    try:
        result = json.loads(store.read(uri)) if store.exists(uri) else {}
    except (ValueError, RecursionError):
        return {}
    return {name: place for name, place in result.items() if _is_place(place)} if isinstance(result, dict) else {}


def _is_place(text: Any) -> bool:
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text) and storage.normalise(text, PLACES) == text
    except (UsageError, UnicodeEncodeError):
        return False


def index(raw: str) -> dict[str, RawFolder] | None:
    """Return the raw folders that a result of the fetch stage names, by source; None if ``raw`` is not such a
    folder."""
    store = storage.store_for(raw)
    if not store.exists(storage.join(raw, MANIFEST)) and not store.exists(storage.join(raw, STARTED)):
        return None
    manifest = manifests.read_intact(raw)
    if manifest is None or manifest.stage != FETCH:
        stage = "an unfinished folder" if manifest is None else f"a result of {manifest.stage}"
        raise InputError(
            "not a folder of raw data", where=f"raw={raw}", got=stage, expected="a result of fetch, or raw files"
        )
    root, where = storage.parent_of(storage.parent_of(raw)), places(raw)
    result = {}
    for name in FetchResult.from_manifest(manifest).sources:
        entry = json.loads(manifests.read_file(raw, manifest, f"sources/{name}.json"))
        given = not entry["path"]
        if given and name not in where:
            raise InputError(
                f"the place of the raw files of {name} is not known",
                where=storage.join(raw, PLACES),
                hint="run fetch again",
            )
        uri = where[name] if given else storage.join(root, *entry["path"].split("/"))
        _refuse_changes(uri, entry["files"], name)
        files = [File.from_json(file) for file in entry["files"]]
        result[name] = _folder(uri, files, entry["about"], entry.get("extract"), given=given)
    return result


def _folder(
    uri: str, files: Iterable[File], about: dict[str, Any], extract: Mapping[str, Any] | None, *, given: bool = False
) -> RawFolder:
    """Return a folder whose manifest or index says what is in it."""
    if extract is None:
        sizes = {file.path: file.size for file in files}
        return RawFolder(uri, sizes, {file.path: file.digest for file in files}, about, given=given)
    known = Extract(extract["limit"], extract["records"], tuple(extract["listed"]))
    by_path = {published_path(file.path, known.limit): file for file in files}
    sizes = {path: file.size for path, file in by_path.items()}
    digests = {path: file.digest for path, file in by_path.items()}
    return RawFolder(uri, sizes, digests, about, given=given, extract=known)


def folders(raw: str) -> set[str]:
    """Return names of the folders right below ``raw``."""
    store = storage.store_for(raw)
    if store.exists(raw):
        raise InputError("is a file", where=f"raw={raw}", expected="a folder with one folder per source")
    result = set(store.folders(raw))
    if storage.scheme(raw) == "file":
        # Of links alone nothing is listed, but a source may name some of them.
        others = [path for path in storage.local_path(raw).glob("*") if path.name not in result and path.is_dir()]
        result |= {path.name for path in others if path.is_symlink() or any(map(Path.is_symlink, path.rglob("*")))}
    if not result:
        storage.require(raw, "raw files, one folder per source", "raw")
    return result


def note_unread(raw: str, names: Iterable[str], sources: Iterable[Source]) -> None:
    """Note the folders below ``raw`` that no source reads, for the alarms of the stage; hidden ones are nobody's."""
    read = {source.name for source in sources}
    places = [source.origin.uri for source in sources if isinstance(source.origin, Folder)]

    def is_read(name: str) -> bool:
        folder = storage.join(raw, name)
        return name in read or any(is_within(place, [folder]) or is_within(folder, [place]) for place in places)

    leave_out(UNMATCHED_SOURCE, (name for name in names if name[0] != "." and not is_read(name)))


def _refuse_changes(uri: str, files: list[dict[str, Any]], name: str) -> None:
    changed = manifests.find_damage(uri, [File.from_json(file) for file in files])
    if changed:
        raise InputError(
            f"{len(changed)} raw files of {name} are missing or changed since they were fetched",
            where=uri,
            got=changed[0],
            hint="run fetch again",
        )


def files_of(source: Source, uri: str) -> dict[str, int]:
    """Return bytes by path of the files below a folder.

    A link is included only if the source names it exactly, because a link that a pattern finds may lead anywhere.
    """
    store = storage.store_for(uri)
    patterns = getattr(source.origin, "files", ())
    entries = list_folder(uri, lambda link: link not in patterns and _may_match(patterns, link))
    result = {entry.path: entry.size for entry in entries}
    for path in patterns:
        if path not in result and not {"*", "?"} & set(path):
            file = storage.join(uri, *path.split("/"))
            if store.exists(file):
                result[path] = store.size(file)
    return result


def _may_match(patterns: Sequence[str], link: str) -> bool:
    """Return whether a link, or if it leads to a folder a file below it, may be one that patterns mean."""
    if not link.endswith("/"):
        return not patterns or bool(matching(patterns, [link]))
    folders = link.rstrip("/").split("/")

    def goes_through(pattern: str) -> bool:
        for folder, part in zip_longest(folders, pattern.split("/")[: len(folders)]):
            if part is not None and "**" in part:
                return True
            if part is None or not matching([part], [folder]):
                return False
        return pattern.count("/") >= len(folders)

    return not patterns or any(map(goes_through, patterns))


def open_folder(source: Source, origin: Folder) -> RawFolder:
    """Return the raw files of a source whose description says where they are.

    Raises:
        InputError: nothing is there, or a link leads out of the folders that the source may read.
    """
    sizes = files_of(source, origin.uri)
    if not sizes:
        storage.require(origin.uri, f"the files of {source.name}")
    if origin.within:
        top = storage.local_path(origin.uri)
        for path in (*matching(origin.files, sorted(sizes)), *({CARD} & set(sizes))):
            real = os.path.realpath(top / path)
            if not is_within(real, origin.within):
                raise InputError(
                    f"a link leads outside the folders that {source.name} may read",
                    where=str(top / path),
                    got=real,
                    expected=f"a file below {' or '.join(origin.within)}",
                    hint="put the file itself there, or name the folder that it is in with raw=",
                )
    return RawFolder(origin.uri, sizes)


def folder_of(source: Source, raw: str) -> RawFolder:
    """Return the raw files of a source below a folder with one folder per source.

    Raises:
        InputError: no files, no finished revision, or several revisions.
    """
    uri = storage.join(raw, source.name)
    sizes = files_of(source, uri)
    if not sizes and isinstance(source.origin, Folder):
        return open_folder(source, source.origin)
    if not sizes:
        storage.require(uri, f"the raw files of {source.name}")
    revisions = [path.removesuffix(f"/{MANIFEST}") for path in sizes if path.endswith(f"/{MANIFEST}")]
    begun = [path.removesuffix(f"/{STARTED}") for path in sizes if path.endswith(f"/{STARTED}")]
    if not begun:
        return RawFolder(uri, sizes)
    manifests_of = {path: manifests.read(storage.join(uri, *path.split("/"))) for path in revisions}
    whole_ones = [path for path, item in manifests_of.items() if item and not RawResult.from_manifest(item).extract]
    # A run with a limit leaves an extract beside the published files: without one it is not asked for.
    revisions = whole_ones or revisions
    if len(revisions) != 1:
        raise InputError(
            f"several revisions of {source.name}" if revisions else f"no finished revision of {source.name}",
            where=uri,
            got=", ".join(sorted(begun)),
            expected="one",
            hint="name the folder that fetch printed: raw=<root>/fetch/<fingerprint>",
        )
    folder = storage.join(uri, *revisions[0].split("/"))
    manifest = manifests.read_intact(folder)
    assert manifest is not None
    files = [file for file in manifest.files if file.task]
    result = RawResult.from_manifest(manifest)
    return _folder(folder, files, result.about, result.extract)
