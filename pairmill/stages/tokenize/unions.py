"""``pairmill tokenize union`` and ``diff``: what several tokenized folders are together, and how two differ."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pairmill import storage
from pairmill.engine import links
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.links import LinkRule
from pairmill.engine.options import links_option, option, tasks_option
from pairmill.engine.source_names import source_of
from pairmill.formats.tokenized import Folder, Opening
from pairmill.formats.tokenized_path import join, open_tokenized, places, write_union
from pairmill.formats.tokens import Dataset
from pairmill.formats.union import Member
from pairmill.report.model import Cell, Table

_OPTION = "tokenized_path"


@dataclass(kw_only=True)
class UnionConfig:
    """Show what tokenized folders are together; with to=, write that as a folder of a manifest and no arrays."""

    tokenized_path: str = option(help="name=folder,name=folder: folders, plans, unions, URIs of buckets")
    tasks: str = tasks_option()
    to: str = option("", help="folder or URI to write the union to; it is a tokenized_path itself; empty = only show")
    verify: bool = option(False, help="digest all arrays of the folders")
    links: LinkRule = links_option()


@dataclass(kw_only=True)
class DiffConfig:
    """Show how two tokenized folders, or unions, differ: by source in tasks, rows and tokens."""

    old: str = option(help="name=folder,…: what was")
    new: str = option(help="name=folder,…: what is")
    tasks: str = tasks_option()
    by: Literal["source", "task"] = option("source", help="a line for each source, or for each task that differs")
    format: Literal["md", "csv", "json"] = option("md", help="md, csv or json")
    links: LinkRule = links_option()


def show_union(config: UnionConfig) -> str:
    """Return the table of a union, and write it if that is asked for.

    Raises:
        InputError, UsageError: see :func:`open_tokenized`.
    """
    with links.obeyed(config.links):
        some = places(config.tokenized_path, _OPTION)
        union = join(some, config.tasks, Opening(_OPTION, verify=config.verify))
    rows: list[Sequence[Cell]] = []
    for number, part in enumerate(union.parts):
        mine = [item.task for item in union.members if item.part == number]
        rows.append((f"{'added' if number else 'base'}: {part.name}", *_sums(mine), part.folder.uri))
    whys: dict[str, list[Dataset]] = defaultdict(list)
    for item, clause in union.excluded:
        whys[clause.why].append(item.task)
    rows += [("removed", *_sums(gone), why) for why, gone in whys.items()]
    for name, members in (
        ("renamed", [item for item in union.members if item.is_renamed]),
        ("duplicates", [item for item, _ in union.duplicates]),
    ):
        rows.append((name, *_sums(item.task for item in members), _some(members)))
    rows.append(("missing", len(union.missing), 0, 0, ", ".join(union.missing[:5])))
    held_out = [item.task for item in union.members if item.task.name.startswith(HELD_OUT)]
    if held_out:
        rows.append(("held out", len(held_out), *map(sum, zip(*(task.counts for task in held_out), strict=True)), ""))
    rows.append(("union", *_sums(item.task for item in union.members), union.fingerprint))
    text = "\n".join(Table("Union", ("", "Tasks", "Rows", "Tokens", ""), rows).markdown(2)[1:]) + "\n"
    if not config.to:
        return text
    folder = union.folder(config.tokenized_path, _OPTION, None)
    return text + write_union(folder, storage.normalise(config.to, "to")) + "\n"


def _sums(tasks: Iterable[Dataset]) -> tuple[int, int, int]:
    """Return tasks, rows and tokens, of training."""
    counted = [task.counts for task in tasks if not task.name.startswith(HELD_OUT)]
    return len(counted), sum(rows for rows, _ in counted), sum(tokens for _, tokens in counted)


def _some(members: Sequence[Member]) -> str:
    shown = [item.own if item.own == item.task.name else f"{item.own} → {item.task.name}" for item in members[:3]]
    return ", ".join([*shown, *(["…"] if len(members) > len(shown) else [])])


@dataclass
class _Change:
    """What became of a task: its rows and tokens before and after."""

    task: str
    kind: Literal["same", "renamed", "changed", "added", "removed"]
    before: tuple[int, int] = (0, 0)
    after: tuple[int, int] = (0, 0)


def show_diff(config: DiffConfig) -> str:
    """Return the table of two folders.

    Raises:
        InputError, UsageError: see :func:`open_tokenized`.
    """
    with links.obeyed(config.links):
        old = open_tokenized(config.old, "old")
        new = open_tokenized(config.new, "new", tasks=config.tasks)
    changes = _changes(old, new)
    if config.by == "task":
        header: Sequence[str] = ("Task", "Change", "Rows before", "Rows", "Tokens before", "Tokens")
        lines: list[Sequence[Cell]] = [
            (item.task, item.kind, item.before[0], item.after[0], item.before[1], item.after[1])
            for item in changes
            if item.kind != "same"
        ]
    else:
        header = ("Source", "Tasks before", "Tasks", "Rows before", "Rows", "Tokens before", "Tokens", "Difference")
        lines = _by_source(changes)
    counts = {
        kind: sum(item.kind == kind for item in changes) for kind in ("same", "renamed", "changed", "added", "removed")
    }
    if config.format == "json":
        return json.dumps({"tasks": counts, "lines": [dict(zip(header, line, strict=True)) for line in lines]}) + "\n"
    if config.format == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([header, *lines])
        return out.getvalue()
    if config.by == "source":
        lines = [(*line[:-1], f"{line[-1]:+,}") for line in lines]
    summary = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    return f"tasks: {summary}\n" + "\n".join(Table("Difference", header, lines).markdown(2)) + "\n"


def _changes(old: Folder, new: Folder) -> list[_Change]:
    before, after = ({task.name: task for task in folder.tasks} for folder in (old, new))
    gone: dict[str, list[Dataset]] = defaultdict(list)
    for name, task in before.items():
        if name not in after:
            gone[task.key].append(task)
    result = []
    for name, task in after.items():
        was = before.get(name)
        kind: Literal["same", "renamed", "changed", "added"] = "added"
        if was is not None:
            kind = "same" if was.key == task.key else "changed"
        elif gone.get(task.key):
            kind, was = "renamed", gone[task.key].pop()
        result.append(_Change(name, kind, was.counts if was is not None else (0, 0), task.counts))
    return result + [_Change(task.name, "removed", task.counts) for tasks in gone.values() for task in tasks]


def _by_source(changes: Sequence[_Change]) -> list[Sequence[Cell]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for item in changes:
        figures = (
            item.kind != "added",
            item.kind != "removed",
            item.before[0],
            item.after[0],
            item.before[1],
            item.after[1],
        )
        for name in (source_of(item.task), "all"):
            sums[name] = [total + figure for total, figure in zip(sums[name], figures, strict=True)]
    last = sums.pop("all", [0] * 6)
    return [(name, *values, values[5] - values[4]) for name, values in [*sorted(sums.items()), ("all", last)]]
