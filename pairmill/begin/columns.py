"""What the fields of records hold: texts and how long they are, numbers, chats and who speaks in them."""

import datetime
import decimal
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairmill.sources.language.paths import Path
from pairmill.sources.parsed import shown

_DEPTH = 4
_DISTINCT = 100
_MOST = 500
ROLE_KEYS, CONTENT_KEYS = ("role", "from"), ("content", "value")
_CALLS = ("tool_calls", "function_call", "function_calls", "tool_call_id")
_REASONS = ("reasoning_content", "reasoning", "thinking")
TEXT, NUMBER, BOOLEAN, MESSAGES, TEXTS = "text", "number", "boolean", "messages", "list of texts"


@dataclass
class Column:
    """A field of the records, or a field of an object in them.

    Args:
        steps: the keys that lead to it.
        kinds: how many records have what kind of value there.
        empty: how many have a text of white space.
        characters: of all texts there.
        longest: characters of the longest.
        example: the first value that is not empty, as Python writes it.
        values: some distinct texts.
        roles: of chats, how many messages have each role, as it is written.
        keys: of chats, in how many messages each field is.
        signs: of chats: how many call tools, and how many reason.
    """

    steps: tuple[str, ...]
    kinds: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    characters: int = 0
    longest: int = 0
    example: str = ""
    values: set[str] = field(default_factory=set)
    roles: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    signs: Counter[str] = field(default_factory=Counter)

    @property
    def path(self) -> str:
        """It as a path of a description."""
        return Path("", self.steps).up_to(len(self.steps))

    @property
    def name(self) -> str:
        """The last key in lower case, words joined by _."""
        return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.steps[-1]).lower()).strip("_")

    @property
    def kind(self) -> str:
        """What most of its values are; empty if all are null."""
        return next((kind for kind, _ in self.kinds.most_common()), "")

    @property
    def filled(self) -> int:
        """How many records have something there."""
        return self.kinds.total() - self.empty

    def mean(self) -> int:
        """Return the mean characters of its texts."""
        return self.characters // max(1, self.kinds[TEXT] or self.kinds[MESSAGES])

    def add(self, value: Any) -> None:
        """Count a value that is not null."""
        kind = _kind(value)
        self.kinds[kind] += 1
        if isinstance(value, str):
            self.empty += not value.strip()
            self.characters += len(value)
            self.longest = max(self.longest, len(value))
            if len(self.values) < _DISTINCT and len(value) < _DISTINCT:
                self.values.add(value)
        if kind == MESSAGES:
            self._add_chat(messages_of(value))
        if not self.example and value not in ("", [], {}):
            self.example = shown(value)

    def _add_chat(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            self.keys.update(message.keys())
            role = next((message[key] for key in ROLE_KEYS if isinstance(message.get(key), str)), "")
            self.roles[role] += 1
            text = next((message[key] for key in CONTENT_KEYS if isinstance(message.get(key), str)), "")
            self.characters += len(text)
            self.longest = max(self.longest, len(text))
        self.signs["tools"] += any(message.get(key) for message in messages for key in _CALLS)
        self.signs["reasoning"] += any(bool(message.get(key)) for message in messages for key in _REASONS) or any(
            "<think>" in str(message.get(key, "")) for message in messages for key in CONTENT_KEYS
        )


def columns_of(records: Iterable[Mapping[str, Any]]) -> list[Column]:
    """Return the fields of some records, in the order in which they occur; the first five hundred."""
    result: dict[tuple[str, ...], Column] = {}
    for record in records:
        _walk(record, (), result)
    return list(result.values())


def _walk(record: Mapping[str, Any], above: tuple[str, ...], result: dict[tuple[str, ...], Column]) -> None:
    for key, value in record.items():
        steps = (*above, str(key))
        if isinstance(value, dict) and value and len(steps) < _DEPTH:
            _walk(value, steps, result)
            continue
        if steps not in result and len(result) == _MOST:
            continue  # an object by id has fields without end
        column = result.setdefault(steps, Column(steps))
        if value is not None:
            column.add(value)


def messages_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the messages that a value is, or that its JSON is; none if it is anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return []
    speaks = any(isinstance(value[0].get(key), str) for key in ROLE_KEYS)
    return value if speaks and any(key in item for item in value for key in (*CONTENT_KEYS, *_CALLS)) else []


def _kind(value: Any) -> str:
    if messages_of(value):
        return MESSAGES
    if isinstance(value, str):
        return TEXT
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int | float | decimal.Decimal):
        return NUMBER
    if isinstance(value, datetime.date | datetime.time):
        return "date"
    if isinstance(value, list):
        return TEXTS if value and all(isinstance(item, str) for item in value) else "list"
    return "object" if isinstance(value, dict) else "bytes" if isinstance(value, bytes) else type(value).__name__
