"""A record as its raw file has it: where the file is, the record's text, and of Parquet its row group."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pairmill import storage
from pairmill.engine.listing import list_results
from pairmill.errors import InputError
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.records import RecordId
from pairmill.formats.row_groups import RowGroups
from pairmill.sources.files import raw as raw_files
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.origin import Folder
from pairmill.sources.parsed import Malformed, Parsed
from pairmill.sources.source import UNSTATED, Context, Source

_HINT: Final = "name the folder of raw files or of fetch with raw=, and YAML sources with sources="


class RawRecord(NamedTuple):
    """A raw record.

    Attributes:
        text: of the record: as it is, or as JSON.
        row_group: of a Parquet file, from 0; -1 of others.
    """

    uri: str
    text: str
    row_group: int


class _Undescribed(Source):
    """A source whose YAML file was not given: its records are read as they are."""

    licence = citation = UNSTATED
    origin = Folder("", ())

    def __init__(self, name: str) -> None:
        vars(self)["name"] = name

    def parse(self, record: Any, context: Context) -> Parsed:
        raise NotImplementedError


def read_record(
    record: RecordId, about: Mapping[str, Any], root: str, raw: str = "", source: Source | None = None
) -> RawRecord:
    """Read one raw record; a file of lines is read up to it.

    Args:
        about: what clean says of its source.
        root: project below which fetch put raw files.
        raw: folder of raw files or of fetch; empty = those below the project.
        source: that it is of; None = one that is not known here, whose files are read by their names.

    Raises:
        InputError: the file is not there, or does not have the record.
    """
    source = source or _Undescribed(record.source)
    piece = FileSlice(record.path, _find_file(record, about, root, raw, source))
    row_group, wanted = -1, record.member or record.line - 1
    if record.path.endswith(".parquet"):
        with RowGroups(piece.uri) as groups:
            row_group, first = groups.holding(record.line - 1)
        piece = replace(piece, start=row_group, stop=row_group + 1, first=first)
    reading: Any = source.read(piece, "pairmill")
    with closing(reading):
        for place, value in reading:
            if place == wanted:
                return RawRecord(piece.uri, _text_of(value), row_group)
    raise InputError("the raw file does not have this record", where=piece.uri, got=str(record), hint=_HINT)


def _text_of(value: Any) -> str:
    if isinstance(value, Malformed):
        return f"({value.reason})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _find_file(record: RecordId, about: Mapping[str, Any], root: str, raw: str, source: Source) -> str:
    places: list[str] = []
    for folder in _folders(root, raw, source):
        places.append(folder.uri)
        # A folder of files that others made has no revision.
        known = folder.about.get("revision", about.get("revision"))
        if record.path in folder.sizes and known == about.get("revision"):
            return folder.uri_of(record.path)
    raise InputError(
        "the raw file is not at hand",
        where=f"raw={raw}" if raw else root,
        got=", ".join(places) or "no raw files of this source",
        expected=f"{record.path} at revision {about.get('revision', 'as it was cleaned')}",
        hint=_HINT,
    )


def _folders(root: str, raw: str, source: Source) -> Iterator[RawFolder]:
    """Yield the folders that may have the raw files of a source; one that was changed or removed since is none."""
    indexes = [storage.normalise(raw, "raw")] if raw else [item.uri for item in list_results(root, ["fetch"])]
    for uri in indexes:
        try:
            index = raw_files.index(uri)
            folder = raw_files.folder_of(source, uri) if index is None else index.get(source.name)
        except InputError:
            continue
        if folder is not None:
            yield folder
    origin = getattr(source, "origin", None)
    if isinstance(origin, Folder):
        yield raw_files.open_folder(source, origin)
