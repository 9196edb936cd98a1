"""Streams JSON values from a file of any size: JSON Lines, concatenated JSON, or one array.

Memory follows the longest value, not the file. Python's ``json`` parses; this module feeds it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

from pairmill import storage
from pairmill.errors import InputError
from pairmill.formats import limits
from pairmill.formats.limits import RECORD_BYTES

_CHUNK = 1 << 20
_NEAR = 16
_NOT_SPACE = re.compile(r"[^ \t\n\r]")


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs in written order, with duplicates."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder()


class _Text:
    """A file as text, read in chunks; ``place`` is the position in ``buffer``."""

    def __init__(
        self, uri: str, decoder: json.JSONDecoder, start: int, longest: int, file: BinaryIO | None = None
    ) -> None:
        self._uri = uri
        self._longest = longest
        self._decoder = decoder
        self._buffer = ""
        self._place = 0
        self._line = 1
        self._ended = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._file = file or storage.store_for(uri).open(uri)
        self._file.seek(0)
        while start:
            passed = self._file.read(min(start, _CHUNK))
            self._line += passed.count(b"\n")
            start = start - len(passed) if passed else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def peek(self) -> str:
        """The next character that is not white space, without taking it; empty at the end of the file."""
        while True:
            found = _NOT_SPACE.search(self._buffer, self._place)
            if found:
                self._place = found.start()
                return found.group()
            self._place = len(self._buffer)
            if self._ended:
                return ""
            self._more()

    def take(self) -> None:
        """Take the character that ``peek`` returned."""
        self._place += 1

    def value(self, number: int) -> Any:
        """Parse the value at the character that ``peek`` returned; ``number`` is its row, from 0."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._place)
            except json.JSONDecodeError as error:
                # An error near the end of the buffer may mean that the value continues in the next chunk: no literal or
                # escape is longer than _NEAR, and a string is "unterminated" wherever it starts.
                near = len(self._buffer) - error.pos < _NEAR or error.msg.startswith("Unterminated string")
                if near and not self._ended:
                    self._grow(number)
                    continue
                raise self.error(error.msg, number, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.error(str(error), number, self._place) from error
            if end == len(self._buffer) and not self._ended:
                self._grow(number)  # a number may continue
                continue
            if end - self._place > self._longest // 4:
                self._refuse_long(number, end)
            self._place = end
            return value

    def _grow(self, number: int) -> None:
        """Read more of a value."""
        if len(self._buffer) - self._place > self._longest:
            self._refuse_long(number, len(self._buffer))
        self._more()

    def _refuse_long(self, number: int, end: int) -> None:
        # In pieces: encoding all of it would double the memory.
        size = 0
        for start in range(self._place, end, _CHUNK):
            size += len(self._buffer[start : min(end, start + _CHUNK)].encode())
        if size > self._longest:
            raise limits.too_long(self._where(number, self._place), self._longest)

    def _where(self, number: int, place: int) -> str:
        line = self._line + self._buffer.count("\n", 0, place)
        return f"{self._uri} row {number + 1} (line {line})"

    def error(self, got: str, number: int, place: int | None = None) -> InputError:
        """The error for row ``number``, from 0."""
        return InputError("not valid JSON", where=self._where(number, self._place if place is None else place), got=got)

    def _more(self) -> None:
        # Twice as much each time, because a value is parsed from its start again; but not far beyond the limit.
        held = len(self._buffer) - self._place
        raw = self._file.read(max(_CHUNK, min(held, self._longest + 1 - held)))
        self._line += self._buffer.count("\n", 0, self._place)
        self._buffer = self._buffer[self._place :]
        self._place = 0
        self._ended = not raw
        try:
            self._buffer += self._utf8.decode(raw, final=self._ended)
        except UnicodeDecodeError as error:
            bad: bytes = error.object
            line = self._line + self._buffer.count("\n") + bad.count(b"\n", 0, error.start)
            got = repr(bad[error.start : error.end])
            raise InputError("not valid UTF-8", where=f"{self._uri} line {line}", got=got) from error


def objects(
    uri: str, start: int = 0, number: int = 0, longest: int = RECORD_BYTES, file: BinaryIO | None = None
) -> Iterator[Any]:
    """Yield JSON values that follow each other with any white space, or none; objects are :class:`Pairs`.

    Args:
        uri: the file.
        start: position of the first byte to read.
        number: number of the values before it.
        longest: maximum bytes of a value.
        file: a reader of the file, if it is open; it is closed.

    Raises:
        InputError: with row and line, both from 1: malformed JSON, NaN or Infinity, not UTF-8, or too long a value.
    """
    with _Text(uri, _STRICT, start, longest, file) as text:
        while text.peek():
            yield text.value(number)
            number += 1


def array(uri: str, longest: int = RECORD_BYTES, file: BinaryIO | None = None) -> Iterator[Any]:
    """Yield the elements of a file that is one JSON array; objects are dicts, NaN and Infinity are accepted.

    Of a duplicate key the last value is kept, as in the reference. ``file`` is a reader of it, if it is open; it is
    closed.

    Raises:
        InputError: with element and line, both from 1: malformed JSON, not an array, not UTF-8, or an element of more
            than ``longest`` bytes.
    """
    with _Text(uri, _LENIENT, 0, longest, file) as text:
        if text.peek() != "[":
            raise text.error(f"{text.peek()!r} instead of '['", 0)
        text.take()
        number = 0
        while text.peek() != "]" or number:
            if number:
                after = text.peek()
                if after == "]":
                    break
                if after != ",":
                    raise text.error(f"{after!r} instead of ',' or ']'", number)
                text.take()
            if not text.peek():
                raise text.error("the array does not end", number)
            yield text.value(number)
            number += 1
        text.take()
        if text.peek():
            raise text.error("text after the end of the array", number)


def is_array(file: BinaryIO) -> bool:
    """Whether a JSON file is an array, by its first character; leaves the file at its start."""
    first = file.read(1 << 16).lstrip()[:1]
    file.seek(0)
    return first == b"["


def lines(uri: str) -> Iterator[tuple[int, bytes]]:
    """Yield the stripped, non-empty lines of a file with their numbers, from 1."""
    with storage.store_for(uri).open(uri) as file:
        for number, line in enumerate(file, 1):
            stripped = line.strip()
            if stripped:
                yield number, stripped
