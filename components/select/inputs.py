"""The row files in rank order, their slices, and blocks of slices that one shard reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select.columns import column_slices
from pairmill import storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, Inputs
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError
from pairmill.formats import row_files, rows
from pairmill.formats.row_files import ORIGIN, RowFile
from pairmill.formats.rows import Batch
from pairmill.formats.slices import FileSlice, grouped

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

    def batches(self, names: Sequence[str] = rows.FIELDS) -> Iterator[Batch]:
        """Its rows, in which these texts are not null."""
        part = self.part
        for batch in rows.read(part.uri, part, checked=False, content=part.content, longest=part.longest):
            rows.refuse_nulls(batch, part.uri, names)
            yield batch

    def count(self) -> int:
        """How many rows it has; of Parquet the footer says it."""
        if self.part.uri.endswith(".parquet"):
            with rows.open_parquet(self.part.uri, self.part.content) as file:
                meta, stop = file.metadata, self.part.stop
                groups = range(self.part.start, meta.num_row_groups if stop is None else stop)
                return sum(meta.row_group(group).num_rows for group in groups)
        return sum(len(batch) for batch in self.batches(()))

    def ordinals(self, count: int) -> NDArray[np.int64]:
        """The numbers that its rows had in the file that curate was given, else in their own; int64 [count]."""
        origin = self.task.beside.get(ORIGIN)
        if origin is None:
            return np.arange(self.part.first, self.part.first + count, dtype=np.int64)
        (column,) = column_slices(
            origin.uri, origin.content, ["ordinal"], self.part.first, count, whole=self.part.stop is None
        )
        found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
        return found


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
        """Of shards that read it."""
        return f"{self.number:06}"

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(one.part.size for one in self.slices)

    def identity(self, operations: Collection[str] = ()) -> str:
        """What its rows, their names and these attributes of them follow from."""
        parts = []
        for one in self.slices:
            beside = [[name, file.sha256] for name, file in sorted(one.task.beside.items()) if name in operations]
            parts.append([one.task.name, list(one.identity), one.part.first, beside])
        return content_key(parts)

    @property
    def random_access(self) -> dict[str, Content]:
        """The row files that are read in parts."""
        found: dict[str, Content] = {}
        for one in self.slices:
            found |= one.part.random_access
        return found

    def attribute_files(self, operations: Collection[str]) -> dict[str, Content]:
        """The files of these attributes, which are read in parts too."""
        found: dict[str, Content] = {}
        for one in self.slices:
            for name, file in one.task.beside.items():
                if name in operations:
                    found |= file.random_access
        return found


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
    for file in sorted(found.files, key=lambda one: (not one.task.startswith(HELD_OUT), one.task)):
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
    """The rows of a target, of which these fields are read.

    Raises:
        InputError: nothing found, or a damaged folder.
    """
    found = row_files.discover([uri], f"dsir.targets {name}", verify=verify, fields=fields)
    files = sorted(found.files, key=lambda one: one.task)
    return blocks_of([RowFile(file, file.task, {}) for file in files], longest, expansion), found


def blocks_of(tasks: Sequence[RowFile], longest: int, expansion: int) -> list[Block]:
    """The blocks of all tasks that are not held out."""
    slices = [
        Slice(task, part, identity)
        for task in tasks
        if not task.held_out
        for part, identity, _ in row_files.cut(task.file, longest, expansion)
    ]
    groups = grouped(slices, lambda one: one.part.size, _BLOCK_BYTES, _BLOCK_SLICES)
    return [Block(number, tuple(group)) for number, group in enumerate(groups)]
