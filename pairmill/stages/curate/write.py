"""The kept rows of tasks, and what is beside them.

A large Parquet file is written in parts, one for each slice, which a last shard joins without decoding them
(docs/decisions/0039). Its row groups end where slices do, so its bytes follow from the file alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content, whole
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, joined_parts, kept_rows, rows
from pairmill.formats.kept_rows import Attributes, Gone, Texts
from pairmill.formats.means import MEANS, Means
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.row_files import ORIGIN
from pairmill.stages.curate.decide import Column
from pairmill.stages.curate.inputs import Slice, Task
from pairmill.stages.curate.scores.pii import KINDS as PII_KINDS

VERSION: Final = 3
_COPIED = 1 << 20


def cuts_of(task: Task, rows_of: Sequence[int]) -> list[int]:
    """The ordinals of the first rows of the parts of a task, and how many rows it has; one part = all of it."""
    total = sum(rows_of[one.number] for one in task.slices)
    parts = len(task.slices) > 1 and sum(one.part.size for one in task.slices) >= joined_parts.PARTS_FROM
    return [*(one.part.first for one in task.slices), total] if parts else [0, total]


@dataclass
class Written:
    """The data of a record.

    Args:
        task: its name.
        groups: rows of each row group.
        redacted: rows whose text was changed, and spans by kind.
    """

    task: str
    groups: list[int]
    redacted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteRows(HandKeyed[object]):
    """Writes the kept rows of a task, or of a part of it that JoinParts needs.

    Args:
        file: the rows.
        path: of the file in the finished folder.
        gone: which rows go.
        beside: files of attributes of the input by operation.
        redact: whether personal data is replaced.
        longest: bytes of the longest row.
        part: what of the file is read; None = all.
    """

    file: InputFile
    path: str
    gone: Gone
    beside: Mapping[str, InputFile]
    redact: bool
    longest: int
    part: Slice | None

    @classmethod
    def of(
        cls,
        task: Task,
        beside: Mapping[str, InputFile],
        gone: Gone,
        *,
        part: Slice | None = None,
        redact: str = "",
        longest: int,
    ) -> WriteRows:
        """The shard for a task or a part of it; ``redact`` is the identity of what is replaced."""
        file = task.file
        identity = [[name, one.sha256] for name, one in sorted(beside.items())]
        read = [file.sha256, file.task, task.path, list(part.identity) if part is not None else []]
        key = content_key("curate write", VERSION, read, gone.digest, identity, redact, dict(gone.dropped))
        name, size = (part.name, part.part.size) if part is not None else (task.name, file.size)
        return cls(f"write {name}", key, size, file, task.path, gone, beside, bool(redact), longest, part)

    def random_access(self) -> dict[str, Content]:
        return self.file.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        held_out = self.file.task.startswith(HELD_OUT)
        data = Written(self.file.task, [])
        first = self.part.part.first if self.part is not None else 0
        if self.gone.count or self.redact or self.part is not None:
            count = self._rewrite(out, data)
        else:
            count = self._copy(out, data)
        kept = self.gone.kept(first, count)
        if not held_out:
            self._write_beside(out, kept, range(first, first + count), data.groups)
        else:
            for name, one in sorted(self.beside.items()):
                _copy_file(out, one, _beside_path(self.file.task, name))
        ledger = Ledger(count, len(kept), 0 if held_out else len(kept), dropped=dict(self.gone.dropped))
        if held_out:
            ledger.note("for_evaluation", count)
        if data.redacted.get("rows"):
            ledger.note("redacted", data.redacted["rows"])
            for kind in PII_KINDS:
                if data.redacted.get(kind):
                    ledger.measures[f"redacted_{kind}"] = data.redacted[kind]
        return ShardResult(ledger, asdict(data))

    def _copy(self, out: Writer, data: Written) -> int:
        """The file as it is: all rows stay."""
        _copy_file(out, self.file, self.path, task=self.file.task)
        data.groups = kept_rows.row_groups(self.file, self.longest)
        return sum(data.groups)

    def _rewrite(self, out: Writer, data: Written) -> int:
        scratch = self.part is not None
        part = self.part.part if self.part is not None else None
        with out.create(self.path, task=self.file.task, scratch=scratch) as local:
            batches = rows.read(self.file.uri, part, content=self.file.content, longest=self.longest)
            change = _Redaction(data) if self.redact else None
            with local.open("wb") as file:
                count, data.groups = kept_rows.write(self.file, batches, self.gone.load(), self.path, file, change)
            if data.groups and self.path.endswith(".parquet") and not scratch:
                number_row_groups(local)
        return count

    def _write_beside(self, out: Writer, kept: NDArray[np.int64], read: range, groups: Sequence[int]) -> None:
        scratch = self.part is not None
        if ORIGIN not in self.beside:
            with out.create(attributes.path_of(self.file.task, ORIGIN), scratch=scratch) as local:
                kept_rows.write_origin(kept, groups, local)
        for name, one in sorted(self.beside.items()):
            with out.create(attributes.path_of(self.file.task, name), scratch=scratch) as local:
                kept_rows.cut(Attributes([(one.uri, one.content)]), kept, read, groups, local, where=one.uri)


@dataclass(frozen=True)
class CutAttributes(HandKeyed[object]):
    """Writes the attributes of the kept rows of a task or a part of it, of all operations that made some.

    Args:
        task: its name.
        first: ordinal of the first row.
        rows: how many there are.
        gone: which of them go.
        files: by operation's name, those of the slices of these rows.
        groups: rows of each row group of the file with the rows.
        scratch: whether it is a part.
    """

    task: str
    first: int
    rows: int
    gone: Gone
    files: Mapping[str, Column]
    groups: tuple[int, ...]
    scratch: bool

    @classmethod
    def of(
        cls,
        task: Task,
        rows: int,
        gone: Gone,
        files: Mapping[str, tuple[Column, Sequence[str]]],
        groups: Sequence[int],
        part: Slice | None = None,
    ) -> CutAttributes:
        """The shard for a task or a part of it; ``files`` are with their keys."""
        keys = [[name, list(one)] for name, (_, one) in sorted(files.items())]
        name, first, size = task.name, 0, task.file.size
        if part is not None:
            name, first, size = part.name, part.part.first, part.part.size
        key = content_key(
            "curate attributes", VERSION, task.name, first, rows, keys, gone.digest, list(groups), part is not None
        )
        columns = {name: column for name, (column, _) in files.items()}
        return cls(
            f"attributes {name}",
            key,
            size,
            task.name,
            first,
            rows,
            gone.without_reasons(),
            columns,
            tuple(groups),
            part is not None,
        )

    def run(self, context: object, out: Writer) -> ShardResult:
        read = range(self.first, self.first + self.rows)
        kept = self.gone.kept(self.first, self.rows)
        means = Means(self.task)
        for name, column in sorted(self.files.items()):
            with out.create(attributes.path_of(self.task, name), scratch=self.scratch) as local:
                files = Attributes.of(column.uris, self.first)
                count = partial(means.add, name)
                kept_rows.cut(files, kept, read, self.groups, local, where=self.task, count_means=count)
        return ShardResult(Ledger(), {MEANS: means.data()})


class _Redaction:
    """Replaces personal data, and counts it."""

    def __init__(self, data: Written) -> None:
        self._redacted = data.redacted

    def __call__(self, texts: Texts) -> Texts:
        condition, *fields = texts
        changed = np.zeros(len(condition), np.bool_)
        made = [condition]
        for column in fields:
            replaced, spans = _native.curate_redact(column)
            made.append(pa.array(replaced))
            some = np.asarray(spans) > 0
            changed |= some
            if some.any():
                kinds = np.asarray(_native.curate_pii(column.filter(pa.array(some)))[3])
                for kind, count in zip(PII_KINDS, np.bincount(kinds, minlength=len(PII_KINDS)).tolist(), strict=True):
                    self._redacted[kind] = self._redacted.get(kind, 0) + count
        self._redacted["rows"] = self._redacted.get("rows", 0) + int(changed.sum())
        return made


def _beside_path(task: str, operation: str) -> str:
    held = HELD_OUT if task.startswith(HELD_OUT) else ""
    return held + attributes.path_of(task.removeprefix(held), operation)


def _copy_file(out: Writer, file: InputFile, path: str, task: str = "") -> None:
    with out.create(path, task=task) as local, local.open("wb") as copy, whole(file.uri, file.content) as source:
        while data := source.read(_COPIED):
            copy.write(data)
