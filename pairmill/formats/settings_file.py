"""A YAML file read into nested dataclasses, strictly: every mistake is a UsageError with the line that it is on.

Keys are the names of fields; of a field whose name is a word of Python's (``in_``) the key lacks the underscore. What
the file leaves out has the default of its field. A class checks its own values (:mod:`pairmill.fields`): it raises a
UsageError whose ``where`` is the key, to which file and line are added here.

:func:`render` writes settings as such a file; the help of a field is its comment.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import textwrap
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pairmill import storage
from pairmill.errors import UsageError, did_you_mean
from pairmill.fields import Checked, default_value, key_of
from pairmill.plain_yaml import refuse_unusable, yaml_library

T = TypeVar("T")

DEFAULT: Final = "default"
"""In place of a file's name: the built-in defaults, which the files in ``configs/`` spell out."""
_MAX_BYTES = 1 << 22
"""A policy of 16,000 clauses has 2.3 MB. Of each MB the nodes take 80."""
_COMMENT_COLUMN = 44
_WIDTH = 120
_TEXT = "tag:yaml.org,2002:str"
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+")
_hints_of = cache(get_type_hints)
_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


class SettingsFile:
    """A YAML file, composed and not interpreted yet.

    Args:
        uri: of the file, for messages.
        data: its content.
        list_key: the key of what a list at the top may be meant as; empty = none.

    Raises:
        UsageError: it is not YAML, or not a mapping.
    """

    def __init__(self, uri: str, data: bytes, list_key: str = "") -> None:
        yaml = yaml_library()
        self.uri = uri
        try:
            self._loader = yaml.SafeLoader(data)
            top = self._loader.get_single_node()
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f" line {mark.line + 1}" if mark else ""
            reason = getattr(error, "problem", None) or " ".join(str(error).split())
            raise UsageError("not valid YAML", where=f"{uri}{place}", got=reason) from error
        refuse_unusable(top, uri)
        self.top = Part(self, top, ()) if top is not None else None
        if list_key and isinstance(top, yaml.SequenceNode):
            what, expected = f"the {list_key} are not below their key", f"keys, of which {list_key}: has the list"
            hint = f"write the line {list_key}: before the first item"
            raise Part(self, top, ()).wrong(what, expected=expected, hint=hint)
        if self.top is not None:
            self.top.entries()

    @classmethod
    def load(cls, place: str, option: str, list_key: str = "") -> SettingsFile:
        """Read a file; that of DEFAULT is empty. Raises UsageError if it does not exist or is too large."""
        if place in ("", DEFAULT):
            return cls(option, b"", list_key)
        uri = storage.normalise(place, option)
        store = storage.store_for(uri)
        if not store.exists(uri):
            raise UsageError("the file does not exist", where=f"{option}={uri}", hint="check the path")
        size = store.size(uri)
        if size > _MAX_BYTES:
            hint = "is it the file that was meant? One glob is for many names"
            expected = f"at most {_MAX_BYTES:,} bytes"
            raise UsageError("the file is too large", where=uri, got=f"{size:,} bytes", expected=expected, hint=hint)
        return cls(uri, store.read(uri), list_key)

    def override(self, overrides: Sequence[str], option: str) -> None:
        """Put values over those of the file, the last one of a key over those before it.

        Args:
            overrides: such as ``optimizer.lr=0.001``; what is after the first = is YAML, and 1e-3 is a number.
            option: the one that they came by, for messages.

        Raises:
            UsageError: one is not ``key=value`` or not YAML, or goes into a value that is not a mapping.
        """
        yaml = yaml_library()
        for text in _rejoined(overrides):
            name, equals, value = text.partition("=")
            where = f"{option}={text}"
            keys = name.strip().split(".")
            if not equals or not all(keys):
                expected = "key=value, such as optimizer.lr=0.001"
                raise UsageError("not an override", where=option, got=repr(text), expected=expected)
            try:
                loader = yaml.SafeLoader(value)
                loader.name = where
                node = loader.get_single_node()
            except yaml.YAMLError as error:
                raise UsageError("not valid YAML", where=where, got=getattr(error, "problem", None) or "") from error
            refuse_unusable(node, where)
            mark = yaml.Mark(where, 0, 0, 0, None, 0)
            if node is None:
                node = yaml.ScalarNode("tag:yaml.org,2002:null", "", mark, mark)
            for key in reversed(keys):
                node = yaml.MappingNode(
                    "tag:yaml.org,2002:map", [(yaml.ScalarNode(_TEXT, key, mark, mark), node)], mark, mark
                )
            if self.top is None:
                self.top = Part(self, node, ())
            else:
                _merge(self.top, node)
            Part(self, node, ()).entries()

    def onto(self, base: T, leave: Collection[str] = ()) -> T:
        """Return settings with what the file says in place of theirs; keys in ``leave`` are allowed and not read."""
        settings: T = base if self.top is None else self.top.onto(base, leave=leave)
        return settings

    def _place(self, node: Any, named: str) -> str:
        mark = node.start_mark
        # The mark of an override has the name of it; that of the file the one that YAML gives bytes.
        return mark.name if "=" in mark.name else f"{self.uri} line {mark.line + 1}{named}"

    def items(self, key: str) -> list[Part]:
        """Return the parts of a list at the top; none if the key is absent."""
        entry = self.top.entries().get(key) if self.top is not None else None
        return [] if entry is None or entry.is_null() else entry.items()


class Part(NamedTuple):
    """A value of the file, and where it is."""

    file: SettingsFile
    node: Any
    path: tuple[str, ...]

    @property
    def where(self) -> str:
        """File, line and key, for messages; of an override what was written."""
        named = f", {'.'.join(self.path)}" if self.path else ""
        return self.file._place(self.node, named)

    def is_null(self) -> bool:
        """Tell whether nothing is written after the key."""
        return bool(self.node.tag == "tag:yaml.org,2002:null")

    def is_scalar(self) -> bool:
        """Tell whether it is a single value, neither a list nor a mapping."""
        return bool(self.node.id == "scalar")

    def locate(self, path: str) -> str:
        """Return where a value below is, or would be, such as ``rules[2].name``."""
        if self.node.id == "mapping":
            for key, part in self.entries().items():
                if path == key or path.startswith((f"{key}.", f"{key}[")):
                    return part.locate(path[len(key) :].removeprefix("."))
        match = re.match(r"\[(\d+)\]\.?", path)
        if match and self.node.id == "sequence" and int(match[1]) <= len(self.node.value):
            return self.items()[int(match[1]) - 1].locate(path[match.end() :])
        return f"{self.where}{'.' if self.path else ', '}{path}" if path and path[0] != "[" else self.where + path

    def entries(self) -> dict[str, Part]:
        """Return the values of a mapping by key. Raises UsageError if it is none, or a key occurs twice."""
        if self.node.id != "mapping":
            raise self.wrong("not a mapping", expected="key: value")
        parts: dict[str, Part] = {}
        for key, value in self.node.value:
            # `in`, `on` and `off` are keys too: what is written counts.
            name = str(key.value) if key.id == "scalar" else "…"
            part = Part(self.file, value, (*self.path, name))
            if name in parts:
                line = key.start_mark.line + 1
                raise UsageError("the key occurs twice", where=f"{self.file.uri} line {line}, {'.'.join(part.path)}")
            parts[name] = part
        return parts

    def items(self) -> list[Part]:
        """Return the values of a list. Raises UsageError if it is none."""
        if self.node.id != "sequence":
            raise self.wrong("not a list", expected="a list, such as [a, b]")
        *above, name = self.path or ("",)
        return [Part(self.file, node, (*above, f"{name}[{number + 1}]")) for number, node in enumerate(self.node.value)]

    def plain(self) -> Any:
        """Return the value as YAML reads it."""
        yaml = yaml_library()
        try:
            return self.file._loader.construct_document(self.node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.wrong("not valid YAML", expected="a plain value") from error

    def wrong(self, what: str, *, got: str = "", expected: str = "", hint: str = "") -> UsageError:
        """Make the error to raise for this value."""
        if not got and self.node.id == "scalar":
            got = repr(self.node.value)
        elif not got:
            got = "a list" if self.node.id == "sequence" else "a mapping"
        return UsageError(what, where=self.where, got=got, expected=expected, hint=hint)

    def onto(self, base: Any, *, only: Collection[str] | None = None, leave: Collection[str] = ()) -> Any:
        """Read a mapping as a dataclass.

        Args:
            base: the class, or an object of it whose values stay where the mapping has no key; so do theirs that are
                dataclasses. Nothing after the key of such a value leaves it.
            only: the keys that are allowed; None = all of the class.
            leave: further keys that are allowed and not read.

        Raises:
            UsageError: an unknown key, a wrong type, a missing key, or what the class refuses.
        """
        kind = base if isinstance(base, type) else type(base)
        hints = _hints_of(kind)
        fields = {key_of(item): item for item in dataclasses.fields(kind) if item.init}
        known = [key for key in fields if (only is None or key in only)]
        values: dict[str, Any] = {}
        entries = self.entries()
        for key, part in entries.items():
            if key in leave:
                continue
            if key not in known:
                within = f", in {'.'.join(self.path)}" if self.path else ""
                line = self.file._place(part._key(self), within)
                hint = did_you_mean(key, known)
                if key in fields:
                    hint = "this one is the same for all rows: write it at the top"
                raise UsageError(f"unknown key {key!r}", where=line, expected=", ".join(known), hint=hint)
            name = fields[key].name
            below = default_value(fields[key]) if isinstance(base, type) else getattr(base, name)
            if dataclasses.is_dataclass(below) and (part.is_null() or not part.is_scalar()):
                values[name] = below if part.is_null() else part.onto(below)
            else:
                values[name] = part.as_type(hints[name])
        required = [key for key, item in fields.items() if default_value(item) is MISSING and item.name not in values]
        if isinstance(base, type) and required:
            raise UsageError("required key missing", where=self.where, got=", ".join(entries), expected=required[0])
        try:
            return kind(**values) if isinstance(base, type) else dataclasses.replace(base, **values)
        except UsageError as error:
            raise error.moved(self.locate(error.where)) from error

    def as_type(self, kind: Any) -> Any:
        """Read the value as this type: a dataclass, text, number, Literal, list, tuple, dict or one of these or None.

        Of a dataclass with a field ``mode`` the mode alone may be given: ``near: off``.
        """
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any:
            return self.plain()
        if origin in (Union, types.UnionType):
            if self.is_null():
                if type(None) in arguments:
                    return None
                raise self.wrong("is empty", expected=describe(kind))
            return self._one_of([argument for argument in arguments if argument is not type(None)])
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            mode = _hints_of(kind).get("mode")
            if mode is not None and self.is_scalar() and not self.is_null():
                made: Any = kind
                return made(mode=self.as_type(mode))
            return self.onto(kind)
        if origin is list or origin is tuple:
            made = [item.as_type(arguments[0]) for item in self.items()]
            return made if origin is list else tuple(made)
        if origin is dict:
            return {key: part.as_type(arguments[1]) for key, part in self.entries().items()}
        return self._scalar(kind)

    def _one_of(self, kinds: Sequence[Any]) -> Any:
        if len(kinds) == 1:
            return self.as_type(kinds[0])
        for kind in kinds:
            lists = get_origin(kind) in (list, tuple)
            mapping = dataclasses.is_dataclass(kind) or get_origin(kind) is dict
            if (self.node.id == "sequence") == lists and (self.node.id == "mapping") == mapping:
                try:
                    return self.as_type(kind)
                except UsageError:
                    if kind is kinds[-1] or lists or mapping:
                        raise
        raise self.wrong("not a valid value", expected=" or ".join(describe(kind) for kind in kinds))

    def _scalar(self, kind: Any) -> Any:
        if self.node.id != "scalar":
            raise self.wrong("not a valid value", expected=describe(kind))
        value = self.plain()
        if get_origin(kind) is Literal:
            allowed = get_args(kind)
            if value is False and "off" in allowed:  # YAML 1.1 reads off as false
                value = "off"
            # True is 1, and a key like `on` must not pass as a number.
            if value in allowed and not isinstance(value, bool):
                return value
            hint = did_you_mean(str(self.node.value), [str(choice) for choice in allowed])
            raise self.wrong("unknown value", expected=describe(kind), hint=hint)
        # YAML 1.1 takes 1e-9 as text; 1.2, and people who write it, as a number.
        if kind is float and isinstance(value, str) and self.node.style is None and _EXPONENT.fullmatch(value):
            value = float(value)
        right = {
            bool: isinstance(value, bool),
            int: isinstance(value, int) and not isinstance(value, bool),
            float: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
            str: isinstance(value, str),
        }
        if kind not in right:
            raise TypeError(f"settings cannot be of type {kind}")
        if kind is int and right[int] and abs(value) >= 1 << 63:
            raise self.wrong("out of range", expected="an integer below 2^63")
        if not right[kind]:
            hint = "put it in quotes" if kind is str and not self.is_null() else ""
            raise self.wrong("not a valid value", expected=describe(kind), hint=hint)
        return float(value) if kind is float else value

    def _key(self, above: Part) -> Any:
        return next((key for key, value in above.node.value if value is self.node), self.node)


def _rejoined(texts: Sequence[str]) -> list[str]:
    """Put together again what was split at the commas of a list or mapping."""
    joined: list[str] = []
    for text in texts:
        before = joined[-1] if joined else ""
        if sum(map(before.count, "[{")) > sum(map(before.count, "]}")):
            joined[-1] += f",{text}"
        else:
            joined.append(text)
    return joined


def _merge(below: Part, node: Any) -> None:
    """Put a mapping over another one, in place."""
    entries = below.entries()
    for key, value in node.value:
        old = entries.get(key.value)
        if old is not None and isinstance(value, type(node)) and value.value and not old.is_null():
            _merge(old, value)
            continue
        below.node.value = [pair for pair in below.node.value if pair[0].value != key.value] + [(key, value)]


def _number(value: float) -> str:
    """Write a number as YAML 1.1 reads one: it takes 1e-06 as text."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def describe(kind: Any) -> str:
    """Describe what a type takes, for messages."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("nothing" if argument is type(None) else describe(argument) for argument in arguments)
    if origin is Literal:
        words = [str(argument) for argument in arguments if argument != ""]
        return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    if origin in (list, tuple):
        return "a list"
    if origin is dict or dataclasses.is_dataclass(kind):
        return "a mapping"
    return _NAMES.get(kind, str(kind))


def to_json(value: Any) -> Any:
    """Return settings as JSON-like values, keys as the file has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            key_of(item): to_json(getattr(value, item.name))
            for item in dataclasses.fields(value)
            if not item.name.startswith("_")
        }
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return value


def render(settings: Any, head: str) -> str:
    """Write a file that has these settings, the help of each field beside or above it.

    Args:
        settings: an object of a dataclass.
        head: the comment at the top, in lines.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()] + [""]
    _render(settings, 0, lines)
    return "\n".join(lines) + "\n"


def _render(settings: Any, depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    for item in dataclasses.fields(settings):
        if item.name.startswith("_") or not item.init:
            continue
        name, value, text = key_of(item), getattr(settings, item.name), item.metadata.get("help", "")
        if dataclasses.is_dataclass(value):
            if depth == 0 and lines[-1]:
                lines.append("")
            lines.append(_beside(f"{indent}{name}:", text, indent, lines))
            _render(value, depth + 1, lines)
            if depth == 0:
                lines.append("")
        else:
            lines.append(_beside(f"{indent}{name}: {flow(value)}".rstrip(), text, indent, lines))


def _beside(text: str, comment: str, indent: str, lines: list[str]) -> str:
    joined = f"{text:<{_COMMENT_COLUMN}}  # {comment}" if comment else text
    if len(joined) <= _WIDTH:
        return joined
    lines += [f"{indent}# {line}" for line in textwrap.wrap(comment, _WIDTH - len(indent) - 2)]
    return text


def flow(value: Any) -> str:
    """Write a value on one line of YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = value.replace("_", "").replace("-", "").replace(".", "")
        bare = (
            plain.isalnum() and not value[0].isdigit() and value.lower() not in {"null", "true", "false", "yes", "no"}
        )
        return value if bare else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = to_json(value)
    return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"


class FileSettings(Checked):
    """Settings that a file of their own has: a dataclass whose fields all have defaults.

    Attributes:
        OPTION: the option that names the file, such as ``mix_config``; it is shipped as ``configs/<option>.yaml``.
        HEAD: the comment at its top.
    """

    OPTION: ClassVar[str]
    HEAD: ClassVar[str]

    @classmethod
    def load(cls, place: str = DEFAULT, overrides: Sequence[str] = (), *, option: str = "", by: str = "set") -> Self:
        """Read the file at a path or URI; DEFAULT stands for the built-in defaults.

        Args:
            place: of the file.
            overrides: settings in its place, such as ``optimizer.lr=0.001``.
            option: the one that names the file, for messages.
            by: the one that the overrides came by, for messages.

        Raises:
            UsageError: with the line of the first mistake.
        """
        file = SettingsFile.load(place, option or cls.OPTION)
        file.override(overrides, by)
        return cls.from_file(file)

    @classmethod
    def parse(cls, text: str = "", overrides: Sequence[str] = (), where: str = "") -> Self:
        """Read a text as a file; ``where`` is its name in messages."""
        file = SettingsFile(where or f"{cls.OPTION}.yaml", text.encode())
        file.override(overrides, "set")
        return cls.from_file(file)

    @classmethod
    def from_file(cls, file: SettingsFile) -> Self:
        """Read an open file."""
        return file.onto(cls())

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like values, for the manifest: what results follow from."""
        values: dict[str, Any] = to_json(self)
        return values

    @classmethod
    def default_file(cls) -> str:
        """Write the file as it is shipped, which has the defaults."""
        return render(cls(), cls.HEAD)


def differences(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the settings whose values differ from another's, by dotted name: the other's value, and the one here.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    {'a.c': [3, 2]}
    """
    mine, theirs = flat(settings), flat(other)
    names = dict.fromkeys([*mine, *theirs])
    return {name: [theirs.get(name), mine.get(name)] for name in names if mine.get(name) != theirs.get(name)}


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings by dotted name."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        values |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) and value else {f"{above}{name}": value}
    return values
