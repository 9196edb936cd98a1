"""Declarations and calls of tools: every shape that data sets have them in, as OpenAI's form.

Each shape that is mended is counted in the notes under a name that begins with ``mended_``.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.chats.literals import PythonCall, parse_calls, parse_literal
from pairmill.chats.message import ChatFault, compact_json, parse_json, parse_json_values

Tool = dict[str, Any]
Call = dict[str, Any]

TOOLS_UNPARSED, CALL_UNPARSED, ARGUMENTS_UNPARSED = "tools_unparsed", "call_unparsed", "arguments_unparsed"
"""Faults: declarations, the text of a call, or the arguments of a call cannot be read."""

_BLOCK = re.compile(r"<(tools|functions)>")
_DASH = re.compile(r"\s-\s+(?=[\[{])")
_CALL_BLOCK = re.compile(r"<(tool_call|function_calls)>")
_SPACE = re.compile(r"\s*")
_NAMED_CALL = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*(?=\{)")
_ARGUMENT_KEYS = ("arguments", "parameters", "input", "args")
_SCHEMA_KEYS = ("parameters", "input_schema")
_MOST_BLOCKS, _MAX_DEPTH = 8, 32
_MOST_SHOWN = 80


def parse_tools(value: Any, notes: Counter[str]) -> list[Tool]:
    """Return declarations as a list of ``{"type": "function", "function": {"name", …, "parameters"}}``.

    Args:
        value: a list of declarations, one alone, declarations by name, or any of them as JSON or as Python writes it.
        notes: where mended shapes are counted.

    Raises:
        ChatFault: ``tools_unparsed``.
    """
    if isinstance(value, str):
        if value.strip() in ("", "null", "None"):
            return []
        value = _parse_text(value, "tools", notes, TOOLS_UNPARSED)
    if value is None:
        return []
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) or "function" in value:
            notes["mended_single_tool"] += 1
            value = [value]
        else:
            notes["mended_tools_by_name"] += 1
            value = [{"name": name, **item} if isinstance(item, Mapping) else item for name, item in value.items()]
    if not isinstance(value, list):
        raise ChatFault(TOOLS_UNPARSED, _shown(value))
    return [_tool(item, notes) for item in value]


def _tool(value: Any, notes: Counter[str]) -> Tool:
    if isinstance(value, str):
        value = _parse_text(value, "tools", notes, TOOLS_UNPARSED)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
    given = value
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
        function = value["function"]
    else:
        function = given = value if isinstance(value, Mapping) else {}
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ChatFault(TOOLS_UNPARSED, f"a tool without a name: {_shown(value)}")
    key = next((key for key in _SCHEMA_KEYS if function.get(key) is not None), "")
    schema = function[key] if key else None
    if isinstance(schema, str):
        schema = _parse_text(schema, "parameters", notes, TOOLS_UNPARSED) if schema.strip() else None
    if schema is None or schema == [] or schema == {}:
        notes["mended_parameters_missing"] += 1
        schema = {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise ChatFault(TOOLS_UNPARSED, f"parameters of {name}: {_shown(schema)}")
    if "properties" not in schema and not isinstance(schema.get("type"), str) and _holds_objects(schema):
        notes["mended_parameters_bare"] += 1
        schema = {"type": "object", "properties": schema}
    whole = _without_nulls(schema)
    if whole != schema:
        notes["mended_null_parameters"] += 1
        schema = whole
    inner = {item: function[item] for item in function if item not in _SCHEMA_KEYS and item != "type"}
    tool = {"type": "function", "function": {**inner, "parameters": schema}}
    if given is function:
        notes["mended_bare_tool"] += 1
    elif given.get("type") == "function" and schema is function.get("parameters"):
        tool = dict(given)  # in the one form: a server gets the keys in this order
    try:
        compact_json(tool)
    except ValueError as error:
        raise ChatFault(TOOLS_UNPARSED, f"{name}: {error}") from error
    return tool


def _without_nulls(schema: Any, depth: int = 0) -> Any:
    """Return a schema without keys that are null: in columns, each object has the keys of all."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    return {
        key: _without_nulls(value, depth + 1)
        for key, value in schema.items()
        if value is not None or key in ("default", "const")
    }


def tools_in_text(text: str, notes: Counter[str]) -> tuple[list[Tool], str]:
    """Return the declarations within the text of a system message, and the text without them.

    They are in ``<tools>`` or ``<functions>``, or the text ends with them after a dash.
    """
    for opened in _first(_BLOCK, text):
        close = f"</{opened[1]}>"
        end = text.find(close, opened.end())
        tools = _tools_or_none(text[opened.end() : end], notes) if end >= 0 else None
        if tools:
            notes["mended_tools_in_xml"] += 1
            return tools, f"{text[: opened.start()].rstrip()}{text[end + len(close) :]}".strip()
    for dash in _first(_DASH, text):
        tools = _tools_or_none(text[dash.end() :], notes)
        if tools:
            notes["mended_tools_after_dash"] += 1
            return tools, text[: dash.start()].rstrip()
    return [], text


def _first(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return [match for match, _ in zip(pattern.finditer(text), range(_MOST_BLOCKS), strict=False)]


def _tools_or_none(text: str, notes: Counter[str]) -> list[Tool] | None:
    mended: Counter[str] = Counter()
    try:
        tools = parse_tools(text, mended)
    except ChatFault:
        return None
    mended.pop("mended_tools_as_text", None)
    notes.update(mended)
    return tools


def parse_calls_of(message: Mapping[str, Any], tools: Mapping[str, Tool], notes: Counter[str]) -> list[Call]:
    """Return the calls in the fields of an answer: ``tool_calls``, ``function_call`` or ``function_calls``.

    Args:
        message: the answer as the record has it.
        tools: what is declared, by name: it says what arguments without a name are.
        notes: where mended shapes are counted.

    Raises:
        ChatFault: ``call_unparsed`` or ``arguments_unparsed``.
    """
    calls: list[Call] = []
    for key in ("tool_calls", "function_call", "function_calls"):
        value = message.get(key)
        if value is None or value == "" or value == [] or value == {}:
            continue
        if key != "tool_calls":
            notes[f"mended_{key}"] += 1
        calls += parse_calls_in(value, tools, notes)
    return calls


def parse_calls_in(value: Any, tools: Mapping[str, Tool], notes: Counter[str]) -> list[Call]:
    """Return calls: a list of them, one alone, or a text of JSON, of lines ``name(a=1)``, or of a name and JSON.

    Raises:
        ChatFault: as in :func:`parse_calls_of`.
    """
    if isinstance(value, str):
        return _calls_of_text(value, tools, notes)
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        raise ChatFault(CALL_UNPARSED, _shown(value))
    calls: list[Call] = []
    for item in value:
        if isinstance(item, str):
            calls += _calls_of_text(item, tools, notes)
        elif item is not None:
            calls.append(_call(item, notes))
    return calls


def calls_in_text(text: str, tools: Mapping[str, Tool], notes: Counter[str]) -> tuple[str, list[Call]]:
    """Return the text of an answer without the blocks ``<tool_call>`` or ``<function_calls>`` at its end, and their
    calls.

    Raises:
        ChatFault: as in :func:`parse_calls_of`.
    """
    opened = _CALL_BLOCK.search(text)
    if opened is None:
        return text, []
    bodies: list[str] = []
    at = opened.start()
    while at < len(text):
        block = _CALL_BLOCK.match(text, at)
        if block is None:
            return text, []  # text after a call: it is told of, not done
        close = f"</{block[1]}>"
        end = text.find(close, block.end())
        if end < 0:
            raise ChatFault(CALL_UNPARSED, f"<{block[1]}> without an end")
        bodies.append(text[block.end() : end])
        space = _SPACE.match(text, end + len(close))
        at = space.end() if space else len(text)
    notes["mended_calls_in_xml"] += 1
    return text[: opened.start()].rstrip(), [call for body in bodies for call in _calls_of_text(body, tools, notes)]


def _calls_of_text(text: str, tools: Mapping[str, Tool], notes: Counter[str]) -> list[Call]:
    bare = text.strip()
    if not bare:
        return []
    if bare[0] in "[{":
        try:
            values = parse_json_values(bare)
        except ValueError:
            pass
        else:
            notes["mended_calls_as_json"] += 1
            flat = [call for value in values for call in (value if isinstance(value, list) else [value])]
            return [_call(value, notes) for value in flat]
    try:
        made = [_python_call(call, tools) for call in parse_calls(bare)]
    except ValueError as error:
        named = _named_call(bare, notes)
        if named is None:
            raise ChatFault(CALL_UNPARSED, f"{_shown(text)}: {error}") from error
        return [named]
    notes["mended_python_calls"] += 1
    return made


def _named_call(text: str, notes: Counter[str]) -> Call | None:
    """Return the call of a name with JSON behind it."""
    name = _NAMED_CALL.match(text)
    if name is None:
        return None
    notes["mended_name_and_json"] += 1
    return _normal_call(name[1], _arguments(text[name.end() :], name[1], notes))


def _python_call(call: PythonCall, tools: Mapping[str, Tool]) -> Call:
    if call.values:
        names = [name for name in properties_of(tools.get(call.name)) if name not in call.arguments]
        if len(names) < len(call.values):
            raise ValueError(f"no names for the values of {call.name}")
        arguments = {**dict(zip(names, call.values, strict=False)), **call.arguments}
    else:
        arguments = call.arguments
    return _normal_call(call.name, arguments)


def _call(value: Any, notes: Counter[str]) -> Call:
    if not isinstance(value, Mapping):
        raise ChatFault(CALL_UNPARSED, _shown(value))
    function = value.get("function")
    inner: Mapping[str, Any] = value
    if isinstance(function, Mapping):
        inner, name = function, function.get("name")
    elif isinstance(function, str):
        notes["mended_function_is_name"] += 1
        name = function
    else:
        notes["mended_bare_call"] += 1
        name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ChatFault(CALL_UNPARSED, f"a call without a name: {_shown(value)}")
    key = next((key for key in _ARGUMENT_KEYS if inner.get(key) is not None), "")
    if key not in ("", _ARGUMENT_KEYS[0]):
        notes[f"mended_arguments_in_{key}"] += 1
    call = _normal_call(name, _arguments(inner.get(key), name, notes))
    return {"id": value["id"], **call} if value.get("id") is not None else call


def _normal_call(name: str, arguments: Mapping[str, Any]) -> Call:
    try:
        compact_json(arguments)
    except ValueError as error:
        raise ChatFault(ARGUMENTS_UNPARSED, f"{name}: {error}") from error
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(value: Any, name: str, notes: Counter[str]) -> dict[str, Any]:
    if isinstance(value, str):
        text = value
        if not text.strip():
            value = {}
        else:
            try:
                value = parse_json(text)
                notes["mended_arguments_as_json"] += 1
                if isinstance(value, str):
                    value = parse_json(value)
                    notes["mended_arguments_as_json_twice"] += 1
            except ValueError as error:
                try:
                    value = parse_literal(text)
                except ValueError:
                    raise ChatFault(ARGUMENTS_UNPARSED, f"{name}: {error}: {_shown(text)}") from error
                notes["mended_arguments_as_python"] += 1
    if value is None:
        notes["mended_arguments_missing"] += 1
        return {}
    if not isinstance(value, dict):
        raise ChatFault(ARGUMENTS_UNPARSED, f"{name}: {_shown(value)}")
    return value


def properties_of(tool: Tool | None) -> Mapping[str, Any]:
    """Return the schema of each parameter by name; empty where nothing is declared."""
    function = tool.get("function") if tool else None
    schema = function.get("parameters") if isinstance(function, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _parse_text(text: str, what: str, notes: Counter[str], reason: str) -> Any:
    try:
        values = parse_json_values(text)
        notes[f"mended_{what}_as_text"] += 1
        return values[0] if len(values) == 1 else values
    except ValueError as error:
        try:
            value = parse_literal(text)
        except ValueError:
            raise ChatFault(reason, f"{_shown(text)}: {error}") from error
        notes[f"mended_{what}_as_python"] += 1
        return value


def _holds_objects(schema: Mapping[str, Any]) -> bool:
    return bool(schema) and all(isinstance(item, Mapping) for item in schema.values())


def _shown(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError, TypeError):
        text = type(value).__name__
    text = " ".join(text[: 4 * _MOST_SHOWN].split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def named_tools(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return declarations by the name of their function; of two with one name the first."""
    named: dict[str, Tool] = {}
    for tool in tools:
        named.setdefault(tool["function"]["name"], tool)
    return named
