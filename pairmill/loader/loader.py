"""Batches of one rank, made ahead of the trainer."""

import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from threading import Condition, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from pairmill.errors import InternalError, PairmillError, StorageError, UsageError, from_os_error
from pairmill.loader import sidecar, steps
from pairmill.loader.arguments import boolean, instance, integer, shown
from pairmill.loader.batch import Allocate, Batch, Pool
from pairmill.loader.plan import Draw, EpochEnd, Position, Progress, TrainingPlan, World
from pairmill.loader.steps import StepsLeft
from pairmill.log import event

# Raised to end the program or a generator, not by a batch.
_EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class _Item(NamedTuple):
    """What comes next: a batch, the end of an epoch, the end of the plan (all None), or an error."""

    drawn: Draw | EpochEnd | None
    batch: Batch | None = None
    error: BaseException | None = None


class _Prefetcher:
    """Makes batches from a position on. It does not refer to its loader, so that a forgotten loader can end it."""

    def __init__(
        self, plan: TrainingPlan, world: World, rank: int, pool: Pool, start: Position, threads: int, prefetch: int
    ) -> None:
        self.process = os.getpid()
        self._plan, self._world, self._rank, self._pool = plan, world, rank, pool
        self._next, self._prefetch = start, prefetch
        self._turn = Condition()
        # What a thread makes at once: each chunk wakes threads, and waits for the interpreter, once.
        self._chunk = max(1, prefetch // (2 * threads)) if threads else 1
        self._made: dict[int, list[_Item]] = {}
        self._begun = self._taken = self._ahead = 0
        self._current: deque[_Item] = deque()
        self._rest = 0
        self._ended = self._closed = False
        self._failed: BaseException | None = None
        self._threads = [Thread(target=self._work, name=f"pairmill loader {n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def take(self) -> _Item:
        """Return the next item, in the same order for any number of threads; or the error that ended a thread."""
        if not self._threads:
            return self._make(self._draw(1))[0]
        if not self._current:
            with self._turn:
                self._turn.wait_for(lambda: self._taken in self._made or self._failed is not None)
                if self._taken not in self._made:
                    return _Item(None, error=self._failed)
                self._current.extend(self._made.pop(self._taken))
                self._taken += 1
                # The others of the chunk before, and the first of this.
                self._ahead -= self._rest + 1
                self._rest = len(self._current) - 1
                self._turn.notify_all()
        return self._current.popleft()

    def close(self) -> None:
        """End the threads, even if they wait."""
        # Threads do not survive a fork, and one of them may have held the lock.
        if self.process != os.getpid():
            return
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join()

    def _draw(self, count: int) -> list[_Item]:
        """Decide what comes next; one caller at a time, because each draw begins where the one before ends."""
        try:
            draws = self._plan.draw_ahead(self._next, self._world, self._rank, count)
        except BaseException as error:
            return [self._caught(error)]
        if (last := draws[-1]) is not None:
            self._next = last.after
        return [_Item(drawn) for drawn in draws]

    def _make(self, items: list[_Item]) -> list[_Item]:
        draws = [item.drawn for item in items if isinstance(item.drawn, Draw)]
        if len(draws) < len(items):
            return items if not draws else [made for item in items for made in self._make([item])]
        try:
            memories = [self._pool.take() for _ in draws]
            batches = self._plan.fill_ahead(draws, self._rank, self._world, memories)
            return [_Item(draw, batch) for draw, batch in zip(draws, batches, strict=True)]
        except BaseException as error:
            caught = self._caught(error)
        made: list[_Item] = []
        for item in items[:-1] if len(items) > 1 else ():
            made += self._make([item])
            if made[-1].error is not None:
                return made
        # An error that does not come again is not lost either.
        return [*made, caught]

    def _caught(self, error: BaseException) -> _Item:
        """Keep an error until its batch is asked for. Without threads, Ctrl-C is raised at once."""
        if not self._threads and isinstance(error, _EXITS):
            raise error
        return _Item(None, error=error)

    def _work(self) -> None:
        # If a thread ended silently, take() would wait for ever.
        try:
            while self._work_once():
                pass
        except BaseException as error:
            with self._turn:
                self._failed, self._ended = error, True
                self._turn.notify_all()

    def _work_once(self) -> bool:
        with self._turn:
            # The first batch does not wait for others.
            count = min(self._chunk, self._begun + 1)
            self._turn.wait_for(lambda: self._closed or (not self._ended and self._ahead + count <= self._prefetch))
            if self._closed:
                return False
            number = self._begun
            self._begun += 1
            items = self._draw(count)
            self._ahead += len(items)
            self._ended = items[-1].drawn is None
        items = self._make(items)
        with self._turn:
            self._made[number] = items
            self._turn.notify_all()
        return True


def _translated(error: BaseException, position: Position) -> BaseException:
    """Return a PairmillError for any error that keeps a batch from being made, except those that end the program."""
    if isinstance(error, (PairmillError, *_EXITS)):
        return error
    where = f"loader, after {position.batches:,} batches"
    made: PairmillError
    if isinstance(error, OSError):
        made = from_os_error(error, where)
    elif isinstance(error, MemoryError):
        hint = "set a smaller batch_tokens or prefetch"
        made = StorageError("not enough memory for a batch", where=where, got=shown(error), hint=hint)
    else:
        hint = "if allocate or a data set of yours raised it, correct that; otherwise this is a bug in pairmill"
        made = InternalError("cannot make the next batch", where=where, got=shown(error), hint=hint)
    made.__cause__ = error
    return made


class Loader:
    """Batches of one rank; every rank of a run has a loader, on the same plan.

    ``for batch in loader`` continues from the loader's position to the end of the plan; :meth:`epoch` to the end of the
    epoch. The position counts what was handed out, never what was made ahead.

    Args:
        plan: what to read.
        batch_tokens: tokens of a global batch, padding included; each rank has the same number of them.
        rank: from 0.
        ranks: how many there are.
        threads: that make batches ahead; 0 = each batch is made when it is asked for. The batches are the same.
        prefetch: the most batches made ahead, across the ends of epochs and phases too.
        allocate: makes the memory of a batch, given its size in bytes; :mod:`pairmill.loader.torch` gives pinned
            memory. The default memory is reused; another allocator must do that itself.

    Raises:
        UsageError: an option is wrong.
        InputError: the plan's data do not suit the ranks (:meth:`TrainingPlan.check`).
    """

    def __init__(
        self,
        plan: TrainingPlan,
        *,
        batch_tokens: int,
        rank: int = 0,
        ranks: int = 1,
        threads: int = 1,
        prefetch: int = 8,
        allocate: Allocate = bytearray,
    ) -> None:
        hint = "write Loader(RowPlan(path), …)" if isinstance(plan, str | os.PathLike) else ""
        expected = "a RowPlan, MixturePlan or StreamPlan"
        self.plan = instance(plan, TrainingPlan, "plan", expected, hint)  # type: ignore[type-abstract]
        self.world = World(ranks, batch_tokens)
        self.rank = integer(rank, "rank", 0, self.world.ranks - 1)
        self._threads, self._prefetch = integer(threads, "threads", 0), integer(prefetch, "prefetch", 1)
        if not callable(allocate):
            raise UsageError(
                "wrong type", where="allocate", got=shown(allocate), expected="a function of a number of bytes"
            )
        self._allocate = allocate
        plan.check(self.world)
        # Now rather than at the first checkpoint: it reads all data that no manifest lists.
        self._digest = plan.digest
        self._position = plan.begin()
        self._prefetcher: _Prefetcher | None = None
        self._over: _Item | None = None
        self.left: dict[tuple[str, int], int] = {}
        """Rows that no rank got, by source and epoch, of the epochs that ended here."""

    @property
    def position(self) -> Position:
        """How far this loader has come: what was handed out."""
        return self._position

    @property
    def progress(self) -> Progress:
        """How far this loader has come in rows, and as a fraction of the epoch.

        Raises:
            UsageError: the plan is not of sampled folders.
        """
        return steps.rows_of(self.plan).progress(self._position)

    def steps_left(self, batch_tokens: int = 0, ranks: int = 0, accumulate: int = 1) -> StepsLeft:
        """Count the batches from here to the end of the plan, and the optimizer steps that they make; no token is read.

        Args:
            batch_tokens: tokens of a micro-batch of all ranks; 0 = this loader's.
            ranks: 0 = this loader's.
            accumulate: micro-batches of an optimizer step.

        Raises:
            UsageError: the plan has no end, or an option is wrong.
            InputError: the data do not suit the ranks.
        """
        world = World(ranks or self.world.ranks, batch_tokens or self.world.batch_tokens)
        return steps.count_steps(self.plan, self._position, world, accumulate)

    def __iter__(self) -> Iterator[Batch]:
        """Return all batches from here to the end of the plan.

        Raises:
            PairmillError: at the batch that cannot be made, and again whenever one is asked for.
        """
        return self._batches(one_epoch=False)

    def epoch(self) -> Iterator[Batch]:
        """Return the rest of the epoch; the next call gives the next epoch, and nothing if there is none. Raises as
        above."""
        return self._batches(one_epoch=True)

    def _batches(self, *, one_epoch: bool) -> Iterator[Batch]:
        while (item := self._take()).drawn is not None:
            if item.batch is not None:
                yield item.batch
            if one_epoch and (isinstance(item.drawn, EpochEnd) or item.drawn.ends_epoch):
                return

    def state_dict(self) -> dict[str, Any]:
        """Return the position as a small JSON object, equal on all ranks: save that of one. It costs nothing."""
        return self.plan.state(self._position)

    def load_state_dict(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> None:
        """Continue where a loader was when it returned this state, with any number of ranks and any batch size.

        A plan that extends the plan of the state goes on at the same epoch and row, if it kept that epoch.

        Args:
            state: what :meth:`state_dict` returned; or the content of ``checkpoint_state_<tag>.json`` of a trainer
                derived from HRM-Text (:func:`pairmill.loader.sidecar.position_of`).
            accept_other_data: continue although the data differ; rows may then repeat or be lost.

        Raises:
            UsageError: not a state of such a plan.
            InputError: it was saved with other data.
        """
        accept = boolean(accept_other_data, "accept_other_data")
        self._position = sidecar.position(self.plan, self.world, state, accept_other_data=accept)
        self._stop()
        self._over = None

    def close(self) -> None:
        """End the threads. A closed loader makes no batches; those that it made stay."""
        self._stop()
        self._over = _Item(None, error=UsageError("closed", where="loader", hint="create another one"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> _Item:
        if self._over is None:
            item = self._running().take()
            if item.drawn is None:
                self._stop()
                self._over = item
            else:
                self._position = item.drawn.after
                if isinstance(item.drawn, EpochEnd):
                    self._report(item.drawn)
                return item
        if self._over.error is not None:
            error = _translated(self._over.error, self._position)
            self._over = _Item(None, error=error)
            raise error
        return self._over

    def _running(self) -> _Prefetcher:
        # A worker process of torch's starts its own.
        if self._prefetcher is None or self._prefetcher.process != os.getpid():
            # An allocator knows best when its memory is free: a GPU may still read what nothing here refers to.
            keep = self._prefetch + 2 if self._allocate is bytearray else 0
            pool = Pool(self.plan.size(self.world), keep, self._allocate)
            self._prefetcher = _Prefetcher(
                self.plan,
                self.world,
                self.rank,
                pool=pool,
                start=self._position,
                threads=self._threads,
                prefetch=self._prefetch,
            )
            self._end = weakref.finalize(self, self._prefetcher.close)
            self._end.atexit = False
        return self._prefetcher

    def _stop(self) -> None:
        if self._prefetcher is not None:
            self._end()
        self._prefetcher = None

    def _report(self, end: EpochEnd) -> None:
        self.left[end.source, end.epoch] = end.left
        text = f"{end.source}: epoch {end.epoch} ended, {end.left:,} rows were left over"
        event(text, source=end.source, epoch=end.epoch, rows=end.left)
