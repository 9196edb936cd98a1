"""Row files as they are found: their paths in finished folders, their slices, and the attributes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.errors import InputError
from pairmill.formats import attributes
from pairmill.formats.limits import EXPANSION
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.formats.source_names import source_of

SLICING: Final = Slicing(64 << 20, open_from=(16 << 20) + 1, cut_from=128 << 20)
"""A slice is enough work to be worth a shard, and little enough that sixteen cores share a gigabyte."""
ORIGIN: Final = "origin"
"""The operation that a kept row's ordinal in the file that was given first is an attribute of."""


@dataclass(frozen=True)
class RowFile:
    """A row file that a stage chooses rows of.

    Args:
        file: as it was found.
        path: below the folder that was given, and below the finished one.
        beside: its attributes of the input folder by operation: URI and what the file has to be.
    """

    file: InputFile
    path: str
    beside: Mapping[str, InputFile]

    @property
    def name(self) -> str:
        """The task's name."""
        return self.file.task

    @property
    def held_out(self) -> bool:
        """Whether its rows are for evaluation: they are passed on, and nothing is learned from them."""
        return self.name.startswith(HELD_OUT)

    @property
    def source(self) -> str:
        """The source that it belongs to."""
        return source_of(self.name)


def cut(file: InputFile, longest: int, expansion: int = EXPANSION) -> list[tuple[FileSlice, tuple[Any, ...], str]]:
    """The slices of a row file, each with what its rows follow from (JSON-like) and a name that is unique.

    Args:
        file: as it was found.
        longest: bytes of the longest row.
        expansion: the most bytes of rows for each byte of the file.
    """
    whole = FileSlice(file.task, file.uri, size=file.size, content=file.content, longest=longest, expansion=expansion)
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


def path_below(file: InputFile, tops: Sequence[str]) -> str:
    """The path of a row file below the folder that was given; of a file that was given itself, its name."""
    for top in tops:
        if file.uri == top:
            return storage.name_of(top)
        if file.uri.startswith(top.rstrip("/") + "/"):
            return file.uri[len(top.rstrip("/")) + 1 :]
    raise AssertionError(f"{file.uri} is below none of {tops}")


def beside(tops: Sequence[str]) -> dict[str, dict[str, InputFile]]:
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
