"""The row files in rank order, their slices, and blocks of slices that one shard reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, Inputs
from pairmill.errors import InputError
from pairmill.formats import row_files, rows
from pairmill.formats.row_files import ORIGIN, RowFile
from pairmill.formats.rows import Batch
from pairmill.formats.slices import FileSlice, grouped
from pairmill.stages.select.columns import column_slices

_BLOCK_BYTES: Final = 64 << 20
_BLOCK_SLICES: Final = 256


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of a task that is not held out.

    Args:
        task: the row file.
        part: what is read; ``part.first`` is the number of its first row.
        identity: what its rows follow from, JSON-like: digest and kind of the file, and where it is cut.
    """

    task: RowFile
    part: FileSlice
    identity: tuple[Any, ...]

    def keep(self, operations: Collection[str]) -> Slice:
        """Return the slice with the attributes of these operations alone."""
        beside = {name: file for name, file in self.task.beside.items() if name in operations}
        return replace(self, task=replace(self.task, beside=beside))

    def batches(self, names: Sequence[str] = rows.FIELDS) -> Iterator[Batch]:
        """Read its rows, in which these texts are not null."""
        part = self.part
        for batch in rows.read(part.uri, part, checked=False, content=part.content, longest=part.longest):
            rows.refuse_nulls(batch, part.uri, names)
            yield batch

    def count(self) -> int:
        """Count its rows; of Parquet the footer has the number."""
        if self.part.uri.endswith(".parquet"):
            with rows.open_parquet(self.part.uri, self.part.content) as file:
                meta, stop = file.metadata, self.part.stop
                groups = range(self.part.start, meta.num_row_groups if stop is None else stop)
                return sum(meta.row_group(group).num_rows for group in groups)
        return sum(len(batch) for batch in self.batches(()))

    def ordinals(self, count: int) -> NDArray[np.int64]:
        """Read the numbers that its rows had in the file that curate was given, else in their own; int64 [count]."""
        origin = self.task.beside.get(ORIGIN)
        if origin is None:
            return np.arange(self.part.first, self.part.first + count, dtype=np.int64)
        (column,) = column_slices(
            origin.uri, origin.content, ["ordinal"], self.part.first, count, whole=self.part.stop is None
        )
        ordinals: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
        return ordinals


@dataclass(frozen=True)
class Block:
    """Consecutive slices that one shard reads: of one large file one, of small files up to 256.

    Args:
        number: of all blocks, in rank order, from 0.
        slices: in rank order.
    """

    number: int
    slices: tuple[Slice, ...]

    @property
    def name(self) -> str:
        """The name of shards that read it."""
        return f"{self.number:06}"

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(part.part.size for part in self.slices)

    def keep(self, operations: Collection[str]) -> Block:
        """Return the block with the attributes of these operations alone, for a shard that reads no others."""
        return Block(self.number, tuple(part.keep(operations) for part in self.slices))

    def identify(self) -> object:
        """Return what its rows, their names and their attributes follow from."""
        return [
            [
                part.task.name,
                part.identity,
                part.part.first,
                {name: file.sha256 for name, file in part.task.beside.items()},
            ]
            for part in self.slices
        ]

    def random_access(self) -> dict[str, Content]:
        """Return the files that are read in parts, for ``Shard.random_access``."""
        contents: dict[str, Content] = {}
        for part in self.slices:
            contents |= part.part.random_access
            for file in part.task.beside.values():
                contents |= file.random_access
        return contents


@dataclass(frozen=True)
class Rows:
    """All row files in rank order: by code point, held-out ones first."""

    tasks: list[RowFile]
    blocks: list[Block]
    found: Inputs

    @property
    def training(self) -> list[RowFile]:
        """The tasks whose rows are candidates."""
        return [task for task in self.tasks if not task.held_out]


def discover(given: Sequence[str], *, verify: bool, longest: int, expansion: int) -> Rows:
    """Find the row files.

    Raises:
        InputError: nothing found, a damaged folder, or two files with one task name or one path.
    """
    found = row_files.discover(given, "rows", verify=verify, held_out=True)
    tops = [storage.normalise(uri, "rows") for uri in given]
    beside = row_files.beside(tops)
    tasks: list[RowFile] = []
    seen: dict[str, str] = {}
    for file in sorted(found.files, key=lambda file: (not file.task.startswith(HELD_OUT), file.task)):
        path = row_files.path_below(file, tops)
        other = seen.setdefault(path, file.uri)
        if other != file.uri:
            raise InputError(
                f"two files have the path {path!r}",
                where="rows",
                got=f"{other} and {file.uri}",
                hint="put them into one folder under different names",
            )
        tasks.append(RowFile(file, path, beside.get(file.uri, {})))
    return Rows(tasks, blocks_of(tasks, longest, expansion), found)


def target_rows(
    uri: str, name: str, fields: Sequence[str], *, verify: bool, longest: int, expansion: int
) -> tuple[list[Block], Inputs]:
    """Find the rows of a target, of which these fields are read.

    Raises:
        InputError: nothing found, or a damaged folder.
    """
    given = row_files.discover([uri], f"dsir.targets {name}", verify=verify, fields=fields)
    files = sorted(given.files, key=lambda file: file.task)
    return blocks_of([RowFile(file, file.task, {}) for file in files], longest, expansion), given


def blocks_of(tasks: Sequence[RowFile], longest: int, expansion: int) -> list[Block]:
    """Gather the slices of all tasks that are not held out into blocks."""
    slices = [
        Slice(task, part, identity)
        for task in tasks
        if not task.held_out
        for part, identity, _ in row_files.cut(task.file, longest, expansion)
    ]
    groups = grouped(slices, lambda part: part.part.size, _BLOCK_BYTES, _BLOCK_SLICES)
    return [Block(number, tuple(group)) for number, group in enumerate(groups)]
