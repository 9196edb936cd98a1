"""YAML as plain values, without what it can write and nothing can hold."""

import re
from typing import Any, Final

from pairmill.errors import UsageError

# Integers that fit have fewer digits, in any base; of a wrong value as many characters are shown.
_DIGITS: Final = 80
_SHOWN: Final = 40
_DEPTH: Final = 100
# Beginnings of words that are not texts (yes, null, true, off); a number of up to 18 digits.
_MEANT: Final = frozenset("yYnNtTfFoO")
_INTEGER: Final = re.compile("[1-9][0-9_]{0,17}|0")
_UNUSUAL: Final = object()
_HALVES: Final = re.compile("[\ud800-\udfff]")


def yaml_library() -> Any:
    """Return the module ``yaml``; most starts read no YAML, and it is a tenth of one."""
    import yaml

    return yaml


def read_plain(data: bytes, uri: str, *, repeated: bool = True) -> Any:
    """Return what a YAML file says as plain values.

    Args:
        data: of the file.
        uri: of it, for messages.
        repeated: whether a key may occur twice in a mapping; then the last one counts.

    Raises:
        UsageError: it is not YAML, has a value that nothing can hold, or a key occurs twice.
    """
    yaml = yaml_library()
    try:
        # Some installations are without the parser in C, which takes a tenth of the time.
        if not hasattr(yaml, "CSafeLoader"):
            return _construct(yaml.SafeLoader(data), uri, repeated)
        value = _from_events(yaml, yaml.CSafeLoader(data), uri)
        return _construct(yaml.CSafeLoader(data), uri, repeated) if value is _UNUSUAL else value
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError("not valid YAML", where=uri, got=" ".join(str(error).split())) from error


def _construct(loader: Any, uri: str, repeated: bool) -> Any:
    top = loader.get_single_node()
    refuse_unusable(top, uri, repeated=repeated)
    return None if top is None else loader.construct_document(top)


def _from_events(yaml: Any, loader: Any, uri: str) -> Any:
    """Return the document, without the nodes that take nine tenths of the time; ``_UNUSUAL`` if it needs them."""
    unusual, stack = False, list[Any]()
    top: Any = None
    key: tuple[Any, ...] = ()
    documents = 0
    while loader.check_event():
        event = loader.get_event()
        kind = type(event)
        if kind in (yaml.SequenceEndEvent, yaml.MappingEndEvent):
            stack.pop()
            continue
        documents += kind is yaml.DocumentStartEvent
        unusual |= kind is yaml.AliasEvent or documents > 1 or getattr(event, "anchor", None) is not None
        if kind is yaml.ScalarEvent:
            value = _scalar(yaml, loader, event, uri)
        elif kind in (yaml.SequenceStartEvent, yaml.MappingStartEvent):
            value = [] if kind is yaml.SequenceStartEvent else {}
            unusual |= event.tag is not None
        else:
            continue
        # What is unusual is read on, to count its levels: very many overflow the stack of the parser in C.
        above = stack[-1] if stack else None
        if isinstance(above, list):
            above.append(value)
        elif above is None:
            top = value
        elif key:
            unusual |= key[0] in above
            above[key[0]], key = value, ()
        elif kind is yaml.ScalarEvent and value is not _UNUSUAL:
            key = (value,)
        else:
            unusual, key = True, (None,)
        unusual |= value is _UNUSUAL
        if kind is not yaml.ScalarEvent:
            stack.append(value)
            key = ()
            if len(stack) > _DEPTH:
                raise UsageError("not valid YAML", where=uri, got=f"more than {_DEPTH} levels")
    return _UNUSUAL if unusual else top


def _scalar(yaml: Any, loader: Any, event: Any, uri: str) -> Any:
    value = event.value
    if event.tag is not None:
        return _UNUSUAL
    if not event.implicit[0] or (value[:1].isalpha() and value[0] not in _MEANT):
        return value
    if _INTEGER.fullmatch(value):
        return int(value.replace("_", ""))
    tag = loader.resolve(yaml.ScalarNode, value, event.implicit)
    if tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"):
        return _UNUSUAL
    node = yaml.ScalarNode(tag, value, event.start_mark, event.end_mark)
    refuse_unusable(node, uri)
    return loader.construct_object(node)


def refuse_unusable(node: Any, uri: str, *, repeated: bool = True) -> None:
    """Refuse what YAML can write and nothing can hold: half of a surrogate pair, or an integer of 80 digits.

    Args:
        node: the composed file, or a part of it.
        uri: of the file, for messages.
        repeated: whether a key may occur twice in a mapping.

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
            names = set[str]()
            for key in () if repeated else (key for key, _ in node.value if key.id == "scalar"):
                if key.value in names:
                    where = f"{uri} line {key.start_mark.line + 1}"
                    raise UsageError("the key occurs twice", where=where, got=key.value, hint="leave one of them out")
                names.add(key.value)
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
