"""What a source is: where it comes from, which raw files make which output, and one pure function per record."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.names import safe_name
from sources.origin import Origin

if TYPE_CHECKING:
    from sources.missing_paths import Watched
    from sources.slices import Piece


@dataclass(frozen=True)
class Drop:
    """A record that gives no row, and why: a short snake_case reason under which it is counted."""

    reason: str


@dataclass(frozen=True)
class Malformed(Drop):
    """A record that is not what its source promises: put aside under ``rejects/``, and too many fail the stage.

    Args:
        reason: as above.
        weight: for how many records it counts where too many fail the stage. 0: the published data set is known to
            hold such records. More than 1: others may be wrong too, and do not show it.
    """

    weight: int = 1


WITHHELD = "withheld_split"
"""The reason under which records of splits that are not trained on are counted."""


class Note(NamedTuple):
    """Something that happened to a record that is kept, counted beside its rows."""

    what: str
    times: int


FURTHER_TURNS = "further_turns"
"""What is noted of a conversation: its turns, a request and its answer each, behind the one that makes the row."""


class Finding(NamedTuple):
    """What a person is told of a malformed record.

    Args:
        found: what there was instead; empty = nothing that can be shown.
        write: the line of the source's description that takes such records, or leaves them out; empty = none does.
    """

    found: str
    write: str = ""


class To(NamedTuple):
    """A row and the label of the output that it belongs to, where a unit has one output per label."""

    label: str
    row: Row


Parsed = Row | To | Drop | Sequence[Row | To | Drop | Note]
"""What ``parse`` answers. Of a sequence rows are written; a drop or a note beside a row is noted, drops alone drop the
record."""


@dataclass(frozen=True)
class Unit:
    """Raw files that make outputs which no other unit writes to.

    Args:
        output: path of the output. With ``{}`` in it there is one output per label (:class:`To`), made of the rows of
            that label in the order of ``files``.
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

    @property
    def data_io(self) -> bool:
        """Whether the reference's rows are wanted, defects included."""
        return self.profile == "data_io"


@dataclass(frozen=True)
class Layout:
    """How a source's outputs are laid out, where the reference has a way of its own.

    Args:
        fields: order of the keys or columns; empty = as usual for the format.
        large: Arrow type large_string instead of string, and Zstandard instead of Snappy.
    """

    fields: tuple[str, ...] = ()
    large: bool = False


@dataclass(kw_only=True)
class SourceOptions:
    """Options of a source that has none. Others are dataclasses of :func:`pairmill.engine.stage.option` fields."""

    def when_named(self) -> Self:
        """The options where ``sources=`` names the source, rather than taking it with all others."""
        return self


Record = tuple[int | str, Any]
"""Where a record stands in its file (0-based row or line, or the name of an archive's member), and the record."""

Reader = Callable[["Piece", "Source", Profile], Iterator[Record]]


def checked(parsed: Parsed, profile: Profile) -> tuple[list[tuple[str, Row]], list[Drop]]:
    """The rows of a parsed record with their labels, and its drops, after the rules that hold for every source.

    In the default profile no row without text is written: nobody can learn from an empty response, and a null would
    become one a stage later. In both, text that is no Unicode (an unpaired surrogate) cannot be written at all.
    """
    found: list[tuple[str, Row]] = []
    drops: list[Drop] = []
    for part in parts_of(parsed):
        if isinstance(part, Note):
            continue
        if isinstance(part, Drop):
            drops.append(part)
            continue
        label, row = part if isinstance(part, To) else ("", part)
        if whole(row):
            found.append((label, row))
            continue
        problem = _problem(row, profile)
        if problem is None:
            found.append((label, row))
        elif isinstance(problem, Malformed):
            return [], [problem]
        else:
            drops.append(problem)
    return found, drops


def parts_of(parsed: Parsed) -> Sequence[Row | To | Drop | Note]:
    """What ``parse`` answered as a sequence."""
    return [parsed] if isinstance(parsed, Row | To | Drop) else parsed


def whole(row: Row) -> bool:
    """Whether both texts are there, say something and are Unicode."""
    _, instruction, response = row
    return bool(instruction and response and _says_something(instruction) and _says_something(response))


_SHOWN = 120
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist, _BRIEF.maxstring = 3, 8, 4, _SHOWN // 2


def shown(value: Any) -> str:
    """The beginning of a value as Python writes it; a long one is not written out."""
    text = _BRIEF.repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _says_something(text: str) -> bool:
    if text.isspace():
        return False
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _problem(row: Row, profile: Profile) -> Drop | None:
    for name, text in (("instruction", row.instruction), ("response", row.response)):
        if text is None:
            if profile == "pairmill":
                return Malformed(f"null_{name}")
        elif not text or text.isspace():
            if profile == "pairmill":
                return Drop(f"empty_{name}")
        elif not _says_something(text):
            return Malformed("unpaired_surrogate")
    return None


class Source(ABC):
    """A data set. One instance, without state; everything about the data set stands in its one file."""

    name: ClassVar[str]
    """Name of the source and of its folder below ``raw``."""
    version: ClassVar[int] = 1
    """Raised when the same raw file gives other rows than before."""
    origin: ClassVar[Origin]
    licence: ClassVar[str]
    """SPDX identifier, or the name under which the publisher states it."""
    citation: ClassVar[str]
    """Authors, title, year, where."""
    options: ClassVar[type[SourceOptions]] = SourceOptions
    layout: ClassVar[Layout] = Layout()
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields that ``parse`` reads; of Parquet these columns alone are read, and must be there. Empty: all."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Further fields, read where they are there."""
    described_in: ClassVar[str] = ""
    """URI of the file that describes the source; empty: its class does."""
    watched: ClassVar[tuple[Watched, ...]] = ()
    """Paths that some record of the source has to have."""
    lines_per_record: ClassVar[int] = 1
    """Of a file of lines: large ones are cut between records."""

    @abstractmethod
    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        """Units of the raw files (sorted paths). ``card`` is the text of README.md beside them, or empty."""

    @abstractmethod
    def parse(self, record: Any, context: Context) -> Parsed:
        """Rows of one raw record, as its reader gives it. Pure; a record of another shape is Malformed."""

    def explain(self, record: Any, why: Malformed) -> Finding:
        """What is wrong with a malformed record, in words. Called once for each reason of a shard."""
        return Finding(shown(record))

    def read(self, piece: Piece, profile: Profile) -> Iterator[Record]:
        """The records of a piece of a raw file, by the file's extension."""
        from sources.readers import read

        return read(piece, self, profile)

    def file_name(self, label: str, profile: Profile) -> str:
        """What stands for ``{}`` in a unit's output."""
        return safe_name(label)
