"""Literals and calls as Python writes them, read without Python: each version of it reads the same, and none is run."""

import re
from typing import Any, NamedTuple

_MAX_DEPTH = 64
_MAX_DIGITS = 300
_TEXT = re.compile(
    r"'''((?:[^\\]|\\.)*?)'''|\"\"\"((?:[^\\]|\\.)*?)\"\"\"|'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"", re.DOTALL
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_SPACE = re.compile(r"\s*")
_CONSTANTS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "b": "\b", "f": "\f", "0": "\0"}


class PythonCall(NamedTuple):
    """A call as it is written: its name, what it gives by position, and what by name."""

    name: str
    values: list[Any]
    arguments: dict[str, Any]


def parse_literal(text: str) -> Any:
    """Return the value of a literal: texts, numbers, booleans, None, lists, tuples (as lists) and dicts of them.

    Raises:
        ValueError: the text is anything else.
    """
    reader = _Reader(text)
    value = reader.value()
    reader.expect_end()
    return value


def parse_calls(text: str) -> list[PythonCall]:
    """Return the calls ``name(a=1)`` that a text consists of: one a line, or in a list.

    Raises:
        ValueError: the text is anything else, or has no call.
    """
    return _Reader(text).calls()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def calls(self) -> list[PythonCall]:
        listed = self._taken("[")
        calls = [self._call()]
        while True:
            self._taken(",") or self._taken(";")
            if listed and self._taken("]"):
                break
            if not listed and self._peek() == "":
                break
            calls.append(self._call())
        self.expect_end()
        return calls

    def expect_end(self) -> None:
        if self._peek():
            raise ValueError(f"more at character {self._at}")

    def value(self, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        sign = self._peek()
        if sign in "[(" and sign:
            return self._list("]" if sign == "[" else ")", depth)
        if sign == "{":
            return self._dict(depth)
        if match := _TEXT.match(self._text, self._at):
            self._at = match.end()
            return _ESCAPE.sub(_unescaped, match[match.lastindex or 0])
        if match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
            if len(match[0]) > _MAX_DIGITS:
                raise ValueError("too long a number")
            return int(match[0]) if re.fullmatch(r"[+-]?[0-9]+", match[0]) else float(match[0])
        if (match := _WORD.match(self._text, self._at)) and match[0] in _CONSTANTS:
            self._at = match.end()
            return _CONSTANTS[match[0]]
        raise ValueError(f"no literal at character {self._at}")

    def _call(self) -> PythonCall:
        self._peek()
        name = _WORD.match(self._text, self._at)
        if name is None:
            raise ValueError(f"no call at character {self._at}")
        self._at = name.end()
        self._take("(")
        call = PythonCall(name[0], [], {})
        while not self._taken(")"):
            self._peek()
            key = _WORD.match(self._text, self._at)
            after = _SPACE.match(self._text, key.end() if key else self._at)
            end = after.end() if after else self._at
            if key is not None and self._text[end : end + 1] == "=":
                self._at = end + 1
                if key[0] in call.arguments:
                    raise ValueError(f"{key[0]} twice")
                call.arguments[key[0]] = self.value()
            elif call.arguments:
                raise ValueError("a value by position after one by name")
            else:
                call.values.append(self.value())
            if self._peek() != ")":
                self._take(",")
        return call

    def _list(self, end: str, depth: int) -> list[Any]:
        self._at += 1
        values: list[Any] = []
        while not self._taken(end):
            values.append(self.value(depth + 1))
            if self._peek() != end:
                self._take(",")
        return values

    def _dict(self, depth: int) -> dict[str, Any]:
        self._at += 1
        values: dict[str, Any] = {}
        while not self._taken("}"):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise ValueError("a key that is not a text")
            self._take(":")
            values[key] = self.value(depth + 1)
            if self._peek() != "}":
                self._take(",")
        return values

    def _peek(self) -> str:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _taken(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _take(self, sign: str) -> None:
        if not self._taken(sign):
            raise ValueError(f"no {sign} at character {self._at}")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        number = int(code, 16)
        if number > 0x10FFFF:
            raise ValueError("no such character")
        return chr(number)
    return _ESCAPED.get(match[4], match[0])
