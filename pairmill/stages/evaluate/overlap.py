"""Questions that are in the training rows, by the index that curate decontaminates with (docs/curation.md).

A question counts as seen if a row repeats it, or it with its answer. Those with other numbers do not count: they are
new questions.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pairmill import storage
from pairmill._native import LeakIndexBuilder
from pairmill.engine.inputs import HELD_OUT, Inputs
from pairmill.engine.manifest import Ledger
from pairmill.engine.options import RECORD_BYTES
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import row_files
from pairmill.leaks import index as leaks
from pairmill.leaks.items import Item
from pairmill.leaks.scorer import LeakScorer
from pairmill.rowstage import Slice
from pairmill.rowstage.scorer import FINDINGS
from pairmill.rowstage.scorer import Score as ScoreRows
from pairmill.stages.evaluate.asking import questions

SEEN: Final = ("question_answer", "question")
"""Curate's verdicts that drop a row by default."""
_FILE: Final = "leaks.bin"


def training_rows(given: Sequence[str], *, verify: bool) -> Inputs:
    """Return the row files that a model was trained on.

    Raises:
        InputError: there is none, or one is damaged.
    """
    return row_files.discover(given, "training", verify=verify)


@dataclass(frozen=True)
class BuildIndex(Shard[object], reads=()):
    """Makes an index of the questions of all benchmarks, by name."""

    benchmarks: tuple[tuple[str, ShardFile], ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        builder = LeakIndexBuilder()
        for name, file in self.benchmarks:
            leaks.add(builder, name, _items(file.uri))
        with out.create(_FILE, scratch=True) as local:
            builder.finish().tofile(local)
        return ShardResult(Ledger())


def _items(uri: str) -> Iterable[Item]:
    """Yield names are numbers in the benchmark: two questions may have the same text."""
    for number, item in enumerate(questions(uri)):
        answers = [str(item.gold)] if isinstance(item.gold, str | int) else []
        yield Item(str(number), item.text, [text for text in answers if text.strip()])


def scoring(inputs: Inputs, index: ShardRecord) -> list[Shard[Any]]:
    """Return the shards that compare the rows with the index."""
    scorer = LeakScorer(index.uri(_FILE), index.key)
    made: list[Shard[Any]] = []
    for file in inputs.files:
        for part, identity, name in row_files.cut(file, RECORD_BYTES):
            piece = Slice(part, identity, len(made), file.task.startswith(HELD_OUT), name)
            made.append(ScoreRows(piece, scorer, name=f"{scorer.name} {name}", size=part.size))
    return made


@dataclass(frozen=True)
class Overlap:
    """What training rows repeat. Args: files: the findings."""

    files: tuple[ShardFile, ...]

    @classmethod
    def from_records(cls, records: Sequence[ShardRecord]) -> Overlap:
        """Take the findings of the shards of ``scoring``."""
        return cls(tuple(item.file(file.path) for item in records for file in item.files if file.path == FINDINGS))

    def seen(self, benchmark: str) -> frozenset[str]:
        """Numbers of the questions of a benchmark that a training row repeats."""
        result: set[str] = set()
        for file in self.files:
            table = pa.ipc.open_file(io.BytesIO(storage.store_for(file.uri).read(file.uri))).read_all()
            columns = (table[name].to_pylist() for name in ("benchmark", "item", "rule"))
            result |= {item for name, item, rule in zip(*columns, strict=True) if name == benchmark and rule in SEEN}
        return frozenset(result)
