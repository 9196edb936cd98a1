"""Writes the rows that stay and what is beside them: a shard for each task, or for each part of a large one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.engine.content import Content, whole
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, decisions, kept_rows, rows
from pairmill.formats.kept_rows import Attributes
from pairmill.formats.means import Means
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.row_files import ORIGIN
from pairmill.rowstage import join
from pairmill.rowstage.lengths import MeasuredRows
from pairmill.rowstage.rows import Slice, Task
from pairmill.rowstage.verdicts import Verdict

_COPIED: Final = 1 << 20


@dataclass
class Written:
    """The data of a record.

    Args:
        means: of attributes (:mod:`pairmill.formats.means`); of no held-out rows.
        lengths: of rows (:class:`pairmill.rowstage.lengths.MeasuredRows`), before and after; empty of held-out rows,
            and if the stage does not measure them.
    """

    task: str
    means: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteRows(Shard[object], reads=()):
    """Writes the rows of a task that stay, or of a part of it.

    Args:
        file: the rows.
        path: of the file in the finished folder.
        beside: files of attributes of the input, by operation.
        verdicts: of the slices, in order; none of held-out rows, which are passed on.
        evidence: name of the folder of its decisions below ``decisions/``; empty = no slice of the task has any.
        piece: what of the file is read; None = all.
        measured: whether lengths of rows are counted.
        longest: bytes of the longest row.
    """

    work = "write rows"

    file: InputFile
    path: str
    beside: Mapping[str, InputFile]
    verdicts: tuple[Verdict, ...]
    evidence: str
    piece: Slice | None
    measured: bool
    longest: int = field(metadata=unkeyed("a longer row fails the shard"))

    @classmethod
    def from_task(
        cls,
        task: Task,
        verdicts: Sequence[Verdict],
        *,
        evidence: str,
        measured: bool,
        longest: int,
        piece: Slice | None = None,
    ) -> WriteRows:
        """Make the shard for a task, or for a slice of it with its verdict."""
        made = verdicts[0].attributes if verdicts else {}
        beside = {name: file for name, file in task.beside.items() if name not in made}
        name, size = (task.name, task.file.size) if piece is None else (piece.name, piece.part.size)
        return cls(
            task.file,
            task.path,
            beside,
            tuple(verdicts),
            evidence=evidence,
            piece=piece,
            measured=measured,
            longest=longest,
            name=f"write {name}",
            size=size,
        )

    def random_access(self) -> Mapping[str, Content]:
        return self.file.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        if not self.verdicts:
            return self._pass_on(out)
        count = sum(verdict.rows for verdict in self.verdicts)
        ledger = Ledger(count)
        for verdict in self.verdicts:
            for reason, number in verdict.removed.reasons.items():
                ledger.drop(reason, number)
        removed = np.concatenate([verdict.removed.load() for verdict in self.verdicts])
        lengths = MeasuredRows() if self.measured else None
        groups = self._write_rows(out, removed, ledger, lengths)
        first = 0 if self.piece is None else self.piece.part.first
        kept = np.delete(np.arange(first, first + count, dtype=np.int64), removed.astype(np.int64) - first)
        means = self._write_attributes(out, kept, range(first, first + count), groups)
        self._write_evidence(out)
        ledger.rows_kept = ledger.rows_out = len(kept)
        data = Written(self.file.task, means, {} if lengths is None else asdict(lengths))
        return ShardResult(ledger, asdict(data))

    @property
    def _is_part(self) -> bool:
        return self.piece is not None

    def _pass_on(self, out: Writer) -> ShardResult:
        """Copy held-out rows and what is beside them; their texts are not looked at."""
        _copy(out, self.file, self.path, self.file.task)
        for name, file in sorted(self.beside.items()):
            _copy(out, file, HELD_OUT + attributes.path_of(self.file.task.removeprefix(HELD_OUT), name))
        count = rows.count(self.file.uri, self.file.content, self.longest)
        ledger = Ledger(count, count, 0)
        ledger.note("for_evaluation", count)
        return ShardResult(ledger, asdict(Written(self.file.task)))

    def _write_rows(
        self, out: Writer, removed: NDArray[np.uint32], ledger: Ledger, lengths: MeasuredRows | None
    ) -> list[int]:
        """Write the rows that stay; return the rows of each row group."""
        part = None if self.piece is None else self.piece.part
        read = rows.read(self.file.uri, part, content=self.file.content, longest=self.longest)
        batches = read if lengths is None else lengths.watch(read, self._read_decided())
        if not changes_rows(self.verdicts) and not self._is_part:
            _copy(out, self.file, self.path, self.file.task)
            if lengths is not None:
                for _ in batches:
                    pass
            return kept_rows.row_groups(self.file, self.longest)
        rewrite = self.verdicts[0].rewrite
        with out.create(self.path, task=self.file.task, scratch=self._is_part) as local:
            change = None if rewrite is None else lambda texts: rewrite.apply(texts, ledger)
            with local.open("wb") as file:
                _, groups = kept_rows.write(
                    self.file, batches, removed, self.path, file, change, part=part, longest=self.longest
                )
            if groups and self.path.endswith(".parquet") and not self._is_part:
                number_row_groups(local)
        return groups

    def _write_attributes(
        self, out: Writer, kept: NDArray[np.int64], read: range, groups: Sequence[int]
    ) -> dict[str, Any]:
        means = Means(self.file.task)
        task = self.file.task
        sources = {name: (Attributes([(file.uri, file.content)]), file.uri) for name, file in self.beside.items()}
        for name in self.verdicts[0].attributes:
            uris = [verdict.attributes[name].uri for verdict in self.verdicts]
            sources[name] = Attributes.from_uris(uris, read.start), task
        if ORIGIN not in sources:
            with self._create(out, attributes.path_of(task, ORIGIN)) as local:
                kept_rows.write_origin(kept, groups, local)
        for name, (source, where) in sorted(sources.items()):
            count = partial(means.add, name) if name != ORIGIN else None
            with self._create(out, attributes.path_of(task, name)) as local:
                kept_rows.cut(source, kept, read, groups, local, where=where, count_means=count)
        return means.data()

    def _read_decided(self) -> NDArray[np.uint32]:
        """Read the ordinals of the rows that a decision is about, whether or not they go; ascending."""
        files = [verdict.evidence for verdict in self.verdicts if verdict.evidence is not None]
        ordinals = [decisions.read(file.uri)["ordinal"].to_numpy() for file in files]
        return np.unique(np.concatenate([np.empty(0, np.uint32), *ordinals]))

    def _write_evidence(self, out: Writer) -> None:
        """Write the decisions on all slices; a part without any has an empty file, since all parts are joined."""
        if self.evidence:
            tables = [decisions.read(verdict.evidence.uri) for verdict in self.verdicts if verdict.evidence is not None]
            with self._create(out, decisions.path_of(self.evidence, self.file.task)) as local:
                decisions.write(local, pa.concat_tables([decisions.empty(), *tables]).unify_dictionaries())

    def _create(self, out: Writer, path: str) -> AbstractContextManager[Path]:
        return out.create(path, scratch=self._is_part)


def parts_of(task: Task, verdicts: Sequence[Verdict]) -> list[tuple[Slice | None, Sequence[Verdict]]]:
    """Split a task into what is written by itself: its slices, or all of it if it is small or copied as it is."""
    large = len(task.slices) > 1 and sum(piece.part.size for piece in task.slices) >= join.PARTS_FROM
    if not (large and changes_rows(verdicts)):
        return [(None, verdicts)]
    return [(piece, [verdict]) for piece, verdict in zip(task.slices, verdicts, strict=True)]


def changes_rows(verdicts: Iterable[Verdict]) -> bool:
    """Tell whether a file with these verdicts differs from its input."""
    return any(verdict.removed.count or verdict.rewrite is not None for verdict in verdicts)


def _copy(out: Writer, file: InputFile, path: str, task: str = "") -> None:
    with out.create(path, task=task) as local, local.open("wb") as copy, whole(file.uri, file.content) as source:
        while data := source.read(_COPIED):
            copy.write(data)
