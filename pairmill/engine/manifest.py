"""``_MANIFEST.json``: what a finished stage folder holds, how it came about, and that nothing was lost.

The manifest is written last. A folder that has ``_STARTED.json`` and no manifest was begun by pairmill and not
finished; readers refuse it. A folder with neither was made by others and is read as it is
(:mod:`pairmill.engine.inputs`).
The format is described in docs/format.md.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pairmill import storage
from pairmill.digest import BLAKE3, digest_bytes, shown, split
from pairmill.engine.content import Content
from pairmill.errors import InputError, InternalError
from pairmill.log import event, progress

MANIFEST = "_MANIFEST.json"
STARTED = "_STARTED.json"
FORMAT = 2
_UNSEALED = 1
"""The format that had no digest of its own."""
_SEAL = b',\n "sha256": "%b"\n}\n'
_FINGERPRINT = re.compile("[0-9a-f]{16}")
_SEAL_BYTES = len(_SEAL % bytes(64))
# Files that are digested between two updates of progress, and the bytes from which progress is shown.
_VERIFIED = 32
_LONG = 1 << 30
# Made once: of tens of thousands of tasks, to make it would take longer than to use it.
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: object) -> bytes:
    """Compact JSON with sorted keys: equal values give equal bytes, so that they can be hashed and compared."""
    return _COMPACT.encode(value).encode()


def content_key(*parts: object) -> str:
    """Hexadecimal sha256 over JSON-like values."""
    return hashlib.sha256(canonical(list(parts))).hexdigest()


def fingerprint_from(*parts: object) -> str:
    """Name what follows from JSON-like values: the first 16 digits of their :func:`content_key`."""
    return content_key(*parts)[:16]


def seed_from(*parts: object, digits: int = 16) -> int:
    """Draw a number from JSON-like values: the first hexadecimal digits, at most 16, of their fingerprint."""
    return int(fingerprint_from(*parts)[:digits], 16)


def seal(data: bytes) -> bytes:
    """Add a last key to a JSON object: ``sha256``, the hexadecimal digest of all bytes before it."""
    body = data.rstrip().removesuffix(b"}").rstrip()
    return body + _SEAL % hashlib.sha256(body).hexdigest().encode()


def is_sealed(data: bytes) -> bool:
    """Return whether these are bytes as ``seal`` returned them."""
    body = data[:-_SEAL_BYTES]
    return data[-_SEAL_BYTES:] == _SEAL % hashlib.sha256(body).hexdigest().encode()


class File(NamedTuple):
    """One file of a folder or shard. ``path`` is relative to it; ``size`` is in bytes; ``digest`` says its algorithm.

    ``task`` names the data set of the file; files that are not data (rejects) have none.
    """

    path: str
    size: int
    digest: str
    task: str = ""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Parse what :meth:`to_json` returns. Raises KeyError or TypeError if it is something else."""
        rest = {**raw}
        blake3 = rest.pop("blake3", "")
        digest = BLAKE3 + blake3 if blake3 else rest.pop("sha256")
        return cls(digest=digest, **rest)

    def to_json(self) -> dict[str, Any]:
        """Return what manifests and records have of it: the key of the digest is its algorithm."""
        kind, digits = split(self.digest)
        return {"path": self.path, "size": self.size, kind: digits, "task": self.task}


@dataclass
class Ledger:
    """What became of every row: ``rows_in == rows_kept + sum(dropped)``.

    A kept row gives one or more rows (a problem can give a worked answer and a short one); ``rows_out`` counts those,
    and is the next stage's ``rows_in``. ``notes`` counts what happened to rows that were kept (truncated, an answer
    left out, …); ``measures`` are sums of other things than rows (tokens, bytes).
    """

    rows_in: int = 0
    rows_kept: int = 0
    rows_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    measures: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped rows."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def note(self, what: str, count: int = 1) -> None:
        """Count rows that were kept, with a note."""
        self.notes[what] = self.notes.get(what, 0) + count

    def add(self, other: Ledger) -> None:
        """Add another ledger to this one."""
        self.rows_in += other.rows_in
        self.rows_kept += other.rows_kept
        self.rows_out += other.rows_out
        for mine, theirs in ((self.dropped, other.dropped), (self.notes, other.notes), (self.measures, other.measures)):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count

    def reconcile(self, where: str) -> None:
        """Raise InternalError unless every row that came in is accounted for."""
        dropped = sum(self.dropped.values())
        if self.rows_in != self.rows_kept + dropped:
            raise InternalError(
                "the ledger does not reconcile: rows were lost or counted twice",
                where=where,
                got=f"{self.rows_in} in, {self.rows_kept} kept, {dropped} dropped",
                expected="in = kept + dropped",
                hint="this is a defect of pairmill, please report it",
            )

    def then(self, later: Ledger) -> Ledger:
        """Return the ledger of two rounds, where ``later`` reads the rows that this one wrote, one of each row kept."""
        total = Ledger.sum([self, later])
        total.rows_in, total.rows_kept = self.rows_in, self.rows_kept - sum(later.dropped.values())
        total.rows_out = self.rows_out - later.rows_in + later.rows_out
        return total

    def reconcile_rounds(self, rounds: Sequence[Ledger], where: str) -> None:
        """Raise InternalError unless this ledger of a stage accounts for every row of all its rounds.

        The first round that counts rows reads the stage's rows. A later round reads some of the remaining rows. Rows
        that it does not write must be among the dropped rows, or in a note.
        """
        self.reconcile(where)
        counting = [ledger for ledger in rounds if ledger.rows_in or ledger.rows_out] or [Ledger()]
        rows_out = counting[0].rows_out + sum(ledger.rows_out - ledger.rows_in for ledger in counting[1:])
        if (self.rows_in, self.rows_out) != (counting[0].rows_in, rows_out):
            raise InternalError(
                "the ledger does not reconcile with its rounds",
                where=where,
                got=f"{self.rows_in} rows in, {self.rows_out} rows out",
                expected=f"{counting[0].rows_in} rows in, {rows_out} rows out",
                hint="this is a defect of pairmill, please report it",
            )
        for reason, count in Ledger.sum(rounds).dropped.items():
            counted = self.dropped.get(reason, 0) + self.notes.get(reason, 0)
            if counted < count:
                raise InternalError(
                    "the ledger lacks rows that a round dropped",
                    where=where,
                    got=f"{counted} {reason}",
                    expected=f"{count} {reason}",
                    hint="this is a defect of pairmill, please report it",
                )

    @classmethod
    def sum(cls, ledgers: Iterable[Ledger]) -> Self:
        """Return the sum of several ledgers."""
        total = cls()
        for ledger in ledgers:
            total.add(ledger)
        return total


@dataclass(frozen=True)
class InputRef:
    """An input of a stage by content: the manifest fingerprint of a pairmill folder, else a digest of its files.

    Args:
        role: the option that names it, or what it is.
        fingerprint: of its content.
        stage: that finished the folder, for the links of reports; empty = not known. No identity follows from it.
    """

    role: str
    fingerprint: str
    stage: str = field(default="", compare=False)

    @classmethod
    def from_content(cls, role: str, *content: object) -> Self:
        """Identify an input by JSON-like values that it follows from."""
        return cls(role, fingerprint_from(*content))

    def identify(self) -> object:
        """Return what a shard that follows from the input is keyed by."""
        return [self.role, self.fingerprint]


@dataclass
class Manifest:
    """The content of ``_MANIFEST.json``. No time, host or path of the machine is in it: equal work, equal bytes."""

    stage: str
    version: int
    fingerprint: str
    options: dict[str, Any]
    inputs: list[InputRef]
    ledger: Ledger
    files: list[File] = field(repr=False)
    shards: dict[str, Ledger] = field(default_factory=dict, repr=False)
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    vanished: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The table of :mod:`pairmill.engine.vanished`."""
    format: int = FORMAT
    """Of one that an older pairmill wrote: 1, which has no digest of its own."""

    def tasks(self) -> dict[str, list[File]]:
        """Return the data files by task name, in order."""
        result: dict[str, list[File]] = {}
        for file in self.files:
            if file.task:
                result.setdefault(file.task, []).append(file)
        return result

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the figures, and the inputs."""
        model = importlib.import_module("pairmill.report.model")  # which no node needs
        counts = {"Rows in": self.ledger.rows_in, "Rows kept": self.ledger.rows_kept, "Rows out": self.ledger.rows_out}
        figures = {**counts, "Files": len(self.files), "Version": self.version, "Fingerprint": self.fingerprint}
        tables = [
            model.Table("Options", ("Option", "Value"), [(name, str(value)) for name, value in self.options.items()]),
            model.Table(
                "Inputs",
                ("Role", "Stage", "Fingerprint"),
                [(item.role, item.stage, item.fingerprint) for item in self.inputs],
            ),
            model.Table("Dropped", ("Reason", "Rows"), list(self.ledger.dropped.items())),
        ]
        page: str = model.Report(self.stage, figures, tables)._repr_html_()
        return page

    def dump(self) -> bytes:
        """Return the bytes of the file."""
        inputs = [
            {name: value for name, value in vars(item).items() if value or name != "stage"} for item in self.inputs
        ]
        raw = {**vars(self), "inputs": inputs, "files": [file.to_json() for file in self.files], "format": FORMAT}
        # A line for each value, without indentation, which is encoded in Python and takes ten times as long.
        lines = json.dumps(raw, default=vars, sort_keys=True, separators=(",\n", ": "), ensure_ascii=False)
        return seal(lines.encode())

    def finish(self, folder: str) -> Manifest:
        """Write the manifest, which finishes the folder: nothing is written to it after this.

        Returns the stored manifest: of several writers the first wins.
        """
        uri = storage.join(folder, MANIFEST)
        ours = self.dump()
        stored = storage.store_for(folder).commit(uri, ours)
        return self if stored == ours else Manifest.load(stored, uri)

    @classmethod
    def load(cls, data: bytes, where: str) -> Self:
        """Parse; raises InputError naming ``where`` if it was changed, or this version cannot read it."""
        try:
            raw = json.loads(data)
            if raw["format"] not in {FORMAT, _UNSEALED}:
                raise InputError("unknown manifest format", where=where, got=str(raw["format"]), expected=str(FORMAT))
            if not is_sealed(data) and ("sha256" in raw or raw["format"] == FORMAT):
                raise InputError(
                    "was changed after it was written",
                    where=where,
                    got="bytes with another digest",
                    expected="those of its key sha256",
                    hint="run the stage that made it again",
                )
            return cls(
                stage=raw["stage"],
                version=raw["version"],
                fingerprint=raw["fingerprint"],
                options=raw["options"],
                inputs=[InputRef(**item) for item in raw["inputs"]],
                ledger=Ledger(**raw["ledger"]),
                files=[File.from_json(item) for item in raw["files"]],
                shards={name: Ledger(**item) for name, item in raw["shards"].items()},
                data=raw["data"],
                vanished=raw.get("vanished", []),
                format=raw["format"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                "not a pairmill manifest", where=where, got=repr(error), hint="run the stage that made it again"
            ) from error


def is_fingerprint(text: str) -> bool:
    """Return whether this is the fingerprint of a result: 16 hexadecimal digits."""
    return _FINGERPRINT.fullmatch(text) is not None


def exists(folder: str) -> bool:
    """Return whether a folder has a manifest."""
    return storage.store_for(folder).exists(storage.join(folder, MANIFEST))


def read(folder: str, *, refuse_begun: bool = True) -> Manifest | None:
    """Read the manifest of a finished pairmill folder; return None for a folder that others made.

    Args:
        folder: URI.
        refuse_begun: False: return None also for a folder that is begun and not finished.

    Raises:
        InputError: pairmill began this folder and has not finished it; or the manifest is damaged.
    """
    store = storage.store_for(folder)
    uri = storage.join(folder, MANIFEST)
    if store.exists(uri):
        return Manifest.load(store.read(uri), uri)
    if refuse_begun:
        refuse_unfinished(folder)
    return None


def version_of(folder: str) -> int | None:
    """Return the version of the stage that finished a folder; None without a manifest that can be read."""
    store, uri = storage.store_for(folder), storage.join(folder, MANIFEST)
    try:
        return Manifest.load(store.read(uri), uri).version if store.exists(uri) else None
    except InputError:
        return None


def begin(folder: str, stage: str, fingerprint: str) -> None:
    """Mark a folder as begun: until its manifest is there, readers refuse it."""
    started = {"stage": stage, "fingerprint": fingerprint, "format": FORMAT}
    storage.store_for(folder).write(storage.join(folder, STARTED), canonical(started))


def refuse_unfinished(folder: str) -> None:
    """Raise InputError if pairmill began this folder and has not finished it."""
    store = storage.store_for(folder)
    if store.exists(storage.join(folder, STARTED)) and not store.exists(storage.join(folder, MANIFEST)):
        raise InputError(
            "pairmill began this folder and has not finished it",
            where=folder,
            hint="run the stage that makes it again with the same options; it resumes",
        )


def read_file(folder: str, manifest: Manifest | None, path: str) -> bytes:
    """Read a file of a folder, and compare it with the manifest if there is one.

    Raises:
        Changed: the bytes differ from the manifest.
    """
    uri = storage.join(folder, *path.split("/"))
    data = storage.store_for(uri).read(uri)
    for file in manifest.files if manifest is not None else ():
        if file.path == path:
            Content(file.digest, promised=True).require(uri, digest_bytes(data, file.digest))
    return data


_AGAIN = "run the stage that made it again; where Kubeflow took this URI from its cache, with the cache off"


def read_intact(folder: str, *, look: bool = True) -> Manifest | None:
    """Read a manifest; raise InputError if files of it, or the whole folder, are missing or changed.

    Args:
        folder: URI.
        look: list the files; False: they are compared when they are opened.
    """
    manifest = read(folder)
    if manifest is None and is_fingerprint(storage.name_of(folder)) and not storage.store_for(folder).list(folder):
        raise InputError(
            "the result of the stage is missing", where=folder, expected=f"a folder with {MANIFEST}", hint=_AGAIN
        )
    wrong = find_damage(folder, manifest.files) if manifest is not None and look else []
    if wrong:
        raise InputError(
            f"{len(wrong)} files that its manifest names are missing or changed",
            where=folder,
            got=wrong[0],
            hint=_AGAIN,
        )
    return manifest


class FinishedFolder(NamedTuple):
    """A finished folder: its normalised URI, and its manifest."""

    uri: str
    manifest: Manifest


def read_result(given: str, option: str, stage: str) -> FinishedFolder:
    """Return a finished folder of ``stage``, as :func:`read_intact` reads it.

    Raises:
        InputError: it has no manifest, is of another stage, or is damaged.
    """
    uri = storage.normalise(given, option)
    manifest = read_intact(uri)
    if manifest is None or manifest.stage != stage:
        got = "no manifest" if manifest is None else f"a result of {manifest.stage}"
        raise InputError(f"not a result of {stage}", where=f"{option}={uri}", got=got, expected="its finished folder")
    return FinishedFolder(uri, manifest)


def load_or_discard(
    folder: str, is_wanted: Callable[[Manifest], bool] = lambda _: True, *, verify: bool = False, discard: bool = True
) -> Manifest | None:
    """Return the manifest of a finished folder; None without one, or with a warning if files are missing or changed.

    Args:
        folder: URI.
        is_wanted: whether this manifest is wanted.
        verify: see :func:`find_damage`.
        discard: delete a manifest that is damaged or not wanted, for a run that then makes the folder again:
            :meth:`Manifest.finish` never overwrites one.
    """
    store, uri = storage.store_for(folder), storage.join(folder, MANIFEST)
    if not store.exists(uri):
        return None
    manifest = None
    try:
        manifest = Manifest.load(store.read(uri), uri)
        wrong = find_damage(folder, manifest.files, verify=verify)
    except InputError as error:
        wrong = [str(error)]
    if wrong:
        event(
            f"{folder} was finished, but {len(wrong)} of its files are missing or changed (first: {wrong[0]}); "
            "making them again",
            level=logging.WARNING,
            uri=folder,
        )
    elif manifest is not None and is_wanted(manifest):
        return manifest
    if discard:
        store.delete(uri)
    return None


def digest_files(folder: str, paths: Sequence[str]) -> str:
    """Identify a folder that has no manifest by paths and digests of files."""
    digested = storage.store_for(folder).digested([storage.join(folder, *path.split("/")) for path in paths])
    return content_key([[path, item.digest] for path, item in zip(paths, digested, strict=True)])


def find_damage(folder: str, files: Sequence[File], *, verify: bool = False) -> list[str]:
    """List the files that are missing or have another size, each as ``path: what is wrong``.

    ``verify``: also read the other files, and list those with another digest.
    """
    store = storage.store_for(folder)
    sizes = {entry.path: entry.size for entry in store.list(folder)}
    wrong, same_size = [], []
    for file in files:
        size = sizes.get(file.path)
        if size != file.size:
            # A listing may be older than the last write; an object asked for by name never is.
            uri = storage.join(folder, file.path)
            size = store.size(uri) if store.exists(uri) else None
        if size is None:
            wrong.append(f"{file.path}: missing")
        elif size != file.size:
            wrong.append(f"{file.path}: {size} bytes, expected {file.size}")
        else:
            same_size.append(file)
    return [*wrong, *find_changed(folder, same_size)] if verify else wrong


def find_changed(folder: str, files: Sequence[File]) -> Iterator[str]:
    """Read these files; list those with another digest, each as ``path: what is wrong``."""
    store = storage.store_for(folder)
    long = sum(file.size for file in files) > _LONG
    with progress(f"verify {storage.name_of(folder)}", len(files), "files") if long else nullcontext() as told:
        for start in range(0, len(files), _VERIFIED):
            some = files[start : start + _VERIFIED]
            uris = [storage.join(folder, *file.path.split("/")) for file in some]
            digests = store.digests(uris, [file.digest for file in some])
            for file, digest in zip(some, digests, strict=True):
                if told is not None:
                    told.advance(1, 0, file.size)
                if digest != file.digest:
                    yield f"{file.path}: {shown(digest)}, expected {shown(file.digest)}"
