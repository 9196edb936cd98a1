"""A plan over sampled folders: rows of an instruction and a response, packed into slots."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from pairmill._native import NoCausalError, RowRun, pack_rows
from pairmill.errors import InputError, UsageError
from pairmill.loader import parents
from pairmill.loader.arguments import boolean, choice, path, shown, string
from pairmill.loader.batch import DOC_IDS, PREFIXLM, SCALARS, Batch
from pairmill.loader.folder import Epoch, SampledFolder, Survey
from pairmill.loader.plan import Draw, EpochEnd, Phase, Position, Progress, TrainingPlan, World, checked_phases
from pairmill.loader.tokenizer import check_same_tokenizer
from pairmill.log import event

Balance = Literal["lpt", "quadratic", "quadratic_work"]
Tail = Literal["drop", "keep", "carry"]
Packing = Literal["ranks", "whole"]

_BESIDE = 2
"""Inputs of the shortest row that gives attention a causal query: a rank with a response of one token needs one too."""

_ALIGNED = 128
"""Slots of a rank that got more than its equal part are a multiple of it, a block of FlexAttention: few shapes."""

_AHEAD = 1024
"""Batches that :meth:`RowPlan.batches_ahead` looks for at once: it holds the rows of as many."""

Rows = NDArray[np.int64]
"""[rows, 5]: number of the row, inst_start, inst_len, resp_start, resp_len (:meth:`RowIndex.window`)."""


class _Passed(TypedDict):
    """Which rows are left out (:meth:`RowIndex.window`)."""

    longer_than: int
    skip_long: bool
    skip_one_token: bool


@dataclass(frozen=True)
class _Packed:
    """A global batch: rows of a window, and which of them each rank gets.

    Attributes:
        firsts: where the rows of each epoch begin in the window.
        places: of the ranks' rows in the window, rank after rank.
        ends: where each rank's places begin, and the end.
        slots: of each rank's arrays.
    """

    source: int
    epoch: int
    firsts: NDArray[np.int64]
    window: Rows
    places: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    slots: int


@dataclass(frozen=True)
class _InRun:
    """A global batch of a run that was packed at once: the run, the batch's number in it, and that of its source."""

    run: RowRun
    number: int
    source: int


class RowPlan(TrainingPlan):
    """Rows of sampled folders in the order of their files.

    A global batch is a run of consecutive rows. So a position is an epoch and a row, and batches do not depend on what
    was read before.

    Args:
        folders: paths (of a folder, or of a node's folder with ``PLAN``) by name; or one path.
        phases: which folder when; by default the only one, to its end, in the phases of the mixture that it was sampled
            with.
        packing: how many rows a global batch has. ``ranks``: as many as longest-first packing puts into the ranks'
            slots, found as HRM-Text finds it. ``whole``: as many as have at most ``batch_tokens`` inputs; they are
            dealt to the ranks after that. So any number of ranks has the same global batches, a rank may have more
            slots than its equal part, and of a batch with fewer rows than ranks some get none.
        balance: how rows are assigned to ranks. ``lpt`` balances tokens, as HRM-Text does; ``quadratic`` balances
            length², ``quadratic_work`` the cost of attention with bidirectional prefixes. Global batches have the same
            rows.
        tail: what happens to an epoch's last batch: ``drop`` it, as HRM-Text's trainer does; ``keep`` it (packed by
            ranks, if every rank gets a row); or ``carry`` its rows into the next epoch, so that no row is lost before
            the last epoch ends.
        long_rows: rows with more inputs than a rank has slots (packed whole: than a global batch has): ``refuse`` to
            begin, or ``skip`` them.
        one_token_rows: rows with a response of one token: ``keep`` them (a rank, or packed whole a global batch, always
            has another row too, as attention needs one causal query), or ``skip`` them.
        target_only: only responses are supervised.
        doc_ids: batches also have the number of each slot's row.

    Raises:
        UsageError: an option or a phase is wrong.
        InputError: a folder is absent, unfinished or damaged (:class:`SampledFolder`), or tokenizers differ.
        StorageError: a folder cannot be read.
    """

    def __init__(
        self,
        folders: str | Path | Mapping[str, str | Path],
        *,
        phases: Sequence[Phase] | None = None,
        packing: Packing = "ranks",
        balance: Balance = "lpt",
        tail: Tail = "drop",
        long_rows: Literal["refuse", "skip"] = "refuse",
        one_token_rows: Literal["keep", "skip"] = "keep",  # noqa: S107 (not a password)
        target_only: bool = True,
        doc_ids: bool = False,
    ) -> None:
        choice(packing, get_args(Packing), "packing")
        choice(balance, get_args(Balance), "balance")
        choice(tail, get_args(Tail), "tail")
        self.packing, self.balance, self.tail = packing, balance, tail
        self.skip_long = choice(long_rows, ("refuse", "skip"), "long_rows") == "skip"
        self.skip_one_token = choice(one_token_rows, ("keep", "skip"), "one_token_rows") == "skip"
        if not isinstance(folders, str | os.PathLike | Mapping):
            raise UsageError("wrong type", where="folders", got=shown(folders), expected="a path, or paths by name")
        given = folders if isinstance(folders, Mapping) else {"data": folders}
        paths = {string(name, "folders"): path(value, f"folders: {name}") for name, value in given.items()}
        if not paths:
            raise UsageError("missing", where="folders", expected="at least one")
        if phases is None and len(paths) > 1:
            raise UsageError("missing", where="phases", expected="which folder to read when, as there are several")
        self.names = tuple(paths)
        self.phases = () if phases is None else checked_phases(phases, self.names)
        for number, phase in enumerate(self.phases):
            if not phase.source:
                expected = f"one of {', '.join(self.names)}"
                raise UsageError("names no folder", where=f"phases[{number}]", expected=expected)
        self.target_only, self.doc_ids = boolean(target_only, "target_only"), boolean(doc_ids, "doc_ids")
        self.folders = [self._open(name, place) for name, place in paths.items()]
        if phases is None:
            result = self.folders[0].metadata.phases or [("", 0)]
            self.phases = tuple(Phase(self.names[0], epoch=first, name=name) for name, first in result)
        check_same_tokenizer(
            [(f"{folder.name} ({folder.path})", folder.tokenizer) for folder in self.folders], "folders"
        )
        for folder in self.folders:
            self._report_one_token_rows(folder)

    def _open(self, name: str, place: str) -> SampledFolder:
        return SampledFolder(place, name=name)

    def __repr__(self) -> str:
        sizes = (f"{len(folder.epochs)} epochs of {folder.path}" for folder in self.folders)
        rows = sum(survey.rows for folder in self.folders for survey in folder.surveys)
        return f"<RowPlan: {rows:,} rows, {', '.join(sizes)}>"

    def _report_one_token_rows(self, folder: SampledFolder) -> None:
        rows = sum(survey.rows for survey in folder.surveys)
        count = sum(survey.one_token[0] for survey in folder.surveys)
        if count and count == rows:
            raise InputError(
                "no row has a response of two tokens or more, which attention over a prefix needs",
                where=str(folder.path),
                got=f"{rows:,} rows, each with a response of one token",
                hint="sample other data too",
            )
        if count:
            together = "are in batches" if self.packing == "whole" else "go to ranks"
            what = "are skipped" if self.skip_one_token else f"{together} that also have other rows"
            event(f"{folder.path}: {count:,} of {rows:,} rows have a response of one token and {what}", rows=count)

    @cached_property
    def digest(self) -> str:
        """Of all folders, with their names (:attr:`SampledFolder.digest`)."""
        return parents.plan_digest([(folder.name, folder.digest) for folder in self.folders])

    def state(self, position: Position) -> dict[str, Any]:
        return super().state(position) | {"folders": [parents.describe(folder) for folder in self.folders]}

    def continue_other(self, state: Mapping[str, Any], accept_other_data: bool) -> Mapping[str, Any]:
        try:
            carry = self.tail == "carry"
            return parents.continue_state(self.folders, state, carry=carry, begin_anew=accept_other_data)
        except InputError:
            if not accept_other_data:
                raise
        return super().continue_other(state, accept_other_data)

    def progress(self, position: Position) -> Progress:
        """Return a position for people: rows of the epoch that is being read."""
        source = self.phases[self.phase_at(position)].source
        epoch, row = position.cursors[self.names.index(source)]
        epochs = self.folders[self.names.index(source)].epochs
        return Progress(source, epoch, row, epochs[epoch].rows if epoch < len(epochs) else 0)

    def begin(self) -> Position:
        return Position(((0, 0),) * len(self.folders))

    def check_position(self, position: Position) -> None:
        for folder, (epoch, row) in zip(self.folders, position.cursors, strict=True):
            rows = folder.epochs[epoch].rows if epoch < len(folder.epochs) else 0
            if epoch > len(folder.epochs) or row > rows:
                raise UsageError(
                    "position is past the end of the data",
                    where=f"state: sources: {folder.name}",
                    got=f"epoch {epoch}, row {row}",
                    expected=f"at most epoch {len(folder.epochs)}, row {rows}",
                )

    def packed_into(self, world: World) -> World:
        """Return the ranks whose slots decide which rows a global batch has; a row has room in the slots of one of
        them."""
        return World(1, world.batch_tokens) if self.packing == "whole" else world

    def check(self, world: World) -> None:
        world = self.packed_into(world)
        used = {phase.source for phase in self.phases}
        for folder in self.folders:
            if folder.name not in used:
                continue
            folder.files.check()
            surveys = folder.surveys
            if max(survey.longest[0] for survey in surveys) + _BESIDE > world.slots or self.skip_one_token:
                surveys = folder.survey(world.slots, skip_long=self.skip_long, skip_one_token=self.skip_one_token)
            for number, (epoch, survey) in enumerate(zip(folder.epochs, surveys, strict=True)):
                if survey.long[0] and not self.skip_long:
                    raise _long_rows(epoch, survey, world)
                if self.tail != "carry" and (survey.skipped or survey.inputs <= world.batch_tokens):
                    # Find an epoch without a batch now, not after training on the epochs before it.
                    window, _ = self._window(folder, number, 0, world)
                    self._packed(folder, number, 0, window, number, world)
            skipped = sum(survey.skipped for survey in surveys)
            if skipped:
                rows = sum(survey.rows for survey in surveys)
                event(f"{folder.path}: {skipped:,} of {rows:,} rows are skipped", rows=skipped)

    def draw(self, position: Position, world: World) -> Draw | EpochEnd | None:
        readers, world = world, self.packed_into(world)
        number = self.phase_at(position)
        source = self.names.index(self.phases[number].source)
        folder = self.folders[source]
        epoch, start = position.cursors[source]
        if epoch >= len(folder.epochs):
            if number + 1 < len(self.phases):
                raise InputError(
                    "all epochs have been read, and the next phase has not started",
                    where=f"phases[{number}]: {folder.name}",
                    got=f"{len(folder.epochs)} epochs, ended after {position.batches:,} batches",
                    hint="sample more epochs, or start the next phase earlier",
                )
            return None
        if not start:
            folder.files.check()
        window, firsts = self._window(folder, epoch, start, world)
        reach = epoch + len(firsts) - 1
        packed = self._packed(folder, epoch, start, window, reach, world)
        if packed is None:
            after = _moved(position, source, (reach + 1, 0))
            if self.tail == "carry":
                after = replace(after, carried=(source, (epoch, start)))
            return EpochEnd(after, folder.name, epoch, len(window))
        count, places, ends, at_end = packed
        slots = world.slots
        if readers != world:
            places, ends, slots = self._dealt(window[:count], readers)
        last = epoch + int(np.searchsorted(firsts, count - 1, side="right")) - 1
        cursor = (last, int(window[count - 1, 0]) + 1)
        if at_end or (self.tail == "carry" and cursor[1] == folder.epochs[last].rows):
            cursor = (last + 1, 0)
        tokens = _inputs(window[:count])
        return Draw(
            after=_moved(position, source, cursor, tokens),
            phase=number,
            source=folder.name,
            epoch=epoch,
            start_row=start,
            rows=count,
            tokens=tokens,
            ends_epoch=cursor[0] > epoch,
            detail=_Packed(
                source=source, epoch=epoch, firsts=firsts, window=window, places=places, ends=ends, slots=slots
            ),
        )

    def batches_ahead(self, source: int, epoch: int, start: int, world: World) -> Rows:
        """Return where batches end that begin with a row of an epoch, as far as no end of an epoch matters to them.

        Args:
            source: number in :attr:`names`.
            epoch, start: of the first batch; there need not be such an epoch.
            world: of :meth:`packed_into`.

        Returns:
            rows, inputs and the row after each, int64 [batches, 3]; none = :meth:`draw` has to say.
        """
        epochs = self.folders[source].epochs
        sizes: Sequence[Sequence[int]] = ()
        if epoch < len(epochs):
            sizes = self._run(epochs[epoch], start, _AHEAD, 0, world).sizes()
        return np.array(sizes, np.int64).reshape(-1, 3)

    def draw_ahead(self, position: Position, world: World, rank: int, count: int) -> Sequence[Draw | EpochEnd | None]:
        number = self.phase_at(position)
        source = self.names.index(self.phases[number].source)
        folder, (epoch, start) = self.folders[source], position.cursors[source]
        draws: list[Draw] = []
        # An epoch begins with a look at its files.
        if start and epoch < len(folder.epochs) and self.packed_into(world) == world:
            run = self._run(folder.epochs[epoch], start, count, rank, world)
            for at, (rows, tokens, following) in enumerate(run.sizes()):
                if at and self.phase_at(position) != number:
                    break
                position = _moved(position, source, (epoch, following), tokens)
                draws.append(
                    Draw(
                        after=position,
                        phase=number,
                        source=folder.name,
                        epoch=epoch,
                        start_row=start,
                        rows=rows,
                        tokens=tokens,
                        ends_epoch=False,
                        detail=_InRun(run, at, source),
                    )
                )
                start = following
        return draws or [self.draw(position, world)]

    def _run(self, epoch: Epoch, start: int, count: int, rank: int, world: World) -> RowRun:
        return RowRun(
            epoch.index,
            start,
            count,
            rank=rank,
            ranks=world.ranks,
            tokens=world.slots,
            balance=self.balance,
            **self._passed(world),
        )

    def _dealt(self, rows: Rows, world: World) -> tuple[NDArray[np.uint32], NDArray[np.uint32], int]:
        """Return the places of a whole batch's rows rank by rank, where each rank's begin, and the slots of a rank."""
        # Any rank has room for all of them: so they are dealt by tokens, and none is left out.
        _, places, ends = pack_rows(rows, world.ranks, world.batch_tokens, causal=False, balance="lpt")
        most = _fullest(rows, places, ends)
        if self.balance != "lpt":
            # No rank gets more tokens than the fullest one by the balance of tokens.
            room = max(most, world.slots)
            count, *other = pack_rows(rows, world.ranks, room, causal=False, balance=self.balance)
            if count == len(rows):
                places, ends = other
                most = _fullest(rows, places, ends)
        # The array of the ends of rows has one number more than there are rows.
        needed = max(most, int(np.diff(ends.astype(np.int64)).max()) + 1)
        return places, ends, world.slots if needed <= world.slots else _aligned(needed)

    def _rows(self, epoch: Epoch, start: int, inputs: int, world: World) -> Rows:
        """Return rows of an epoch from one on, without those that are skipped, until they have this many inputs."""
        return epoch.index.window(start, inputs, **self._passed(world))

    def _passed(self, world: World) -> _Passed:
        return {"longer_than": world.slots, "skip_long": self.skip_long, "skip_one_token": self.skip_one_token}

    def _window(self, folder: SampledFolder, epoch: int, start: int, world: World) -> tuple[Rows, NDArray[np.int64]]:
        """Return rows that the next batch is taken from; where in them those of each epoch begin."""
        window = self._rows(folder.epochs[epoch], start, world.batch_tokens, world)
        firsts = [0]
        if self.tail == "carry":
            for later in folder.epochs[epoch + 1 :]:
                missing = world.batch_tokens - _inputs(window)
                if missing <= 0:
                    break
                folder.files.check()
                firsts.append(len(window))
                window = np.concatenate([window, self._rows(later, 0, missing, world)])
        return window, np.array(firsts, np.int64)

    def _packed(
        self, folder: SampledFolder, epoch: int, start: int, window: Rows, reach: int, world: World
    ) -> tuple[int, NDArray[np.uint32], NDArray[np.uint32], bool] | None:
        """Return the global batch at the beginning of a window, and whether no row comes after it; None if it is
        dropped."""
        refused: tuple[int, int] | None = None
        try:
            count, places, ends = pack_rows(window, world.ranks, world.slots, causal=True, balance=self.balance)
        except NoCausalError as error:
            refused = error.args
            count = refused[1]
        at_end = self._is_last(folder, reach, window, count, world)
        where = f"{folder.epochs[epoch].folder}, row {start}"
        if refused and not at_end:
            raise InputError(
                "a global batch cannot give each rank a row whose response has two tokens or more",
                where=where,
                got=f"{refused[0]} such rows of {refused[1]} for {world.ranks} ranks of {world.slots:,} slots",
                hint="continue from here with one_token_rows='skip', which leaves out responses of one token",
            )
        if not refused and count >= world.ranks and not (at_end and self.tail != "keep"):
            return count, places, ends, at_end
        if not start and self.tail != "carry":
            raise InputError(
                "the whole epoch is at most one batch, which is dropped",
                where=where,
                got=f"{len(window):,} rows for {world.ranks} ranks, batch_tokens={world.batch_tokens:,}",
                hint="set a smaller batch_tokens, or tail='carry' or 'keep'",
            )
        return None

    def _is_last(self, folder: SampledFolder, reach: int, window: Rows, count: int, world: World) -> bool:
        """Return whether no row comes after the first ``count`` of a window that ends in epoch ``reach``."""
        if count < len(window) or (self.tail == "carry" and reach + 1 < len(folder.epochs)):
            return False
        after = int(window[-1, 0]) + 1 if count else 0
        return not len(self._rows(folder.epochs[reach], after, 1, world))

    def size(self, world: World) -> int:
        slots = world.slots
        if self.packing == "whole" and world.ranks > 1:
            # The rank with the fewest tokens gets the next row: it has at most an equal part before that.
            longest = max(survey.longest[0] for folder in self.folders for survey in folder.surveys)
            slots = _aligned(min(slots + longest, world.batch_tokens) + 1)
        return (len(PREFIXLM) + self.doc_ids) * slots * np.dtype(np.int32).itemsize

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        packed: _Packed = draw.detail
        mine = packed.places[packed.ends[rank] : packed.ends[rank + 1]]
        out = self._arrays(memory, packed.slots)
        sizes = self.folders[packed.source].fill(packed.window, mine, self.target_only, out)
        return self._batch(draw, out, sizes, self.rows_of(draw, rank))

    def rows_of(self, draw: Draw, rank: int) -> NDArray[np.int64]:
        """Return a rank's rows of a batch of :meth:`draw`, in the order of its slots.

        Returns:
            number of the source, epoch, number of the row, int64 [rows, 3]; no token is read.
        """
        packed: _Packed = draw.detail
        mine = packed.places[packed.ends[rank] : packed.ends[rank + 1]]
        rows = np.empty((len(mine), 3), np.int64)
        rows[:, 0] = packed.source
        rows[:, 1] = packed.epoch + np.searchsorted(packed.firsts, mine, side="right") - 1
        rows[:, 2] = packed.window[mine, 0]
        return rows

    def fill_ahead(
        self, draws: Sequence[Draw], rank: int, world: World, memories: Sequence[NDArray[np.uint8]]
    ) -> list[Batch]:
        first = draws[0].detail
        if not isinstance(first, _InRun):
            return super().fill_ahead(draws, rank, world, memories)
        outs = [self._arrays(memory, world.slots) for memory in memories]
        source = first.source, draws[0].epoch
        filled = self.folders[first.source].fill_run(first.run, first.number, source, self.target_only, outs)
        return [self._batch(draw, out, *made) for draw, out, made in zip(draws, outs, filled, strict=True)]

    def _arrays(self, memory: NDArray[np.uint8], slots: int) -> NDArray[np.int32]:
        return memory.view(np.int32)[: (len(PREFIXLM) + self.doc_ids) * slots].reshape(-1, slots)

    def _batch(self, draw: Draw, out: NDArray[np.int32], sizes: Sequence[int], rows: NDArray[np.int64]) -> Batch:
        arrays = dict(zip((*PREFIXLM, DOC_IDS) if self.doc_ids else PREFIXLM, out, strict=True))
        return draw.batch(self.phases, arrays, dict(zip(SCALARS, sizes, strict=True)), rows)


def _fullest(rows: Rows, places: NDArray[np.uint32], ends: NDArray[np.uint32]) -> int:
    """Return the inputs of the rank that has the most of them."""
    sums = np.concatenate([[0], np.cumsum(rows[places, 2] + rows[places, 4] - 1)])
    return int(np.diff(sums[ends]).max())


def _aligned(slots: int) -> int:
    return -(-slots // _ALIGNED) * _ALIGNED


def _inputs(window: Rows) -> int:
    return int(window[:, 2].sum() + window[:, 4].sum()) - len(window)


def _moved(position: Position, source: int, cursor: tuple[int, int], tokens: int = 0) -> Position:
    """Return the position after a batch of this many tokens; with 0, after the end of an epoch."""
    cursors = (*position.cursors[:source], cursor, *position.cursors[source + 1 :])
    return Position(cursors, position.batches + bool(tokens), position.tokens + tokens)


def _long_rows(epoch: Epoch, survey: Survey, world: World) -> InputError:
    count, first = survey.long
    _, _, inst, _, resp = epoch.index.window(first, 1)[0].tolist()
    beside = f" and a response of one token, which takes {_BESIDE} slots more" if resp == 1 else ""
    needed = survey.longest[0] + (_BESIDE if survey.one_token[0] else 0)
    return InputError(
        f"{count:,} of {survey.rows:,} rows are longer than a rank's slots",
        where=str(epoch.folder),
        got=f"row {first} first, of {inst + resp - 1:,} inputs{beside}; the longest has {survey.longest[0]:,}",
        expected=f"at most {world.slots:,} (batch_tokens={world.batch_tokens} by ranks={world.ranks})",
        hint=f"set batch_tokens={needed * world.ranks} or more, sample with a smaller context_size, or leave them out: "
        "long_rows='skip'",
    )
