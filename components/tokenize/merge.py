"""The second round of tokenize: the arrays of a file's pieces become those of its task, in the file's order.

Values are copied a few MB at a time, and starts moved by the tokens before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import Shard, ShardRecord, Writer
from pairmill.formats import tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Work:
    """The pieces of a task in order: the key of each one's shard, and its tokens. ``rows`` are those of all."""

    pieces: tuple[tuple[str, int], ...]
    rows: int


def shard(task: str, pieces: Sequence[ShardRecord]) -> Shard:
    """The shard that makes a task of its pieces' records."""
    keys = [piece.key for piece in pieces]
    work = Work(
        tuple((piece.key, piece.ledger.measures["tokens"]) for piece in pieces),
        sum(piece.ledger.rows_out for piece in pieces),
    )
    size = sum(file.size for piece in pieces for file in piece.files)
    return Shard(task, content_key("tokenize gather", keys), work, size)


def process(work: Work, out: Writer) -> Ledger:
    """Put a task together from shards that stand beside ``out``'s folder."""
    shards = storage.parent_of(out.folder)
    for name, dtype in tokens.DTYPES.items():
        length = sum(count for _, count in work.pieces) if name == "tokens" else work.rows
        digests: list[str] = []
        with out.create(f"{name}.npy", digest=digests.pop) as path:
            digests.append(tokens.write_npy(path, dtype, length, _values(work, shards, name)))
    return Ledger(work.rows, work.rows, work.rows)


def _values(work: Work, shards: str, name: str) -> Iterator[NDArray[Any]]:
    before = 0
    for key, count in work.pieces:
        shift = before if name.endswith("_start") else 0
        for values in tokens.Array.of(storage.join(shards, key, f"{name}.npy")).pieces():
            yield values + values.dtype.type(shift) if shift else values
        before += count
