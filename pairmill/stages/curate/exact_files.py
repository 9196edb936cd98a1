"""The files of the keys of exact deduplication, and their entries in parts of the keys."""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import shuffle
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import Range, Run, Runs, RunWriter
from pairmill.engine.shuffle import Shuffled
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.exact_settings import Kind

ENTRY: Final = np.dtype([("high", "<u8"), ("low", "<u8"), ("pair", "<u8"), ("row", "<u4"), ("tokens", "<u4")])
"""A row's key, the low half of the key of its pair, its number in the slice, and the tokens of its response (0 where
rank alone decides)."""
INDEXED: Final = np.dtype([*ENTRY.descr, ("task", "<u4")])
"""The same in an index: the number is the ordinal in the task."""
KEYS: Final = "keys.bin"
# Bytes of entries that one shard sorts; sorting takes four times as much. Of those that one deals into parts.
_PARTITION_BYTES, _DEALT_BYTES = 128 << 20, 256 << 20
# Bytes that a file of fewer counts as, where several are dealt together: each takes a request.
_LEAST_FILE = 32 << 10


@dataclass(frozen=True)
class SortedKeys:
    """A file of entries by key.

    Args:
        bounds: see :class:`KeysRead`.
        number: of the slice; of an index of its first task.
        fixed: whether its rows are never removed.
        indexed: whether its entries are those of an index.
        key: of the bytes.
        once: leave out its rows that repeat a pair: an earlier rule drops them.
    """

    uri: str
    bounds: tuple[int, ...]
    number: int
    fixed: bool
    indexed: bool
    key: str
    once: bool = False

    def identify(self) -> object:
        """Return what the entries follow from."""
        return self.key

    @property
    def entries(self) -> int:
        """How many there are."""
        return self.bounds[-1]

    def within(self, part: int, bits: int) -> tuple[int, int]:
        """Return the entries [start, stop) among which those of a part are."""
        mine = (len(self.bounds) - 1).bit_length() - 1
        if mine >= bits:
            return self.bounds[part << (mine - bits)], self.bounds[(part + 1) << (mine - bits)]
        at = part >> (bits - mine)
        return self.bounds[at], self.bounds[at + 1]

    def read(self, part: int, bits: int) -> NDArray[Any]:
        """Return the entries whose keys begin with the ``bits`` of ``part``."""
        kind = INDEXED if self.indexed else ENTRY
        start, stop = self.within(part, bits)
        if start == stop:
            return np.empty(0, kind)
        result = Range(self.uri, start * kind.itemsize, (stop - start) * kind.itemsize).array(kind)
        return result[result["high"] >> np.uint64(64 - bits) == part] if bits else result


@dataclass(frozen=True)
class DealKeys(Shard[object], reads=()):
    """Brings the entries of some slices into parts of the keys: a run of ENTRY, each file an owner.

    Args:
        kind: of the keys.
        files: of slices.
        bits: of a key that are its part.
    """

    work = "bring parts together"

    kind: Kind
    files: tuple[SortedKeys, ...]
    bits: int

    def run(self, context: object, out: Writer) -> ShardResult:
        entries = np.empty(sum(file.entries for file in self.files), ENTRY)
        starts = np.arange(1 << self.bits, dtype=np.uint64) << np.uint64(64 - self.bits)
        bounds, at = [], 0
        for file in self.files:
            some = entries[at : at + file.entries]
            some[:] = file.read(0, 0)
            bounds.append([*(np.searchsorted(some["high"], starts) + at).tolist(), at := at + file.entries])
        places = np.array(bounds, np.int64).T * ENTRY.itemsize
        sizes = np.diff(places, axis=0)
        with out.create(KEYS, scratch=True) as local, local.open("wb") as file_of_all:
            RunWriter(file_of_all, sizes.size).write_bytes(
                sizes.ravel(), shuffle.copied(entries.view(np.uint8), places[:-1], sizes)
            )
        return ShardResult(Ledger())


class KeyedFiles(NamedTuple):
    """The files of a kind of key, in rank order, and the parts that they are read in."""

    kind: Kind
    files: tuple[SortedKeys, ...]

    @property
    def size(self) -> int:
        """Bytes of entries, those of an index as those of a slice."""
        return sum(item.entries for item in self.files) * ENTRY.itemsize

    @property
    def bits(self) -> int:
        """Of a key that are its part."""
        return max(0, math.ceil(math.log2(max(1.0, self.size / _PARTITION_BYTES))))

    def rounds(self) -> Generator[list[Shard[Any]], list[ShardRecord], Shuffled | None]:
        """Yield two rounds, empty for few files, and return the entries of all slices by their places in ``files``."""
        parts = 1 << self.bits
        slices = [place for place, item in enumerate(self.files) if not item.indexed]
        sizes = np.array([self.files[place].entries * ENTRY.itemsize for place in slices], np.int64)
        if not shuffle.fans(len(slices), parts, int(sizes.sum())):
            yield []
            yield []
            return None
        groups = [slices[start:stop] for start, stop in shuffle.cuts(sizes + _LEAST_FILE, _DEALT_BYTES)]
        records = yield [
            DealKeys(
                kind=self.kind,
                files=tuple(self.files[place] for place in group),
                bits=self.bits,
                name=f"{self.kind} keys {number:05}",
                size=sum(self.files[place].entries for place in group) * ENTRY.itemsize,
            )
            for number, group in enumerate(groups)
        ]
        runs = tuple(
            Run(record.uri(KEYS), 0, tuple(group), record.key) for record, group in zip(records, groups, strict=True)
        )
        shuffled = yield from shuffle.rounds(f"{self.kind} keys", Runs(parts, runs, size=int(sizes.sum())), levels=1)
        return replace(shuffled, records=(*records, *shuffled.records))
