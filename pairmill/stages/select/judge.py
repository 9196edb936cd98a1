"""Verdicts on rows: which go and by which rule, and the scores of all as attributes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import attributes
from pairmill.rowstage import Block, Judged, VerdictWriter
from pairmill.stages.select import arrays
from pairmill.stages.select.choose import OUTSIDE
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.rankings import GROUP, LOG_WEIGHTS, PASSES, SCORE, TOKENS, KeyRule, Scored, ScoredRows

OPERATION: Final = "select"
_ROWS: Final = 1 << 14
"""Rows judged at once: a file of lines is one slice, however many rows it has."""
RULES: Final = ("no_candidate", "not_best", "out_of_bounds")
"""Why a row is not chosen: it is outside the bounds of ``attributes.where``; its key is below those taken of its group;
it was taken by its key, but is outside the bounds."""


@dataclass(frozen=True)
class JudgeRows(Shard[object], reads=()):
    """Writes the verdicts on the slices of a block.

    Args:
        scored: record of ScoreRows.
        codes: what took each row.
        groups: moments by group; the names of groups are read.
        moments: of log weights by group; None but of hybrid.
        rule: makes keys.
        rankings: their names.
        targets: the names of log weights.
        filters_last: whether rows outside of bounds were candidates.
        reason: in the ledger.
        report: whether rows that are not chosen stay.
    """

    block: Block
    scored: ShardRecord
    codes: ShardFile
    groups: ShardFile
    moments: ShardFile | None
    rule: KeyRule
    rankings: tuple[str, ...]
    targets: tuple[str, ...]
    filters_last: bool
    reason: str
    report: bool

    def run(self, context: object, out: Writer) -> ShardResult:
        files, stop = arrays.files_of(self.scored), 0
        names = Moments.load(self.groups).names
        with VerdictWriter(out, report=self.report) as verdicts:
            for piece, count in zip(self.block.slices, self.scored.read(Scored).counts, strict=True):
                start, stop = stop, stop + count
                rows = ScoredRows(files, start, stop)
                verdicts.add_parts(piece, (self._judge(some, names) for some in [*rows.cut(_ROWS)] or [rows]))
        return ShardResult(Ledger(), verdicts.data())

    def _judge(self, rows: ScoredRows, names: list[str]) -> Judged:
        codes = arrays.load_rows(self.codes.uri, rows.start, rows.stop)
        passes = rows.load(PASSES)
        candidate = np.ones(len(rows), np.bool_) if passes is None or self.filters_last else passes
        chosen = (codes > 0) & (codes < OUTSIDE)
        rule = np.where(codes == OUTSIDE, 2, np.where(candidate, 1, 0))[~chosen]
        columns = dict(self._attributes(rows, codes, candidate, names))
        table = pa.table(columns).cast(attributes.schema_of({name: _type_of(name) for name in columns}))
        evidence = {"rule": pa.array(RULES).take(pa.array(rule))}
        return Judged(chosen, self.reason, evidence, {OPERATION: table})

    def _attributes(
        self, rows: ScoredRows, codes: NDArray[np.uint8], candidate: NDArray[np.bool_], names: list[str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the columns of attributes; those of what the method does not use are absent."""
        weights, score, group, tokens = (rows.load(path) for path in (LOG_WEIGHTS, SCORE, GROUP, TOKENS))
        if weights is not None:
            yield from ((f"log_weight_{name}", line) for name, line in zip(self.targets, weights, strict=True))
        if score is not None:
            yield "score", score
        moments = Moments.load(self.moments) if self.moments is not None else None
        for number, name in enumerate(self.rankings):
            keys = self.rule.keys(self.rule.values(rows, number, moments), rows, number)
            yield f"key_{name}", pa.array(keys, mask=~candidate)
        if group is not None:
            yield "group", pa.array(names).take(pa.array(group))
        if tokens is not None:
            yield "tokens", tokens
        taken = codes.astype(np.int64) - 1
        yield "chosen_by", pa.array(self.rankings).take(pa.array(taken, mask=(taken < 0) | (codes == OUTSIDE)))


def _type_of(column: str) -> str:
    return {"group": "text", "chosen_by": "text", "tokens": "integer"}.get(column, "number")
