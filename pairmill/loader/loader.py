"""Batches of one rank, made ahead of the trainer."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self

from pairmill.errors import InternalError, PairmillError, StorageError, UsageError, from_os_error
from pairmill.loader.arguments import an, flag, shown, whole
from pairmill.loader.batch import Allocate, Batch, Pool
from pairmill.loader.plan import Draw, End, Plan, Position, World
from pairmill.log import event

# What is raised to end the program, or a generator, and says nothing of a batch.
_ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True)
class _Made:
    """What comes next: a batch, the end of an epoch, the end of all, or an error."""

    drawn: Draw | End | None
    batch: Batch | None = None
    error: BaseException | None = None


class _Ahead:
    """Makes batches from a position on. It does not know its loader, so that one that is forgotten can end it."""

    def __init__(
        self, plan: Plan, world: World, rank: int, pool: Pool, start: Position, threads: int, prefetch: int
    ) -> None:
        self.process = os.getpid()
        self._plan, self._world, self._rank, self._pool = plan, world, rank, pool
        self._next, self._prefetch = start, prefetch
        self._turn = Condition()
        self._made: dict[int, _Made] = {}
        self._begun = self._taken = 0
        self._ended = self._closed = False
        self._failed: BaseException | None = None
        self._threads = [Thread(target=self._work, name=f"pairmill loader {n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def take(self) -> _Made:
        """The next one, in order whatever the number of threads; and what ended a thread, whatever it was."""
        if not self._threads:
            return self._make(self._draw())
        with self._turn:
            self._turn.wait_for(lambda: self._taken in self._made or self._failed is not None)
            if self._taken not in self._made:
                return _Made(None, error=self._failed)
            made = self._made.pop(self._taken)
            self._taken += 1
            self._turn.notify_all()
        return made

    def close(self) -> None:
        """End the threads, whatever they wait for."""
        # They do not survive a fork, and one of them may have held the lock.
        if self.process != os.getpid():
            return
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join()

    def _draw(self) -> _Made:
        """Decide on what comes next; one after another, because each begins where the one before ends."""
        try:
            drawn = self._plan.draw(self._next, self._world)
        except BaseException as error:
            return self._caught(error)
        if drawn is not None:
            self._next = drawn.after
        return _Made(drawn)

    def _make(self, drawn: _Made) -> _Made:
        if not isinstance(drawn.drawn, Draw):
            return drawn
        try:
            return _Made(drawn.drawn, self._plan.fill(drawn.drawn, self._rank, self._world, self._pool.take()))
        except BaseException as error:
            return self._caught(error)

    def _caught(self, error: BaseException) -> _Made:
        """It comes at its batch. Ctrl-C of a caller without threads is his at once, and he can go on behind it."""
        if not self._threads and isinstance(error, _ENDS):
            raise error
        return _Made(None, error=error)

    def _work(self) -> None:
        # Whoever waits for a batch would do so for ever if a thread ended without a word.
        try:
            while self._work_once():
                pass
        except BaseException as error:
            with self._turn:
                self._failed, self._ended = error, True
                self._turn.notify_all()

    def _work_once(self) -> bool:
        with self._turn:
            self._turn.wait_for(
                lambda: self._closed or (not self._ended and self._begun < self._taken + self._prefetch)
            )
            if self._closed:
                return False
            number = self._begun
            self._begun += 1
            drawn = self._draw()
            self._ended = drawn.drawn is None
        made = self._make(drawn)
        with self._turn:
            self._made[number] = made
            self._turn.notify_all()
        return True


def _translated(error: BaseException, position: Position) -> BaseException:
    """An error of ours for whatever keeps a batch from being made, but for what is meant to end the program."""
    if isinstance(error, (PairmillError, *_ENDS)):
        return error
    where = f"loader, behind {position.batches:,} batches"
    made: PairmillError
    if isinstance(error, OSError):
        made = from_os_error(error, where)
    elif isinstance(error, MemoryError):
        made = StorageError(
            "no memory for a batch", where=where, got=shown(error), hint="set a smaller batch_tokens or prefetch"
        )
    else:
        made = InternalError(
            "the next batch cannot be made",
            where=where,
            got=shown(error),
            hint="if allocate or a data set of yours raised it, mend that; else this is a defect of pairmill",
        )
    made.__cause__ = error
    return made


class Loader:
    """Batches of one rank; every rank of a run has one, on the same plan.

    ``for batch in loader`` goes on from where the loader stands to the end of the plan; :meth:`epoch` to the end of the
    epoch. The position counts what was handed out, never what was made ahead.

    Args:
        plan: what to read.
        batch_tokens: tokens of a global batch, padding included: as many for each rank.
        rank: from 0.
        ranks: how many there are.
        threads: that make batches ahead; 0 = the caller's own, when it asks. Batches are the same for any number.
        prefetch: batches that are ahead at most, across the ends of epochs and phases.
        allocate: makes the memory of a batch, of so many bytes; :mod:`pairmill.loader.torch` gives pinned memory. By
            default memory is used again; what you give has to see to that by itself.

    Raises:
        UsageError: an option is wrong.
        InputError: the plan's data do not suit the ranks (:meth:`Plan.check`).
    """

    def __init__(
        self,
        plan: Plan,
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
        self.plan = an(plan, Plan, "plan", expected, hint)  # type: ignore[type-abstract]
        self.world, rank = World(ranks, batch_tokens), whole(rank, "rank")
        self.rank, ranks = rank, self.world.ranks
        threads, prefetch = whole(threads, "threads"), whole(prefetch, "prefetch")
        if not callable(allocate):
            raise UsageError(
                "is of another type", where="allocate", got=shown(allocate), expected="a function of a number of bytes"
            )
        if not 0 <= rank < ranks:
            raise UsageError("is no rank", where="rank", got=str(rank), expected=f"0 to {ranks - 1}")
        if threads < 0 or prefetch < 1:
            raise UsageError(
                "is too small",
                where="threads, prefetch",
                got=f"{threads}, {prefetch}",
                expected="threads of 0 or more, prefetch of 1 or more",
            )
        plan.check(self.world)
        # Now rather than at the first checkpoint: of data that nobody recorded the digests of, it reads all.
        self._digest = plan.digest
        self._threads, self._prefetch, self._allocate = threads, prefetch, allocate
        self._position = plan.begin()
        self._ahead: _Ahead | None = None
        self._over: _Made | None = None
        self.left: dict[tuple[str, int], int] = {}
        """Rows that nobody got, by source and epoch, of the epochs that ended here."""

    @property
    def position(self) -> Position:
        """How far this loader has come: what was handed out."""
        return self._position

    def __iter__(self) -> Iterator[Batch]:
        """All batches from here to the end of the plan.

        Raises:
            PairmillError: at the batch that cannot be made, and again whenever one is asked for.
        """
        return self._batches(one_epoch=False)

    def epoch(self) -> Iterator[Batch]:
        """The rest of the epoch. The next call gives the next epoch, and nothing if there is none.

        Raises:
            PairmillError: at the batch that cannot be made, and again whenever one is asked for.
        """
        return self._batches(one_epoch=True)

    def _batches(self, *, one_epoch: bool) -> Iterator[Batch]:
        while (made := self._take()).drawn is not None:
            if made.batch is not None:
                yield made.batch
            if one_epoch and (isinstance(made.drawn, End) or made.drawn.ends_epoch):
                return

    def state_dict(self) -> dict[str, Any]:
        """The position as a small JSON object, equal on all ranks: save that of one. It costs nothing."""
        return self.plan.state(self._position)

    def load_state_dict(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> None:
        """Go on where a loader stood when it gave this state, whatever its ranks and its batch size were.

        Args:
            state: what :meth:`state_dict` gave.
            accept_other_data: go on although the data are others; rows may then repeat or be lost.

        Raises:
            UsageError: it is no state of such a plan.
            InputError: it belongs to other data.
        """
        accept = flag(accept_other_data, "accept_other_data")
        self._position = self.plan.position(state, accept_other_data=accept)
        self._stop()
        self._over = None

    def close(self) -> None:
        """End the threads. A loader that is closed makes no batches; those that it made stay."""
        self._stop()
        self._over = _Made(None, error=UsageError("is closed", where="loader", hint="make another one"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> _Made:
        if self._over is None:
            made = self._running().take()
            if made.drawn is None:
                self._stop()
                self._over = made
            else:
                self._position = made.drawn.after
                if isinstance(made.drawn, End):
                    self._say(made.drawn)
                return made
        if self._over.error is not None:
            error = _translated(self._over.error, self._position)
            self._over = _Made(None, error=error)
            raise error
        return self._over

    def _running(self) -> _Ahead:
        # A worker process of torch's begins its own.
        if self._ahead is None or self._ahead.process != os.getpid():
            # Whose memory it is knows best when it is free: a GPU may still read what nobody here refers to.
            keep = self._prefetch + 2 if self._allocate is bytearray else 0
            pool = Pool(self.plan.size(self.world), keep, self._allocate)
            self._ahead = _Ahead(self.plan, self.world, self.rank, pool, self._position, self._threads, self._prefetch)
            self._end = weakref.finalize(self, self._ahead.close)
            self._end.atexit = False
        return self._ahead

    def _stop(self) -> None:
        if self._ahead is not None:
            self._end()
        self._ahead = None

    def _say(self, end: End) -> None:
        self.left[end.source, end.epoch] = end.left
        event(
            f"{end.source}: epoch {end.epoch} ends, {end.left:,} rows were left",
            source=end.source,
            epoch=end.epoch,
            rows=end.left,
        )
