"""What the manifests of a line say of the sources of a folder: origin, revision, licence, language."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import read_head
from pairmill.engine.manifest import MANIFEST
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats.results.raw import CleanResult, RawResult
from pairmill.formats.results.tokens import TokenizeResult

ORDER: Final = ("clean", "take_out", "curate", "select", "tokenize", "sample")
"""The stages that rows pass through, by the names of their folders below root. What mix planned, the sample says."""
_TAKES_OUT: Final = ORDER[1]
_RAW: Final = "raw"
_DEPTH: Final = 8
"""How far data of the Hub can be below the folder that fetch finished: ``files/`` and the repository's own path."""
Told = Mapping[str, Any]


def stages_before(stage: str) -> Sequence[str]:
    """Return the stages of :data:`ORDER` whose results a stage may read; rows are taken out of those of any."""
    return [name for name in ORDER[: ORDER.index("tokenize" if stage == _TAKES_OUT else stage)] if name != stage]


class Facts:
    """Facts of sources, by the folder that a task is read from. Manifests are read once."""

    def __init__(self) -> None:
        self._folder_of = cache(_finished_above)
        self._sources_of = cache(_sources_of)
        self._row_files_of = cache(_row_files_of)

    def about(self, folder: str, task: str) -> Told:
        """Return what is known of the source of a task; empty if nothing is.

        Args:
            folder: URI that the task, or its source, is read from; or a folder below that.
            task: its name, or that of its source.
        """
        home = self._folder_of(folder)
        sources = self._sources_of(home) if home else {}
        return sources.get(source_of(task)) or sources.get("", {})

    def contents(self, folder: str, task: str) -> tuple[str, ...]:
        """Return the digest of the row file that a task of a tokenized folder was made of; nothing if not known."""
        home = self._folder_of(folder)
        row_files = self._row_files_of(home) if home else {}
        return (row_files[task],) if task in row_files else ()

    def home(self, place: str) -> str:
        """Return the finished folder that a place is, or is in; empty if there is none."""
        return self._folder_of(place)

    def of_tasks(self, tasks: Iterable[tuple[str, str]]) -> dict[str, Told]:
        """Return what is known by source, of tasks and the folders that they are read from."""
        known = {source_of(task): self.about(folder, task) for folder, task in tasks}
        return {name: about for name, about in sorted(known.items()) if about}


def _finished_above(folder: str) -> str:
    """Return the finished folder that this is, or is in; empty if there is none."""
    for _ in range(_DEPTH):
        if storage.store_for(folder).exists(storage.join(folder, MANIFEST)):
            return folder
        if storage.is_top(folder):
            break
        folder = storage.parent_of(folder)
    return ""


def _sources_of(home: str) -> dict[str, Told]:
    """Return what is known by source; of data of the Hub under no name."""
    result: dict[str, Told] = {}
    seen, left, root = set[str](), [home], storage.parent_of(storage.parent_of(home))
    while left:
        folder = left.pop()
        try:
            head = read_head(folder)
            stage, manifest = head.stage, manifests.read(folder) if head.stage in ("clean", _RAW) else None
        except InputError:  # the program that reads the folder says what is wrong with it
            continue
        if manifest is not None and stage == _RAW:
            return {"": RawResult.from_manifest(manifest).about}
        if manifest is not None:
            for name, item in CleanResult.from_manifest(manifest).sources.items():
                result[name] = {**item["about"], "rows_in": item["ledger"]["rows_in"]}
        for ref in head.inputs if stage in ORDER else ():
            if ref.fingerprint not in seen and manifests.is_fingerprint(ref.fingerprint):
                seen.add(ref.fingerprint)
                places = (storage.join(root, name, ref.fingerprint) for name in stages_before(stage))
                left += [place for place in places if manifests.exists(place)]
    return result


def _row_files_of(home: str) -> Mapping[str, str]:
    manifest = manifests.read(home)
    made = TokenizeResult.find(manifest) if manifest is not None and manifest.stage == "tokenize" else None
    return made.row_files if made is not None else {}
