"""Condition tags of a source's own, each with the token that the tokenizer gets for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pairmill.engine.conditions import Tag
from pairmill.errors import UsageError

if TYPE_CHECKING:
    from pairmill.sources.language.description import Description
    from pairmill.sources.source import Source

TAGS = ("direct", "cot", "noisy", "synth")
"""The tags that every tokenizer of train_tokenizer has a token for."""

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_TOKEN = 200


def own_tags(file: Description) -> dict[str, str]:
    """Token by tag, of ``tags:``.

    Raises:
        UsageError: an item is not ``name=token``, or redefines a tag, or gives a token twice.
    """
    result: dict[str, str] = {}
    for item in file.texts("tags"):
        tag, separator, token = item.partition("=")
        tag, token = tag.strip(), token.strip()
        if (
            not separator
            or not _NAME.fullmatch(tag)
            or not token
            or len(token) > _MAX_TOKEN
            or token.split() != [token]
        ):
            name = re.sub(r"[^a-z0-9_-]+", "_", (tag or "legal").lower())[:64]
            expected = f"name=token, such as {name}=<|{name}|>; a name is of a-z 0-9 _ -, and a token has no space"
            raise file.wrong("tags", "not a tag", got=repr(item), expected=expected)
        if tag in TAGS:
            hint = f"condition: may use {tag} without tags:; for another token of it set conditions= of tokenize"
            raise file.wrong("tags", "every tokenizer has a token for this tag", got=repr(tag), hint=hint)
        if tag in result or token in result.values():
            what = "the same tag occurs twice" if tag in result else "two tags have the same token"
            raise file.wrong("tags", what, got=repr(item), expected="one token for each tag")
        result[tag] = token
    return result


def asked_for(sources: Iterable[Source]) -> dict[str, Tag]:
    """Return the tags of some sources, by name.

    Raises:
        UsageError: two of them give a tag two tokens, or two tags one.
    """
    result: dict[str, Tag] = {}
    by_token: dict[str, str] = {}
    for source in sources:
        for tag, token in source.tags.items():
            known = result.setdefault(tag, Tag(token, ()))
            if known.token != token:
                raise UsageError(
                    f"two sources give the tag {tag!r} two tokens",
                    where="sources",
                    got=f"{known.token} in {', '.join(known.sources)}, {token} in {source.name}",
                    expected="one token",
                    hint=f"write in {source.described_in}: tags: ['{tag}={known.token}']",
                )
            other = by_token.setdefault(token, tag)
            if other != tag:
                raise UsageError(
                    f"two tags have the token {token!r}",
                    where="sources",
                    got=f"{other} in {', '.join(result[other].sources)}, {tag} in {source.name}",
                    expected="one token for each tag",
                    hint=f"write in {source.described_in}: tags: ['{tag}=<|{tag}|>']",
                )
            result[tag] = Tag(token, (*known.sources, source.name))
    return dict(sorted(result.items()))
