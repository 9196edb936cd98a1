"""The reasoning of an answer: in a field of its own, or between marks at the beginning of its text."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.chats.message import ChatFault

KEEP, DROP, CONDITION = "keep", "drop", "condition"
USES = (KEEP, DROP, CONDITION)
FIELDS = ("reasoning_content", "reasoning", "thinking")
MARKS = ("<think>", "</think>")


@dataclass(frozen=True)
class Reasoning:
    """What becomes of the reasoning of answers.

    Args:
        fields: fields of a message that may have it; the first with a text counts. A dot leads into an object.
        marks: what is around it at the beginning of a text; None = texts are left as they are.
        use: keep, drop, or condition: kept, and rows whose answer has some get ``tag``.
        tag: the tag of ``condition``.
    """

    fields: tuple[str, ...] = FIELDS
    marks: tuple[str, str] | None = MARKS
    use: str = KEEP
    tag: str = ""

    def split(self, message: Mapping[str, Any], text: str, notes: Counter[str]) -> tuple[str, str]:
        """Return the reasoning of an answer, empty if it is dropped or there is none, and its text without it.

        Args:
            message: the answer as the record has it.
            notes: where it is counted what was found.

        Raises:
            ChatFault: the field holds no text.
        """
        reasoning = self.field_of(message)
        inside, text = self._inside(text, notes)
        if reasoning and inside and inside != reasoning:
            notes["reasoning_twice"] += 1
        reasoning = reasoning or inside
        if reasoning and self.use == DROP:
            notes["reasoning_dropped"] += 1
            return "", text
        return reasoning, text

    def field_of(self, message: Mapping[str, Any]) -> str:
        """Return the reasoning that is in a field; empty if there is none.

        Raises:
            ChatFault: the first field that has a value holds no text.
        """
        for name in self.fields:
            value: Any = message
            for step in name.split("."):
                value = value.get(step) if isinstance(value, Mapping) else None
            if isinstance(value, list):
                value = _joined(value)
            if value is not None and not isinstance(value, str):
                raise ChatFault("reasoning_is_no_text", f"{type(value).__name__} in {name}")
            if value and value.strip():
                return str(value.strip())
        return ""

    def marked(self, reasoning: str, text: str) -> str:
        """Return reasoning and text as one text, with the marks around the reasoning."""
        first, last = self.marks or MARKS
        return f"{first}\n{reasoning}\n{last}\n\n{text}" if reasoning else text

    def _inside(self, text: str, notes: Counter[str]) -> tuple[str, str]:
        if self.marks is None:
            return "", text
        first, last = self.marks
        bare = text.lstrip()
        begins = bare.startswith(first)
        end = bare.find(last)
        if end < 0 or not (begins or _is_line(bare, end, last)):
            if begins:
                notes["reasoning_without_end"] += 1
            return "", text
        return bare[len(first) * begins : end].strip(), bare[end + len(last) :].lstrip()


def _is_line(text: str, start: int, mark: str) -> bool:
    """Return whether a mark is a line: where a template opens the reasoning, texts begin within it and close it so."""
    after = start + len(mark)
    return text[start - 1 : start] in ("", "\n") and text[after : after + 1] in ("", "\n")


def _joined(parts: list[Any]) -> Any:
    """Return the texts of a list of parts as one; the list if a part has none."""
    texts = []
    for part in parts:
        text = next((part[key] for key in ("thinking", "text") if key in part), None) if type(part) is dict else part
        if not isinstance(text, str):
            return parts
        texts.append(text)
    return "\n".join(texts)
