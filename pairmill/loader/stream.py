"""A plan over a stream of texts, tokenized on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.loader.arguments import an, flag, text
from pairmill.loader.batch import DATASET_IDX, Batch, windows_of, windows_size
from pairmill.loader.mixture import check_windows
from pairmill.loader.plan import Draw, Phase, Plan, Position, World, checked_phases
from pairmill.loader.text import Mark, TextStream
from pairmill.loader.windows import Windows, fields_of

_OPEN = 4
"""Streams that are kept where they stand: each loader of a process goes on with its own."""


class StreamPlan(Plan):
    """Chunks of a stream in their order; of those of a global batch, the one in position k goes to rank k mod n.

    Every rank reads and tokenizes the whole stream, which is what makes its batches independent of the ranks. What a
    resume costs, :class:`TextStream` says.

    Args:
        stream: of documents.
        name: of the data, for the state: a stream's content is known to nobody, so that other data are found only by
            another name.
        packed: number the documents of a window, and predict nothing from the end of one.
        phases: for their lr_scale.
    """

    def __init__(
        self, stream: TextStream, *, name: str, packed: bool = False, phases: Sequence[Phase] | None = None
    ) -> None:
        if not text(name, "name"):
            raise UsageError("is empty", where="name", expected="what these data are called")
        self.names = (name,)
        self.phases = checked_phases([Phase()] if phases is None else phases, self.names)
        self.stream = an(stream, TextStream, "stream", "a TextStream", "write StreamPlan(TextStream(…), name=…)")
        self.seq_len = stream.seq_len
        self._eos_id = stream.eos_id if flag(packed, "packed") else None
        self._names = (*fields_of(self._eos_id), DATASET_IDX)
        self._open: dict[Mark, Iterator[tuple[NDArray[np.int32], Mark]]] = {}
        self._lock = Lock()

    @property
    def digest(self) -> str:
        """Of the name alone."""
        return content_key("stream", self.names[0], self.seq_len)

    def begin(self) -> Position:
        return Position((tuple(Mark()),))

    def check(self, world: World) -> None:
        """See whether a rank's tokens are whole windows.

        Raises:
            UsageError: they are not.
        """
        check_windows(world, self.seq_len)

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        return position.cursors[0]

    def draw(self, position: Position, world: World) -> Draw:
        """The global batch at a position; a stream never ends.

        Raises:
            InputError: the texts are not those of the position, or hold no tokens (:meth:`TextStream.chunks`).
        """
        mark = Mark(*position.cursors[0])
        count = world.batch_tokens // self.seq_len
        with self._lock:
            chunks = self._open.pop(mark, None)
        if chunks is None:
            chunks = self.stream.chunks(mark)
        drawn = list(islice(chunks, count))
        after = drawn[-1][1]
        with self._lock:
            self._open[after] = chunks
            while len(self._open) > _OPEN:
                del self._open[next(iter(self._open))]
        tokens = count * self.seq_len
        return Draw(
            after=Position((tuple(after),), position.batches + 1, position.tokens + tokens),
            phase=self.phase_at(position),
            source=self.names[0],
            epoch=mark.epoch,
            start_row=mark.document,
            rows=count,
            tokens=tokens,
            ends_epoch=after.epoch > mark.epoch,
            detail=(mark, drawn),
        )

    def _windows(self, chunks: Sequence[NDArray[np.int32]]) -> Windows:
        """Each chunk a window."""
        return Windows.of_arrays(chunks, seq_len=self.seq_len, eos_id=self._eos_id, name=self.names[0])

    def size(self, world: World) -> int:
        return windows_size(self._names, world.slots // self.seq_len, self.seq_len)

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        first, drawn = draw.detail
        marks = [first, *(mark for _, mark in drawn)]
        windows = self._windows([tokens for tokens, _ in drawn[rank :: world.ranks]])
        arrays = windows_of(memory, self._names, len(windows), self.seq_len)
        arrays[DATASET_IDX][:] = 0
        windows.fill(np.arange(len(windows)), arrays)
        # Where each chunk begins: which of its document's tokens is first, nobody asks for.
        rows = np.array([(0, mark.epoch, mark.document) for mark in marks[rank : -1 : world.ranks]], np.int64)
        return Batch.of(draw, self.phases, arrays, {}, rows)
