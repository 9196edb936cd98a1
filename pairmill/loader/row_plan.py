"""A plan over sampled folders: rows of an instruction and a response, packed into slots."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from pairmill._native import NoCausalError, fill_prefixlm, pack_rows
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError, UsageError
from pairmill.loader.arguments import flag, path, shown, text
from pairmill.loader.batch import DOC_IDS, PREFIXLM, SCALARS, Batch
from pairmill.loader.folder import SampledFolder
from pairmill.loader.plan import Draw, End, Phase, Plan, Position, World, checked_phases
from pairmill.loader.tokenizer import see_one
from pairmill.log import event

Balance = Literal["lpt", "quadratic", "quadratic_work"]
Tail = Literal["drop", "keep", "carry"]
Odd = Literal["refuse", "skip"]


_BESIDE = 2
"""Inputs of the shortest row that gives attention a causal query: a rank with a response of one token needs one too."""


class _Passed(TypedDict):
    longer_than: int
    skip_long: bool
    skip_one_token: bool


@dataclass(frozen=True)
class _Detail:
    source: int
    epoch: int
    firsts: NDArray[np.int64]
    window: NDArray[np.int64]
    places: NDArray[np.uint32]
    ends: NDArray[np.uint32]


class RowPlan(Plan):
    """Rows of sampled folders in the order of their files.

    A global batch is a run of consecutive rows: as many as longest-first packing puts into the ranks' slots, found as
    HRM-Text finds it. So a position is an epoch and a row, and batches do not depend on what was read before.

    Args:
        folders: paths (of a folder, or of a node's folder with ``PLAN``) by name; or one path.
        phases: which folder when; by default the only one, to its end.
        balance: how rows go to ranks. ``lpt`` evens out tokens, as HRM-Text does; ``quadratic`` evens out length²,
            ``quadratic_work`` what attention with bidirectional prefixes costs. The batches hold the same rows.
        tail: what becomes of an epoch's last batch: ``drop`` it, as HRM-Text's trainer does; ``keep`` it if every rank
            gets a row; or ``carry`` its rows into the next epoch, so that none is lost before the last epoch ends.
        long_rows: rows with more inputs than a rank has slots: ``refuse`` to begin, or ``skip`` them.
        one_token_rows: rows with a response of one token: ``keep`` them (a rank always gets another row too: attention
            needs one causal query), or ``skip`` them.
        target_only: only responses are supervised.
        doc_ids: batches have the number of each slot's row as well.

    Raises:
        UsageError: an option or a phase is wrong.
        InputError: a folder is absent, unfinished or damaged (:class:`SampledFolder`), or two are of two tokenizers.
        StorageError: a folder cannot be read.
    """

    def __init__(
        self,
        folders: str | Path | Mapping[str, str | Path],
        *,
        phases: Sequence[Phase] | None = None,
        balance: Balance = "lpt",
        tail: Tail = "drop",
        long_rows: Odd = "refuse",
        one_token_rows: Literal["keep", "skip"] = "keep",  # noqa: S107 (no password)
        target_only: bool = True,
        doc_ids: bool = False,
    ) -> None:
        for name, value, choices in (
            ("balance", balance, get_args(Balance)),
            ("tail", tail, get_args(Tail)),
            ("long_rows", long_rows, get_args(Odd)),
            ("one_token_rows", one_token_rows, ("keep", "skip")),
        ):
            if not isinstance(value, str) or value not in choices:
                raise UsageError("is unknown", where=name, got=shown(value), expected=f"one of {', '.join(choices)}")
        given = folders if isinstance(folders, Mapping) else {"data": folders}
        expected = "a path, or paths by name"
        if not isinstance(folders, str | os.PathLike | Mapping):
            raise UsageError("is of another type", where="folders", got=shown(folders), expected=expected)
        paths = {text(name, "folders"): path(value, f"folders: {name}") for name, value in given.items()}
        if not paths:
            raise UsageError("are missing", where="folders", expected="one or more")
        if phases is None and len(paths) > 1:
            raise UsageError("are missing", where="phases", expected="which folder is read when, as there are several")
        self.names = tuple(paths)
        self.phases = checked_phases([Phase(self.names[0])] if phases is None else phases, self.names)
        for number, phase in enumerate(self.phases):
            if not phase.source:
                expected = f"one of {', '.join(self.names)}"
                raise UsageError("names no folder", where=f"phases[{number}]", expected=expected)
        self.balance, self.tail = balance, tail
        self.target_only, self.doc_ids = flag(target_only, "target_only"), flag(doc_ids, "doc_ids")
        self.skip_long, self.skip_one_token = long_rows == "skip", one_token_rows == "skip"  # noqa: S105
        self.folders = [SampledFolder(place, name=name) for name, place in paths.items()]
        see_one([(f"{folder.name} ({folder.path})", folder.tokenizer) for folder in self.folders], "folders")
        self._say_one_token_rows()

    def _say_one_token_rows(self) -> None:
        for folder in self.folders:
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
                what = "are skipped" if self.skip_one_token else "go to ranks that have others too"
                event(f"{folder.path}: {count:,} of {rows:,} rows have a response of one token and {what}", rows=count)

    @cached_property
    def digest(self) -> str:
        """Of all folders, with their names (:attr:`SampledFolder.digest`)."""
        return content_key("rows", [(folder.name, folder.digest) for folder in self.folders])

    def begin(self) -> Position:
        return Position(((0, 0),) * len(self.folders))

    def position(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> Position:
        """The position that a state says (:meth:`Plan.position`).

        Raises:
            UsageError: it is no such state, or there is no such row.
            InputError: it belongs to other data.
        """
        position = super().position(state, accept_other_data=accept_other_data)
        for folder, (epoch, row) in zip(self.folders, position.cursors, strict=True):
            rows = folder.epochs[epoch].rows if epoch < len(folder.epochs) else 0
            if epoch > len(folder.epochs) or row > rows:
                raise UsageError(
                    "lies behind the data",
                    where=f"state: sources: {folder.name}",
                    got=f"epoch {epoch}, row {row}",
                    expected=f"at most epoch {len(folder.epochs)}, row {rows}",
                )
        return position

    def check(self, world: World) -> None:
        """See whether this world can read all of it.

        Raises:
            InputError: a row is longer than a rank's slots, or an epoch gives no batch.
        """
        used = {phase.source for phase in self.phases}
        for folder in self.folders:
            if folder.name not in used:
                continue
            folder.mapped.check()
            longest = max(survey.longest[0] for survey in folder.surveys)
            surveys = folder.surveys
            if longest + _BESIDE > world.slots or self.skip_one_token:
                surveys = folder.survey(world.slots, skip_long=self.skip_long, skip_one_token=self.skip_one_token)
            for number, (epoch, survey) in enumerate(zip(folder.epochs, surveys, strict=True)):
                count, first = survey.long
                if count and not self.skip_long:
                    _, _, inst, _, resp = epoch.index.window(first, 1)[0].tolist()
                    beside = f" and a response of one token, which takes {_BESIDE} slots more" if resp == 1 else ""
                    needed = survey.longest[0] + (_BESIDE if survey.one_token[0] else 0)
                    raise InputError(
                        f"{count:,} of {survey.rows:,} rows are longer than a rank's slots",
                        where=str(epoch.folder),
                        got=f"row {first} first, of {inst + resp - 1:,} inputs{beside}; "
                        f"the longest has {survey.longest[0]:,}",
                        expected=f"at most {world.slots:,} (batch_tokens={world.batch_tokens} by ranks={world.ranks})",
                        hint=f"set batch_tokens={needed * world.ranks} or more, sample with a smaller "
                        "context_size, or leave them out: long_rows='skip'",
                    )
                if self.tail != "carry" and (survey.skipped or survey.inputs <= world.batch_tokens):
                    # An epoch without a batch must not be found after the ones before it were trained on.
                    window, _ = self._window(folder, number, 0, world)
                    self._packed(folder, number, 0, window, number, world)
            skipped = sum(survey.skipped for survey in surveys)
            if skipped:
                rows = sum(survey.rows for survey in surveys)
                event(f"{folder.path}: {skipped:,} of {rows:,} rows are skipped", rows=skipped)

    def draw(self, position: Position, world: World) -> Draw | End | None:
        """What comes at a position.

        Raises:
            InputError: an epoch gives no batch at all, a folder ends before its phase does, or a batch has too few rows
                whose response has two tokens or more.
        """
        number = self.phase_at(position)
        source = self.names.index(self.phases[number].source)
        folder = self.folders[source]
        epoch, start = position.cursors[source]
        if epoch >= len(folder.epochs):
            if number + 1 < len(self.phases):
                raise InputError(
                    "all epochs are read and the next phase has not begun",
                    where=f"phases[{number}]: {folder.name}",
                    got=f"{len(folder.epochs)} epochs, ended after {position.batches:,} batches",
                    hint="sample more epochs, or let the next phase begin earlier",
                )
            return None
        if not start:
            folder.mapped.check()
        window, firsts = self._window(folder, epoch, start, world)
        reach = epoch + len(firsts) - 1
        if reach > epoch:
            folder.mapped.check()
        packed = self._packed(folder, epoch, start, window, reach, world)
        if packed is None:
            return End(_moved(position, source, (reach + 1, 0)), folder.name, epoch, len(window))
        count, places, ends, at_end = packed
        behind = epoch + int(np.searchsorted(firsts, count - 1, side="right")) - 1
        cursor = (behind, int(window[count - 1, 0]) + 1)
        if at_end or (self.tail == "carry" and cursor[1] == folder.epochs[behind].rows):
            cursor = (behind + 1, 0)
        tokens = int(window[:count, 2].sum() + window[:count, 4].sum()) - count
        return Draw(
            after=_moved(position, source, cursor, tokens),
            phase=number,
            source=folder.name,
            epoch=epoch,
            start_row=start,
            rows=count,
            tokens=tokens,
            ends_epoch=cursor[0] > epoch,
            detail=_Detail(source, epoch, firsts, window, places, ends),
        )

    def _window(
        self, folder: SampledFolder, epoch: int, start: int, world: World
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows that the next batch is taken from; where in them those of each epoch begin."""
        window = folder.epochs[epoch].index.window(start, world.batch_tokens, **self._passed(world))
        firsts = [0]
        if self.tail == "carry":
            for later in folder.epochs[epoch + 1 :]:
                missing = world.batch_tokens - int(window[:, 2].sum() + window[:, 4].sum()) + len(window)
                if missing <= 0:
                    break
                firsts.append(len(window))
                window = np.concatenate([window, later.index.window(0, missing, **self._passed(world))])
        return window, np.array(firsts, np.int64)

    def _passed(self, world: World) -> _Passed:
        return {"longer_than": world.slots, "skip_long": self.skip_long, "skip_one_token": self.skip_one_token}

    def _packed(
        self, folder: SampledFolder, epoch: int, start: int, window: NDArray[np.int64], reach: int, world: World
    ) -> tuple[int, NDArray[np.uint32], NDArray[np.uint32], bool] | None:
        """The global batch at the beginning of a window, and whether nothing comes after it; None if nobody gets it."""
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
                hint="go on from here with one_token_rows='skip', which leaves rows with a response of one token out",
            )
        if not refused and count >= world.ranks and not (at_end and self.tail != "keep"):
            return count, places, ends, at_end
        if not start and self.tail != "carry":
            raise InputError(
                "the whole epoch is one batch or less, which nobody gets",
                where=where,
                got=f"{len(window):,} rows for {world.ranks} ranks, batch_tokens={world.batch_tokens:,}",
                hint="set a smaller batch_tokens, or tail='carry' or 'keep'",
            )
        return None

    def _is_last(self, folder: SampledFolder, reach: int, window: NDArray[np.int64], count: int, world: World) -> bool:
        """Whether no row comes after the first ``count`` of a window that ends in epoch ``reach``."""
        if count < len(window) or (self.tail == "carry" and reach + 1 < len(folder.epochs)):
            return False
        after = int(window[-1, 0]) + 1 if count else 0
        return not len(folder.epochs[reach].index.window(after, 1, **self._passed(world)))

    def size(self, world: World) -> int:
        return (len(PREFIXLM) + self.doc_ids) * world.slots * np.dtype(np.int32).itemsize

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        detail: _Detail = draw.detail
        mine = detail.places[detail.ends[rank] : detail.ends[rank + 1]]
        out = memory.view(np.int32).reshape(-1, world.slots)
        sizes = fill_prefixlm(self.folders[detail.source].numbers, detail.window, mine, self.target_only, out)
        rows = np.empty((len(mine), 3), np.int64)
        rows[:, 0] = detail.source
        rows[:, 1] = detail.epoch + np.searchsorted(detail.firsts, mine, side="right") - 1
        rows[:, 2] = detail.window[mine, 0]
        names = (*PREFIXLM, DOC_IDS) if self.doc_ids else PREFIXLM
        return Batch.of(
            draw, self.phases, dict(zip(names, out, strict=True)), dict(zip(SCALARS, sizes, strict=True)), rows
        )


def _moved(position: Position, source: int, cursor: tuple[int, int], tokens: int = 0) -> Position:
    """Behind a batch of so many tokens; of none, behind an epoch."""
    cursors = (*position.cursors[:source], cursor, *position.cursors[source + 1 :])
    return Position(cursors, position.batches + bool(tokens), position.tokens + tokens)
