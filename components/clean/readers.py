"""Raw files to records, one at a time, in file order: Parquet, JSON, JSON Lines, CSV, pairs of lines, archives.

Every reader yields ``(place, record)``: the 0-based row or line, or the name of an archive's member. A record that
cannot be read comes as Malformed, the ones after it unharmed; a file that cannot be read on raises InputError.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from components.clean.card import COMPRESSED, suffix_of
from components.clean.names import meant
from components.clean.origin import HubRows
from components.clean.pieces import Piece
from components.clean.source import Malformed, Reader, Record, Source
from pairmill import compressed, jsonstream, rows
from pairmill.errors import InputError
from pairmill.stage import Profile

if TYPE_CHECKING:
    import pyarrow as pa

# No text of an archive is longer; a member that claims to be is not read into memory.
_LONGEST_MEMBER = 64 << 20
_LONGEST_FIELD = 64 << 20
# Python's own 8 KiB hold few lines.
_BUFFER = 1 << 18


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
        for batch in rows.parquet_batches(piece.uri, file, columns, groups):
            for record in _records(batch):
                yield number, record
                number += 1


def _columns(uri: str, schema: pa.Schema, source: Source) -> list[str] | None:
    if isinstance(source.origin, HubRows):
        # They may have been fetched for another declaration, which did not read this column.
        rows.refuse_mixed(schema, {*source.fields, *source.optional}, uri)
    if not source.fields:
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
    for number, line in enumerate(lines, piece.first):
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
            yield from enumerate(jsonstream.array(piece.uri, file))
        else:
            yield from _json_values(io.BufferedReader(cast(Any, file), _BUFFER), piece)


def json_object(piece: Piece, _source: Source, _profile: Profile) -> Iterator[Record]:
    """The whole file as one record."""
    with piece.opened() as file:
        data = file.read()
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
    """Rows by the names in the header line. Empty lines are none; with another number of fields a row is malformed."""
    header: list[str] = []
    if piece.first:
        with closing(_csv(piece.head())) as beginning:
            header = next(beginning)[1]
    for number, fields in _csv(piece):
        if number == 0:
            if isinstance(fields, Malformed):
                raise InputError("the header is not UTF-8", where=piece.uri, hint="mend the raw data")
            header = fields
            missing = [name for name in source.fields if name not in header]
            if missing:
                raise InputError(
                    f"column {missing[0]!r} is missing",
                    where=piece.uri,
                    got=", ".join(map(str, header)),
                    expected=", ".join(source.fields),
                    hint=_meant(missing[0], header),
                )
        elif isinstance(fields, Malformed):
            yield number, fields
        elif not fields:
            continue  # an empty line
        elif len(fields) != len(header):
            yield number, Malformed("another_number_of_fields")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _csv(piece: Piece) -> Generator[tuple[int, Any], None, None]:
    csv.field_size_limit(_LONGEST_FIELD)
    with _text(piece, newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for number, fields in enumerate(reader, piece.first):
                yield number, Malformed("invalid_utf8") if _undecoded("".join(fields)) else fields
        except csv.Error as error:
            where = f"{piece.uri} line {piece.first + reader.line_num}"
            raise InputError("is not CSV", where=where, got=str(error)) from error


def line_pairs(piece: Piece, _source: Source, profile: Profile) -> Iterator[Record]:
    """(line, next line), each stripped; the last line without a partner is malformed.

    Behind an empty line nobody can tell questions from answers, and nothing else would show it: what follows it is
    malformed too, but for data_io, which takes empty lines like others. Empty lines at the end do no harm.
    """
    question: str | None = None
    empty = False
    place = 0
    with _text(piece, newline=None) as file:
        for number, line in enumerate(file, piece.first):
            text = line.strip()
            if not text and profile == "pairmill":
                empty = True
                continue
            if question is None:
                question, place = text, number
                continue
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


def tar_members(piece: Piece, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | Malformed]]:
    """Regular files of a tar archive whose names are ``wanted``, in its order: name and content.

    Content that is longer than any text is comes as Malformed.

    Raises:
        InputError: it is no archive, or a damaged or cut one.
    """
    with piece.opened() as raw, compressed.damage(piece.uri):
        for member, reader in compressed.tar_members(raw):
            if reader is not None and wanted(member.name):
                fits = member.size <= _LONGEST_MEMBER
                yield member.name, reader.read() if fits else Malformed("longer_than_64_MiB")


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
