"""What becomes of the rows of a slice: which go and why, and what is written beside those that stay.

A shard writes verdicts with :class:`VerdictWriter`, one slice after another. ``Findings.from_records`` reads them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import ShardFile, ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from pairmill.formats import decisions
from pairmill.formats.kept_rows import Texts
from pairmill.rowstage.rows import Slice

REMOVED: Final = "removed"
VERDICTS: Final = "verdicts"
"""The key of verdicts in the data of a record."""


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """The rows of a slice that go.

    Args:
        uri: of a file of their ordinals in the task, uint32, ascending.
        start: where in the file they begin, in ordinals.
        digest: of the ordinals.
        reasons: how many, by ledger reason.
    """

    uri: str
    start: int
    count: int
    digest: str
    reasons: Mapping[str, int]

    def load(self) -> NDArray[np.uint32]:
        """Read the ordinals."""
        if not self.count:
            return np.empty(0, np.uint32)
        with storage.store_for(self.uri).open(self.uri) as file:
            file.seek(4 * self.start)
            return np.frombuffer(file.read(4 * self.count), "<u4")


class Rewrite(ABC):
    """Changes texts of rows that stay, as redaction does: a frozen dataclass, by whose fields its shards are keyed."""

    @abstractmethod
    def apply(self, texts: Texts, ledger: Ledger) -> Texts:
        """Return the new texts of some rows, and count in the ledger's notes and measures what was changed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the rows of a slice.

    Args:
        removed: those that go.
        attributes: files with a line for each row of the slice, by operation; lines of rows that go are left out.
        evidence: a file of decisions on the slice's rows (:mod:`pairmill.formats.decisions`), if there are any.
        rewrite: what changes the texts of rows that stay.
    """

    rows: int
    removed: RemovedRows
    attributes: Mapping[str, ShardFile] = field(default_factory=dict)
    evidence: ShardFile | None = None
    rewrite: Rewrite | None = None

    def identify(self) -> object:
        """Return what a shard that writes the rows is keyed by: contents, wherever they are."""
        return [
            self.rows,
            self.removed.digest,
            self.removed.reasons,
            {name: file.digest for name, file in self.attributes.items()},
            None if self.evidence is None else self.evidence.digest,
            self.rewrite,
        ]


@dataclass(frozen=True)
class Findings:
    """What ``find`` returns. A stage that learned more on the way has a subclass with further fields.

    Args:
        verdicts: one for each of ``rows.slices``, in the same order.
    """

    verdicts: Sequence[Verdict]

    @classmethod
    def from_records(cls, records: Iterable[ShardRecord]) -> Findings:
        """Read the verdicts that shards wrote; the records are in the order of the slices."""
        return cls([verdict for record in records for verdict in read_verdicts(record)])


@dataclass(frozen=True)
class Judged:
    """What becomes of some consecutive rows of a slice.

    Args:
        keep: which of the rows stay; bool [rows].
        reasons: why the others go: one for all, or one for each row that goes.
        evidence: columns of ``decisions.SCHEMA`` by name, such as ``score_r`` and ``detail``, with a value for each row
            that goes. They and the reasons are written below ``decisions/``; a column ``rule`` is written in place of
            the reasons, which the ledger counts.
        attributes: by the name of their folder below ``attributes/``; each has a line for each row.
    """

    keep: NDArray[np.bool_]
    reasons: str | Sequence[str]
    evidence: Mapping[str, Sequence[Any] | NDArray[Any]] = field(default_factory=dict)
    attributes: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass
class _Entry:
    """A verdict as the data of a record has it."""

    rows: int
    count: int
    digest: str
    reasons: dict[str, int]
    attributes: dict[str, str]
    evidence: str


def read_verdicts(record: ShardRecord) -> list[Verdict]:
    """Read the verdicts of a shard that used a VerdictWriter."""
    result, start = [], 0
    for raw in record.data[VERDICTS]:
        entry = _Entry(**raw)
        removed = RemovedRows(record.uri(REMOVED), start, entry.count, entry.digest, entry.reasons)
        attributes = {name: record.file(path) for name, path in entry.attributes.items()}
        evidence = record.file(entry.evidence) if entry.evidence else None
        result.append(Verdict(entry.rows, removed, attributes, evidence))
        start += entry.count
    return result


class VerdictWriter:
    """Writes verdicts into a shard's folder. Use as a context manager.

    Args:
        out: of the shard.
        report: whether all rows stay, and decisions only say which would go.
    """

    def __init__(self, out: Writer, *, report: bool = False) -> None:
        self._out, self._report = out, report
        self._entries: list[_Entry] = []
        self._stack = ExitStack()
        self._removed: BinaryIO

    def add(
        self,
        piece: Slice,
        keep: NDArray[np.bool_],
        reasons: str | Sequence[str],
        *,
        evidence: Mapping[str, Sequence[Any] | NDArray[Any]] | None = None,
        attributes: Mapping[str, pa.Table] | None = None,
    ) -> None:
        """Write the verdict on a slice; see :class:`Judged` for the arguments."""
        self.add_parts(piece, [Judged(keep, reasons, evidence or {}, attributes or {})])

    def add_parts(self, piece: Slice, parts: Iterable[Judged]) -> None:
        """Write the verdict on a slice whose rows are judged some at a time, in order."""
        number, removed = len(self._entries), hashlib.sha256()
        entry = _Entry(0, 0, "", {}, {}, "")
        with ExitStack() as stack:
            writers: dict[str, pq.ParquetWriter] = {}

            def append(path: str, table: pa.Table, **options: Any) -> None:
                if path not in writers:
                    local = stack.enter_context(self._out.create(path, scratch=True))
                    writers[path] = stack.enter_context(pq.ParquetWriter(local, table.schema, **options))
                writers[path].write_table(table)

            for part in parts:
                first = piece.part.first + entry.rows
                entry.rows += len(part.keep)
                gone = np.flatnonzero(~part.keep)
                ordinals = (gone + first).astype("<u4")
                counts = {part.reasons: len(gone)} if isinstance(part.reasons, str) else dict(Counter(part.reasons))
                if sum(counts.values()) != len(gone):
                    got = f"{sum(counts.values())} reasons"
                    raise InternalError("not a reason for each row that goes", where=piece.name, got=got)
                if not self._report:
                    self._removed.write(ordinals.tobytes())
                    removed.update(ordinals.tobytes())
                    entry.count += len(gone)
                    for name, count in counts.items():
                        if count:
                            entry.reasons[name] = entry.reasons.get(name, 0) + count
                for name, table in part.attributes.items():
                    if len(table) != len(part.keep):
                        raise InternalError(f"attributes {name} lack rows", where=piece.name, got=f"{len(table)} rows")
                    entry.attributes[name] = f"{number}-{name}.parquet"
                    append(entry.attributes[name], table)
                if len(gone):
                    columns = {"rule": _repeat(part.reasons, len(gone)), **part.evidence, "ordinal": ordinals}
                    columns["action"] = _repeat("report" if self._report else "drop", len(gone))
                    entry.evidence = f"{number}-evidence.parquet"
                    table = decisions.table_of(columns, len(gone))
                    append(entry.evidence, table, compression="zstd", version="2.6")
        entry.digest = removed.hexdigest()
        self._entries.append(entry)

    def data(self) -> dict[str, Any]:
        """Return the data of the shard's result."""
        return {VERDICTS: [asdict(entry) for entry in self._entries]}

    def __enter__(self) -> Self:
        local = self._stack.enter_context(self._out.create(REMOVED, scratch=True))
        self._removed = self._stack.enter_context(local.open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _repeat(texts: str | Sequence[str], count: int) -> Sequence[str] | pa.Array:
    """Repeat one text for every row, without an object for each."""
    return pa.array([texts]).take(pa.array(np.zeros(count, np.int8))) if isinstance(texts, str) else texts
