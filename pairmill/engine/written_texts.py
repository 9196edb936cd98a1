"""What the chat templates of sources wrote into rows: tokenize refuses a text of theirs that is a token."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

KEY = "written_by_templates"
"""Of a manifest's data: source → {"task", "texts"}; left out without a chat template."""


class WrittenTexts(NamedTuple):
    """What the template of a source wrote.

    Args:
        task: the task of the source's rows.
        texts: pieces of text, without those of the records.
    """

    task: str
    texts: tuple[str, ...]


def to_data(sources: Mapping[str, WrittenTexts]) -> dict[str, Any]:
    """Return what a manifest's data has of sources."""
    return {KEY: {name: one._asdict() for name, one in sorted(sources.items())}} if sources else {}


def of_data(data: Mapping[str, Any], tasks: Collection[str]) -> dict[str, WrittenTexts]:
    """Return the sources, of those that a manifest's data names, with one of ``tasks``."""
    found = {name: WrittenTexts(one["task"], tuple(one["texts"])) for name, one in data.get(KEY, {}).items()}
    return {name: one for name, one in found.items() if one.task in tasks}


def joined(folders: Iterable[Mapping[str, WrittenTexts]]) -> dict[str, WrittenTexts]:
    """Return those of several folders of rows, by source."""
    found: dict[str, WrittenTexts] = {}
    for folder in folders:
        for name, one in folder.items():
            known = found.get(name, one)
            found[name] = one._replace(texts=tuple(dict.fromkeys((*known.texts, *one.texts))))
    return dict(sorted(found.items()))
