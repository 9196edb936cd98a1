"""What is published: the files of a result and those that describe it, and its data sets with their facts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from pairmill import storage
from pairmill.digest import Digest
from pairmill.engine.inputs import HELD_OUT, use_of
from pairmill.engine.manifest import MANIFEST, File, Manifest, fingerprint_from
from pairmill.engine.source_names import source_of
from pairmill.errors import Changed, InputError, UsageError
from pairmill.formats import rows
from pairmill.formats.opened import ROWS, Kind, OpenResult
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.source_facts import Facts
from pairmill.formats.training_results import ExportResult
from pairmill.storage.base import each

README: Final = "README.md"
KINDS: Final[Mapping[Kind, str]] = {
    "rows": "rows",
    "tokenized": "token arrays",
    "plan": "a plan of epochs",
    "sampled": "epochs as arrays",
    "exported": "rows for trainers",
}
"""Kinds of results that are published, in words."""
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Item:
    """A file to publish: an object of the result, or bytes that describe it.

    Args:
        path: below the top of what is published.
        size: bytes.
        uri: of the object; empty = ``data`` is the file.
        data: bytes.
        promised: digest of the object by the manifest.
    """

    path: str
    size: int
    uri: str = ""
    data: bytes = b""
    promised: str = ""

    @classmethod
    def from_text(cls, path: str, text: str) -> Item:
        """Make a file of a text."""
        data = text.encode()
        return cls(path, len(data), data=data)


@dataclass(frozen=True)
class Sums:
    """Digests of a file: sha256 and git's (sha1 over a header and the bytes), hexadecimal, and ours; its lines."""

    sha256: str
    git: str
    digest: str
    lines: int


def sums_of(item: Item, stop: Event | None = None) -> Sums:
    """Read a file once, and return its digests.

    Raises:
        Changed: it is not what the manifest promises.
    """
    sha256, ours, lines = hashlib.sha256(), Digest(like=item.promised), 0
    git = hashlib.sha1(b"blob %d\0" % item.size, usedforsecurity=False)

    def take(data: bytes) -> int:
        for digest in (sha256, git, ours):
            digest.update(data)
        return data.count(b"\n")

    if item.uri:
        with storage.store_for(item.uri).open(item.uri) as file:
            while not (stop and stop.is_set()) and (data := file.read(_BLOCK)):
                lines += take(data)
    else:
        lines = take(item.data)
    if item.promised and ours.text() != item.promised and not (stop and stop.is_set()):
        hint = "pairmill verify says what was changed; run its stage again with verify=true"
        raise Changed("is not what the manifest promises", where=item.uri, hint=hint)
    return Sums(sha256.hexdigest(), git.hexdigest(), ours.text(), lines)


def all_sums(items: Collection[Item]) -> dict[str, Sums]:
    """Return the digests of files by path; several are read at once."""
    return dict(zip((item.path for item in items), each(sums_of, list(items), None), strict=True))


@dataclass(frozen=True)
class DataSet:
    """A source of the result.

    Args:
        facts: origin, revision, licence, language and citation, as far as manifests say them.
        rows, tokens: of it; of a sample those of all epochs.
        paths: of its files that have rows.
    """

    name: str
    facts: Mapping[str, Any]
    rows: int
    tokens: int
    paths: tuple[str, ...] = ()

    @property
    def licence(self) -> str:
        """Return its licence as its card or description states it; empty = not stated."""
        return str(self.facts.get("licence", ""))


@dataclass(frozen=True)
class Tree:
    """A result that is published.

    Attributes:
        manifest: of what is published: that of the result, unless files of it stay away.
        items: the files of the result.
        sums: their digests by path.
        sets: its data sets, largest first.
    """

    opened: OpenResult
    manifest: Manifest
    items: tuple[Item, ...]
    sums: Mapping[str, Sums]
    sets: tuple[DataSet, ...]

    @property
    def unit(self) -> str:
        """Return what its data sets are measured in."""
        return "tokens" if any(item.tokens for item in self.sets) else "rows"

    def total(self, what: str) -> int:
        """Return the rows, or the tokens, of all data sets."""
        return sum(getattr(item, what) for item in self.sets)


def gather(opened: OpenResult, *, with_held_out: bool) -> Tree:
    """Gather the files of a result, read each once, and find what its sources are.

    Raises:
        UsageError: such a result is not published.
        InputError: it has no manifest, or was changed.
    """
    manifest = opened.manifest
    if opened.kind not in KINDS:
        hint = "pairmill train export writes a net as a folder for hf upload" if opened.kind == "net" else ""
        raise UsageError("not published", where="result", got=opened.kind, expected=", ".join(KINDS), hint=hint)
    if manifest is None or opened.stage == "union":
        what = "a union names folders of other places" if manifest is not None else "no manifest says what is in it"
        hint = f"pairmill export {opened.uri} to=datasets output=…, and publish that"
        raise InputError(f"cannot be published: {what}", where=opened.uri, hint=hint)
    files = [file for file in manifest.files if file.path != README]
    if not with_held_out:
        files = [file for file in files if not is_held_out(file.path)]
    items = tuple(_item_of(opened.uri, file) for file in files)
    sums = all_sums(items)
    return Tree(opened, _as_published(manifest, files), items, sums, _sets(opened, manifest, sums))


def is_held_out(path: str) -> bool:
    """Tell whether a file has held-out rows: of a stage's result, or of an export."""
    return path.startswith(HELD_OUT) or "held_out" in path.split("/")[:-1]


def _item_of(folder: str, file: File) -> Item:
    return Item(file.path, file.size, storage.join(folder, *file.path.split("/")), promised=file.digest)


def _as_published(manifest: Manifest, files: list[File]) -> Manifest:
    """Return the manifest of these files: the same result, unless data of it is missing; a README is not data."""
    gone = {file.path for file in manifest.files} - {file.path for file in files}
    if not gone - {README}:
        return replace(manifest, files=files)
    fingerprint = fingerprint_from("published", manifest.fingerprint, [[file.path, file.digest] for file in files])
    data = {name: value for name, value in manifest.data.items() if name != "held_out"}
    return replace(manifest, files=files, fingerprint=fingerprint, data=data)


def _sets(opened: OpenResult, manifest: Manifest, sums: Mapping[str, Sums]) -> tuple[DataSet, ...]:
    counts: dict[str, list[int]] = {}
    paths: dict[str, list[str]] = {}
    facts: Mapping[str, Mapping[str, Any]]

    def count(source: str, rows_: int, tokens: int) -> None:
        have = counts.setdefault(source, [0, 0])
        have[0], have[1] = have[0] + rows_, have[1] + tokens

    if opened.kind == "rows":
        mine = [file for file in manifest.files if file.task and file.path.endswith(ROWS) and file.path in sums]
        mine = [file for file in mine if not is_held_out(file.path)]
        for file in mine:
            uri = storage.join(opened.uri, *file.path.split("/"))
            is_table = file.path.endswith(".parquet")
            count(source_of(file.task), rows.count(uri) if is_table else sums[file.path].lines, 0)
            if not use_of(file.path):
                paths.setdefault(source_of(file.task), []).append(file.path)
        facts = Facts().of_tasks((opened.uri, file.task) for file in mine)
    elif opened.kind == "tokenized":
        tasks = [task for task in opened.tokenized.tasks if not task.name.startswith(HELD_OUT)]
        for task in tasks:
            count(source_of(task.name), *task.counts)
        facts = Facts().of_tasks((task.uri, task.name) for task in tasks)
    elif opened.kind == "exported":
        exported = ExportResult.from_manifest(manifest)
        facts = exported.facts
        for name, values in exported.sources.items():
            count(name, values["rows"], values["tokens"])
    else:
        result = SampleResult.from_manifest(manifest)
        facts = result.facts
        for task, stats in result.stats.items():
            count(source_of(task), stats["cov_rows"], stats["cov_itoks"] + stats["cov_rtoks"])
    made = [
        DataSet(name, facts.get(name, {}), values[0], values[1], tuple(paths.get(name, ())))
        for name, values in counts.items()
    ]
    return tuple(sorted(made, key=lambda item: (-item.tokens, -item.rows, item.name)))


def manifest_item(tree: Tree) -> Item:
    """Return the manifest as a file."""
    data = tree.manifest.dump()
    return Item(MANIFEST, len(data), data=data)
