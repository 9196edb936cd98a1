"""The index of a finished run: the keys and sketches of its retained rows, with which later rows are compared.

``index.json`` lists the slices, and each slice has a file: ROW rows, their sketches, and runs of KEYs. A later run
ranks these rows before its own and writes an index that has both.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import _native, storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import File, Ledger, canonical, content_key
from pairmill.engine.runs import Range, RunWriter, read_all, segments
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.stages.curate.near.records import DECISION, KEY, KEY_OF_LONGEST, KEYS, ROW
from pairmill.stages.curate.near.stored import partition
from pairmill.stages.curate.operation import Decisions

INDEX, RETAINED = "index.json", "retained.bin"
FORMAT, VERSION = "pairmill near index", 1
_BLOCK = 32 << 20
_KIND = np.dtype("<u8")


@dataclass(frozen=True)
class Source:
    """Signed rows, wherever they are from: a slice of this run or of an index.

    Args:
        task: of the rows.
        first: added to a row's number in the slice, it gives the ordinal.
        fixed: whether the rows are never removed.
        key: identity of the sketches and keys.
        partitions: of the runs of keys.
        longest: whether the runs are of KEY_OF_LONGEST, not of KEY.
        runs: where each run of keys begins in ``keys_uri``.
        keys_uri: of the file with the keys.
        table: the ROW of each row.
        sketches: of the rows.
    """

    task: str
    first: int
    fixed: bool
    key: str
    rows: int
    keys: int
    partitions: int
    longest: bool
    runs: tuple[int, ...]
    keys_uri: str
    table: Range
    sketches: Range

    def identify(self) -> object:
        """Return what a shard that reads the rows is keyed by."""
        return self.key


@dataclass(frozen=True)
class Indexed:
    """A slice of an index, as ``index.json`` lists it.

    Args:
        task: of the rows.
        first: added to a row's number in the slice, it gives the ordinal.
        path: of its file, below the folder of the index.
        size: bytes of the file.
        sketches: bytes.
        partitions: of the runs of keys.
        runs: where each run begins in the file.
    """

    task: str
    first: int
    path: str
    size: int
    digest: str
    rows: int
    keys: int
    sketches: int
    partitions: int
    runs: list[int]

    def source(self, folder: str) -> Source:
        """Return its rows; ``folder`` is the URI of the index."""
        uri, rows_end = storage.join(folder, self.path), self.rows * ROW.itemsize
        return Source(
            task=self.task,
            first=self.first,
            fixed=True,
            key=content_key("indexed", self.digest, self.first, self.partitions),
            rows=self.rows,
            keys=self.keys,
            partitions=self.partitions,
            longest=False,
            runs=tuple(self.runs),
            keys_uri=uri,
            table=Range(uri, 0, rows_end),
            sketches=Range(uri, rows_end, self.sketches),
        )


def load(folder: str, identity: object) -> list[Indexed]:
    """Return the slices of an index.

    Args:
        folder: its URI.
        identity: the settings of this run, JSON-like; those of the index have to be the same.

    Raises:
        InputError: the index is missing, or has another format, version or settings.
    """
    store, uri = storage.store_for(folder), storage.join(folder, INDEX)
    if not store.exists(uri):
        raise InputError(
            "there is no near index", where=uri, expected="an index of a finished run with write_index=true"
        )
    try:
        raw: dict[str, Any] = json.loads(store.read(uri))
        version = (raw["format"], raw["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "not a near index", where=uri, got=str(error), hint="run with write_index=true again"
        ) from error
    if version != (FORMAT, VERSION):
        raise InputError(
            "the near index has another format",
            where=uri,
            got=f"{version[0]} {version[1]}",
            expected=f"{FORMAT} {VERSION}",
            hint="make it again with this version of pairmill",
        )
    if canonical(raw["settings"]) != canonical(identity):
        raise InputError(
            "the near index was made with other settings",
            where=uri,
            got=canonical(raw["settings"]).decode(),
            expected=canonical(identity).decode(),
            hint="use the settings of that run, or make the index again",
        )
    return [Indexed(**item) for item in raw["slices"]]


class NewIndex(NamedTuple):
    """A new index: what earlier ones have, and the retained rows of this run.

    Args:
        identity: the settings, JSON-like.
        old: the folder and the slices of each earlier index.
        new: the record of each slice of this run, and what to list.
    """

    identity: object
    old: tuple[tuple[str, tuple[Indexed, ...]], ...]
    new: tuple[tuple[ShardRecord, Indexed], ...]

    def link(self, out: Writer, below: str) -> None:
        """Put the index into a finished folder, below this path."""
        files: dict[str, tuple[str, File]] = {}
        listed: list[Indexed] = []
        for folder, slices in self.old:
            for item in slices:
                files[item.path] = (folder, File(item.path, item.size, item.digest))
                listed.append(item)
        for record, item in self.new:
            files[item.path] = (record.folder, File(RETAINED, item.size, item.digest))
            listed.append(item)
        for path, (folder, file) in files.items():
            out.link(folder, file, path=f"{below}/{path}")
        content = {
            "format": FORMAT,
            "version": VERSION,
            "settings": self.identity,
            "slices": [asdict(item) for item in listed],
        }
        out.write(f"{below}/{INDEX}", canonical(content))


@dataclass
class Retained:
    """What a :class:`Retain` shard has kept.

    Args:
        sketches: bytes.
        runs: where each run of keys begins in RETAINED.
    """

    rows: int
    keys: int
    sketches: int
    runs: list[int]


@dataclass(frozen=True)
class Retain(Shard[object], reads=()):
    """Makes the file of a slice of the index.

    Args:
        source: the slice.
        decisions: digests of the DECISION rows of the slice.
        decided: where they are.
    """

    work = "write the index"

    source: Source
    decisions: tuple[str, ...]
    decided: tuple[Range, ...] = field(metadata=unkeyed("a place; decisions are their digests"))

    def run(self, context: object, out: Writer) -> ShardResult:
        table = self.source.table.array(ROW)
        kept = np.ones(len(table), np.bool_)
        kept[np.searchsorted(table["row"], self._removed())] = False
        rows = table[kept]
        made = Retained(len(rows), 0, int(rows["size"].sum(dtype=np.int64)), [])
        with out.create(RETAINED) as local, local.open("wb") as file:
            file.write(np.ascontiguousarray(rows).view(np.uint8).data)
            self._sketches(file, table["size"].astype(np.int64), kept)
            made.keys, made.runs = self._keys(file, kept)
        return ShardResult(Ledger(), asdict(made))

    def _removed(self) -> NDArray[np.uint32]:
        """Numbers in the slice of the rows that are removed."""
        contained = _native.curate_near_rules().index("contained")
        result = np.frombuffer(b"".join(read_all(self.decided)), DECISION)
        removed: NDArray[np.uint32] = result["row"][result["rule"] != contained]
        return removed

    def _sketches(self, file: BinaryIO, sizes: NDArray[np.int64], kept: NDArray[np.bool_]) -> None:
        ends = np.cumsum(sizes)
        cuts = [0, *(np.flatnonzero(np.diff(ends // _BLOCK)) + 1).tolist(), len(sizes)]
        for first, stop in itertools.pairwise(cuts):
            if first == stop:
                continue
            begin = int(ends[first] - sizes[first])
            size = int(ends[stop - 1]) - begin
            data = Range(self.source.sketches.uri, self.source.sketches.start + begin, size).array(np.dtype(np.uint8))
            some = kept[first:stop]
            starts = (ends - sizes)[first:stop][some] - begin
            file.write(segments(data, starts, sizes[first:stop][some]).data)

    def _keys(self, file: BinaryIO, kept: NDArray[np.bool_]) -> tuple[int, list[int]]:
        place = (np.cumsum(kept) - 1).astype(np.uint32)
        runs = RunWriter(file, self.source.partitions, file.tell())
        total = 0
        for part, keys in _runs(self.source):
            some = kept[keys["at"]]
            chosen = np.empty(int(some.sum()), KEY)
            chosen["key"], chosen["at"] = keys["key"][some], place[keys["at"][some]]
            runs.write(part[some], chosen)
            total += len(chosen)
        return total, runs.starts


@dataclass
class Dealt:
    """The data of a record of :class:`Deal`: where its runs of keys begin."""

    runs: list[int]


@dataclass(frozen=True)
class Deal(Shard[object], reads=()):
    """Puts the keys of a slice of an index into the partitions of this run: KEYS, as ``sign.Sign`` writes them.

    Args:
        source: the slice.
        partitions: of this run.
        longest: whether tokens are wanted; those of fixed rows do not matter.
    """

    work = "read the index"

    source: Source
    partitions: int
    longest: bool

    def run(self, context: object, out: Writer) -> ShardResult:
        with out.create(KEYS, scratch=True) as local, local.open("wb") as file:
            runs = RunWriter(file, self.partitions)
            for _, keys in _runs(self.source):
                result = np.zeros(len(keys), KEY_OF_LONGEST if self.longest else KEY)
                result["key"], result["at"] = keys["key"], keys["at"]
                runs.write(partition(keys["key"], self.partitions), result)
        return ShardResult(Ledger(), asdict(Dealt(runs.starts)))


def _runs(source: Source) -> Iterator[tuple[NDArray[np.uint16], NDArray[Any]]]:
    """Yield for each run the partition of each key, and the keys."""
    kind = KEY_OF_LONGEST if source.longest else KEY
    width = _KIND.itemsize * (source.partitions + 1)
    for start in source.runs:
        table = Range(source.keys_uri, start, width).array(_KIND)
        keys = Range(source.keys_uri, start + width, int(table[-1])).array(kind)
        counts = np.diff(table).astype(np.int64) // kind.itemsize
        yield np.repeat(np.arange(source.partitions, dtype=np.uint16), counts), keys


@dataclass(frozen=True)
class NearFound:
    """What the rounds have found.

    Args:
        tasks: where the decisions are, by task; tasks without a slice are not in it. Those of the rule ``contained``
            have the action ``report``. The scores are the containment of both fields.
        index: what a later run compares its rows with, if it was asked for; ``link`` puts it into the finished folder.
        costs: rows, keys, edges, verifications, unverified, scratch_bytes: sums over all shards.
    """

    tasks: dict[str, Decisions]
    costs: dict[str, int]
    index: NewIndex | None = None
