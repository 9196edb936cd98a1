"""What looks at each row by itself: an operation of one pass over the rows, without an exchange between them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import decisions, rows
from pairmill.formats.attributes import AttributesWriter, schema_of
from pairmill.rowstage import histograms
from pairmill.rowstage.histograms import Histogram
from pairmill.rowstage.rows import Slice


@dataclass
class Scored:
    """What an operation says of the rows of a batch.

    Args:
        columns: of attributes: one array for each of ``Scorer.types()``, with a value or null for each row.
        findings: by ``decisions.SCHEMA``; ``ordinal`` is the row's index in the batch.
        counts: added up over all rows, for the report.
    """

    columns: list[pa.Array] = field(default_factory=list)
    findings: pa.Table | None = None
    counts: dict[str, int] = field(default_factory=dict)


class Scorer(ABC):
    """An operation with its options: a frozen dataclass, picklable."""

    operation: ClassVar[str]

    @property
    def name(self) -> str:
        """Of its folder below ``attributes/`` and ``decisions/``: the operation's, or a classifier's own."""
        return self.operation

    def identify(self) -> object:
        """Return what a shard is keyed by that scores rows."""
        return [self.name, self.identity(), self.types()]

    @abstractmethod
    def identity(self) -> list[Any]:
        """Return all that its values follow from beside the rows, JSON-like: options, digests of models, a version."""

    def types(self) -> dict[str, str]:
        """Return the names and types (``pairmill.formats.attributes.TYPES``) of its attributes."""
        return {}

    @abstractmethod
    def opened(self) -> AbstractContextManager[Callable[[rows.Batch], Scored]]:
        """Load what it needs, a model or an index, once; then it scores one batch after another."""


@dataclass
class ScoredSlice:
    """The data of a record: rows of the slice, and what the operation counted."""

    rows: int
    counts: dict[str, int] = field(default_factory=dict)


ATTRIBUTES: Final = "attributes.parquet"
FINDINGS: Final = "findings.arrow"
HISTOGRAMS: Final = "histograms.json"
_COUNTED: Final = ("number", "integer", "boolean")


@dataclass(frozen=True)
class Score(Shard[object], reads=()):
    """Scores the rows of a slice for one operation, whatever other operations say of them."""

    piece: Slice
    scorer: Scorer

    def random_access(self) -> dict[str, Content]:
        return self.piece.part.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        types = self.scorer.types()
        data = ScoredSlice(0)
        findings: list[pa.Table] = []
        result: dict[str, Histogram] = {}
        held: list[pa.RecordBatch] = []
        with ExitStack() as stack:
            writer = None
            if types:
                file = stack.enter_context(stack.enter_context(out.create(ATTRIBUTES, scratch=True)).open("wb"))
                writer = stack.enter_context(AttributesWriter(file, types))
            score = stack.enter_context(self.scorer.opened())
            for batch in self.piece.batches():
                scored = score(batch)
                if writer is not None:
                    held.append(pa.record_batch(scored.columns, schema_of(types)))
                    # Each call has a cost for each of a hundred columns.
                    if sum(map(len, held)) >= rows.BATCH_ROWS:
                        _flush(held, writer, types, result)
                if scored.findings is not None and len(scored.findings):
                    findings.append(_shifted(scored.findings, batch.start))
                for name, count in scored.counts.items():
                    data.counts[name] = data.counts.get(name, 0) + count
                data.rows += len(batch)
            if writer is not None:
                _flush(held, writer, types, result)
        if types:
            with out.create(HISTOGRAMS, scratch=True) as local:
                local.write_text(json.dumps(histograms.to_json(result), separators=(",", ":")), encoding="utf-8")
        if findings:
            with out.create(FINDINGS, scratch=True) as local, pa.OSFile(str(local), "wb") as sink:
                table = pa.concat_tables(findings).unify_dictionaries().combine_chunks()
                with pa.ipc.new_file(sink, table.schema) as arrow:
                    arrow.write_table(table)
        return ShardResult(Ledger(), asdict(data))


def _flush(
    held: list[pa.RecordBatch], writer: AttributesWriter, types: Mapping[str, str], histograms: dict[str, Histogram]
) -> None:
    """Write the attributes that are held, and count their values."""
    if not held:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    held.clear()
    writer.write(table)
    for name, kind in types.items():
        if kind in _COUNTED:
            histograms.setdefault(name, Histogram()).add(table[name].combine_chunks())


def _shifted(table: pa.Table, start: int) -> pa.Table:
    """Return findings with ordinals of the task in place of those of a batch."""
    ordinals = table["ordinal"].to_numpy().astype(np.uint32) + np.uint32(start)
    return table.set_column(0, decisions.SCHEMA.field("ordinal"), pa.array(ordinals))
