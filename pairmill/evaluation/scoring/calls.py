"""Calls of functions, compared with the answers that BFCL's AST categories list (Patil et al., ICML 2025).

A call is ``{name: {parameter: value}}``. An answer has of each parameter the values that are right; ``""`` among them
means that it may be left out. The rules are those of BFCL's checker, so verdicts compare with its figures: types are
exact but for whole numbers as floats, texts are compared without case and punctuation, and a text may be the name of a
variable where the answers say so. In Java and JavaScript each argument is a text (:mod:`.literals`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pairmill.evaluation.scoring.literals import READ

Call = Mapping[str, Any]
_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_LEFT_OUT: Final = re.compile(r"[ ,./\-_*^]")


def parse(text: str) -> list[Call]:
    """Return the calls of a text that a server's parsed calls were written as; none if it is anything else."""
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        return []
    whole = isinstance(made, list) and all(isinstance(call, dict) and len(call) == 1 for call in made)
    return made if whole else []


def plain_name(name: str) -> str:
    """Return a name as servers take it: without dots."""
    return name.replace(".", "_")


def language_of(category: str) -> str:
    """Return the language of a category's functions: python, java or javascript."""
    return next((name for name in ("javascript", "java") if name in category), "python")


def right(
    category: str, functions: Sequence[Mapping[str, Any]], calls: Sequence[Call], answers: Sequence[Call]
) -> bool:
    """Return whether calls are those that are listed.

    Args:
        category: of BFCL, as ``simple_python``, ``live_parallel_multiple`` or ``irrelevance``.
        functions: that were offered.
        calls: of the model.
        answers: a call each, with lists of right values.
    """
    if "irrelevance" in category or "relevance" in category:
        return bool(calls) != ("irrelevance" in category)
    if len(calls) != len(answers):
        return False
    by_name = {function["name"]: function for function in reversed(functions)}
    left, language = list(calls), language_of(category)
    for answer in answers:
        (name,) = answer
        function = by_name.get(name, {}) if "parallel" in category or "multiple" in category else functions[0]
        match = next((at for at, call in enumerate(left) if _same_call(function, call, answer[name], language)), None)
        if match is None:
            return False
        del left[match]
    return True


def _same_call(function: Mapping[str, Any], call: Call, answer: Mapping[str, Sequence[Any]], language: str) -> bool:
    given = call.get(plain_name(function.get("name", "")))
    parameters = function.get("parameters", {})
    details = parameters.get("properties", {})
    if not isinstance(given, dict) or any(name not in given for name in parameters.get("required", ())):
        return False
    if any(name not in details or name not in answer for name in given):
        return False
    same = _same_value if language == "python" else partial(_same_literal, language)
    if not all(same(details[name], value, answer[name]) for name, value in given.items()):
        return False
    return all(name in given or "" in values for name, values in answer.items())


def _same_value(detail: Mapping[str, Any], value: Any, possible: Sequence[Any]) -> bool:
    kind = _TYPES.get(detail["type"])
    inner = _TYPES.get(detail.get("items", {}).get("type", "")) if kind is list else None
    if kind is float and type(value) is int:
        value = float(value)
    return _is_one_of(value, possible, kind, inner)


def _same_literal(language: str, detail: Mapping[str, Any], value: Any, possible: Sequence[Any]) -> bool:
    types, read = READ[language]
    kind, inner = detail["type"], detail.get("items", {}).get("type", "") if types.get(detail["type"]) is list else ""
    if not isinstance(value, str) or kind not in types or (types[kind] is list and inner not in types):
        return False
    return _is_one_of(read(value, kind, inner), possible, types[kind], types.get(inner))


def _is_one_of(value: Any, possible: Sequence[Any], kind: type | None, inner: type | None) -> bool:
    first = next((type(item) for item in possible if item != ""), None)
    if type(value) is kind:
        if inner is not None and not any(_has_types(value, item, inner) for item in possible):
            return False
        variable = first is not None and first is not kind
    elif first is not None and type(value) is first:
        variable = True
    else:
        return False
    if variable:
        return value in possible
    if kind is dict:
        return _same_dict(value, possible)
    if kind is list and inner is dict:
        return any(_same_dicts(value, item) for item in possible)
    if kind is str:
        return _plain(value) in [_plain(item) for item in possible if isinstance(item, str)]
    if kind is list:
        listed = [[_plain(each) for each in item] for item in possible if isinstance(item, list | str)]
        return [_plain(item) for item in value] in listed
    return value in possible


def _has_types(value: Any, item: Any, kind: type) -> bool:
    """Return whether the items of a list have the type, or that of the right ones."""
    if not isinstance(item, list):
        return True
    first = next((type(each) for each in item if each != ""), None)
    return all(type(each) is kind or (first is not None and type(each) is first) for each in value)


def _same_dict(value: Any, possible: Sequence[Any]) -> bool:
    return isinstance(value, dict) and any(
        all(key in item and _plain(each) in [_plain(good) for good in item[key]] for key, each in value.items())
        and all(key in value or "" in good for key, good in item.items())
        for item in possible
        if isinstance(item, dict)
    )


def _same_dicts(value: Sequence[Any], item: Any) -> bool:
    return len(value) == len(item) and all(_same_dict(each, [good]) for each, good in zip(value, item, strict=True))


def _plain(value: Any) -> Any:
    return _LEFT_OUT.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value
