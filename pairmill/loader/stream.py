"""A plan over a stream of texts that are tokenized on the way."""

from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import UsageError
from pairmill.loader.arguments import boolean, instance, string
from pairmill.loader.batch import DATASET_IDX, Batch
from pairmill.loader.plan import Draw, Phase, Position, World
from pairmill.loader.text import Mark, TextStream
from pairmill.loader.window_plan import WindowPlan
from pairmill.loader.windows import Windows, fields_of

_MAX_OPEN = 4
"""Streams that are kept open where they are: each loader of a process continues its own."""


class StreamPlan(WindowPlan):
    """Chunks of a stream in their order.

    Every rank reads and tokenizes the whole stream, which makes its batches independent of the number of ranks. For
    what a resume costs see :class:`TextStream`.

    Args:
        stream: of documents.
        name: of the data, for the state: a stream has no digest, so a change of the data shows only in another name.
        packed: number the documents of a window, and predict nothing from the end of one.
        phases: for their lr_scale.
    """

    def __init__(
        self, stream: TextStream, *, name: str, packed: bool = False, phases: Sequence[Phase] | None = None
    ) -> None:
        if not string(name, "name"):
            raise UsageError("empty", where="name", expected="a name for these data")
        self.stream = instance(stream, TextStream, "stream", "a TextStream", "write StreamPlan(TextStream(…), name=…)")
        self._eos_id = stream.eos_id if boolean(packed, "packed") else None
        super().__init__([name], phases, stream.seq_len, fields_of(self._eos_id))
        self._open: dict[Mark, Iterator[tuple[NDArray[np.int32], Mark]]] = {}
        self._lock = Lock()

    def _content(self) -> tuple[object, ...]:
        return "stream", self.names[0], self.seq_len

    def begin(self) -> Position:
        return Position((tuple(Mark()),))

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        return position.cursors[0]

    def draw(self, position: Position, world: World) -> Draw:
        mark = Mark(*position.cursors[0])
        count = world.batch_tokens // self.seq_len
        with self._lock:
            chunks = self._open.pop(mark, None) or self.stream.chunks(mark)
        drawn = list(islice(chunks, count))
        after = drawn[-1][1]
        with self._lock:
            self._open[after] = chunks
            while len(self._open) > _MAX_OPEN:
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

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        first, drawn = draw.detail
        marks = [first, *(mark for _, mark in drawn)]
        # Each chunk is a window.
        chunks = [tokens for tokens, _ in drawn[rank :: world.ranks]]
        windows = Windows.of_arrays(chunks, seq_len=self.seq_len, eos_id=self._eos_id, name=self.names[0])
        arrays = self.arrays(memory, len(windows))
        arrays[DATASET_IDX][:] = 0
        windows.fill(np.arange(len(windows)), arrays)
        # Epoch and document in which each chunk begins.
        rows = np.array([(0, mark.epoch, mark.document) for mark in marks[rank : -1 : world.ranks]], np.int64)
        return draw.batch(self.phases, arrays, {}, rows)
