"""What is written beside rows: their scores as attributes, and the rule by which others were not chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill.engine.stage import ShardFile
from pairmill.formats import attributes, decisions
from pairmill.formats.rows import BATCH_ROWS
from pairmill.stages.select import arrays
from pairmill.stages.select.choose import OUTSIDE
from pairmill.stages.select.columns import joined
from pairmill.stages.select.model import load_moments
from pairmill.stages.select.rankings import GROUP, LOG_WEIGHTS, PASSES, SCORE, TOKENS, KeyRule, ScoredRows

OPERATION: Final = "select"
NO_CANDIDATE: Final = "no_candidate"
NOT_BEST: Final = "not_best"
OUT_OF_BOUNDS: Final = "out_of_bounds"
_ROWS: Final = 1 << 18
"""Rows of which all is held together."""


@dataclass(frozen=True)
class Span:
    """Rows of a task that are in one block.

    Args:
        scored: their arrays.
        chosen: the codes of the block's rows.
        first: number of the first row in the task.
    """

    scored: ScoredRows
    chosen: ShardFile
    first: int

    def cut(self, most: int = _ROWS) -> Iterator[Span]:
        """Yield the same rows, some at a time: a file of lines is one span, however many rows it has."""
        for piece in self.scored.cut(most):
            yield Span(piece, self.chosen, self.first + piece.start - self.scored.start)

    def codes(self) -> NDArray[np.uint8]:
        """Read what took each row."""
        return arrays.load_rows(self.chosen.uri, self.scored.start, self.scored.stop)


@dataclass(frozen=True)
class Findings:
    """What is known of the rows of a task.

    Args:
        spans: its rows, in order.
        groups: moments by group; the names of groups are read.
        moments: of log weights by group; None but of hybrid.
        rule: makes keys.
        rankings: their names.
        targets: the names of log weights.
        filters_last: whether rows outside of bounds were candidates.
    """

    spans: tuple[Span, ...]
    groups: ShardFile
    moments: ShardFile | None
    rule: KeyRule
    rankings: tuple[str, ...]
    targets: tuple[str, ...]
    filters_last: bool

    def codes(self) -> NDArray[np.uint8]:
        """Read what took each row; uint8 [rows]."""
        return np.concatenate([np.empty(0, np.uint8), *(span.codes() for span in self.spans)])

    def _pieces(self) -> Iterator[Span]:
        return (piece for span in self.spans for piece in span.cut())

    def types(self) -> dict[str, str]:
        """Return the columns of attributes."""
        files: Mapping[str, ShardFile] = self.spans[0].scored.files if self.spans else {}
        types = {f"log_weight_{name}": "number" for name in self.targets if LOG_WEIGHTS in files}
        types |= {"score": "number"} if SCORE in files else {}
        types |= {f"key_{name}": "number" for name in self.rankings}
        types |= {"group": "text"} if GROUP in files else {}
        types |= {"tokens": "integer"} if TOKENS in files else {}
        return {**types, "chosen_by": "text"}

    def write_attributes(self, kept: NDArray[np.bool_], groups: Sequence[int], local: Path) -> None:
        """Write the attributes of kept rows (bool [rows]) in row groups of these sizes."""
        types = self.types()
        sizes = iter(groups)
        wanted, held, count = next(sizes, 0), list[pa.Table](), 0
        with local.open("wb") as file, attributes.AttributesWriter(file, types) as writer:
            for table in self._tables(types, kept):
                held.append(table)
                count += len(table)
                while wanted and count >= wanted:
                    every = pa.concat_tables(held).combine_chunks()
                    writer.write(every.slice(0, wanted))
                    held, count = [every.slice(wanted)], count - wanted
                    wanted = next(sizes, 0)
        assert not count, "row groups do not add up to the kept rows"

    def _tables(self, types: Mapping[str, str], kept: NDArray[np.bool_]) -> Iterator[pa.Table]:
        """Yield the attributes of the kept rows of each span."""
        schema, names = attributes.schema_of(types), load_moments(self.groups).names
        moments = load_moments(self.moments) if self.moments is not None else None
        at = 0
        for piece in self._pieces():
            codes, rows = piece.codes(), piece.scored
            mask = kept[at : at + len(codes)]
            at += len(mask)
            passes = rows.load(PASSES)
            no_candidate = ~passes if passes is not None and not self.filters_last else np.zeros(len(rows), np.bool_)
            columns: list[Any] = []
            weights = rows.load(LOG_WEIGHTS)
            if weights is not None:
                columns += [pa.array(line[mask]) for line in weights]
            if (score := rows.load(SCORE)) is not None:
                columns.append(pa.array(score[mask]))
            for number in range(len(self.rankings)):
                keys = self.rule.keys(self.rule.values(rows, number, moments), rows, number)
                columns.append(pa.array(keys[mask], mask=no_candidate[mask]))
            if (group := rows.load(GROUP)) is not None:
                columns.append(pa.array(names).take(pa.array(group[mask])))
            if (tokens := rows.load(TOKENS)) is not None:
                columns.append(pa.array(tokens[mask]))
            taken = codes[mask].astype(np.int64) - 1
            gone = (taken < 0) | (taken == OUTSIDE - 1)
            columns.append(pa.array(list(self.rankings)).take(pa.array(taken, mask=gone)))
            yield pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema)

    def write_decisions(self, action: str, local: Path) -> None:
        """Write why rows are not chosen, by their number in the file, in row groups that follow from the rows alone."""
        held: list[pa.Table] = []
        count = 0
        with pq.ParquetWriter(local, decisions.SCHEMA, compression="zstd", version="2.6") as writer:

            def flush(most: int) -> None:
                nonlocal held, count
                table = pa.concat_tables(held).combine_chunks()
                some = table.slice(0, most)
                columns = {name: joined(some[name]) for name in some.column_names}
                columns["action"] = pa.array([action]).take(pa.array(np.zeros(len(some), np.int64)))
                writer.write_table(decisions.table_of(columns, len(some)))
                held, count = [table.slice(most)], max(0, count - most)

            for piece in self._pieces():
                codes, passes = piece.codes(), piece.scored.load(PASSES)
                gone = np.flatnonzero((codes == 0) | (codes == OUTSIDE))
                outside = ~passes if passes is not None and not self.filters_last else np.zeros(len(codes), np.bool_)
                place = np.where(codes == OUTSIDE, 2, np.where(outside, 0, 1))[gone]
                rules = pa.array([NO_CANDIDATE, NOT_BEST, OUT_OF_BOUNDS]).take(pa.array(place))
                held.append(pa.table([pa.array((gone + piece.first).astype(np.uint32)), rules], ["ordinal", "rule"]))
                count += len(gone)
                while count >= BATCH_ROWS:
                    flush(BATCH_ROWS)
            if count:
                flush(count)
