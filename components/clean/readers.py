"""Raw files to records, one at a time, in file order: Parquet, JSON, JSON Lines, CSV, pairs of lines, archives.

Every reader yields ``(place, record)``: the 0-based row or line, or the name of an archive's member. A record that
cannot be read comes as Malformed, the ones after it unharmed; a file that cannot be read on raises InputError.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from components.clean.card import COMPRESSED, suffix_of
from components.clean.names import meant
from components.clean.origin import HubRows
from components.clean.pieces import Piece
from components.clean.source import Malformed, Reader, Record, Source
from pairmill import compressed, jsonstream, limits, rows
from pairmill.errors import InputError
from pairmill.stage import Profile

if TYPE_CHECKING:
    import pyarrow as pa

# Python's own 8 KiB hold few lines.
_BUFFER = 1 << 18
_END = "\n"
_UNPACK = "pack it again with plain members"


def read(piece: Piece, source: Source, profile: Profile) -> Iterator[Record]:
    """The records of a piece by the extension of its file."""
    readers: dict[str, Reader] = {
        ".parquet": parquet,
        ".jsonl": json_lines,
        ".json": json_file,
        ".csv": csv_dicts,
    }
    suffix = suffix_of(piece.path)
    if suffix not in readers:
        raise InputError("no reader for this kind of file", where=piece.uri, expected=", ".join(readers))
    return readers[suffix](piece, source, profile)


def count(piece: Piece, source: Source, profile: Profile) -> int:
    """How many records a piece has. The footer of a Parquet file says it; others are read through."""
    if suffix_of(piece.path) != ".parquet":
        return sum(1 for _ in source.read(piece, profile))
    with rows.open_parquet(piece.uri, piece.content) as file:
        metadata = file.metadata
        stop = metadata.num_row_groups if piece.stop is None else piece.stop
        return sum(metadata.row_group(group).num_rows for group in range(piece.start, stop))


def parquet(piece: Piece, source: Source, _profile: Profile) -> Iterator[Record]:
    """Rows as dicts of the source's fields.

    Raises:
        InputError: no Parquet, damaged, or without a column that the source reads.
    """
    with rows.open_parquet(piece.uri, piece.content) as file:
        columns = _columns(piece.uri, file.schema_arrow, source)
        groups = range(piece.start, file.metadata.num_row_groups if piece.stop is None else piece.stop)
        number = piece.first
        for batch in rows.parquet_batches(piece.uri, file, columns, groups, longest=piece.longest):
            for part in _parts(batch):
                for record in _records(part):
                    yield number, record
                    number += 1


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in stretches of rows that are not too much as Python's objects."""
    if batch.nbytes <= limits.BATCH_BYTES:
        yield batch
        return
    for start, length in limits.stretches(limits.record_bytes(batch), limits.BATCH_BYTES):
        yield batch.slice(start, length)


def _columns(uri: str, schema: pa.Schema, source: Source) -> list[str] | None:
    if isinstance(source.origin, HubRows):
        # They may have been fetched for another declaration, which did not read this column.
        rows.refuse_mixed(schema, {*source.fields, *source.optional}, uri)
    if not source.fields:
        _refuse_doubled(uri, schema.names, source)
        return None
    for name in source.fields:
        if name not in schema.names:
            raise InputError(
                f"column {name!r} is missing",
                where=uri,
                got=", ".join(schema.names),
                expected=", ".join(source.fields),
                hint=_meant(name, schema.names) or f"is this the data set that {source.name} stands for?",
            )
    _refuse_doubled(uri, schema.names, source)
    return [name for name in schema.names if name in source.fields or name in source.optional]


def _meant(column: str, names: Iterable[str]) -> str:
    close = meant(column, names)
    return f"did you mean {close!r}?" if close else ""


def _records(batch: pa.RecordBatch) -> Iterator[Any]:
    names = batch.schema.names
    try:
        columns = [column.to_pylist() for column in batch.columns]
    except UnicodeDecodeError:
        for row in range(len(batch)):
            try:
                yield batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield Malformed("invalid_utf8")
        return
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def json_lines(piece: Piece, _source: Source, _profile: Profile) -> Iterator[Record]:
    """One JSON value a line; empty lines are passed over. NaN and Infinity are taken."""
    with _lines(piece) as lines:
        yield from _json_values(lines, piece)


def _json_values(lines: IO[bytes], piece: Piece) -> Iterator[Record]:
    # json.loads would look for the encoding of every line, and for white space around it.
    decode = json.JSONDecoder().raw_decode
    longest = piece.longest
    # A line feed more, and its carriage return.
    for number, line in enumerate(iter(partial(lines.readline, longest + 2), b""), piece.first):
        if len(line) > longest and len(line.rstrip(b"\r\n")) > longest:
            raise limits.too_long(f"{piece.uri} line {number + 1}", longest)
        stripped = line.strip() if number else line.removeprefix(codecs.BOM_UTF8).strip()
        if not stripped:
            continue
        try:
            text = str(stripped, "utf-8", "surrogatepass")
            value, end = decode(text)
            yield number, value if end == len(text) else Malformed("invalid_json")
        except UnicodeDecodeError:
            yield number, Malformed("invalid_utf8")
        except (ValueError, RecursionError):
            yield number, Malformed("invalid_json")


def json_file(piece: Piece, source: Source, profile: Profile) -> Iterator[Record]:
    """The elements of a JSON array, or JSON Lines under the name ``.json``."""
    if PurePosixPath(piece.path).suffix in COMPRESSED:
        yield from json_lines(piece, source, profile)
        return
    # Opened once: what the first byte says is then true of all others.
    with piece.opened() as file:
        if jsonstream.is_array(file):
            yield from enumerate(jsonstream.array(piece.uri, piece.longest, file))
        else:
            yield from _json_values(io.BufferedReader(cast(Any, file), _BUFFER), piece)


def json_object(piece: Piece, _source: Source, _profile: Profile) -> Iterator[Record]:
    """The whole file as one record."""
    with piece.opened() as file:
        data = file.read(piece.longest + 1)
        if len(data) > piece.longest:
            raise limits.too_long(piece.uri, piece.longest, "the file, which is one record,")
    yield 0, whole_json(data)


def whole_json(data: bytes) -> Any:
    """Bytes that are one strict JSON value, or why they are none."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        return Malformed("invalid_utf8")
    except (ValueError, RecursionError):
        return Malformed("invalid_json")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def csv_fields(piece: Piece, _source: Source, _profile: Profile) -> Iterator[Record]:
    """Fields of each line but the first, a header whatever it says."""
    for number, fields in _csv(piece):
        if number:
            yield number, fields


def csv_dicts(piece: Piece, source: Source, _profile: Profile) -> Iterator[Record]:
    """Rows by the names in the header line. Empty lines are none; with another number of fields a row is malformed.

    Raises:
        InputError: no CSV, a record that is too long, or a column that is read is missing or there twice.
    """
    header: list[str] = []
    if piece.first:
        with closing(_csv(piece.head())) as beginning:
            header = next(beginning)[1]
    for number, fields in _csv(piece):
        if number == 0:
            if isinstance(fields, Malformed):
                raise InputError("the header is not UTF-8", where=piece.uri, hint="mend the raw data")
            header = fields
            _check_header(piece.uri, header, source)
        elif isinstance(fields, Malformed):
            yield number, fields
        elif not fields:
            continue  # an empty line
        elif len(fields) != len(header):
            yield number, Malformed("another_number_of_fields")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _check_header(uri: str, header: Sequence[str], source: Source) -> None:
    missing = [name for name in source.fields if name not in header]
    if missing:
        raise InputError(
            f"column {missing[0]!r} is missing",
            where=uri,
            got=", ".join(map(str, header)),
            expected=", ".join(source.fields),
            hint=_meant(missing[0], header),
        )
    _refuse_doubled(uri, header, source)


def _refuse_doubled(uri: str, names: Sequence[str], source: Source) -> None:
    """Raise InputError where nobody can tell which of two columns is the one that is read."""
    for name in (*source.fields, *source.optional) or names:
        if name and names.count(name) > 1:
            raise InputError(
                f"column {name!r} is there {names.count(name)} times",
                where=uri,
                got=", ".join(names),
                expected="once",
                hint="rename the columns in the file",
            )


def _csv(piece: Piece) -> Generator[tuple[int, Any], None, None]:
    csv.field_size_limit(piece.longest)
    with _text(piece, newline="") as file:
        lines = _RecordLines(file, piece)
        reader = csv.reader(lines, strict=True)
        try:
            for number, fields in enumerate(reader, piece.first):
                lines.size = 0
                yield number, Malformed("invalid_utf8") if _undecoded("".join(fields)) else fields
        except csv.Error as error:
            where = f"{piece.uri} line {piece.first + reader.line_num}"
            raise InputError("is not CSV", where=where, got=str(error)) from error


class _RecordLines:
    """Lines of a CSV file. A record goes on over lines while a quote is open, which may never be closed."""

    def __init__(self, file: io.TextIOWrapper, piece: Piece) -> None:
        self._read, self._piece = partial(file.readline, piece.longest + 2), piece
        self._number = piece.first
        self.size = 0
        """Bytes of the record's lines so far. Whoever takes a record sets it to 0."""

    def __iter__(self) -> _RecordLines:
        return self

    def __next__(self) -> str:
        line = self._read()
        if not line:
            raise StopIteration
        self.size += len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))
        self._number += 1
        # The end of the line does not count.
        if self.size > self._piece.longest and self.size - len(line) + len(line.rstrip("\r\n")) > self._piece.longest:
            raise limits.too_long(f"{self._piece.uri} line {self._number}", self._piece.longest)
        return line


def line_pairs(piece: Piece, _source: Source, profile: Profile) -> Iterator[Record]:
    """(line, next line), each stripped; the last line without a partner is malformed.

    Behind an empty line nobody can tell questions from answers, and nothing else would show it: what follows it is
    malformed too, but for data_io, which takes empty lines like others. Empty lines at the end do no harm.
    """
    question: str | None = None
    empty = False
    place = 0
    longest = piece.longest
    with _text(piece, newline=None) as file:
        for number, line in enumerate(iter(partial(file.readline, longest + 1), ""), piece.first):
            text = line.strip()
            if len(line) > longest // 8 and limits.is_longer(line.rstrip(_END), longest):
                raise limits.too_long(f"{piece.uri} line {number + 1}", longest)
            if not text and profile == "pairmill":
                empty = True
                continue
            if question is None:
                question, place = text, number
                continue
            if len(question) + len(text) > longest // 8 and limits.is_longer(question + text, longest):
                raise limits.too_long(f"{piece.uri} lines {place + 1} and {number + 1}", longest)
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


def tar_members(piece: Piece, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Regular files of a tar archive whose names are ``wanted``, in its order: name and content.

    Raises:
        InputError: it is no archive, or a damaged or cut one, or a member is too long or sparse.
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


class _Part(io.RawIOBase):
    """Bytes [start, stop) of a file."""

    def __init__(self, file: BinaryIO, start: int, stop: int) -> None:
        self._file, self._left = file, stop - start
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _lines(piece: Piece) -> Iterator[IO[bytes]]:
    """A file of lines, decompressed, from the piece's start to its stop."""
    with piece.opened() as raw, compressed.damage(piece.uri):
        suffix = PurePosixPath(piece.path).suffix
        if suffix in COMPRESSED:
            with compressed.decompressed(raw, suffix) as file:
                yield io.BufferedReader(cast(Any, file), _BUFFER)
        elif piece.stop is not None:
            yield io.BufferedReader(_Part(raw, piece.start, piece.stop), _BUFFER)
        else:
            yield io.BufferedReader(cast(Any, raw), _BUFFER)


@contextmanager
def _text(piece: Piece, newline: str | None) -> Iterator[io.TextIOWrapper]:
    # What is no UTF-8 becomes surrogates, so that one bad line does not end the file.
    with _lines(piece) as file:
        # A byte order mark stands at the start of a file, and only there.
        encoding = "utf-8-sig" if newline == "" and piece.start == 0 else "utf-8"
        yield io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline=newline)


def _undecoded(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text)
