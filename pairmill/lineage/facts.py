"""What the manifests of a line say of the sources of a folder: origin, revision, licence, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats.results import CleanResult, RawResult, TokenizeResult
from pairmill.lineage.steps import ORDER, Step, above

_RAW: Final = "raw"
_DEPTH: Final = 8
"""How far data of the Hub can be below the folder that fetch finished: ``files/`` and the repository's own path."""


@dataclass(frozen=True)
class _Folder:
    """What is known of a folder: of single sources, of all that is in it, and the row files that its tasks are of."""

    by_source: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    row_files: Mapping[str, str] = field(default_factory=dict)


class Facts:
    """Facts of sources, by the folder that a task is read from. Manifests are read once."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    def about(self, folder: str, task: str) -> Mapping[str, Any]:
        """Return what is known of the source of a task; empty if nothing is.

        Args:
            folder: URI that the task, or its source, is read from; or a folder below that.
            task: its name, or that of its source.
        """
        known = self._known(folder)
        return known.by_source.get(source_of(task)) or known.whole

    def contents(self, folder: str, task: str) -> tuple[str, ...]:
        """Return the digest of the row file that a task of a tokenized folder was made of; nothing if not known."""
        row_files = self._known(folder).row_files
        return (row_files[task],) if task in row_files else ()

    def _known(self, folder: str) -> _Folder:
        if folder not in self._folders:
            self._folders[folder] = _read(folder)
        return self._folders[folder]


def _read(folder: str) -> _Folder:
    uri = folder
    for _ in range(_DEPTH):
        try:
            manifest = manifests.read(uri, refuse_begun=False)
        except InputError:  # whoever reads the folder itself says what is wrong with it
            return _Folder()
        if manifest is not None:
            return _of_manifest(uri, manifest)
        if storage.is_top(uri):
            break
        uri = storage.parent_of(uri)
    return _Folder()


def _of_manifest(uri: str, manifest: Manifest) -> _Folder:
    if manifest.stage == _RAW:
        return _Folder(whole=RawResult.from_manifest(manifest).about)
    if manifest.stage not in ORDER:
        return _Folder()
    sources: dict[str, Mapping[str, Any]] = {}
    root = storage.parent_of(storage.parent_of(uri))
    for step in above(root, Step(manifest.stage, manifest)):
        if step.stage == "clean":
            for name, item in CleanResult.from_manifest(step.manifest).sources.items():
                sources[name] = {**item["about"], "rows_in": item["ledger"]["rows_in"]}
    made = TokenizeResult.find(manifest) if manifest.stage == "tokenize" else None
    return _Folder(sources, row_files=made.row_files if made is not None else {})
