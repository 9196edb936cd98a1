"""How a finished folder was made, for its report: the command, and the reports that it follows from.

Both follow from the manifest alone, so the report has equal bytes wherever the work is done. When and where it was done
is on the page of the line, which no manifest lists (docs/decisions/0047-links-of-reports.md).
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pairmill.engine import vanished
from pairmill.engine.listing import folder_of
from pairmill.engine.manifest import InputRef, Manifest, is_fingerprint
from pairmill.engine.options import default_of, list_item, program_name
from pairmill.engine.policing import KEY, REMOVED
from pairmill.engine.stage import Stage
from pairmill.report.model import Cell, Link, Percent, Report, Table

LINE: Final = "line"
"""Folder below the root of the pages over the line."""
INDEX: Final = "index.html"
"""In that folder: the pages, with what was made when."""


def command_of(stage: Stage[Any, Any], manifest: Manifest) -> str:
    """Return the line of a shell that makes a folder: inputs by places below ``$root``, and options not the defaults.

    Options that change no byte of the result are left out, and settings files are where the user has them: the settings
    themselves are in the manifest.
    """
    if not stage.is_command:
        return ""
    fields = {item.name: item for item in dataclasses.fields(stage.config)}
    given: dict[str, list[str]] = {}
    for ref in manifest.inputs:
        if ref.role in fields and is_fingerprint(ref.fingerprint):
            # What is not below the root is left to be filled in.
            place = f"$root/{folder_of(ref)}" if folder_of(ref) else f"<{ref.role} {ref.fingerprint}>"
            given.setdefault(ref.role, []).append(place)
    options = [f'{name}="{",".join(places)}"' for name, places in given.items()]
    for name, value in options_of(stage, manifest).items():
        if name not in given and value != _text(default_of(fields[name])):
            options.append(f"{name}={shlex.quote(value)}")
    return " ".join([f"pairmill {program_name(stage.name)}", *options, 'root="$root"'])


def options_of(stage: Stage[Any, Any], manifest: Manifest) -> dict[str, str]:
    """Return the options that a folder follows from, by name, as the command line has them."""
    fields = {item.name for item in dataclasses.fields(stage.config)}
    return {name: _text(value) for name, value in manifest.options.items() if name in fields}


def links_of(manifest: Manifest) -> Iterator[Link]:
    """Yield the reports of the folders that were read, and the pages over the line, as they are below one root."""
    for ref in dict.fromkeys((item.stage, item.role, item.fingerprint) for item in manifest.inputs):
        if folder := folder_of(InputRef(ref[1], ref[2], ref[0])):
            yield Link(folder, f"../../{folder}/report.html")
    yield Link("the line", f"../../{LINE}/{INDEX}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(list_item(str(item)) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_alarms(report: Report, manifest: Manifest) -> Report:
    """Return a stage's report with the table of what vanished, and its lines among what to look at.

    Rows that a policy took out before the stage read them are in its figures.
    """
    rows: list[list[Cell]] = [
        [
            manifest.stage,
            item.kind,
            item.name,
            *_counts(item.rows),
            *_counts(item.tokens),
            "–" if item.lost is None else Percent(item.lost),
            item.reason.replace("_", " "),
            ", ".join(item.examples),
        ]
        for item in vanished.read(manifest)
    ]
    header = ("Stage", "What", "Name", "Rows", "After", "Tokens", "After", "Lost", "First reason", "Examples")
    note = "What lost half or more of its rows or tokens, and what nothing applies to, although no option asks for it."
    if removed := manifest.data.get(KEY, {}).get(REMOVED):
        report.figures = {**report.figures, "Removed by the policy": sum(removed.values())}
    report.look_at = [*report.look_at, *vanished.sentences(manifest)]
    report.vanished = Table("Vanished", header, rows, note) if rows else None
    return report


def _counts(pair: Sequence[int] | None) -> list[Cell]:
    return ["–", "–"] if pair is None else [*pair]
