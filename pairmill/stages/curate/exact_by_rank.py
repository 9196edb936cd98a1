"""Exact deduplication where rules of several fields remove rows: which rows go, decided in rank order.

A row that goes by its instruction cannot be kept in place of others that have its response. So a row is compared with
rows that stay: it goes by the first rule of which enough rows of better rank *that stay* have its key, and its decision
names the best-ranked of them. Rows are decided in rank order, once, so every decision names a row that stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryFile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import Range
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.found import DROP, PLACE, Place, Stored, StoredData, by_task, write
from pairmill.storage.base import translated
from pairmill.storage.partials import scratch

VERSION: Final = 1
LINK: Final = np.dtype([("row", "<u8"), ("shorter", "<u4"), ("group", "<u4")])
"""A row of a group of equal keys: its number, the complement of the tokens of its response, and the group's number in
the file."""
DECISIONS: Final = "decisions"
# Bytes of all files of links that are held at once, and of groups above which their state is in a scratch file.
_HELD = 32 << 20
_MOST_GROUPS = 32 << 20
_LEAST_BLOCK = 1 << 16
# Rows that are Python numbers at once.
_ROWS = 1 << 16
_MEMBER = np.dtype([("order", "<u8"), ("row", "<u8"), ("group", "<i8"), ("rule", "u1")])


@dataclass(frozen=True)
class Links:
    """The groups of a range of keys of one kind, by ``order_of``.

    Args:
        kind: number of the rule.
        found: where the links are.
        index: where the entries of a new index are; None without.
        bounds: of these entries, as in ``exact.KeysRead``.
    """

    kind: int
    groups: int
    found: Range
    index: Range | None = None
    bounds: tuple[int, ...] = ()


@dataclass
class DecidedByRank:
    """The data of a record.

    Args:
        tasks: of each with a finding what follows its ``uri``, DECISIONS, in ``Stored``.
        index: of each file of a new index the places of the entries that it keeps: the bounds of their keys.
    """

    tasks: dict[str, StoredData] = field(default_factory=dict)
    index: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class DecideByRank(Shard["Sequence[Place]"], reads=()):
    """Decides about all rows that share a key with another row.

    Memory: a block of each file, and 12 bytes for each group of equal keys; of more than 32 million groups these are in
    a scratch file.

    Args:
        content: digest of the groups, and of the tasks that the context has.
        links: all groups.
        rules: names by number.
        keep: by rule, how many rows of a group stay.
        drops: of each slice, the rules that remove its rows: bit 1 << number.
        looks: of each slice, the rules that look at its rows.
        first_slice: the number of the first slice; rows of lower ones are those of an index, and stay.
        first_free: the number of the first slice that is not held out.
        ranges: numbers of the slices with which groups of tasks begin, and one past the last.
        bases: how many rows are before each slice, and how many there are.
        entry: of an index.
    """

    work = "share out exact duplicates"

    content: str
    links: tuple[Links, ...] = field(metadata=PLACE)
    rules: tuple[str, ...]
    keep: tuple[int, ...]
    drops: tuple[int, ...]
    looks: tuple[int, ...]
    first_slice: int
    first_free: int
    ranges: tuple[int, ...]
    bases: tuple[int, ...]
    entry: np.dtype[Any] = field(metadata=unkeyed("the form of the files"))

    def run(self, context: Sequence[Place], out: Writer) -> ShardResult:
        data = DecidedByRank()
        with ExitStack() as stack:
            findings = _Findings(stack)
            removed = _Removed(self.bases[-1] if any(item.index for item in self.links) else 0)
            for result, goes in self._decided(stack):
                findings.add(result)
                removed.add(self._numbers(result["row"][goes]))
            with out.create(DECISIONS, scratch=True) as local, local.open("wb") as file:
                for first, stop in zip(self.ranges, self.ranges[1:], strict=False):
                    for task, mine in by_task(findings.between(first << 32, stop << 32), context):
                        data.tasks[task] = write(file, mine, context, self.rules)
        for number, item in enumerate(self.links):
            data.index.append(self._write_index(out, f"index-{number:05}", item, removed) if item.index else [])
        return ShardResult(Ledger(), asdict(data))

    def _decided(self, stack: ExitStack) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
        """Yield findings, and which of them remove their row, of some rows at a time, in rank order."""
        groups = sum(item.groups for item in self.links)
        first = _array(stack, groups, np.dtype(np.uint64)).data
        count = _array(stack, groups, np.dtype(np.uint32)).data
        keep = self.keep
        for rows, members in self._rows():
            drops, looks = self._rules_of(rows)
            result: list[tuple[int, int, int]] = []
            goes: list[bool] = []
            for row, acts, sees, *mine in zip(
                rows.tolist(), drops.tolist(), looks.tolist(), *members.tolist(), strict=True
            ):
                stays = True
                for rule, group in enumerate(mine):
                    if group >= 0 and sees >> rule & 1 and count[group] >= keep[rule]:
                        stays = not acts >> rule & 1
                        result.append((row, first[group], rule))
                        goes.append(not stays)
                        if not stays:
                            break
                if stays:
                    for group in mine:
                        if group >= 0:
                            if not count[group]:
                                first[group] = row
                            count[group] += 1
            made = np.empty(len(result), DROP)
            if result:
                made["row"], made["other"], made["rule"] = np.array(result, np.uint64).T
                made["score_i"] = made["score_r"] = np.nan
            yield made, np.array(goes, np.bool_)

    def _rows(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Yield rows in rank order, uint64 [n], and their group of each rule, int64 [rules, n]; -1 = none."""
        bases = np.cumsum([0, *(item.groups for item in self.links)])
        blocks = [self._blocks(item, int(base)) for item, base in zip(self.links, bases, strict=False)]
        for some in _merged(blocks):
            rows, at = np.unique(some["row"], return_inverse=True)
            members = np.full((len(self.rules), len(rows)), -1, np.int64)
            members[some["rule"], at] = some["group"]
            order = np.empty(len(rows), np.uint64)
            order[at] = some["order"]
            place = np.lexsort((rows, order))
            for start in range(0, len(place), _ROWS):
                few = place[start : start + _ROWS]
                yield rows[few], members[:, few]

    def _blocks(self, item: Links, base: int) -> Iterator[NDArray[Any]]:
        """Yield the links of a file, with the numbers that they have among all."""
        for data in item.found.blocks(_block_size(LINK, len(self.links))):
            links = np.frombuffer(data, LINK)
            some = np.empty(len(links), _MEMBER)
            some["order"], some["row"] = order_of(links["row"], links["shorter"], self.first_free), links["row"]
            some["group"], some["rule"] = links["group"].astype(np.int64) + base, item.kind
            yield some

    def _rules_of(self, rows: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rules that remove these rows, and those that look at them: bits, int64 [n]."""
        slices = (rows >> np.uint64(32)).astype(np.int64) - self.first_slice
        free = slices >= self.first_free - self.first_slice
        drops, looks = (np.array(item or (0,), np.int64)[np.maximum(slices, 0)] for item in (self.drops, self.looks))
        return np.where(free, drops, 0), np.where(free, looks, 0)

    def _numbers(self, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the places of rows among all, int64 [n]; -1 for those of an index."""
        slices = (rows >> np.uint64(32)).astype(np.int64) - self.first_slice
        places = np.array(self.bases, np.int64)[np.maximum(slices, 0)] + (rows & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return np.where(slices >= 0, places, -1)

    def _write_index(self, out: Writer, path: str, item: Links, removed: _Removed) -> list[int]:
        """Write the entries of rows that stay; return the bounds of their keys."""
        assert item.index is not None
        bounds = np.array(item.bounds, np.int64)
        kept, start = np.zeros(len(bounds), np.int64), 0
        kind = self.entry
        with out.create(path) as local, local.open("wb") as file:
            for data in item.index.blocks(_block_size(kind, 1)):
                entries = np.frombuffer(data, kind)
                rows = entries["task"].astype(np.uint64) << np.uint64(32) | entries["row"]
                stays = ~removed.has(self._numbers(rows))
                file.write(entries[stays].tobytes())
                before = np.concatenate([[0], np.cumsum(stays)])
                kept += before[np.clip(bounds - start, 0, len(entries))]
                start += len(entries)
        return kept.tolist()


def order_of(rows: NDArray[np.uint64], shorter: NDArray[np.uint32], first_free: int) -> NDArray[np.uint64]:
    """Return what rows are sorted by, and then by number: rows that always stay, then long responses; uint64 [n]."""
    free = rows >= np.uint64(first_free << 32)
    order: NDArray[np.uint64] = free.astype(np.uint64) << np.uint64(32) | shorter
    return order


def links_of(
    rows: NDArray[np.uint64], shorter: NDArray[np.uint32], starts: NDArray[np.bool_], first_free: int
) -> tuple[NDArray[Any], int]:
    """Return the links of rows that share a key with another, as LINK by ``order_of``, and how many groups they make.

    Args:
        rows: by key.
        shorter: of each row.
        starts: whether it is the first of its key.
        first_free: see :class:`DecideByRank`.
    """
    numbers = np.cumsum(starts) - 1
    shared = (np.bincount(numbers) > 1)[numbers] if len(numbers) else starts
    links = np.empty(int(shared.sum()), LINK)
    links["row"], links["shorter"] = rows[shared], shorter[shared]
    links["group"] = np.cumsum(starts[shared]) - 1
    return links[np.lexsort((links["row"], order_of(links["row"], links["shorter"], first_free)))], int(
        starts[shared].sum()
    )


def stored(record: ShardRecord) -> dict[str, Stored]:
    """Return where the decisions are, by task."""
    return {task: Stored(record.uri(DECISIONS), *data) for task, data in record.read(DecidedByRank).tasks.items()}


def _block_size(kind: np.dtype[Any], files: int) -> int:
    """Return bytes of whole entries that are read at once of each of some files."""
    return max(_LEAST_BLOCK, _HELD // files) // kind.itemsize * kind.itemsize


def _merged(files: Sequence[Iterator[NDArray[Any]]]) -> Iterator[NDArray[Any]]:
    """Yield all entries of sorted files, some at a time; entries of one row come together."""
    none = np.empty(0, _MEMBER)
    heads = [next(file, none) for file in files]
    while any(map(len, heads)):
        last = min((int(head["order"][-1]), int(head["row"][-1])) for head in heads if len(head))
        stops = [_up_to(head, *last) for head in heads]
        yield np.concatenate([head[:stop] for head, stop in zip(heads, stops, strict=True)])
        heads = [
            head[stop:] if stop < len(head) else next(file, none)
            for head, stop, file in zip(heads, stops, files, strict=True)
        ]


def _up_to(entries: NDArray[Any], order: int, row: int) -> int:
    """Return how many of sorted entries are not after a place."""
    first, last = (np.searchsorted(entries["order"], np.uint64(order), side) for side in ("left", "right"))
    return int(first + np.searchsorted(entries["row"][first:last], np.uint64(row), "right"))


def _array(stack: ExitStack, size: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Zeros; many of them are in a scratch file."""
    if size <= _MOST_GROUPS:
        return np.zeros(size, kind)
    with translated(str(scratch())):
        file = stack.enter_context(TemporaryFile(dir=scratch()))  # noqa: SIM115
        # A disk that is full must be an error here, not a signal at the first write to the memory of the file.
        os.posix_fallocate(file.fileno(), 0, size * kind.itemsize)
        return np.memmap(file, kind, "r+", shape=(size,))


class _Findings:
    """Findings in a scratch file: runs, each by row."""

    def __init__(self, stack: ExitStack) -> None:
        with translated(str(scratch())):
            self._file = stack.enter_context(TemporaryFile(dir=scratch()))  # noqa: SIM115
        self._runs: list[tuple[int, int]] = []
        self._size = 0

    def add(self, findings: NDArray[Any]) -> None:
        """Write a run."""
        if not len(findings):
            return
        findings = findings[np.argsort(findings["row"], kind="stable")]
        with translated(str(scratch())):
            self._file.write(findings.tobytes())
            self._file.flush()
        self._runs.append((self._size, self._size + len(findings)))
        self._size += len(findings)

    def between(self, start: int, stop: int) -> NDArray[Any]:
        """Return those of rows with these numbers, by row, then in the order in which they were added."""
        parts = [np.empty(0, DROP)]
        if self._size:
            whole = np.memmap(self._file, DROP, "r", shape=(self._size,))
            for first, last in self._runs:
                rows = whole["row"][first:last]
                low, high = np.searchsorted(rows, np.array([start, stop], np.uint64)).tolist()
                parts.append(np.array(whole[first + low : first + high]))
        result = np.concatenate(parts)
        return result[np.argsort(result["row"], kind="stable")]


class _Removed:
    """Which rows go, a bit for each."""

    def __init__(self, rows: int) -> None:
        self._bits = np.zeros(rows // 8 + 1 if rows else 0, np.uint8)

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add rows that go."""
        if len(self._bits):
            np.bitwise_or.at(self._bits, numbers >> 3, (1 << (numbers & 7)).astype(np.uint8))

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell whether these go; -1 stays."""
        result: NDArray[np.bool_] = (numbers >= 0) & (
            self._bits[numbers >> 3] >> (numbers & 7).astype(np.uint8) & 1 > 0
        )
        return result
