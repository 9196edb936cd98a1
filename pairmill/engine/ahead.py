"""Files that shards of the second round join are begun while those of the first still make their pieces.

A copy takes as long with many cores as with one, since the kernel lets one thread write to a file at a time: of a large
file's work it is the part that no further worker shortens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple, Self

from pairmill import storage
from pairmill.engine.records import ShardRecord
from pairmill.errors import PairmillError
from pairmill.storage.base import Beginning, Span


class Joins(NamedTuple):
    """The files that the second round joins.

    Args:
        pieces: by shard of the second round the names of those of the first whose files it joins, in order.
        head: bytes before the first span of each file.
        spans: returns the spans of a shard's files that are joined, by path.
    """

    pieces: Mapping[str, Sequence[str]]
    head: int
    spans: Callable[[ShardRecord], Mapping[str, Span]]


@dataclass
class _Task:
    """A shard of the second round: how many of its pieces are on their way, the records that came before their turn,
    and the files that are begun."""

    pieces: Sequence[str]
    count: int = 0
    early: dict[str, ShardRecord] = field(default_factory=dict)
    files: dict[str, Beginning] = field(default_factory=dict)


class JoinedAhead:
    """Joins what there is, in a thread. Where that fails, the second round joins all of it, and says why it cannot.

    Args:
        joins: what the plan says of the second round; None = it joins nothing.
        folder: URI of the cache of shards.
        processes: of the second round. With as many files as processes each of them has one to join.
    """

    def __init__(self, joins: Joins | None, folder: str, processes: int) -> None:
        self._joins, self._folder, self._tasks = joins, folder, dict[str, _Task]()
        self._stop, self._pool, self._copied = Event(), ThreadPoolExecutor(1), list[Future[None]]()
        if joins is not None and joins.pieces:
            # Those of killed runs.
            storage.store_for(folder).forget_attempts(folder)
            if len(joins.pieces) < processes:
                self._tasks = {name: _Task(pieces) for name, pieces in joins.pieces.items()}
        self._task_of = {piece: name for name, task in self._tasks.items() for piece in task.pieces}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        for name in [*self._tasks]:
            self._drop(name)

    def add(self, record: ShardRecord) -> None:
        """Copy what a shard of the first round has made, once all pieces before it are copied."""
        name = self._task_of.get(record.name, "")
        task = self._tasks.get(name)
        if task is None:
            return
        task.early[record.name] = record
        while task.count < len(task.pieces) and (ready := task.early.pop(task.pieces[task.count], None)):
            task.count += 1
            self._copied.append(self._pool.submit(self._append, name, ready))

    def hand_over(self, shards: Sequence[Any]) -> None:
        """Give the shards of the second round what is begun of their files, once all that was added is copied."""
        for item in self._copied:
            item.result()
        for shard in shards:
            if task := self._tasks.get(shard.name):
                with suppress(PairmillError):
                    object.__setattr__(shard, "begun", {path: file.leave() for path, file in task.files.items()})

    def _append(self, name: str, record: ShardRecord) -> None:
        if name not in self._tasks or self._joins is None:
            return
        files = self._tasks[name].files
        try:
            for path, span in self._joins.spans(record).items():
                if path not in files:
                    file = storage.store_for(self._folder).begin_join(self._folder, self._joins.head)
                    if file is None:
                        self._drop(name)
                        return
                    files[path] = file
                files[path].append(span, self._stop)
        except PairmillError:
            self._drop(name)

    def _drop(self, name: str) -> None:
        for file in self._tasks.pop(name).files.values():
            file.close()
