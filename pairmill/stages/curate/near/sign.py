"""Round 1: the sketch of each row, and its band keys in partitions."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import RunWriter
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import rows
from pairmill.stages.curate.near.given import NearSlice
from pairmill.stages.curate.near.records import KEY, KEY_OF_LONGEST, KEYS, ROW
from pairmill.stages.curate.near.settings import NearSettings, native
from pairmill.stages.curate.near.stored import partition

ROWS, SKETCHES = "rows.bin", "sketches.bin"
# Keys that are held; each takes 12 bytes, and some 30 while they are put in order.
_HELD = 2 << 20
# Keys that a batch of rows rarely exceeds.
_BATCH = 1 << 18


@dataclass
class Signed:
    """What a :class:`Sign` shard has made.

    Args:
        rows: signed ones.
        keys: of all rows.
        runs: where each run of keys begins in KEYS.
        size: bytes of SKETCHES.
    """

    rows: int
    keys: int
    runs: list[int]
    size: int


@dataclass(frozen=True)
class Sign(Shard[object], reads=()):
    """Signs the rows of a slice, except those that an earlier operation drops.

    Args:
        slice: what is read.
        settings: how rows are compared; of those that sign nothing, the defaults.
        partitions: of the keys, a power of two.
        same_condition_only: rows of different conditions have different keys.
        longest_response: keys come with the tokens of the response.
    """

    work = "sketch rows"

    slice: NearSlice
    settings: NearSettings
    partitions: int
    same_condition_only: bool
    longest_response: bool

    def random_access(self) -> Mapping[str, Content]:
        return self.slice.part.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        made = Signed(0, 0, [], 0)
        with (
            out.create(ROWS, scratch=True) as rows_at,
            out.create(SKETCHES, scratch=True) as sketches_at,
            out.create(KEYS, scratch=True) as keys_at,
            rows_at.open("wb") as rows_file,
            sketches_at.open("wb") as sketches_file,
            keys_at.open("wb") as keys_file,
        ):
            keys = _Keys(RunWriter(keys_file, self.partitions), self.partitions, self.longest_response)
            for batch, numbers, columns in self._chosen():
                with rows.texts_named(batch, self.slice.part.uri):
                    offsets, data, key, at, tokens = sketches(columns, self.settings)
                facts = np.empty(len(numbers), ROW)
                facts["row"], facts["size"], facts["tokens"] = numbers, np.diff(offsets), tokens
                rows_file.write(facts.view(np.uint8).data)
                sketches_file.write(data.data)
                keys.add(key, at + np.uint32(made.rows), tokens[at] if self.longest_response else None)
                made.rows += len(numbers)
                made.keys += len(key)
                made.size += len(data)
            made.runs = keys.close()
        return ShardResult(Ledger(), asdict(made))

    def _chosen(self) -> Iterator[tuple[rows.Batch, NDArray[np.int64], list[pa.Array]]]:
        """Batches with rows to sign, their numbers in the slice, instructions, responses and perhaps conditions."""
        part = self.slice.part
        left = np.ones(self.slice.rows, np.bool_)
        left[self.slice.dropped.rows()] = False
        names = ["instruction", "response", *(["condition"] if self.same_condition_only else [])]
        for batch in rows.read(part.uri, part, checked=False, content=part.content, longest=part.longest):
            rows.refuse_nulls(batch, part.uri, names)
            start = batch.start - part.first
            chosen = np.flatnonzero(left[start : start + len(batch)])
            columns = [getattr(batch, name) for name in names]
            if len(chosen) < len(batch):
                columns = [column.take(_indices(chosen)) for column in columns] if len(chosen) else []
            if columns:
                yield batch, chosen + start, columns


def sketches(columns: list[pa.Array], settings: NearSettings) -> tuple[NDArray[Any], ...]:
    """Offsets, data, keys, row of each key and tokens of each response: see ``_native.curate_sketches``."""
    return _native.curate_sketches(columns[0], columns[1], native(settings), *columns[2:])


class _Keys:
    """Holds keys, and writes runs of them."""

    def __init__(self, runs: RunWriter, partitions: int, longest: bool) -> None:
        self._runs, self._partitions = runs, partitions
        # One array for all runs: memory that is freed and asked for again costs a fault a page.
        self._held = np.empty(_HELD + _BATCH, KEY_OF_LONGEST if longest else KEY)
        self._count = 0

    def add(self, keys: NDArray[np.uint64], at: NDArray[np.uint32], tokens: NDArray[np.uint32] | None) -> None:
        start, self._count = self._count, self._count + len(keys)
        if self._count > len(self._held):
            self._held = np.concatenate([self._held[:start], np.empty(len(keys), self._held.dtype)])
        place = self._held[start : self._count]
        place["key"], place["at"] = keys, at
        if tokens is not None:
            place["tokens"] = tokens
        if self._count >= _HELD:
            self._flush()

    def close(self) -> list[int]:
        """Write what is held, and return where each run begins."""
        if self._count:
            self._flush()
        return self._runs.starts

    def _flush(self) -> None:
        held = self._held[: self._count]
        self._runs.write(partition(held["key"], self._partitions), held)
        self._count = 0


def _indices(numbers: NDArray[np.int64]) -> pa.Array:

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
