"""Runs: words with their counts, sorted by bytes, in Parquet files that are merged without holding them all.

A shard that holds ``MAX_WORDS`` distinct words writes them as a run and starts another. Columns: ``word`` (binary, the
UTF-8 bytes of a piece in NFC) and ``count`` (int64). A run has each word once.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.stage import ShardRecord
from pairmill.engine.writer import Writer
from pairmill.formats.parquet_reader import open_parquet

Batch: TypeAlias = tuple[_native.ArrowArray, NDArray[np.int64]]
"""Words, Arrow large_binary [n], sorted by bytes, and their counts, int64 [n]."""

# The maximum of distinct words that a shard holds.
MAX_WORDS = 1_500_000
# Words of a run that are held while it is merged with others; words in a row group of a run.
_BATCH = 1 << 14
_GROUP = 1 << 18


class Counter:
    """Counts words and writes them to runs ``<name>-<number>.parquet`` of a shard.

    Args:
        out: the shard's.
    """

    def __init__(self, out: Writer, name: str) -> None:
        self._out, self._name = out, name
        self._words = _counter()
        self._runs = 0

    def add(self, texts: pa.Array, truncate: int, chosen: NDArray[np.bool_]) -> int:
        """Count the words of chosen rows (bool [rows]), each text cut to ``truncate`` characters.

        Returns:
            The bytes of those texts, uncut.
        """
        size = self._words.add(texts, truncate, chosen)
        if len(self._words) >= MAX_WORDS:
            self.close()
        return size

    def close(self) -> None:
        """Write the words that are not written yet."""
        if len(self._words):
            write(self._out, f"{self._name}-{self._runs:05}.parquet", [self._words.words()])
            self._runs += 1


def _counter() -> _native.WordCounter:

    return _native.WordCounter()


def paths(record: ShardRecord, name: str) -> list[str]:
    """Return the runs of this name below a shard's folder."""
    return [file.path for file in record.files if file.path.startswith(f"{name}-")]


def uris(name: str, records: Iterable[ShardRecord]) -> list[str]:
    """Return the URIs of the runs of this name of some shards."""
    return [record.uri(path) for record in records for path in paths(record, name)]


def values(counts: pa.Array) -> NDArray[np.int64]:
    """Return the counts of a batch of a run."""
    # Array.to_numpy does the same, but see write().
    return np.frombuffer(counts.buffers()[1], np.int64, len(counts), 8 * counts.offset)


def write(out: Writer, path: str, batches: Iterable[Batch]) -> None:
    """Write sorted words and their counts as a run."""

    schema = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])
    with (
        out.create(path, scratch=True) as local,
        pq.ParquetWriter(local, schema, compression="zstd", use_dictionary=False) as file,
    ):
        for words, counts in batches:
            # pyarrow.array() does the same but imports pandas, if it is installed: a third of a second.
            columns = [
                pa.Array._import_from_c_capsule(*words.__arrow_c_array__()),
                pa.Int64Array.from_buffers(pa.int64(), len(counts), [None, pa.py_buffer(counts)]),
            ]
            file.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=_GROUP)


def batches(uri: str) -> Generator[pa.RecordBatch, None, None]:
    """Yield the words of a run and their counts, in order."""
    with open_parquet(uri) as file:
        # Threads would take half as much memory again, and no less time.
        yield from file.iter_batches(batch_size=_BATCH, use_threads=False)


def merged(uris: Sequence[str]) -> Iterator[Batch]:
    """Yield the words of several runs, each once, in order, with summed counts; in batches as :func:`write` takes.

    Holds one batch of each run.
    """
    with ExitStack() as stack:
        heads = [_Head(stack.enter_context(closing(batches(uri)))) for uri in uris]
        while heads := [head for head in heads if head.words is not None]:
            # No run has a word up to this one that is not loaded.
            cut = min(head.last for head in heads)
            words = _counter()
            for head in heads:
                words.merge(*head.take(cut))
            yield words.words()


class _Head:
    """The batch of a run that is loaded."""

    words: pa.Array | None
    last: bytes

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._next()

    def _next(self) -> None:
        batch = next(self._batches, None)
        self.words = None
        if batch is not None:
            self.words, self._counts = batch.columns
            self.last = batch.column(0)[-1].as_py()

    def take(self, cut: bytes) -> tuple[pa.Array, pa.Array]:
        """Return the words up to ``cut``, which is at most the last one, with their counts."""
        words, counts = self.words, self._counts
        assert words is not None
        end = len(words)
        if self.last == cut:
            self._next()
        else:
            end = bisect_right(range(end), cut, key=lambda row: words[row].as_py())
            self.words, self._counts = words.slice(end), counts.slice(end)
        return words.slice(0, end), counts.slice(0, end)
