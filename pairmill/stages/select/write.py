"""The chosen rows of a task in a file of the same format, and what is beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.content import Content, whole
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, decisions, joined_parts, kept_rows, rows
from pairmill.formats.kept_rows import Attributes
from pairmill.formats.means import Means
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.row_files import ORIGIN, RowFile
from pairmill.formats.slices import FileSlice
from pairmill.stages.select.choose import OUTSIDE
from pairmill.stages.select.findings import OPERATION, Findings
from pairmill.stages.select.inputs import Slice
from pairmill.stages.select.lengths import Measured
from pairmill.stages.select.settings import Settings
from pairmill.stages.select.sidecar import SIDECAR

_COPIED: Final = 1 << 20


@dataclass
class Written:
    """The data of a record.

    Args:
        rows: of the task.
        chosen: how many of them are chosen, whether or not the others go.
        lengths: before and after, JSON-like; of no held-out rows.
        means: of attributes (:mod:`pairmill.formats.means`); of no held-out rows.
    """

    rows: int
    chosen: int
    lengths: dict[str, Any] = field(default_factory=dict)
    means: dict[str, Any] = field(default_factory=dict)


def parts_of(task: RowFile, slices: Sequence[Slice]) -> Sequence[Slice | None]:
    """List what is written of a task by itself; of a task that is not very large all of it."""
    large = len(slices) > 1 and sum(part.part.size for part in slices) >= joined_parts.PARTS_FROM
    return slices if large and task.file.kind == "parquet" else [None]


@dataclass(frozen=True)
class WriteRows(Shard[object], reads=()):
    """Writes the chosen rows of a task, or of a part of it that JoinParts needs; of mode report all of them.

    Args:
        file: the rows.
        path: of the file in the finished folder.
        beside: files of attributes of the input by operation.
        findings: what is known of the rows; None = they are held out, and copied unread.
        report: whether rows that are not chosen stay.
        reason: in the ledger.
        part: what of the file is read; None = all.
        longest: bytes of the longest row.
    """

    file: InputFile
    path: str
    beside: Mapping[str, InputFile]
    findings: Findings | None
    report: bool
    reason: str
    part: FileSlice | None
    longest: int = field(metadata=unkeyed("a longer row fails the shard"))

    @classmethod
    def from_task(
        cls, task: RowFile, findings: Findings | None, settings: Settings, *, longest: int, part: Slice | None = None
    ) -> WriteRows:
        """Make the shard for a task, or for a part of it."""
        # A sidecar stays where it is; what an earlier choice said of the rows is replaced.
        beside = {name: file for name, file in task.beside.items() if name not in (SIDECAR, OPERATION)}
        return cls(
            task.file,
            task.path,
            beside,
            findings,
            settings.mode == "report",
            settings.reason,
            part=None if part is None else part.part,
            longest=longest,
            name=f"write {task.name}" if part is None else f"write {task.name} {part.part.first}",
            size=task.file.size if part is None else part.part.size,
        )

    def random_access(self) -> dict[str, Content]:
        return self.file.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        if self.findings is None:
            return self._pass_on(out)
        codes = self.findings.codes()
        chosen = (codes > 0) & (codes < OUTSIDE)
        kept = np.ones(len(codes), np.bool_) if self.report else chosen
        measured = Measured(self._first)
        groups = self._rows(out, chosen, kept, measured)
        means = self._write_beside(out, self.findings, kept, groups)
        if not chosen.all() or self._is_part:
            with out.create(decisions.path_of(OPERATION, self.file.task), scratch=self._is_part) as local:
                self.findings.write_decisions("report" if self.report else "drop", local)
        stay = int(kept.sum())
        dropped = {self.reason: len(codes) - stay} if stay < len(codes) else {}
        data = Written(len(codes), int(chosen.sum()), measured.to_json(), means)
        return ShardResult(Ledger(len(codes), stay, stay, dropped=dropped), asdict(data))

    @property
    def _is_part(self) -> bool:
        return self.part is not None

    @property
    def _first(self) -> int:
        """Number of the first row that is read."""
        return 0 if self.part is None else self.part.first

    def _pass_on(self, out: Writer) -> ShardResult:
        """Copy held-out rows and what is beside them: their texts are not looked at."""
        _copy(out, self.file, self.path, self.file.task)
        for name, one in sorted(self.beside.items()):
            task = self.file.task.removeprefix(HELD_OUT)
            _copy(out, one, HELD_OUT + attributes.path_of(task, name))
        count = rows.count(self.file.uri, self.file.content, self.longest)
        ledger = Ledger(count, count, 0)
        ledger.note("for_evaluation", count)
        return ShardResult(ledger, asdict(Written(count, 0)))

    def _rows(self, out: Writer, chosen: NDArray[np.bool_], kept: NDArray[np.bool_], measured: Measured) -> list[int]:
        """Write the rows that stay; returns the rows of each row group."""
        batches = rows.read(self.file.uri, self.part, content=self.file.content, longest=self.longest)
        looked_at = measured.measured(batches, chosen)
        if kept.all() and not self._is_part:
            _copy(out, self.file, self.path, self.file.task)
            for _ in looked_at:
                pass
            return kept_rows.row_groups(self.file, self.longest)
        removed = (np.flatnonzero(~kept) + self._first).astype(np.uint32)
        with out.create(self.path, task=self.file.task, scratch=self._is_part) as local:
            with local.open("wb") as file:
                _, groups = kept_rows.write(self.file, looked_at, removed, self.path, file)
            if groups and self.path.endswith(".parquet") and not self._is_part:
                number_row_groups(local)
        return groups

    def _write_beside(
        self, out: Writer, findings: Findings, kept: NDArray[np.bool_], groups: Sequence[int]
    ) -> dict[str, Any]:
        means = Means(self.file.task)
        task, scratch = self.file.task, self._is_part
        ordinals, every = np.flatnonzero(kept) + self._first, range(self._first, self._first + len(kept))
        if ORIGIN not in self.beside:
            with out.create(attributes.path_of(task, ORIGIN), scratch=scratch) as local:
                kept_rows.write_origin(ordinals, groups, local)
        for name, one in sorted(self.beside.items()):
            with out.create(attributes.path_of(task, name), scratch=scratch) as local:
                files = Attributes([(one.uri, one.content)])
                count = partial(means.add, name) if name != ORIGIN else None
                kept_rows.cut(files, ordinals, every, groups, local, where=one.uri, count_means=count)
        with out.create(attributes.path_of(task, OPERATION), scratch=scratch) as local:
            findings.write_attributes(kept, groups, local)
        return means.data()


def _copy(out: Writer, file: InputFile, path: str, task: str = "") -> None:
    with out.create(path, task=task) as local, local.open("wb") as copy, whole(file.uri, file.content) as source:
        while data := source.read(_COPIED):
            copy.write(data)
