"""Token files of other programs, read in bounded memory: Parquet with ``input_ids``, and indexed data of Megatron-LM.

Parquet is what a tokenized data set of the ``datasets`` library is. One record is one sample:

- ``input_ids``: a list of integers.
- ``labels``: the same ids where a token is trained on, and -100 elsewhere. They are not shifted: a label belongs to the
  id at its own position, as Hugging Face's models expect it. Or one of ``loss_mask``, ``completion_mask``,
  ``assistant_masks``: 1 where a token is trained on, 0 elsewhere. Without any of them a sample is a document.
- ``attention_mask``: 0 at padding, which is left out.
- ``position_ids``: only looked at, because a second 0 in a sample says that several are packed in it.

Megatron-LM's indexed data set is a pair of files (megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM).
``.bin`` has the ids of all sequences. ``.idx`` is little-endian: the magic ``MMIDIDX\\0\\0``, the version 1 (uint64),
the code of the ids' type (uint8), the numbers of sequences and of entries of the document index (uint64). Then come the
length of each sequence in ids (int32), its first byte in ``.bin`` (int64), and the document index (int64): the first
sequence of each document, and at its end the number of sequences.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.content import UNKNOWN, Content, pinned
from pairmill.errors import InputError
from pairmill.formats import limits, rows
from pairmill.formats.limits import EXPANSION, RECORD_BYTES
from pairmill.formats.parquet_reader import expansion_of, open_parquet, parquet_batches
from pairmill.formats.slices import FileSlice

Ints = NDArray[np.int64]

EXTENSIONS = ("parquet", "bin", "idx")
IGNORED = -100
"""The label of a token that is not trained on."""

_IDS, _LABELS, _PADDING, _POSITIONS = "input_ids", "labels", "attention_mask", "position_ids"
_MASKS = ("loss_mask", "completion_mask", "assistant_masks")
_BATCH_BYTES = 4 << 20
_BATCH_SAMPLES = 1024

HEADER = struct.Struct("<9sQBQQ")
MAGIC = b"MMIDIDX\0\0"
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
# Documents whose part of the index is read at once.
_INDEXED = 4096


@dataclass(frozen=True)
class Samples:
    """Consecutive samples of one file, which may be empty.

    Args:
        start: number of the first one in the file, from 0.
        ids: integers [n] of any type and value.
        offsets: int64 [samples + 1]; sample i has ``ids[offsets[i]:offsets[i + 1]]``.
        trained: bool [n]; None = the samples are documents.
    """

    start: int
    ids: NDArray[Any]
    offsets: Ints
    trained: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


def runs(marked: NDArray[np.bool_], offsets: Ints) -> tuple[Ints, Ints]:
    """Return the longest stretches of marked elements, none of which goes on into the next sample.

    Args:
        marked: bool [n].
        offsets: int64 [samples + 1], from 0 to n.

    Returns:
        The first element of each, and the first one after it; in order.
    """
    size = len(marked)
    first = np.zeros(size + 1, np.bool_)
    first[offsets] = True
    open_ = np.zeros(size + 1, np.bool_)
    open_[1:] = marked
    closed = np.zeros(size + 1, np.bool_)
    closed[:size] = marked
    begins = np.flatnonzero(closed & (~open_ | first))
    ends = np.flatnonzero(open_ & (~closed | first))
    return begins, ends


# Parquet


def read_parquet(
    uri: str, part: FileSlice | None = None, *, content: Content = UNKNOWN, longest: int = RECORD_BYTES
) -> Iterator[Samples]:
    """Yield the samples of a Parquet file in order.

    Args:
        part: row groups to read; None = all.
        content: the expected content of the file.
        longest: maximum bytes of a record.

    Raises:
        Changed: the file has another content.
        InputError: with file and row: truncated Parquet, no column ``input_ids``, a column that is not lists of
            integers, a null, lists of different lengths, a label that is neither -100 nor the id, padding between
            tokens, several samples in one, or too long a record.
    """
    with open_parquet(uri, content) as file:
        columns = _columns(uri, file.schema_arrow)
        start = part.first if part else 0
        groups = range(file.metadata.num_row_groups)
        if part and part.stop is not None:
            groups = range(part.start, part.stop)
        expanded = expansion_of(uri, file, groups, part.expansion if part else EXPANSION)
        for group in groups:
            meta = file.metadata.row_group(group)
            # A column that says -100 throughout takes a few bytes of the file and eight a token of memory.
            paths = [meta.column(number) for number in range(meta.num_columns)]
            values = sum(item.num_values for item in paths if item.path_in_schema.split(".", 1)[0] in columns)
            most = min(_BATCH_SAMPLES, max(1, _BATCH_BYTES * meta.num_rows // max(1, 8 * values)))
            only = range(group, group + 1)
            for batch in parquet_batches(
                uri, file, columns, groups=only, most=most, size=_BATCH_BYTES, longest=longest, expanded=expanded
            ):
                yield _samples(uri, start, batch)
                start += len(batch)


def _columns(uri: str, schema: pa.Schema) -> list[str]:

    if _IDS not in schema.names:
        raise InputError(
            f"column {_IDS!r} is missing",
            where=uri,
            got=", ".join(schema.names),
            expected=f"{_IDS}, a list of token ids, and {_LABELS}",
            hint="these are rows: give them as rows="
            if set(rows.FIELDS) <= set(schema.names)
            else f"write the column of token ids under the name {_IDS}",
        )
    present = [name for name in (_LABELS, *_MASKS) if name in schema.names]
    if len(present) > 1:
        raise InputError(
            "several columns say which tokens are trained on",
            where=uri,
            got=", ".join(present),
            hint=f"write the file without {' and '.join(present[1:])}, or without {present[0]}",
        )
    result = [_IDS, *present, *(name for name in (_PADDING, _POSITIONS) if name in schema.names)]
    for name in result:
        if schema.names.count(name) > 1:
            raise InputError(f"column {name!r} exists twice", where=uri)
        kind = schema.field(name).type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        number = listed and (pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type))
        if not number or (name == _IDS and pa.types.is_boolean(kind.value_type)):
            raise InputError(
                f"column {name!r} is not a list of integers", where=uri, got=str(kind), expected="list<int32>"
            )
    return result


def _samples(uri: str, start: int, batch: pa.RecordBatch) -> Samples:
    ids, offsets = _flat(uri, start, _IDS, batch.column(_IDS))
    others: dict[str, NDArray[Any]] = {}
    for name in batch.schema.names:
        if name != _IDS:
            others[name], mine = _flat(uri, start, name, batch.column(name))
            if not np.array_equal(mine, offsets):
                row = int(np.flatnonzero(np.diff(mine) != np.diff(offsets))[0])
                raise InputError(
                    f"{name} and {_IDS} differ in length",
                    where=f"{uri} row {start + row + 1}",
                    got=f"{mine[row + 1] - mine[row]:,}",
                    expected=f"{offsets[row + 1] - offsets[row]:,}",
                )

    def refuse(what: str, wrong: NDArray[np.bool_], values: NDArray[Any], expected: str, hint: str) -> None:
        if wrong.any():
            place = int(wrong.argmax())
            row = int(np.searchsorted(offsets, place, side="right")) - 1
            where = f"{uri} row {start + row + 1}, token {place - int(offsets[row]) + 1}"
            raise InputError(what, where=where, got=str(values[place]), expected=expected, hint=hint)

    for name in (_PADDING, *_MASKS):
        if name in others:
            values = others[name]
            refuse(f"{name} is neither 0 nor 1", (values != 0) & (values != 1), values, "0 or 1", "")
    if _PADDING in others:
        kept = others.pop(_PADDING) != 0
        begins, _ = runs(kept, offsets)
        again = np.zeros(len(kept), np.bool_)
        places = np.searchsorted(offsets, begins, side="right")
        again[begins[1:][places[1:] == places[:-1]]] = True
        hint = "padding is left out before the first token and after the last one; join or drop such samples"
        refuse("padding between two tokens of a sample", again, kept.astype(np.int8), "one stretch of tokens", hint)
        ids, others = ids[kept], {name: values[kept] for name, values in others.items()}
        offsets = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]
    if _POSITIONS in others:
        positions = others[_POSITIONS]
        packed = positions == 0
        packed[offsets[:-1][np.diff(offsets) > 0]] = False
        hint = "write one sample a record: a record is one sequence here"
        refuse("several samples are packed in one record", packed, positions, "positions that go on", hint)
    trained = None
    if _LABELS in others:
        labels = others[_LABELS]
        trained = labels != IGNORED
        wrong = trained & (labels != ids)
        hint = "labels are not shifted here: labels[i] belongs to input_ids[i]"
        refuse("the label is neither -100 nor the id at its place", wrong, labels, "-100 or that id", hint)
    for name in _MASKS:
        trained = others[name] != 0 if name in others else trained
    return Samples(start, ids, offsets, trained)


def _flat(uri: str, start: int, name: str, column: Any) -> tuple[NDArray[Any], Ints]:
    """Return the values of a column of lists, and int64 [rows + 1] offsets."""

    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise InputError(f"{name} is null", where=f"{uri} row {start + row + 1}", expected="a list of integers")
    if pa.types.is_fixed_size_list(column.type):
        values = column.flatten()
        offsets = np.arange(len(column) + 1, dtype=np.int64) * column.type.list_size
    else:
        raw = np.asarray(column.offsets).astype(np.int64)
        values = column.values.slice(raw[0], raw[-1] - raw[0])
        offsets = raw - raw[0]
    if values.null_count:
        place = values.is_null().index(True).as_py()
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        raise InputError(f"{name} has a null", where=f"{uri} row {start + row + 1}", expected="integers")
    return np.asarray(values), offsets


# Megatron-LM


class Index(NamedTuple):
    """The ``.idx`` file of a Megatron-LM data set.

    Args:
        dtype: of the ids in ``.bin``.
        content: what the file has to be.
    """

    uri: str
    dtype: np.dtype[Any]
    sequences: int
    documents: int
    content: Content = UNKNOWN

    @classmethod
    def open(cls, uri: str, content: Content = UNKNOWN) -> Self:
        """Read the header.

        Raises:
            InputError: not such a file, of a version or a type that is not known, or of another size than it says.
        """
        with pinned(uri, content) as file:
            head = file.read(HEADER.size)
        if not head.startswith(MAGIC) or len(head) < HEADER.size:
            raise InputError(
                "not an index of Megatron-LM",
                where=uri,
                got=f"{head[:9]!r}",
                expected=repr(MAGIC),
                hint="write it again with tools/preprocess_data.py of Megatron-LM, as an mmap data set",
            )
        _, version, code, sequences, entries = HEADER.unpack(head)
        if version != 1:
            raise InputError("an index of another version", where=uri, got=str(version), expected="1")
        if code not in TYPES:
            known = ", ".join(f"{number} ({np.dtype(name).name})" for number, name in TYPES.items())
            raise InputError("the type of the ids is not of integers", where=uri, got=f"code {code}", expected=known)
        size = storage.store_for(uri).size(uri)
        expected = HEADER.size + 12 * sequences + 8 * entries
        if size != expected or not entries:
            raise InputError(
                "the index has another size than its header says",
                where=uri,
                got=f"{size:,} bytes",
                expected=f"{expected:,} for {sequences:,} sequences and {entries:,} entries of documents",
                hint="copy it again; it may be truncated. Data of several modalities are not read",
            )
        return cls(uri, np.dtype(TYPES[code]), sequences, entries - 1, content)

    def read(self, uri: str, part: FileSlice | None = None, *, longest: int = RECORD_BYTES) -> Iterator[Samples]:
        """Yield documents in order; a document is the ids of its sequences, one after another.

        Args:
            uri: of the ``.bin`` file.
            part: of the ``.bin`` file, with the documents to read in place of row groups; None = all.
            longest: maximum bytes of a document.

        Raises:
            Changed: a file has another content.
            InputError: the files do not fit together, or a document is too long.
        """
        start, stop = (part.start, part.stop) if part and part.stop is not None else (0, self.documents)
        content = part.content if part else UNKNOWN
        with pinned(self.uri, self.content) as index, pinned(uri, content) as tokens:
            size = storage.store_for(uri).size(uri)
            for first in range(start, stop, _INDEXED):
                last = min(stop, first + _INDEXED)
                yield from self._documents(range(first, last), index, tokens, uri, size, longest)

    def _documents(
        self, documents: range, index: BinaryIO, tokens: BinaryIO, uri: str, size: int, longest: int
    ) -> Iterator[Samples]:
        first, last = documents.start, documents.stop
        bounds = self._values(index, 12 * self.sequences + 8 * first, last - first + 1, "<i8")
        ends = (first == 0 and bounds[0] != 0) or (last == self.documents and bounds[-1] != self.sequences)
        if ends or (np.diff(bounds) < 0).any() or bounds[0] < 0 or bounds[-1] > self.sequences:
            raise InputError(
                "the document index does not divide the sequences",
                where=f"{self.uri} documents {first + 1} to {last}",
                expected=f"ascending numbers from 0 to {self.sequences}",
                hint="write it again",
            )
        base, count = int(bounds[0]), int(bounds[-1] - bounds[0])
        lengths = self._values(index, 4 * base, count, "<i4").astype(np.int64)
        begins = self._values(index, 4 * self.sequences + 8 * base, count, "<i8")
        width = self.dtype.itemsize
        after = begins + lengths * width
        wrong = (lengths < 0) | (begins < 0) | (after > size)
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                "a sequence is outside the .bin file",
                where=f"{self.uri} sequence {base + at + 1}",
                got=f"bytes {begins[at]:,} to {after[at]:,}",
                expected=f"0 to {size:,}, the size of {PurePosixPath(storage.name_of(uri)).name}",
                hint="copy both again; the .bin may be truncated, or the .idx of another data set",
            )
        if last == self.documents and count and base + count == self.sequences and after.max() < size:
            raise InputError(
                "the .bin file goes on after its last sequence",
                where=uri,
                got=f"{size:,} bytes",
                expected=f"{after.max():,} by its index",
                hint="the .idx may be of another data set, or of another type of ids",
            )
        edges = np.concatenate([[0], np.cumsum(lengths)])[bounds - base]
        sizes = np.diff(edges) * width
        if len(sizes) and int(sizes.max()) > longest:
            at = int(sizes.argmax())
            where = f"{uri} document {first + at + 1}"
            raise limits.too_long(where, longest, "a document", f"{sizes[at]:,} bytes")
        for start, many in limits.stretches(sizes, _BATCH_BYTES):
            some = slice(int(bounds[start]) - base, int(bounds[start + many]) - base)
            ids = self._ids(tokens, begins[some], after[some], uri)
            yield Samples(first + start, ids, edges[start : start + many + 1] - edges[start])

    def _values(self, file: BinaryIO, place: int, count: int, kind: str) -> NDArray[Any]:
        """``count`` numbers of the index, from this byte after its header on."""
        file.seek(HEADER.size + place)
        width = np.dtype(kind).itemsize
        data = _exactly(file, count * width, self.uri)
        return np.frombuffer(data, kind)

    def _ids(self, file: BinaryIO, begins: Ints, ends: Ints, uri: str) -> NDArray[Any]:
        """Return the ids of some sequences; those that follow each other in the file are read at once."""
        cuts = np.flatnonzero(begins[1:] != ends[:-1]) + 1
        result = bytearray()
        for some in np.split(np.arange(len(begins)), cuts) if len(begins) else ():
            begin, end = int(begins[some[0]]), int(ends[some[-1]])
            file.seek(begin)
            result += _exactly(file, end - begin, uri)
        return np.frombuffer(bytes(result), self.dtype)


def _exactly(file: BinaryIO, size: int, uri: str) -> bytes:
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    if len(data) < size:
        raise InputError(
            "ends early", where=uri, got=f"{len(data):,} bytes", expected=f"{size:,}", hint="copy it again"
        )
    return data
