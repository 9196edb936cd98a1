"""The second round of tokenize: the arrays of a file's pieces become those of its task, in the file's order.

Values are copied a few MB at a time, and starts moved by the tokens before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import tokens, window_files

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class MergeArrays(HandKeyed[object]):
    """Makes the arrays of a task from those of its pieces, in order: (URI of the folder, tokens) of each piece.

    ``window_tokens`` are those of the pieces' flat files; None if there are none. ``has_bytes`` says whether the pieces
    have the bytes of responses.

    Pieces are scratch without digests of their own; their keys stand for what is in them.
    """

    work = "join parts of files"

    pieces: tuple[tuple[str, int], ...]
    rows: int
    window_tokens: int | None
    has_bytes: bool

    @classmethod
    def of(cls, task: str, pieces: Sequence[ShardRecord]) -> Self:
        """The shard that makes a task of its pieces' records."""
        flat = [piece.ledger.measures.get("window_tokens") for piece in pieces]
        return cls(
            task,
            content_key("tokenize gather", [piece.key for piece in pieces]),
            sum(file.size for piece in pieces for file in piece.files),
            tuple((piece.folder, piece.ledger.measures["tokens"]) for piece in pieces),
            # A sample gives several rows. Held-out rows are kept, and no later stage counts them.
            sum(piece.ledger.rows_out or piece.ledger.rows_kept for piece in pieces),
            None if None in flat else sum(filter(None, flat)),
            all(any(file.path == f"{tokens.BYTES}.npy" for file in piece.files) for piece in pieces),
        )

    def run(self, context: object, out: Writer) -> ShardResult:
        lengths = dict.fromkeys(tokens.DTYPES, self.rows) | {"tokens": sum(count for _, count in self.pieces)}
        dtypes = dict(tokens.DTYPES)
        if self.has_bytes:
            lengths[tokens.BYTES], dtypes[tokens.BYTES] = self.rows, tokens.BYTES_DTYPE
        if self.window_tokens is not None:
            lengths[window_files.NAME], dtypes[window_files.NAME] = self.window_tokens, window_files.DTYPE
        for name, length in lengths.items():
            digests: list[str] = []
            with out.create(f"{name}.npy", digest=digests.pop) as path:
                digests.append(tokens.write_npy(path, dtypes[name], length, self._values(name)))
        measures = {} if self.window_tokens is None else {"window_tokens": self.window_tokens}
        return ShardResult(Ledger(self.rows, self.rows, self.rows, measures=measures))

    def _values(self, name: str) -> Iterator[NDArray[Any]]:
        before = 0
        for folder, count in self.pieces:
            shift = before if name.endswith("_start") else 0
            for values in tokens.Array.of(storage.join(folder, f"{name}.npy")).pieces():
                yield values + values.dtype.type(shift) if shift else values
            before += count
