"""Positions that trainers derived from HRM-Text save beside their checkpoints, ``checkpoint_state_<tag>.json``.

Such a file says the epoch (from 1), how many of its micro-batches were read, and the row after the last of them. It
does not say which data they were of, but how many rows and tokens its last micro-batch had: those are compared.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pairmill.errors import InputError, UsageError
from pairmill.loader import steps
from pairmill.loader.arguments import integer
from pairmill.loader.plan import Position, TrainingPlan, World
from pairmill.loader.row_plan import RowPlan
from pairmill.loader.segments import find_draw
from pairmill.log import event

_BATCHES, _ROW = "batch_in_epoch", "global_row_cursor_in_epoch"


def position(
    plan: TrainingPlan, world: World, state: Mapping[str, Any], *, accept_other_data: bool = False
) -> Position:
    """Return the position in a state of this loader, or in such a file. Raises as either."""
    if isinstance(state, Mapping) and _BATCHES in state and "format" not in state:
        return position_of(steps.rows_of(plan), world, state, accept_other_data=accept_other_data)
    return plan.position(state, accept_other_data=accept_other_data)


def position_of(plan: RowPlan, world: World, state: Mapping[str, Any], *, accept_other_data: bool = False) -> Position:
    """Return the position that such a file says, and log whether it is exact.

    If ranks and slots are as they were, and the run never went on by a row, micro-batches are counted: the next batch
    is the one that the trainer would have made. Else its row is taken: no row is lost or comes twice, but batches are
    others than without an interruption (inexact). Batches are counted as ``step`` times the micro-batches of a step,
    and tokens from here on.

    Args:
        plan: of one folder.
        world: that reads from here on; its tokens are those of a micro-batch.
        state: content of the file.
        accept_other_data: continue although the rows are others.

    Raises:
        UsageError: not such a file, it lacks what is needed, or the plan has several folders.
        InputError: it was saved with other data.
    """
    if len(plan.folders) != 1:
        expected = "a plan of the folder that it was saved with"
        raise UsageError("names no folder", where="state", got=f"{len(plan.folders)} folders", expected=expected)

    def count(name: str, default: int | None = None, least: int = 0) -> int:
        return integer(state.get(name, default), f"state: {name}", least)

    step, accumulated, epoch = count("step"), count("gradient_accumulation_steps", 1, 1), count("epoch", least=1)
    begin = replace(plan.begin(), batches=step * accumulated)
    ended = re.fullmatch(r"epoch_(\d+)", str(state.get("tag", "")))
    if ended:
        return _at(plan, begin, (int(ended[1]), 0), f"after epoch_{ended[1]}, exactly")
    if not accept_other_data:
        _compare_rows(plan, epoch - 1, state)
    reasons = _inexact(plan, world, state, accumulated)
    if reasons:
        if _ROW not in state:
            expected = f"{_ROW}, as {reasons}"
            raise UsageError("lacks the row to go on from", where="state", got=f"{_BATCHES} alone", expected=expected)
        return _at(plan, begin, (epoch - 1, count(_ROW)), f"by its row, inexact: {reasons}")
    batches, row = count(_BATCHES), 0
    after = _at(plan, begin, (epoch - 1, 0))
    if batches:
        last = find_draw(plan, world, batches - 1, replace(after, batches=0))
        after, row = last.after, last.start_row + last.rows
        if last.epoch != epoch - 1 or row != state.get(_ROW, row):
            got = f"{batches:,} micro-batches, which end at row {row:,} of epoch {last.epoch}"
            raise _other_data(got, f"row {state.get(_ROW)} of epoch {epoch - 1}")
    return _at(plan, begin, after.cursors[0], f"after {batches:,} micro-batches, exactly")


def _at(plan: RowPlan, begin: Position, cursor: tuple[int, ...], how: str = "") -> Position:
    position, (epoch, row) = replace(begin, cursors=(cursor,)), cursor
    plan.check_position(position)
    if how:
        level = logging.WARNING if "inexact" in how else logging.INFO
        event(
            f"{plan.folders[0].path}: goes on at epoch {epoch}, row {row:,}: {how}", level=level, epoch=epoch, row=row
        )
    return position


def _inexact(plan: RowPlan, world: World, state: Mapping[str, Any], accumulated: int) -> str:
    """Say why micro-batches of the file are not those of this plan and world; empty = they are."""
    slots, whole = state.get("local_batch_size"), state.get("global_batch_size")
    ranks = state.get("world_size")
    if ranks is None and isinstance(slots, int) and isinstance(whole, int) and slots:
        ranks = whole // (slots * accumulated)
    here = {
        "the run went on by a row before": not state.get("batch_in_epoch_exact", True),
        f"{slots} slots a rank, here {world.slots}": slots != world.slots,
        f"{ranks} ranks, here {world.ranks}": ranks not in {None, world.ranks},
        "batches are packed otherwise": plan.packing != "ranks" or plan.tail == "carry",
        "rows are skipped": plan.skip_long or plan.skip_one_token,
    }
    return "; ".join(reason for reason, differs in here.items() if differs)


def _compare_rows(plan: RowPlan, epoch: int, state: Mapping[str, Any]) -> None:
    """Raise InputError if the last micro-batch has not the rows and tokens that it had."""
    names = ("global_row_start_in_epoch", _ROW, "global_numseq", "global_batch_totlen")
    if not {*names} <= {*state}:
        return
    start, after, rows, tokens = (integer(state[name], f"state: {name}", 0) for name in names)
    if epoch >= len(plan.folders[0].epochs) or not rows or not tokens:
        return
    window = plan.folders[0].epochs[epoch].index.window(start, tokens)
    read = int(window[:, 2].sum() + window[:, 4].sum()) - len(window)
    if (len(window), read, start + rows) != (rows, tokens, after):
        raise _other_data(
            f"{len(window):,} rows of {read:,} tokens from row {start:,} of epoch {epoch} on",
            f"{rows:,} rows of {tokens:,}, up to row {after:,}",
        )


def _other_data(got: str, expected: str) -> InputError:
    hint = "read the folder that the checkpoint was trained on, or accept_other_data=True"
    return InputError("saved with other data", where="state", got=got, expected=expected, hint=hint)
