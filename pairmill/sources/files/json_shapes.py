"""What is said about a ``.json`` file that is one object where records were looked for."""

from collections.abc import Sequence
from typing import Any, Protocol

from pairmill.errors import InputError
from pairmill.formats.jsonstream import Outline
from pairmill.sources.language.paths import Path

HEAD = 8 << 20
"""Bytes of a file that are looked at."""

_NAMED = 16
_EXPECTED = "an array of records, or one record a line"
_ONE_A_LINE = "write one record a line: jq -c ."


class Expected(Protocol):
    """What a source says of its records: their fields, which of them it takes, and the URI of its description."""

    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def described_in(self) -> str: ...
    def takes(self, record: Any) -> bool: ...


def refuse_one_object(head: bytes, uri: str, source: Expected, *, lenient: bool) -> None:
    """Raise InputError if a file is one object that holds records or columns, or objects of several lines.

    A file of lines is left alone: its first line is a whole value, and others follow it, or it is a record.
    """
    head, size = head.lstrip(), len(head)
    if not head.startswith(b"{") or is_lines(head):
        return
    line = head.partition(b"\n")[0]
    first = Outline(line)
    outline = first if first.end == "end" else Outline(head)
    if outline.end == "broken" or (outline.end == "cut" and size < HEAD):
        return  # each line says what is wrong with it
    names = outline.names
    one_line = outline is first or len(line) == len(head)
    if (one_line or lenient) and set(source.fields) <= set(names) and not _is_columns(outline, source):
        return  # a record, whose end may not have been reached
    if outline.end == "more":
        if lenient:
            return
        raise InputError("an object spans several lines", where=uri, expected=_EXPECTED, hint=_lenient(source))
    raise InputError(
        "the file is one object",
        where=uri,
        got=f"an object with {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}",
        expected=_EXPECTED,
        hint=_hint(outline, source),
    )


def is_lines(head: bytes) -> bool:
    """Return whether the first line of a file is a whole value, and others follow it."""
    line, _, rest = head.lstrip().partition(b"\n")
    return bool(rest.strip()) and Outline(line).end == "end"


def hint_of(head: bytes, source: Expected) -> str:
    """Return what helps with a file that begins like this, and has no records where they were looked for."""
    return _hint(Outline(head), source)


def way_to_records(outline: Outline, fields: Sequence[str] = ()) -> str:
    """Return what ``records:`` has to say of a file that is one object with records in it; empty if it has none.

    Args:
        outline: of the beginning of the file.
        fields: that a record should have.
    """
    lists = {way: count for way, (count, first) in outline.lists.items() if isinstance(first, dict)}
    if lists:
        fit = {way for way in lists if set(fields) <= set(outline.lists[way][1])}
        longest = max(lists, key=lambda way: (way in fit, lists[way]))
        return Path("", longest).up_to(len(longest))
    objects = {way: count for way, (count, inside) in outline.objects.items() if count == inside > 1}
    if objects:
        largest = max(objects, key=lambda way: objects[way])
        return ".".join([*filter(None, [Path("", largest).up_to(len(largest))]), "*"])
    return ""


def _hint(outline: Outline, source: Expected) -> str:
    if way := way_to_records(outline, source.fields):
        return f"write in {source.described_in}: records: {way if way[0] not in '*[' else repr(way)}"
    if _is_columns(outline, source):
        return (
            "each field holds a list, one value a record; write one record a line: python -c 'import json,sys; "
            "d=json.load(sys.stdin); [print(json.dumps(dict(zip(d,r)))) for r in zip(*d.values())]'"
        )
    return _lenient(source) if source.fields and set(source.fields) <= set(outline.names) else _ONE_A_LINE


def _lenient(source: Expected) -> str:
    return f"write in {source.described_in}: json: lenient"


def _is_columns(outline: Outline, source: Expected) -> bool:
    """Return whether the fields of the source are lists of the same length, and none that it takes as a record."""
    lengths = {outline.lists[(name,)][0] if (name,) in outline.lists else 0 for name in source.fields}
    if len(source.fields) < 2 or len(lengths) != 1 or lengths == {0}:
        return False
    record = {name: [outline.lists[(name,)][1]] for name in source.fields}
    return not source.takes(record)
