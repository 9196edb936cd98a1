"""Values that are written in Java or JavaScript, read as BFCL's checker reads them: what it cannot read stays a text.

Of these categories each argument of a call is a text, as ``new int[]{1, 2}``. The patterns follow from the checker's
verdicts, oddities included, since figures are to compare with the leaderboard's.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_WHOLE: Final = r"-?\d+"
_POWER: Final = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_QUOTES: Final = ("'", '"')

JAVA: Final[Mapping[str, type]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "boolean": bool,
    **dict.fromkeys(("char", "String", "any"), str),
    **dict.fromkeys(("Array", "ArrayList"), list),
    "HashMap": dict,
}
"""Types of parameters by name; others the checker does not judge."""
JAVASCRIPT: Final[Mapping[str, type]] = {
    "String": str,
    "any": str,
    "integer": int,
    "Bigint": int,
    "float": float,
    "Boolean": bool,
    "dict": dict,
    "array": list,
}

_JAVA_NUMBERS: Final = {
    **dict.fromkeys(("byte", "short", "integer"), (_WHOLE, "", int)),
    "long": (_WHOLE, "lL", int),
    "float": (_POWER, "fF", float),
    "double": (_POWER, "", float),
}
_JAVASCRIPT_NUMBERS: Final = {
    "integer": (_WHOLE, "", int),
    "Bigint": (_WHOLE, "n", int),
    "float": (r"-?\d+(?:\.\d+)?", "", float),
}
"""Pattern, letters of which one ends it, and type."""
_AS_LIST: Final = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
_ADDED: Final = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}", re.DOTALL)
_EMPTY_LIST: Final = re.compile(r"new\s+ArrayList<\w*>\(\)")
_ARRAY: Final = re.compile(r"new\s+\w+\[\]\s*\{(.*?)\}")
_PUT: Final = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}", re.DOTALL)
_EMPTY_MAP: Final = re.compile(r"new\s+HashMap<.*?>\s*\(\)")
_ROWS: Final = re.compile(r"\[\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\]|\bnew\s+Array\(\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\)")
_ITEMS: Final = re.compile(r"\[(.*?)\]|\bnew\s+Array\((.*?)\)")
_PAIRS: Final = re.compile(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)")


def from_java(text: str, kind: str, inner: str = "") -> Any:
    """Return the value of a Java expression; the text itself if it is none of the type.

    Args:
        kind: a name of :data:`JAVA`.
        inner: that of its items, of a list; empty = they are read by their form.
    """
    if kind == "ArrayList":
        return _java_list(text, inner)
    if kind == "Array":
        match = _ARRAY.search(text)
        items = [item.strip() for item in match[1].split(",")] if match else []
        return [_java_item(item, inner) for item in items if item] if match else text
    if kind == "HashMap":
        match = _PUT.search(text)
        if match:
            return {key: _java_value(value) for key, value in re.findall(r"put\(\"(.*?)\",\s*(.*?)\)", match[1])}
        return {} if _EMPTY_MAP.search(text) else text
    return _scalar(text, kind, _JAVA_NUMBERS, "boolean")


def from_javascript(text: str, kind: str, inner: str = "") -> Any:
    """Return the value of a JavaScript expression; the text itself if it is none of the type.

    Args:
        kind: a name of :data:`JAVASCRIPT`.
        inner: that of its items, of a list; empty = they are read by their form.
    """
    if kind == "String":
        return text[1:-1] if text and text[0] == text[-1] in _QUOTES else text
    if kind == "array":
        return _javascript_array(text.strip(), inner)
    if kind == "dict":
        return _javascript_dict(text.strip())
    return _scalar(text, kind, _JAVASCRIPT_NUMBERS, "Boolean")


READ: Final[Mapping[str, tuple[Mapping[str, type], Callable[..., Any]]]] = {
    "java": (JAVA, from_java),
    "javascript": (JAVASCRIPT, from_javascript),
}
"""By language, its types and what reads a value of them."""


def _scalar(text: str, kind: str, numbers: Mapping[str, tuple[str, str, type]], boolean: str) -> Any:
    if kind == boolean:
        return text == "true" if text in ("true", "false") else text
    if kind in numbers:
        pattern, ends, made = numbers[kind]
        match = re.match(f"({pattern}){f'[{ends}]' if ends else ''}$", text)
        return made(match[1]) if match else text
    return text


def _java_list(text: str, inner: str) -> Any:
    if match := _AS_LIST.search(text):
        items = match[1].split(",")
    elif match := _ADDED.search(text):
        items = re.findall(r"add\((.+?)\)", match[1])
    else:
        return [] if _EMPTY_LIST.search(text) else text
    bare = inner in ("char", "String")  # without their quotes
    return [item.strip()[1:-1] if bare else _java_item(item.strip(), inner) for item in items]


def _java_item(text: str, inner: str) -> Any:
    return from_java(text, inner) if inner else _java_value(text)


def _java_value(text: str) -> Any:
    """Return a value whose type is not told, by its form."""
    text = text.strip()
    for kind in ("boolean", "long", "float"):
        made = from_java(text, kind)
        if made is not text:
            return made
    return text[1:-1] if text[:1] == text[-1:] == '"' else _number(text)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _javascript_value(text: str) -> Any:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text and text[0] == text[-1] in _QUOTES else _number(text)


def _javascript_array(text: str, inner: str) -> Any:
    if rows := _ROWS.match(text):
        first, *others = (row.strip() for row in re.findall(r"\[(.*?)\]", rows[0]))
        return [[_javascript_value(item) for item in row.split(",")] for row in (first.removeprefix("["), *others)]
    match = _ITEMS.match(text)
    if match is None:
        return text
    items = (match[1] if match[1] is not None else match[2]).strip()
    read: Callable[[str], Any] = (lambda item: from_javascript(item, inner)) if inner else _javascript_value
    return [read(item.strip()) for item in items.split(",")] if items else []


def _javascript_dict(text: str) -> Any:
    match = re.match(r"\{(.*?)\}", text)
    if text == "{}" or match is None:
        return {} if match else text
    made = {}
    for key, value in _PAIRS.findall(match[1]):
        value = value.strip()
        name = key.strip().strip("'\"")
        if value.startswith("[") and value.endswith("]"):
            made[name] = _javascript_array(value, "")
        elif value.startswith("{") and value.endswith("}"):
            made[name] = _javascript_dict(value)
        else:
            made[name] = _javascript_value(value.strip("'\""))
    return made
