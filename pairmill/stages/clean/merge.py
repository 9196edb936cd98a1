"""The second round of clean: segments of many shards, put together to outputs in order.

A large Parquet segment becomes a row group, and consecutive small ones become one row group. Memory follows the largest
segment.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.options import Profile
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from pairmill.formats import records as record_files
from pairmill.formats.parquet_reader import BATCH_BYTES
from pairmill.formats.rows import BATCH_ROWS
from pairmill.sources.quirks import QUIRKS
from pairmill.sources.source import OutputFormat, Source
from pairmill.stages.clean.cleaning import Cleaned
from pairmill.stages.clean.holdout import NOTE, Holdout, held_out_path
from pairmill.stages.clean.sides import Group, Side, opened, read_tables
from pairmill.stages.clean.sink import ATTRIBUTES, HASHES, RECORDS, SEGMENTS, Segment, task_of

Hashes = NDArray[np.uint64]

# The size of a shard of the second round, in bytes of segments and in outputs.
_SHARD_BYTES = 64 << 20
_SHARD_OUTPUTS = 256
# Parquet segments below this share a row group: readers pay for each one.
_SMALL = 1 << 20
_LONGEST_NAME = 160
# In UTF-8. With the data set's name before it and an ending after it, no name has more than the 255 that are allowed.
_LONGEST_BYTES = 200


@dataclass(frozen=True)
class _Part:
    """Segments of one shard, in order; ``folder`` is the shard's."""

    folder: str = field(metadata=unkeyed("a place; the segments have digests"))
    segments: tuple[Segment, ...]
    attributes: tuple[Segment, ...] = ()
    """Those of the rows of each segment, if there are any."""
    hashes: tuple[Segment, ...] = ()
    """8 bytes for each row of each segment, if rows are held out."""
    records: tuple[Segment, ...] = ()
    """Those that the rows of each segment are made of, if they are trained on."""


class _Piece(NamedTuple):
    """The rows of one segment as bytes, and what is beside them."""

    rows: bytes
    number: int
    attributes: bytes | None
    hashes: Hashes | None
    records: bytes | None

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.attributes or b"")


@dataclass(frozen=True)
class _Output:
    source: str
    path: str
    format: OutputFormat
    parts: tuple[_Part, ...]
    overwritten: int = 0
    """Rows of other labels that the reference loses to this one."""
    types: tuple[tuple[str, str], ...] = ()
    """Names and types of attributes."""
    holdout: Holdout | None = None

    @property
    def size(self) -> int:
        return sum(segment.size for part in self.parts for segment in (*part.segments, *part.attributes))

    @property
    def rows(self) -> int:
        return sum(segment.rows for part in self.parts for segment in part.segments)


@dataclass
class Merged:
    """The data of a merge's record.

    Args:
        outputs: rows by path of the output.
        overwritten: rows by source that the reference loses, because two labels have the same file name.
        held_out: rows by path of the file with those that are held out.
        held_out_of: the same by source.
    """

    outputs: dict[str, int]
    overwritten: dict[str, int]
    held_out: dict[str, int] = field(default_factory=dict)
    held_out_of: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MergeSegments(Shard[object], reads=()):
    """Puts outputs together from the segments of several shards."""

    work = "join parts of files"

    outputs: tuple[_Output, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        ledger = Ledger()
        overwritten: dict[str, int] = {}
        rows: dict[str, int] = {}
        held_out: dict[str, int] = {}
        held_out_of: dict[str, int] = {}
        for output in self.outputs:
            held = _merge(output, out)
            ledger.rows_in += output.rows + output.overwritten
            ledger.rows_kept += output.rows
            ledger.rows_out += output.rows - held
            if output.overwritten:
                ledger.drop("overwritten_by_a_task_of_the_same_file_name", output.overwritten)
            overwritten[output.source] = overwritten.get(output.source, 0) + output.overwritten
            rows[output.path] = output.rows - held
            if held:
                ledger.note(NOTE, held)
                held_out[held_out_path(output.path)] = held
                held_out_of[output.source] = held_out_of.get(output.source, 0) + held
        return ShardResult(ledger, asdict(Merged(rows, overwritten, held_out, held_out_of)))


def shards(
    records: list[ShardRecord], sources: Mapping[str, Source], profile: Profile, holdout: Holdout | None = None
) -> list[MergeSegments]:
    """Return the shards that merge the segments of these records, and hold out rows if that is asked for."""
    result: dict[tuple[str, str], dict[str, list[_Part]]] = {}
    for record in records:
        cleaned = record.read(Cleaned)
        if cleaned.segments is not None:
            labels = result.setdefault((cleaned.source, cleaned.output), {})
            others = [dict(some or ()) for some in (cleaned.attributes, cleaned.hashes, cleaned.records)]
            for label, segments in cleaned.segments:
                beside = (segments, *(some.get(label, ()) for some in others))
                part = _Part(record.folder, *(tuple(Segment(*item) for item in some) for some in beside))
                labels.setdefault(label, []).extend([part] if segments else [])
    made = []
    for (name, output), labels in result.items():
        outputs = list(_outputs(sources[name], output, labels, profile))
        if not outputs and "{}" not in output:  # several shards, and not one row
            outputs = [_Output(name, output, sources[name].format, ())]
        types = tuple(sources[name].attributes.items())
        outputs = [replace(item, types=types, holdout=holdout) for item in outputs]
        for group_name, group in _groups(output.replace("{}", "*"), outputs):
            size = sum(output.size for output in group)
            made.append(MergeSegments(tuple(group), name=group_name, size=size))
    return made


def _groups(name: str, outputs: list[_Output]) -> Iterator[tuple[str, list[_Output]]]:
    """Group outputs into shards: a large output is alone, small ones are grouped by a hash of their names.

    So if one output changes, all others stay in their groups and are reused.
    """
    small = [output for output in outputs if output.size < _SHARD_BYTES]
    wanted = max(sum(output.size for output in small) / _SHARD_BYTES, len(small) / _SHARD_OUTPUTS, 1)
    count = 1 << math.ceil(math.log2(wanted))
    buckets: dict[int, list[_Output]] = {}
    for output in small:
        buckets.setdefault(int(_digest(output.path), 16) % count, []).append(output)
    for number, bucket in sorted(buckets.items()):
        yield bucket[0].path if len(bucket) == 1 else f"{name} {number:05}", bucket
    for output in outputs:
        if output.size >= _SHARD_BYTES:
            yield output.path, [output]


def _outputs(source: Source, template: str, labels: Mapping[str, list[_Part]], profile: Profile) -> Iterator[_Output]:
    """Yield the outputs of a unit. Of labels with one file name data_io keeps the last; here others are renamed."""
    by_path: dict[str, list[str]] = {}
    for label in labels:
        name = source.file_name(label, profile)
        if not QUIRKS[profile].overwrite_outputs:
            name = _usable(name, label)
        by_path.setdefault(template.replace("{}", name), []).append(label)
    for path, sharing in by_path.items():
        if QUIRKS[profile].overwrite_outputs:
            lost = sum(segment.rows for label in sharing[:-1] for part in labels[label] for segment in part.segments)
            yield _Output(source.name, path, source.format, tuple(labels[sharing[-1]]), lost)
            continue
        plain = min(sharing, key=lambda label: (source.file_name(label, profile) != label, label))
        for label in sharing:
            name = path
            if label != plain:
                stem, dot, extension = path.rpartition(".")
                name = f"{stem}-{_digest(label)}{dot}{extension}"
            yield _Output(source.name, name, source.format, tuple(labels[label]))


def _usable(name: str, label: str) -> str:
    """Return a file name that is neither hidden nor too long for a file system, and no other label's."""
    data = name.encode()
    if len(name) > _LONGEST_NAME or len(data) > _LONGEST_BYTES or name.startswith("."):
        return f"{data[:_LONGEST_NAME].decode(errors='ignore').lstrip('.')}-{_digest(label)}"
    return name


def _digest(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:8]


def _merge(output: _Output, out: Writer) -> int:
    """Write an output, and what of it is held out; returns the rows of that."""
    types, task = dict(output.types), task_of(output.path)
    with ExitStack() as stack:
        training = stack.enter_context(opened(out, output.path, task, output.format, types))
        held: Side | None = None
        limit = hash_limit(output.holdout, _hashes(output), output.rows) if output.holdout else None
        for group in _groups_of_pieces(output):
            data, beside = [item.rows for item in group], [item.attributes for item in group if item.attributes]
            lines = [item.records for item in group if item.records]
            rows = Group(
                b"".join(data) if output.path.endswith(".jsonl") else read_tables(data),
                read_tables(beside) if beside else None,
                record_files.unpack(lines) if lines else None,
                sum(item.number for item in group),
            )
            if limit is None:
                training.add(rows)
                continue
            chosen = np.concatenate([item.hashes for item in group if item.hashes is not None]) < limit
            training.add(rows.filter(~chosen))
            if chosen.any():
                if held is None:
                    path = held_out_path(output.path)
                    held = stack.enter_context(opened(out, path, held_out_path(task), output.format, types, few=True))
                held.add(rows.filter(chosen))
    return held.rows if held is not None else 0


def _groups_of_pieces(output: _Output) -> Iterator[list[_Piece]]:
    """Yield the pieces that share a row group."""
    run: list[_Piece] = []
    size = rows = 0
    for piece in _pieces(output):
        if run and (piece.size >= _SMALL or size + piece.size > BATCH_BYTES or rows + piece.number > BATCH_ROWS):
            yield run
            run, size, rows = [], 0, 0
        run.append(piece)
        size += piece.size
        rows += piece.number
        if piece.size >= _SMALL:
            yield run
            run, size, rows = [], 0, 0
    if run:
        yield run


def _pieces(output: _Output) -> Iterator[_Piece]:
    for part in output.parts:
        if not part.segments:
            continue
        attributes = _segments(part.folder, ATTRIBUTES, part.attributes)
        hashes = _segments(part.folder, HASHES, part.hashes)
        lines = _segments(part.folder, RECORDS, part.records)
        for segment, rows in zip(part.segments, _segments(part.folder, SEGMENTS, part.segments), strict=True):
            beside = next(attributes, None) if output.types else None
            draws = np.frombuffer(next(hashes), "<u8") if output.holdout else None
            yield _Piece(rows, segment.rows, beside, draws, next(lines, None))


def hash_limit(holdout: Holdout, hashes: Iterable[Hashes], rows: int) -> np.uint64:
    """Return the hash below which a task's rows are held out.

    Args:
        holdout: how much is held out.
        hashes: of all rows of the task, in pieces; not read for a fraction.
        rows: of the task.
    """
    if holdout.fraction:
        # u = ((hash >> 11) + 0.5) / 2^53 < fraction, without rounding.
        return np.uint64(math.ceil(Fraction(holdout.fraction) * 2**53 - Fraction(1, 2)) << 11)
    wanted = min(holdout.rows, rows // 2)
    least = np.empty(0, np.uint64)
    for some in hashes:
        least = np.concatenate([least, some])
        if len(least) > wanted + 1:
            least = np.partition(least, wanted)[: wanted + 1]
    # The first row that does not fit: all rows of smaller hashes do, and so whole records.
    return np.uint64(least.max()) if rows else np.uint64(0)


def _hashes(output: _Output) -> Iterator[Hashes]:
    for part in output.parts:
        for data in _segments(part.folder, HASHES, part.hashes):
            yield np.frombuffer(data, "<u8")


def _segments(folder: str, name: str, segments: Sequence[Segment]) -> Iterator[bytes]:
    if not segments:
        return
    uri = storage.join(folder, name)
    with storage.store_for(uri).open(uri) as file:
        for segment in segments:
            file.seek(segment.offset)
            data = file.read(segment.size)
            if len(data) != segment.size:
                raise InternalError("a segment is truncated", where=uri, got=f"{len(data)} bytes")
            yield data
