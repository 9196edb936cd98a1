"""What is said of each row of a task: its scores as attributes, and why it was not chosen as a decision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.select.choose import by_group
from components.select.columns import joined
from components.select.keys import path_of
from components.select.kl import chosen_path
from components.select.score import CANDIDATE, GROUP, LOG_WEIGHTS, SCORE, TOKENS, Scored
from components.select.shapes import OUTSIDE, ByGroup, Span
from pairmill import storage
from pairmill.engine.stage import ShardRecord
from pairmill.formats import attributes, decisions
from pairmill.formats.rows import BATCH_ROWS

OPERATION: Final = "select"
NO_CANDIDATE: Final = "no_candidate"
NOT_BEST: Final = "not_best"
OUT_OF_BOUNDS: Final = "out_of_bounds"
RULES: Final = {
    NO_CANDIDATE: "outside the bounds of attributes.where",
    NOT_BEST: "its key is below that of every row taken, of its group",
    OUT_OF_BOUNDS: "taken by its key, but outside the bounds of attributes.where",
}
"""Why a row is not chosen."""
_DIGITS: Final = 6
_ROWS: Final = 1 << 18
"""Rows of which all is held together."""


@dataclass(frozen=True)
class Rows:
    """Where the arrays of consecutive rows are. Records of shards would be too much for each of very many tasks.

    Args:
        span: of the rows.
        chosen: URI of what choose says of the block.
        scored: URI of the folder with what ScoreRows made of the block.
        keyed: URI of the folder with its keys.
        files: names of the files of ``scored``.
    """

    span: Span
    chosen: str
    scored: str
    keyed: str
    files: tuple[str, ...]

    @classmethod
    def of(cls, span: Span, chosen: ShardRecord, scored: ShardRecord, keyed: ShardRecord) -> Rows:
        """Those of a span, given the record of choose and those of its block."""
        files = tuple(scored.read(Scored).files)
        return cls(span, chosen.uri(chosen_path(span.block)), scored.folder, keyed.folder, files)

    def has(self, path: str) -> bool:
        """Whether ScoreRows made this file."""
        return path in self.files

    def array(self, path: str) -> NDArray[Any]:
        """Of each row what a file says; of log weights [targets, rows]."""
        return self._cut(storage.join(self.scored if path in self.files else self.keyed, path))

    def pieces(self) -> Iterator[Rows]:
        """The same rows, some at a time: a file of lines is one span, however many rows it has."""
        span = self.span
        for start in range(span.start, span.stop, _ROWS):
            stop = min(start + _ROWS, span.stop)
            yield replace(self, span=Span(span.block, start, stop, span.first + start - span.start))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """What choose says of each row."""
        return self._cut(self.chosen)

    @property
    def candidate(self) -> NDArray[np.bool_]:
        """Whether each row can be chosen."""
        if self.has(CANDIDATE):
            return self.array(CANDIDATE)
        return np.ones(self.span.stop - self.span.start, np.bool_)

    def _cut(self, uri: str) -> NDArray[Any]:
        with storage.store_for(uri).open(uri) as file:
            assert np.lib.format.read_magic(file) == (1, 0), uri
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            head, rows = file.tell(), self.span.stop - self.span.start
            found: NDArray[Any] = np.empty((math.prod(shape[:-1]), rows), kind)
            for line, into in enumerate(found):
                file.seek(head + (line * shape[-1] + self.span.start) * kind.itemsize)
                into[:] = np.frombuffer(file.read(rows * kind.itemsize), kind)
        return found.reshape(*shape[:-1], rows)


@dataclass(frozen=True)
class Findings:
    """What is known of the rows of a task.

    Args:
        parts: its rows, in order.
        groups: URI of what was taken of each group.
        rankings: their names.
        targets: the names of log weights.
    """

    parts: Sequence[Rows]
    groups: str
    rankings: Sequence[str]
    targets: Sequence[str]

    def _pieces(self) -> Iterator[Rows]:
        return (piece for one in self.parts for piece in one.pieces())

    def codes(self) -> NDArray[np.uint8]:
        """What choose says of each row; uint8 [rows]."""
        return np.concatenate([np.empty(0, np.uint8), *(one.codes for one in self.parts)])

    def types(self) -> dict[str, str]:
        """The columns of attributes."""
        files = self.parts[0].files if self.parts else ()
        found = {f"log_weight_{name}": "number" for name in self.targets if LOG_WEIGHTS in files}
        found |= {"score": "number"} if SCORE in files else {}
        found |= {f"key_{name}": "number" for name in self.rankings}
        found |= {"group": "text"} if GROUP in files else {}
        found |= {"tokens": "integer"} if TOKENS in files else {}
        return {**found, "chosen_by": "text"}

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
        """The attributes of the kept rows of each span."""
        schema, names = attributes.schema_of(types), by_group(self.groups).names
        at = 0
        for block in self._pieces():
            codes = block.codes
            mask = kept[at : at + len(codes)]
            at += len(mask)
            columns: list[Any] = []
            for name in types:
                if name.startswith("log_weight_"):
                    number = self.targets.index(name.removeprefix("log_weight_"))
                    columns.append(pa.array(block.array(LOG_WEIGHTS)[number][mask]))
                elif name.startswith("key_"):
                    keys = block.array(path_of(self.rankings.index(name.removeprefix("key_"))))[mask]
                    columns.append(pa.array(keys, mask=np.isnan(keys)))
                elif name == "group":
                    columns.append(pa.array(names).take(pa.array(block.array(GROUP)[mask])))
                elif name == "chosen_by":
                    taken = codes[mask].astype(np.int64) - 1
                    gone = (taken < 0) | (taken == OUTSIDE - 1)
                    columns.append(pa.array(list(self.rankings)).take(pa.array(taken, mask=gone)))
                else:
                    columns.append(pa.array(block.array(SCORE if name == "score" else TOKENS)[mask]))
            yield pa.table([one.cast(field.type) for one, field in zip(columns, schema, strict=True)], schema)

    def write_decisions(self, action: str, local: Path) -> None:
        """Write why rows are not chosen, by their number in the file, in row groups that follow from the rows alone."""
        held: list[pa.Table] = []
        count, groups = 0, by_group(self.groups)
        with pq.ParquetWriter(local, decisions.SCHEMA, compression="zstd", version="2.6") as writer:

            def flush(most: int) -> None:
                nonlocal held, count
                table = pa.concat_tables(held).combine_chunks()
                some = table.slice(0, most)
                columns = {name: joined(some[name]) for name in some.column_names}
                columns["action"] = pa.array([action]).take(pa.array(np.zeros(len(some), np.int64)))
                writer.write_table(decisions.table_of(columns, len(some)))
                held, count = [table.slice(most)], max(0, count - most)

            for block in self._pieces():
                codes = block.codes
                gone = np.flatnonzero((codes == 0) | (codes == OUTSIDE))
                ordinals = pa.array((gone + block.span.first).astype(np.uint32))
                columns = [ordinals, self._rules(block, gone), self._details(block, gone, groups)]
                held.append(pa.table(columns, ["ordinal", "rule", "detail"]))
                count += len(gone)
                while count >= BATCH_ROWS:
                    flush(BATCH_ROWS)
            if count:
                flush(count)

    def _rules(self, block: Rows, gone: NDArray[np.int64]) -> pa.Array:
        place = np.where(block.codes[gone] == OUTSIDE, 2, np.where(block.candidate[gone], 1, 0))
        return pa.array([NO_CANDIDATE, NOT_BEST, OUT_OF_BOUNDS]).take(pa.array(place))

    def _details(self, block: Rows, gone: NDArray[np.int64], groups: ByGroup) -> pa.Array:
        """Of each ranking the row's key and the least key taken from its group; null for a row that has none."""
        group = block.array(GROUP)[gone] if block.has(GROUP) else np.zeros(len(gone), np.int64)
        parts = []
        for number, name in enumerate(self.rankings):
            keys = pa.array(block.array(path_of(number))[gone])
            least = pa.array([_shown(one) for one in groups.thresholds[number]], pa.string()).take(pa.array(group))
            said = pc.round(keys, _DIGITS).cast(pa.string())
            parts.append(pc.binary_join_element_wise(f"{name}: key ", said, ", least taken ", least, ""))
        made = pc.binary_join_element_wise(*parts, "; ") if len(parts) > 1 else parts[0]
        if len(groups.names) > 1:
            names = pa.array(groups.names).take(pa.array(group))
            made = pc.binary_join_element_wise("group ", names, "; ", made, "")
        hidden = ~block.candidate[gone] | (block.codes[gone] == OUTSIDE)
        return pc.if_else(pa.array(hidden), pa.scalar(None, pa.string()), made)


def _shown(key: float | None) -> str:
    return "none" if key is None else str(round(key, _DIGITS))
