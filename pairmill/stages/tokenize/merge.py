"""The second round of tokenize: the arrays of a file's pieces become those of its task, in the file's order.

Starts are moved by the tokens before them. All else is joined as it is: a store that can does it by itself.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.chats.long_rows import ANSWER_SPLIT
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import tokens, window_files
from pairmill.storage.base import Span, map_ahead

_READ: Final = 4
"""Arrays of pieces that are read ahead: a store takes as long for each as for all."""


def has_other_rows(record: ShardRecord) -> bool:
    """Return whether the rows with tokens are others than those of the row file; token files have no such rows."""
    changed = bool(record.ledger.dropped or record.ledger.notes.get(ANSWER_SPLIT))
    return changed and any(file.path == f"{tokens.ROWS}.npy" for file in record.files)


def joined_spans(piece: ShardRecord) -> dict[str, Span]:
    """Return what is joined of a piece's files as it is, by path."""
    return {
        file.path: Span(piece.file(file.path).uri, tokens.HEAD, file.size)
        for file in piece.files
        if file.size > tokens.HEAD and not file.path.endswith("_start.npy")
    }


@dataclass(frozen=True)
class MergeArrays(Shard[object], reads=()):
    """Makes the arrays of a task from those of its pieces, in order."""

    work = "join parts of files"

    pieces: tuple[ShardRecord, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        measures = [piece.ledger.measures for piece in self.pieces]
        # A sample gives several rows. Held-out rows are kept, and no later stage counts them.
        rows = sum(piece.ledger.rows_out or piece.ledger.rows_kept for piece in self.pieces)
        lengths = dict.fromkeys(tokens.DTYPES, rows) | {"tokens": sum(item["tokens"] for item in measures)}
        dtypes = dict(tokens.DTYPES)
        if all(any(file.path == f"{tokens.BYTES}.npy" for file in piece.files) for piece in self.pieces):
            lengths[tokens.BYTES], dtypes[tokens.BYTES] = rows, tokens.BYTES_DTYPE
        if any(map(has_other_rows, self.pieces)):
            lengths[tokens.ROWS], dtypes[tokens.ROWS] = rows, tokens.ROWS_DTYPE
        windows = {}
        if all("window_tokens" in item for item in measures):
            windows = {"window_tokens": sum(item["window_tokens"] for item in measures)}
            lengths[window_files.NAME], dtypes[window_files.NAME] = windows["window_tokens"], window_files.DTYPE
        for name, length in lengths.items():
            arrays = [self._array(piece, name, dtypes[name]) for piece in self.pieces]
            if not name.endswith("_start"):
                out.join(f"{name}.npy", tokens.joined(dtypes[name], arrays))
                continue
            digests: list[str] = []
            with out.create(f"{name}.npy", digest=digests.pop) as path:
                digests.append(tokens.write_npy(path, dtypes[name], length, self._values(arrays)))
        return ShardResult(Ledger(rows, rows, rows, measures=windows))

    def _array(self, piece: ShardRecord, name: str, dtype: type[np.generic]) -> tokens.Array:
        file = piece.file(f"{name}.npy")
        return tokens.Array.from_size(file.uri, dtype, file.size)

    def _values(self, arrays: Sequence[tokens.Array]) -> Iterator[NDArray[Any]]:
        before = 0
        with ThreadPoolExecutor(_READ) as pool:
            for piece, parts in zip(self.pieces, map_ahead(pool, _read, arrays, _READ), strict=True):
                for values in parts:
                    yield values + values.dtype.type(before)
                before += piece.ledger.measures["tokens"]


def _read(array: tokens.Array) -> list[NDArray[Any]]:
    return [*array.pieces()]
