"""Writes (or only digests) the arrays that a plan describes, from the tokens of the rows that are sampled.

Threads read and assemble chunks of the tokens a few ahead of one thread that digests them in order. So memory does not
grow with the sample, and the bytes do not depend on the number of threads.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pairmill import log, storage
from pairmill._native import gather, gather_file
from pairmill.digest import Digest
from pairmill.engine.content import pinned
from pairmill.engine.manifest import File
from pairmill.errors import InputError, InternalError, from_os_error
from pairmill.formats import tokens
from pairmill.formats.tokens import Ints
from pairmill.stages.sample.node.layout import ArrayLayout, TokenSpans, tokens_read
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.plan import SamplePlan

STEP = 1 << 17
"""Tokens per read, unless seeks of the store cost more: they stay in the processor's cache until they are used."""


@dataclass(frozen=True)
class SampleFiles:
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


def materialize(
    folder: OpenFolder | None,
    plan: SamplePlan,
    layout: ArrayLayout,
    datasets: Sequence[tokens.Dataset],
    about: bytes,
    limit: int | None,
    workers: int,
) -> SampleFiles:
    """Make ``tokens.npy``, ``epoch_<e>/*.npy`` and ``metadata.json``.

    Args:
        folder: an empty folder to write to; None = only digest what would be written.
        plan: what to carry out.
        layout: of the plan's arrays.
        datasets: of the plan, in its order.
        about: bytes of ``metadata.json``.
        limit: ids must be below it; None = any id.
        workers: threads.

    Raises:
        InputError: a data set's tokens are missing, differ from the plan, or hold an id outside the vocabulary.
    """
    with ThreadPoolExecutor(workers) as pool:
        epochs = [pool.submit(_epoch, folder, plan, layout, number) for number in range(len(plan.epochs))]
        try:
            files, read = _tokens(folder, layout, _Readers(plan, datasets, limit), pool, workers)
            files += [file for epoch in epochs for file in epoch.result()]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    with _File(folder, "metadata.json") as out:
        out.append(about)
    return SampleFiles(sorted([*files, out.file()], key=lambda file: file.path), read)


class _File:
    """A file of the sample: its bytes are digested in order, and also written if there is a folder."""

    def __init__(self, folder: OpenFolder | None, path: str) -> None:
        self._folder, self._path = folder, path
        self._digest, self._size = Digest(), 0
        self._handle: int | None = None

    def __enter__(self) -> _File:
        if self._folder is not None:
            above = os.path.dirname(self._path)
            if above:
                with suppress(FileExistsError):
                    os.mkdir(above, 0o755, dir_fd=self._folder.handle)
            self._handle = self._folder.create(self._path, 0o444)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._handle is None:
            return
        try:
            # Read-only: a later writer would change the data that epochs and positions refer to.
            os.fchmod(self._handle, os.fstat(self._handle).st_mode & 0o7555)
            if kind is None and self._folder is not None and self._folder.durable:
                os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def digest(self, data: Any) -> None:
        """Digest the next bytes; ``place`` writes them, before or after."""
        self._digest.update(data)
        self._size += memoryview(data).nbytes

    def place(self, data: Any, offset: int) -> None:
        """Write bytes at an offset. Not mapped: a full tmpfs answers a mapped write with SIGBUS, not with an error."""
        if self._handle is None or not memoryview(data).nbytes:
            return
        left = memoryview(data).cast("B")
        while len(left):
            done = os.pwrite(self._handle, left, offset)
            left, offset = left[done:], offset + done

    def append(self, data: Any) -> None:
        """Write and digest the next bytes."""
        self.place(data, self._size)
        self.digest(data)

    def file(self) -> File:
        return File(self._path, self._size, self._digest.text())


def _epoch(folder: OpenFolder | None, plan: SamplePlan, layout: ArrayLayout, number: int) -> list[File]:
    with ExitStack() as stack:
        files = {name: stack.enter_context(_File(folder, f"epoch_{number}/{name}.npy")) for name in layout.dtypes}
        for name, file in files.items():
            file.append(tokens.header(layout.dtypes[name], len(plan.epochs[number])))
        for columns in layout.index(number):
            for name, values in columns.items():
                files[name].append(values.data)
    return [file.file() for file in files.values()]


@dataclass(frozen=True)
class _Ranges:
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
        self._plan, self._datasets, self._limit = plan, datasets, limit
        self._arrays: dict[int, tokens.Array] = {}

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
                raise InputError(
                    "the number of tokens differs from the plan",
                    where=result.uri,
                    got=str(result.length),
                    expected=str(planned),
                    hint="make a new plan of the tokens that are there now",
                )
        return result

    def fill(self, spans: TokenSpans, max_gap: int, out: NDArray[Any]) -> int:
        """Put the tokens of the spans into ``out``. Return the number of bytes read."""
        array = self._array(spans.dataset)
        used = spans.lengths > 0
        starts, lengths = spans.starts[used], spans.lengths[used]
        if not len(starts):
            return 0
        ordered = bool((starts[1:] >= starts[:-1] + lengths[:-1]).all())
        # Pieces of one row repeat its instruction span, and other tools may write rows in no order.
        order = slice(None) if ordered else np.argsort(starts, kind="stable")
        ranges = _Ranges.from_spans(starts[order], lengths[order], max_gap)
        file = storage.store_for(array.uri).file(array.uri)
        try:
            if file is not None and array.dtype == np.dtype("<u4"):
                with file.open("rb") as opened:
                    width = array.dtype.itemsize
                    for begin, size in zip(ranges.begins.tolist(), ranges.sizes.tolist(), strict=True):
                        # The disk reads each range in one go; then only the spans are copied.
                        os.posix_fadvise(
                            opened.fileno(), array.offset + begin * width, size * width, os.POSIX_FADV_WILLNEED
                        )
                largest, read = gather_file(file, array.offset, starts, lengths, out)
            else:
                fill = self._fill_by_ranges if ordered else self._fill_out_of_order
                largest = fill(array, starts, lengths, ranges, out)
                read = int(ranges.sizes.sum()) * array.dtype.itemsize
        except OSError as error:
            if error.errno is None:
                raise InputError("ends before its last token", where=array.uri, hint="tokenize again") from error
            raise from_os_error(error, array.uri) from error
        # The reference does not check, and ids of a larger vocabulary wrap silently.
        if self._limit is not None and largest >= self._limit:
            raise InputError(
                "a token is outside the vocabulary",
                where=self._datasets[spans.dataset].uri,
                got=str(largest),
                expected=f"below {self._limit}, the vocab_size of tokenizer_info.json",
                hint="tokenize again",
            )
        return read

    def _fill_by_ranges(
        self, array: tokens.Array, starts: Ints, lengths: Ints, ranges: _Ranges, out: NDArray[Any]
    ) -> int:
        """Read range by range through the store. Return the largest id."""
        edges = np.append(ranges.first, len(starts)).tolist()
        places = np.append((np.cumsum(lengths) - lengths)[ranges.first], len(out)).tolist()
        largest = 0
        with pinned(array.uri, array.content) as file:
            for number, (begin, size) in enumerate(zip(ranges.begins.tolist(), ranges.sizes.tolist(), strict=True)):
                ids = self._read(file, array, begin, size).view(np.uint8)
                mine = slice(edges[number], edges[number + 1])
                into = out[places[number] : places[number + 1]]
                largest = max(largest, gather(ids, starts[mine] - begin, lengths[mine], into))
        return largest

    def _fill_out_of_order(
        self, array: tokens.Array, starts: Ints, lengths: Ints, ranges: _Ranges, out: NDArray[Any]
    ) -> int:
        """Read all ranges through the store, then put the spans together. Return the largest id."""
        held = np.empty(int(ranges.sizes.sum()), "<u4")
        places = np.cumsum(ranges.sizes) - ranges.sizes
        with pinned(array.uri, array.content) as file:
            for place, begin, size in zip(places.tolist(), ranges.begins.tolist(), ranges.sizes.tolist(), strict=True):
                held[place : place + size] = self._read(file, array, begin, size)
        number = np.searchsorted(ranges.begins, starts, side="right") - 1
        return gather(held.view(np.uint8), starts - ranges.begins[number] + places[number], lengths, out)

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
        if self._limit is not None and (int(values.min()) < 0 or int(values.max()) >= 2**32):
            raise InputError("a token is not a valid id", where=uri, got=f"{values.min()} to {values.max()}")
        return values.astype("<u4")


def _tokens(
    folder: OpenFolder | None, layout: ArrayLayout, readers: _Readers, pool: ThreadPoolExecutor, workers: int
) -> tuple[list[File], int]:
    head = tokens.header(layout.dtype, layout.length)
    max_gap = readers.max_gap()
    begun: deque[tuple[TokenSpans, Future[tuple[NDArray[Any], int]]]] = deque()
    seen: set[int] = set()
    read = 0

    def work(spans: TokenSpans) -> tuple[NDArray[Any], int]:
        values = np.empty(spans.size, layout.dtype)
        taken = readers.fill(spans, max_gap, values)
        out.place(values.data, len(head) + spans.start * layout.dtype.itemsize)
        return values, taken

    def finish() -> int:
        spans, future = begun.popleft()
        values, taken = future.result()
        out.digest(values.data)
        # A data set is done when the first chunk of the next one is.
        progress.advance(int(bool(seen) and spans.dataset not in seen), 0, values.nbytes)
        seen.add(spans.dataset)
        return taken

    with _File(folder, "tokens.npy") as out, log.progress("sample", layout.datasets) as progress:
        out.append(head)
        for spans in layout.chunks(max_gap):
            if len(begun) > workers:
                read += finish()
            begun.append((spans, pool.submit(work, spans)))
        while begun:
            read += finish()
        progress.advance(int(bool(seen)), 0, 0)
        made = out.file()
    if made.size != len(head) + layout.length * layout.dtype.itemsize:
        raise InternalError("the number of tokens written differs from the plan", got=f"{made.size} bytes")
    return [made], read
