"""Cleaning: a shard turns pieces of one source's raw files into rows, every record accounted for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pairmill._native import MadeRows, RowForm
from pairmill.engine import vanished
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.policing import REMOVED
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, limits, records
from pairmill.formats.file_slice import RANDOM_ACCESS, FileSlice
from pairmill.formats.jsonstream import Mended
from pairmill.formats.rows import FIELDS, Batch, RenderedRow, Row, WideRow
from pairmill.sources.files.card import BINARY, suffix_of
from pairmill.sources.files.dialect import UTF8
from pairmill.sources.files.recode import is_utf8
from pairmill.sources.language.attributes import convert, size_of
from pairmill.sources.language.missing_paths import Watch
from pairmill.sources.parsed import ANSWERS, WITHHELD, Labelled, Malformed, MalformedRecord, Note, parts_of, writable
from pairmill.sources.source import Context, Source, checked, is_complete, parse_record
from pairmill.stages.clean.answers import Answers
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.holdout import hash_of
from pairmill.stages.clean.limited import Beginning, count_records, records_of
from pairmill.stages.clean.signs import signs_in
from pairmill.stages.clean.sink import ATTRIBUTES, HASHES, RECORDS, SEGMENTS, Segments, Sink, task_of
from pairmill.stages.clean.tally import AttributesTally

SAMPLES = 3
_SAMPLE_TEXT = 600
_NAMED, _FILES = 3, 100


class Sources(NamedTuple):
    """What cleaning needs: the stage's options, and the sources by name."""

    config: CleanConfig
    by_name: Mapping[str, Source]


@dataclass
class Cleaned:
    """The data of a shard's record.

    Args:
        output: the output's path, with ``{}`` for the label; empty = no row is kept.
        rejects: malformed records.
        refused: how many of them count against the limit.
        reject_file: their file, below the shard's folder.
        reasons: by reason: how many records, how many count against the limit, the first one with what was found, and
            how many are in each of the first hundred files.
        samples: some rows.
        missed: see :class:`pairmill.sources.language.missing_paths.Watch`.
        instruction_bits: rows by the bit length of their instruction's number of characters.
        response_bits: the same of responses.
        segments: where the rows of each label are, where several shards share outputs. Pairs, because a record's keys
            are sorted, and the order in which labels were first seen counts.
        outputs: rows by path of the output that the shard wrote itself.
        attributes: segments of the attributes by label; one for each segment of rows.
        hashes: the same of the hashes that decide which rows are held out, 8 bytes a row.
        records: the same of the records that the rows are made of.
        said: what :class:`pairmill.stages.clean.tally.AttributesTally` says of the attributes.
        misread: by file: records that are UTF-8 and were read in another encoding; of the first hundred such files.
        answers: of chats: how many answers were found, how many are rows, and how many were skipped by reason.
        signs: columns of records without an answer, where no record is kept.
        examples: by reason the places of the first records that were dropped.
    """

    source: str
    output: str
    rejects: int
    refused: int
    reject_file: str
    reasons: dict[str, dict[str, Any]]
    samples: list[dict[str, str]]
    missed: Any
    instruction_bits: list[int]
    response_bits: list[int]
    segments: list[tuple[str, Segments]] | None = None
    outputs: dict[str, int] = field(default_factory=dict)
    attributes: list[tuple[str, Segments]] | None = None
    hashes: list[tuple[str, Segments]] | None = None
    records: list[tuple[str, Segments]] | None = None
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    misread: dict[str, int] = field(default_factory=dict)
    signs: list[str] = field(default_factory=list)
    examples: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CleanPieces(Shard[Sources], reads=("profile",)):
    """Cleans pieces of one unit, in order.

    Args:
        source: name of the source; ``version`` is its own.
        streamed: whether its files were streamed from the Hub: readers look at it.
        attributes: name and type of each attribute of its rows.
        output: path of the output, with ``{}`` for the label; empty = no row is kept.
        tag, labels: of the unit.
        pieces: what is cleaned.
        withheld: what is counted and dropped.
        paths: of both, below the raw folder.
        segmented: whether rows are written as segments.
        rejects: path of the file of malformed records.
        hashed: whether rows get the hashes that decide what is held out.
        removed: of files that a policy takes records out of, the lines from 1, or members, of these.
        unicode: the version of Python's own tables, which say where words end and what white space is.
    """

    work = "clean files"

    source: str
    version: int
    streamed: bool
    attributes: tuple[tuple[str, str], ...]
    output: str
    tag: str
    labels: tuple[str, ...]
    pieces: tuple[FileSlice, ...]
    withheld: tuple[FileSlice, ...]
    paths: tuple[str, ...]
    segmented: bool
    rejects: str
    hashed: bool
    removed: tuple[tuple[str, tuple[int | str, ...]], ...]
    unicode: str

    def random_access(self) -> Mapping[str, Content]:
        pieces = (*self.pieces, *self.withheld)
        return {
            piece.uri: piece.content
            for piece in pieces
            if suffix_of(piece.path) in RANDOM_ACCESS or isinstance(piece, Beginning)
        }

    def run(self, context: Sources, out: Writer) -> ShardResult:
        source, profile = context.by_name[self.source], context.config.profile
        where = ", ".join(piece.uri for piece in self.pieces[:_NAMED]) + ", …" * (len(self.pieces) > _NAMED)
        tally = _Tally(source, limits.Expansion(where, lambda: self.size, context.config.max_expansion))
        with ExitStack() as stack:

            def create(path: str, task: str = "") -> Path:
                return stack.enter_context(out.create(path, task=task, scratch=self.segmented))

            rejects = _Rejects(out, self, source, stack.enter_context(ExitStack()))
            cleaner = _Cleaner(source, Context(profile, self.tag), tally, rejects, self.hashed, dict(self.removed))
            ledger = cleaner.ledger
            for piece in self.withheld:
                ledger.rows_in += count_records(piece, source, profile)
            if ledger.rows_in:
                ledger.drop(WITHHELD, ledger.rows_in)
            if self.output:
                task = task_of(self.output)
                beside = ATTRIBUTES if self.segmented else attributes.path_of(task)
                types = source.attributes
                lines = RECORDS if self.segmented else records.path_of(task)
                files = (
                    create(beside) if types else None,
                    create(HASHES) if self.hashed else None,
                    create(lines) if task else None,
                )
                sink = Sink(
                    create(SEGMENTS) if self.segmented else create(self.output, task),
                    self.output,
                    source.format,
                    *files,
                    types=types,
                    segmented=self.segmented,
                    null_type_if_empty=cleaner.context.quirks.null_type_columns and not source.format.large,
                    labels=self.labels,
                )
                stack.enter_context(sink)
                for piece in self.pieces:
                    cleaner.clean(piece, sink)
        written = ledger.rows_out
        if source.use:  # they are no rows of the stages after it
            ledger.note(f"in_{source.use}", written)
            ledger.rows_out = 0
        segments, of_attributes, hashes, of_records = sink.segments() if self.output else (None, None, None, None)
        data = Cleaned(
            source=self.source,
            output=self.output,
            rejects=rejects.count,
            refused=rejects.refused,
            reject_file=self.rejects,
            reasons=rejects.reasons,
            samples=tally.samples,
            missed=cleaner.watch.missed(),
            instruction_bits=tally.instruction_bits,
            response_bits=tally.response_bits,
            segments=segments,
            outputs={self.output: written} if self.output and not self.segmented else {},
            attributes=of_attributes,
            hashes=hashes,
            records=of_records,
            said=tally.attributes.summarise(),
            answers=cleaner.answers.summary(),
            misread=rejects.misread,
            signs=signs_in(source, self.pieces, ledger, profile),
            examples=rejects.examples,
        )
        return ShardResult(ledger, asdict(data))


@dataclass
class _Tally:
    """Statistics of a shard's rows: lengths in characters by power of two, and a few rows as samples."""

    source: Source
    expanded: limits.Expansion
    instruction_bits: list[int] = field(default_factory=lambda: [0] * 40)
    response_bits: list[int] = field(default_factory=lambda: [0] * 40)
    samples: list[dict[str, str]] = field(default_factory=list)
    _next_sample: int = 1

    @cached_property
    def attributes(self) -> AttributesTally:
        """Return the tally of the source's attributes."""
        return AttributesTally(self.source.attributes)

    def add(self, number: int, row: Row) -> int:
        """Count the ``number``-th row; returns its characters."""
        instruction, response = len(row.instruction or ""), len(row.response or "")
        self.instruction_bits[instruction.bit_length()] += 1
        self.response_bits[response.bit_length()] += 1
        if number == self._next_sample:
            # Rows 1, 4, 13, 40, …: spread over a file of any length without a draw per row, odd and even in turn.
            self._next_sample = 3 * self._next_sample + 1
            self.samples.append({name: (text or "")[:_SAMPLE_TEXT] for name, text in row._asdict().items()})
            del self.samples[:-SAMPLES]
        self.expanded.add(instruction + response)
        return instruction + response

    def add_made(self, made: MadeRows, batch: Batch, characters: int) -> None:
        """Count the rows of a batch with as many characters."""
        for counts, more in zip((self.instruction_bits, self.response_bits), made.bits(), strict=True):
            counts[:] = map(add, counts, more)
        while (at := self._next_sample - 1 - batch.start) < len(batch):
            self._next_sample = 3 * self._next_sample + 1
            self.samples.append({name: getattr(batch, name)[at].as_py()[:_SAMPLE_TEXT] for name in FIELDS})
        del self.samples[:-SAMPLES]
        self.expanded.add(characters)


@dataclass
class _Cleaner:
    """Turns the records of a shard into rows, and counts what became of each."""

    source: Source
    context: Context
    tally: _Tally
    rejects: _Rejects
    hashed: bool
    removed: Mapping[str, Sequence[int | str]]
    ledger: Ledger = field(default_factory=Ledger)
    answers: Answers = field(default_factory=Answers)

    @cached_property
    def form(self) -> RowForm | None:
        """Return the form of plain records, if the source has one."""
        return self.source.row_form()

    @cached_property
    def watch(self) -> Watch:
        """Return what looks for misspelt paths."""
        return Watch(self.source.watched)

    def clean(self, piece: FileSlice, sink: Sink) -> None:
        """Clean a piece of a raw file."""
        source, profile, documents = self.source, self.context.profile, self.source.documents
        add, measure, ledger = sink.add, self.tally.add, self.ledger
        # Places as readers count them, from 0.
        removed = {place - 1 if type(place) is int else place for place in self.removed.get(piece.path, ())}
        plain = not source.attributes and not self.hashed
        look, sought = self.watch.look, self.watch.open
        file = f"{source.name}/{piece.path}"
        encoding = UTF8 if suffix_of(piece.path) in BINARY else source.dialect.encoding_in(piece.path)
        form = self.form if plain and not removed and encoding == UTF8 else None
        for place, record in source.joined(records_of(piece, source, profile, form), self.context):
            if type(record) is MadeRows:
                self._take_made(record, file, int(place), sink)
                continue
            ledger.rows_in += 1
            if removed and place in removed:
                ledger.drop(REMOVED)
                continue
            if type(record) is Mended:
                for what, times in record.mended.items():
                    ledger.note(what, times)
            # The path of a file that is one record is not part of it.
            if encoding != UTF8 and is_utf8(
                record["text"] if source.whole_files and type(record) is dict else record, encoding
            ):
                self.rejects.note_misread(piece)
                ledger.note(f"utf8_read_as_{encoding}")
            if sought:
                look(record)
            parsed = parse_record(source, record, self.context)
            # Most records: this is the inner loop of the stage.
            label, row = parsed if type(parsed) is Labelled else ("", parsed)
            if plain and type(row) is Row and is_complete(row, documents=documents):
                ledger.rows_kept += 1
                ledger.rows_out += 1
                add(label, row, measure(ledger.rows_out, row), file, place)
                continue
            result, drops = checked(parsed, profile, documents=documents)
            values: tuple[Any, ...] | Malformed = ()
            if result and source.attributes:
                values = self._values_of(record)
                if isinstance(values, Malformed):
                    result, drops = [], [values]
            if source.answers:
                self.answers.add(parsed, len(result), drops)
            if result:
                assert not isinstance(values, Malformed)
                more = size_of(values) if values else 0
                draw = hash_of(source, record, [row for _, row in result]) if self.hashed else 0
                self.tally.attributes.add(values, len(result))
                ledger.rows_kept += 1
                for label, row in result:
                    ledger.rows_out += 1
                    if isinstance(row, RenderedRow):
                        own = (row.chat, *values[1:])
                        add(
                            label,
                            row,
                            measure(ledger.rows_out, row) + len(row.chat) + more,
                            file,
                            place,
                            own,
                            hashed=draw,
                        )
                    else:
                        wide = row.size if isinstance(row, WideRow) else 0
                        add(label, row, measure(ledger.rows_out, row) + wide + more, file, place, values, hashed=draw)
                for drop in drops:
                    ledger.note(f"{drop.reason} (one answer left out)")
                for part in parts_of(parsed):
                    if isinstance(part, Note) and part.what != ANSWERS:
                        ledger.note(part.what, part.times)
            else:
                drop = drops[0]
                ledger.drop(drop.reason)
                self.rejects.note_dropped(piece, place, drop.reason)
                if isinstance(drop, Malformed):
                    self.rejects.add(piece, place, drop, record)

    def _take_made(self, made: MadeRows, file: str, place: int, sink: Sink) -> None:
        """Take the rows of consecutive records that are plain; the first of them is at a place."""
        ledger = self.ledger
        batch = Batch(ledger.rows_out, *(pa.array(column) for column in made.columns()))
        self.watch.open.clear()  # they have all paths
        asked, answered = made.lengths()
        prompts, responses = int(asked.sum()), int(answered.sum())
        self.tally.add_made(made, batch, prompts + responses)
        sink.add_made(batch, asked + answered, file, made.row_places() + place)
        ledger.rows_in += made.records
        ledger.rows_kept += made.records
        ledger.rows_out += len(made)
        if self.source.answers:
            self.answers.add_made(made, prompts, responses)
        if made.unanswered:
            ledger.note("unanswered_question", made.unanswered)

    def _values_of(self, record: Any) -> tuple[Any, ...] | Malformed:
        try:
            return convert(self.source.attributes_of(record, self.context), self.source.attributes)
        except MalformedRecord as error:
            return error.why


class _Rejects:
    """The file of malformed records, made when the first one comes."""

    def __init__(self, out: Writer, work: CleanPieces, source: Source, stack: ExitStack) -> None:
        self._out, self._work, self._source, self._stack = out, work, source, stack
        self._file: Any = None
        self.count = self.refused = 0
        self.misread: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}
        self.reasons: dict[str, dict[str, Any]] = {}
        """As in :class:`Cleaned`."""

    def add(self, piece: FileSlice, place: int | str, why: Malformed, record: Any) -> None:
        """Put a record aside."""
        if self._file is None:
            local = self._stack.enter_context(self._out.create(self._work.rejects))
            self._file = self._stack.enter_context(local.open("w", encoding="utf-8"))
        path = f"{self._work.source}/{piece.path}"
        # Readers count from 0; people and editors count from 1.
        row = place + 1 if isinstance(place, int) else None
        where = writable(f"member {place}" if row is None else f"row {row}")
        unread = isinstance(record, Malformed)
        self.count += 1
        self.refused += why.weight
        known = self.reasons.get(why.reason)
        # A line that can be mended says more than others of its reason.
        if known is None or (why.mendable and not known["write"]):
            finding = self._source.explain_unread(why) if unread else self._source.explain(record, why)
            self.reasons[why.reason] = {
                **(known or {"count": 0, "refused": 0, "files": {}}),
                "file": path,
                "place": where,
                "found": writable(finding.found),
                "write": writable(finding.write),
            }
        files = self.reasons[why.reason]["files"]
        if piece.path in files or len(files) < _FILES:
            files[piece.path] = files.get(piece.path, 0) + 1
        self.reasons[why.reason]["count"] += 1
        self.reasons[why.reason]["refused"] += why.weight
        line = {
            "file": path,
            "row": row,
            "place": where,
            "reason": why.reason,
            "record": None if unread else repr(record)[:2000],
        }
        # A text that is not valid Unicode can only be written with escapes.
        self._file.write(json.dumps(line, ensure_ascii=True) + "\n")

    def note_dropped(self, piece: FileSlice, place: int | str, reason: str) -> None:
        """Keep the places of the first records that are dropped for a reason."""
        some = self.examples.setdefault(reason, [])
        if len(some) < vanished.EXAMPLES:
            row = place + 1 if isinstance(place, int) else place
            some.append(writable(f"{self._work.source}/{piece.path}:{row}"))

    def note_misread(self, piece: FileSlice) -> None:
        """Count a record that is not malformed, and was read in another encoding than it is in."""
        if piece.path in self.misread or len(self.misread) < _FILES:
            self.misread[piece.path] = self.misread.get(piece.path, 0) + 1


def by_source(records: Sequence[ShardRecord]) -> dict[str, list[tuple[ShardRecord, Cleaned]]]:
    """Return the records of each source, with their data."""
    result: dict[str, list[tuple[ShardRecord, Cleaned]]] = {}
    for record in records:
        cleaned = record.read(Cleaned)
        result.setdefault(cleaned.source, []).append((record, cleaned))
    return result
