"""What runs a stage's shards on this machine: this process, its threads, or others."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

from pairmill import storage
from pairmill.cpu import available_cores
from pairmill.engine.shards import Outcome, run_shard
from pairmill.engine.stage import Shard, ShardRecord, X
from pairmill.errors import PairmillError

if TYPE_CHECKING:
    from pairmill.engine.processes import Processes

SHARDS = "pairmill shards"
"""What its threads are called; :mod:`pairmill.interface.interrupt` looks for them when a program ends."""


class WorkerPool:
    """Runs shards in processes, or in this process if one is enough, or if they wait.

    Args:
        stage: name of the stage, for messages.
        folder: URI of the cache of shards.
        workers: most processes; 0 = one per core.
    """

    def __init__(self, stage: str, folder: str, workers: int) -> None:
        self._stage, self._folder = stage, folder
        self.processes = workers or available_cores()
        self._others: Processes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._others is not None:
            self._others.kill()

    def start(self, shards: Sequence[Shard[X]]) -> None:
        """Start as many processes as these shards can use."""
        wanted = min(self.processes, sum(not shard.waits for shard in shards))
        if wanted > 1:
            self._spawn(type(shards[0]), wanted)

    def run(self, context: X, shards: Sequence[Shard[X]]) -> Iterator[Outcome[X]]:
        """Run these shards; yields each with its outcome when it is done, in any order."""
        self.start(shards)
        waiting = [shard for shard in shards if shard.waits] if self.processes > 1 else []
        if waiting:
            yield from self._in_threads(context, waiting)
            shards = [shard for shard in shards if not shard.waits]
        if self._others is None or len(self._others) < 2 or len(shards) < 2:
            yield from self._in_this_process(context, shards)
        else:
            yield from self._others.run(context, shards)

    def _in_threads(self, context: X, shards: Sequence[Shard[X]]) -> Iterator[Outcome[X]]:
        left, ended = deque(shards), SimpleQueue[Outcome[X] | Exception]()

        def work() -> None:
            with suppress(IndexError):
                while True:
                    shard = left.popleft()
                    try:
                        ended.put((shard, run_shard(self._stage, shard, context, self._folder)()))
                    except PairmillError as error:
                        ended.put((shard, error))
                    except Exception as error:
                        ended.put(error)

        # Not those of an executor, for which the end of the program waits: Ctrl-C must not wait for a server.
        for _ in range(min(self.processes, len(shards))):
            threading.Thread(target=work, name=SHARDS, daemon=True).start()
        try:
            for _ in shards:
                outcome = ended.get()
                if isinstance(outcome, Exception):
                    raise outcome
                yield outcome
        finally:
            left.clear()

    def _in_this_process(self, context: X, shards: Sequence[Shard[X]]) -> Iterator[Outcome[X]]:
        # An object store uploads one shard while the next is worked on; a disk takes files at once.
        uploads: deque[tuple[Shard[X], Future[ShardRecord]]] = deque()
        at_once = 0 if storage.scheme(self._folder) == "file" else 1
        with ThreadPoolExecutor(1) as pool:
            for shard in shards:
                try:
                    commit = run_shard(self._stage, shard, context, self._folder)
                except PairmillError as error:
                    yield shard, error
                    continue
                uploads.append((shard, pool.submit(commit)))
                while len(uploads) > at_once:
                    yield _outcome(*uploads.popleft())
            while uploads:
                yield _outcome(*uploads.popleft())

    def _spawn(self, kind: type[Shard[X]], count: int) -> None:
        if self._others is None:
            # A result that is reused needs none, and multiprocessing is a tenth of a start.
            from pairmill.engine.processes import Processes

            self._others = Processes(self._stage, self._folder)
        self._others.start(kind, count)


def _outcome(shard: Shard[X], commit: Future[ShardRecord]) -> Outcome[X]:
    try:
        return shard, commit.result()
    except PairmillError as error:
        return shard, error
