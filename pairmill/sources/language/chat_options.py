"""What a description says of the chats of its records beside where they are: tools, reasoning, targets, faults."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pairmill.chats.reasoning import CONDITION, FIELDS, KEEP, MARKS, USES, Reasoning
from pairmill.chats.structure import CHECKS
from pairmill.chats.targets import ALL, BOTH, FIRST, KINDS, LAST, Targets
from pairmill.chats.tools import ARGUMENTS_UNPARSED, CALL_UNPARSED, TOOLS_UNPARSED
from pairmill.errors import UsageError, did_you_mean
from pairmill.sources.language.description import Description
from pairmill.sources.language.missing_paths import kind_of
from pairmill.sources.language.paths import Path
from pairmill.sources.parsed import shown

END_CHAT, DROP_CHAT, KEEP_CHAT = "end_chat", "drop_chat", "keep"
ON_FAULT = (END_CHAT, DROP_CHAT, KEEP_CHAT)
FAULTS = (*CHECKS, CALL_UNPARSED, ARGUMENTS_UNPARSED, TOOLS_UNPARSED)
"""Faults that ``on_fault`` may name."""
RENDERED_KEYS = ("tools", "targets", "on_fault")
"""Keys that need a template."""

_REASONING = "keep, drop, condition:<tag>, or {path: …, marks: […], use: …}"
_FIELD = re.compile(r"[\w-]+(\.[\w-]+)*")


@dataclass(frozen=True)
class ChatOptions:
    """See docs/sources.md, Chats.

    Args:
        targets: which answers are learned.
        tools: path of the declarations, in the record or in a message; None = where they usually are.
        reasoning: what becomes of it; None = nothing is said.
        on_fault: by reason what becomes of the chat; the empty reason is every other one.
        target_index: path of the places of the only messages that may be targets.
        weights: path of the weights: a list in the record, or a field of each message.
    """

    targets: Targets = Targets()
    tools: Path | None = None
    reasoning: Reasoning | None = None
    on_fault: Mapping[str, str] = field(default_factory=dict)
    target_index: Path | None = None
    weights: Path | None = None

    @classmethod
    def from_description(cls, file: Description, tags: Collection[str]) -> ChatOptions:
        """Read the keys of a description.

        Args:
            file: the description.
            tags: condition tags that rows may have.

        Raises:
            UsageError: an entry is not valid.
        """
        return cls(
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

    def fate(self, reason: str) -> str:
        """Return what becomes of a chat with a fault: end_chat, drop_chat or keep."""
        return self.on_fault.get(reason) or self.on_fault.get("", END_CHAT)

    @property
    def kept(self) -> frozenset[str]:
        """The checks whose failing ends nothing."""
        return frozenset(reason for reason in CHECKS if self.fate(reason) == KEEP_CHAT)

    def meaning(self) -> list[Any]:
        """Return what rows follow from; empty where nothing is said, ``answers`` aside."""
        targets, reasoning = self.targets, self.reasoning
        entries: dict[str, Any] = {
            "targets": targets.kinds if targets.kinds != BOTH else None,
            "stride": targets.stride if targets.stride > 1 else None,
            "most": targets.most or None,
            "reasoning": [reasoning.fields, reasoning.marks, reasoning.use, reasoning.tag] if reasoning else None,
            "on_fault": dict(self.on_fault) or None,
            **{
                key: path.text if path else None
                for key, path in (("tools", self.tools), ("index", self.target_index), ("weights", self.weights))
            },
        }
        said = {key: value for key, value in entries.items() if value is not None}
        return [said] if said else []


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
