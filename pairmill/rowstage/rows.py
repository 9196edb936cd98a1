"""The row files that a stage chooses rows of: in rank order, cut into slices, slices gathered into blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pairmill import storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, Inputs
from pairmill.engine.keys import unkeyed
from pairmill.errors import InputError
from pairmill.formats import row_files, rows
from pairmill.formats.row_files import RowFile
from pairmill.formats.rows import Batch
from pairmill.formats.slices import FileSlice, grouped

_BLOCK_BYTES: Final = 64 << 20
_BLOCK_SLICES: Final = 256


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of a row file: row groups of a large Parquet file, else all of it.

    Args:
        part: what is read; ``part.path`` is the task, ``part.first`` the ordinal of its first row.
        identity: what its rows follow from, JSON-like: digest and kind of the file, and where it is cut.
        number: of all slices, in rank order, from 0.
        fixed: whether its rows are held out: they are never removed.
        name: of shards that read it; unique.
    """

    part: FileSlice
    identity: tuple[Any, ...]
    number: int
    fixed: bool
    name: str

    def identify(self) -> object:
        """Return what a shard that reads the slice is keyed by; its rank decides nothing about its rows."""
        return [self.task, *self.identity, self.part.first]

    @property
    def task(self) -> str:
        """The data set that the file is."""
        return self.part.path

    def batches(self, fields: Sequence[str] = rows.FIELDS) -> Iterator[Batch]:
        """Read the rows, some thousand at a time; a null in one of ``fields`` raises InputError."""
        part = self.part
        for batch in rows.read(part.uri, part, content=part.content, longest=part.longest):
            rows.refuse_nulls(batch, part.uri, fields)
            yield batch


@dataclass(frozen=True)
class Block:
    """Consecutive slices that one shard reads: one of a large file, or up to 256 small files.

    Args:
        number: of all blocks, in rank order, from 0.
        slices: in rank order.
    """

    number: int = field(metadata=unkeyed("its rank decides nothing about its rows"))
    slices: tuple[Slice, ...]

    @property
    def name(self) -> str:
        """The name of shards that read it."""
        return f"{self.number:06}"

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(one.part.size for one in self.slices)

    @property
    def random_access(self) -> dict[str, Content]:
        """The files that are read in parts, for ``Shard.random_access``."""
        return {uri: content for one in self.slices for uri, content in one.part.random_access.items()}


@dataclass(frozen=True)
class Task(RowFile):
    """A row file.

    Args:
        slices: in order.
    """

    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Rows:
    """All row files in rank order, held-out ones first, and what the input folders say of them."""

    tasks: list[Task]
    found: Inputs

    @property
    def training(self) -> list[Task]:
        """The tasks whose rows may be dropped."""
        return [task for task in self.tasks if not task.held_out]

    @cached_property
    def slices(self) -> list[Slice]:
        """The slices of training tasks, in rank order: what ``find`` decides about."""
        return [piece for task in self.training for piece in task.slices]

    @cached_property
    def blocks(self) -> list[Block]:
        """The same slices, gathered into as many shards as are worth starting."""
        groups = grouped(self.slices, lambda piece: piece.part.size, _BLOCK_BYTES, _BLOCK_SLICES)
        return [Block(number, tuple(group)) for number, group in enumerate(groups)]

    @property
    def slices_with_held_out(self) -> list[Slice]:
        """All slices in rank order, for a stage that compares rows with held-out ones."""
        return [piece for task in self.tasks for piece in task.slices]

    @classmethod
    def discover(
        cls, given: Sequence[str], *, verify: bool, longest: int, expansion: int, priority: Sequence[str] = ()
    ) -> Rows:
        """Find the row files: held-out ones first, then by ``priority``, then by name.

        Args:
            given: folders, files or URIs, as the user gave them.
            verify: digest the files of finished folders now.
            longest: bytes of the longest row.
            expansion: the most bytes of rows for each byte of a file.
            priority: beginnings of task names, best first.

        Raises:
            InputError: nothing found, a damaged folder, or two files with one task name or one path.
        """
        found = row_files.discover(given, "rows", verify=verify, held_out=True)
        tops = [storage.normalise(uri, "rows") for uri in given]
        beside = row_files.beside(tops)
        tasks: list[Task] = []
        seen: dict[str, str] = {}
        number = 0
        for file in sorted(found.files, key=lambda file: rank_of(file.task, priority)):
            path = row_files.path_below(file, tops)
            other = seen.setdefault(path, file.uri)
            if other != file.uri:
                raise InputError(
                    f"two files have the path {path!r}",
                    where="rows",
                    got=f"{other} and {file.uri}",
                    hint="put them into one folder under different names",
                )
            slices = []
            for part, identity, name in row_files.cut(file, longest, expansion):
                slices.append(Slice(part, identity, number, file.task.startswith(HELD_OUT), name))
                number += 1
            tasks.append(Task(file, path, beside.get(file.uri, {}), tuple(slices)))
        return cls(tasks, found)


def rank_of(task: str, priority: Sequence[str] = ()) -> tuple[bool, int, str]:
    """Rank a task: held-out ones first, then by the first matching beginning, then by code point."""
    held_out = task.startswith(HELD_OUT)
    name = task.removeprefix(HELD_OUT)
    first = next((at for at, prefix in enumerate(priority) if name.startswith(prefix)), len(priority))
    return not held_out, 0 if held_out else first, task
