"""Raw files to records, one at a time, in file order: tables, JSON, databases, workbooks, pairs of lines, archives.

Every reader yields ``(place, record)``: the 0-based row or line, or the name of an archive's member. A record that
cannot be read is yielded as Malformed, and reading goes on. A file that cannot be read further raises InputError.
"""

from __future__ import annotations

import codecs
import csv
import importlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, BinaryIO, Final, Protocol, cast

from pairmill._native import RowForm
from pairmill.errors import InputError
from pairmill.extras import require
from pairmill.formats import compressed, jsonstream, limits
from pairmill.formats.file_slice import ARROW, DATABASES, WORKBOOKS, FileSlice
from pairmill.sources.files import databases, json_shapes
from pairmill.sources.files.card import COMPRESSED, READABLE, TEXTS, suffix_of
from pairmill.sources.files.column_readers import OTHERS, Tabled, arrow, check_columns, parquet
from pairmill.sources.files.dialect import UTF8, Dialect
from pairmill.sources.files.recode import Recoded
from pairmill.sources.parsed import TOO_LONG, Malformed, Record

# Python's own 8 KiB hold few lines.
_BUFFER = 1 << 18
# What a header that is one column may have between its names, as a description writes it.
_DELIMITERS = {"\t": "tab", ";": "';'", "|": "'|'", ",": "','"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNPACK = "pack it again with plain members"


class Readable(json_shapes.Expected, Tabled, Protocol):
    """What readers ask of a source."""

    @property
    def dialect(self) -> Dialect: ...


def read(piece: FileSlice, source: Readable, form: RowForm | None = None) -> Iterator[Record]:
    """Return the records of a piece by the extension of its file.

    With a form, runs of records that are plain in it may be MadeRows, at the place that those of their rows count from.
    """
    kind = suffix_of(piece.path)
    if kind not in READERS:
        raise InputError("no reader for this kind of file", where=piece.uri, expected=", ".join(READABLE))
    if form is not None and kind in _MAKERS:
        return _MAKERS[kind](piece, source, form)
    records = READERS[kind](piece, source)
    return _named(records, source.dialect.encoding_in(piece.path)) if kind in TEXTS else records


def database(piece: FileSlice, source: Readable) -> Iterator[Record]:
    """Yield the rows that a query gives of a SQLite file. Raises InputError as :func:`databases.rows_of`."""
    if not source.dialect.query:
        hint = f"write in {source.described_in}: query: SELECT * FROM <table> ORDER BY rowid"  # noqa: S608
        raise InputError("nothing says which rows of the database", where=piece.uri, expected="query:", hint=hint)
    rows_ = databases.rows_of(piece, source.dialect.query)
    names = next(rows_)
    check_columns(piece.uri, names, source)
    yield from _dicts(rows_, names, piece)


def workbook(piece: FileSlice, source: Readable) -> Iterator[Record]:
    """Yield the rows of a sheet of an Excel file by the names in its first row. Raises InputError as
    ``workbooks.rows_of``, and UsageError without its library."""
    rows_ = excel(piece.uri).rows_of(piece, source.dialect.sheet, source.described_in)
    names = list(source.dialect.header)
    if not names:
        names = ["" if name is None else str(name) for name in next(rows_, (0, ()))[1]]
        while names and not names[-1]:
            names.pop()
    check_columns(piece.uri, names, source)
    yield from _dicts(rows_, names, piece)


def excel(where: str) -> ModuleType:
    """Return what reads Excel files. Raises UsageError without its library."""
    require("excel", "openpyxl", where=where, instead="; or save the sheet as CSV")
    return importlib.import_module("pairmill.sources.files.workbooks")


def _dicts(rows_: Iterator[tuple[int, Any]], names: Sequence[str], piece: FileSlice) -> Iterator[Record]:
    """Yield rows by the names of their columns."""
    for number, values in rows_:
        text = "".join(value for value in values if isinstance(value, str))
        if 4 * len(text) > piece.longest and limits.is_longer(text, piece.longest):
            if not piece.aside:
                raise limits.too_long(f"{piece.uri} row {number + 1}", piece.longest)
            yield number, TOO_LONG
        else:
            # An empty cell at the end of a row may not be there, and a note beside the table has no column.
            record = dict(zip(names, (*values, *[None] * (len(names) - len(values))), strict=False))
            yield number, Malformed("invalid_utf8") if _undecoded(text) else record


def _named(records: Iterator[Record], encoding: str) -> Iterator[Record]:
    """Return the same, with a reason that says which encoding some bytes are not."""
    if encoding == UTF8:
        return records
    wrong, reason = Malformed("invalid_utf8"), Malformed(_not_of(encoding))
    return ((place, reason if record == wrong else record) for place, record in records)


def _line_for(piece: FileSlice, source: Readable, encoding: str) -> str:
    """Return the line to write for a file in another encoding: as for all files, and for this one alone."""
    name = json.dumps(PurePosixPath(piece.path).name, ensure_ascii=False)
    return f"write in {source.described_in}: encoding: {encoding}; or for it alone encoding: {{{name}: {encoding}}}"


def _not_of(encoding: str) -> str:
    return "invalid_utf8" if encoding == UTF8 else f"invalid_{encoding.replace('-', '_')}"


def json_lines(piece: FileSlice, source: Readable, form: RowForm | None = None) -> Iterator[Record]:
    """Yield one JSON value a line. Empty lines are skipped, NaN and Infinity accepted."""
    with _lines(piece, source) as (lines, watch):
        if source.dialect.is_lenient:
            yield from _mended_lines(cast(BinaryIO, lines), piece)
        elif form is not None:
            yield from _made_lines(lines, watch, piece, form)
        else:
            yield from _json_values(lines, watch, piece)


def _json_values(lines: io.BufferedReader, watch: _Watch, piece: FileSlice) -> Iterator[Record]:
    values = _JsonLines(watch, piece)
    for number, line in enumerate(_beginnings(lines, piece.longest) if piece.aside else lines, piece.first):
        yield from values.read(number, line)


def _made_lines(lines: io.BufferedReader, watch: _Watch, piece: FileSlice, form: RowForm) -> Iterator[Record]:
    """Yield the same, runs of plain records as MadeRows."""
    values = _JsonLines(watch, piece)
    ends = _beginnings(lines, piece.longest) if piece.aside else lines
    number, data = piece.first, b""
    ended, others = False, 1
    while not ended:
        more = lines.read(2 * _BUFFER)
        data, ended = data + more, len(more) < 2 * _BUFFER
        if not ended and b"\n" not in more:
            data += next(ends, b"")
        end = len(data) if ended else data.rfind(b"\n") + 1 or len(data)
        block, data = data[:end], data[end:]
        start = 0
        while start < len(block):
            made = form.lines(block, start, piece.longest)
            if made.records:
                values.goes_on = False
                yield number, made
            start, number = start + made.end, number + made.places
            others = 1 if made.records else min(2 * others, OTHERS)
            for _ in range(others if made.stopped else 0):
                line = block[start : block.find(b"\n", start) + 1 or len(block)]
                yield from values.read(number, line)
                start, number = start + len(line), number + 1
                if start == len(block):
                    break
        watch.number = number - 1


class _JsonLines:
    """Lines as JSON values, one after another.

    Attributes:
        goes_on: whether the line before may be the beginning of a value of several lines.
    """

    def __init__(self, watch: _Watch, piece: FileSlice) -> None:
        self._watch, self._piece = watch, piece
        # json.loads would look for the encoding of every line, and for white space around it.
        self._decode = json.JSONDecoder().raw_decode
        self.goes_on = False

    def read(self, number: int, line: bytes) -> tuple[Record, ...]:
        """Return the record of a line, nothing of an empty one. Raises InputError if it is too long."""
        longest = self._piece.longest
        self._watch.number = number
        if len(line) > longest and len(line.rstrip(b"\r\n")) > longest:
            if not self._piece.aside:
                raise self._watch.too_long(number)
            return ((number, TOO_LONG),)
        stripped = line.strip() if number else line.removeprefix(codecs.BOM_UTF8).strip()
        if not stripped:
            return ()
        try:
            text = str(stripped, "utf-8", "surrogatepass")
            value, end = self._decode(text)
        except UnicodeDecodeError:
            return ((number, Malformed("invalid_utf8")),)
        except (ValueError, RecursionError) as error:
            begins = text.startswith("{")
            mendable = (self.goes_on and not begins) or _is_mendable(text, error)
            self.goes_on = begins
            return ((number, Malformed("invalid_json", mendable=mendable)),)
        self.goes_on &= end < len(text)
        return ((number, value if end == len(text) else Malformed("invalid_json", mendable=self.goes_on)),)


def _is_mendable(line: str, error: Exception) -> bool:
    """Return whether ``json: lenient`` may read a line by itself: it has NULs, or raw control characters in a text."""
    return "\0" in line or (isinstance(error, json.JSONDecodeError) and error.msg.startswith(jsonstream.CONTROL))


_STANDING = {
    jsonstream.LONG: TOO_LONG,
    jsonstream.BROKEN: Malformed("invalid_json"),
    jsonstream.NOT_UTF8: Malformed("invalid_utf8"),
}


def _mended_lines(file: BinaryIO, piece: FileSlice) -> Iterator[Record]:
    """Yield the objects of a file whose faults are mended."""
    mended: Counter[str] = Counter()
    values = jsonstream.mended_objects(piece.uri, piece.longest, file, mended, aside=piece.aside)
    yield from _with_mended(((place, _record(value)) for place, value in values), mended)


def _record(value: Any) -> Any:
    return value if isinstance(value, dict) else _STANDING.get(value, value)


def _with_mended(records: Iterator[Record], mended: Counter[str]) -> Iterator[Record]:
    """Yield records; an object takes along what was mended in it and before it, and the last one what follows it."""
    held: Record | None = None
    for place, record in records:
        if held is not None:
            yield held
        if mended and isinstance(record, dict):
            record = jsonstream.Mended(record, mended)
            mended.clear()
        held = place, record
    if held is not None:
        place, record = held
        if mended and isinstance(record, dict):
            record = jsonstream.Mended(record, mended + Counter(getattr(record, "mended", {})))
        yield place, record


def _beginnings(lines: io.BufferedReader, longest: int) -> Iterator[bytes]:
    """Lines; of one that is longer than a record may be, as much as shows it."""
    most = longest + 3  # with its end, and one byte more
    while line := lines.readline(most):
        if len(line) == most and not line.endswith(b"\n"):
            while rest := lines.readline(_BUFFER):
                if rest.endswith(b"\n"):
                    break
        yield line


def _elements(values: Iterator[Any], mended: Counter[str] | None = None) -> Iterator[Record]:
    """Values of a JSON file as records."""
    records = enumerate(TOO_LONG if value is jsonstream.LONG else value for value in values)
    return records if mended is None else _with_mended(records, mended)


def json_file(piece: FileSlice, source: Readable) -> Iterator[Record]:
    """Yield the elements of a JSON array, the records within an object, or JSON Lines under the name ``.json``.

    Raises:
        InputError: the file is not JSON, or a described source's file is an object without the records.
    """
    if source.described_in:
        yield from _described_json(piece, source)
        return
    if PurePosixPath(piece.path).suffix in COMPRESSED:
        yield from json_lines(piece, source)
        return
    # Opened once, so that the first byte belongs to the same content as all others.
    with piece.opened() as file:
        if jsonstream.is_array(file):
            yield from _elements(jsonstream.array(piece.uri, piece.longest, file, aside=piece.aside))
        else:
            yield from _json_values(*_watched(file, piece), piece)


def _described_json(piece: FileSlice, source: Readable) -> Iterator[Record]:
    records, encoding = source.dialect.records, source.dialect.encoding_in(piece.path)
    mended = Counter[str]() if source.dialect.is_lenient else None
    start = b"" if records else beginning(piece, encoding, _BUFFER).lstrip(b" \t\r\n\0")
    if not records and not start.startswith(b"[") and not json_shapes.is_lines(start):
        head = beginning(piece, encoding, json_shapes.HEAD)
        json_shapes.refuse_one_object(head, piece.uri, source, lenient=source.dialect.is_lenient)
    with _stream(piece, encoding) as (file, part):
        if records is not None:
            try:
                keys, values = records.keys, records.values
                result = jsonstream.within(
                    piece.uri, keys, values=values, longest=piece.longest, file=file, aside=piece.aside, mended=mended
                )
                yield from _elements(result, mended)
            except jsonstream.NotThere as error:
                hint = json_shapes.hint_of(beginning(piece, encoding, json_shapes.HEAD), source)
                raise InputError(
                    error.what, where=piece.uri, got=error.got, expected=error.expected, hint=hint
                ) from error
        elif start.startswith(b"["):
            values_ = jsonstream.array(piece.uri, piece.longest, file, aside=piece.aside, mended=mended)
            yield from _elements(values_, mended)
        elif mended is not None:
            yield from _mended_lines(file, piece)
        else:
            yield from _json_values(*_watched(file, part), part)


def beginning(piece: FileSlice, encoding: str, size: int) -> bytes:
    """Return the first bytes of a file, decompressed and in UTF-8."""
    with _stream(piece.head(), encoding) as (file, _):
        data: bytes = file.read(size)
    return data


def whole_file(piece: FileSlice, encoding: str = UTF8) -> Iterator[Record]:
    """Yield the whole file as one record of its path below the raw folder, name, extension (both unpacked) and text.

    Raises:
        InputError: the file, unpacked, is longer than a record may be.
    """
    name = PurePosixPath(piece.path)
    packed = name.suffix if name.suffix in COMPRESSED else ""
    data = _bytes(piece, packed)
    if data is None:
        yield 0, TOO_LONG
        return
    if packed:
        name = name.with_suffix("")
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        yield 0, Malformed(_not_of(encoding))
        return
    yield 0, {"path": piece.path, "name": name.name, "extension": name.suffix.removeprefix("."), "text": text}


def _bytes(piece: FileSlice, packed: str = "") -> bytes | None:
    """Return a whole file, unpacked; None if it is longer than a record may be and such records are put aside."""
    with piece.opened() as raw, compressed.damage(piece.uri):
        with compressed.decompressed(raw, packed) if packed else nullcontext(raw) as file:
            data: bytes = file.read(piece.longest + 1)
        if len(data) > piece.longest and not piece.aside:
            raise limits.too_long(piece.uri, piece.longest, "the file, which is one record,")
    return data if len(data) <= piece.longest else None


def json_object(piece: FileSlice) -> Iterator[Record]:
    """Yield the whole file as one record."""
    data = _bytes(piece)
    yield 0, TOO_LONG if data is None else whole_json(data)


def whole_json(data: bytes) -> Any:
    """Return the JSON value of some bytes, or why they are not one; NaN and Infinity are not."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        return Malformed("invalid_utf8")
    except (ValueError, RecursionError):
        return Malformed("invalid_json")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def csv_fields(piece: FileSlice) -> Iterator[Record]:
    """Yield the fields of each line after the first, which is a header."""
    for number, fields in _csv(piece):
        if number:
            yield number, fields


def csv_dicts(piece: FileSlice, source: Readable) -> Iterator[Record]:
    """Yield rows by the names in the header line. Empty lines are skipped; a row with another number of fields is
    malformed.

    Raises:
        InputError: the file is not CSV, a record is too long, or a column that is read is missing or exists twice.
    """
    dialect = source.dialect
    header = list(dialect.header)
    if header:
        check_columns(piece.uri, header, source)
    elif piece.first:
        with closing(_csv(piece.head(), source)) as beginning:
            header = next(beginning)[1]
    for number, fields in _csv(piece, source):
        if number == 0 and not dialect.header:
            if fields == TOO_LONG:
                raise limits.too_long(piece.uri, piece.longest, "the header")
            if isinstance(fields, Malformed):
                advice = _line_for(piece, source, "cp1252") if source.described_in else "correct the raw data"
                encoding = dialect.encoding_in(piece.path)
                name = "UTF-8" if encoding == UTF8 else encoding
                raise InputError(f"the header is not {name}", where=piece.uri, hint=advice)
            header = fields
            _refuse_other_delimiter(piece, header, source)
            check_columns(piece.uri, header, source)
        elif isinstance(fields, Malformed):
            yield number, fields
        elif not fields:
            continue  # an empty line
        elif len(fields) != len(header):
            yield number, Malformed("another_number_of_fields")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _refuse_other_delimiter(piece: FileSlice, header: list[str], source: Readable) -> None:
    """Raise InputError if the header is one column that has another delimiter in it."""
    other = next((item for item in _DELIMITERS if header and item in header[0]), "")
    if len(header) == 1 and other and source.described_in and header[0] not in source.fields:
        raise InputError(
            "the header is one column",
            where=piece.uri,
            got=header[0][:200],
            expected=", ".join(source.fields),
            hint=f"write in {source.described_in}: delimiter: {_DELIMITERS[other]}",
        )


def _csv(piece: FileSlice, source: Readable | None = None) -> Generator[tuple[int, Any], None, None]:
    csv.field_size_limit(max(piece.longest, limits.RECORD_BYTES) + 3 * _BUFFER if piece.aside else piece.longest)
    dialect = source.dialect if source else Dialect()
    with _text(piece, newline="", source=source) as (file, watch):
        watch.what = "record"
        between = dialect.between(suffix_of(piece.path))
        thinned = _Thinned(file, watch, piece.longest, between + dialect.quote)
        lines = thinned if piece.aside else file
        if dialect.quote:
            reader = csv.reader(lines, strict=True, delimiter=between, quotechar=dialect.quote)
        else:
            reader = csv.reader(lines, strict=True, delimiter=between, quoting=csv.QUOTE_NONE)
        try:
            for number, fields in enumerate(reader, piece.first):
                watch.number = number
                text = "".join(fields)
                if thinned.is_long or (4 * len(text) > piece.longest and limits.is_longer(text, piece.longest)):
                    if not piece.aside:
                        raise watch.too_long(number)
                    yield number, TOO_LONG
                    continue
                yield number, Malformed("invalid_utf8") if _undecoded(text) else fields
        except csv.Error as error:
            if "field limit" in str(error):
                raise watch.too_long(watch.number + 1) from error
            where = f"{piece.uri} line {piece.first + reader.line_num}"
            hint = "if quotes are part of the texts, write quote: none in the YAML file" if dialect.quote else ""
            raise InputError("not valid CSV", where=where, got=str(error), hint=hint) from error


def line_pairs(piece: FileSlice, *, pair_empty_lines: bool) -> Iterator[Record]:
    """(line, next line), each stripped; a last line without a partner is malformed.

    After an empty line nobody can tell questions from answers, and nothing else would show it, so every later pair is
    malformed. Empty lines at the end do no harm.

    Args:
        piece: of a text file.
        pair_empty_lines: whether an empty line is a line like others, as in the reference.
    """
    question: str | None = None
    empty = False
    place = 0
    quarter = piece.longest // 4  # no character has more than four bytes
    with _text(replace(piece, aside=False), newline=None) as (file, watch):
        for number, line in enumerate(file, piece.first):
            watch.number = number
            text = line.strip()
            if not text and not pair_empty_lines:
                empty = True
                continue
            if question is None:
                question, place = text, number
                continue
            if len(question) + len(text) > quarter and limits.is_longer(question + text, piece.longest):
                raise watch.too_long(number)
            if empty:
                yield place, Malformed("out_of_step_behind_an_empty_line")
            elif _undecoded(question) or _undecoded(text):
                yield place, Malformed("invalid_utf8")
            else:
                yield place, (question, text)
            question = None
        if question is not None:
            # One line too many or too few, and nothing says where: any pair may be of two halves.
            yield place, Malformed("question_without_answer", 1 if empty else place // 2 + 1)


def tar_members(piece: FileSlice, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Regular files of a tar archive whose names are ``wanted``, in its order: name and content.

    Raises:
        InputError: the file is not an archive, damaged or cut, or a member is too long or sparse.
    """
    with piece.opened() as raw, compressed.damage(piece.uri):
        for member, reader in compressed.tar_members(raw):
            if member.issparse() and wanted(member.name):
                raise InputError("a member is sparse", where=f"{piece.uri} member {member.name!r}", hint=_UNPACK)
            if reader is not None and wanted(member.name):
                if member.size > piece.longest:
                    where = f"{piece.uri} member {member.name!r}"
                    raise limits.too_long(where, piece.longest, "a member", got=f"{member.size} bytes")
                yield member.name, reader.read()


class _Thinned(Iterator[str]):
    """The lines of a table, for its reader; of a record that is too long, in time, only what says where it ends.

    Args:
        file: the table.
        watch: its reader says there which record it has read.
        longest: characters of a record, with some room.
        signs: the delimiter and the quote: any other character is like any other to the reader.
    """

    def __init__(self, file: io.TextIOWrapper, watch: _Watch, longest: int, signs: str) -> None:
        self._file, self._watch, self._most = file, watch, longest + 2 * _BUFFER
        self._others = re.compile(rf"[^\r\n{re.escape(signs)}]+")
        self._before, self._taken = watch.number, 0

    @property
    def is_long(self) -> bool:
        """Whether the record that was read last is too long."""
        return self._taken > self._most

    def __next__(self) -> str:
        if self._watch.number != self._before:
            self._before, self._taken = self._watch.number, 0
        parts = []
        while part := self._file.readline(_BUFFER):
            self._taken += len(part)
            parts.append(self._others.sub("x", part) if self.is_long else part)
            if part[-1] in "\r\n":
                break
        if not parts:
            raise StopIteration
        return "".join(parts)


class _Watch(io.RawIOBase):
    """The bytes of a piece, an error as soon as one record is longer than it may be.

    Whoever reads the records says in ``number`` which one it has.
    """

    def __init__(self, file: Any, piece: FileSlice) -> None:
        self._file, self._piece = file, piece
        self._left = None if piece.stop is None else piece.stop - piece.start
        if piece.start:
            file.seek(piece.start)
        self.number = self._before = piece.first - 1
        self.what = "line"
        self._taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.number != self._before:
            self._before, self._taken = self.number, 0
        # What was read ahead before the record began counts too.
        if self._taken > self._piece.longest + 2 * _BUFFER and not self._piece.aside:
            raise self.too_long(self.number + 1)
        count: int = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._taken += count
        if self._left is not None:
            self._left -= count
        return count

    def too_long(self, number: int) -> InputError:
        """Return what to raise for the record of this number."""
        return limits.too_long(f"{self._piece.uri} {self.what} {number + 1}", self._piece.longest)


class _Counted(io.RawIOBase):
    """A decompressed file, an error as soon as it is too many times as long as the file."""

    def __init__(self, file: Any, expanded: limits.Expansion) -> None:
        self._file, self._expanded = file, expanded

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer) or 0
        self._expanded.add(count)
        return count


@contextmanager
def _stream(piece: FileSlice, encoding: str) -> Iterator[tuple[Any, FileSlice]]:
    """Provide a file decompressed and in UTF-8, and what of that the piece is."""
    with piece.opened() as raw, compressed.damage(piece.uri), ExitStack() as stack:
        suffix = PurePosixPath(piece.path).suffix
        file: Any = raw
        if suffix in COMPRESSED:
            whole = stack.enter_context(compressed.decompressed(raw, suffix))
            expanded = limits.Expansion(piece.uri, lambda: piece.size, piece.expansion)
            file = io.BufferedReader(_Counted(whole, expanded), _BUFFER) if piece.size else whole
        if encoding == UTF8:
            yield file, piece
        else:
            yield io.BufferedReader(Recoded(file, piece, encoding), _BUFFER), replace(piece, start=0, stop=None)


@contextmanager
def _lines(piece: FileSlice, source: Readable | None = None) -> Iterator[tuple[io.BufferedReader, _Watch]]:
    """Provide a file of lines, decompressed and in UTF-8, from the piece's start to its stop."""
    encoding = source.dialect.encoding_in(piece.path) if source else UTF8
    with _stream(piece, encoding) as (file, part):
        lines, watch = _watched(file, part)
        if source and source.described_in and part.start == 0 and lines.peek(2)[:2] in _UTF16:
            hint = _line_for(piece, source, "utf-16")
            raise InputError("the file is UTF-16", where=piece.uri, expected=encoding, hint=hint)
        yield lines, watch


def _watched(file: Any, piece: FileSlice) -> tuple[io.BufferedReader, _Watch]:
    watch = _Watch(file, piece)
    return io.BufferedReader(watch, _BUFFER), watch


@contextmanager
def _text(
    piece: FileSlice, newline: str | None, source: Readable | None = None
) -> Iterator[tuple[io.TextIOWrapper, _Watch]]:
    # Invalid UTF-8 becomes surrogates, so that one bad line does not end the file.
    with _lines(piece, source) as (file, watch):
        # Only the start of a file has a byte order mark.
        encoding = "utf-8-sig" if newline == "" and piece.start == 0 else "utf-8"
        yield io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline=newline), watch


def _undecoded(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text)


READERS: Final[Mapping[str, Callable[[FileSlice, Readable], Iterator[Record]]]] = {
    ".parquet": parquet,
    ".jsonl": json_lines,
    ".json": json_file,
    ".csv": csv_dicts,
    ".tsv": csv_dicts,
    **dict.fromkeys(ARROW, arrow),
    **dict.fromkeys(DATABASES, database),
    **dict.fromkeys(WORKBOOKS, workbook),
}
"""By the extension of a file, without that of its compression: all of ``READABLE``."""

_MAKERS: Final = {".parquet": parquet, ".jsonl": json_lines, **dict.fromkeys(ARROW, arrow)}
"""Those of them that take a form of plain records."""
