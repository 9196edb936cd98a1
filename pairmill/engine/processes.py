"""Worker processes, each with a pipe of its own, that run a stage's shards; only rounds of several shards import it.

concurrent.futures does not fit: a killed process group leaves the named semaphores of its queues in /dev/shm for
ever, and one killed worker ends the whole pool without saying what it was doing.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from pairmill import log, storage
from pairmill.engine.shards import Outcome, run_shard
from pairmill.engine.stage import Shard, ShardRecord, X
from pairmill.errors import InternalError, PairmillError

# They are given up after more killed ones than this, and than finished shards.
_MAX_DEATHS = 8


@dataclass
class _Worker:
    """A process, our end of its pipe, its shards by name (the last may run, the one before be stored), whether it was
    sent the context, and what it was sent that shards share."""

    process: SpawnProcess
    pipe: Connection
    shards: dict[str, Shard[Any]] = field(default_factory=dict)
    has_context: bool = False
    shared: _Shared | None = None
    sent: set[int] = field(default_factory=set)


class _Shared:
    """What several shards of a round have as a field, as the list of all slices: it is sent to a process once.

    Args:
        shards: of the round, which keep the values alive.
    """

    def __init__(self, shards: Sequence[Shard[Any]]) -> None:
        seen: set[int] = set()
        self.values: dict[int, object] = {}
        for shard in shards:
            for value in vars(shard).values():
                if id(value) in seen:
                    self.values[id(value)] = value
                elif not isinstance(value, str | bytes | int | float | None):
                    seen.add(id(value))

    def dump(self, shard: Shard[Any], sent: set[int]) -> tuple[dict[int, object], bytes]:
        """Return what a process that was ``sent`` some of it lacks, by number, and the shard, which has the numbers."""
        file = io.BytesIO()
        pickler = _Pickler(file, self.values)
        pickler.dump(shard)
        fresh = {number: self.values[number] for number in pickler.named - sent}
        sent |= pickler.named
        return fresh, file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: Mapping[int, object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._shared = shared
        self.named: set[int] = set()

    def persistent_id(self, value: object) -> int | None:
        number = id(value)
        if number not in self._shared:
            return None
        self.named.add(number)
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: Mapping[int, object]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, number: int) -> object:
        return self._shared[number]


class Processes:
    """Worker processes of a stage, whose cache of shards is in ``folder``."""

    def __init__(self, stage: str, folder: str) -> None:
        self._stage, self._folder = stage, folder
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}

    def __len__(self) -> int:
        """Return how many are idle."""
        return len(self._idle)

    def start(self, kind: type[Shard[Any]], count: int) -> None:
        """Start as many as ``count`` needs, for shards of a class."""
        self._idle += [self._spawn(kind) for _ in range(count - len(self._idle))]

    def kill(self) -> None:
        """End all at once: Ctrl-C must not wait for shards, which are redone or reused by the next run."""
        for worker in [*self._idle, *self._busy.values()]:
            worker.process.kill()
            worker.pipe.close()

    def run(self, context: X, shards: Sequence[Shard[X]]) -> Iterator[Outcome[X]]:
        """Run these shards; yields each with its outcome when it is done, in any order."""
        left, shared = deque(shards), _Shared(shards)
        died = done = 0
        while left or self._busy:
            while left and self._idle:
                self._assign(self._idle.pop(), context, left.popleft(), shared)
            for pipe in wait(list(self._busy)):
                assert isinstance(pipe, Connection)
                worker = self._busy[pipe]
                try:
                    name, outcome, ready = pipe.recv()
                except (EOFError, OSError):
                    del self._busy[pipe]
                    self._idle = [item for item in self._idle if item is not worker]
                    worker.process.join()
                    pipe.close()
                    died += 1
                    if died > max(_MAX_DEATHS, done):
                        while left:
                            yield left.popleft(), InternalError("not begun", where=self._stage, hint="see above")
                    if left:
                        self._idle.append(self._spawn(type(left[0])))
                    for shard in worker.shards.values():
                        yield shard, _killed(self._stage, shard, worker.process.exitcode)
                    continue
                if ready:
                    self._idle.append(worker)
                if outcome is None:
                    continue
                shard = worker.shards.pop(name)
                if not worker.shards:
                    del self._busy[pipe]
                if isinstance(outcome, ShardRecord):
                    # Name and folder of each would be copies.
                    outcome = ShardRecord.unpack(outcome.packed, shard.name, self._folder)
                done += 1
                yield shard, outcome

    def _spawn(self, kind: type[Shard[Any]]) -> _Worker:
        # Spawned, not forked: pyarrow's threads do not survive a fork.
        # It gets the class of its shards, so that it imports what they need while this process makes their context.
        spawn = multiprocessing.get_context("spawn")
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, self._stage, self._folder, kind), daemon=True)
        with interrupts_held():
            process.start()
        theirs.close()
        return _Worker(process, mine)

    def _assign(self, worker: _Worker, context: X, shard: Shard[X], shared: _Shared) -> None:
        self._busy[worker.pipe] = worker
        worker.shards[shard.name] = shard
        with suppress(OSError):  # the worker died; the end of its pipe is read next
            if not worker.has_context:
                worker.has_context = True
                worker.pipe.send(context)
            if worker.shared is not shared:
                worker.shared, worker.sent = shared, set()
                worker.pipe.send(None)
            fresh, data = shared.dump(shard, worker.sent)
            worker.pipe.send(fresh)
            worker.pipe.send_bytes(data)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C reaches the whole process group; the parent handles it for all. What is started here never sees one."""
    # The first process would start it, which lets interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _killed(stage: str, shard: Shard[X], code: int | None) -> InternalError:
    return InternalError(
        "a worker process was killed",
        where=f"{stage}: {shard.name}",
        got=f"exit code {code}",
        hint="out of memory is the usual cause: lower workers= or raise the memory limit, then run the same command",
    )


def _serve(pipe: Connection, stage: str, folder: str, _: type[Shard[Any]]) -> None:
    log.setup()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    # As in one process, a store takes a shard while the next is worked on.
    later = storage.scheme(folder) != "file"
    sending = threading.Lock()

    def send(name: str, outcome: ShardRecord | PairmillError | None, *, ready: bool) -> None:
        with sending:
            pipe.send((name, outcome, ready))

    def store(name: str, commit: Callable[[], ShardRecord]) -> None:
        try:
            send(name, commit(), ready=not later)
        except PairmillError as error:
            send(name, error, ready=not later)
        except BaseException:
            log.logger().exception("%s: %s failed", stage, name)
            os._exit(1)

    with suppress(EOFError), ThreadPoolExecutor(1) as pool:
        context = pipe.recv()
        shared: dict[int, object] = {}
        stored: Future[None] | None = None
        while True:
            fresh = pipe.recv()
            if fresh is None:  # the shards of another round
                shared = {}
                continue
            shared |= fresh
            shard: Shard[Any] = _Unpickler(pipe.recv_bytes(), shared).load()
            try:
                commit = run_shard(stage, shard, context, folder)
            except PairmillError as error:
                send(shard.name, error, ready=True)
                continue
            if not later:
                store(shard.name, commit)
                continue
            if stored is not None:
                stored.result()
            stored = pool.submit(store, shard.name, commit)
            send(shard.name, None, ready=True)


def _die_with_parent() -> None:
    # In the middle of a shard a worker would not notice that its parent was killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
