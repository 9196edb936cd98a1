"""Condition tags: those of a source's own, each with its token in the tokenizer, and those of its rows."""

import re
from collections.abc import Collection, Sequence

from pairmill.errors import did_you_mean
from pairmill.formats.templates import TAGS
from pairmill.sources.language.description import Description
from pairmill.sources.language.template import Template

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


def condition(file: Description, own: Collection[str]) -> str | Template:
    """Return the condition of every row, or the template that gives it; ``own`` are tags beside :data:`TAGS`."""
    if "condition" not in file:
        return ""
    text = file.text("condition")
    if "{" in text or "}" in text:
        return file.parsed("condition", Template.parse)
    tags = tags_of(text)
    known = (*TAGS, *own)
    wrong = wrong_tag(tags, known)
    if wrong is not None:
        hint = did_you_mean(wrong, known) or f"for a tag of your own write tags: ['{wrong}=<|{wrong}|>']"
        if wrong in known:
            hint = ""
        what = "the same tag occurs twice" if wrong in known else "unknown tag"
        raise file.wrong("condition", what, got=repr(wrong), expected=f"some of {', '.join(known)}", hint=hint)
    return ",".join(tags)


def tags_of(condition: str) -> list[str]:
    """Return the tags of a condition."""
    return [tag.strip() for tag in condition.split(",")]


def wrong_tag(tags: Sequence[str], known: Collection[str]) -> str | None:
    """Return the first tag that is unknown or occurs twice."""
    return next((tag for place, tag in enumerate(tags) if tag not in known or tag in tags[:place]), None)
