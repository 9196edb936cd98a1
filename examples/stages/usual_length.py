"""Keep rows whose response has a usual length: a stage of one's own in one file, with four rounds.

    python examples/stages/usual_length.py rows=<folder of rows> root=<project folder> keep=0.9

Lengths differ between sources, and by orders of magnitude; so a row is compared with the mean of the logarithms.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.options import option
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import rows
from pairmill.interface.stagecli import main
from pairmill.rowstage import Block, Findings, RowConfig, RowPlan, RowStage, ShardRounds, Slice, VerdictWriter
from pairmill.storage import store_for

DISTANCES = "distances"


@dataclass(kw_only=True)
class UsualLengthConfig(RowConfig):
    """Keep rows whose response has a usual length."""

    keep: float = option(
        0.9, help="share of the rows that is kept: those nearest to the usual length", above=0, at_most=1
    )


def log_lengths(batch: rows.Batch) -> NDArray[np.float64]:
    """Measure the responses of some rows: the logarithm of characters plus one."""
    characters = pc.utf8_length(batch.response).to_numpy(zero_copy_only=False)
    measured: NDArray[np.float64] = np.log1p(characters)
    return measured


@dataclass
class Sums:
    """Rows, and the sums of their log lengths and of the squares of these."""

    rows: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, other: Sums) -> None:
        """Add those of other rows."""
        self.rows += other.rows
        self.total += other.total
        self.squares += other.squares


@dataclass(frozen=True)
class MeasureLengths(Shard[object], reads=()):
    """Round 1: adds up the log lengths of a block."""

    block: Block

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        sums = Sums()
        for piece in self.block.slices:
            for batch in piece.batches():
                lengths = log_lengths(batch)
                sums.add(Sums(len(lengths), float(lengths.sum()), float((lengths**2).sum())))
        return ShardResult(Ledger(), vars(sums))


@dataclass(frozen=True)
class AddLengths(Shard[object], reads=()):
    """Round 2: adds up the blocks."""

    measured: tuple[ShardRecord, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        sums = Sums()
        for record in self.measured:
            sums.add(record.read(Sums))
        return ShardResult(Ledger(), vars(sums))


@dataclass(frozen=True)
class ScoreRows(Shard[object], reads=()):
    """Round 3: computes how many standard deviations each row of a block is from the mean."""

    block: Block
    total: ShardRecord

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        sums = self.total.read(Sums)
        mean = sums.total / max(1, sums.rows)
        deviation = max(1e-9, sums.squares / max(1, sums.rows) - mean**2) ** 0.5
        counts = []
        with out.create(DISTANCES, scratch=True) as local, local.open("wb") as file:
            for piece in self.block.slices:
                count = 0
                for batch in piece.batches():
                    distances = np.abs(log_lengths(batch) - mean) / deviation
                    file.write(distances.astype("<f8").tobytes())
                    count += len(distances)
                counts.append(count)
        return ShardResult(Ledger(), {"counts": counts})


@dataclass(frozen=True)
class ChooseRows(Shard[object], reads=()):
    """Round 4: keeps the rows nearest to the mean, over all blocks.

    Args:
        slices: of all rows.
        scored: the records of ScoreRows, in the same order.
        share: of the rows that is kept.
    """

    slices: tuple[Slice, ...]
    scored: tuple[ShardRecord, ...]
    share: float

    def run(self, context: object, out: Writer) -> ShardResult:
        counts = [count for record in self.scored for count in record.data["counts"]]
        distances = np.concatenate([_distances(record) for record in self.scored])
        nearest = np.argsort(distances, kind="stable")[: round(self.share * len(distances))]
        keep = np.zeros(len(distances), np.bool_)
        keep[nearest] = True
        start = 0
        with VerdictWriter(out) as verdicts:
            for piece, count in zip(self.slices, counts, strict=True):
                mine, stays = distances[start : start + count], keep[start : start + count]
                start += count
                verdicts.add(
                    piece,
                    stays,
                    "unusual_length",
                    evidence={"score_r": mine[~stays], "detail": [f"{item:.3g} deviations" for item in mine[~stays]]},
                    attributes={"usual_length": pa.table({"distance": mine})},
                )
        return ShardResult(Ledger(), verdicts.data())


def _distances(record: ShardRecord) -> NDArray[np.float64]:
    uri = record.uri(DISTANCES)
    return np.frombuffer(store_for(uri).read(uri), "<f8")


class UsualLength(RowStage[UsualLengthConfig, RowPlan]):
    """Measures, adds up, scores and chooses."""

    name: ClassVar[str] = "usual_length"
    version: ClassVar[int] = 1
    config = UsualLengthConfig

    def find(self, config: UsualLengthConfig, plan: RowPlan) -> ShardRounds[Findings]:
        blocks = plan.rows.blocks
        measured = yield [MeasureLengths(block, name=block.name, size=block.size) for block in blocks]
        (total,) = yield [AddLengths(tuple(measured), name="add up")]
        scored = yield [ScoreRows(block, total, name=block.name, size=block.size) for block in blocks]
        chosen = yield [ChooseRows(tuple(plan.rows.slices), tuple(scored), config.keep, name="choose")]
        return Findings.from_records(chosen)


if __name__ == "__main__":
    raise SystemExit(main(UsualLength(), sys.argv[1:]))
