"""Where a plan's rows stand in the sampled arrays, and what the arrays take.

``compact`` keeps the tokens of sampled rows only, task by task in row order, instruction before response, in the
smallest types. ``data_io`` keeps every token in its place, in the reference's types. Either holds the same rows at the
same position of the same epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample import config as options
from components.sample.plan import Plan, Source
from components.sample.row_filter import narrowest
from pairmill.formats.tokens import INDEX, Ints

_HEADER = 128
"""Bytes of the header of a one-dimensional ``.npy``."""
PIECE = 1 << 19
"""Tokens that one thread puts together at a time: memory does not follow the tasks."""


def token_dtype(vocab_size: object, layout: options.Layout) -> np.dtype[Any]:
    """The smallest dtype for ids below ``vocab_size``; data_io compares the size itself, so 65,536 costs four bytes."""
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        return np.dtype(np.int32)
    largest = vocab_size if layout == "data_io" else vocab_size - 1
    if largest <= 0xFF:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if largest <= 0xFFFF else np.dtype(np.int32)


@dataclass(frozen=True)
class Piece:
    """A stretch of the sampled tokens: spans of one task (int64), one after another from ``start`` on."""

    source: int
    """Number of the task."""
    start: int
    starts: Ints
    lengths: Ints

    @property
    def size(self) -> int:
        """Tokens."""
        return int(self.lengths.sum())


class Arrangement:
    """A plan in a layout.

    Args:
        plan: what to lay out.
        layout: how.
        vocab_size: of ``tokenizer_info.json``; anything but an integer stands for an unknown one.
    """

    def __init__(self, plan: Plan, layout: options.Layout, vocab_size: object) -> None:
        self._plan = plan
        self._compact = layout == "compact"
        self.dtype = token_dtype(vocab_size, layout)
        inst_len, resp_len = plan.rows["inst_len"], plan.rows["resp_len"]
        counts = [source.rows for source in plan.sources]
        if self._compact:
            ends = np.add(inst_len, resp_len, dtype=np.int64)
            np.cumsum(ends, out=ends)
            self.length = int(ends[-1]) if len(ends) else 0
            ends -= resp_len
            ends -= inst_len
            self._start = ends.astype(narrowest(self.length), copy=False)
            longest = int(max(inst_len.max(initial=0), resp_len.max(initial=0)))
            self._dtypes = dict(zip(INDEX, [narrowest(self.length), narrowest(longest)] * 2, strict=True))
        else:
            lengths = [source.length for source in plan.sources]
            self.length = sum(lengths)
            base = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
            self._start = np.repeat(base, counts)
            self._dtypes = dict.fromkeys(INDEX, np.dtype(np.int64))

    def sizes(self) -> list[int]:
        """Bytes of the files of tokens and epochs."""
        rows = [len(epoch) for epoch in self._plan.epochs]
        index = [_HEADER + count * dtype.itemsize for count in rows for dtype in self._dtypes.values()]
        return [_HEADER + self.length * self.dtype.itemsize, *index]

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Of the four index arrays."""
        return self._dtypes

    def index(self, epoch: int, size: int = 1 << 15) -> Iterator[dict[str, NDArray[Any]]]:
        """The four index arrays of an epoch in training order, ``size`` rows at a time."""
        order, rows = self._plan.epochs[epoch], self._plan.rows
        for first in range(0, len(order), size):
            places = order[first : first + size].astype(np.intp)
            start = self._start.take(places)
            found = {"inst_len": rows["inst_len"].take(places), "resp_len": rows["resp_len"].take(places)}
            if self._compact:
                found |= {"inst_start": start, "resp_start": start + found["inst_len"]}
            else:
                found |= {part: start + rows[part].take(places) for part in ("inst_start", "resp_start")}
            yield {name: found[name].astype(dtype, copy=False) for name, dtype in self._dtypes.items()}

    @property
    def tasks(self) -> int:
        """How many tasks have tokens in it."""
        return sum((source.rows if self._compact else source.length) > 0 for source in self._plan.sources)

    def pieces(self, apart: int) -> Iterator[Piece]:
        """The tokens in order.

        Args:
            apart: tokens between two spans that are rather read than passed over; what a piece reads stays below about
                ``PIECE`` tokens.
        """
        start = first = 0
        for number, source in enumerate(self._plan.sources):
            cuts = self._sampled(first, first + source.rows, apart) if self._compact else _whole(source)
            first += source.rows
            for starts, lengths in cuts:
                piece = Piece(number, start, starts, lengths)
                start += piece.size
                yield piece

    def _sampled(self, first: int, end: int, apart: int, size: int = 1 << 15) -> Iterator[tuple[Ints, Ints]]:
        for begin in range(first, end, size):
            rows = slice(begin, min(begin + size, end))
            columns = [self._plan.rows[name][rows].astype(np.int64) for name in INDEX]
            # Row by row instruction and response, which in pairmill's own folders follow each other.
            starts = np.column_stack([columns[0], columns[2]]).ravel()
            lengths = np.column_stack([columns[1], columns[3]]).ravel()
            edges = np.flatnonzero(np.diff(reading(starts, lengths, apart) // PIECE)) + 1
            for low, high in zip([0, *edges], [*edges, len(starts)], strict=True):
                yield starts[low:high], lengths[low:high]


def reading(starts: Ints, lengths: Ints, apart: int) -> Ints:
    """Tokens that are read up to the end of each span, gaps of at most ``apart`` among them; int64."""
    between = np.zeros(len(starts), np.int64)
    between[1:] = starts[1:] - (starts[:-1] + lengths[:-1])
    return np.cumsum(lengths + np.where((between > 0) & (between <= apart), between, 0))


def _whole(source: Source) -> Iterator[tuple[Ints, Ints]]:
    for first in range(0, source.length, PIECE):
        yield np.array([first], np.int64), np.array([min(PIECE, source.length - first)], np.int64)
