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
        count: how many there are.
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
        rows: how many there are.
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
            {name: file.sha256 for name, file in self.attributes.items()},
            None if self.evidence is None else self.evidence.sha256,
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
        """Write the verdict on a slice.

        Args:
            piece: the slice.
            keep: which of its rows stay; bool [rows].
            reasons: why the others go: one for all, or one for each row that goes.
            evidence: columns of ``decisions.SCHEMA`` by name, such as ``score_r`` and ``detail``, with a value for each
                row that goes. They and the reasons are written below ``decisions/``; a column ``rule`` is written in
                place of the reasons, which the ledger counts.
            attributes: by the name of their folder below ``attributes/``; each has a line for each row of the slice.
        """
        gone = np.flatnonzero(~keep)
        ordinals = (gone + piece.part.first).astype("<u4")
        counts = {reasons: len(gone)} if isinstance(reasons, str) else dict(Counter(reasons))
        if sum(counts.values()) != len(gone):
            got = f"{sum(counts.values())} reasons"
            raise InternalError("not a reason for each row that goes", where=piece.name, got=got)
        removed, counts = (
            (ordinals[:0], {}) if self._report else (ordinals, {name: n for name, n in counts.items() if n})
        )
        self._removed.write(removed.tobytes())
        number = len(self._entries)
        paths = {name: f"{number}-{name}.parquet" for name in attributes or {}}
        for name, table in (attributes or {}).items():
            if len(table) != len(keep):
                raise InternalError(f"attributes {name} lack rows", where=piece.name, got=f"{len(table)} rows")
            with self._out.create(paths[name], scratch=True) as local:
                pq.write_table(table, local)
        path = f"{number}-evidence.parquet" if len(gone) else ""
        if path:
            columns: dict[str, Any] = {"rule": _repeat(reasons, len(gone)), **(evidence or {}), "ordinal": ordinals}
            columns["action"] = _repeat("report" if self._report else "drop", len(gone))
            with self._out.create(path, scratch=True) as local:
                decisions.write(local, decisions.table_of(columns, len(gone)))
        digest = hashlib.sha256(removed.tobytes()).hexdigest()
        self._entries.append(_Entry(len(keep), len(removed), digest, counts, paths, path))

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
