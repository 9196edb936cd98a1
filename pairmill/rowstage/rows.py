"""The row files that a stage chooses rows of: in rank order, cut into slices, slices gathered into blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, InputFile, Inputs
from pairmill.engine.keys import unkeyed
from pairmill.errors import InputError
from pairmill.formats import row_files, rows
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.row_files import ORIGIN, RowFile
from pairmill.formats.rows import Batch
from pairmill.formats.slices import FileSlice, grouped
from pairmill.rowstage.columns import column_slices
from pairmill.rules.match import Matcher, Selector

_BLOCK_BYTES: Final = 64 << 20
_BLOCK_SLICES: Final = 256


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows of a row file: row groups of a large Parquet file, else all of it.

    Args:
        part: what is read; ``part.path`` is the task, ``part.first`` the ordinal of its first row.
        identity: what its rows follow from, JSON-like: digest and kind of the file, and where it is cut.
        number: of all slices, in rank order, from 0.
        fixed: whether its rows are held out: they are never removed.
        name: of shards that read it; unique.
        attributes: files of attributes of the task that are read with it, by operation: :meth:`Rows.blocks_with`.
    """

    part: FileSlice
    identity: tuple[Any, ...]
    number: int
    fixed: bool
    name: str
    attributes: Mapping[str, InputFile] = field(default_factory=dict)

    def identify(self) -> object:
        """Return what a shard that reads the slice is keyed by; its rank decides nothing about its rows."""
        read = {name: file.digest for name, file in self.attributes.items()}
        return [self.task, *self.identity, self.part.first, read]

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

    def count(self) -> int:
        """Count its rows; of Parquet the footer has the number."""
        part = self.part
        if not part.uri.endswith(".parquet"):
            return sum(len(batch) for batch in self.batches(()))
        with open_parquet(part.uri, part.content) as file:
            meta = file.metadata
            groups = range(part.start, meta.num_row_groups if part.stop is None else part.stop)
            return sum(meta.row_group(group).num_rows for group in groups)

    def read_columns(self, file: InputFile, columns: Sequence[str], count: int) -> list[pa.Array]:
        """Read columns of a file of attributes for its rows, of which there are ``count``."""
        whole = self.part.stop is None
        return column_slices(file.uri, file.content, columns, self.part.first, count, whole=whole)

    def ordinals(self, count: int) -> NDArray[np.int64]:
        """Read the numbers that its rows had in the file that curate was given, else in their own; int64 [count].

        The attributes of ``origin`` have to be read with the slice.
        """
        origin = self.attributes.get(ORIGIN)
        if origin is None:
            return np.arange(self.part.first, self.part.first + count, dtype=np.int64)
        (column,) = self.read_columns(origin, ["ordinal"], count)
        ordinals: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
        return ordinals


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
        return sum(piece.part.size for piece in self.slices)

    @property
    def random_access(self) -> dict[str, Content]:
        """The files that are read in parts, for ``Shard.random_access``."""
        contents: dict[str, Content] = {}
        for piece in self.slices:
            contents |= piece.part.random_access
            for file in piece.attributes.values():
                contents |= file.random_access
        return contents


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
    inputs: Inputs

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

    def blocks_with(self, operations: Collection[str]) -> list[Block]:
        """Return the blocks for shards that read attributes of these operations too."""
        files = {
            task.name: {name: file for name, file in task.beside.items() if name in operations}
            for task in self.training
        }
        return [
            replace(block, slices=tuple(replace(piece, attributes=files[piece.task]) for piece in block.slices))
            for block in self.blocks
        ]

    @property
    def slices_with_held_out(self) -> list[Slice]:
        """All slices in rank order, for a stage that compares rows with held-out ones."""
        return [piece for task in self.tasks for piece in task.slices]

    @classmethod
    def discover(
        cls,
        given: Sequence[str],
        *,
        verify: bool,
        longest: int,
        expansion: int,
        priority: Sequence[Selector] = (),
        option: str = "rows",
        fields: Sequence[str] = rows.FIELDS,
    ) -> Rows:
        """Find the row files: held-out ones first, then by ``priority``, then by name.

        Args:
            given: folders, files or URIs, as the user gave them.
            verify: digest the files of finished folders now.
            longest: bytes of the longest row.
            expansion: the most bytes of rows for each byte of a file.
            priority: tasks, best first.
            option: that names the files, for messages.
            fields: the columns that are read; other rows than those of ``rows`` may lack some.

        Raises:
            InputError: nothing found, a damaged folder, or two files with one task name or one path.
        """
        result = row_files.discover(given, option, verify=verify, held_out=option == "rows", fields=fields)
        tops = [storage.normalise(uri, option) for uri in given]
        beside = row_files.beside(tops)
        tasks: list[Task] = []
        seen: dict[str, str] = {}
        number = 0
        matcher = Matcher(priority)
        for file in sorted(result.files, key=lambda file: rank_of(file.task, matcher)):
            path = row_files.path_below(file, tops)
            other = seen.setdefault(path, file.uri)
            if other != file.uri:
                raise InputError(
                    f"two files have the path {path!r}",
                    where=option,
                    got=f"{other} and {file.uri}",
                    hint="put them into one folder under different names",
                )
            slices = []
            for part, identity, name in row_files.cut(file, longest, expansion):
                slices.append(Slice(part, identity, number, file.task.startswith(HELD_OUT), name))
                number += 1
            tasks.append(Task(file, path, beside.get(file.uri, {}), tuple(slices)))
        return cls(tasks, result)


def rank_of(task: str, priority: Matcher) -> tuple[bool, bool, int, str]:
    """Rank a task: held-out ones first, then by the first of ``priority`` that matches, then by code point."""
    if task.startswith(HELD_OUT):
        return False, False, 0, task
    first = priority.first(task)
    return True, first < 0, first, task
