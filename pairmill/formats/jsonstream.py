"""JSON values one after another from a file of any size: JSON Lines, concatenated JSON, or one array of values.

Memory follows the longest value, not the file. Parsing is Python's own ``json``; this module finds where a value ends.
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
    """A JSON object as its pairs in written order, duplicates included."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder()


class _Text:
    """A file as text, read in chunks; ``place`` is where reading stands in ``buffer``."""

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
        """The next character that is no white space, not yet taken; empty at the end of the file."""
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
        """Pass over the character that ``peek`` showed."""
        self._place += 1

    def value(self, number: int) -> Any:
        """Parse the value that begins at the character that ``peek`` showed; ``number`` is its row, from 0."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._place)
            except json.JSONDecodeError as error:
                # An error near the end of the buffer may come of a value that goes on in the next chunk: no literal
                # or escape is longer than that, and a string is called unterminated wherever it began.
                near = len(self._buffer) - error.pos < _NEAR or error.msg.startswith("Unterminated string")
                if near and not self._ended:
                    self._grow(number)
                    continue
                raise self.error(error.msg, number, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.error(str(error), number, self._place) from error
            if end == len(self._buffer) and not self._ended:
                self._grow(number)  # a number may have more digits
                continue
            if end - self._place > self._longest // 4:
                self._refuse_long(number, end)
            self._place = end
            return value

    def _grow(self, number: int) -> None:
        """Read on within a value."""
        if len(self._buffer) - self._place > self._longest:
            self._refuse_long(number, len(self._buffer))
        self._more()

    def _refuse_long(self, number: int, end: int) -> None:
        # A piece at a time: its bytes are as many again.
        size = 0
        for start in range(self._place, end, _CHUNK):
            size += len(self._buffer[start : min(end, start + _CHUNK)].encode())
        if size > self._longest:
            raise limits.too_long(self._where(number, self._place), self._longest)

    def _where(self, number: int, place: int) -> str:
        line = self._line + self._buffer.count("\n", 0, place)
        return f"{self._uri} row {number + 1} (line {line})"

    def error(self, got: str, number: int, place: int | None = None) -> InputError:
        """What to raise for the row ``number``, from 0."""
        return InputError(
            "is not valid JSON", where=self._where(number, self._place if place is None else place), got=got
        )

    def _more(self) -> None:
        # Twice as much each time, since a value is parsed from its beginning again, but not far beyond the limit.
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
            raise InputError("is not UTF-8", where=f"{self._uri} line {line}", got=got) from error


def objects(
    uri: str, start: int = 0, number: int = 0, longest: int = RECORD_BYTES, file: BinaryIO | None = None
) -> Iterator[Any]:
    """Values of a stream of JSON values with any white space, or none, between them; objects come as :class:`Pairs`.

    Args:
        uri: the file.
        start: byte at which to begin.
        number: how many values stand before it.
        longest: bytes of the longest value.
        file: a reader of the file, where it is open; it is closed.

    Raises:
        InputError: with row and line, both from 1: malformed JSON, NaN or Infinity, no UTF-8, or a value that is too
            long.
    """
    with _Text(uri, _STRICT, start, longest, file) as text:
        while text.peek():
            yield text.value(number)
            number += 1


def array(uri: str, longest: int = RECORD_BYTES, file: BinaryIO | None = None) -> Iterator[Any]:
    """Elements of a file that is one JSON array; objects come as dicts, NaN and Infinity are taken.

    Of a key that is there twice the last value is taken, as the reference does. ``file`` is a reader of it, where it
    is open; it is closed.

    Raises:
        InputError: with element and line, both from 1: malformed JSON, no array, no UTF-8, or an element of more than
            ``longest`` bytes.
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
                raise text.error("the array has no end", number)
            yield text.value(number)
            number += 1
        text.take()
        if text.peek():
            raise text.error("text after the end of the array", number)


def is_array(file: BinaryIO) -> bool:
    """Whether the first character of a JSON file opens an array; the file is read from its first byte on afterwards."""
    first = file.read(1 << 16).lstrip()[:1]
    file.seek(0)
    return first == b"["


def lines(uri: str) -> Iterator[tuple[int, bytes]]:
    """Lines of a file with their 1-based numbers, without white space around them, empty ones left out."""
    with storage.store_for(uri).open(uri) as file:
        for number, line in enumerate(file, 1):
            stripped = line.strip()
            if stripped:
                yield number, stripped
