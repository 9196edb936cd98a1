"""Where a plan's rows are in the sampled arrays, and how large the arrays are.

``compact`` holds the tokens of sampled rows only, data set by data set in row order, instruction before response, in
the smallest types. ``data_io`` holds every token at its place, in the reference's types. Both hold the same rows at the
same position of the same epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.formats.tokens import BYTES, INDEX, Ints, narrowest
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.plan import SamplePlan

_HEADER = 128
"""Bytes of the header of a one-dimensional ``.npy``."""
CHUNK_TOKENS = 1 << 19
"""Tokens that a thread puts together at a time: memory does not grow with the data sets."""
_ROWS = 1 << 15
"""Rows of the index that are laid out at a time."""


def token_dtype(vocab_size: object, layout: OutputFormat) -> np.dtype[Any]:
    """Return the smallest dtype for ids below ``vocab_size``; data_io tests the size itself, so 65,536 needs int32."""
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        return np.dtype(np.int32)
    largest = vocab_size if layout == "data_io" else vocab_size - 1
    if largest <= 0xFF:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if largest <= 0xFFFF else np.dtype(np.int32)


@dataclass(frozen=True)
class TokenSpans:
    """Part of the sampled tokens: spans of one data set (by number), laid out one after another from ``start`` on."""

    dataset: int
    start: int
    starts: Ints
    lengths: Ints

    @property
    def size(self) -> int:
        return int(self.lengths.sum())


class ArrayLayout:
    """A plan in an output format.

    Args:
        plan: what to lay out.
        layout: the format.
        vocab_size: of ``tokenizer_info.json``; anything but an integer means unknown.

    Attributes:
        dtype: of the tokens.
        length: number of tokens.
        dtypes: of the index arrays, and of the bytes of responses if the plan has them.
        datasets: how many data sets have tokens in it.
    """

    def __init__(self, plan: SamplePlan, layout: OutputFormat, vocab_size: object) -> None:
        self._plan = plan
        self._compact = layout == "compact"
        self.dtype = token_dtype(vocab_size, layout)
        rows, lengths = ([getattr(item, name) for item in plan.datasets] for name in ("rows", "length"))
        if self._compact:
            inst_len, resp_len = plan.rows["inst_len"].array(), plan.rows["resp_len"].array()
            ends = np.add(inst_len, resp_len, dtype=np.int64)
            np.cumsum(ends, out=ends)
            self.length = int(ends[-1]) if len(ends) else 0
            ends -= resp_len
            ends -= inst_len
            self._start = ends.astype(narrowest(self.length), copy=False)
            longest = max(plan.rows["inst_len"].max, plan.rows["resp_len"].max)
            kinds = [narrowest(self.length), narrowest(longest)] * 2
        else:
            self.length = sum(lengths)
            self._start = np.repeat(np.cumsum([0, *lengths], dtype=np.int64)[:-1], rows)
            kinds = [np.dtype(np.int64)] * 4
        self.dtypes = dict(zip(INDEX, kinds, strict=True))
        if BYTES in plan.rows:
            self.dtypes[BYTES] = narrowest(plan.rows[BYTES].max)
        self.datasets = sum(count > 0 for count in (rows if self._compact else lengths))

    def sizes(self) -> list[int]:
        """Return the bytes of the files of tokens and epochs."""
        widths = [dtype.itemsize for dtype in self.dtypes.values()]
        index = [_HEADER + len(epoch) * width for epoch in self._plan.epochs for width in widths]
        return [_HEADER + self.length * self.dtype.itemsize, *index]

    def index(self, epoch: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the arrays of an epoch in training order, some rows at a time."""
        rows = {name: column.array() for name, column in self._plan.rows.items()}
        for piece in self._plan.epochs[epoch].pieces(_ROWS):
            places = piece.astype(np.intp)
            start = self._start.take(places)
            result = {name: rows[name].take(places) for name in ("inst_len", "resp_len", BYTES) if name in rows}
            if self._compact:
                result |= {"inst_start": start, "resp_start": start + result["inst_len"]}
            else:
                result |= {part: start + rows[part].take(places) for part in ("inst_start", "resp_start")}
            yield {name: result[name].astype(dtype, copy=False) for name, dtype in self.dtypes.items()}

    def chunks(self, max_gap: int) -> Iterator[TokenSpans]:
        """Yield the tokens in order, in chunks that read about ``CHUNK_TOKENS`` tokens with gaps of ``max_gap``."""
        start = first = 0
        for number, dataset in enumerate(self._plan.datasets):
            parts = self._sampled(first, first + dataset.rows, max_gap) if self._compact else _all(dataset.length)
            first += dataset.rows
            for starts, lengths in parts:
                spans = TokenSpans(number, start, starts, lengths)
                start += spans.size
                yield spans

    def _sampled(self, first: int, end: int, max_gap: int) -> Iterator[tuple[Ints, Ints]]:
        for begin in range(first, end, _ROWS):
            rows = slice(begin, min(begin + _ROWS, end))
            columns = [self._plan.rows[name].array()[rows].astype(np.int64) for name in INDEX]
            # Instruction and response of each row; in pairmill's own folders they are adjacent.
            starts = np.column_stack([columns[0], columns[2]]).ravel()
            lengths = np.column_stack([columns[1], columns[3]]).ravel()
            near = starts.copy()
            # Pieces of one row have one instruction span: reading goes on where the piece before ends.
            again = 2 * (np.flatnonzero(np.diff(columns[0]) == 0) + 1)
            near[again] = starts[again - 1] + lengths[again - 1]
            edges = np.flatnonzero(np.diff(tokens_read(near, lengths, max_gap) // CHUNK_TOKENS)) + 1
            for low, high in zip([0, *edges], [*edges, len(starts)], strict=True):
                yield starts[low:high], lengths[low:high]


def tokens_read(starts: Ints, lengths: Ints, max_gap: int) -> Ints:
    """Count the tokens read up to the end of each span, including gaps of at most ``max_gap`` tokens; int64."""
    gaps = np.zeros(len(starts), np.int64)
    gaps[1:] = starts[1:] - (starts[:-1] + lengths[:-1])
    return np.cumsum(lengths + np.where((gaps > 0) & (gaps <= max_gap), gaps, 0))


def _all(length: int) -> Iterator[tuple[Ints, Ints]]:
    for first in range(0, length, CHUNK_TOKENS):
        yield np.array([first], np.int64), np.array([min(CHUNK_TOKENS, length - first)], np.int64)
