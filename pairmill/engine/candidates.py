"""What an input that was left out can be: the finished results below the root of which nothing was made yet.

An option says which kind of result it ``takes`` (:func:`pairmill.engine.options.option`). Of rows that were cleaned and
then curated only the curated ones are a candidate of later stages.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any, Final

from pairmill import storage
from pairmill.engine.listing import FOLDERS, ResultFolder, list_results, read_head
from pairmill.engine.options import list_item, program_name
from pairmill.errors import UsageError
from pairmill.log import event

MAKERS: Final[Mapping[str, tuple[str, ...]]] = {
    "fetched": ("fetch",),
    "rows": ("clean", "take_out", "curate", "select"),
    "tokenizer": ("tokenizer",),
    "tokenized": ("tokenize", "union"),
    "plan": ("sample",),
    "net": ("train",),
}
"""The folders of the results of each kind, those of later stages last."""
_SHOWN: Final = 10


def candidates(root: str, kind: str, stage: str = "") -> list[ResultFolder]:
    """Return the finished results of a kind of which no other one of the kind was made, newest first.

    Args:
        kind: of :data:`MAKERS`.
        stage: that takes one: its own results are none, nor are those of stages after it; empty = all are.
    """
    end = FOLDERS.index(stage) if stage in FOLDERS else len(FOLDERS)
    folders = [folder for folder in MAKERS[kind] if FOLDERS.index(folder) < end]
    results = [item for item in list_results(root, folders) if item.finished is not None] if folders else []
    if len(results) < 2 and kind != "plan":
        return results
    heads = {item.fingerprint: read_head(item.uri) for item in results}
    used = {ref.fingerprint for head in heads.values() for ref in head.inputs}
    return [item for item in results if item.fingerprint not in used and not heads[item.fingerprint].is_held_out]


def with_left_out(stage: str, config_class: type[Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that were given, and for each input that was left out the only candidate below the root.

    Where there is no candidate the input stays left out, and the stage says what it needs.

    Args:
        given: as texts, by name.

    Raises:
        UsageError: there are several candidates; the message has a command for each.
    """
    result = {**given}
    for item in dataclasses.fields(config_class):
        kind, others = item.metadata.get("takes", ""), item.metadata.get("unless", ())
        if not kind or not given.get("root") or any(given.get(name) for name in (item.name, *others)):
            continue
        known = candidates(storage.normalise(given["root"], "root"), kind, stage)
        if len(known) > 1:
            raise _refusal(stage, item.name, result, known)
        for candidate in known:
            # The type of a field is a text where annotations are not evaluated.
            is_list = item.type in ("list[str]", list[str])
            result[item.name] = list_item(candidate.uri) if is_list else candidate.uri
            event(f"{stage}: {item.name}={candidate.uri}, the only candidate below the root", stage=stage)
    return result


def _refusal(stage: str, option: str, given: Mapping[str, str], several: list[ResultFolder]) -> UsageError:
    lines = []
    for item in several[:_SHOWN]:
        values = {**given, option: item.uri}
        command = " ".join([f"pairmill {program_name(stage)}", *(shlex.quote(f"{k}={v}") for k, v in values.items())])
        lines.append(f"\n  {command}  # {read_head(item.uri).ledger.rows_out:,} rows, {item.finished:%Y-%m-%d %H:%M}")
    rest = len(several) - _SHOWN
    more = f"\n  and {rest:,} older ones: pairmill status root=…" if rest > 0 else ""
    return UsageError(
        "left out, and several results below the root can be it",
        where=option,
        got=f"{len(several)}",
        expected=f"one of these, newest first:{''.join(lines)}{more}",
    )
