"""YAML as plain values, without what it can write and nothing can hold."""

from __future__ import annotations

import re
from typing import Any, Final

from pairmill.errors import UsageError

# Integers that fit have fewer digits, in any base; of a wrong value as many characters are shown.
_DIGITS: Final = 80
_SHOWN: Final = 40
_DEPTH: Final = 100
_HALVES: Final = re.compile("[\ud800-\udfff]")


def read_plain(data: bytes, uri: str) -> Any:
    """Return what a YAML file says as plain values; of a key that occurs twice in a mapping the last counts.

    Raises:
        UsageError: it is not YAML, or has a value that nothing can hold.
    """
    import yaml

    # The parser in C takes a tenth of the time; some installations are without it.
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for item in yaml.parse(data, kind):
            depth += isinstance(item, yaml.CollectionStartEvent) - isinstance(item, yaml.CollectionEndEvent)
            if depth > _DEPTH:  # that in C would overflow its stack, which ends the process
                raise UsageError("not valid YAML", where=uri, got=f"more than {_DEPTH} levels")
        loader = kind(data)
        top = loader.get_single_node()
        if top is None:
            return None
        refuse_unusable(top, uri)
        return loader.construct_document(top)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError("not valid YAML", where=uri, got=" ".join(str(error).split())) from error


def refuse_unusable(node: Any, uri: str) -> None:
    """Refuse what YAML can write and nothing can hold: half of a surrogate pair, or an integer of 80 digits.

    Args:
        node: the composed file, or a part of it.
        uri: of the file, for messages.

    Raises:
        UsageError: there is one, in a key or a value.
    """
    seen, left = set[int](), [node]
    while left:
        node = left.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "mapping":
            left += [part for pair in reversed(node.value) for part in reversed(pair)]
        elif node.id == "sequence":
            left += reversed(node.value)
        else:
            wrong = _unusable(node)
            if wrong:
                mark = node.start_mark
                where = mark.name if "=" in mark.name else f"{uri} line {mark.line + 1}"
                got = repr(node.value[:_SHOWN]) + ("…" if len(node.value) > _SHOWN else "")
                raise UsageError("not a valid value", where=where, got=got, expected=wrong)


def _unusable(node: Any) -> str:
    """Return what is expected in place of a scalar; empty if it is a text or number like any other."""
    if _HALVES.search(node.value):
        return r"text in Unicode: \ud800 to \udfff are halves of characters"
    number = node.tag == "tag:yaml.org,2002:int" and len(node.value) > _DIGITS
    return "an integer below 2^63" if number else ""
