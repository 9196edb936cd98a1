"""The first records of some of the files, and how these are written, where that is not the usual way."""

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pairmill.begin.files import SAMPLED_RECORDS, RawFiles
from pairmill.errors import InputError
from pairmill.formats.file_slice import DATABASES, WORKBOOKS, FileSlice
from pairmill.formats.jsonstream import Outline
from pairmill.formats.parquet_reader import open_parquet
from pairmill.sources.files import databases, json_shapes
from pairmill.sources.files.card import COMPRESSED
from pairmill.sources.files.dialect import LENIENT, TABLES, UTF8, Dialect, Records
from pairmill.sources.files.readers import beginning, excel, whole_file
from pairmill.sources.origin import Folder
from pairmill.sources.parsed import Drop, Malformed, Parsed
from pairmill.sources.source import Context, Source

_HEAD = 1 << 20
_SAMPLED_CHARACTERS = 16 << 20
_DELIMITERS = {",": ",", ";": ";", "\t": "tab", "|": "|"}
_HEADER_CHARACTERS = 60
_TEXTS = (".jsonl", ".json", *TABLES)


class AnyRecord(Source):
    """Read all fields of the records of some files."""

    name = "init"
    origin = Folder("", ())

    def __init__(self, dialect: Dialect, described_in: str, *, whole_files: bool) -> None:
        vars(self).update(dialect=dialect, described_in=described_in, whole_files=whole_files)

    def parse(self, record: Any, context: Context) -> Parsed:
        return Drop("not_asked_for")

    def records(self, piece: FileSlice) -> Iterator[Any]:
        """Return the records of a file."""
        reading: Any = whole_file(piece, self.dialect.encoding) if self.whole_files else self.read(piece, "pairmill")
        with closing(reading):
            yield from (record for _, record in reading)


@dataclass
class Sample:
    """What was read.

    Args:
        pieces: the files that were looked at.
        lines: entries of the description that say how files are written.
        records: the first ones of each file.
        faults: how many records could not be read, by reason.
        rows: of all files; None = not known.
        is_estimate: whether ``rows`` follows from the size of the files that were not looked at.
        remarks: what a person should know.
    """

    pieces: list[FileSlice] = field(default_factory=list)
    lines: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    rows: int | None = None
    is_estimate: bool = False
    remarks: list[str] = field(default_factory=list)


def look(files: RawFiles, described_in: str, scratch: Path) -> Sample:
    """Read the first records of some files.

    Args:
        files: all of them.
        described_in: URI of the description, for messages.
        scratch: a folder of this machine.

    Raises:
        InputError: a file that is looked at cannot be read, or none has a record.
    """
    result = Sample()
    plain = AnyRecord(Dialect(), described_in, whole_files=not files.kind)
    result.pieces = [files.piece(path, scratch, plain) for path in files.sampled()]
    dialect = _dialect(result, files.kind)
    source = AnyRecord(dialect, described_in, whole_files=not files.kind)
    try:
        ended = sum(_read(result, source, piece) for piece in result.pieces)
    except InputError as error:
        if error.what != "not valid CSV":
            raise
        result.lines["quote"] = "none"
        result.records.clear()
        source = AnyRecord(replace(dialect, quote=""), described_in, whole_files=False)
        ended = sum(_read(result, source, piece) for piece in result.pieces)
    if not result.records:
        faults = ", ".join(f"{count:,} {reason}" for reason, count in result.faults.most_common())
        where, hint = result.pieces[0].uri, "see docs/sources.md for how files are written"
        raise InputError("no record can be read", where=where, got=faults or "empty files", hint=hint)
    _count(result, files, all_read=ended == len(files.sizes))
    return result


def _read(result: Sample, source: AnyRecord, piece: FileSlice) -> bool:
    """Add the first records of a file; return whether these are all."""
    taken = 0
    for number, record in enumerate(source.records(piece)):
        if number == SAMPLED_RECORDS or taken > _SAMPLED_CHARACTERS:
            return False
        if isinstance(record, Malformed):
            result.faults[record.reason] += 1
            if record.mendable:
                result.lines["json"] = LENIENT
        elif isinstance(record, dict):
            result.records.append(record)
            taken += sum(len(value) for value in record.values() if isinstance(value, str))
        else:
            result.faults["not_an_object"] += 1
    return True


def _dialect(result: Sample, kind: str) -> Dialect:
    """Return how the files are written, and note the lines that say it."""
    if kind in DATABASES:
        result.lines["query"] = query = _query(result)
        return Dialect(query=query)
    if kind in WORKBOOKS:
        sheets = excel(result.pieces[0].uri).sheets_of(result.pieces[0])
        if len(sheets) > 1:
            result.lines["sheet"] = sheets[0]
            result.remarks.append(f"sheet: {sheets[0]} was taken; there are also {', '.join(sheets[1:])}")
        return Dialect(sheet=sheets[0])
    if kind and kind not in _TEXTS:
        return Dialect()
    heads = {piece.path: beginning(piece, UTF8, _HEAD) for piece in result.pieces}
    encodings = {path: _encoding(head) for path, head in heads.items()}
    codecs_ = set(encodings.values())
    made = Dialect(encoding=codecs_.pop()) if len(codecs_) == 1 else Dialect()
    if made.encoding != UTF8:
        result.lines["encoding"] = made.encoding
    elif codecs_:
        others = {path.rsplit("/", 1)[-1]: codec for path, codec in encodings.items() if codec != UTF8}
        made, result.lines["encoding"] = replace(made, encodings=tuple(others.items())), others
        result.remarks.append("files have several encodings: those that were not looked at are taken for UTF-8")
    path = result.pieces[0].path
    head = heads[path].decode(made.encoding_in(path), "replace").removeprefix("\ufeff")
    if kind in TABLES:
        made = _table(result, made, head, kind)
    if kind == ".json" and head.lstrip()[:1] == "{" and not json_shapes.is_lines(head.encode()):
        head_ = beginning(result.pieces[0], made.encoding_in(path), json_shapes.HEAD)
        if way := json_shapes.way_to_records(Outline(head_)):
            result.lines["records"] = way
            made = replace(made, records=Records.parse(way))
    return made


def _query(result: Sample) -> str:
    """Return the query for all rows of the largest table of a database."""
    piece = result.pieces[0]
    tables: dict[str, tuple[int, str]] = {}
    for name in databases.tables_of(piece):
        quoted = '"' + name.replace('"', '""') + '"'
        for order, size in (("rowid", "max(rowid)"), ("1", "count(*)")):  # a view has no rowid
            rows = databases.rows_of(piece, f"SELECT {size} FROM {quoted}")  # noqa: S608
            with suppress(InputError):
                next(rows)
                tables[name] = next(rows)[1][0] or 0, f"SELECT * FROM {quoted} ORDER BY {order}"  # noqa: S608
                break
    if not tables:
        raise InputError("no table", where=piece.uri, expected="a table or a view")
    taken = max(tables, key=lambda name: tables[name][0])
    if others := [name for name in tables if name != taken]:
        result.remarks.append(f"query: table {taken} was taken; there are also {', '.join(others)}")
    return tables[taken][1]


def _encoding(head: bytes) -> str:
    """Return the encoding of a file, by its beginning: UTF-8 or UTF-16, or what Windows or Unix wrote before them."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    pair = head[:2000]
    if len(pair) > 3 and min(zeros := (pair[::2].count(0), pair[1::2].count(0))) * 8 < max(zeros) > len(pair) // 4:
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    for name in (UTF8, "cp1252"):
        try:
            # The last character may be cut.
            codecs.getincrementaldecoder(name)().decode(head)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _table(result: Sample, dialect: Dialect, head: str, kind: str) -> Dialect:
    lines = head.splitlines(keepends=True)
    whole = lines if len(lines) < 2 or head.endswith("\n") else lines[:-1]

    def shape(delimiter: str) -> tuple[int, int]:
        counts = Counter(len(fields) for fields in _fields(whole[:50], delimiter) if fields)
        width, often = max(counts.items(), key=lambda item: (item[0] > 1, item[1]), default=(0, 0))
        return (often if width > 1 else 0), width

    usual = dialect.between(kind)
    best = max(_DELIMITERS, key=lambda delimiter: (*shape(delimiter), delimiter == usual))
    if best != usual and shape(best)[0]:
        result.lines["delimiter"] = _DELIMITERS[best]
        dialect = replace(dialect, delimiter=best)
    header = next(_fields(whole[:1], dialect.between(kind)), [])
    odd = [name for name in header if not name.strip() or len(name) > _HEADER_CHARACTERS or _is_number(name)]
    if odd or len(set(header)) < len(header):
        names = [f"column_{number}" for number in range(1, len(header) + 1)]
        result.lines["header"] = names
        result.remarks.append(
            "the first line holds data and no header: columns are named in header:, change them as you like"
        )
        dialect = replace(dialect, header=tuple(names))
    return dialect


def _fields(lines: list[str], delimiter: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO("".join(lines), newline=""), delimiter=delimiter)
    except csv.Error:
        return


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdecimal()


def _count(result: Sample, files: RawFiles, *, all_read: bool) -> None:
    """Note how many records all files have, as far as that is known."""
    pieces, total = result.pieces, sum(files.sizes.values())
    size = sum(piece.size for piece in pieces)
    if all_read:
        result.rows = len(result.records) + sum(result.faults.values())
    elif not files.kind:
        result.rows = len(files.sizes)
    elif files.remote or any(path.endswith(COMPRESSED) for path in files.sizes):
        return
    elif files.kind == ".parquet":
        result.rows = 0
        for piece in pieces:
            with open_parquet(piece.uri) as file:
                result.rows += file.metadata.num_rows
    elif files.kind in (".jsonl", *TABLES):
        heads = [beginning(piece, UTF8, _HEAD) for piece in pieces]
        result.rows, size = sum(head.count(b"\n") for head in heads), sum(map(len, heads))
        result.rows -= len(heads) * (files.kind in TABLES and "header" not in result.lines)
    if result.rows is not None and files.kind and not all_read and size < total:
        result.rows, result.is_estimate = result.rows * total // max(1, size), True
