"""Raw files to records, one at a time, in file order: Parquet, JSON Lines, JSON arrays, CSV, and dmmath's text pairs.

Every reader yields ``(place, record)``; ``place`` says where in the file ("row 812", "line 813"). A record that cannot
be read, with the ones after it unharmed, comes as Malformed; a file that cannot be read on raises InputError.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from components.clean.source import Malformed
from pairmill import jsonstream, rows, storage
from pairmill.errors import InputError
from pairmill.stage import Profile

if TYPE_CHECKING:
    import pyarrow as pa

Record = tuple[str, Any]


def read(uri: str, profile: Profile) -> Iterator[Record]:
    """The records of a raw file by its extension."""
    suffix = PurePosixPath(storage.name_of(uri)).suffix
    readers: dict[str, Callable[[str, Profile], Iterator[Record]]] = {
        ".parquet": _parquet,
        ".jsonl": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".txt": _pairs,
    }
    return readers[suffix](uri, profile)


def _parquet(uri: str, _profile: Profile) -> Iterator[Record]:
    number = 0
    with rows.open_parquet(uri) as file:
        for batch in rows.parquet_batches(uri, file, None):
            for record in _records(batch):
                yield f"row {number}", record
                number += 1


def _records(batch: pa.RecordBatch) -> Iterator[Any]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for row in range(len(batch)):
            try:
                yield batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield Malformed("invalid_utf8")


def _jsonl(uri: str, _profile: Profile) -> Iterator[Record]:
    for number, line in jsonstream.lines(uri):
        try:
            yield f"line {number}", json.loads(line)
        except UnicodeDecodeError:
            yield f"line {number}", Malformed("invalid_utf8")
        except (ValueError, RecursionError):
            yield f"line {number}", Malformed("invalid_json")


def _json(uri: str, profile: Profile) -> Iterator[Record]:
    if not jsonstream.is_array(uri):
        yield from _jsonl(uri, profile)
        return
    for number, record in enumerate(jsonstream.array(uri)):
        yield f"row {number}", record


def _csv(uri: str, _profile: Profile) -> Iterator[Record]:
    """Fields of each line but the first, a header whatever it says."""
    with _text(uri, newline="") as file:
        reader = csv.reader(file)
        try:
            for number, fields in enumerate(reader):
                if number:
                    yield f"line {reader.line_num}", fields
        except csv.Error as error:
            raise InputError("is not CSV", where=f"{uri} line {reader.line_num}", got=str(error)) from error
        except UnicodeDecodeError as error:
            raise _not_utf8(uri) from error


def _pairs(uri: str, profile: Profile) -> Iterator[Record]:
    """(line, next line), each stripped. An odd count fails; so does, but for data_io, an empty line before the end.

    An empty line means that questions and answers are out of step from there on, which nothing else would show.
    """
    number = 0
    empty_line = 0
    question = ""
    with _text(uri, newline=None) as file:
        try:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if profile == "pairmill":
                    if not text:
                        empty_line = empty_line or number
                        continue
                    if empty_line:
                        raise InputError(
                            "an empty line puts questions and answers out of step",
                            where=f"{uri} line {empty_line}",
                            hint="remove it, or restore what stood there",
                        )
                if number % 2:
                    question = text
                else:
                    yield f"line {number - 1}", (question, text)
        except UnicodeDecodeError as error:
            raise _not_utf8(uri) from error
    last = empty_line - 1 if empty_line else number
    if last % 2:
        raise InputError(
            "a question without an answer", where=f"{uri} line {last}", got=f"{last} lines", expected="an even number"
        )


def _text(uri: str, newline: str | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(storage.store_for(uri).open(uri), encoding="utf-8", newline=newline)


def _not_utf8(uri: str) -> InputError:
    # Text is decoded in blocks, so the place where decoding failed says little; look for the line.
    with storage.store_for(uri).open(uri) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                got = repr(line[error.start : error.end])
                return InputError("is not UTF-8", where=f"{uri} line {number}", got=got, hint="mend the raw data")
    return InputError("is not UTF-8", where=uri)
