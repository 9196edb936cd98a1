"""Streams JSON values from a file of any size: JSON Lines, concatenated JSON, one array, or a list within an object.

Memory follows the longest value, not the file. Python's ``json`` parses; this module feeds it.
"""

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, Self

from pairmill import storage
from pairmill.errors import InputError
from pairmill.formats import limits
from pairmill.formats.limits import RECORD_BYTES

_CHUNK = 1 << 20
_NEAR = 16
# Objects within objects that are walked through; deeper ones are parsed as a whole.
_LEVELS = 64
# Of an outline: levels, keys of the file's object, and those of an object that are looked into or shown.
_DEPTH, _KEYS, _SHOWN = 4, 1000, 16
_NOT_SPACE, _NOT_PADDING = re.compile(r"[^ \t\n\r]"), re.compile(r"[^ \t\n\r\0]")
_CONTROLS, _ODD = re.compile(r"[\x00-\x1f]"), bytes(code for code in range(32) if code not in b"\r\n")
_UNDECODED = re.compile("[\udc80-\udcff]")
_SIGNS, _IN_TEXT = re.compile(r'["{}\[\],]'), re.compile(r'["\\]')


CONTROL = "Invalid control character"
"""How Python's message of a raw control character within a text begins."""
LONG = object()
"""What stands for a value that is longer than it may be, where such values are passed over."""


BROKEN, NOT_UTF8 = object(), object()
"""Placeholders of mended text: for what is not an object, and for an object with bytes that are not UTF-8."""
SPLIT, CONTROLS, PADDING = "json_over_several_lines", "json_control_characters", "json_nul_padding"
"""Faults that are mended: an object over several lines, raw control characters within its texts, NULs around it."""


class Mended(dict[str, Any]):
    """A JSON object, and how often each fault was mended in it and before it."""

    def __init__(self, value: Mapping[str, Any], mended: Mapping[str, int]) -> None:
        super().__init__(value)
        self.mended = dict(mended)


class NotThere(InputError):
    """A file has nothing, or something else, where a list or an object was looked for."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs in written order, with duplicates."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse_constant)
_LENIENT, _TOLERANT = json.JSONDecoder(), json.JSONDecoder(strict=False)


class _Text:
    """A file as text, read in chunks; ``place`` is the position in ``buffer``."""

    def __init__(
        self,
        uri: str,
        decoder: json.JSONDecoder,
        start: int,
        longest: int,
        file: BinaryIO | None = None,
        *,
        aside: bool = False,
        mended: Counter[str] | None = None,
        undecoded: str = "strict",
    ) -> None:
        self.uri = uri
        self._aside = aside
        self._mended = mended
        self._space = _NOT_SPACE if mended is None else _NOT_PADDING
        self._padded = self._has_odd = False
        # An error counts the lines of the buffer before it: with many errors a small buffer is many times as fast.
        self._chunk = _CHUNK if mended is None else max(1, _CHUNK >> 4)
        self.number = 0
        """Of the row that is read, where the text counts them itself."""
        self.is_cut = False
        """Whether the text ended within a value."""
        self._longest = longest
        self._decoder = decoder
        self._buffer = ""
        self._place = self._start = 0
        self._line = 1
        self._ended = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")(undecoded)
        self._file = file or storage.store_for(uri).open(uri)
        if self._file.seekable():  # a decompressed stream is at its start
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
        """Return the next character that is not white space, without taking it; empty at the end of the file."""
        while True:
            result = self._space.search(self._buffer, self._place)
            stop = result.start() if result else len(self._buffer)
            if self._mended is not None and self._buffer.find("\0", self._place, stop) >= 0:
                self._padded = True
            self._place = stop
            if self._padded and self._mended is not None and (result or self._ended):
                self._mended[PADDING] += 1
                self._padded = False
            if result:
                return result.group()
            if self._ended:
                return ""
            self._more()

    def take(self) -> None:
        """Take the character that ``peek`` returned."""
        self._place += 1

    def value(self, number: int) -> Any:
        """Parse the value at the character that ``peek`` returned; ``number`` is its row, from 0."""
        decoder = self._decoder if self._mended is None else _TOLERANT
        while True:
            try:
                value, end = decoder.raw_decode(self._buffer, self._place)
            except json.JSONDecodeError as error:
                # An error near the end of the buffer may mean that the value continues in the next chunk: no literal or
                # escape is longer than _NEAR, and a string is "unterminated" wherever it starts.
                near = len(self._buffer) - error.pos < _NEAR or error.msg.startswith("Unterminated string")
                if near and not self._ended:
                    self._grow(number)
                    continue
                self.is_cut = near
                raise self.error(error.msg, number, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.error(str(error), number, self._place) from error
            if end == len(self._buffer) and not self._ended:
                self._grow(number)  # a number may continue
                continue
            if end - self._place > self._longest // 4:
                self._refuse_long(number, end)
            if self._mended is not None and self._has_controls(end):
                self._mended[CONTROLS] += 1
            self._start, self._place = self._place, end
            return value

    def _has_controls(self, end: int) -> bool:
        """Return whether the value up to ``end`` has raw control characters in its texts."""
        start = self._place
        in_lines = self._buffer.find("\n", start, end) >= 0 or self._buffer.find("\r", start, end) >= 0
        if not in_lines and not (self._has_odd and _CONTROLS.search(self._buffer, start, end)):
            return False
        try:
            # Of the value alone: an error counts the lines before it.
            self._decoder.decode(self._buffer[self._place : end])
        except json.JSONDecodeError:
            return True
        return False

    def record(self, number: int) -> Any:
        """Read as ``value`` does; LONG for one that is too long, if those are passed over."""
        try:
            return self.value(number)
        except limits.TooLong:
            if not self._aside:
                raise
        self._pass_over(number)
        return LONG

    def _pass_over(self, number: int) -> None:
        """Pass over the value that the position is at the beginning of, without holding it."""
        depth, in_text = 0, False
        while True:
            result = (_IN_TEXT if in_text else _SIGNS).search(self._buffer, self._place)
            self._place = result.end() if result else len(self._buffer)
            sign = result.group() if result else ""
            if sign == "\\" and self._place < len(self._buffer):
                self._place += 1
            elif not result or sign == "\\":
                if self._ended:
                    self.is_cut = True
                    raise self.error("the value does not end", number)
                self._place -= len(sign)  # what follows decides what it means
                self._more()
            elif sign == '"':
                in_text = not in_text
            elif sign in "{[":
                depth += 1
            elif depth == 0:  # a number ends before it
                self._place -= 1
                return
            elif sign in "}]":
                depth -= 1
            if result and depth == 0 and not in_text and sign in '"}]':
                return

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
        return f"{self.uri} row {number + 1} (line {line})"

    def error(self, got: str, number: int, place: int | None = None) -> InputError:
        """Return the error for row ``number``, from 0."""
        return InputError("not valid JSON", where=self._where(number, self._place if place is None else place), got=got)

    def _more(self) -> None:
        # Twice as much each time, because a value is parsed from its start again; but not far beyond the limit.
        held = len(self._buffer) - self._place
        raw = self._file.read(max(self._chunk, min(held, self._longest + 1 - held)))
        if self._mended is not None:
            # Ten times as fast as a search in each value.
            self._has_odd = (self._has_odd and held > 0) or len(raw.translate(None, _ODD)) < len(raw)
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
            raise InputError("not valid UTF-8", where=f"{self.uri} line {line}", got=got) from error


class _Lines(_Text):
    """A file of objects, each on a line or on several, whose faults are mended."""

    def __init__(self, uri: str, longest: int, file: BinaryIO, mended: Counter[str], *, aside: bool) -> None:
        super().__init__(uri, _LENIENT, 0, longest, file, aside=aside, mended=mended, undecoded="surrogateescape")
        self._before, self._has_undecoded = "\n", False
        # Line feeds before a place of the buffer, so that none is counted twice.
        self._counted, self._feeds = 0, 0

    def _more(self) -> None:
        self._before = self._buffer[self._place - 1] if self._place else self._before
        held = len(self._buffer) - self._place
        super()._more()
        self._counted = self._feeds = 0
        fresh = self._buffer[held:]
        self._has_undecoded |= not fresh.isascii() and _UNDECODED.search(fresh) is not None

    def line(self) -> int:
        """Return the number of the line that the position is on, from 0."""
        self._feeds += self._buffer.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._line - 1 + self._feeds

    def begins_line(self) -> bool:
        """Return whether nothing but padding is before the position on its line."""
        return (self._buffer[self._place - 1] if self._place else self._before) in "\n\0"

    def pass_line(self) -> None:
        """Pass over the rest of the line."""
        while (end := self._buffer.find("\n", self._place)) < 0 and not self._ended:
            self._place = len(self._buffer)
            self._more()
        self._place = end + 1 if end >= 0 else len(self._buffer)

    def next_object(self, number: int) -> Any:
        """Return the object at the position, which is on line ``number``, or what stands for one."""
        try:
            value = self.record(number)
        except limits.TooLong:
            raise
        except InputError:
            return BROKEN
        if value is LONG:
            return LONG
        if self._mended is not None and self._buffer.find("\n", self._start, self._place) >= 0:
            self._mended[SPLIT] += 1
        if self._has_undecoded and _UNDECODED.search(self._buffer, self._start, self._place):
            return NOT_UTF8
        return value


def mended_objects(
    uri: str, longest: int, file: BinaryIO, mended: Counter[str], *, aside: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a file, each on one line or on several, with the number of their first line, from 0.

    Raw control characters within texts are taken as they are, and NULs between objects are passed over. A line that is
    not an object, or the first line of one that is broken, is BROKEN; after it only an object that begins a line is
    taken, so that no part of a broken object passes for one.

    Args:
        longest: maximum bytes of an object.
        file: a reader of the file; it is closed.
        mended: is counted up by what is mended.
        aside: whether LONG stands for an object that is too long.

    Raises:
        TooLong: an object has more than ``longest`` bytes, without ``aside``.
    """
    with _Lines(uri, longest, file, mended, aside=aside) as text:
        is_whole = True
        if text.peek() == "\ufeff":
            text.take()
        while first := text.peek():
            number = text.line()
            may_begin = first == "{" and (is_whole or text.begins_line())
            value = text.next_object(number) if may_begin else BROKEN
            is_whole = value is not BROKEN
            if value is BROKEN:
                text.pass_line()
            yield number, value


def objects(
    uri: str, start: int = 0, number: int = 0, longest: int = RECORD_BYTES, file: BinaryIO | None = None
) -> Iterator[Any]:
    """Yield JSON values that follow each other with any white space, or none; objects are :class:`Pairs`.

    Args:
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


def array(
    uri: str,
    longest: int = RECORD_BYTES,
    file: BinaryIO | None = None,
    *,
    aside: bool = False,
    mended: Counter[str] | None = None,
) -> Iterator[Any]:
    """Yield the elements of a file that is one JSON array; objects are dicts, NaN and Infinity are accepted.

    Of a duplicate key the last value is kept, as in the reference. ``file`` is a reader of it, if it is open; it is
    closed. With ``aside``, LONG stands for an element that is too long. With ``mended``, NULs between values and raw
    control characters within texts are mended and counted there.

    Raises:
        InputError: with element and line, both from 1: malformed JSON, not an array, not UTF-8, or an element of more
            than ``longest`` bytes.
    """
    with _Text(uri, _LENIENT, 0, longest, file, aside=aside, mended=mended) as text:
        if text.peek() != "[":
            raise text.error(f"{text.peek()!r} instead of '['", 0)
        yield from _elements(text)
        if text.peek():
            raise text.error("text after the end of the array", text.number)


def within(
    uri: str,
    keys: Sequence[str],
    *,
    values: bool,
    longest: int = RECORD_BYTES,
    file: BinaryIO | None = None,
    aside: bool = False,
    mended: Counter[str] | None = None,
) -> Iterator[Any]:
    """Yield the elements of a list in a file that is one JSON object; what is beside the list is passed over.

    Args:
        keys: the keys that lead to the list.
        values: whether they lead to an object, whose values are wanted.
        longest: maximum bytes of a value.
        file: a reader of the file, if it is open; it is closed.
        aside: whether LONG stands for an element that is too long.
        mended: as of :func:`array`.

    Raises:
        NotThere: nothing is there, or neither a list nor, with ``values``, an object.
        InputError: with line: malformed JSON, not UTF-8, too long a value, or a key on the way occurs twice.
    """
    with _Text(uri, _LENIENT, 0, longest, file, aside=aside, mended=mended) as text:
        yield from _at(text, keys, values, ())
        if text.peek():
            raise text.error("text after the end of the object", text.number)


def _at(text: _Text, keys: Sequence[str], values: bool, way: tuple[str, ...]) -> Iterator[Any]:
    """Yield the wanted values of the value at ``way``; the position is at its beginning."""
    place = ".".join(way) or "the top of the file"
    if not keys and text.peek() == ("{" if values else "["):
        if not values:
            yield from _elements(text)
            return
        for _ in _members(text):
            yield text.record(text.number)
            text.number += 1
        return
    if not keys or text.peek() != "{":
        expected = "an object" if keys or values else "a list"
        kind = {"{": "an object", "[": "a list", "": "nothing"}.get(text.peek(), "a single value")
        raise NotThere(f"not {expected} at {place}", where=text.uri, got=kind, expected=expected)
    names: list[str] = []
    result = False
    for key in _members(text):
        if len(names) < _SHOWN:
            names.append(key)
        if key != keys[0]:
            _pass(text, len(way))
        elif result:
            raise text.error(f"the key {key!r} a second time", text.number)
        else:
            result = True
            yield from _at(text, keys[1:], values, (*way, key))
    if not result:
        raise NotThere(f"no {keys[0]!r} at {place}", where=text.uri, got=", ".join(names), expected=repr(keys[0]))


class Outline:
    """What lists and objects the beginning of a file that is one JSON object has, by the keys that lead to them.

    Args:
        head: the beginning of the file.
    """

    def __init__(self, head: bytes) -> None:
        self.lists: dict[tuple[str, ...], tuple[int, Any]] = {}
        """Of each list the number of its elements, and the first of them."""
        self.objects: dict[tuple[str, ...], tuple[int, int]] = {}
        """Of each object the number of its members, and how many of their values are objects."""
        self.names: list[str] = []
        """The first thousand keys of the file's object."""
        self.end: Literal["end", "more", "cut", "broken"] = "more"
        """Whether the value is followed by nothing, or by more, or does not end, or is not JSON."""
        with _Text("the file", _LENIENT, 0, len(head) + 1, io.BytesIO(head)) as text:
            try:
                self._survey(text, ())
                self.end = "more" if text.peek() else "end"
            except InputError:
                self.end = "cut" if text.is_cut else "broken"

    def _survey(self, text: _Text, way: tuple[str, ...]) -> None:
        first = text.peek()
        if first == "[":
            for number, item in enumerate(_elements(text), 1):
                self.lists[way] = (number, self.lists[way][1] if number > 1 else item)
        elif first == "{" and len(way) < _DEPTH:
            for number, key in enumerate(_members(text), 1):
                _, inside = self.objects.get(way, (0, 0))
                self.objects[way] = (number, inside + (text.peek() == "{"))
                if not way and number <= _KEYS:
                    self.names.append(key)
                if number <= _SHOWN:
                    self._survey(text, (*way, key))
                else:
                    _pass(text, 0)
        else:
            text.value(0)


def _goes_on(text: _Text, end: str, first: bool) -> bool:
    """Tell whether a value comes before ``end``; the comma before another than the first one is passed."""
    after = text.peek()
    if after == end:
        return False
    if not first:
        if after != ",":
            text.is_cut = not after
            raise text.error(f"{after!r} instead of ',' or {end!r}", text.number)
        text.take()
    return True


def _elements(text: _Text) -> Iterator[Any]:
    """Yield the elements of the array that the position is at the beginning of, counted in ``text.number``."""
    text.take()
    first = True
    while _goes_on(text, "]", first):
        if not text.peek():
            text.is_cut = True
            raise text.error("the array does not end", text.number)
        yield text.record(text.number)
        text.number += 1
        first = False
    text.take()


def _members(text: _Text) -> Iterator[str]:
    """Yield the keys of the object that the position is at the beginning of; after each the caller takes its value."""
    text.take()
    first = True
    while _goes_on(text, "}", first):
        if text.peek() != '"':
            text.is_cut = not text.peek()
            raise text.error(f"{text.peek()!r} instead of a key", text.number)
        key = text.value(text.number)
        if text.peek() != ":":
            text.is_cut = not text.peek()
            raise text.error(f"{text.peek()!r} instead of ':'", text.number)
        text.take()
        if not text.peek():
            text.is_cut = True
            raise text.error("the object does not end", text.number)
        yield key
        first = False
    text.take()


def _pass(text: _Text, depth: int) -> None:
    """Pass over a value, however long its lists are."""
    first = text.peek()
    before = text.number
    if first == "{" and depth < _LEVELS:
        for _ in _members(text):
            _pass(text, depth + 1)
    elif first == "[":
        for _ in _elements(text):
            pass
    else:
        text.value(text.number)
    text.number = before


def is_array(file: BinaryIO) -> bool:
    """Return whether a JSON file is an array, by its first character; leaves the file at its start."""
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
