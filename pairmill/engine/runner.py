"""Runs a stage on this machine: its rounds, what is reused, progress, the ledger check, and the manifest last.

Below ``<root>/<stage>`` are ``shards/<key>/…`` (:mod:`pairmill.engine.shards`) and ``<fingerprint>/…`` with
``_STARTED.json`` first and ``_MANIFEST.json`` last.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pairmill import log, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import RunConfig, RunOptions, WorkerSlice
from pairmill.engine.shards import RECORD as RECORD
from pairmill.engine.shards import Todo, discard
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.workers import WorkerPool
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError, PairmillError, StageFailure

# Look at the version of this many finished folders at most: each takes a request or two to an object store.
_MAX_OLD = 16
C = TypeVar("C", bound=RunOptions)
S = TypeVar("S", bound=RunConfig)
P = TypeVar("P", bound=StagePlan[Any])


@dataclass(frozen=True)
class Result:
    """A finished stage: the folder's URI, its manifest, and whether it was there already."""

    uri: str
    manifest: Manifest
    reused: bool
    seconds: float


def run(stage: Stage[C, P], config: C) -> Result:
    """Run ``stage`` to a finished folder, doing only what no earlier run did.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan, the stage, the ledger or the storage refused.
    """
    start = time.monotonic()
    job = _Job(stage, config)
    finished = manifests.load_or_discard(job.home, job.is_wanted, verify=config.verify)
    if finished is not None:
        log.event(
            f"{stage.name}: reused, nothing to do", stage=stage.name, uri=job.home, fingerprint=finished.fingerprint
        )
        return Result(job.home, finished, True, time.monotonic() - start)
    say_why_made_again(stage.name, stage.version, stage.history, job.base)
    with WorkerPool(stage.name, job.cache, config.workers) as pool:
        while job.shards is not None:
            job.next_round(_run_round(job, pool, job.todo(job.shards, verify=config.verify)))
    manifest = _finish(job)
    return Result(job.home, manifest, False, time.monotonic() - start)


def run_share(stage: Stage[S, P], config: S, part: WorkerSlice) -> Result:
    """Run a share of the shards of round ``config.round``, for a later :func:`run` to find done.

    The manifest of the result describes them and is not written. A share never waits for another: if an earlier round
    that is shared out is incomplete it does nothing, and the later run does the rest. Earlier rounds that are not
    shared out (``shared_rounds``) are short: the shares do them together, each beginning with its own shards, and going
    on with those that no other has finished.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan, the stage or the storage refused.
    """
    start = time.monotonic()
    job = _Job(stage, config)
    said = f"{stage.name}: share {part.number}/{part.count} of round {config.round}"
    todo = Todo([], {}, [])
    finished = manifests.load_if_intact(job.home, verify=config.verify)
    if finished is None or not job.is_wanted(finished):
        say_why_made_again(stage.name, stage.version, stage.history, job.base)
        if job.replay(config.round - 1, part, config.shared_rounds):
            todo = job.todo(part.of(job.shards or []), verify=config.verify)
        else:
            log.event(f"{said}: round {len(job.rounds) + 1} is incomplete", stage=stage.name, uri=job.home)
    records = list(todo.done.values())
    if todo.left:
        with WorkerPool(stage.name, job.cache, config.workers) as pool:
            records = _run_round(job, pool, todo)
    else:
        log.event(f"{said} has nothing to do", stage=stage.name, uri=job.home)
    manifest = job.manifest(Ledger.sum(record.ledger for record in records), [records])
    manifest.files = [file for record in records for file in record.files]
    return Result(job.home, manifest, not todo.left, time.monotonic() - start)


class _Job(Generic[C, P]):
    """A stage, its options and plan, and how far its rounds have got.

    Attributes:
        shards: of the next round; None after the last.
        rounds: records of the finished rounds.
    """

    def __init__(self, stage: Stage[C, P], config: C) -> None:
        self.stage = stage
        self.config = config = replace(config, root=storage.normalise(config.root, "root"))
        self.base = storage.join(config.root, stage.folder or stage.name)
        self.cache = storage.join(self.base, "shards")
        self.plan = stage.plan(config)
        self.rounds: list[list[ShardRecord]] = []
        self.shards: Sequence[Shard[Any]] | None = None
        self._changed = False
        self._generator = stage.rounds(config, self.plan)
        self._advance(None)
        self._first: Sequence[Shard[Any]] = self.shards or []

    @property
    def fingerprint(self) -> str:
        return self.stage.fingerprint(self.config, self.plan, self._first)

    @property
    def home(self) -> str:
        """URI of the finished folder."""
        return storage.join(self.base, self.fingerprint)

    def is_wanted(self, finished: Manifest) -> bool:
        """Whether this manifest of the finished folder stays, so that there is nothing to do."""
        if finished.format != manifests.FORMAT:
            log.event(
                f"{self.stage.name}: made again, the manifest of {self.home} is of an older pairmill and has no digest "
                "that would show damage",
                stage=self.stage.name,
                uri=self.home,
            )
            return False
        return self.stage.is_intact(self.config, self.plan, self.home)

    def todo(self, shards: Sequence[Shard[Any]], *, verify: bool = False) -> Todo:
        """What is done of shards of the next round; see :meth:`Todo.of`."""
        todo = Todo.of(shards, self.cache, verify=verify)
        self._changed = self._changed or todo.changed
        return todo

    def next_round(self, records: list[ShardRecord]) -> None:
        """Send the stage the records of this round and get the shards of the next."""
        self.rounds.append(records)
        self._advance(records)

    def replay(self, rounds: int, part: WorkerSlice, shared: Collection[int]) -> bool:
        """Skip this many rounds, using their records; return False if one that is shared out is incomplete.

        Of other rounds, which are short, do what no other share has done.
        """
        while len(self.rounds) < rounds and self.shards is not None:
            todo = self.todo(self.shards)
            if todo.left and len(self.rounds) + 1 in shared:
                return False
            for number in range(part.count) if todo.left else ():
                mine = WorkerSlice((part.number - 1 + number) % part.count + 1, part.count).of(self.shards)
                some = self.todo(mine)
                if some.left:
                    with WorkerPool(self.stage.name, self.cache, self.config.workers) as pool:
                        _run_round(self, pool, some)
            self.next_round(self.todo(self.shards).records())
        return True

    def _advance(self, records: list[ShardRecord] | None) -> None:
        try:
            # None starts the generator.
            self.shards = next(self._generator) if records is None else self._generator.send(records)
        except StopIteration as end:
            self.shards = None
            self.plan = self.plan if end.value is None else end.value
            return
        names = [shard.name for shard in self.shards]
        if len(set(names)) != len(names):
            raise InternalError("two shards of a round have the same name", where=self.stage.name)
        if self._changed:
            # What earlier runs made of the changed bytes is whole, and wrong.
            discard(self.shards, self.cache)

    def manifest(self, ledger: Ledger, rounds: Rounds) -> Manifest:
        """One without files and data yet."""
        return Manifest(
            stage=self.stage.name,
            version=self.stage.version,
            fingerprint=self.fingerprint,
            options=self.plan.manifest_options(self.config),
            inputs=self.plan.inputs,
            ledger=ledger,
            files=[],
            shards={record.name: record.ledger for record in rounds[0]},
        )


def first_round(stage: Stage[C, P], config: C) -> Sequence[Shard[Any]]:
    """The shards that a run would begin with."""
    return next(stage.rounds(config, stage.plan(config)), [])


def say_why_made_again(name: str, version: int, history: Mapping[int, str], base: str) -> None:
    """If a stage's folder has results of an older version, log why they are not used again."""
    if version == 1:
        return
    folders = [folder for folder in storage.store_for(base).folders(base) if manifests.is_fingerprint(folder)]
    found = [manifests.version_of(storage.join(base, folder)) for folder in folders[:_MAX_OLD]]
    old = [one for one in found if one is not None and one < version]
    if old:
        reasons = [history[one] for one in range(min(old) + 1, version + 1) if one in history]
        log.event(
            f"{name}: results of an older version below {base} are not used again: {'; '.join(reasons)}",
            stage=name,
            uri=base,
            versions=sorted(set(old)),
        )


def _run_round(job: _Job[C, P], pool: WorkerPool, todo: Todo) -> list[ShardRecord]:
    name = job.stage.name
    if todo.done:
        log.event(f"{name}: {len(todo.done)} of {len(todo.planned)} shards reused", stage=name)
    failures: list[tuple[str, PairmillError]] = []
    if todo.left:
        # The processes start while this one builds what they need.
        pool.start(len(todo.left))
        context = job.plan.context
        todo, failures = todo.without_broken()
        with log.progress(name, len(todo.planned)) as progress:
            progress.advance(len(todo.done), 0, 0)
            for shard, outcome in pool.run(context, todo.left):
                if isinstance(outcome, PairmillError):
                    failures.append((shard.name, outcome))
                else:
                    todo.done[shard.name] = outcome
                    progress.advance(1, outcome.ledger.rows_in, sum(file.size for file in outcome.files))
    if failures:
        order = {shard.name: index for index, shard in enumerate(todo.planned)}
        raise StageFailure(name, sorted(failures, key=lambda item: order[item[0]]), len(todo.planned))
    return todo.records()


def _finish(job: _Job[C, P]) -> Manifest:
    stage, plan, rounds, folder = job.stage, job.plan, job.rounds, job.home
    ledger = stage.ledger(plan, rounds)
    ledger.reconcile_rounds([Ledger.sum(record.ledger for record in records) for records in rounds], stage.name)
    if plan.rows_expected is not None and plan.rows_expected != ledger.rows_in:
        raise InputError(
            "the number of input rows differs from what the previous stage wrote",
            where=stage.name,
            got=f"{ledger.rows_in} rows",
            expected=f"{plan.rows_expected} rows by its manifest",
            hint="the input folder was changed after it was finished; run the previous stage again",
        )
    manifests.begin(folder, stage.name, job.fingerprint)
    out = Writer(folder)
    manifest = job.manifest(ledger, rounds)
    manifest.data = stage.finish(job.config, plan, rounds, out)
    manifest.shards = stage.parts(plan, rounds)
    out.write_report(stage.report(manifest))
    out.flush()
    manifest.files = sorted(out.files, key=lambda file: file.path)
    return manifests.finish(folder, manifest)
