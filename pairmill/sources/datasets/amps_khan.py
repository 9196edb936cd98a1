"""AMPS, Khan Academy part (``amps/khan/**/*.json``, unpacked or in ``amps.tar.gz``): problems and hints in steps."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import Row
from pairmill.sources.datasets.ampsmathematica import AMPS, AMPS_CITATION, amps_archives
from pairmill.sources.fields import list_of_texts, text_or_null
from pairmill.sources.parsed import Parsed, Record
from pairmill.sources.source import Context, Source, Unit, load_readers

_KHAN = re.compile(r"(?:.*/)?amps/khan/(.+)$")


def _place(path: str) -> tuple[tuple[bool, str], ...]:
    """Sorts the files of a folder before those of its folders."""
    folders = _KHAN.sub(r"\1", path).split("/")
    name = folders.pop()
    return (*((True, folder) for folder in folders), (False, name))


def _wanted(path: str) -> bool:
    return path.endswith(".json") and not any(part.startswith(".") for _, part in _place(path))


class AmpsKhan(Source):
    """One record per file: the problem, and its hints one below the other.

    The reference takes the files as the file system lists them, and writes problems without a hint.
    """

    name = "amps_khan"
    origin = AMPS
    licence = "none stated (Khan Academy's terms: CC-BY-NC-SA)"
    citation = AMPS_CITATION

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        khan = [path for path in files if _KHAN.match(path)] or files
        result = tuple(sorted(filter(_wanted, khan), key=_place))
        return [Unit("data/amps_khan.jsonl", result or amps_archives(files))]

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        whole: Iterator[Record] = load_readers().json_object(piece) if piece.path.endswith(".json") else _members(piece)
        return whole

    def parse(self, record: Any, context: Context) -> Parsed:
        problem = text_or_null(record, "problem")
        if context.quirks.hints_by_character and isinstance(record.get("hints"), str):
            record = {**record, "hints": list(record["hints"])}
        hints = list_of_texts(record, "hints")
        return Row("noisy,cot", problem, "\n".join(hints).strip())


def _members(piece: FileSlice) -> Iterator[Record]:
    """Yield the files of an archive in the order that they have when unpacked; the last one of a name counts."""
    readers = load_readers()
    with tempfile.TemporaryFile() as content:
        places: dict[str, tuple[int, int]] = {}
        for name, data in readers.tar_members(piece, lambda name: bool(_KHAN.match(name)) and _wanted(name)):
            places[name] = content.tell(), len(data)
            content.write(data)
        for name in sorted(places, key=_place):
            start, size = places[name]
            content.seek(start)
            yield name, readers.whole_json(content.read(size))
