"""``long_context: split``: cuts a row that is longer than the context into consecutive rows. Reads tokens near cuts.

A piece has the row's instruction span, and a slice of its response span. No cut is within a character of UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.content import pinned
from pairmill.errors import InputError
from pairmill.formats.tokens import Array, Ints

NO_CUT = "character_over_context"
"""Why a row that would be split may not be sampled: no piece has room for one of its characters."""
_NEAR = 4
"""Tokens that are looked at first: bytes of the longest character."""
_CODES = {"u": {1: "B", 2: "H", 4: "I", 8: "Q"}, "i": {1: "b", 2: "h", 4: "i", 8: "q"}}


class NoCut(Exception):
    """The context has no room for a piece: ``args[0]`` is the reason to drop the row."""


class Cutter:
    """Finds where responses of a data set may be cut.

    Args:
        tokens: of the data set.
        continuing: for each id whether its token continues a character (:mod:`pairmill.formats.characters`).
        file: of the tokens, open.
    """

    def __init__(self, tokens: Array, continuing: bytes, file: BinaryIO) -> None:
        self.tokens, self.continuing, self.file = tokens, continuing, file
        dtype = tokens.dtype
        self._width = dtype.itemsize
        self._type = (">" if dtype.str.startswith(">") else "<"), _CODES[dtype.kind][dtype.itemsize]
        # Between two cuts is a context. In a bucket a seek costs more than what is between, so that is read too.
        store = storage.store_for(self.tokens.uri)
        self._ahead = 0 if store.file(self.tokens.uri) else store.seek_cost // self._width
        self._block, self._first = b"", 0

    @classmethod
    @contextmanager
    def open(cls, tokens: Array, continuing: bytes) -> Iterator[Cutter]:
        """Open a cutter of the tokens' expected content.

        Raises:
            Changed: the tokens changed meanwhile.
        """
        with pinned(tokens.uri, tokens.content) as file:
            yield cls(tokens, continuing, file)

    def cut(self, start: int, length: int, most: int, least: int) -> list[int]:
        """Return the lengths of the pieces of a response, in order.

        Args:
            start: of the response in the tokens.
            length: of the response, more than ``most``.
            most: tokens of a piece, at least 1.
            least: tokens that the last piece has at least.

        Raises:
            NoCut: no piece can have as many tokens as the last one needs, or a character has more than a piece.
            InputError: a token is outside the vocabulary.
        """
        if most < least:
            raise NoCut("response_too_short_once_cut")
        places = [0]
        while length - places[-1] > most:
            before = self._last_cut(start, places[-1] + 1, places[-1] + most)
            if before is None:
                raise NoCut(NO_CUT)
            places.append(before)
        if length - places[-1] < least:
            # The last piece takes tokens of the one before it.
            first = max(places[-2] + 1, length - most)
            before = self._last_cut(start, first, length - least)
            if before is None:
                raise NoCut("response_too_short_once_cut")
            places[-1] = before
        ends = [*places[1:], length]
        return [end - begin for begin, end in zip(places, ends, strict=True)]

    def _last_cut(self, start: int, first: int, last: int) -> int | None:
        """Return the last of the places from ``first`` to ``last`` where a cut is allowed; ``start`` is place 0."""
        while last >= first:
            begin = max(first, last - _NEAR + 1)
            ids = self._ids(start + begin, start + last + 1)
            for place, token in zip(range(last, begin - 1, -1), reversed(ids), strict=True):
                if not 0 <= token < len(self.continuing):
                    raise InputError(
                        "a token is outside the vocabulary",
                        where=self.tokens.uri,
                        got=str(token),
                        expected=f"below {len(self.continuing)}, the tokens of tokenizer.json",
                        hint="tokenize again",
                    )
                if not self.continuing[token]:
                    return place
            last = begin - 1
        return None

    def _ids(self, begin: int, end: int) -> tuple[int, ...]:
        stop = self._first + len(self._block) // self._width
        if not self._first <= begin < end <= stop:
            # A store reads ahead of a reader that continues where it was.
            self._first = stop if stop <= begin < stop + self._ahead else begin
            size = min(max(end - self._first, self._ahead), self.tokens.length - self._first)
            self._block = self._read(self.tokens.offset + self._first * self._width, size * self._width)
        order, code = self._type
        return struct.unpack_from(f"{order}{end - begin}{code}", self._block, (begin - self._first) * self._width)

    def _read(self, start: int, size: int) -> bytes:
        self.file.seek(start)
        result = bytearray()
        while len(result) < size:
            data = self.file.read(size - len(result))
            if not data:
                raise InputError("ends before its last token", where=self.tokens.uri, hint="tokenize again")
            result += data
        return bytes(result)


class SplitRows(NamedTuple):
    """Rows in pieces.

    Attributes:
        keep: bool [rows], those that are kept.
        rows: int64 [all pieces], the row of each piece, ascending; a row that fits is a piece.
        columns: the four index arrays of the pieces, int64.
        split: int64 [split rows], the rows that are in several pieces.
        pieces: int64 [split rows], how many each of them is in.
        dropped: rows by reason.
    """

    keep: NDArray[np.bool_]
    rows: Ints
    columns: dict[str, Ints]
    split: Ints
    pieces: Ints
    dropped: dict[str, int]


def split_rows(
    chunk: Mapping[str, Ints], keep: NDArray[np.bool_], allowed: Ints, least: int, cutter: Cutter
) -> SplitRows:
    """Cut the responses of the kept rows that are longer than ``allowed``.

    Args:
        chunk: the four index arrays, int64 [rows].
        keep: bool [rows], those that may be sampled; their ``allowed`` is at least 1.
        allowed: int64 [rows], tokens that the context has beside the row's instruction.
        least: tokens that a last piece has at least.
        cutter: finds the places.
    """
    keep, pieces = keep.copy(), np.ones(len(keep), np.int64)
    dropped: dict[str, int] = {}
    made: list[int] = []
    longer = np.flatnonzero(keep & (chunk["resp_len"] > allowed))
    columns = (longer, *(values[longer] for values in (chunk["resp_start"], chunk["resp_len"], allowed)))
    for row, start, length, most in zip(*(column.tolist() for column in columns), strict=True):
        try:
            lengths = cutter.cut(start, length, most, least)
        except NoCut as error:
            keep[row] = False
            dropped[error.args[0]] = dropped.get(error.args[0], 0) + 1
        else:
            pieces[row] = len(lengths)
            made += lengths
    rows = np.repeat(np.flatnonzero(keep), pieces[keep])
    resp_len = chunk["resp_len"][rows]
    resp_len[pieces[rows] > 1] = made
    # Tokens of the pieces before it, of all rows; then without those of the rows before its own.
    before = np.cumsum(resp_len) - resp_len
    before -= np.repeat(before[np.diff(rows, prepend=-1) > 0], pieces[keep])
    result = {
        "inst_start": chunk["inst_start"][rows],
        "inst_len": chunk["inst_len"][rows],
        "resp_start": chunk["resp_start"][rows] + before,
        "resp_len": resp_len,
    }
    split = np.flatnonzero(keep & (pieces > 1))
    return SplitRows(keep, rows, result, split, pieces[split], dropped)
