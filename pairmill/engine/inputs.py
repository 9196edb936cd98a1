"""Finds the row files that a stage reads, in finished pairmill folders and in any others.

A finished folder names its files in its manifest. In any other folder every regular file with a wanted extension is
taken, as in the reference: hidden files too; of links ``links=`` decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from pairmill import storage
from pairmill.address import refuse
from pairmill.engine import chat_templates, conditions, policing
from pairmill.engine import manifest as manifests
from pairmill.engine.chat_templates import Templates
from pairmill.engine.conditions import Tag
from pairmill.engine.content import Content
from pairmill.engine.links import list_folder
from pairmill.engine.manifest import File, InputRef
from pairmill.engine.results import HeldOutRows
from pairmill.errors import InputError

HELD_OUT = "holdout/"
"""How the tasks of held-out rows begin, and the paths of their files in a finished folder."""
PROMPTS, PAIRS = USES = ("prompts", "pairs")
"""Folders of files beside the rows of a finished folder (:mod:`pairmill.formats.uses`); they are read by name alone."""

TRAINED_ON = ("rows", "tokens")
"""The options whose files end up in what is trained on."""

_Brought = tuple[dict[str, Tag], Templates]
LONGEST_TASK = 255 - len(".parquet")
"""Bytes of a task's name: file systems hold names of 255, and files of a task are called ``<task>.parquet``."""

# How far a finished folder can be above one of its files: holdout/data_clustered/<set>/<file>.
DEPTH = 4


@dataclass(frozen=True)
class InputFile:
    """One file to read.

    Args:
        task: the data set it is: its path below the input folder with ``/`` (and ``\\``) replaced by ``__``.
        size: bytes.
        digest: of its bytes, with its algorithm; from the manifest where there is one, else computed.
        stamp: see :class:`pairmill.engine.content.Content`.
        promised: whether the digest is from a manifest and has not been compared.
    """

    uri: str
    task: str
    size: int
    digest: str
    stamp: str = ""
    promised: bool = False

    def identify(self) -> object:
        """Return what a shard that reads the file is keyed by: not its place."""
        return [self.task, self.kind, self.digest]

    @property
    def kind(self) -> str:
        """The extension, which decides how the file is read."""
        return self.uri.rsplit(".", 1)[-1]

    @property
    def content(self) -> Content:
        """The expected bytes."""
        return Content(self.digest, self.stamp, self.promised)

    @property
    def random_access(self) -> dict[str, Content]:
        """The file itself if it is read with random access, so that its digest cannot be compared on the way."""
        return {self.uri: self.content} if self.kind == "parquet" else {}


@dataclass(frozen=True)
class Inputs:
    """The files of one or more input folders, and the folders' identity by content."""

    files: list[InputFile]
    refs: list[InputRef]
    rows: int | None
    """Rows according to the manifests; None if a folder has no manifest."""
    conditions: dict[str, Tag] = field(default_factory=dict)
    """The tags of one's own that the rows have, according to the manifests, by name."""
    templates: Templates = field(default_factory=dict)
    """The chat templates of rendered rows, according to the manifests, by task."""

    def passed_on(self) -> dict[str, Any]:
        """Return what the manifest's data of a stage that keeps rows as they are says for the stages after it."""
        return {**conditions.to_data(self.conditions), **chat_templates.to_data(self.templates)}


def use_of(path: str) -> str:
    """Return the folder of USES that a file of a finished folder is in, by its path below it; empty = in none."""
    use, below, _ = path.partition("/")
    return use if below and use in USES else ""


def task_name(path: str) -> str:
    """Task name of a file's path below its input folder."""
    return path.replace("/", "__").replace("\\", "__")


def discover(
    uris: Sequence[str],
    extensions: Iterable[str],
    option: str,
    *,
    verify: bool = False,
    held_out: bool = False,
    with_removed: bool = False,
) -> Inputs:
    """Find the row files of each of ``uris`` (a folder, a folder within a finished folder, or a single file).

    Args:
        uris: as the user gave them.
        extensions: of row files.
        option: its name, for messages.
        verify: digest the files of finished folders now, and not only when they are read.
        held_out: find the files of held-out rows too, whose tasks begin with HELD_OUT.
        with_removed: find files with rows that a policy takes out too.

    Raises:
        InputError: nothing found, an unfinished or damaged folder, or two files with the same task name.
    """
    endings = {f".{extension}" for extension in extensions}
    files: list[InputFile] = []
    refs: list[InputRef] = []
    rows: int | None = 0
    own: dict[str, dict[str, Tag]] = {}
    templates: list[Templates] = []
    for given in uris:
        refuse(given, option)
        uri = storage.normalise(given, option)
        result, ref, count, (own[uri], rendered) = _discover_one(uri, endings, option, verify, held_out)
        if not result:
            raise InputError(
                f"no {' or '.join(sorted(endings))} file found", where=f"{option}={uri}", hint="check the path"
            )
        left_out = _policed(result, uri, option, with_removed)
        if left_out:
            # The manifest counts the rows of all files. What is left out is an input of its own.
            result, count = [file for file in result if file.task not in left_out], None
        files += result
        refs.append(ref)
        templates.append(rendered)
        rows = None if rows is None or count is None else rows + count
    if uris and not files:
        policing.refuse_nothing(f"{option}={','.join(uris)}")
    _refuse_long_names(files, option)
    _refuse_collisions(files, option)
    return Inputs(files, refs, rows, conditions.joined(own, option), chat_templates.joined(templates))


def _policed(files: Sequence[InputFile], uri: str, option: str, with_removed: bool) -> frozenset[str]:
    """Return the tasks that a policy leaves out. What is only compared with, as target texts are, it lets in."""
    if option not in TRAINED_ON:
        return frozenset()
    subjects = [policing.Subject.from_task(file.task, [file.digest], uri) for file in files]
    left_out = policing.leave_out(subjects, f"{option}={uri}")
    for subject in () if with_removed else subjects:
        rows = policing.removed_rows(subject) if subject.name not in left_out else ()
        if rows:
            raise InputError(
                "the policy takes out single rows of this file",
                where=f"{option}={uri}: {subject.name}",
                got=f"{len(rows):,} rows, {subject.name}:{rows[0]} first",
                expected="rows without them",
                hint="run clean again with policy=, which does again the shards with these records alone, and give "
                "what it prints",
            )
    return left_out


def _discover_one(
    uri: str, endings: set[str], role: str, verify: bool, held_out: bool
) -> tuple[list[InputFile], InputRef, int | None, _Brought]:
    store = storage.store_for(uri)
    if store.exists(uri):
        if PurePosixPath(storage.name_of(uri)).suffix not in endings:
            return [], InputRef(role, ""), None, ({}, {})
        above, data = _files_above(uri)
        promises = {each: file.digest for each, file in above.items()}
        (entry,) = _digested([(uri, storage.name_of(uri))], promises)
        brought = _brought(data, [above[uri].task] if uri in above else [])
        return [entry], _ref(role, [entry.task, entry.digest], brought), None, brought
    manifest = manifests.read_intact(uri)
    if manifest is not None:
        chosen = [
            file
            for file in manifest.files
            if file.task
            and PurePosixPath(file.path).suffix in endings
            and (held_out or not file.task.startswith(HELD_OUT))
        ]
        targets = [storage.join(uri, file.path) for file in chosen]
        promises = {target: file.digest for target, file in zip(targets, chosen, strict=True)}
        if verify:
            files = _digested(list(zip(targets, (file.task for file in chosen), strict=True)), promises)
        else:
            files = [
                InputFile(target, file.task, file.size, file.digest, promised=True)
                for target, file in zip(targets, chosen, strict=True)
            ]
            if any(file.random_access for file in files):
                stamps = {storage.join(uri, entry.path): entry.stamp for entry in store.list(uri)}
                files = [
                    replace(file, stamp=stamps.get(file.uri, "")) if file.random_access else file for file in files
                ]
        rows = manifest.ledger.rows_out + (HeldOutRows.count(manifest) if held_out else 0)
        ref = InputRef(role, manifest.fingerprint, manifest.stage)
        return files, ref, rows, _brought(manifest.data, [each.task for each in chosen])
    above, data = _files_above(uri)
    promises = {each: file.digest for each, file in above.items()}
    # What lies beside the rows of a finished folder, as attributes do, has no task; prompts and pairs are read by name.
    aside = {each for each, file in above.items() if not file.task and not use_of(file.path)}
    entries = list_folder(uri, lambda link: link.endswith("/") or PurePosixPath(link).suffix in endings)
    listed = [item.path for item in entries if PurePosixPath(item.path).suffix in endings]
    paths = [path for path in listed if storage.join(uri, path) not in aside]
    files = _digested([(storage.join(uri, path), task_name(path)) for path in paths], promises)
    brought = _brought(data, [above[file.uri].task for file in files if file.uri in above])
    return files, _ref(role, [[file.task, file.digest] for file in files], brought), None, brought


def _ref(role: str, content: list[Any], brought: _Brought) -> InputRef:
    """Identify files that are read without their manifest, which has said something of them all the same."""
    data = {**conditions.to_data(brought[0]), **chat_templates.to_data(brought[1])}
    return InputRef.from_content(role, [*content, data] if data else content)


def _brought(data: Mapping[str, Any], tasks: Iterable[str]) -> _Brought:
    """Return what a folder's manifest says of its rows; of chat templates if files of their tasks are read."""
    return conditions.of_data(data), chat_templates.of_data(data, {task.removeprefix(HELD_OUT) for task in tasks})


def _digested(files: Sequence[tuple[str, str]], promises: Mapping[str, str]) -> list[InputFile]:
    """Digest files (URI, task) now. Raises Changed if one differs from its promised digest."""
    result = []
    uris = [uri for uri, _ in files]
    digests = storage.store_for(uris[0]).digested(uris, [promises.get(uri, "") for uri in uris]) if files else []
    for (uri, task), item in zip(files, digests, strict=True):
        if uri in promises:
            Content(promises[uri], promised=True).require(uri, item.digest)
        result.append(InputFile(uri, task, item.size, item.digest, item.stamp))
    return result


def _files_above(uri: str) -> tuple[dict[str, File], Mapping[str, Any]]:
    """Return the files, by URI, of the finished folder that this URI is in, and its manifest's data; empty without one.

    Raises:
        InputError: the URI is within a folder that is not finished.
    """
    folder = uri
    for _ in range(DEPTH):
        folder = storage.parent_of(folder)
        if storage.is_top(folder):
            break
        manifest = manifests.read(folder)
        if manifest is not None:
            files = {storage.join(folder, file.path): file for file in manifest.files}
            return files, manifest.data
    return {}, {}


def _refuse_long_names(files: Sequence[InputFile], option: str) -> None:
    for file in files:
        longest = max(file.task.split("/"), key=lambda name: len(os.fsencode(name)))
        size = len(os.fsencode(longest))
        if size > LONGEST_TASK:
            raise InputError(
                f"the task name {file.task!r} is too long for files",
                where=f"{option}: {file.uri}",
                got=f"{size} bytes",
                expected=f"at most {LONGEST_TASK}",
                hint="rename the file, or the folders above it, which are part of the name",
            )


def _refuse_collisions(files: Sequence[InputFile], option: str) -> None:
    seen: dict[str, str] = {}
    for file in files:
        other = seen.get(file.task)
        seen[file.task] = file.uri
        if other == file.uri:
            raise InputError("given twice", where=option, got=file.uri, hint="name it once")
        if other is not None:
            raise InputError(
                f"two files give the task name {file.task!r}",
                where=option,
                got=f"{other} and {file.uri}",
                hint="rename one of them, or give the folder above both",
            )
