"""Runs a stage on this machine: its rounds, what is reused, progress, the ledger check, and the manifest last.

Below ``<root>/<stage>`` are ``shards/<key>/…`` (:mod:`pairmill.engine.shards`) and ``<fingerprint>/…`` with
``_STARTED.json`` first and ``_MANIFEST.json`` last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from pairmill import log, storage
from pairmill.engine import blocks, links, policing, vanished
from pairmill.engine import manifest as manifests
from pairmill.engine.ahead import JoinedAhead
from pairmill.engine.blocks import Blocks
from pairmill.engine.listing import RECORD as RECORD
from pairmill.engine.listing import SHARDS
from pairmill.engine.made_by import command_of, links_of, options_of, with_alarms
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import RunConfig, RunOptions, WorkerSlice
from pairmill.engine.rounds import rounds_of
from pairmill.engine.shards import Todo, commit_finish, discard, forget
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan, fingerprint_of
from pairmill.engine.workers import WorkerPool
from pairmill.engine.writer import FinishWriter, Writer
from pairmill.errors import InputError, InternalError, PairmillError, StageFailure
from pairmill.storage.writable import require_writable

# Look at the version of this many finished folders at most: each takes a request or two to an object store.
_MAX_OLD = 16
# How many times as long as a look for records the wait before the next one is.
_LOOKS = 20
C = TypeVar("C", bound=RunOptions)
S = TypeVar("S", bound=RunConfig)
P = TypeVar("P", bound=StagePlan[Any])


@dataclass(frozen=True)
class Together:
    """A share of the work of every round, done together with the other shares.

    A round begins when every shard of the one before it is done: shares learn of each other by the
    records that they leave. None depends on another. If the others make no progress, their shards are done here, from
    the smallest on, since each share begins with its largest, and each share from another one on. Two that do the same
    shard write the same bytes.

    Args:
        part: the share.
        patience: seconds without a new record of the others, after which their shards are done here.
        pause: longest wait between two looks for records, in seconds.
    """

    part: WorkerSlice
    patience: float = 60.0
    pause: float = 5.0

    def deal(self, shards: Sequence[Shard[Any]]) -> list[Shard[Any]]:
        """Return the shards of this share. They are dealt from the largest to the smallest, so shares are alike."""
        return sorted(shards, key=lambda shard: (-shard.size, shard.name))[self.part.number - 1 :: self.part.count]

    def take_over(self, left: Sequence[Shard[Any]], count: int) -> list[Shard[Any]]:
        """Return which of the shards of absent others are done here next, where all shares that wait take some.

        Args:
            left: largest first.
            count: how many at once.
        """
        smallest = list(reversed(left))
        start = (self.part.number - 1) * count % len(left)
        return (smallest[start:] + smallest[:start])[:count]


class Result(NamedTuple):
    """A finished stage: the folder's URI, its manifest, and whether it was there already."""

    uri: str
    manifest: Manifest
    reused: bool
    seconds: float


def run(stage: Stage[C, P], config: C, together: Together | None = None) -> Result:
    """Run ``stage`` to a finished folder, doing only what no earlier run did.

    Args:
        stage: to run.
        together: with which other pods it shares the work; None = with none.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan, the stage, the ledger or the storage refused.
    """
    start = time.monotonic()
    job = _Job(stage, config)
    if manifests.exists(job.home):
        # What a run that was killed at its very end has left.
        forget(job.ending)
    finished = manifests.load_or_discard(job.home, job.is_wanted, verify=config.verify)
    if finished is not None:
        job.judge(finished)
        log.event(
            f"{stage.name}: reused, nothing to do", stage=stage.name, uri=job.home, fingerprint=finished.fingerprint
        )
        return Result(job.home, finished, True, time.monotonic() - start)
    say_why_made_again(stage.name, stage.version, stage.history, job.base)
    job.run_rounds(together)
    manifest = _finish(job)
    return Result(job.home, manifest, False, time.monotonic() - start)


def run_share(stage: Stage[S, P], config: S, together: Together) -> Result:
    """Run a share of the shards of every round, for a :func:`run` at the same time or later to finish the stage.

    Returns:
        The share. Its manifest describes the shards that this share did, and is not written.

    Raises:
        StageFailure: shards failed; all others are committed first.
        PairmillError: the plan, the stage or the storage refused.
    """
    start = time.monotonic()
    job = _Job(stage, config)
    done: list[list[ShardRecord]] = []
    if manifests.load_or_discard(job.home, job.is_wanted, verify=config.verify, discard=False) is None:
        say_why_made_again(stage.name, stage.version, stage.history, job.base)
        done = job.run_rounds(together)
    if not any(done):
        log.event(f"{stage.name}: share {together.part} has nothing to do", stage=stage.name, uri=job.home)
    manifest = job.manifest(Ledger.sum(record.ledger for record in (done[0] if done else [])), [[]])
    numbered = [(number, record) for number, records in enumerate(done, start=1) for record in records]
    manifest.shards = {f"round {number}: {record.name}": record.ledger for number, record in numbered}
    manifest.files = [file for _, record in numbered for file in record.files]
    return Result(job.home, manifest, not numbered, time.monotonic() - start)


def locate(stage: Stage[C, P], config: C) -> tuple[str, Callable[[], bool]]:
    """Return the URI of the folder that a run would finish, and a function that looks whether it is finished."""
    job = _Job(stage, config)
    return (
        job.home,
        lambda: manifests.load_or_discard(job.home, job.is_wanted, verify=config.verify, discard=False) is not None,
    )


class _Job(Generic[C, P]):
    """A stage, its options and plan, and how far its rounds have got.

    Attributes:
        shards: of the next round; None after the last.
        blocks: the records of that round in blocks, if it has many shards.
        rounds: records of the finished rounds.
    """

    def __init__(self, stage: Stage[C, P], config: C) -> None:
        self.stage = stage
        self.config = config = replace(config, root=storage.normalise(config.root, "root"))
        self.base = storage.join(config.root, stage.folder or stage.name)
        self.cache = storage.join(self.base, SHARDS)
        with links.obeyed(config.links):
            self.plan = stage.plan(config)
        self.rounds: list[list[ShardRecord]] = []
        self.shards: Sequence[Shard[Any]] | None = None
        self.blocks: Blocks | None = None
        self._changed = False
        self._generator = rounds_of(stage, config, self.plan)
        self._advance(None)
        self._named: tuple[P, str] | None = None

    @property
    def fingerprint(self) -> str:
        """Name of the finished folder."""
        if self._named is None or self._named[0] is not self.plan:
            first = self.rounds[0] if self.rounds else self.shards or []
            self._named = self.plan, fingerprint_of(self.stage, self.config, self.plan, first)
        return self._named[1]

    @property
    def home(self) -> str:
        """URI of the finished folder."""
        return storage.join(self.base, self.fingerprint)

    @property
    def ending(self) -> str:
        """URI of the folder that has what the stage itself adds to the finished folder, until that is finished."""
        return storage.join(self.cache, f"end-{self.fingerprint}")

    def is_wanted(self, finished: Manifest) -> bool:
        """Return whether this manifest of the finished folder stays, so that there is nothing to do."""
        if finished.format != manifests.FORMAT:
            log.event(
                f"{self.stage.name}: made again, the manifest of {self.home} is of an older pairmill and has no digest "
                "that would show damage",
                stage=self.stage.name,
                uri=self.home,
            )
            return False
        return self.stage.is_intact(self.config, self.plan, self.home)

    def judge(self, manifest: Manifest) -> None:
        """Raise InputError if a result is not what the options expect."""
        self.plan.check(manifest)
        vanished.refuse(manifest, self.config.fail_on)

    def title_of(self, shards: Sequence[Shard[Any]]) -> str:
        """Return what the next round is called, for people: ``curate 3/14 find exact duplicates``."""
        place, count = len(self.rounds) + 1, self.stage.round_count
        # Very much data takes rounds that only it needs.
        number = f"{place}/{count}" if place <= count else str(place)
        return f"{self.stage.name} {number} {shards[0].words()}"

    def todo(self, shards: Sequence[Shard[Any]], *, verify: bool = False, most: int | None = None) -> Todo:
        """Return what is done of shards of the next round; see :meth:`Todo.look_up`."""
        todo = Todo.look_up(shards, self.cache, verify=verify, blocks=self.blocks, most=most)
        self._changed = self._changed or todo.changed
        return todo

    def run_rounds(self, together: Together | None) -> list[list[ShardRecord]]:
        """Run what is left of every round; returns the records of the shards that were run, by round."""
        done = []
        if storage.scheme(self.cache) == "file":
            require_writable("root", storage.local_path(self.config.root), storage.local_path(self.cache))
        with (
            WorkerPool(self.stage.name, self.cache, self.config.workers) as pool,
            JoinedAhead(self.plan.joins() if together is None else None, self.cache, pool.processes) as ahead,
        ):
            while self.shards is not None:
                fresh, records = self._run(pool, ahead, together)
                done.append(fresh)
                self.next_round(records)
        return done

    def _run(
        self, pool: WorkerPool, ahead: JoinedAhead, together: Together | None
    ) -> tuple[list[ShardRecord], list[ShardRecord]]:
        """Run the next round; return the records of the shards that were run here, and of all."""
        shards = self.shards or []
        todo = self.todo(shards if together is None else together.deal(shards), verify=self.config.verify)
        left = {shard.name for shard in todo.left}
        if len(self.rounds) == 1:
            ahead.hand_over(todo.left)
        records = _run_round(self, pool, todo, ahead.add)
        fresh = [record for record in records if record.name in left]
        return fresh, records if together is None else _with_others(self, pool, together, fresh)

    def next_round(self, records: list[ShardRecord]) -> None:
        """Send the stage the records of this round and get the shards of the next."""
        self.rounds.append(records)
        # Those of this round go before those of the next come.
        self.shards = self.blocks = None
        self._advance(records)

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
        self.blocks = Blocks(self.cache, self.shards) if len(self.shards) > blocks.MANY else None
        if self._changed:
            # What earlier runs made of the changed bytes is whole, and wrong.
            discard(self.shards, self.cache)

    def manifest(self, ledger: Ledger, rounds: Rounds) -> Manifest:
        """Return one without files and data yet."""
        return Manifest(
            stage=self.stage.name,
            version=self.stage.version,
            fingerprint=self.fingerprint,
            options=self.plan.manifest_options(self.config),
            inputs=self.plan.all_inputs,
            ledger=ledger,
            files=[],
            shards={record.name: record.ledger for record in rounds[0]},
        )


def _with_others(job: _Job[C, P], pool: WorkerPool, together: Together, done: list[ShardRecord]) -> list[ShardRecord]:
    """Return the records of the round, once each share's part is done; ``done`` gets what is done here."""
    shards, name = job.shards or [], job.stage.name
    # Others put what they finish into blocks: of what is in none yet, some show that they make progress.
    todo = job.todo(shards, most=blocks.MANY)
    since, wait, looked, absent = time.monotonic(), 0.05, 0.0, False
    progress = bool(todo.done)
    while todo.left:
        taken: list[Shard[Any]] = []
        if progress:
            since, wait = time.monotonic(), 0.05
        # Of an array that begins late none may come: what they leave is done without another wait.
        absent = absent or time.monotonic() - since >= together.patience
        if progress or not absent:
            time.sleep(min(wait, max(together.pause, _LOOKS * looked)))
            wait *= 2
        else:
            taken = together.take_over(todo.left, pool.processes)
            log.event(f"{name}: other shares have {len(todo.left)} shards left and make no progress", stage=name)
            done += _run_round(job, pool, Todo(taken, {}, taken), _forget)
        began = time.monotonic()
        seen = job.todo(todo.left, most=blocks.MANY)
        looked = time.monotonic() - began
        progress = len(seen.done) > len(taken)
        todo = Todo(shards, {**todo.done, **seen.done}, seen.left)
    return todo.records()


def first_round(stage: Stage[C, P], config: C) -> Sequence[Shard[Any]]:
    """Return the shards that a run would begin with."""
    return next(rounds_of(stage, config, stage.plan(config)), [])


def say_why_made_again(name: str, version: int, history: Mapping[int, str], base: str) -> None:
    """If a stage's folder has results of an older version, log why they are not used again."""
    if version == 1:
        return
    folders = [folder for folder in storage.store_for(base).folders(base) if manifests.is_fingerprint(folder)]
    result = [manifests.version_of(storage.join(base, folder)) for folder in folders[:_MAX_OLD]]
    old = [item for item in result if item is not None and item < version]
    if old:
        reasons = [history[item] for item in range(min(old) + 1, version + 1) if item in history]
        log.event(
            f"{name}: results of an older version below {base} are not used again: {'; '.join(reasons)}",
            stage=name,
            uri=base,
            versions=sorted(set(old)),
        )


def _forget(record: ShardRecord) -> None:
    """Join nothing ahead: other shares have the rest."""


def _run_round(job: _Job[C, P], pool: WorkerPool, todo: Todo, see: Callable[[ShardRecord], None]) -> list[ShardRecord]:
    name = job.stage.name
    for record in todo.done.values():
        see(record)
    if todo.done:
        log.event(f"{name}: {len(todo.done)} of {len(todo.planned)} shards reused", stage=name)
    failures: list[tuple[str, PairmillError]] = []
    if todo.left:
        # The processes start while this one builds what they need.
        pool.start(todo.left)
        context = job.plan.context
        todo, failures = todo.without_broken()
        title = job.title_of(todo.planned)
        with log.progress(title, len(todo.planned), stage=name, round=len(job.rounds) + 1) as progress:
            progress.advance(len(todo.done), 0, 0)
            for shard, outcome in pool.run(context, todo.left):
                if isinstance(outcome, PairmillError):
                    failures.append((shard.name, outcome))
                else:
                    todo.done[shard.name] = outcome
                    see(outcome)
                    if job.blocks is not None:
                        job.blocks.add(shard, outcome)
                    progress.advance(1, outcome.ledger.rows_in, sum(file.size for file in outcome.files))
        if job.blocks is not None:
            job.blocks.flush()
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
    manifest = job.manifest(ledger, rounds)
    with closing(FinishWriter(folder, job.ending)) as out:
        manifest.data = stage.finish(job.config, plan, rounds, out)
        if plan.policy:
            manifest.data[policing.KEY] = plan.policy
        manifest.shards = stage.parts(plan, rounds)
        alarms = manifest.data.pop(vanished.KEY, None if stage.watched else [])
        manifest.vanished = vanished.table_of(manifest, alarms, plan.left_out)
        job.judge(manifest)
        report = with_alarms(stage.report(manifest), manifest)
        report.command, report.links = command_of(stage, manifest), list(links_of(manifest))
        report.options = options_of(stage, manifest)
        out.write_report(report)
        linked = [file for _, file in out.links]
        manifest.files = sorted([*out.files, *linked], key=lambda file: file.path)
        try:
            manifest, added = commit_finish(out, stage.name, manifest)
            # A run that has finished removes the record of its end: then this one may be of other bytes.
            if not manifests.exists(folder):
                final = Writer(folder)
                for source, file in [*out.links, *((added.uri(file.path), file) for file in added.files)]:
                    final.put(source, file)
                final.flush()
        except PairmillError:
            if not manifests.exists(folder):
                raise
    manifest = manifest.finish(folder)
    forget(job.ending)
    return manifest
