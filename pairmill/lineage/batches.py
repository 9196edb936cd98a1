"""Which rows of a plan a trainer had in a step, and in which steps it had a row: by the loader's own planner.

No array is made of the plan, and no token is read. Where batches begin follows from the lengths of all rows before
them: these are kept a byte each, and the order of each epoch is read once, a piece at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill._native import BatchWalk, RowIndex, RowLengths, find_values
from pairmill.cpu import available_cores
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.plan_rows import Ints, PlanRows, last_not_above
from pairmill.loader import Phase, RowPlan
from pairmill.loader.arrays import numbers
from pairmill.loader.folder import SampledFolder
from pairmill.loader.kept_batches import Chain
from pairmill.loader.plan import Draw, Position, World
from pairmill.loader.row_plan import Balance, Packing, Rows, Tail
from pairmill.loader.segments import Segment, segments
from pairmill.storage.base import map_ahead

_PIECE: Final = 1 << 20
"""Rows that are read at once."""
_FIRST: Final = 1 << 11
"""Rows that are looked up first for a window; twice as many each time."""


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How a trainer made batches of a plan, as :class:`pairmill.loader.RowPlan` and ``Loader`` take it.

    Attributes:
        accumulate: global batches of an optimizer's step, all of one epoch; what an epoch has beyond whole steps is in
            none.
        parts: ranks of the loader that one process reads, as train's ``batch.accumulate`` makes them.
        marks: positions that the training noted, by their batches: a step is looked for from the nearest one on, and
            what comes before is not read. The last one is the end of the training.
    """

    batch_tokens: int
    ranks: int = 1
    packing: Packing = "ranks"
    balance: Balance = "lpt"
    tail: Tail = "drop"
    long_rows: Literal["refuse", "skip"] = "refuse"
    one_token_rows: Literal["keep", "skip"] = "keep"  # noqa: S105 (not a password)
    accumulate: int = 1
    parts: int = 1
    phases: tuple[Phase, ...] = ()
    marks: Sequence[Position] = ()

    @property
    def world(self) -> World:
        """The ranks as the loader sees them."""
        return World(self.ranks * self.parts, self.batch_tokens)


class Place(NamedTuple):
    """A row of a step: number of the plan among several, epoch, place in it, and the rank that had it."""

    source: int
    epoch: int
    place: int
    rank: int


class Name(NamedTuple):
    """What a row of a plan is: its task and its number in the tokenized arrays; and tokens of both texts.

    Attributes:
        piece: of a row that was split, from 0.
    """

    task: str
    number: int
    piece: int
    prompt: int
    response: int


class Pass(NamedTuple):
    """A row drawn into an epoch: its task and its number in the tokenized arrays, and where it comes.

    Attributes:
        piece: of a row that was split, from 0.
    """

    task: str
    number: int
    epoch: int
    place: int
    piece: int


class Seen(NamedTuple):
    """The step, from 1, and the rank that had the row at a place of an epoch; 0 and -1: no step had it."""

    epoch: int
    place: int
    step: int
    rank: int


class PlanBatches:
    """Steps and rows of a plan, or of several that one training read in phases.

    Args:
        plans: the finished folders, by the names that phases have for them; or arrays of rows without a plan, whose
            rows have places alone.
        batching: of the training; None = steps are not asked for.

    Raises:
        InputError: not a plan, or damaged; or a row is longer than the slots of a rank.
    """

    def __init__(self, plans: Mapping[str, OpenResult], batching: Batching | None = None) -> None:
        self.batching = batching
        self.marks = batching.marks if batching is not None else ()
        self.planned = all(plan.kind == "plan" for plan in plans.values())
        self.rows = [PlanRows(plan) for plan in plans.values()] if self.planned else []
        self.tokenized = [_Tokenized(plan) for plan in plans.values()]
        self.epochs = [plan.epochs for plan in plans.values()]
        self.plans = dict(plans)
        self._known: list[tuple[int, _Steps]] = []

    @classmethod
    def open(cls, plan: str, batching: Batching | None = None, *, tokenized: str = "") -> PlanBatches:
        """Open one plan by its path or URI, and the tokenized folder of it that is not below its project."""
        result = replace(open_result(plan, "plan"), tokens_at=tokenized)
        if result.kind not in ("plan", "sampled"):
            hint = "give <root>/sample/<fingerprint>, which the arrays were made of"
            raise InputError("not a plan of sample", where=f"plan={result.uri}", got=result.kind, hint=hint)
        return cls({"data": result}, batching)

    @cached_property
    def planner(self) -> RowPlan:
        """The loader's planner over the plans."""
        assert self.batching is not None
        names = ("packing", "balance", "tail", "long_rows", "one_token_rows")
        options: dict[str, Any] = {name: getattr(self.batching, name) for name in names}
        options["phases"] = self.batching.phases or None
        if self.planned:
            return PlannedRows(self.plans, self.rows, **options)
        return RowPlan({name: storage.local_path(plan.uri) for name, plan in self.plans.items()}, **options)

    def batch(self, step: int) -> list[Place]:
        """Return the rows of a step, from 1: rank after rank, in the order of its slots.

        Raises:
            UsageError: there is no such step.
            InputError: a batch cannot be made of the rows.
        """
        last = self.marks[-1].batches if self.marks else 0
        if 0 < step <= last:
            position = self.marks[bisect_right(self.marks, step - 1, key=lambda mark: mark.batches) - 1]
            drawn = next(item for item in self._draws(position) if item.after.batches == step)
            return list(self._shared(drawn))
        for first, steps in self._steps() if not self.marks else ():
            last = first + len(steps) - 1
            if first <= step <= last:
                self._rest()
                return [place for member in steps[step - first] for place in self._places(member)]
        raise UsageError("no such step", where="step", got=f"{step:,}", expected=f"1 to {last:,}")

    def seen(self, places: Sequence[tuple[int, int]], source: int = 0) -> Iterator[Seen]:
        """Yield for each row at a place of an epoch the step and the rank that had it, in ascending order of places.

        Raises:
            InputError: a batch cannot be made of the rows.
        """
        if self.marks:
            yield from (self._seen_from_marks(*place, source) for place in sorted(set(places)))
            return
        wanted, known = set(places), dict[tuple[int, int], Seen]()
        of_epoch = {epoch: np.array(sorted(place for item, place in wanted if item == epoch)) for epoch, _ in wanted}
        last_epoch = max(of_epoch, default=-1)
        for first, steps in self._steps():
            if steps.source != source:
                continue
            if steps.epoch > last_epoch:
                self._rest()
                break
            if steps.epoch in of_epoch:
                mine = of_epoch[steps.epoch]
                for number in np.unique(np.searchsorted(steps.starts, mine, "right") - 1).tolist():
                    if number >= 0:
                        self._note(steps, number, first, wanted, known)
            if self.planner.tail == "carry":  # the last batch may have rows of the next epoch
                self._note(steps, len(steps.starts) - 1, first, wanted, known)
        for epoch, place in sorted(wanted):
            yield known.get((epoch, place), Seen(epoch, place, 0, -1))

    def passes(self, rows: Mapping[str, Ints], source: int = 0) -> Iterator[Pass]:
        """Yield where rows come in the epochs of a plan, in the order of epochs and places.

        Args:
            rows: by task their numbers in the tokenized arrays, int64, ascending.
            source: number of the plan.
        """
        of_plan = self.rows[source]
        pieces = sorted(
            (piece for task, some in rows.items() for piece in self._pieces(source, task, some)),
            key=lambda item: item[0],
        )
        wanted = np.array([row for row, *_ in pieces], np.uint32)
        for epoch in range(self.epochs[source]) if pieces else ():
            for place, which in find_places(of_plan, epoch, wanted):
                _, task, number, piece = pieces[which]
                yield Pass(task, number, epoch, place, piece)

    def names(self, places: Sequence[Place]) -> list[Name]:
        """Return what the rows at some places are, in their order; of plans, not of arrays."""
        result: dict[Place, Name] = {}
        for (source, epoch), group in groupby(sorted(set(places)), key=lambda item: item[:2]):
            members = list(group)
            rows = self.rows[source]
            numbers = rows.numbers(epoch, members[0].place, members[-1].place + 1)
            numbers = numbers[[item.place - members[0].place for item in members]]
            _, prompts, starts, responses = rows.columns(numbers)
            ends = np.array([end for *_, end in rows.tasks])
            entries = np.searchsorted(ends, numbers, "right")
            for entry in np.unique(entries).tolist():
                task, low, high = rows.tasks[entry]
                mine = np.flatnonzero(entries == entry)
                known = self.tokenized[source].starts(task)
                of_task = last_not_above(known, starts[mine])
                for at, number in zip(mine.tolist(), of_task.tolist(), strict=True):
                    piece = len(rows.rows_between((low, high), int(known[number]), int(starts[at])))
                    result[members[at]] = Name(task, number, piece, int(prompts[at]), int(responses[at]))
        return [result[place] for place in places]

    def _pieces(self, source: int, task: str, some: Sequence[int] | Ints) -> Iterator[tuple[int, str, int, int]]:
        """Yield the plan's rows of a task's rows: number in the plan, task, number in the tokenized arrays, piece."""
        known = [(low, high) for name, low, high in self.rows[source].tasks if name == task]
        starts = self.tokenized[source].starts(task) if known else np.empty(0, np.int64)
        for number in some:
            if not 0 <= number < len(starts):
                continue
            first = int(starts[number])
            end = int(starts[number + 1]) if number + 1 < len(starts) else np.iinfo(np.int64).max
            piece = 0
            for low, high in known:
                for row in self.rows[source].rows_between((low, high), first, end):
                    yield row, task, int(number), piece
                    piece += 1

    def _steps(self) -> Iterator[tuple[int, _Steps]]:
        """Yield the steps that begin in an epoch, and the number of the first, from 1."""
        assert self.batching is not None
        yield from self._known
        for steps in self._coming:
            first = self._known[-1][0] + len(self._known[-1][1]) if self._known else 1
            self._known.append((first, steps))
            yield first, steps

    @cached_property
    def _coming(self) -> Iterator[_Steps]:
        """What was not looked at yet of the steps, epoch after epoch."""
        assert self.batching is not None
        self.planner.check(self.batching.world)
        parts: list[Segment] = []
        for segment in segments(self.planner, self.batching.world):
            parts.append(segment)
            if segment.last:
                yield _Steps(parts, self.batching.accumulate)
                parts = []

    def _seen_from_marks(self, epoch: int, place: int, source: int) -> Seen:
        at = bisect_right([mark.cursors[source] for mark in self.marks], (epoch, place))
        for drawn in self._draws(self.marks[max(0, at - 1)]):
            of_source = drawn.source == self.planner.names[source]
            if drawn.after.batches > self.marks[-1].batches or (
                of_source and (drawn.epoch, drawn.start_row) > (epoch, place)
            ):
                break
            for item in self._shared(drawn) if of_source and drawn.after.cursors[source] > (epoch, place) else ():
                if item[:3] == (source, epoch, place):
                    return Seen(epoch, place, drawn.after.batches, item.rank)
        return Seen(epoch, place, 0, -1)

    def _draws(self, position: Position) -> Iterator[Draw]:
        """Yield the batches from a position on."""
        assert self.batching is not None
        while (drawn := self.planner.draw(position, self.batching.world)) is not None:
            if isinstance(drawn, Draw):
                yield drawn
            position = drawn.after

    def _rest(self) -> None:
        """End what is looked at ahead; what is known by then is kept."""
        if isinstance(self.planner, PlannedRows):
            self.planner.rest()

    def _places(self, member: tuple[Segment, int]) -> Iterator[Place]:
        assert self.batching is not None
        segment, number = member
        drawn = self.planner.draw(segment.position(number), self.batching.world)
        assert isinstance(drawn, Draw)
        return self._shared(drawn)

    def _shared(self, drawn: Draw) -> Iterator[Place]:
        """Yield the rows of a batch, rank after rank."""
        assert self.batching is not None
        for rank in range(self.batching.world.ranks):
            for source, epoch, row in self.planner.rows_of(drawn, rank).tolist():
                yield Place(source, epoch, row, rank // self.batching.parts)

    def _note(
        self, steps: _Steps, number: int, first: int, wanted: set[tuple[int, int]], known: dict[tuple[int, int], Seen]
    ) -> None:
        """Note which of some rows a batch has, by its number among those that begin in its epoch."""
        step = number // steps.accumulate
        for place in self._places(steps.member(number)) if step < len(steps) else ():
            if (place.epoch, place.place) in wanted:
                known[place.epoch, place.place] = Seen(place.epoch, place.place, first + step, place.rank)


class _Steps:
    """The steps whose batches begin in one epoch."""

    def __init__(self, parts: list[Segment], accumulate: int) -> None:
        self.accumulate = accumulate
        self.source, self.epoch = parts[0].source, parts[0].epoch
        self.starts = np.concatenate([part.starts for part in parts])
        self._parts = parts
        self._ends = np.cumsum([len(part.starts) for part in parts])

    def __len__(self) -> int:
        return len(self.starts) // self.accumulate

    def __getitem__(self, step: int) -> list[tuple[Segment, int]]:
        return [self.member(step * self.accumulate + number) for number in range(self.accumulate)]

    def member(self, number: int) -> tuple[Segment, int]:
        """Return the segment of a batch, and its number in it."""
        part = int(np.searchsorted(self._ends, number, "right"))
        return self._parts[part], number - int(self._ends[part]) + len(self._parts[part].starts)


class _Tokenized:
    """Where the responses of a task's rows begin."""

    def __init__(self, plan: OpenResult) -> None:
        self._plan = plan
        self._starts: dict[str, NDArray[Any]] = {}

    @cached_property
    def folder(self) -> OpenResult:
        """The tokenized folder that the plan was drawn from."""
        return open_result(self._plan.tokenized.uri, "tokenized")

    def starts(self, task: str) -> NDArray[Any]:
        """Return the first token of each response, integers [rows]."""
        if task not in self._starts:
            self._starts[task] = self.folder.tokens(task).index["resp_start"]
        return self._starts[task]


class PlannedRows(RowPlan):
    """The loader's plan over plans of sample that were not carried out: it packs batches, and fills none.

    Args:
        plans: by name.
        rows: of each.
        options: as :class:`RowPlan` takes them.
    """

    def __init__(self, plans: Mapping[str, OpenResult], rows: Sequence[PlanRows], **options: Any) -> None:
        self._planned = {
            name: _Planned(plan, item, name) for (name, plan), item in zip(plans.items(), rows, strict=True)
        }
        super().__init__({name: plan.uri for name, plan in plans.items()}, **options)

    def _open(self, name: str, place: str) -> SampledFolder:
        return cast(SampledFolder, self._planned[name])

    def check(self, world: World) -> None:
        """Refuse rows that have no room, as the loader does; the rows of all epochs are looked at."""
        into = self.packed_into(world)
        slots = into.slots
        for number, plan in enumerate(self._planned.values()):
            # Where batches are kept, their rows had room.
            if not Chain(self, number, 0, into).is_kept and plan.lengths.most > slots and not self.skip_long:
                raise InputError(
                    "the longest row does not fit into a rank's slots, so no training read the plan like this",
                    where=str(plan.path),
                    got=f"{plan.lengths.most:,} slots",
                    expected=f"at most {slots:,}",
                    hint="give batch_tokens, ranks and packing as the training had them; or long_rows=skip",
                )

    def rest(self) -> None:
        """End what is looked at ahead."""
        for plan in self._planned.values():
            plan.halt.set()

    def batches_ahead(self, source: int, epoch: int, start: int, world: World) -> Rows:
        def walk() -> BatchWalk:
            passed = self._passed(world)
            return BatchWalk(start, ranks=world.ranks, tokens=world.slots, balance=self.balance, **passed)

        # Other epochs begin with their first row, so they are looked at meanwhile.
        return self._planned[self.names[source]].ends(epoch, start, start == 0 and self.tail != "carry", walk)


class _Planned:
    """A plan in place of the arrays that a node makes of it: what :class:`RowPlan` asks a sampled folder to plan."""

    surveys = ()
    tokenizer = None

    def __init__(self, plan: OpenResult, rows: PlanRows, name: str) -> None:
        self.name, self.path, self._rows = name, plan.uri, rows
        self.sample = plan.manifest.fingerprint if plan.manifest else ""
        self.epochs = [_Epoch(rows, epoch) for epoch in range(plan.epochs)]
        self.metadata = self.files = self
        self.phases: Sequence[tuple[str, int]] = ()
        self._pool = ThreadPoolExecutor(available_cores())
        self._walks: dict[tuple[int, int], Future[Rows]] = {}
        self.halt = Event()

    def check(self) -> None:
        """Find nothing wrong: no file is mapped."""

    @cached_property
    def lengths(self) -> RowLengths:
        """Inputs of all rows of the plan, in its order."""
        result = RowLengths(self._rows.count)
        for part in self._rows:
            files = [part.file(name) for name in ("inst_len", "resp_len")]

            def read(first: int, files: list[Any] = files) -> list[Ints]:
                return [file[first : first + _PIECE].astype(np.int64) for file in files]

            for columns in map_ahead(self._pool, read, range(0, len(files[0]), _PIECE), available_cores()):
                result.extend(*columns)
        return result

    def ends(self, epoch: int, start: int, ahead: bool, walk: Callable[[], BatchWalk]) -> Rows:
        """Return where batches from a row on end (:meth:`RowPlan.batches_ahead`)."""
        self.halt.clear()
        last = epoch + available_cores() if ahead else epoch + 1
        for number in range(epoch, min(last, len(self.epochs))):
            if (number, start) not in self._walks:
                self._walks[number, start] = self._pool.submit(self._walk, number, start, walk())
        made = self._walks.pop((epoch, start), None)
        return made.result() if made is not None else np.empty((0, 3), np.int64)

    def _walk(self, epoch: int, start: int, walk: BatchWalk) -> Rows:
        rows, lengths, parts = self.epochs[epoch].rows, self.lengths, []
        for first in range(start, rows, _PIECE):
            going = walk.follow(lengths, self._rows.numbers(epoch, first, min(first + _PIECE, rows)), rows)
            parts.append(walk.take())
            if not going or self.halt.is_set():
                break
        return np.concatenate([np.empty((0, 3), np.int64), *parts])


class _Epoch:
    """An epoch of a plan, as :class:`pairmill.loader.folder.Epoch` is one of arrays."""

    def __init__(self, rows: PlanRows, epoch: int) -> None:
        self.folder, self.rows = Path(f"epoch_{epoch}"), rows.length(epoch)
        self.index = self
        self._rows, self._epoch = rows, epoch

    def window(self, start: int, tokens: int, **passed: Any) -> Rows:
        """Return rows as :meth:`pairmill._native.RowIndex.window` does, of no more than there must be."""
        size = _FIRST
        while True:
            stop = min(start + size, self.rows)
            columns = self._rows.columns(self._rows.numbers(self._epoch, start, stop))
            window: Rows = RowIndex(*map(numbers, columns)).window(0, tokens, **passed)
            if stop == self.rows or int((window[:, 2] + window[:, 4] - 1).sum()) >= tokens:
                window[:, 0] += start
                return window
            size *= 2


def find_places(rows: PlanRows, epoch: int, wanted: NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Yield the places of an epoch that have some rows, by their numbers in the plan, ascending; and which of them."""
    length = rows.length(epoch)

    def find(first: int) -> Ints:
        result = find_values(rows.numbers(epoch, first, min(first + _PIECE, length)), wanted)
        result[:, 0] += first
        return result

    with ThreadPoolExecutor(available_cores()) as pool:
        for result in map_ahead(pool, find, range(0, length, _PIECE), available_cores()):
            yield from map(tuple, result.tolist())
