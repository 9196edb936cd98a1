"""The keys of a description that say where chats are, and what becomes of their turns, tools, reasoning and faults."""

import json
import re
from collections.abc import Collection
from typing import Any

from pairmill.chats.families import load
from pairmill.chats.reasoning import CONDITION, FIELDS, KEEP, MARKS, USES, Reasoning
from pairmill.chats.render import BOUNDARIES
from pairmill.chats.structure import CHECKS
from pairmill.chats.targets import ALL, BOTH, FIRST, KINDS, LAST, Targets
from pairmill.chats.template import ChatTemplate
from pairmill.chats.tools import ARGUMENTS_UNPARSED, CALL_UNPARSED, TOOLS_UNPARSED
from pairmill.errors import UsageError, did_you_mean
from pairmill.sources.language.chats import DROP_CHAT, END_CHAT, KEEP_CHAT, MEANINGS, PLAIN, ROLES, ChatOptions, Chats
from pairmill.sources.language.description import Description
from pairmill.sources.language.missing_paths import kind_of
from pairmill.sources.language.paths import Path
from pairmill.sources.parsed import shown

ON_FAULT = (END_CHAT, DROP_CHAT, KEEP_CHAT)
FAULTS = (*CHECKS, CALL_UNPARSED, ARGUMENTS_UNPARSED, TOOLS_UNPARSED)
"""Faults that ``on_fault`` may name."""
RENDERED_KEYS = ("tools", "targets", "on_fault")
"""Keys that need a template."""

_REASONING = "keep, drop, condition:<tag>, or {path: …, marks: […], use: …}"
_FIELD = re.compile(r"[\w-]+(\.[\w-]+)*")


def read_chats(file: Description, tags: Collection[str], *, strip: bool) -> Chats | None:
    """Return the chats that a description describes, if it does.

    Args:
        file: the description.
        tags: condition tags that rows may have.
        strip: whether white space around the texts of messages is removed.

    Raises:
        UsageError: an entry is not valid.
    """
    if "turns" not in file and not file.is_preference:
        return None
    roles = {}
    for name, meaning, place in file.mapping("roles", "what roles mean, as {narrator: user}"):
        if meaning not in MEANINGS:
            hint = did_you_mean(str(meaning), MEANINGS)
            expected = ", ".join(MEANINGS)
            raise UsageError("unknown role", where=place, got=shown(meaning), expected=expected, hint=hint)
        roles[name.strip().lower()] = meaning
    template = None
    if file.text("template", PLAIN) != PLAIN:
        template = _template(file)
    for key in ("template_variables", "boundary", *RENDERED_KEYS):
        if key in file and template is None:
            raise file.wrong(key, "needs a template:", hint="write 'template: chatml', or the path of one")
    return Chats(
        file.parsed("turns", Path.parse) if "turns" in file else Path.parse("messages"),
        (_key(file.parsed("role", Path.parse)),) if "role" in file else ("role", "from"),
        (_key(file.parsed("content", Path.parse)),) if "content" in file else ("content", "value"),
        ROLES | roles,
        template=template,
        strip=strip,
        boundary=file.choice("boundary", *BOUNDARIES),
        options=_options(file, tags),
    )


def _options(file: Description, tags: Collection[str]) -> ChatOptions:
    return ChatOptions(
        Targets(
            file.choice("answers", ALL, LAST, FIRST) or ALL,
            file.choice("targets", *KINDS) or BOTH,
            file.number("stride") or 1,
            file.number("max_targets_per_chat"),
        ),
        _path(file, "tools"),
        _reasoning(file, tags),
        _on_fault(file),
        _path(file, "target_index"),
        _path(file, "weights"),
    )


def _template(file: Description) -> ChatTemplate:
    variables = {}
    for name, value, place in file.mapping(
        "template_variables", "variables of the template, as {enable_thinking: false}"
    ):
        try:
            variables[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            expected = "what JSON has: a text, a number, true, false, null, a list or a mapping"
            raise UsageError("not a value of JSON", where=place, got=shown(value), expected=expected) from error
    return load(file.text("template"), file.place("template"), lambda path: file.beside("template", path), variables)


def _key(path: Path) -> str | Path:
    return path.column if len(path.steps) == 1 else path


def _path(file: Description, key: str) -> Path | None:
    return file.parsed(key, Path.parse) if key in file else None


def _on_fault(file: Description) -> dict[str, str]:
    if "on_fault" not in file:
        return {}
    if not file.is_mapping("on_fault"):
        return {"": file.choice("on_fault", *ON_FAULT)}
    fates = {}
    for reason, fate, place in file.mapping("on_fault", f"{CHECKS[0]}: {DROP_CHAT}"):
        if reason not in FAULTS:
            hint = did_you_mean(reason, FAULTS)
            raise UsageError("unknown fault", where=place, got=repr(reason), expected=", ".join(FAULTS), hint=hint)
        allowed = ON_FAULT if reason in CHECKS else ON_FAULT[:2]
        if fate not in allowed:
            expected = " or ".join(allowed)
            hint = "what cannot be read cannot be kept" if fate == KEEP_CHAT else did_you_mean(str(fate), allowed)
            raise UsageError("unknown value", where=place, got=shown(fate), expected=expected, hint=hint)
        fates[reason] = str(fate)
    return fates


def _reasoning(file: Description, tags: Collection[str]) -> Reasoning | None:
    if "reasoning" not in file:
        return None
    if not file.is_mapping("reasoning"):
        return _use(file, file.text("reasoning"), file.place("reasoning"), tags)
    given = {name: (value, place) for name, value, place in file.mapping("reasoning", _REASONING)}
    for name, (_, place) in given.items():
        if name not in ("path", "marks", "use"):
            hint = did_you_mean(name, ("path", "marks", "use"))
            raise UsageError(f"unknown key {name!r}", where=place, expected="path, marks, use", hint=hint)
    fields, marks = FIELDS, MARKS
    if "path" in given:
        value, place = given["path"]
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(name, str) and _FIELD.fullmatch(name) for name in names):
            expected = "a field of a message, or a list of them: [reasoning_content, meta.thinking]"
            raise UsageError("not a path within a message", where=place, got=shown(value), expected=expected)
        fields = tuple(names)
    if "marks" in given:
        value, place = given["marks"]
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(mark, str) and mark for mark in value):
            expected = 'two texts, as ["<think>", "</think>"]'
            raise UsageError("not two marks", where=place, got=_kind(value), expected=expected)
        marks = (value[0], value[1])
    value, place = given.get("use", (KEEP, ""))
    if not isinstance(value, str):
        raise UsageError("not a text", where=place, got=_kind(value), expected="keep, drop or condition:<tag>")
    return _use(file, value, place, tags, fields, marks)


def _use(
    file: Description,
    given: str,
    place: str,
    tags: Collection[str],
    fields: tuple[str, ...] = FIELDS,
    marks: tuple[str, str] = MARKS,
) -> Reasoning:
    use, _, tag = given.partition(":")
    tag = tag.strip()
    if use not in USES or (use == CONDITION) != bool(tag):
        hint = f"write 'reasoning: {CONDITION}:cot'" if use == CONDITION else did_you_mean(use, USES)
        raise UsageError("unknown value", where=place, got=repr(given), expected=_REASONING, hint=hint)
    if tag and tag not in tags:
        hint = did_you_mean(tag, tags) or f"for a tag of your own write tags: ['{tag}=<|{tag}|>']"
        raise UsageError("unknown tag", where=place, got=repr(tag), expected=f"one of {', '.join(tags)}", hint=hint)
    return Reasoning(fields, marks, use, tag)


def _kind(value: Any) -> str:
    return kind_of(value) if isinstance(value, list | dict) else shown(value)
