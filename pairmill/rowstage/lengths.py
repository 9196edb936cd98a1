"""Lengths of rows before and after a choice: characters, and how many responses have how many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import arrow_compute as pc
from pairmill.formats.rows import Batch

BINS = 32
"""Bin n has the responses of at least 2**(n-1) and fewer than 2**n characters; bin 0 has the empty ones."""


@dataclass
class Lengths:
    """Sums over rows.

    Args:
        instruction: characters of instructions.
        response: characters of responses.
        bins: responses by length, by doublings.
    """

    rows: int = 0
    instruction: int = 0
    response: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, instruction: NDArray[np.int64], response: NDArray[np.int64]) -> None:
        """Count rows of these lengths."""
        self.rows += len(response)
        self.instruction += int(instruction.sum())
        self.response += int(response.sum())
        # The exponent of a power of two is one more than its logarithm: 1 is in bin 1, 2 and 3 in bin 2.
        place = np.minimum(np.frexp(response.astype(np.float64))[1], BINS - 1)
        counts = np.bincount(place, minlength=BINS).tolist()
        self.bins = [count + more for count, more in zip(self.bins, counts, strict=True)]

    def join(self, other: Lengths) -> None:
        """Add those of other rows."""
        self.rows += other.rows
        self.instruction += other.instruction
        self.response += other.response
        self.bins = [count + more for count, more in zip(self.bins, other.bins, strict=True)]


@dataclass
class MeasuredRows:
    """Lengths of consecutive rows of a task, and of those that are chosen, whether or not the others go.

    Args:
        before: of all.
        after: of the chosen ones.
    """

    before: Lengths = field(default_factory=Lengths)
    after: Lengths = field(default_factory=Lengths)

    def watch(self, batches: Iterable[Batch], others: NDArray[np.uint32]) -> Iterator[Batch]:
        """Yield batches and add up their lengths on the way; ``others`` are the ordinals not chosen, ascending."""
        for batch in batches:
            start, stop = np.searchsorted(others, [batch.start, batch.start + len(batch)])
            instruction, response = _count_characters(batch.instruction), _count_characters(batch.response)
            self.before.add(instruction, response)
            places = others[start:stop].astype(np.int64) - batch.start
            self.after.add(np.delete(instruction, places), np.delete(response, places))
            yield batch


def _count_characters(column: pa.Array) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = pc.utf8_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts
