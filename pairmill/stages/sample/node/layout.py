"""Where a plan's rows are in the sampled arrays, and how large the arrays are.

``compact`` holds the tokens of sampled rows only, data set by data set in row order, instruction before response, in
the smallest types. ``data_io`` holds every token at its place, in the reference's types. ``reference`` holds no token:
its rows are at their places in the data sets' own files, one file after another. All hold the same rows at the same
position of the same epoch. A plan that adds to another, or extends it with rows, has in ``compact`` a file of tokens
for each of the plans that it is made of; one after another they are what the file would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill._native import RowTable
from pairmill.formats.tokens import BYTES, INDEX, Ints, narrowest
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.node.plan_arrays import HEADER_BYTES

ROWS: Final = 1 << 17
"""Rows of the plan that are looked at together."""
ROW_BYTES: Final = 5
ROW_BYTES_APART: Final = 10
_ROW_BYTES_BACK: Final = 24
"""Memory that the place of a row takes: where rows follow each other, where they lie apart, and where some lie before
those that they come after. It is 24 too in folders of others whose responses do not follow their instructions."""
TABLE: Final = 256 << 20
"""Memory of places beyond which a new plan's rows are looked up part by part: its arrays are in files, as those are."""


def token_file(number: int) -> str:
    """Return the name of a file of tokens: the first has that of all, others follow it in a sample with added tasks."""
    return f"tokens_{number}.npy" if number else "tokens.npy"


def token_dtype(vocab_size: object, layout: OutputFormat) -> np.dtype[Any]:
    """Return the smallest dtype for ids below ``vocab_size``; data_io tests the size itself, so 65,536 needs int32."""
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        return np.dtype(np.int32)
    largest = vocab_size if layout == "data_io" else vocab_size - 1
    if largest <= 0xFF:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if largest <= 0xFFFF else np.dtype(np.int32)


def index_dtypes(tokens: int, longest: int) -> list[np.dtype[Any]]:
    """Return the types of the index arrays over a number of tokens, and texts of at most ``longest``."""
    return [narrowest(tokens), narrowest(longest)] * 2


class RowPiece(NamedTuple):
    """Some rows of a plan, in its order.

    Attributes:
        datasets: numbers of the data sets that they are of, ascending.
        counts: how many are of each.
        columns: the four index arrays, which point into the data set's own tokens; [rows].
    """

    datasets: list[int]
    counts: list[int]
    columns: tuple[NDArray[Any], ...]


def row_pieces(plan: SamplePlan) -> Iterator[RowPiece]:
    """Yield all rows of a plan, some at a time."""
    ends = np.cumsum([0, *(dataset.rows for dataset in plan.datasets)])
    first = 0
    for columns in zip(*(plan.rows[name].pieces(ROWS) for name in INDEX), strict=True):
        after = first + len(columns[0])
        low, high = int(np.searchsorted(ends, first, "right")) - 1, int(np.searchsorted(ends, after, "left"))
        counts = np.diff(np.clip(ends[low : high + 1], first, after))
        some = np.flatnonzero(counts)
        yield RowPiece((some + low).tolist(), counts[some].tolist(), columns)
        first = after


@dataclass
class CopiedTokens:
    """Tokens that are copied to one file.

    Attributes:
        plan: whose data sets they are of.
        dtype: of the tokens in the file.
        pieces: yields what is copied, in order.
        datasets: how many have tokens in it.
    """

    name: str
    plan: SamplePlan
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterator[RowPiece]]
    datasets: int

    @classmethod
    def from_rows(cls, number: int, plan: SamplePlan, dtype: np.dtype[Any]) -> CopiedTokens:
        """Copy the tokens of sampled rows; ``number`` is that of the file."""
        count = sum(item.rows > 0 for item in plan.datasets)
        return cls(token_file(number), plan, dtype, partial(row_pieces, plan), count)

    @cached_property
    def length(self) -> int:
        """How many they are: the lengths of all rows are read for it."""
        return sum(int(piece.columns[1].sum() + piece.columns[3].sum()) for piece in self.pieces())


class ArrayLayout:
    """A plan in an output format.

    Args:
        plan: what to lay out.
        layout: the format.
        vocab_size: of ``tokenizer_info.json``; anything but an integer means unknown.

    Attributes:
        plan: as given.
        dtype: of the tokens.
        length: number of tokens.
        table: where each row is in them; None if they take too much memory at once.
        rows: of the plan.
        scratch: the folder of the plan's own files; None if it is in memory.
        dtypes: of the index arrays, and of the bytes of responses if the plan has them.
        is_compact: whether only tokens of sampled rows are in it.
        has_tokens: whether any are.
    """

    def __init__(self, plan: SamplePlan, layout: OutputFormat, vocab_size: object) -> None:
        self.plan = plan
        self.is_compact, self.has_tokens = layout == "compact", layout != "reference"
        self.dtype = token_dtype(vocab_size, layout)
        self.rows, self.scratch = sum(item.rows for item in plan.datasets), plan.rows[INDEX[0]].folder
        begins: dict[str, int] = {}
        end, self._lengths = 0, list[int]()
        for item in plan.datasets:
            # One whose rows were added to comes again, and has its tokens once.
            self._lengths.append(0 if item.name in begins else item.length)
            begins.setdefault(item.name, end)
            end += self._lengths[-1]
        self._begins = [begins[item.name] for item in plan.datasets]
        per_row = ROW_BYTES if self.is_compact else ROW_BYTES_APART
        if not self.is_compact and len(begins) < len(plan.datasets):
            per_row = _ROW_BYTES_BACK
        # Of a plan in memory one table has them all.
        most = self.rows + ROWS if self.scratch is None else TABLE // per_row
        self._at_once = max(most // ROWS, 1) * ROWS
        total, longest = 0, 0
        for piece in row_pieces(plan):
            for column in piece.columns[1::2]:
                total, longest = total + int(column.sum(dtype=np.int64)), max(longest, int(column.max()))
        self.length = total if self.is_compact else end
        self.table = next(self._tables()) if self.rows <= self._at_once else None
        kinds = index_dtypes(self.length, longest)
        if layout == "data_io":
            kinds = [np.dtype(np.int64)] * 4
        self.dtypes = dict(zip(INDEX, kinds, strict=True))
        if BYTES in plan.rows:
            self.dtypes[BYTES] = narrowest(plan.rows[BYTES].max)

    def tables(self) -> Iterator[RowTable]:
        """Yield where rows are, a table for each part of them; together those of all."""
        return self._tables() if self.table is None else iter([self.table])

    def _tables(self) -> Iterator[RowTable]:
        first, tokens = 0, 0 if self.is_compact else None
        table = RowTable(min(self._at_once, self.rows), first, tokens)
        for piece in row_pieces(self.plan):
            if table.after == first + self._at_once:
                yield table
                first, tokens = first + self._at_once, table.total if self.is_compact else None
                table = RowTable(min(self._at_once, self.rows - first), first, tokens)
            self._add(table, piece)
        yield table

    def _add(self, table: RowTable, piece: RowPiece) -> None:
        if self.is_compact:
            table.add(0, *piece.columns)
            return
        first = 0
        for number, count in zip(piece.datasets, piece.counts, strict=True):
            table.add(self._begins[number], *(column[first : first + count] for column in piece.columns))
            first += count

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the files of tokens and epochs, by path."""
        sizes = {
            f"epoch_{number}/{name}.npy": HEADER_BYTES + len(epoch) * dtype.itemsize
            for number, epoch in enumerate(self.plan.epochs)
            for name, dtype in self.dtypes.items()
        }
        return sizes | {item.name: HEADER_BYTES + item.length * self.dtype.itemsize for item in self.copied}

    @cached_property
    def copied(self) -> list[CopiedTokens]:
        """The files that tokens are copied to: none, one, or one for each plan that this one is made of."""
        if self.is_compact and self.plan.parts:
            return [CopiedTokens.from_rows(number, part, self.dtype) for number, part in enumerate(self.plan.parts)]
        if not self.has_tokens:
            return []
        whole = CopiedTokens.from_rows(0, self.plan, self.dtype)
        if not self.is_compact:
            count = sum(map(bool, self._lengths))
            whole = CopiedTokens(whole.name, self.plan, self.dtype, self._every_token, count)
        whole.length = self.length
        return [whole]

    def _every_token(self) -> Iterator[RowPiece]:
        lengths = np.array(self._lengths, np.int64)
        zeros, some = np.zeros(ROWS, np.int64), np.flatnonzero(lengths)
        # As if each data set were one row, with an instruction alone.
        for first in range(0, len(some), ROWS):
            part = some[first : first + ROWS]
            none = zeros[: len(part)]
            yield RowPiece(part.tolist(), [1] * len(part), (none, lengths[part], none, none))


def spans_of(piece: RowPiece, rows: slice) -> tuple[Ints, Ints]:
    """Return the spans of some rows: instruction and response of each, in order."""
    columns = [column[rows].astype(np.int64) for column in piece.columns]
    starts = np.column_stack([columns[0], columns[2]]).ravel()
    return starts, np.column_stack([columns[1], columns[3]]).ravel()


def tokens_read(starts: Ints, lengths: Ints, max_gap: int) -> Ints:
    """Count the tokens read up to the end of each span, including gaps of at most ``max_gap`` tokens; int64."""
    gaps = np.zeros(len(starts), np.int64)
    gaps[1:] = starts[1:] - (starts[:-1] + lengths[:-1])
    return np.cumsum(lengths + np.where((gaps > 0) & (gaps <= max_gap), gaps, 0))
