"""The second round of clean: segments of many shards, put together to outputs in order.

A large Parquet segment becomes a row group, and consecutive small ones become one row group. Memory follows the largest
segment.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from components.clean.cleaning import Cleaned
from components.clean.sink import SEGMENTS, Segment, task_of
from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.options import Profile
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.rows import BATCH_BYTES, BATCH_ROWS, ParquetWriter
from sources.quirks import QUIRKS
from sources.source import OutputFormat, Source

# The size of a shard of the second round, in bytes of segments and in outputs.
_SHARD_BYTES = 64 << 20
_SHARD_OUTPUTS = 256
# Parquet segments below this share a row group: readers pay for each one.
_SMALL = 1 << 20
_LONGEST_NAME = 160


class _Part(NamedTuple):
    """Segments of one shard, in order; ``folder`` is the shard's."""

    folder: str
    key: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class _Output:
    source: str
    path: str
    format: OutputFormat
    parts: tuple[_Part, ...]
    overwritten: int = 0
    """Rows of other labels that the reference loses to this one."""

    @property
    def identity(self) -> list[object]:
        """What its bytes follow from: the segments' bytes, whichever shard wrote them."""
        digests = [one.sha256 or [part.key, *one] for part in self.parts for one in part.segments]
        return [self.source, self.path, asdict(self.format), digests, self.overwritten]

    @property
    def size(self) -> int:
        return sum(segment.size for part in self.parts for segment in part.segments)

    @property
    def rows(self) -> int:
        return sum(segment.rows for part in self.parts for segment in part.segments)


@dataclass
class Merged:
    """The data of a merge's record.

    Args:
        outputs: rows by path of the output.
        overwritten: rows by source that the reference loses, because two labels have the same file name.
    """

    outputs: dict[str, int]
    overwritten: dict[str, int]


@dataclass(frozen=True)
class MergeSegments(Shard[object]):
    """Puts outputs together from the segments of several shards."""

    outputs: tuple[_Output, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        ledger = Ledger()
        overwritten: dict[str, int] = {}
        for output in self.outputs:
            with out.create(output.path, task=task_of(output.path)) as local:
                write = _write_lines if output.path.endswith(".jsonl") else _write_parquet
                write(output, local)
            ledger.rows_in += output.rows + output.overwritten
            ledger.rows_kept += output.rows
            ledger.rows_out += output.rows
            if output.overwritten:
                ledger.drop("overwritten_by_a_task_of_the_same_file_name", output.overwritten)
            overwritten[output.source] = overwritten.get(output.source, 0) + output.overwritten
        rows = {output.path: output.rows for output in self.outputs}
        return ShardResult(ledger, asdict(Merged(rows, overwritten)))


def shards(
    records: list[ShardRecord], sources: Mapping[str, Source], profile: Profile, version: int
) -> list[MergeSegments]:
    """The shards that merge the segments of these records."""
    found: dict[tuple[str, str], dict[str, list[_Part]]] = {}
    for record in records:
        cleaned = record.read(Cleaned)
        if cleaned.segments is not None:
            labels = found.setdefault((cleaned.source, cleaned.output), {})
            for label, segments in cleaned.segments:
                part = _Part(record.folder, record.key, tuple(Segment(*one) for one in segments))
                labels.setdefault(label, []).append(part)
    made = []
    for (name, output), labels in found.items():
        outputs = list(_outputs(sources[name], output, labels, profile))
        if not outputs and "{}" not in output:  # several shards, and not one row
            outputs = [_Output(name, output, sources[name].format, ())]
        for group_name, group in _groups(output.replace("{}", "*"), outputs):
            key = content_key("clean merge", version, [item.identity for item in group])
            made.append(MergeSegments(group_name, key, sum(item.size for item in group), tuple(group)))
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
    """Outputs of a unit. If labels have the same file name, data_io keeps the last; here all but one are renamed."""
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
    """A file name that is neither hidden nor too long for a file system, and no other label's."""
    if len(name) > _LONGEST_NAME or name.startswith("."):
        return f"{name[:_LONGEST_NAME].lstrip('.')}-{_digest(label)}"
    return name


def _digest(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:8]


def _segments(output: _Output) -> Iterator[tuple[Segment, bytes]]:
    for part in output.parts:
        uri = storage.join(part.folder, SEGMENTS)
        with storage.store_for(uri).open(uri) as file:
            for segment in part.segments:
                file.seek(segment.offset)
                data = file.read(segment.size)
                if len(data) != segment.size:
                    raise InternalError("a segment is truncated", where=uri, got=f"{len(data)} bytes")
                yield segment, data


def _write_lines(output: _Output, local: Path) -> None:
    with local.open("wb") as file:
        for _, data in _segments(output):
            file.write(data)


def _write_parquet(output: _Output, local: Path) -> None:
    with local.open("wb") as file, ParquetWriter(file, **_layout(output.format)) as writer:
        run: list[bytes] = []
        size = rows = 0
        for segment, data in _segments(output):
            if segment.size >= _SMALL or size + segment.size > BATCH_BYTES or rows + segment.rows > BATCH_ROWS:
                _write_group(writer, run)
                run, size, rows = [], 0, 0
            run.append(data)
            size += segment.size
            rows += segment.rows
            if segment.size >= _SMALL:
                _write_group(writer, run)
                run, size, rows = [], 0, 0
        _write_group(writer, run)
    if output.rows:
        number_row_groups(local)


def _layout(layout: OutputFormat) -> dict[str, Any]:
    return {"large": layout.large} | ({"fields": layout.fields} if layout.fields else {})


def _write_group(writer: ParquetWriter, segments: list[bytes]) -> None:
    """Write segments as one row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if segments:
        table = pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in segments])
        writer.write_arrays({name: table[name] for name in table.column_names})
