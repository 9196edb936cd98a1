"""The kept rows of a task in a file of the same format, and what is beside them.

A row group has the rows of at most BATCH_ROWS rows and about BATCH_BYTES bytes. Files of attributes have the same row
groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.curate.decide import Column
from components.curate.scores.pii import KINDS as PII_KINDS
from pairmill import _native, storage
from pairmill.engine.content import Content, pinned, whole
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import attributes, rows
from pairmill.formats.attributes import AttributesWriter
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.rows import BATCH_BYTES, BATCH_ROWS, ParquetWriter, Row, writer_for

VERSION: Final = 2
ORIGIN: Final = "origin"
"""The operation that a kept row's ordinal in the file that was given is an attribute of."""
_COPIED = 1 << 20


@dataclass
class Written:
    """The data of a record.

    Args:
        groups: rows of each row group.
        redacted: rows whose text was changed, and spans by kind.
    """

    groups: list[int]
    redacted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteRows(Shard[object]):
    """Writes the kept rows of a task.

    Args:
        file: the rows.
        path: of the file in the finished folder.
        removed: URI of the ordinals of rows that go; empty = none.
        dropped: how many go, by reason.
        beside: files of attributes of the input by operation.
        redact: what of the texts is replaced, JSON-like; empty = nothing.
        longest: bytes of the longest row.
    """

    file: InputFile
    path: str
    removed: str
    dropped: Mapping[str, int]
    beside: Mapping[str, InputFile]
    redact: bool
    longest: int

    @classmethod
    def of(
        cls,
        file: InputFile,
        path: str,
        beside: Mapping[str, InputFile],
        *,
        removed: str = "",
        digest: str = "",
        dropped: Mapping[str, int] | None = None,
        redact: str = "",
        longest: int,
    ) -> WriteRows:
        """The shard for a task; ``digest`` is of the rows that go, ``redact`` the identity of what is replaced."""
        dropped = dropped or {}
        identity = [[name, one.sha256] for name, one in sorted(beside.items())]
        key = content_key("curate write", VERSION, file.sha256, file.task, path, digest, identity, redact, dropped)
        gone = removed if dropped else ""
        return cls(f"write {file.task}", key, file.size, file, path, gone, dropped, beside, bool(redact), longest)

    def random_access(self) -> dict[str, Content]:
        return self.file.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        removed = load(self.removed)
        held_out = self.file.task.startswith(HELD_OUT)
        data = Written([])
        changed = bool(len(removed)) or self.redact
        count = self._rewrite(out, removed, data) if changed else self._copy(out, data)
        kept = np.delete(np.arange(count, dtype=np.int64), removed.astype(np.int64))
        if not held_out:
            self._write_beside(out, kept, data.groups)
        else:
            for name, one in sorted(self.beside.items()):
                _copy_file(out, one, _beside_path(self.file.task, name))
        ledger = Ledger(count, len(kept), 0 if held_out else len(kept), dropped=dict(self.dropped))
        if held_out:
            ledger.note("for_evaluation", count)
        if data.redacted.get("rows"):
            ledger.note("redacted", data.redacted["rows"])
            for kind in PII_KINDS:
                if data.redacted.get(kind):
                    ledger.measures[f"redacted_{kind}"] = data.redacted[kind]
        return ShardResult(ledger, asdict(data))

    def _copy(self, out: Writer, data: Written) -> int:
        """The file as it is: all rows stay."""
        _copy_file(out, self.file, self.path, task=self.file.task)
        if self.file.kind == "parquet":
            with rows.open_parquet(self.file.uri, self.file.content) as parquet:
                metadata = parquet.metadata
                data.groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        else:
            count = rows.count(self.file.uri, self.file.content, self.longest)
            data.groups = [min(BATCH_ROWS, count - at) for at in range(0, count, BATCH_ROWS)]
        return sum(data.groups)

    def _rewrite(self, out: Writer, removed: NDArray[np.uint32], data: Written) -> int:
        count = 0
        with ExitStack() as stack:
            local = stack.enter_context(out.create(self.path, task=self.file.task))
            with local.open("wb") as file, _writer(self.file, self.path, file) as writer:
                groups = _Groups(writer, data.groups)
                for batch in rows.read(self.file.uri, content=self.file.content, longest=self.longest):
                    start, stop = np.searchsorted(removed, [count, count + len(batch)])
                    keep = np.ones(len(batch), np.bool_)
                    keep[removed[start:stop].astype(np.int64) - count] = False
                    count += len(batch)
                    texts = [
                        column.filter(pa.array(keep)) for column in (batch.condition, batch.instruction, batch.response)
                    ]
                    if self.redact:
                        texts = _redacted(texts, data)
                    groups.add(texts)
                groups.flush()
            if data.groups and self.path.endswith(".parquet"):
                number_row_groups(local)
        return count

    def _write_beside(self, out: Writer, kept: NDArray[np.int64], groups: Sequence[int]) -> None:
        own = self.beside.get(ORIGIN)
        path = attributes.path_of(self.file.task, ORIGIN)
        if own is None:
            column: Any = pa.array(kept)
            with out.create(path) as local, local.open("wb") as file, AttributesWriter(file, ORIGIN_TYPES) as writer:
                for start, stop in _spans(groups):
                    writer.write(pa.table([column.slice(start, stop - start)], attributes.schema_of(ORIGIN_TYPES)))
        for name, one in sorted(self.beside.items()):
            with out.create(attributes.path_of(self.file.task, name)) as local:
                cut([(one.uri, one.content)], kept, groups, local, where=one.uri)


ORIGIN_TYPES: Final = {"ordinal": "integer"}


@dataclass(frozen=True)
class CutAttributes(Shard[object]):
    """Writes the attributes of a task's kept rows, of all operations that made some.

    Args:
        task: its name.
        removed: URI of the ordinals of rows that go; empty = none.
        files: by operation's name, those of all slices.
        groups: rows of each row group of the task's file.
    """

    task: str
    removed: str
    rows: int
    files: Mapping[str, Column]
    groups: tuple[int, ...]

    @classmethod
    def of(
        cls,
        task: str,
        rows: int,
        files: Mapping[str, Column],
        keys: object,
        *,
        removed: str,
        digest: str,
        groups: Sequence[int],
        size: int,
    ) -> CutAttributes:
        """The shard for a task; ``keys`` are those of the files, ``digest`` is of the rows that go."""
        key = content_key("curate attributes", VERSION, task, rows, keys, digest, list(groups))
        return cls(f"attributes {task}", key, size, task, removed, rows, files, tuple(groups))

    def run(self, context: object, out: Writer) -> ShardResult:
        kept = np.delete(np.arange(self.rows, dtype=np.int64), load(self.removed).astype(np.int64))
        for name, column in sorted(self.files.items()):
            with out.create(attributes.path_of(self.task, name)) as local:
                cut([(uri, None) for uri in column.uris], kept, self.groups, local, where=self.task)
        return ShardResult(Ledger())


def load(uri: str) -> NDArray[np.uint32]:
    """The ordinals of rows that go."""
    if not uri:
        return np.empty(0, np.uint32)
    with storage.store_for(uri).open(uri) as file:
        found: NDArray[np.uint32] = np.load(file)
    return found


def cut(
    files: Sequence[tuple[str, Content | None]],
    kept: NDArray[np.int64],
    groups: Sequence[int],
    local: Any,
    *,
    where: str,
) -> None:
    """Write the kept rows of files of attributes, joined, in row groups of these sizes."""
    writer: pq.ParquetWriter | None = None
    held: list[pa.RecordBatch] = []
    sizes, count, at, start = iter(groups), 0, 0, 0
    wanted = next(sizes, 0)

    def flush(rows_: int) -> None:
        nonlocal held, count
        assert writer is not None
        table = pa.Table.from_batches(held)
        writer.write_table(table.slice(0, rows_), row_group_size=max(1, rows_))
        rest = table.slice(rows_)
        held, count = rest.to_batches(), len(rest)

    with ExitStack() as stack:
        for uri, content in files:
            with _opened(uri, content) as source:
                parquet = pq.ParquetFile(source)
                if writer is None:
                    writer = stack.enter_context(
                        pq.ParquetWriter(
                            local,
                            parquet.schema_arrow.remove_metadata(),
                            compression="zstd",
                            version="2.6",
                            write_statistics=attributes.ordered(parquet.schema_arrow),
                        )
                    )
                for batch in parquet.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                    stop = start + len(batch)
                    end = int(np.searchsorted(kept, stop))
                    some = batch.take(pa.array(kept[at:end] - start)).replace_schema_metadata(None)
                    start, at = stop, end
                    if len(some):
                        held.append(some)
                        count += len(some)
                    while wanted and count >= wanted:
                        flush(wanted)
                        wanted = next(sizes, 0)
    if at != len(kept) or count:
        raise InputError(
            "a file of attributes has another number of rows than its task",
            where=where,
            got=f"{start} rows",
            expected=f"those of the task, of which {len(kept)} are kept",
            hint="make the input folder again",
        )


def _opened(uri: str, content: Content | None) -> Any:
    return pinned(uri, content) if content is not None else storage.store_for(uri).open(uri)


class _Groups:
    """Collects rows and writes them as row groups."""

    def __init__(self, writer: Any, sizes: list[int]) -> None:
        self._writer, self._sizes = writer, sizes
        self._held: list[list[pa.Array]] = []
        self._rows = self._bytes = 0

    def add(self, texts: list[pa.Array]) -> None:
        if not len(texts[0]):
            return
        size = sum(rows.text_bytes(column) for column in texts)
        if self._held and (self._rows + len(texts[0]) > BATCH_ROWS or self._bytes + size > BATCH_BYTES):
            self.flush()
        self._held.append(texts)
        self._rows += len(texts[0])
        self._bytes += size

    def flush(self) -> None:
        if not self._held:
            return
        if isinstance(self._writer, ParquetWriter):
            kind = self._writer.type
            joined = [pa.concat_arrays([one[at].cast(kind) for one in self._held]) for at in range(3)]
            self._writer.write_arrays(dict(zip(rows.FIELDS, joined, strict=True)))
        else:
            for one in self._held:
                self._writer.write(list(map(Row, *(column.to_pylist() for column in one))))
        self._sizes.append(self._rows)
        self._held, self._rows, self._bytes = [], 0, 0


def _writer(file: InputFile, path: str, opened: Any) -> Any:
    if file.kind != "parquet":
        return writer_for(path, opened)
    with rows.open_parquet(file.uri, file.content) as parquet:
        schema = parquet.schema_arrow
    fields = [name for name in schema.names if name in rows.FIELDS]
    large = any(pa.types.is_large_string(schema.field(name).type) for name in fields)
    return ParquetWriter(opened, fields, large=large)


def _redacted(texts: list[pa.Array], data: Written) -> list[pa.Array]:
    condition, *fields = texts
    changed = np.zeros(len(condition), np.bool_)
    made = [condition]
    for column in fields:
        replaced, spans = _native.curate_redact(column)
        made.append(pa.array(replaced))
        some = np.asarray(spans) > 0
        changed |= some
        if some.any():
            kinds = np.asarray(_native.curate_pii(column.filter(pa.array(some)))[3])
            for kind, count in zip(PII_KINDS, np.bincount(kinds, minlength=len(PII_KINDS)).tolist(), strict=True):
                data.redacted[kind] = data.redacted.get(kind, 0) + count
    data.redacted["rows"] = data.redacted.get("rows", 0) + int(changed.sum())
    return made


def _spans(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for size in groups:
        yield start, start + size
        start += size


def _beside_path(task: str, operation: str) -> str:
    held = HELD_OUT if task.startswith(HELD_OUT) else ""
    return held + attributes.path_of(task.removeprefix(held), operation)


def _copy_file(out: Writer, file: InputFile, path: str, task: str = "") -> None:
    with out.create(path, task=task) as local, local.open("wb") as copy, whole(file.uri, file.content) as source:
        while data := source.read(_COPIED):
            copy.write(data)
