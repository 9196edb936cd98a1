"""Messages in one form, OpenAI's: what a chat template gets of any record, and what a row keeps of its chat.

A message has ``role`` (system, user, assistant, tool) and ``content`` (a text), and where there are any
``reasoning_content``, ``tool_calls`` (a list of ``{"id", "type": "function", "function": {"name", "arguments"}}``
with an object of arguments), ``tool_call_id`` and ``name``.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

Message = dict[str, Any]


class ChatFault(Exception):
    """A chat cannot be read any further.

    Args:
        reason: a snake_case name under which it is counted.
        got: what was found, in words.
        write: the line of the source's description that helps; empty = none does.
    """

    def __init__(self, reason: str, got: str = "", write: str = "") -> None:
        super().__init__(reason)
        self.reason, self.got, self.write = reason, got, write


def normal_message(
    role: str, content: str, *, reasoning: str = "", calls: Sequence[Any] = (), call_id: str = "", name: Any = None
) -> Message:
    """Return a message in the one form; what it does not have is left out."""
    message: Message = {"role": role, "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    if call_id:
        message["tool_call_id"] = call_id
    if isinstance(name, str) and name:
        message["name"] = name
    return message


def compact_json(value: Any) -> str:
    """Return a value as JSON in one line, with each character as it is.

    Raises:
        ValueError: it is not JSON: a number that is not finite, a date, levels without end.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def parse_json(text: str) -> Any:
    """Return what a JSON text holds.

    Raises:
        ValueError: it is not JSON, has NaN or Infinity in it, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_json_values(text: str, start: int = 0) -> list[Any]:
    """Return the JSON values that follow each other in a text, with white space or commas between them.

    Raises:
        ValueError: anything else is in it.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    values = []
    while start < len(text):
        if text[start].isspace() or text[start] == ",":
            start += 1
            continue
        try:
            value, start = decoder.raw_decode(text, start)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        values.append(value)
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
