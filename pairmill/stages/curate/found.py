"""What operations that compare rows with each other have found, for each task: which row repeats which."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.runs import Range, read_all
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import decisions

PLACE: Final = unkeyed("where it is; the content has a digest of its own")
"""The metadata of fields that are places of many files, each of which would be digested once for each shard."""
DROP: Final = np.dtype([("row", "<u8"), ("other", "<u8"), ("rule", "u1"), ("score_i", "<f4"), ("score_r", "<f4")])
"""A row, the kept row that it repeats, the number of the rule, and the scores of both fields (NaN = none)."""


@dataclass(frozen=True)
class Stored:
    """The decisions on a task's rows: an Arrow file.

    Args:
        key: digest of its bytes.
        rows: of each rule that has some, the digest of which rows it finds.
        start: of the Arrow file in the file.
        size: its bytes; -1 = all from ``start`` on.
    """

    uri: str
    key: str
    rows: Mapping[str, str]
    start: int = 0
    size: int = -1

    def identify(self) -> object:
        """Return what the table follows from."""
        return self.key

    def read(self) -> pa.Table:
        """Return the decisions by ordinal, with the action ``drop``."""
        with storage.store_for(self.uri).open(self.uri) as file:
            file.seek(self.start)
            return pa.ipc.open_file(pa.BufferReader(file.read(self.size))).read_all()


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
        table = self.decisions.read()
        wanted = np.isin(np.array(table["rule"].to_pylist(), object), list(self.rules))
        ordinals = np.unique(table["ordinal"].to_numpy()[wanted].astype(np.int64)) - self.first
        result: NDArray[np.uint32] = ordinals[(ordinals >= 0) & (ordinals < self.count)].astype(np.uint32)
        return result


class Place(NamedTuple):
    """What a number in a row's id means: the task, and the ordinal of the slice's first row."""

    task: str
    first: int


@dataclass
class Split:
    """The data of a record: by task the file of its decisions, and its digests as :class:`Stored` has them."""

    tasks: dict[str, tuple[str, str, dict[str, str]]] = field(default_factory=dict)


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
        result = np.frombuffer(b"".join(read_all(ranges)), DROP)
        # By row, then by rule: the first rule of a row is the first that is asked.
        result = result[np.lexsort((result["rule"], result["row"]))]
        data = Split()
        for task, table in by_task(result, context, self.rules):
            written = arrow_of(table)
            path = f"{len(data.tasks):05}"
            with out.create(path, scratch=True) as local:
                local.write_bytes(written)
            data.tasks[task] = (path, digest_bytes(written), rows_by_rule(table, self.rules))
        return ShardResult(Ledger(), asdict(data))


def by_task(rows: NDArray[Any], places: Sequence[Place], rules: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield findings by row as decisions, for each task that has some."""
    numbers = (rows["row"] >> np.uint64(32)).astype(np.int64)
    start = 0
    while start < len(rows):
        task = places[numbers[start]].task
        stop = start
        while stop < len(rows) and places[numbers[stop]].task == task:
            stop = int(np.searchsorted(numbers, numbers[stop], side="right"))
        yield task, table_of(rows[start:stop], places, rules)
        start = stop


def arrow_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def rows_by_rule(table: pa.Table, rules: Sequence[str]) -> dict[str, str]:
    """Return, for each rule that finds some rows, a digest of which these are."""
    names, codes = decisions.names_of(table["rule"])
    ordinals = table["ordinal"].to_numpy()
    result = {}
    for rule in rules:
        mine = ordinals[codes == names.index(rule)] if rule in names else ordinals[:0]
        if len(mine):
            result[rule] = hashlib.sha256(np.unique(mine).tobytes()).hexdigest()
    return result


def stored(records: Sequence[ShardRecord]) -> dict[str, Stored]:
    """Return where the decisions are, by task, as these records of SplitShard say."""
    return {
        task: Stored(record.uri(path), digest, rows)
        for record in records
        for task, (path, digest, rows) in record.read(Split).tasks.items()
    }


def table_of(rows: NDArray[Any], places: Sequence[Place], rules: Sequence[str]) -> pa.Table:
    """Return findings as decisions."""
    ordinals, _ = _named(rows["row"], places)
    others, tasks = _named(rows["other"], places)
    return decisions.table_of(
        {
            "ordinal": ordinals,
            "rule": pa.DictionaryArray.from_arrays(pa.array(rows["rule"].astype(np.int32)), pa.array(list(rules))),
            "action": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array(["drop"])),
            "other_task": tasks,
            "other_ordinal": others,
            "score_i": pa.array(rows["score_i"].copy(), from_pandas=True),
            "score_r": pa.array(rows["score_r"].copy(), from_pandas=True),
        },
        len(rows),
    )


def _named(ids: NDArray[np.uint64], places: Sequence[Place]) -> tuple[NDArray[np.uint32], pa.Array]:
    """Return the ordinals of rows, and the names of their tasks."""
    numbers, at = np.unique((ids >> np.uint64(32)).astype(np.int64), return_inverse=True)
    firsts = np.array([places[number].first for number in numbers], np.uint64)
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(places[number].task, len(names)) for number in numbers], np.int32)
    ordinals = (ids & np.uint64(0xFFFFFFFF)) + firsts[at] if len(ids) else ids
    return ordinals.astype(np.uint32), pa.DictionaryArray.from_arrays(
        pa.array(codes[at] if len(ids) else np.empty(0, np.int32)), pa.array(list(names), pa.string())
    )
