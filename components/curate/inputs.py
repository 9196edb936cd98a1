"""The row files in rank order, cut into slices."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from components.curate.settings import Settings
from pairmill import storage
from pairmill.engine import inputs
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT, InputFile, Inputs
from pairmill.errors import InputError
from pairmill.formats import attributes, rows
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.formats.source_names import source_of
from pairmill.log import event

# A slice is enough work to be worth a shard, and little enough that sixteen cores share a gigabyte.
SLICING = Slicing(64 << 20, open_from=(16 << 20) + 1, cut_from=128 << 20)


@dataclass(frozen=True)
class Slice:
    """A slice of a row file.

    Args:
        number: of all slices, in rank order, from 0.
        part: what is read; ``part.path`` is the task, ``part.first`` the ordinal of its first row.
        identity: what its rows follow from, JSON-like: digest and kind of the file, and where it is cut.
        fixed: whether its rows are held out: never removed.
        name: of shards that read it; unique.
    """

    number: int
    part: FileSlice
    identity: tuple[Any, ...]
    fixed: bool
    name: str

    @property
    def task(self) -> str:
        """The data set that the file is."""
        return self.part.path


@dataclass(frozen=True)
class Task:
    """A row file.

    Args:
        file: as it was found.
        path: below the folder that was given, and below the finished one.
        slices: its parts, in order.
        beside: its attributes of the input folder by operation: URI and what the file has to be.
        variant: of the settings.
    """

    file: InputFile
    path: str
    slices: tuple[Slice, ...]
    beside: Mapping[str, InputFile]
    variant: int

    @property
    def name(self) -> str:
        """The task's name."""
        return self.file.task

    @property
    def held_out(self) -> bool:
        """Whether its rows are for evaluation."""
        return self.name.startswith(HELD_OUT)

    @property
    def source(self) -> str:
        """The source that it belongs to."""
        return source_of(self.name)


@dataclass(frozen=True)
class Rows:
    """All row files in rank order, and what the input folders say."""

    tasks: list[Task]
    found: Inputs

    @property
    def slices(self) -> list[Slice]:
        """All slices in rank order."""
        return [one for task in self.tasks for one in task.slices]


def discover(given: Sequence[str], settings: Settings, *, verify: bool, longest: int) -> Rows:
    """Find the row files: held-out ones first, then by source_priority, then by name.

    Raises:
        InputError: nothing found, a damaged folder, or two files with one task name or one path.
    """
    found = inputs.discover(given, rows.EXTENSIONS, "rows", verify=verify, held_out=True)
    tops = [storage.normalise(uri, "rows") for uri in given]
    beside = _attributes(tops)
    tasks: list[Task] = []
    seen: dict[str, str] = {}
    number = 0
    for file in sorted(found.files, key=lambda one: rank_of(one.task, settings.source_priority)):
        path = _path_below(file, tops)
        other = seen.setdefault(path, file.uri)
        if other != file.uri:
            raise InputError(
                f"two files have the path {path!r}",
                where="rows",
                got=f"{other} and {file.uri}",
                hint="curate them one after another, the second with index=",
            )
        slices = []
        for part, identity, name in _cut(file, longest):
            slices.append(Slice(number, part, identity, file.task.startswith(HELD_OUT), name))
            number += 1
        variant = settings.variant_of(file.task)
        tasks.append(Task(file, path, tuple(slices), beside.get(file.uri, {}), variant))
    _warn_unused(settings, [task.name.removeprefix(HELD_OUT) for task in tasks])
    return Rows(tasks, found)


def _warn_unused(settings: Settings, tasks: Sequence[str]) -> None:
    """Say which prefixes no task begins with: they may be misspelt."""
    prefixes = [("overrides", one.prefix) for one in settings.overrides]
    prefixes += [("source_priority", one) for one in settings.source_priority]
    for key, prefix in prefixes:
        if not any(task.startswith(prefix) for task in tasks):
            said = f"curate: {key}: no task begins with {prefix!r}; the first of them is {min(tasks)!r}"
            event(said, level=logging.WARNING)


def rank_of(task: str, priority: Sequence[str]) -> tuple[bool, int, str]:
    """The rank of a task: held-out ones, then by the first matching prefix, then by code point."""
    held_out = task.startswith(HELD_OUT)
    name = task.removeprefix(HELD_OUT)
    first = next((at for at, prefix in enumerate(priority) if name.startswith(prefix)), len(priority))
    return not held_out, 0 if held_out else first, task


def _cut(file: InputFile, longest: int) -> list[tuple[FileSlice, tuple[Any, ...], str]]:
    whole = FileSlice(file.task, file.uri, size=file.size, content=file.content, longest=longest)
    slices = [whole]
    # A damaged file is its shard's to name, so that all others are committed.
    with suppress(InputError):
        slices = SLICING.cut(whole)
    if len(slices) == 1:
        return [(slices[0], (file.sha256, file.kind), file.task)]
    return [
        (one, (file.sha256, file.kind, one.start, one.stop), f"{file.task} {number:05}")
        for number, one in enumerate(slices)
    ]


def _path_below(file: InputFile, tops: Sequence[str]) -> str:
    for top in tops:
        if file.uri == top:
            return storage.name_of(top)
        if file.uri.startswith(top.rstrip("/") + "/"):
            return file.uri[len(top.rstrip("/")) + 1 :]
    raise AssertionError(f"{file.uri} is below none of {tops}")


def _attributes(tops: Sequence[str]) -> dict[str, dict[str, InputFile]]:
    """The attributes beside the rows of finished folders, by URI of the row file and operation."""
    found: dict[str, dict[str, InputFile]] = {}
    for top in tops:
        manifest = None if storage.store_for(top).exists(top) else manifests.read(top)
        if manifest is None:
            continue
        by_task: dict[str, dict[str, InputFile]] = {}
        for file in manifest.files:
            path = file.path.removeprefix(HELD_OUT)
            if not file.task and path.startswith(f"{attributes.FOLDER}/"):
                _, operation, name = path.split("/", 2)
                task = file.path[: len(file.path) - len(path)] + name.removesuffix(".parquet")
                uri = storage.join(top, *file.path.split("/"))
                by_task.setdefault(task, {})[operation] = InputFile(uri, "", file.size, file.sha256, promised=True)
        for file in manifest.files:
            if file.task in by_task:
                found[storage.join(top, *file.path.split("/"))] = by_task[file.task]
    return found
