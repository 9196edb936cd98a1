"""Where the raw files of a source stand, and what is known of them.

``raw`` is the result of the fetch stage, or a folder with one folder per source, whose files stand in it as published
or, as fetch lays them out, in a folder named after their revision.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from components.clean.card import matching
from components.clean.origin import Given
from components.clean.source import Source
from pairmill import manifest as manifests
from pairmill import storage
from pairmill.errors import InputError
from pairmill.manifest import MANIFEST, STARTED, File

CARD = "README.md"
FETCH = "fetch"
"""Name of the stage whose folders are an index of raw data."""


@dataclass
class RawFolder:
    """The raw files of one source.

    Args:
        uri: folder that the paths are below.
        sizes: bytes by path.
        digests: hexadecimal sha256 by path, of the files where it is known.
        about: what a manifest says of them: revision, licence, citation, origin.
    """

    uri: str
    sizes: dict[str, int]
    digests: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def card(self) -> str:
        """The data set's card, or empty."""
        if CARD not in self.sizes:
            return ""
        uri = storage.join(self.uri, CARD)
        return storage.store_for(uri).read(uri).decode("utf-8", "replace")

    def digest(self, paths: list[str]) -> None:
        """Make sure that the digests of these files are known."""
        unknown = [path for path in dict.fromkeys(paths) if path not in self.digests]
        found = storage.store_for(self.uri).digests([storage.join(self.uri, path) for path in unknown])
        self.digests |= dict(zip(unknown, found, strict=True))


def index(raw: str) -> dict[str, RawFolder] | None:
    """The raw folders that a result of the fetch stage names, by source; None if ``raw`` is no such folder."""
    store = storage.store_for(raw)
    if not store.exists(storage.join(raw, MANIFEST)) and not store.exists(storage.join(raw, STARTED)):
        return None
    manifest = manifests.read_whole(raw)
    if manifest is None or manifest.stage != FETCH:
        stage = "an unfinished folder" if manifest is None else f"a result of {manifest.stage}"
        raise InputError("holds no raw data", where=f"raw={raw}", got=stage, expected="a result of fetch, or raw files")
    root = storage.parent_of(storage.parent_of(raw))
    found = {}
    for name in manifest.data["sources"]:
        entry = json.loads(store.read(storage.join(raw, "sources", f"{name}.json")))
        uri = entry["uri"] or storage.join(root, *entry["path"].split("/"))
        _refuse_changes(uri, entry["files"], name)
        # Files that were given stand where others may change them, sizes kept: they are digested again.
        digests = {} if entry["uri"] else {file["path"]: file["sha256"] for file in entry["files"]}
        found[name] = RawFolder(uri, {file["path"]: file["size"] for file in entry["files"]}, digests, entry["about"])
    return found


def folders(raw: str) -> set[str]:
    """Names of the folders right below ``raw``."""
    store = storage.store_for(raw)
    if store.exists(raw):
        raise InputError("is a file", where=f"raw={raw}", expected="a folder with one folder per source")
    entries = store.list(raw)
    if not entries:
        storage.require(raw, "raw files, one folder per source")
    return {entry.path.split("/", 1)[0] for entry in entries if "/" in entry.path}


def _refuse_changes(uri: str, files: list[dict[str, Any]], name: str) -> None:
    changed = manifests.damage(uri, [File(file["path"], file["size"], file["sha256"]) for file in files])
    if changed:
        raise InputError(
            f"{len(changed)} raw files of {name} are gone or changed since they were fetched",
            where=uri,
            got=changed[0],
            hint="run fetch again",
        )


def given(source: Source, origin: Given) -> RawFolder:
    """The raw files of a source that says itself where they are.

    Raises:
        InputError: nothing is there, or a link leads out of the folders that the source may read.
    """
    storage.require(origin.uri, f"the files of {source.name}")
    sizes = {entry.path: entry.size for entry in storage.store_for(origin.uri).list(origin.uri)}
    if origin.within:
        top = storage.local_path(origin.uri)
        for path in (*matching(origin.files, sorted(sizes)), *({CARD} & set(sizes))):
            real = os.path.realpath(top / path)
            if not is_within(real, origin.within):
                raise InputError(
                    f"a link leads out of the folders that {source.name} may read",
                    where=str(top / path),
                    got=real,
                    expected=f"a file below {' or '.join(origin.within)}",
                    hint="put the file itself there, or name the folder that it is in with raw=",
                )
    return RawFolder(origin.uri, sizes)


def is_within(real: str, folders: Iterable[str]) -> bool:
    """Whether a path without links is one of some folders or below one."""
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)


def folder_of(source: Source, raw: str) -> RawFolder:
    """The raw files of a source below a folder with one folder per source.

    Raises:
        InputError: nothing there, not finished, or several revisions.
    """
    uri = storage.join(raw, source.name)
    store = storage.store_for(uri)
    listed = store.list(uri)
    if not listed and isinstance(source.origin, Given):
        return given(source, source.origin)
    if not listed:
        storage.require(uri, f"the raw files of {source.name}")
    revisions = [entry.path.removesuffix(f"/{MANIFEST}") for entry in listed if entry.path.endswith(f"/{MANIFEST}")]
    begun = [entry.path.removesuffix(f"/{STARTED}") for entry in listed if entry.path.endswith(f"/{STARTED}")]
    if not begun:
        return RawFolder(uri, {entry.path: entry.size for entry in listed})
    if len(revisions) != 1:
        raise InputError(
            f"several revisions of {source.name}" if revisions else f"no finished revision of {source.name}",
            where=uri,
            got=", ".join(sorted(begun)),
            expected="one",
            hint="name the folder that fetch printed: raw=<root>/fetch/<fingerprint>",
        )
    folder = storage.join(uri, *revisions[0].split("/"))
    manifest = manifests.read_whole(folder)
    assert manifest is not None
    files = [file for file in manifest.files if file.task]
    return RawFolder(
        folder,
        {file.path: file.size for file in files},
        {file.path: file.sha256 for file in files},
        manifest.data["about"],
    )
