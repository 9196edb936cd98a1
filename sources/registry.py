"""The sources that a run is about: built in, by name, or described by a YAML file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from pairmill.errors import InputError, UsageError
from pairmill.log import event
from sources.datasets import SOURCES
from sources.source import Source


def is_file(item: str) -> bool:
    """Whether an item of ``sources=`` is a YAML file rather than a name."""
    return item.endswith((".yaml", ".yml"))


def chosen(
    items: Sequence[str], folders: Collection[str] | None, where: str = "raw", raw: str | None = ""
) -> list[Source]:
    """The sources that ``sources=`` asks for, in its order.

    Args:
        items: names, YAML files, and ``all``.
        folders: what ``all`` means: the known sources among these names; None = every known one.
        where: where those names were found, for messages.
        raw: as :func:`sources.mapped.load` takes it.

    Raises:
        UsageError: an unknown name, a YAML file that describes no source, or two sources of one name.
        InputError: ``all`` of a folder that has none.
    """
    found: dict[str, Source] = {}
    for item in items:
        if item == "all":
            for source in _all(folders, where):
                found.setdefault(source.name, source)
            continue
        if is_file(item):
            from sources.mapped import load

            source = load(item, raw)
            if source.name in found:
                raise UsageError("two sources of one name", where="sources", got=source.name)
        elif item in SOURCES:
            source = SOURCES[item]
        else:
            close = difflib.get_close_matches(item, SOURCES, n=1)
            raise UsageError(
                "unknown source",
                where="sources",
                got=item,
                expected=f"all, a YAML file, or {', '.join(SOURCES)}",
                hint=f"did you mean {close[0]!r}?" if close else "",
            )
        found[source.name] = source
    return list(found.values())


def _all(folders: Collection[str] | None, where: str) -> list[Source]:
    if folders is None:
        return list(SOURCES.values())
    found = [source for name, source in SOURCES.items() if name in folders]
    if not found:
        raise InputError("no folder of a known source", where=where, expected=f"one or more of {', '.join(SOURCES)}")
    strangers = sorted(set(folders) - set(SOURCES))
    if strangers:
        event(f"passed over, because no source has that name: {', '.join(strangers)}")
    return found
