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
    return {KEY: {name: item._asdict() for name, item in sorted(sources.items())}} if sources else {}


def of_data(data: Mapping[str, Any], tasks: Collection[str]) -> dict[str, WrittenTexts]:
    """Return the sources, of those that a manifest's data names, with one of ``tasks``."""
    result = {name: WrittenTexts(item["task"], tuple(item["texts"])) for name, item in data.get(KEY, {}).items()}
    return {name: item for name, item in result.items() if item.task in tasks}


def joined(folders: Iterable[Mapping[str, WrittenTexts]]) -> dict[str, WrittenTexts]:
    """Return those of several folders of rows, by source."""
    result: dict[str, WrittenTexts] = {}
    for folder in folders:
        for name, item in folder.items():
            known = result.get(name, item)
            result[name] = item._replace(texts=tuple(dict.fromkeys((*known.texts, *item.texts))))
    return dict(sorted(result.items()))
