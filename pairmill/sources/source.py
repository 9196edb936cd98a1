"""What a source is: where it comes from, which raw files make which output, and one pure function per record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from pairmill._native import RowForm
from pairmill.engine.expect import Expectation
from pairmill.engine.options import Profile
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import RenderedRow, Row
from pairmill.sources.files.card import facts_of, hub_split
from pairmill.sources.files.dialect import Dialect
from pairmill.sources.files.splits import SourceOptions, SplitOptions, files_by_split
from pairmill.sources.language.missing_paths import Watched
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Origin
from pairmill.sources.parsed import (
    TOO_LONG,
    ChatCounts,
    Drop,
    Finding,
    Labelled,
    Malformed,
    MalformedRecord,
    Note,
    Parsed,
    Record,
    WrongAttribute,
    parts_of,
    shown,
)
from pairmill.sources.quirks import QUIRKS, Quirks

UNSTATED = "none stated"
"""The licence or citation of a source that does not say it."""


class Unit(NamedTuple):
    """Raw files that make outputs which no other unit writes to.

    Args:
        output: path of the output. With ``{}`` in it there is one output per label (:class:`Labelled`), made of the
            rows of that label in the order of ``files``.
        files: paths below the source's raw folder, in the order of the rows.
        withheld: further files, of splits that are not trained on: their records are counted and dropped.
        tag: what ``parse`` has to know about the unit.
        labels: labels that have an output even without a row.
    """

    output: str
    files: tuple[str, ...]
    withheld: tuple[str, ...] = ()
    tag: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """What ``parse`` knows beside the record."""

    profile: Profile
    tag: str = ""

    @cached_property
    def quirks(self) -> Quirks:
        """The defects of the reference to reproduce."""
        return QUIRKS[self.profile]


@dataclass(frozen=True)
class OutputFormat:
    """How a source's outputs are written, where the reference has a way of its own.

    Args:
        fields: order of the keys or columns; empty = as usual for the format.
        large: Arrow type large_string instead of string, and Zstandard instead of Snappy.
    """

    fields: tuple[str, ...] = ()
    large: bool = False


def load_readers() -> Any:
    """Return what reads records: it needs Arrow, a third of a start, and declarations of sources do without."""
    from pairmill.sources.files import readers

    return readers


_BESIDE = (Note, ChatCounts)


def parse_record(source: Source, record: Any, context: Context) -> Parsed:
    """Return what a source makes of a record, as its reader gave it."""
    if isinstance(record, Malformed):
        return record
    try:
        return source.parse(record, context)
    except MalformedRecord as error:
        return error.why


def checked(parsed: Parsed, profile: Profile, *, documents: bool = False) -> tuple[list[tuple[str, Row]], list[Drop]]:
    """Return the rows of a parsed record with their labels, and its drops, after the rules that hold for every source.

    The default profile writes no row without text: nobody can learn from an empty response, and the next stage reads
    a null as one. Text with an unpaired surrogate cannot be written in either profile.
    """
    result: list[tuple[str, Row]] = []
    drops: list[Drop] = []
    for part in parts_of(parsed):
        if isinstance(part, _BESIDE):
            continue
        if isinstance(part, Drop):
            drops.append(part)
            continue
        label, row = part if isinstance(part, Labelled) else ("", part)
        problem = None if is_complete(row, documents=documents) else _problem(row, QUIRKS[profile], documents)
        if isinstance(row, RenderedRow) and not _has_text(row.chat):  # what the template does not write is in it too
            problem = Malformed("unpaired_surrogate")
        if problem is None:
            result.append((label, row))
        elif isinstance(problem, Malformed):
            return [], [problem]
        else:
            drops.append(problem)
    return result, drops


def is_complete(row: Row, *, documents: bool = False) -> bool:
    """Return whether both texts are present, are more than white space, and are valid Unicode.

    A row of ``documents`` has an empty instruction, and its response is the document.
    """
    _, instruction, response = row
    if documents and instruction == "":
        return bool(response and _has_text(response))
    return bool(instruction and response and _has_text(instruction) and _has_text(response))


def _has_text(text: str) -> bool:
    if text.isspace():
        return False
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _problem(row: Row, quirks: Quirks, documents: bool) -> Drop | None:
    texts = [("instruction", row.instruction), ("response", row.response)]
    if documents and row.instruction == "":
        texts = [("text", row.response)]
    for name, text in texts:
        if text is None:
            if not quirks.write_nulls:
                return Malformed(f"null_{name}")
        elif not text or text.isspace():
            if not quirks.write_empty_texts:
                return Drop(f"empty_{name}")
        elif not _has_text(text):
            return Malformed("unpaired_surrogate")
    return None


class Source(ABC):
    """A data set. It has one instance, without state; its one file says everything about it."""

    name: ClassVar[str]
    """Name of the source and of its folder below ``raw``."""
    version: ClassVar[int] = 1
    """Raised when the same raw file gives other rows than before."""
    origin: ClassVar[Origin]
    licence: ClassVar[str]
    """SPDX identifier, or the name that the publisher gives it."""
    citation: ClassVar[str]
    """Authors, title, year, where."""
    language: ClassVar[str] = ""
    """BCP 47 tag, as ``da``; several joined by commas. Empty = what the card of its data set says."""
    output: ClassVar[str] = ""
    """Path of the one output, or with ``{}`` of one per label. Sources with several units override :meth:`units`."""
    format: ClassVar[OutputFormat] = OutputFormat()
    labels: ClassVar[tuple[str, ...]] = ()
    """Labels that have an output even without a row."""
    splits: ClassVar[tuple[str, ...]] = ("train",)
    """Splits on the Hub that are read, in this order."""
    config: ClassVar[str] = "default"
    """Configuration on the Hub."""
    options: ClassVar[type[SourceOptions]] = SourceOptions
    """:class:`pairmill.sources.files.splits.SplitOptions` where not all of ``splits`` are trained on."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields that ``parse`` reads. Of Parquet only these columns are read, and they must exist. Empty: all."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Further fields, read if they exist."""
    counted: ClassVar[tuple[str, ...]] = ()
    """Further fields of which only is counted how many records have them."""
    described_in: ClassVar[str] = ""
    """URI of the file that describes the source; empty: its class does."""
    watched: ClassVar[tuple[Watched, ...]] = ()
    """Paths that at least one record of the source must have."""
    lines_per_record: ClassVar[int] = 1
    """Of a file of lines: large files are cut between records."""
    dialect: ClassVar[Dialect] = Dialect()
    """How its text files are written."""
    rendering: ClassVar[Mapping[str, Any]] = {}
    """Of a source whose rows are rendered by a chat template: the template and how its rows are encoded."""
    tags: ClassVar[Mapping[str, str]] = {}
    """Its own condition tags, beside those that every tokenizer has, and their tokens."""
    documents: ClassVar[bool] = False
    """Whether its rows are documents: the response is the text, and the instruction is empty."""
    whole_files: ClassVar[bool] = False
    """Whether each file is one record, so that no file is cut."""
    answers: ClassVar[str] = ""
    """Of chats: which answers make rows, ``all`` or ``last``."""
    attributes: ClassVar[Mapping[str, str]] = {}
    """Type by name of what is written beside its rows (:mod:`pairmill.formats.attributes`), in the order of columns."""
    limit: ClassVar[int] = 0
    """The first this many records are read; 0 = all."""
    signs: ClassVar[tuple[str, ...]] = ()
    """Columns that say that records are prompts or pairs, where a source is described as if they were not."""
    use: ClassVar[str] = ""
    """What its results are for, if they are not rows (:mod:`pairmill.formats.uses`)."""
    expect: ClassVar[Expectation | None] = None
    """How many rows it gives, and which share of its records is kept; None = nothing is expected."""
    by_name_only: ClassVar[bool] = False
    """Whether ``all`` leaves it out where it would be downloaded: it takes terabytes."""

    def identify(self) -> object:
        """Return what a shard that has the source as a field is keyed by."""
        return [self.name, self.version, self.lines_per_record]

    def stated(self, card: str) -> dict[str, str]:
        """Return licence and language: as they are declared, else as the data set's card has them."""
        on_card = facts_of(card)
        licence = self.licence if self.licence != UNSTATED else on_card.get("licence", UNSTATED)
        language = self.language or on_card.get("language", "")
        return {"licence": licence, **({"language": language} if language else {})}

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        """Units of the raw files (sorted paths). ``card`` is the text of README.md beside them, or empty."""
        if isinstance(options, SplitOptions):
            taken, withheld = files_by_split(files, card, self.splits, options, profile, self.config)
            return [Unit(self.output, taken, withheld, labels=self.labels)]
        taken = tuple(path for split in self.splits for path in hub_split(files, card, split, self.config))
        return [Unit(self.output, taken, labels=self.labels)]

    @abstractmethod
    def parse(self, record: Any, context: Context) -> Parsed:
        """Return the rows of one raw record. A pure function.

        Raises:
            MalformedRecord: as returning Malformed does; the functions of :mod:`pairmill.sources.fields` raise it.
        """

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        """Return the values of ``attributes`` for all rows of a raw record; None or absent = no value. A pure function.

        Values are converted as :mod:`pairmill.sources.language.attributes` says; one that cannot be makes the record
        malformed.

        Raises:
            MalformedRecord: as in ``parse``.
        """
        return {}

    def takes(self, record: Any) -> bool:
        """Return whether a record is not malformed."""
        return not isinstance(parse_record(self, record, Context("pairmill")), Malformed)

    def first_question(self, record: Any, rows: Sequence[Row]) -> str:
        """Return what decides whether a record is held out: the first question that is asked in it, or a document's
        text.

        Args:
            record: as ``parse`` takes it.
            rows: all rows of the record, at least one.
        """
        return rows[0].instruction or rows[0].response or ""

    def explain(self, record: Any, why: Malformed) -> Finding:
        """Return what is wrong with a malformed record, in words. Called once per reason and shard."""
        return Finding(shown(why.value if isinstance(why, WrongAttribute) else record))

    def answering(self, answers: str) -> Source:
        """Return the source with other ``answers``, if its records are chats; itself if they are not, or for an empty
        text."""
        return self

    def explain_unread(self, why: Malformed) -> Finding:
        """Return the same of a record that could not be read."""
        return Finding("more bytes than max_record_bytes" if why == TOO_LONG else "")

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        """Return the records of a piece of a raw file, by the file's extension."""
        records: Iterator[Record] = load_readers().read(piece, self)
        return records

    def row_form(self) -> RowForm | None:
        """Return the form of records whose rows are made without ``parse``, and are the same; None = there is none.

        Such a record has every path of ``watched``.
        """
        return None

    def joined(self, records: Iterator[Record], context: Context) -> Iterator[Record]:
        """Return what ``parse`` gets of the records of a piece of a file: each, unless the source joins consecutive
        ones."""
        return records

    def file_name(self, label: str, profile: Profile) -> str:
        """Return what replaces ``{}`` in a unit's output."""
        return safe_name(label)
