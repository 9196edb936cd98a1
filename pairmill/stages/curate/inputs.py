"""The row files in rank order, cut into slices."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairmill import storage
from pairmill.engine.inputs import HELD_OUT, Inputs
from pairmill.errors import InputError
from pairmill.formats import row_files
from pairmill.formats.row_files import RowFile
from pairmill.formats.slices import FileSlice
from pairmill.log import event
from pairmill.stages.curate.settings import Settings


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
class Task(RowFile):
    """A row file.

    Args:
        slices: its parts, in order.
        variant: of the settings.
    """

    slices: tuple[Slice, ...]
    variant: int


@dataclass(frozen=True)
class Rows:
    """All row files in rank order, and what the input folders say."""

    tasks: list[Task]
    found: Inputs

    @property
    def slices(self) -> list[Slice]:
        """All slices in rank order."""
        return [one for task in self.tasks for one in task.slices]


def discover(given: Sequence[str], settings: Settings, *, verify: bool, longest: int, expansion: int) -> Rows:
    """Find the row files: held-out ones first, then by source_priority, then by name.

    Raises:
        InputError: nothing found, a damaged folder, or two files with one task name or one path.
    """
    found = row_files.discover(given, "rows", verify=verify, held_out=True)
    tops = [storage.normalise(uri, "rows") for uri in given]
    beside = row_files.beside(tops)
    tasks: list[Task] = []
    seen: dict[str, str] = {}
    number = 0
    for file in sorted(found.files, key=lambda one: rank_of(one.task, settings.source_priority)):
        path = row_files.path_below(file, tops)
        other = seen.setdefault(path, file.uri)
        if other != file.uri:
            raise InputError(
                f"two files have the path {path!r}",
                where="rows",
                got=f"{other} and {file.uri}",
                hint="curate them one after another, the second with index=",
            )
        slices = []
        for part, identity, name in row_files.cut(file, longest, expansion):
            slices.append(Slice(number, part, identity, file.task.startswith(HELD_OUT), name))
            number += 1
        variant = settings.variant_of(file.task)
        tasks.append(Task(file, path, beside.get(file.uri, {}), tuple(slices), variant))
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
