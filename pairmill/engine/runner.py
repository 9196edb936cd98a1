"""Runs a stage on this machine: process pool, resume, progress, ledger check, manifest last.

Layout below ``<root>/<stage>``: ``shards/<key>/…`` with ``_RECORD.json`` written last, and ``<fingerprint>/…`` with
``_STARTED.json`` first and ``_MANIFEST.json`` last. Every object appears whole or not at all and its bytes follow from
its name, so a run can be killed at any instant and two runs can do the same work at once.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, Self, TypeVar

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.content import broken
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.engine.stage import Plan, RunConfig, Shard, ShardRecord, Share, Stage, Writer, byte_options
from pairmill.errors import InputError, InternalError, PairmillError, StageFailure, from_os_error

RECORD = "_RECORD.json"
# Records looked for at once in an object store.
_LOOKS = 32
# Finished folders whose version is looked at, to say why none is used: each is a request or two to an object store.
_OLD_LOOKED_AT = 16
C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True)
class Result:
    """A finished stage: the folder's URI, its manifest, and whether it stood there already."""

    uri: str
    manifest: Manifest
    reused: bool
    seconds: float


def run(stage: Stage[C], config: C) -> Result:
    """Run ``stage`` to a finished folder, doing only what no earlier run did.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan, the ledger or the storage refused.
    """
    start = time.monotonic()
    plan, base, fingerprint = _planned(stage, config)
    folder = storage.join(base, fingerprint)
    finished = manifests.reusable(folder, lambda _: stage.stands(config, plan, folder), verify=config.verify)
    if finished is not None:
        log.event(f"{stage.name}: reused, nothing to do", stage=stage.name, uri=folder, fingerprint=fingerprint)
        return Result(folder, finished, True, time.monotonic() - start)

    say_why_made_again(stage.name, stage.version, stage.history, base)
    shards = storage.join(base, "shards")
    todo = _Todo.of(plan.shards, shards, config.verify)
    with _Crew(stage, config, shards) as crew:
        # The processes begin while this one prepares what they need.
        crew.hire(todo)
        plan = stage.prepare(config, plan)
        records = _process(stage, crew, plan.context, todo)
        stage.accept(config, plan, records)
        plan = stage.settle(config, plan, records)
        second = stage.gather(config, plan, records)
        _check_plan(stage, second)
        gathered = _process(stage, crew, plan.context, _Todo.of(second, shards, config.verify)) if second else []
    fingerprint = fingerprint_of(stage, config, plan)
    folder = storage.join(base, fingerprint)
    manifest = _finish(stage, config, plan, records, gathered, shards, folder, fingerprint)
    return Result(folder, manifest, False, time.monotonic() - start)


def run_share(stage: Stage[C], config: C, share: Share) -> Result:
    """Do a share of the shards, for a later :func:`run` to find done; the manifest speaks of them and is not written.

    Nothing waits for another share: what one leaves undone, whoever finishes does.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan or the storage refused.
    """
    start = time.monotonic()
    plan, base, fingerprint = _planned(stage, config)
    folder = storage.join(base, fingerprint)
    shards = storage.join(base, "shards")
    mine: list[Shard] = []
    if manifests.whole(folder, verify=config.verify) is None or not stage.stands(config, plan, folder):
        mine = share.of(plan.shards)
        say_why_made_again(stage.name, stage.version, stage.history, base)
    todo = _Todo.of(mine, shards, config.verify)
    records = list(todo.done.values())
    if todo.left:
        with _Crew(stage, config, shards) as crew:
            crew.hire(todo)
            plan = stage.prepare(config, plan)
            records = _process(stage, crew, plan.context, todo)
    else:
        log.event(f"{stage.name}: share {config.share} has nothing to do", stage=stage.name, uri=folder)
    ledger = Ledger.sum(record.ledger for record in records)
    manifest = _manifest(stage, config, plan, fingerprint, ledger, records)
    manifest.files = [file for record in records for file in record.files]
    return Result(folder, manifest, not todo.left, time.monotonic() - start)


def _planned(stage: Stage[C], config: C) -> tuple[Plan, str, str]:
    """The plan, the stage's folder below the root, and the fingerprint."""
    base = storage.join(storage.normalise(config.root, "root"), stage.folder or stage.name)
    plan = stage.plan(config)
    _check_plan(stage, plan.shards)
    return plan, base, fingerprint_of(stage, config, plan)


def fingerprint_of(stage: Stage[Any], config: Any, plan: Plan) -> str:
    """16 hexadecimal digits over all that a folder and its manifest follow from: the folder's name.

    Names of shards are part of it, and their order, as the manifest names them and ``finish`` sees them in order.
    """
    inputs = [asdict(item) for item in plan.inputs]
    shards = [] if plan.remnant else [[shard.name, shard.key] for shard in plan.shards]
    return manifests.content_key(stage.name, stage.version, _options(config, plan), inputs, shards, plan.says)[:16]


def _options(config: Any, plan: Plan) -> dict[str, Any]:
    return {**byte_options(config), **plan.options}


def say_why_made_again(name: str, version: int, history: Mapping[int, str], base: str) -> None:
    """Log why results of an older version below a stage's folder are not used again, if there are some."""
    if version == 1:
        return
    folders = [folder for folder in storage.store_for(base).folders(base) if manifests.is_fingerprint(folder)]
    found = [manifests.version_of(storage.join(base, folder)) for folder in folders[:_OLD_LOOKED_AT]]
    old = [one for one in found if one is not None and one < version]
    if old:
        reasons = [history[one] for one in range(min(old) + 1, version + 1) if one in history]
        log.event(
            f"{name}: results of an older version below {base} are not used again: {'; '.join(reasons)}",
            stage=name,
            uri=base,
            versions=sorted(set(old)),
        )


def _check_plan(stage: Stage[Any], shards: list[Shard]) -> None:
    names = [shard.name for shard in shards]
    if len(set(names)) != len(names):
        raise InternalError("the plan names a shard twice", where=stage.name)


def _load_record(shards: str, shard: Shard, verify: bool) -> ShardRecord | None:
    folder = storage.join(shards, shard.key)
    store = storage.store_for(folder)
    uri = storage.join(folder, RECORD)
    if not store.exists(uri):
        return None
    record = _parsed(store.read(uri), shard)
    wrong = manifests.damage(folder, record.files, verify=verify) if record is not None else []
    if wrong and verify:
        log.event(f"{shard.name}: made again, {wrong[0]} in {folder}", level=logging.WARNING, uri=folder)
    if record is None or wrong:
        # Of two writers of a record the first wins: one that speaks of what is lost must not.
        store.delete(uri)
        return None
    return record


def _load_records(shards: str, planned: list[Shard], verify: bool) -> list[ShardRecord | None]:
    local = storage.scheme(shards) == "file"
    if len(planned) < 2 or (local and not verify):
        return [_load_record(shards, shard, verify) for shard in planned]
    # Three requests each, of 10 ms and more; of files all bytes.
    with ThreadPoolExecutor(available_cores() if local else _LOOKS) as pool:
        return list(pool.map(lambda shard: _load_record(shards, shard, verify), planned))


def _parsed(data: bytes, shard: Shard) -> ShardRecord | None:
    try:
        raw = json.loads(data)
        files = [File(**item) for item in raw["files"]]
        return ShardRecord(shard.name, shard.key, Ledger(**raw["ledger"]), files, raw["data"])
    except (ValueError, KeyError, TypeError):
        return None


def process_shard(stage: Stage[C], config: C, context: Any, shard: Shard, shards: str) -> ShardRecord:
    """Do one shard and commit it, record last. Errors that are no PairmillError become one, naming the shard."""
    return _worked(stage, config, context, shard, shards)()


def _worked(stage: Stage[C], config: C, context: Any, shard: Shard, shards: str) -> Callable[[], ShardRecord]:
    """Do a shard; what is returned waits until its files are there and commits it."""
    folder = storage.join(shards, shard.key)
    out = Writer(folder)
    where = f"{stage.name}: {shard.name}"
    with _translated(where, folder, out):
        ledger, data = stage.process(config, context, shard, out)
        ledger.reconcile(where)

    def commit() -> ShardRecord:
        with _translated(where, folder, out):
            out.settle()
            record = ShardRecord(shard.name, shard.key, ledger, out.files, data)
            raw = asdict(record)
            # The shard is shared between runs that may call it by different names: the record holds content only.
            del raw["name"], raw["key"]
            ours = manifests.canonical(raw)
            stands = storage.store_for(folder).commit(storage.join(folder, RECORD), ours)
            if stands != ours:
                # Another run was faster, and its program differs in what it notes down: its word is what others read.
                record = _parsed(stands, shard) or record
            return record

    return commit


@contextmanager
def _translated(where: str, folder: str, out: Writer) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with suppress(PairmillError):  # what was on its way when something else failed
            out.settle()
        if isinstance(error, PairmillError | KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        if isinstance(error, OSError):
            raise from_os_error(error, f"{where} (in {folder})") from error
        if isinstance(error, MemoryError):
            hint = "lower workers= or raise the memory limit"
            raise InternalError("out of memory", where=where, hint=hint) from error
        log.logger().exception("%s failed", where)  # a panic in Rust is no Exception
        raise InternalError(
            f"unexpected {type(error).__name__}: {error}", where=where, hint="this is a defect of pairmill"
        ) from error


@dataclass
class _Todo:
    """Shards in the order planned, the records of those that stand there already, and the others, largest first."""

    planned: list[Shard]
    done: dict[str, ShardRecord]
    left: list[Shard]

    @classmethod
    def of(cls, planned: list[Shard], shards: str, verify: bool) -> _Todo:
        records = _load_records(shards, planned, verify)
        done = {record.name: record for record in records if record is not None}
        left = sorted((shard for shard in planned if shard.name not in done), key=lambda shard: -shard.size)
        return cls(planned, done, left)


def _process(stage: Stage[C], crew: _Crew[C], context: Any, todo: _Todo) -> list[ShardRecord]:
    done = dict(todo.done)
    if done:
        log.event(f"{stage.name}: {len(done)} of {len(todo.planned)} shards reused", stage=stage.name)
    todo, failures = _without_broken(stage, todo)
    with log.progress(stage.name, len(todo.planned)) as progress:
        progress.advance(len(done), 0, 0)
        for shard, outcome in crew.work(context, todo):
            if isinstance(outcome, PairmillError):
                failures.append((shard.name, outcome))
            else:
                done[shard.name] = outcome
                progress.advance(1, outcome.ledger.rows_in, sum(file.size for file in outcome.files))
    if failures:
        order = {shard.name: index for index, shard in enumerate(todo.planned)}
        raise StageFailure(stage.name, sorted(failures, key=lambda item: order[item[0]]), len(todo.planned))
    return [done[shard.name] for shard in todo.planned]


def _without_broken(stage: Stage[C], todo: _Todo) -> tuple[_Todo, list[tuple[str, PairmillError]]]:
    """What is left to do, and the shards that would read other bytes here and there than a manifest promised.

    Once for each file, and only where a shard needs it; in a bucket it would be brought twice, and its ETag stands for
    it (docs/format.md, section 1).
    """
    reads = {shard.name: stage.scattered(shard) for shard in todo.left}
    promised = {
        uri: content
        for contents in reads.values()
        for uri, content in contents.items()
        if content.promised and storage.scheme(uri) == "file"
    }
    wrong = broken(promised)
    failures = {name: wrong[uri] for name, contents in reads.items() for uri in contents if uri in wrong}
    return replace(todo, left=[shard for shard in todo.left if shard.name not in failures]), list(failures.items())


Outcome = tuple[Shard, ShardRecord | PairmillError]


@dataclass
class _Worker:
    """A process, the end of its pipe, and whether it was told the context."""

    process: SpawnProcess
    pipe: Connection
    told: bool = False


class _Crew(Generic[C]):
    """The processes that do a stage's shards, each at the end of a pipe of its own; none where one is enough.

    concurrent.futures would do, but for two things: its queues are guarded by named semaphores, which a killed process
    group leaves in /dev/shm for ever; and one killed worker ends the whole pool without telling what it was doing.
    """

    def __init__(self, stage: Stage[C], config: C, shards: str) -> None:
        self._stage, self._config, self._shards = stage, config, shards
        self._most = config.workers or available_cores()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, Shard]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Ctrl-C must not wait for shards: they are redone or reused by the next run.
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.process.kill()
            worker.pipe.close()

    def hire(self, todo: _Todo) -> None:
        """Start as many processes as can be of use."""
        wanted = min(self._most, len(todo.left))
        if wanted > 1:
            self._idle += [self._start() for _ in range(wanted - len(self._idle))]

    def work(self, context: Any, todo: _Todo) -> Iterator[Outcome]:
        """Do the shards left; yields each with its outcome when it is done, in any order."""
        self.hire(todo)
        if len(self._idle) > 1 and len(todo.left) > 1:
            return self._share_out(context, todo.left)
        return self._do(context, todo.left)

    def _do(self, context: Any, left: list[Shard]) -> Iterator[Outcome]:
        # What an object store takes in is on its way while the next shard is worked on; a disk takes it at once.
        behind: deque[tuple[Shard, Future[ShardRecord]]] = deque()
        most = 0 if storage.scheme(self._shards) == "file" else 1
        with ThreadPoolExecutor(1) as pool:
            for shard in left:
                try:
                    commit = _worked(self._stage, self._config, context, shard, self._shards)
                except PairmillError as error:
                    yield shard, error
                    continue
                behind.append((shard, pool.submit(commit)))
                while len(behind) > most:
                    yield _outcome(*behind.popleft())
            while behind:
                yield _outcome(*behind.popleft())

    def _share_out(self, context: Any, shards: list[Shard]) -> Iterator[Outcome]:
        name = self._stage.name
        left = deque(shards)
        died = done = 0
        while left or self._busy:
            while left and self._idle:
                self._assign(self._idle.pop(), context, left.popleft())
            for pipe in wait(list(self._busy)):
                assert isinstance(pipe, Connection)
                worker, shard = self._busy.pop(pipe)
                outcome: ShardRecord | PairmillError
                try:
                    outcome = pipe.recv()
                    done += 1
                    self._idle.append(worker)
                except (EOFError, OSError):
                    worker.process.join()
                    pipe.close()
                    outcome = _killed(name, shard, worker.process.exitcode)
                    died += 1
                    if died > max(_DEATHS, done):
                        while left:
                            yield left.popleft(), InternalError("not begun", where=name, hint="see above")
                    if left:
                        self._idle.append(self._start())
                yield shard, outcome

    def _start(self) -> _Worker:
        # Spawned, not forked: pyarrow's threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, self._stage, self._config, self._shards), daemon=True)
        with interrupts_held():
            process.start()
        theirs.close()
        return _Worker(process, mine)

    def _assign(self, worker: _Worker, context: Any, shard: Shard) -> None:
        self._busy[worker.pipe] = (worker, shard)
        with suppress(OSError):  # a worker that died meanwhile: its pipe's end will be read as such
            if not worker.told:
                worker.told = True
                worker.pipe.send(context)
            worker.pipe.send(shard)


def _outcome(shard: Shard, commit: Future[ShardRecord]) -> Outcome:
    try:
        return shard, commit.result()
    except PairmillError as error:
        return shard, error


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C reaches the whole group; the parent answers it, for all. What it starts meanwhile never sees one."""
    # The first process would start it, which lets interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Workers that may be killed, with no more shards done than that, before the rest is given up.
_DEATHS = 8


def _killed(stage: str, shard: Shard, code: int | None) -> InternalError:
    return InternalError(
        "a worker process was killed",
        where=f"{stage}: {shard.name}",
        got=f"exit code {code}",
        hint="out of memory is the usual cause: lower workers= or raise the memory limit, then run the same command",
    )


def _serve(pipe: Connection, stage: Stage[C], config: C, shards: str) -> None:
    log.setup()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError):
        context = pipe.recv()
        while True:
            shard: Shard = pipe.recv()
            try:
                pipe.send(process_shard(stage, config, context, shard, shards))
            except PairmillError as error:
                pipe.send(error)


def _die_with_parent() -> None:
    # In the middle of a shard a worker would not notice that its parent was killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _manifest(
    stage: Stage[C], config: C, plan: Plan, fingerprint: str, ledger: Ledger, records: list[ShardRecord]
) -> Manifest:
    """One without files and data yet."""
    return Manifest(
        stage=stage.name,
        version=stage.version,
        fingerprint=fingerprint,
        options=_options(config, plan),
        inputs=plan.inputs,
        ledger=ledger,
        files=[],
        shards={record.name: record.ledger for record in records},
    )


def _finish(
    stage: Stage[C],
    config: C,
    plan: Plan,
    records: list[ShardRecord],
    gathered: list[ShardRecord],
    shards: str,
    folder: str,
    fingerprint: str,
) -> Manifest:
    ledger = Ledger.sum(record.ledger for record in records)
    ledger.reconcile(stage.name)
    second = Ledger.sum(record.ledger for record in gathered)
    ledger.rows_out += second.rows_out - second.rows_in
    for reason, count in second.dropped.items():
        ledger.note(reason, count)
    if plan.rows_expected is not None and plan.rows_expected != ledger.rows_in:
        raise InputError(
            "the input holds other rows than the stage before wrote",
            where=stage.name,
            got=f"{ledger.rows_in} rows",
            expected=f"{plan.rows_expected} rows by its manifest",
            hint="the input folder was changed after it was finished; run the stage before again",
        )
    manifests.begin(folder, stage.name, fingerprint)
    out = Writer(folder)
    manifest = _manifest(stage, config, plan, fingerprint, ledger, records)
    manifest.data = stage.finish(config, plan, [*records, *gathered], shards, out)
    if plan.remnant:
        manifest.shards = stage.ledgers(manifest)
        manifest.ledger = Ledger.sum(manifest.shards.values())
    out.write_report(stage.report(manifest))
    out.settle()
    manifest.files = sorted(out.files, key=lambda file: file.path)
    return manifests.finish(folder, manifest)
