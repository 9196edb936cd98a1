"""Checks that the calls and results of a chat fit each other, their declarations, and the template.

A check that fails ends the chat (:class:`ChatFault`), or is a note where the source says ``on_fault: keep``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pairmill.chats.message import ChatFault, Message, compact_json, normal_message, parse_json, parse_json_values
from pairmill.chats.tools import CALL_UNPARSED, Call, Tool, named_tools, properties_of

TOOL_IDS, RESULTS, SCHEMA, NAMES, FOREIGN = (
    "tool_ids",
    "results_match_calls",
    "arguments_match_schema",
    "declared_name",
    "foreign_marks",
)
CHECKS = (TOOL_IDS, RESULTS, SCHEMA, NAMES, FOREIGN)
"""The reasons: an id that occurs twice in a turn or that no call has; more or fewer results than calls; arguments of
another type, beyond the enum or missing; a call of what is not declared; a mark of another template within a text."""

OLD_MARKS = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>[INST]", "[/INST]"),
    *("<tool_call>", "</tool_call>", "<tools>", "</tools>", "<function_calls>", "</function_calls>"),
)
"""Marks of templates and of old contracts about tools. In the rows of a template that does not write them they are
left over from another."""

_MAX_DEPTH = 32
_MOST_CALLS = 1024
_TYPES = {
    **dict.fromkeys(("object", "dict", "map"), "object"),
    **dict.fromkeys(("array", "list", "tuple"), "array"),
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int", "long"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("null", "none"), "null"),
}
"""The types of JSON Schema, and the names that data sets have for them. Others are taken as they come."""
_RESULT_KEYS = ("content", "result", "results", "output", "response")
_ID_KEYS = ("tool_call_id", "call_id", "tool_use_id")


class Structure:
    """Follows one chat: numbers its calls, gives each result its call, and checks both.

    Args:
        tools: the declarations, in the one form; without any, names and arguments are not checked.
        notes: where faults that are kept, and mended ids, are counted.
        kept: checks whose failing is noted, and ends nothing.
        marks: what no text may have in it.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        notes: Counter[str],
        kept: frozenset[str] = frozenset(),
        marks: Sequence[str] = OLD_MARKS,
    ) -> None:
        self.tools = named_tools(tools)
        self._notes, self._kept, self._marks = notes, kept, marks
        self._ids: set[str] = set()
        self._waiting: list[tuple[str, str, str]] = []
        """Of each call without a result: its id in the record, its id, its name."""
        self._called = 0

    def check_text(self, text: str) -> None:
        """Refuse a text with a mark of another template in it."""
        if "<" in text or "[" in text:
            for mark in self._marks:
                if mark in text:
                    self._refuse(FOREIGN, f"{mark} in a text", f"on_fault: {{{FOREIGN}: keep}}")
                    return

    def take_calls(self, calls: Sequence[Call], *, more: bool = False) -> list[Call]:
        """Return the calls of a turn with ids that no other call of the chat has.

        Args:
            calls: as :mod:`pairmill.chats.tools` makes them.
            more: whether they are further calls of the turn before, so that its calls need no results yet.

        Raises:
            ChatFault: a check fails.
        """
        if not more:
            self.finish_turn()
        if len(self._waiting) + len(calls) > _MOST_CALLS:
            raise ChatFault(CALL_UNPARSED, f"more than {_MOST_CALLS} calls in a turn")
        given = [_id_of(call) for call in calls]
        known = [item for item in (*given, *(waiting[0] for waiting in self._waiting)) if item]
        if len(set(known)) < len(known):
            self._refuse(TOOL_IDS, f"the id {Counter(known).most_common(1)[0][0]!r} twice in a turn")
        result = []
        for item, call in zip(given, calls, strict=True):
            function = self._without_nulls(call["function"])
            self._check_call(function["name"], function["arguments"])
            made = item
            if not item or item in self._ids:
                self._notes["mended_ids_repeated" if item else "mended_ids_missing"] += 1
                made = self._new_id()
            self._ids.add(made)
            self._waiting.append((item, made, function["name"]))
            result.append({"id": made, "type": "function", "function": function})
        self._called += len(calls)
        return result

    def take_results(self, message: Mapping[str, Any], content: Any, as_text: Callable[[Any], str]) -> list[Message]:
        """Return a message of a tool as one message for each result.

        Args:
            message: as the record has it.
            content: what it says: a text, or a list.
            as_text: returns a content as a text, or raises.

        Raises:
            ChatFault: a check fails.
        """
        several = None if _id_of(message, _ID_KEYS) else self._several(content)
        if several is None:
            return [self._result(message, as_text(content), message)]
        self._notes["mended_results_in_one_message"] += 1
        return [self._result(item, text, message) for item, text in several]

    def finish_turn(self) -> None:
        """Refuse the end of a turn with fewer results than calls."""
        called, missing = self._called, len(self._waiting)
        self._waiting, self._called = [], 0
        if missing:
            self._refuse(RESULTS, f"{called - missing} results of {called} calls")

    def _result(self, item: Mapping[str, Any], text: str, message: Mapping[str, Any]) -> Message:
        given = _id_of(item, _ID_KEYS if item is message else (*_ID_KEYS, "id"))
        name = item.get("name") or message.get("name")
        fits = [place for place, waiting in enumerate(self._waiting) if given and given == waiting[0]]
        if given and not fits and any(waiting[0] for waiting in self._waiting):
            self._refuse(TOOL_IDS, f"a result of {given!r}, which no call without a result has")
        if not given:
            self._notes["mended_result_ids_missing"] += 1
            fits = [place for place, waiting in enumerate(self._waiting) if name == waiting[2]]
        if not self._waiting:
            self._refuse(RESULTS, f"more results than the {self._called} calls")
            return normal_message("tool", text, call_id=given, name=name)
        _, call_id, _ = self._waiting.pop(fits[0] if fits else 0)
        return normal_message("tool", text, call_id=call_id, name=name)

    def _several(self, content: Any) -> list[tuple[Mapping[str, Any], str]] | None:
        """Return the results that a content holds, in the order of their calls; None if it is the one of one call."""
        if len(self._waiting) < 2:
            return None
        if isinstance(content, str):
            content = _list_in(content)
        if not isinstance(content, list) or all(_is_text_part(item) for item in content):
            return None
        # A list of another length is what one call returned, unless each of its items says which call it is of.
        fits = len(content) == len(self._waiting) or all(_says_call(item) for item in content)
        return [_result_in(item) for item in content] if fits else None

    def _without_nulls(self, function: dict[str, Any]) -> dict[str, Any]:
        """Return a call without nulls for what its tool does not declare: other records have these columns."""
        if None not in function["arguments"].values() or function["name"] not in self.tools:
            return function
        declared = properties_of(self.tools[function["name"]])
        kept = {key: value for key, value in function["arguments"].items() if value is not None or key in declared}
        if len(kept) < len(function["arguments"]):
            self._notes["mended_null_arguments"] += 1
        return {**function, "arguments": kept}

    def _check_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        if not self.tools:
            return
        tool = self.tools.get(name)
        if tool is None:
            self._refuse(NAMES, f"a call of {name!r}, where {', '.join(list(self.tools)[:8])} are declared")
            return
        wrong = schema_mismatch(arguments, tool["function"].get("parameters"), name)
        if wrong:
            self._refuse(SCHEMA, wrong)

    def _new_id(self) -> str:
        number = len(self._ids)
        while (made := f"call{number:05d}") in self._ids:  # nine letters and digits: some templates take no other
            number += 1
        return made

    def _refuse(self, reason: str, got: str, write: str = "") -> None:
        if reason not in self._kept:
            raise ChatFault(reason, got, write)
        self._notes[f"{reason}_kept"] += 1


def schema_mismatch(value: Any, schema: Any, place: str, depth: int = 0) -> str:
    """Return how a value differs from a JSON Schema in types, required names and enum; empty if it does not.

    Args:
        value: what came as JSON.
        schema: the schema; what it says beyond these three, and types that are not known, is not checked.
        place: where the value is, for the message.
        depth: levels above the value.
    """
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return ""
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list) and choices:
            wrong = [schema_mismatch(value, choice, place, depth + 1) for choice in choices]
            if all(wrong):
                return wrong[0]
    types = _types_of(schema)
    if types and not any(_is_of(value, item) for item in types):
        return f"{place}: {compact_json(value)[:40]}, not {' or '.join(types)}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and allowed and not any(_equal(value, item) for item in allowed):
        return f"{place}: {compact_json(value)[:40]} is not in the enum"
    if isinstance(value, Mapping):
        return _object_mismatch(value, schema, place, depth)
    if isinstance(value, list):
        wrongs = (schema_mismatch(item, schema.get("items"), f"{place}[]", depth + 1) for item in value)
        return next(filter(None, wrongs), "")
    return ""


def _object_mismatch(value: Mapping[str, Any], schema: Mapping[str, Any], place: str, depth: int) -> str:
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    missing = next((name for name in names if name not in value), "")
    if missing:
        return f"{place}: no {missing}"
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    for name, item in value.items():
        # Columns of Parquet have a null for each name that another record has.
        if item is None and name not in names:
            continue
        wrong = schema_mismatch(item, properties.get(name), f"{place}.{name}", depth + 1)
        if wrong:
            return wrong
    return ""


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    types = [_TYPES.get(item.strip().lower(), "") if isinstance(item, str) else "" for item in named]
    if schema.get("nullable") is True:
        types.append("null")
    return types if all(types) else []


def _is_of(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (kind == "number" or value == int(value))


def _equal(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _id_of(item: Mapping[str, Any], keys: Iterable[str] = ("id",)) -> str:
    value = next((item[key] for key in keys if item.get(key) is not None), "")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _list_in(text: str) -> Any:
    """Return the JSON list that a text is, or the JSON values of its lines; None if it is neither."""
    bare = text.strip()
    try:
        return parse_json(bare) if bare[:1] == "[" else parse_json_values(bare) if bare[:1] == "{" else None
    except ValueError:
        return None


def _is_text_part(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "text"


def _says_call(item: Any) -> bool:
    return isinstance(item, Mapping) and any(item.get(key) for key in _ID_KEYS)


def _result_in(item: Any) -> tuple[Mapping[str, Any], str]:
    if isinstance(item, str):
        return {}, item
    if not isinstance(item, Mapping):
        return {}, compact_json(item)
    # Only what says that it is a result has its text taken out; any other object is the result.
    is_told = any(key in item for key in (*_ID_KEYS, "name", "role"))
    key = next((key for key in _RESULT_KEYS if key in item), "") if is_told else ""
    text = item[key] if key else item
    return (item if key else {}), text if isinstance(text, str) else compact_json(text)
