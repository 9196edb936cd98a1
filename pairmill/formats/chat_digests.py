"""The chat template that ``tokenizer_info`` names: rows of two templates are not mixed."""

import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Final

from pairmill.errors import InputError

KEY: Final = "chat_template"
"""Of ``tokenizer_info.json``: digest, text, tokens and variables; left out without rendered rows."""
_SHOWN: Final = 160


def differing_line(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return the first line in which two templates differ, else the tokens or variables that do."""
    pairs = zip_longest(first["text"].splitlines(), second["text"].splitlines(), fillvalue="(no line)")
    for number, (mine, other) in enumerate(pairs, 1):
        if mine != other:
            at = next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), 0)
            start = max(at - _SHOWN // 2, 0)
            return f"line {number}: {mine[start : start + _SHOWN]!r} and {other[start : start + _SHOWN]!r}"
    for name in ("tokens", "variables"):
        if first[name] != second[name]:
            return f"{name}: {_written(first[name])} and {_written(second[name])}"
    if first["text"] != second["text"]:
        return "the ends of their lines"
    return "their tokenizers"


def refuse_different(folders: Iterable[tuple[str, Mapping[str, Any]]], where: str) -> None:
    """Raise InputError if two folders of tokens are of different chat templates.

    Args:
        folders: name and ``tokenizer_info`` of each; one without a template fits all.
        where: the option, for the message.
    """
    known = [(name, info[KEY]) for name, info in folders if isinstance(info.get(KEY), dict)]
    for name, item in known[1:]:
        first, other = known[0]
        if item["digest"] != other["digest"]:
            raise InputError(
                "rows of two chat templates are not mixed",
                where=where,
                got=f"{other['digest']} of {first}, {item['digest']} of {name}; {differing_line(other, item)}",
                expected="one template, with one set of variables and one tokenizer",
                hint="tokenize all rows with one template",
            )


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)[:_SHOWN]
