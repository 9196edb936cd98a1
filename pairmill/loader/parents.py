"""Positions that were saved under another plan which this one goes on with: its parent, or an earlier one of its chain.

A child plan keeps the first epochs of its parent, row by row, and draws what comes after them (docs/growing.md). So a
position in an epoch that was kept is one of the child too.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pairmill.engine.manifest import content_key
from pairmill.errors import InputError
from pairmill.formats.sample_plan import Ancestor
from pairmill.loader.folder import SampledFolder
from pairmill.loader.plan import checked_cursor
from pairmill.log import event

Cursor = tuple[int, ...]
Saved = Mapping[str, Any]
"""What a state says of a folder: its ``name`` and ``digest``; of one that pairmill sampled ``sample``, the fingerprint
of the arrays; and ``parents``, those of the plans before it, the oldest first."""


def describe(folder: SampledFolder) -> Saved:
    """Return what a state says of a folder, so that plans that go on with it know it again."""
    known = {"sample": folder.sample, "parents": [item.plan for item in folder.ancestors]}
    return {"name": folder.name, "digest": folder.digest} | {name: value for name, value in known.items() if value}


def plan_digest(digests: Sequence[tuple[str, str]]) -> str:
    """Return the digest of a plan over folders of these names and digests."""
    return content_key("rows", [*digests])


def continue_state(
    folders: Sequence[SampledFolder], state: Mapping[str, Any], *, carry: bool, begin_anew: bool
) -> Mapping[str, Any]:
    """Return a state that was saved under parents of folders as a state under these folders.

    A folder that the state does not name begins at its first row.

    Args:
        folders: of the plan.
        state: has ``sources``.
        carry: rows that the end of a parent left begin the next epoch's first batch.
        begin_anew: where a plan drew an epoch anew that the training is in, begin it.

    Raises:
        InputError: a folder is neither what it was nor goes on with it; says why.
        UsageError: a cursor is not a position.
    """
    by_name = {folder.name: folder for folder in folders}
    if missing := [name for name in state["sources"] if name not in by_name]:
        raise InputError(
            "saved with a source that this plan does not have",
            where="state: sources",
            got=", ".join(map(str, missing)),
            expected=f"some of {', '.join(by_name)}",
            hint="name the folder as it was: RowPlan({name: path}); a plan of one path names it data",
        )
    saved = _described(state) or _by_digest(by_name, state)
    carried = state.get("carried") if carry else None
    sources: dict[str, Cursor] = {}
    for folder in folders:
        if folder.name not in state["sources"]:
            sources[folder.name] = (0, 0)
            event(f"{folder.path}: not in the saved state, so it begins: {folder.name}", source=folder.name)
            continue
        cursor = checked_cursor(folder.name, state["sources"][folder.name], 2)
        known = saved.get(folder.name, {})
        if known.get("digest") == folder.digest:
            sources[folder.name] = cursor
            continue
        parent = _find(folder, known)
        if parent is None and _begins_after(folder, known):
            sources[folder.name] = _begin(folder, cursor)
            continue
        if parent is None:
            raise _stranger(folder, known, str(state.get("plan")), "" if len(folders) == 1 else f": {folder.name}")
        if isinstance(carried, Mapping) and folder.name in carried and len(folder.epochs) > cursor[0]:
            before = checked_cursor(folder.name, carried[folder.name], 2)
            cursor = before if before[0] < parent.kept else cursor
        sources[folder.name] = _resume(folder, parent, cursor, begin_anew)
    return {key: value for key, value in state.items() if key != "carried"} | {"sources": sources}


def _described(state: Mapping[str, Any]) -> Mapping[str, Saved]:
    """Return what a state says of its folders, by name; empty if it says nothing, or contradicts itself."""
    try:
        result = {item["name"]: item for item in state["folders"]}
        digest = plan_digest([(name, item["digest"]) for name, item in result.items()])
    except (KeyError, TypeError):
        return {}
    return result if digest == state.get("plan") else {}


def _by_digest(folders: Mapping[str, SampledFolder], state: Mapping[str, Any]) -> Mapping[str, Saved]:
    """Return what is known of the folders of a state that says their digests together, as those before did."""
    names = list(state["sources"])
    digests = [[folders[name].digest, *(item.digest for item in folders[name].ancestors)] for name in names]
    for choice in product(*digests):
        if all(choice) and plan_digest([*zip(names, choice, strict=True)]) == state.get("plan"):
            return {name: {"digest": digest} for name, digest in zip(names, choice, strict=True)}
    return {}


def _find(folder: SampledFolder, saved: Saved) -> Ancestor | None:
    for item in folder.ancestors:
        if saved.get("sample") in item.fingerprints.values() or (item.digest and saved.get("digest") == item.digest):
            return item
    return None


def _begins_after(folder: SampledFolder, saved: Saved) -> bool:
    """Tell whether a folder is of a plan that was made to be read after what was saved (``sample after=``)."""
    after = folder.after
    return bool(after) and saved.get("sample") in {after["plan"], *after.get("fingerprints", {}).values()}


def _begin(folder: SampledFolder, cursor: Cursor) -> Cursor:
    """Return the first row of a folder, which counts what was read before; warn if that was something else."""
    counted = folder.after["epochs"], folder.after["rows"]
    event(
        f"{folder.path}: begins after {folder.after['plan']}, at epoch {cursor[0]}, row {cursor[1]:,}; the plan counts "
        f"what was read up to epoch {counted[0]}, row {counted[1]:,}",
        level=logging.INFO if cursor == counted else logging.WARNING,
        epoch=0,
        row=0,
    )
    return (0, 0)


def _resume(folder: SampledFolder, parent: Ancestor, cursor: Cursor, begin_anew: bool) -> Cursor:
    """Return where a position under a parent is in a folder."""
    (epoch, row), kept = cursor, parent.kept
    where, first = f"{folder.path}: extends {parent.plan}", (kept, 0)
    if epoch < kept or cursor == first:
        event(f"{where}: goes on at epoch {epoch}, row {row:,}", epoch=epoch, row=row)
        return cursor
    if row and not begin_anew:
        rows = parent.epochs[epoch] if epoch < len(parent.epochs) else 0
        raise InputError(
            f"the training is in an epoch that this plan drew anew, from epoch {kept} on",
            where=f"state: sources: {folder.name}",
            got=f"epoch {epoch}, row {row:,} of {rows:,}",
            expected=f"at most epoch {kept}, row 0",
            hint=f"extend with from_epoch={epoch + 1} or more; or accept_other_data=True, which begins epoch {kept}, "
            f"and leaves the other rows of the old epoch {epoch} out",
        )
    event(
        f"{where}: begins its epoch {kept}, although {epoch} epochs and {row:,} rows were read: it drew anew from "
        f"epoch {kept} on",
        level=logging.WARNING,
        epoch=kept,
        row=0,
    )
    return first


def _stranger(folder: SampledFolder, saved: Saved, plan: str, name: str) -> InputError:
    """Return an error that says what the state's folder is to this one."""
    mine = [item.plan for item in folder.ancestors]
    theirs = saved.get("parents")
    theirs = theirs if isinstance(theirs, list) else []
    got = str(saved.get("sample") or saved.get("digest") or plan)[:16]
    shared = next((name for name in reversed(theirs) if name in mine), "")
    if folder.sample in theirs:
        what, hint = "saved under a plan that extends this one", f"read that plan: {got}"
    elif shared:
        what = f"saved under another plan that extends {shared}"
        hint = f"extend the plan that the training reads: sample extend={got}"
    else:
        what = "saved with other data"
        hint = "use the data that the run began with, extend their plan, or accept_other_data=True to continue here"
    chain = f", which extends {', '.join(mine)}" if mine else ""
    return InputError(
        what, where=f"state: plan{name}", got=got, expected=f"{folder.sample or folder.digest[:16]}{chain}", hint=hint
    )
