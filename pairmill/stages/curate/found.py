"""What operations that compare rows with each other have found, for each task: which row repeats which."""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import Any, BinaryIO, Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.digest import Digest
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.runs import Range, fill, read_all
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import decisions

PLACE: Final = unkeyed("where it is; the content has a digest of its own")
"""The metadata of fields that are places of many files, each of which would be digested once for each shard."""
DROP: Final = np.dtype([("row", "<u8"), ("other", "<u8"), ("rule", "u1"), ("score_i", "<f4"), ("score_r", "<f4")])
"""A row, the kept row that it repeats, the number of the rule, and the scores of both fields (NaN = none)."""
LAYOUT: Final = "decisions, bits"
"""Part of the key of what writes :class:`Stored`: files of another layout are not read."""
StoredData: TypeAlias = tuple[str, dict[str, str], int, int, int]
"""What a record has of :class:`Stored`: all but its ``uri``."""
# Findings of a task that are decisions in memory at once.
_ROWS = 1 << 20
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Stored:
    """The decisions on a task's rows: an Arrow file of ``size`` bytes.

    Args:
        key: digest of its bytes.
        rows: of each rule that has some, the digest of which rows it finds.
        bits: bytes of the bits of each of these rules, which follow it by name: one for each row up to the last with a
            decision, the first one the lowest of its byte.
    """

    uri: str
    key: str
    rows: Mapping[str, str]
    start: int
    size: int
    bits: int

    def identify(self) -> object:
        """Return what the table follows from."""
        return self.key

    def read(self) -> pa.Table:
        """Return the decisions by ordinal, with the action ``drop``."""
        return pa.ipc.open_file(pa.BufferReader(Range(self.uri, self.start, self.size).read())).read_all()

    def has(self, rules: Sequence[str], first: int, count: int) -> NDArray[np.bool_]:
        """Return whether one of these rules finds each of ``count`` rows from ``first`` on, bool [count]."""
        start, stop = min(first // 8, self.bits), min(-(-(first + count) // 8), self.bits)
        names = sorted(self.rows)
        begins = [self.start + self.size + self.bits * names.index(rule) for rule in rules]
        ranges = [Range(self.uri, begin + start, stop - start) for begin in begins] if stop > start else []
        result = np.zeros(count + first % 8, np.uint8)
        for data in read_all(ranges):
            result |= np.unpackbits(np.frombuffer(data, np.uint8), count=len(result), bitorder="little")
        return result[first % 8 :].astype(np.bool_)


@dataclass(frozen=True)
class DroppedRows:
    """The rows of a slice that exact deduplication finds: near deduplication does not look at them.

    Args:
        key: of the decisions, and where the slice is in the task.
        decisions: of the task.
        rules: whose rows are meant.
        first: ordinal of the slice's first row.
        count: rows of the slice.
    """

    key: str
    decisions: Stored
    rules: tuple[str, ...]
    first: int
    count: int

    @classmethod
    def from_decisions(cls, stored: Stored, rules: Sequence[str], first: int, count: int) -> Self:
        """Make the rows of a slice."""
        # Which row they repeat changes nothing here.
        which = {rule: stored.rows[rule] for rule in rules if rule in stored.rows}
        return cls(content_key(which, first, count), stored, tuple(which), first, count)

    def rows(self) -> NDArray[np.uint32]:
        """Return their numbers in the slice, ascending."""
        return np.flatnonzero(self.decisions.has(self.rules, self.first, self.count)).astype(np.uint32)


class Place(NamedTuple):
    """What a number in a row's id means: the task, and the ordinal of the slice's first row."""

    task: str
    first: int


@dataclass
class Split:
    """The data of a record: by task the file of its decisions, and what follows its ``uri`` in :class:`Stored`."""

    tasks: dict[str, tuple[str, StoredData]] = field(default_factory=dict)


@dataclass(frozen=True)
class SplitShard(Shard["Sequence[Place]"], reads=()):
    """Writes the decisions on the rows of some tasks.

    Args:
        content: digest of the findings, and of the tasks that the context has.
        parts: of each file of findings its URI, and the findings [start, stop) of these tasks.
        rules: names by number.
    """

    work = "share out exact duplicates"

    content: str
    parts: tuple[tuple[str, int, int], ...] = field(metadata=PLACE)
    rules: tuple[str, ...]

    def run(self, context: Sequence[Place], out: Writer) -> ShardResult:
        ranges = [Range(uri, start * DROP.itemsize, (stop - start) * DROP.itemsize) for uri, start, stop in self.parts]
        result = np.empty(sum(item.size for item in ranges) // DROP.itemsize, DROP)
        fill(result.view(np.uint8), ranges)
        # By row, then by rule: the first rule of a row is the first that is asked.
        result = result.take(np.lexsort((result["rule"], result["row"])))
        data = Split()
        for task, rows in by_task(result, context):
            with out.create(path := f"{len(data.tasks):05}", scratch=True) as local, local.open("wb") as file:
                data.tasks[task] = (path, write(file, rows, context, self.rules))
        return ShardResult(Ledger(), asdict(data))


def by_task(rows: NDArray[Any], places: Sequence[Place]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the findings, DROP by row, of each task that has some."""
    numbers = (rows["row"] >> _HALF).astype(np.int64)
    start = 0
    while start < len(rows):
        task, stop = places[numbers[start]].task, start
        while stop < len(rows) and places[numbers[stop]].task == task:
            stop = int(np.searchsorted(numbers, numbers[stop], side="right"))
        yield task, rows[start:stop]
        start = stop


class _Slices:
    """The slices of rows that ids name: numbers, ascending, and of each its first ordinal and its task."""

    def __init__(self, ids: NDArray[np.uint64], places: Sequence[Place]) -> None:
        self._numbers = np.unique((ids >> _HALF).astype(np.uint32))
        some = [places[number] for number in self._numbers.tolist()]
        names: dict[str, int] = {}
        self._codes = np.array([names.setdefault(item.task, len(names)) for item in some], np.int32)
        self._names = pa.array(list(names), pa.string())
        self._firsts = np.array([item.first for item in some], np.uint64)

    def ordinals(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the ordinals of rows in their tasks."""
        return ((ids & _LOW) + self._firsts[self._at(ids)]).astype(np.uint32)

    def tasks(self, ids: NDArray[np.uint64]) -> pa.Array:
        """Return the names of their tasks; of any rows with the same dictionary."""
        return pa.DictionaryArray.from_arrays(pa.array(self._codes[self._at(ids)]), self._names)

    def _at(self, ids: NDArray[np.uint64]) -> NDArray[np.intp]:
        return np.searchsorted(self._numbers, (ids >> _HALF).astype(np.uint32))


def write(file: BinaryIO, rows: NDArray[Any], places: Sequence[Place], rules: Sequence[str]) -> StoredData:
    """Write what is found on a task's rows, DROP by row, to where a file ends."""
    ordinals, others = _Slices(rows["row"], places).ordinals(rows["row"]), _Slices(rows["other"], places)
    start, sink = file.tell(), _Digested(file)
    with pa.ipc.new_file(sink, decisions.SCHEMA) as writer:
        for first in range(0, len(rows), _ROWS):
            some = slice(first, first + _ROWS)
            writer.write_table(_table(rows[some], ordinals[some], others, rules))
    bits, digests = int(ordinals[-1]) // 8 + 1, {}
    for rule, name in sorted(enumerate(rules), key=itemgetter(1)):
        has = np.zeros(8 * bits, np.bool_)
        has[ordinals[rows["rule"] == rule]] = True
        if has.any():
            digests[name] = hashlib.sha256(np.flatnonzero(has).astype(np.uint32).data).hexdigest()
            file.write(np.packbits(has, bitorder="little").data)
    return sink.digest.text(), digests, start, sink.size, bits


def _table(rows: NDArray[Any], ordinals: NDArray[np.uint32], others: _Slices, rules: Sequence[str]) -> pa.Table:
    """Return findings as decisions."""
    return decisions.table_of(
        {
            "ordinal": ordinals,
            "rule": pa.DictionaryArray.from_arrays(pa.array(rows["rule"].astype(np.int32)), pa.array(list(rules))),
            "action": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array(["drop"])),
            "other_task": others.tasks(rows["other"]),
            "other_ordinal": others.ordinals(rows["other"]),
            "score_i": pa.array(rows["score_i"].copy(), from_pandas=True),
            "score_r": pa.array(rows["score_r"].copy(), from_pandas=True),
        },
        len(rows),
    )


class _Digested(io.RawIOBase):
    """Digests and counts what is written to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self.size = file, Digest(), 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        self.size += (size := self._file.write(data))
        return size


def stored(records: Sequence[ShardRecord]) -> dict[str, Stored]:
    """Return where the decisions are, by task, as these records of SplitShard say."""
    return {
        task: Stored(record.uri(path), *data)
        for record in records
        for task, (path, data) in record.read(Split).tasks.items()
    }
