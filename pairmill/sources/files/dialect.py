"""How the text files of a source are written, where that is not the usual way."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from pairmill.errors import UsageError
from pairmill.sources.files.patterns import matching
from pairmill.sources.language.paths import Path

UTF8 = "utf-8"
TABLES = (".csv", ".tsv")
"""Files of lines whose fields have a delimiter."""

_ASCII = bytes(range(128))
_EVERY = "*"
_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " "}
_NONE = "none"
LENIENT = "lenient"
# Codecs of names and of source code, and those of one system alone.
_UNWANTED = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "mbcs", "oem"})


class Records(NamedTuple):
    """Where the records of a file that is one JSON object are.

    Args:
        written: as in the description.
        keys: the keys that lead to them.
        values: whether they are the values of the object there, instead of the elements of the list there.
    """

    written: str
    keys: tuple[str, ...]
    values: bool

    @classmethod
    def parse(cls, text: str) -> Records:
        """Raise UsageError, without a place, for what is not a way into an object."""
        values = text == _EVERY or text.endswith(f".{_EVERY}")
        way = text.removesuffix(_EVERY).removesuffix(".") if values else text
        if values and not way:
            return cls(text, (), True)
        keys = tuple(step for step in Path.parse(way).steps if isinstance(step, str))
        if len(keys) < len(Path.parse(way).steps):
            expected = "keys of objects such as data or result.items; data.* for the values of an object"
            raise UsageError("not a way to the records", got=repr(text), expected=expected)
        return cls(text, keys, values)


@dataclass(frozen=True)
class Dialect:
    """How text files are written.

    Args:
        encoding: name of the codec.
        encodings: patterns of files, and the codec of each, in place of ``encoding``; the first that fits counts.
        delimiter: between the fields of a table; empty = what the file's extension says.
        quote: around fields of a table; empty = a quote is a character like others.
        header: names of the columns of tables that have none in their first line.
        records: where the records of a ``.json`` file are; None = the file is an array, or lines.
        is_lenient: whether JSON is mended: objects over several lines, raw control characters, NULs between objects.
        query: what gives the rows of a database.
        sheet: of a workbook; empty = its only one.
    """

    encoding: str = UTF8
    encodings: tuple[tuple[str, str], ...] = ()
    delimiter: str = ""
    quote: str = '"'
    header: tuple[str, ...] = field(default=())
    records: Records | None = None
    is_lenient: bool = False
    query: str = ""
    sheet: str = ""

    def encoding_in(self, path: str) -> str:
        """Return the codec of a file, by its path below the raw folder."""
        return next((codec for pattern, codec in self.encodings if fits(pattern, path)), self.encoding)

    @property
    def is_cut(self) -> bool:
        """Whether large files can be cut at line feeds.

        That byte must mean a line feed wherever it is, a quoted field that holds one must show by a double quote, and
        an object must end on its line.
        """
        codecs_ = {self.encoding, *(codec for _, codec in self.encodings)}
        return all(map(is_ascii, codecs_)) and self.quote in {'"', ""} and not self.is_lenient

    @property
    def meaning(self) -> list[object]:
        """What rows depend on; empty for the usual dialect."""
        if self == Dialect():
            return []
        written = self.records.written if self.records else ""
        by_file = [list(map(list, self.encodings))] if self.encodings else []
        lenient = [LENIENT] if self.is_lenient else []
        further = [{"query": self.query, "sheet": self.sheet}] if self.query or self.sheet else []
        return [self.encoding, self.delimiter, self.quote, list(self.header), written, *by_file, *lenient, *further]

    def between(self, suffix: str) -> str:
        """Return the delimiter of a table with this extension."""
        return self.delimiter or ("\t" if suffix == ".tsv" else ",")


def fits(pattern: str, path: str) -> bool:
    """Return whether a pattern of ``encoding:`` is that of a file. Without a folder it is the file's name, in any
    folder."""
    return bool(matching([pattern if "/" in pattern else f"**/{pattern}"], [path])) or pattern == path


def is_ascii(encoding: str) -> bool:
    """Return whether the bytes of ASCII are its characters in every state, so that a line feed is one wherever it
    is."""
    if encoding.startswith("iso2022"):
        return False
    try:
        return _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except UnicodeDecodeError:
        return False


def encoding_of(text: str) -> str:
    """Return the name of the codec that is meant. Raises UsageError, without a place, for what is not one of texts."""
    expected = "the name of an encoding, such as utf-8, latin-1, cp1252, utf-16, shift_jis, gb18030"
    try:
        name = codecs.lookup(text.strip()).name
        # Codecs of other things do not take ordinary words.
        codecs.getincrementaldecoder(name)
        if "Aa 0".encode(name).decode(name) != "Aa 0" or name in _UNWANTED:
            raise LookupError
    except (LookupError, ValueError, TypeError) as error:
        raise UsageError("not an encoding", got=repr(text), expected=expected) from error
    return UTF8 if name == "utf-8-sig" else name


def delimiter_of(text: str) -> str:
    """Return the character that is meant. Raises UsageError, without a place, for what cannot be between fields."""
    result = _DELIMITERS.get(text, text)
    if len(result) != 1 or result in '\r\n"':
        expected = "one character, such as ';' or '|', or tab"
        raise UsageError("not a delimiter", got=repr(text), expected=expected)
    return result


def quote_of(text: str) -> str:
    """Return the quote that is meant. Raises UsageError, without a place, for what cannot be around fields."""
    if text == _NONE:
        return ""
    if len(text) != 1 or re.match(r"[\s\w]", text):
        raise UsageError("not a quote", got=repr(text), expected="one character, or none")
    return text
