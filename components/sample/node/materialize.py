"""Carries a plan out: reads what is sampled of each task, and writes (or only digests) the arrays.

Pieces of the tokens are read and put together by threads, a few ahead of the one that digests them in order, so memory
does not follow the sample, and the bytes do not depend on how many threads there are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample.node.layout import Arrangement, Piece, reading
from components.sample.node.owned import Folder
from components.sample.plan import Plan
from pairmill import log, storage
from pairmill._native import gather, gather_file
from pairmill.engine.content import pinned
from pairmill.engine.manifest import File
from pairmill.errors import InputError, InternalError, from_os_error
from pairmill.formats import tokens
from pairmill.formats.tokens import INDEX, Ints

STEP = 1 << 17
"""Tokens read at once, where a store has nothing against it: they stay in the processor's cache until they are used."""


@dataclass(frozen=True)
class Made:
    """The files of a sample by path, and the bytes that were read for them."""

    files: list[File]
    read: int


def metadata(info: dict[str, Any], context_size: int, epochs: int, tokens_sampled: int, more: dict[str, int]) -> bytes:
    """``metadata.json`` as HRM-Text's loader reads it; ``more`` goes behind the keys that it knows."""
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
    folder: Folder | None,
    plan: Plan,
    arrangement: Arrangement,
    sources: Sequence[tokens.Task],
    about: bytes,
    limit: int | None,
    workers: int,
) -> Made:
    """Make ``tokens.npy``, ``epoch_<e>/*.npy`` and ``metadata.json``.

    Args:
        folder: an empty folder to write to; None only digests what would be written.
        plan: what to carry out.
        arrangement: in which layout.
        sources: the tasks of the plan, in its order.
        about: bytes of ``metadata.json``.
        limit: ids have to be below it; None takes any.
        workers: threads.

    Raises:
        InputError: a task's tokens are not there, are others than planned, or hold an id outside the vocabulary.
    """
    with ThreadPoolExecutor(workers) as pool:
        epochs = [pool.submit(_epoch, folder, plan, arrangement, number) for number in range(len(plan.epochs))]
        try:
            files, read = _tokens(folder, arrangement, _Readers(plan, sources, limit), pool, workers)
            files += [file for epoch in epochs for file in epoch.result()]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    with _File(folder, "metadata.json") as out:
        out.append(about)
    return Made(sorted([*files, out.file()], key=lambda file: file.path), read)


class _File:
    """A file of the sample whose bytes are digested in order, and written too if there is a folder."""

    def __init__(self, folder: Folder | None, path: str) -> None:
        self._path, self._digest = path, hashlib.sha256()
        self._size = 0
        self._folder = folder
        self._handle: int | None = None

    def __enter__(self) -> _File:
        if self._folder is not None:
            above = os.path.dirname(self._path)
            if above:
                with suppress(FileExistsError):
                    os.mkdir(above, 0o755, dir_fd=self._folder.handle)
            # Whoever could write to it later would change what epochs and positions speak of.
            self._handle = self._folder.create(self._path, 0o444)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._handle is None:
            return
        try:
            # Whoever opens it to write changes what epochs and positions speak of.
            os.fchmod(self._handle, os.fstat(self._handle).st_mode & 0o7555)
            if kind is None and self._folder is not None and self._folder.durable:
                os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def digest(self, data: Any) -> None:
        """These are the bytes that follow, written by ``place`` before or later."""
        self._digest.update(data)
        self._size += memoryview(data).nbytes

    def place(self, data: Any, offset: int) -> None:
        """Write bytes at their place. Plainly: a full tmpfs answers a mapped write with SIGBUS, not with an error."""
        if self._handle is None or not memoryview(data).nbytes:
            return
        left = memoryview(data).cast("B")
        while len(left):
            done = os.pwrite(self._handle, left, offset)
            left, offset = left[done:], offset + done

    def append(self, data: Any) -> None:
        """The bytes that follow."""
        self.place(data, self._size)
        self.digest(data)

    def file(self) -> File:
        """Path, size and digest of what was appended."""
        return File(self._path, self._size, self._digest.hexdigest())


def _epoch(folder: Folder | None, plan: Plan, arrangement: Arrangement, number: int) -> list[File]:
    files = {name: _File(folder, f"epoch_{number}/{name}.npy") for name in INDEX}
    with ExitStack() as stack:
        for file in files.values():
            stack.enter_context(file)
        for name, file in files.items():
            file.append(tokens.header(arrangement.dtypes[name], len(plan.epochs[number])))
        for columns in arrangement.index(number):
            for name, values in columns.items():
                files[name].append(values.data)
    return [file.file() for file in files.values()]


class _Buffers:
    """Memory that one piece after another uses: fresh pages for each would cost as much as filling them."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def get(self, name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        held = self._arrays.get(name)
        if held is None or len(held) < size or held.dtype != dtype:
            held = self._arrays[name] = np.empty(size, dtype)
        return held[:size]


class _Readers:
    """The tasks' tokens, opened when they are first needed."""

    def __init__(self, plan: Plan, sources: Sequence[tokens.Task], limit: int | None) -> None:
        self._plan, self._sources, self._limit = plan, sources, limit
        self._arrays: dict[int, tokens.Array] = {}

    def apart(self) -> int:
        """Tokens that are rather read than passed over."""
        uris = {storage.scheme(source.uri): source.uri for source in self._sources}
        return max((storage.store_for(uri).seek_cost for uri in uris.values()), default=0) // 4

    def array(self, number: int) -> tokens.Array:
        """The tokens of a task; they have to be as many as planned."""
        found = self._arrays.get(number)
        if found is None:
            found = self._arrays[number] = self._sources[number].array()
            planned = self._plan.sources[number].length
            if found.length != planned:
                raise InputError(
                    "holds other tokens than planned", where=found.uri, got=str(found.length), expected=str(planned)
                )
        return found

    def fill(self, piece: Piece, apart: int, out: NDArray[Any], buffers: _Buffers) -> int:
        """Put the tokens of a piece into ``out``; returns the bytes that were read."""
        array = self.array(piece.source)
        starts, lengths = piece.starts, piece.lengths
        used = lengths > 0
        starts, lengths = starts[used], lengths[used]
        if not len(starts):
            return 0
        ends = starts + lengths
        distance = starts[1:] - ends[:-1]
        cost = reading(starts, lengths, apart)
        step = max(STEP, apart)
        cuts = (distance < 0) | (distance > apart) | (cost[1:] // step > cost[:-1] // step)
        first = np.flatnonzero(np.concatenate([[True], cuts]))
        begins = starts[first]
        sizes = ends[np.append(first[1:], len(starts)) - 1] - begins
        low, high = int(starts.min()), int(ends.max())
        if high - low < int(sizes.sum()):
            # Rows in no order, as others may write them: all that lies around them is less than range by range.
            first, begins, sizes = np.array([0]), np.array([low]), np.array([high - low])
        file = storage.store_for(array.uri).file(array.uri)
        try:
            if file is not None and array.dtype == np.dtype("<u4"):
                with file.open("rb") as opened:
                    width = array.dtype.itemsize
                    for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
                        # A disk is asked for what lies together in one go; then only what is wanted is copied.
                        os.posix_fadvise(
                            opened.fileno(), array.offset + begin * width, size * width, os.POSIX_FADV_WILLNEED
                        )
                largest, read = gather_file(file, array.offset, starts, lengths, out)
            else:
                read = int(sizes.sum()) * array.dtype.itemsize
                largest = self._fill(array, starts, lengths, first, begins, sizes, out, buffers)
        except OSError as error:
            if error.errno is None:
                raise InputError("ends before its last token", where=array.uri, hint="tokenize again") from error
            raise from_os_error(error, array.uri) from error
        self._check(largest, piece)
        return read

    def _fill(
        self,
        array: tokens.Array,
        starts: Ints,
        lengths: Ints,
        first: Ints,
        begins: Ints,
        sizes: Ints,
        out: NDArray[Any],
        buffers: _Buffers,
    ) -> int:
        """Range by range through the store: the spans from each ``first`` on lie in ``sizes`` tokens at ``begins``."""
        edges = np.append(first, len(starts)).tolist()
        places = np.append((np.cumsum(lengths) - lengths)[first], len(out)).tolist()
        largest = 0
        with pinned(array.uri, array.content) as file:
            for number, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
                values = buffers.get("raw", size, array.dtype)
                file.seek(array.offset + begin * array.dtype.itemsize)
                if file.readinto(values.data.cast("B")) != values.nbytes:  # type: ignore[attr-defined]
                    raise OSError("ends early")
                ids = self._as_ids(values, array.uri).view(np.uint8)
                spans = slice(edges[number], edges[number + 1])
                into = out[places[number] : places[number + 1]]
                largest = max(largest, gather(ids, starts[spans] - begin, lengths[spans], into))
        return largest

    def _as_ids(self, values: NDArray[Any], uri: str) -> NDArray[np.uint32]:
        # Folders of others may hold other integers; the reference casts them, and what does not fit wraps.
        if values.dtype == np.dtype("<u4"):
            return values
        if self._limit is not None and (int(values.min()) < 0 or int(values.max()) >= 2**32):
            raise InputError("a token is no id", where=uri, got=f"{values.min()} to {values.max()}")
        return values.astype("<u4")

    def _check(self, largest: int, piece: Piece) -> None:
        # The reference casts without a look, and ids of a larger vocabulary wrap in silence.
        if self._limit is not None and largest >= self._limit:
            raise InputError(
                "a token is outside the vocabulary",
                where=self._sources[piece.source].uri,
                got=str(largest),
                expected=f"below {self._limit}, the vocab_size of tokenizer_info.json",
                hint="tokenize again",
            )


def _tokens(
    folder: Folder | None, arrangement: Arrangement, readers: _Readers, pool: ThreadPoolExecutor, workers: int
) -> tuple[list[File], int]:
    head = tokens.header(arrangement.dtype, arrangement.length)
    width = arrangement.dtype.itemsize
    apart = readers.apart()
    free = [_Buffers() for _ in range(workers + 1)]
    begun: deque[tuple[Piece, Future[tuple[NDArray[Any], int]], _Buffers]] = deque()
    seen: set[int] = set()
    read = 0

    def work(piece: Piece, buffers: _Buffers) -> tuple[NDArray[Any], int]:
        values = buffers.get("out", piece.size, arrangement.dtype)
        taken = readers.fill(piece, apart, values, buffers)
        out.place(values.data, len(head) + piece.start * width)
        return values, taken

    def finish() -> int:
        piece, future, buffers = begun.popleft()
        values, taken = future.result()
        out.digest(values.data)
        free.append(buffers)
        # A task is done when the first piece of the next one is.
        progress.advance(int(bool(seen) and piece.source not in seen), 0, values.nbytes)
        seen.add(piece.source)
        return taken

    with _File(folder, "tokens.npy") as out, log.progress("sample", arrangement.tasks) as progress:
        out.append(head)
        for piece in arrangement.pieces(apart):
            if not free:
                read += finish()
            buffers = free.pop()
            begun.append((piece, pool.submit(work, piece, buffers), buffers))
        while begun:
            read += finish()
        progress.advance(int(bool(seen)), 0, 0)
        made = out.file()
    if made.size != len(head) + arrangement.length * width:
        raise InternalError("the tokens are not as many as planned", got=str(made.size))
    return [made], read
