"""The tags of one's own in the conditions of rows: what a manifest says of them, and what later stages make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pairmill.errors import InputError

KEY = "conditions"
"""Of a manifest's data: tag → {"token", "sources"}; left out without a tag."""


class Tag(NamedTuple):
    """A tag of one's own.

    Args:
        token: that the tokenizer has for it.
        sources: which asked for it.
    """

    token: str
    sources: tuple[str, ...]


def to_data(tags: Mapping[str, Tag]) -> dict[str, Any]:
    """Return what a manifest's data has of tags."""
    return {KEY: {name: tag._asdict() for name, tag in tags.items()}} if tags else {}


def of_data(data: Mapping[str, Any]) -> dict[str, Tag]:
    """Return the tags that a manifest's data names."""
    return {name: Tag(item["token"], tuple(item["sources"])) for name, item in data.get(KEY, {}).items()}


def joined(folders: Mapping[str, Mapping[str, Tag]], option: str) -> dict[str, Tag]:
    """Return the tags of several folders of rows, by name.

    Raises:
        InputError: two of them give a tag two tokens.
    """
    result: dict[str, Tag] = {}
    place: dict[str, str] = {}
    for folder, tags in folders.items():
        for name, tag in tags.items():
            known = result.setdefault(name, tag)
            place.setdefault(name, folder)
            if known.token != tag.token:
                raise InputError(
                    f"two folders of rows give the tag {name!r} two tokens",
                    where=option,
                    got=f"{known.token} in {place[name]}, {tag.token} in {folder}",
                    expected="one token",
                    hint=f"write one of them under tags: of {' and '.join((*known.sources, *tag.sources))}, "
                    "and run clean again",
                )
            result[name] = Tag(tag.token, tuple(dict.fromkeys((*known.sources, *tag.sources))))
    return dict(sorted(result.items()))
