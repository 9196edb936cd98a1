"""Writes (or only digests) the arrays that a plan describes, from the tokens of the rows that are sampled.

Tokens in files of this machine are copied by native threads, a leaf of the digest's tree at a time; those of stores are
read by threads a few chunks ahead. So memory does not grow with the sample, and the bytes do not depend on the threads.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from itertools import groupby
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import log, storage
from pairmill._native import EpochArrays, RowTable, TaskError, TokenFile, gather
from pairmill.digest import BLAKE3, Digest, is_blake3
from pairmill.engine.content import UNKNOWN, pinned
from pairmill.engine.manifest import File
from pairmill.errors import InputError, InternalError, PairmillError, UsageError, from_os_error
from pairmill.formats import tokens
from pairmill.formats.token_listing import NAME, TokensInPlace, dump_listing
from pairmill.formats.tokens import BYTES, INDEX, Ints
from pairmill.stages.sample.node.layout import ROWS, ArrayLayout, CopiedTokens, RowPiece, spans_of, tokens_read
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.plan import PlannedDataset, SamplePlan

TOKENS, METADATA = "tokens.npy", "metadata.json"
CHUNK_TOKENS: Final = 1 << 19
"""Tokens of a store that a thread puts together at a time: memory does not grow with the data sets."""
STEP = 1 << 17
"""Tokens per read, unless seeks of the store cost more: they stay in the processor's cache until they are used."""


class SampleFiles(NamedTuple):
    """The files of a sample by path, and how many bytes were read for them."""

    files: list[File]
    read: int


def metadata(info: dict[str, Any], context_size: int, epochs: int, tokens_sampled: int, more: dict[str, Any]) -> bytes:
    """Return ``metadata.json`` as HRM-Text's loader reads it; ``more`` follows the keys that it knows."""
    values = {
        "tokenizer_info": info,
        # Null in either profile: HRM-Text's loader asserts it, and takes the size from tokenizer_info.
        "vocab_size": None,
        "max_seq_len": context_size,
        "total_length": round(tokens_sampled / epochs),
        **more,
    }
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def write_metadata(folder: OpenFolder | None, about: bytes) -> File:
    """Write ``metadata.json``."""
    with _File(folder, METADATA) as out:
        out.append(about)
    return out.file()


def materialize(
    folder: OpenFolder | None,
    layout: ArrayLayout,
    datasets: Sequence[tokens.Dataset],
    linked: Sequence[File],
    about: bytes,
    limit: int | None,
    workers: int,
    digests: dict[str, str] | None = None,
) -> SampleFiles:
    """Make ``tokens.npy`` (or the list of the files that tokens are in), ``epoch_<e>/*.npy`` and ``metadata.json``.

    Args:
        folder: an empty folder to write to; None = only digest what would be written.
        layout: of the plan to carry out.
        datasets: of the plan, in its order.
        linked: files that are there already: of an epoch all or none.
        about: bytes of ``metadata.json``.
        limit: ids must be below it; None = any id.
        digests: of promised files of tokens, by URI: those that are known, and then those that were read from end to
            end; None = no file is digested.

    Raises:
        InputError: a data set's tokens are missing, differ from the plan, or hold an id outside the vocabulary.
    """
    there = {file.path: file for file in linked}
    numbers = [number for number in range(len(layout.plan.epochs)) if f"epoch_{number}/{INDEX[0]}.npy" not in there]
    files, read = [*linked], 0
    with ThreadPoolExecutor(workers) as pool:
        groups = [numbers] if layout.table is None else [[number] for number in numbers]
        epochs = [pool.submit(_epochs, folder, layout, group, workers) for group in groups]
        try:
            if not layout.has_tokens:
                files.append(list_tasks(folder, layout.plan.datasets, datasets))
            first, parts = 0, list[File]()
            for copied in layout.copied:
                end = first + len(copied.plan.datasets)
                if (part := there.get(copied.name)) is None:
                    readers = _Readers(copied.plan, datasets[first:end], limit)
                    part, size = _Copying(copied, readers, pool, workers).run(folder, digests)
                    files.append(part)
                    read += size
                parts.append(part)
                first = end
            if len(parts) > 1:
                files.append(list_parts(folder, layout.dtype, parts))
            files += [file for epoch in epochs for file in epoch.result()]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    files.append(write_metadata(folder, about))
    return SampleFiles(sorted(files, key=lambda file: file.path), read)


def list_tasks(
    folder: OpenFolder | None, planned: Sequence[PlannedDataset], datasets: Sequence[tokens.Dataset]
) -> File:
    """Write the list of the files that the tokens of these data sets are in; None as in :func:`materialize`."""
    files = []
    # One whose rows were added to comes again.
    for item, dataset in {item.name: (item, at) for item, at in zip(planned, datasets, strict=True)}.values():
        uri = storage.join(dataset.uri, TOKENS)
        place, content = storage.store_for(uri).file(uri), dataset.contents.get("tokens", UNKNOWN)
        if place is None:
            raise UsageError(
                "the tokens are not in files of this machine",
                where="layout=reference",
                got=uri,
                expected="a tokenized folder on a disk, or on a file system that is mounted",
                hint="layout=compact",
            )
        kind, offset = np.dtype("<u4"), len(tokens.header(np.dtype("<u4"), 0))
        size = content.size if content.promised else -1
        if size != offset + item.length * kind.itemsize:
            array = dataset.array()
            if array.length != item.length:
                raise other_tokens(uri, array.length, item.length)
            kind, offset = array.dtype, array.offset
            size = offset + array.length * kind.itemsize
        files.append(TokensInPlace(str(place), offset, kind.str, item.length, size, content.digest))
    with _File(folder, NAME) as out:
        out.append(dump_listing(files))
    return out.file()


def list_parts(folder: OpenFolder | None, dtype: np.dtype[Any], parts: Sequence[File]) -> File:
    """Write the list of the sample's own files of tokens."""
    with _File(folder, NAME) as out:
        out.append(dump_listing(parts_in_place(dtype, parts)))
    return out.file()


def parts_in_place(dtype: np.dtype[Any], parts: Iterable[File]) -> list[TokensInPlace]:
    """Describe the sample's own files of tokens."""
    head = len(tokens.header(dtype, 0))
    return [
        TokensInPlace(file.path, head, dtype.str, (file.size - head) // dtype.itemsize, file.size, file.digest)
        for file in parts
    ]


def digest_rows(
    copied: CopiedTokens,
    datasets: Sequence[tokens.Dataset],
    limit: int | None,
    workers: int,
    digests: dict[str, str] | None,
) -> SampleFiles:
    """Digest what the file of these tokens would be; arguments and errors are those of :func:`materialize`."""
    with ThreadPoolExecutor(workers) as pool:
        file, read = _Copying(copied, _Readers(copied.plan, datasets, limit), pool, workers).run(None, digests)
    return SampleFiles([file], read)


def other_tokens(uri: str, got: int, expected: int) -> InputError:
    """Return the error of a data set that has another number of tokens than the plan."""
    return InputError(
        "the number of tokens differs from the plan",
        where=uri,
        got=str(got),
        expected=str(expected),
        hint="make a new plan of the tokens that are there now",
    )


class _File:
    """A file of the sample: what is appended is digested, and also written if there is a folder."""

    def __init__(self, folder: OpenFolder | None, path: str) -> None:
        self._folder, self._path = folder, path
        self._digest, self._size = Digest(), 0
        self.handle: int | None = None

    def __enter__(self) -> _File:
        if self._folder is not None:
            above = os.path.dirname(self._path)
            if above:
                with suppress(FileExistsError):
                    os.mkdir(above, 0o755, dir_fd=self._folder.handle)
            self.handle = self._folder.create(self._path, 0o444)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.handle is None:
            return
        try:
            # Read-only: a later writer would change the data that epochs and positions refer to.
            os.fchmod(self.handle, os.fstat(self.handle).st_mode & 0o7555)
            if kind is None and self._folder is not None and self._folder.durable:
                os.fsync(self.handle)
        finally:
            os.close(self.handle)

    def append(self, data: Any) -> None:
        """Write and digest the next bytes. Not mapped: a full tmpfs answers that with SIGBUS, not with an error."""
        left = memoryview(data).cast("B")
        self._digest.update(left)
        while self.handle is not None and len(left):
            done = os.pwrite(self.handle, left, self._size)
            left, self._size = left[done:], self._size + done
        self._size += len(left)

    def file(self) -> File:
        """Return what was appended."""
        return File(self._path, self._size, self._digest.text())

    def made(self, digest: str, size: int) -> File:
        """Return what native code has written to the handle."""
        return File(self._path, size, BLAKE3 + digest)


def _epochs(folder: OpenFolder | None, layout: ArrayLayout, numbers: Sequence[int], workers: int) -> list[File]:
    """Write the arrays of epochs, as many at a time as there are threads, for which the same rows are looked up."""
    files = []
    for first in range(0, len(numbers), workers):
        with ExitStack() as stack:
            epochs = [
                stack.enter_context(_Epoch(folder, layout, number)) for number in numbers[first : first + workers]
            ]
            pool = stack.enter_context(ThreadPoolExecutor(workers))
            scratch = layout.table is None and stack.enter_context(TemporaryDirectory(dir=layout.scratch))
            for table in layout.tables():
                [*pool.map(partial(_Epoch.look_up, table=table, scratch=scratch or ""), epochs)]
            files += [file for epoch in epochs for file in epoch.files()]
    return files


class _Epoch(ExitStack):
    """The arrays of an epoch, appended to or set aside as tables of its rows come."""

    def __init__(self, folder: OpenFolder | None, layout: ArrayLayout, number: int) -> None:
        super().__init__()
        self._layout, self._number, self._order = layout, number, layout.plan.epochs[number]
        self._files = {name: self.enter_context(_File(folder, f"epoch_{number}/{name}.npy")) for name in layout.dtypes}
        self._heads = {name: tokens.header(dtype, len(self._order)) for name, dtype in layout.dtypes.items()}
        handles = [handle for name in INDEX if (handle := self._files[name].handle) is not None]
        widths = layout.dtypes["inst_start"].itemsize, layout.dtypes["inst_len"].itemsize
        self._arrays = EpochArrays([self._heads[name] for name in INDEX], handles or None, widths)

    def look_up(self, table: RowTable, scratch: str) -> None:
        """Append all rows if this table is the last, else set aside those that it has."""
        layout, files = self._layout, self._files
        if table.after < layout.rows:
            path = os.path.join(scratch, f"{self._number}-{table.after}")
            for places in self._order.pieces(ROWS):
                self._arrays.set_aside(table, places, path)
            return
        measured = layout.plan.rows[BYTES].array() if BYTES in files else None
        if measured is not None:
            files[BYTES].append(self._heads[BYTES])
        for places in self._order.pieces(ROWS):
            self._arrays.append(table, places)
            if measured is not None:
                files[BYTES].append(measured.take(places.astype(np.intp)).astype(layout.dtypes[BYTES]).data)

    def files(self) -> list[File]:
        """Return what was written."""
        made = [self._files[name].made(*item) for name, item in zip(INDEX, self._arrays.finish(), strict=True)]
        return [*made, self._files[BYTES].file()] if BYTES in self._files else made


class _Ranges(NamedTuple):
    """What to read for some spans: ``sizes`` tokens at ``begins``; the spans from ``first`` on lie in each.

    The spans come by ascending start; some may overlap.
    """

    first: Ints
    begins: Ints
    sizes: Ints

    @classmethod
    def from_spans(cls, starts: Ints, lengths: Ints, max_gap: int) -> _Ranges:
        ends = np.maximum.accumulate(starts + lengths)
        gaps = starts[1:] - ends[:-1]
        cost, step = tokens_read(starts, lengths, max_gap), max(STEP, max_gap)
        cuts = (gaps > max_gap) | ((gaps >= 0) & (cost[1:] // step > cost[:-1] // step))
        first = np.flatnonzero(np.concatenate([[True], cuts]))
        begins = starts[first]
        sizes = ends[np.append(first[1:], len(starts)) - 1] - begins
        return cls(first, begins, sizes)


class _Readers:
    """The data sets' tokens, opened when they are first needed."""

    def __init__(self, plan: SamplePlan, datasets: Sequence[tokens.Dataset], limit: int | None) -> None:
        self._plan, self._datasets, self.limit = plan, datasets, limit
        self._arrays: dict[int, tokens.Array] = {}

    @cached_property
    def uris(self) -> list[str]:
        """The files of the tokens."""
        return [storage.join(dataset.uri, TOKENS) for dataset in self._datasets]

    def paths(self) -> list[str]:
        """Return the files of the tokens; empty for what is not a file of this machine."""
        return [storage.local_text(uri) if storage.scheme(uri) == "file" else "" for uri in self.uris]

    def sources(self, paths: Sequence[str], known: dict[str, str] | None) -> list[tuple[str, int, bool]]:
        """Return what native code copies from, and whether to digest it: what a manifest promises and is not known."""
        contents = [dataset.contents.get("tokens", UNKNOWN) for dataset in self._datasets]
        wanted = [
            known is not None and uri not in known and content.promised and is_blake3(content.digest)
            for uri, content in zip(self.uris, contents, strict=True)
        ]
        return list(zip(paths, (item.length for item in self._plan.datasets), wanted, strict=True))

    def max_gap(self) -> int:
        """Return the tokens between two spans up to which reading on is cheaper than a seek."""
        uris = {storage.scheme(dataset.uri): dataset.uri for dataset in self._datasets}
        return max((storage.store_for(uri).seek_cost for uri in uris.values()), default=0) // 4

    def _array(self, number: int) -> tokens.Array:
        result = self._arrays.get(number)
        if result is None:
            result = self._arrays[number] = self._datasets[number].array()
            planned = self._plan.datasets[number].length
            if result.length != planned:
                raise other_tokens(result.uri, result.length, planned)
        return result

    def fill(self, number: int, starts: Ints, lengths: Ints, width: int, out: NDArray[np.uint8]) -> int:
        """Put the tokens of spans of a data set into ``out``, ``width`` bytes each. Return the bytes that were read."""
        array = self._array(number)
        used = lengths > 0
        starts, lengths = starts[used], lengths[used]
        if not len(starts):
            return 0
        ordered = bool((starts[1:] >= starts[:-1] + lengths[:-1]).all())
        # Pieces of one row repeat its instruction span, and other tools may write rows in no order.
        order = slice(None) if ordered else np.argsort(starts, kind="stable")
        ranges = _Ranges.from_spans(starts[order], lengths[order], self.max_gap())
        try:
            fill = self._fill_by_ranges if ordered else self._fill_out_of_order
            largest = fill(array, (starts, lengths), ranges, width, out)
        except OSError as error:
            raise self.worded("read", number, error.errno or 0) from error
        # The reference does not check, and ids of a larger vocabulary wrap silently.
        if self.limit is not None and largest >= self.limit:
            raise self.worded("large", number, largest)
        return int(ranges.sizes.sum()) * array.dtype.itemsize

    def worded(self, kind: str, number: int, value: int) -> PairmillError:
        """Return the error of a data set whose tokens cannot be copied (:class:`pairmill._native.TaskError`)."""
        where = self._datasets[number].uri
        uri = storage.join(where, TOKENS)
        if kind == "large":
            return InputError(
                "a token is outside the vocabulary",
                where=where,
                got=str(value),
                expected=f"below {self.limit}, the vocab_size of tokenizer_info.json",
                hint="tokenize again",
            )
        if kind == "row":
            return InputError("the plan has a row that is not in the tokens", where=uri, hint="make a new plan")
        if not value:
            return InputError("ends before its last token", where=uri, hint="tokenize again")
        return from_os_error(OSError(value, os.strerror(value)), uri)

    def _fill_by_ranges(
        self, array: tokens.Array, spans: tuple[Ints, Ints], ranges: _Ranges, width: int, out: NDArray[np.uint8]
    ) -> int:
        """Read range by range through the store. Return the largest id."""
        starts, lengths = spans
        edges = np.append(ranges.first, len(starts)).tolist()
        places = np.append((np.cumsum(lengths) - lengths)[ranges.first] * width, len(out)).tolist()
        largest = 0
        with pinned(array.uri, array.content) as file:
            for number, (begin, size) in enumerate(zip(ranges.begins.tolist(), ranges.sizes.tolist(), strict=True)):
                ids = self._read(file, array, begin, size).view(np.uint8)
                mine = slice(edges[number], edges[number + 1])
                into = out[places[number] : places[number + 1]]
                largest = max(largest, gather(ids, starts[mine] - begin, lengths[mine], width, into))
        return largest

    def _fill_out_of_order(
        self, array: tokens.Array, spans: tuple[Ints, Ints], ranges: _Ranges, width: int, out: NDArray[np.uint8]
    ) -> int:
        """Read all ranges through the store, then put the spans together. Return the largest id."""
        starts, lengths = spans
        held = np.empty(int(ranges.sizes.sum()), "<u4")
        places = np.cumsum(ranges.sizes) - ranges.sizes
        with pinned(array.uri, array.content) as file:
            for place, begin, size in zip(places.tolist(), ranges.begins.tolist(), ranges.sizes.tolist(), strict=True):
                held[place : place + size] = self._read(file, array, begin, size)
        number = np.searchsorted(ranges.begins, starts, side="right") - 1
        return gather(held.view(np.uint8), starts - ranges.begins[number] + places[number], lengths, width, out)

    def _read(self, file: BinaryIO, array: tokens.Array, begin: int, size: int) -> NDArray[np.uint32]:
        values = np.empty(size, array.dtype)
        file.seek(array.offset + begin * array.dtype.itemsize)
        if file.readinto(values.data.cast("B")) != values.nbytes:  # type: ignore[attr-defined]
            raise OSError("ends early")
        return self._as_ids(values, array.uri)

    def _as_ids(self, values: NDArray[Any], uri: str) -> NDArray[np.uint32]:
        # Folders of other tools may hold other integer types; the reference casts them, and larger values wrap.
        if values.dtype == np.dtype("<u4"):
            return values
        if self.limit is not None and (int(values.min()) < 0 or int(values.max()) >= 2**32):
            raise InputError("a token is not a valid id", where=uri, got=f"{values.min()} to {values.max()}")
        return values.astype("<u4")


class _Copying:
    """Appends the tokens of a plan to one file, in order."""

    def __init__(self, copied: CopiedTokens, readers: _Readers, pool: ThreadPoolExecutor, workers: int) -> None:
        self._plan, self._copied, self._readers, self._pool, self._workers = copied.plan, copied, readers, pool, workers
        self._paths = readers.paths()
        self._stored = {number for number, path in enumerate(self._paths) if not path}
        """Data sets that are read through their store: those that are no files here, or not as pairmill writes them."""
        self._max_gap = readers.max_gap()
        self._begun: deque[Future[tuple[NDArray[Any], int]]] = deque()
        self._read = 0

    def run(self, folder: OpenFolder | None, digests: dict[str, str] | None) -> tuple[File, int]:
        """Write the file. Return it, and the bytes that were read; ``digests`` gets those of files of tokens."""
        copied, dtype = self._copied, self._copied.dtype
        done = -1
        with _File(folder, copied.name) as out, log.progress("sample", copied.datasets) as progress:
            head = tokens.header(dtype, copied.length)
            self._out = TokenFile(
                self._readers.sources(self._paths, digests),
                head=head,
                handle=out.handle,
                tokens=copied.length,
                width=dtype.itemsize,
                limit=self._readers.limit,
                threads=self._workers,
            )
            for piece in copied.pieces():
                self._append(piece)
                begun = sum(number > done for number in piece.datasets)
                done = piece.datasets[-1]
                progress.advance(begun, 0, int((piece.columns[1].sum() + piece.columns[3].sum()) * dtype.itemsize))
            self._finish(0)
            if digests is not None:
                passed = zip(self._readers.uris, self._out.digests(), strict=True)
                digests.update((uri, BLAKE3 + digest) for uri, digest in passed if digest)
            made = out.made(*self._out.finish())
        if made.size != len(head) + copied.length * dtype.itemsize:
            raise InternalError("the number of tokens written differs from the plan", got=f"{made.size} bytes")
        return made, self._read

    def _append(self, piece: RowPiece) -> None:
        first = 0
        if not self._stored:
            return self._copy(piece)
        for is_stored, group in groupby(range(len(piece.datasets)), lambda at: piece.datasets[at] in self._stored):
            some = list(group)
            counts = [piece.counts[at] for at in some]
            rows = slice(first, first + sum(counts))
            first = rows.stop
            part = RowPiece(
                [piece.datasets[at] for at in some], counts, tuple(column[rows] for column in piece.columns)
            )
            (self._through_stores if is_stored else self._copy)(part)
        return None

    def _copy(self, piece: RowPiece) -> None:
        self._finish(0)
        try:
            self._read += self._out.copy(piece.datasets, piece.counts, *piece.columns)
        except TaskError as error:
            kind, number, value = error.args
            if kind == "odd":
                # Of another type, say; its own reader tells what is not right. Nothing was appended.
                self._stored.add(number)
                return self._append(piece)
            raise self._readers.worded(kind, number, value) from None
        return None

    def _through_stores(self, piece: RowPiece) -> None:
        first = 0
        for number, count in zip(piece.datasets, piece.counts, strict=True):
            for starts, lengths in _chunks(piece, slice(first, first + count), self._max_gap):
                self._finish(self._workers)
                self._begun.append(self._pool.submit(self._fill, number, starts, lengths))
            first += count

    def _fill(self, number: int, starts: Ints, lengths: Ints) -> tuple[NDArray[Any], int]:
        values = np.empty(int(lengths.sum()) * self._copied.dtype.itemsize, np.uint8)
        return values, self._readers.fill(number, starts, lengths, self._copied.dtype.itemsize, values)

    def _finish(self, most: int) -> None:
        """Append the chunks that were begun, until no more than that many are left."""
        while len(self._begun) > most:
            values, read = self._begun.popleft().result()
            self._out.put(values)
            self._read += read


def _chunks(piece: RowPiece, rows: slice, max_gap: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the spans of rows of a data set, in chunks that read about CHUNK_TOKENS with gaps of ``max_gap``."""
    starts, lengths = spans_of(piece, rows)
    # One span may be a whole data set.
    parts = np.maximum(1, -(-lengths // CHUNK_TOKENS))
    owner, part = np.repeat(np.arange(len(parts)), parts), np.arange(parts.sum())
    skipped = (part - np.repeat(np.cumsum(parts) - parts, parts)) * CHUNK_TOKENS
    starts, lengths = starts[owner] + skipped, np.minimum(lengths[owner] - skipped, CHUNK_TOKENS)
    near = starts.copy()
    # Pieces of one row have one instruction span: reading goes on where the piece before ends.
    if len(owner) == len(parts):
        again = 2 * (np.flatnonzero(np.diff(starts[::2]) == 0) + 1)
        near[again] = starts[again - 1] + lengths[again - 1]
    edges = np.flatnonzero(np.diff(tokens_read(near, lengths, max_gap) // CHUNK_TOKENS)) + 1
    for low, high in zip([0, *edges], [*edges, len(starts)], strict=True):
        yield starts[low:high], lengths[low:high]
