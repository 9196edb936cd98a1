"""The base of stages that choose rows: curate, select, and a filter of your own.

Such a stage reads row files and writes the same files with fewer rows. It has one method of its own, ``find``: a
generator of rounds. Each ``yield`` hands out a list of shards, which run in processes or pods, and returns their
records in the same order. ``find`` returns a verdict on each slice: which rows stay, why the others go, the evidence,
and attributes of all rows. examples/stages/usual_length.py is a whole stage of four rounds:

    class UsualLength(RowStage[UsualLengthConfig, RowPlan]):
        name = "usual_length"
        version = 1
        config = UsualLengthConfig

        def find(self, config, plan):
            measured = yield [MeasureLengths(block, name=block.name) for block in plan.rows.blocks]
            (total,) = yield [AddLengths(measured, name="add up")]
            scored = yield [ScoreRows(block, total, name=block.name) for block in plan.rows.blocks]
            chosen = yield [ChooseRows(plan.rows.slices, scored, config.keep, name="choose")]
            return Findings.from_records(chosen)

What the base does: it finds the files in rank order, held-out ones first (``Rows``); cuts large Parquet files into
slices and gathers small ones into blocks (``Slice``, ``Block``); passes held-out rows on; writes the rows that stay in
the format that they had; cuts attributes, the input's and the stage's, to these rows; writes decisions; writes files
above a gigabyte in parts and joins them; checks that every row is counted; and makes ledger, means, metrics and report.

A shard that decides writes its verdicts with ``VerdictWriter``, slice after slice in the order of ``plan.rows.slices``:

    with VerdictWriter(out) as verdicts:
        for piece in self.slices:
            verdicts.add(piece, keep, "unusual_length", evidence={"score_r": distance}, attributes={"length": table})
    return ShardResult(Ledger(), verdicts.data())

A stage that learns more than verdicts returns a subclass of ``Findings``. Shards for its report are yielded by
``summarise``, beside the writing; ``data`` returns what the manifest says. A verdict with a ``Rewrite`` also changes
the texts of rows that stay.
"""

from pairmill.engine.options import RowConfig
from pairmill.rowstage.rows import Block, Rows, Slice, Task
from pairmill.rowstage.stage import RowPlan, RowStage, ShardRounds
from pairmill.rowstage.verdicts import Findings, Judged, RemovedRows, Rewrite, Verdict, VerdictWriter

__all__ = [
    "Block",
    "Findings",
    "Judged",
    "RemovedRows",
    "Rewrite",
    "RowConfig",
    "RowPlan",
    "RowStage",
    "Rows",
    "ShardRounds",
    "Slice",
    "Task",
    "Verdict",
    "VerdictWriter",
]
