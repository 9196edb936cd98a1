"""What is exported: parts of a result, each small enough to be written again if it was not finished.

A part belongs to a split (``train``, ``held_out``, ``epoch_0``). It gives batches of token rows or of a table, in the
order of the result, and reads nothing before they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.inputs import task_name

Ints = NDArray[np.int64]

IGNORED: Final = -100
"""The label of a token that is not trained on."""
TRAIN, HELD_OUT = "train", "held_out"


@dataclass(frozen=True)
class TokenBatch:
    """Consecutive token rows.

    Args:
        ids: integers [n].
        offsets: int64 [rows + 1]; row i has ``ids[offsets[i]:offsets[i + 1]]``.
        prompts: int64 [rows]; how many ids at the beginning of each are its prompt, which is not trained on.
    """

    ids: NDArray[Any]
    offsets: Ints
    prompts: Ints

    def __len__(self) -> int:
        return len(self.prompts)

    def trained(self) -> NDArray[np.bool_]:
        """Return which tokens are trained on; bool [n]."""
        places = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        result: NDArray[np.bool_] = places >= np.repeat(self.prompts, np.diff(self.offsets))
        return result


def task_of(path: str, part: Part) -> str:
    """Return the task of a file for stages that read an export again; empty = none reads it to train."""
    return "" if part.split == HELD_OUT else task_name(path)


@dataclass
class Counts:
    """Rows of a part that were read, written, and left out by reason; and tokens written."""

    rows_in: int = 0
    rows: int = 0
    tokens: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str, count: int) -> None:
        """Count rows that are not written."""
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count


@dataclass(frozen=True)
class Part:
    """Some rows of a result.

    Args:
        split: that they belong to.
        name: of the files to write, without an ending; unique in its split.
        source: the data set, for subsets; empty = of several.
        identity: JSON-like values that the rows follow from.
        rows: how many there are, before any is left out.
        read: yields :class:`TokenBatch`, or ``pyarrow.RecordBatch``, and counts what it leaves out.
    """

    split: str
    name: str
    source: str
    identity: Sequence[Any]
    rows: int
    read: Callable[[Counts], Iterator[Any]]


@dataclass(frozen=True)
class Exported:
    """A result to export.

    Args:
        kind: ``tokens``, ``rows``, ``prompts`` or ``pairs``.
        fingerprint: of its content.
        stage: that made it; empty = another program.
        parts: all of it, in order.
        info: ``tokenizer_info`` of token rows.
        tokenizer: the bytes of ``tokenizer.json``; empty = there is none.
        schema: ``pyarrow.Schema`` of the tables; None of token rows.
        chats: whether tables have tools, whose arguments are no columns.
        facts: what is known of each source.
        counts: rows and tokens of each source, where parts are of several.
    """

    kind: str
    fingerprint: str
    stage: str
    parts: Sequence[Part]
    info: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: bytes = b""
    schema: Any = None
    chats: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids; 0 = not known."""
        size = self.info.get("vocab_size")
        return int(size) if isinstance(size, int | str) and str(size).isdecimal() else 0

    def splits(self) -> dict[str, list[Part]]:
        """Return the parts by split, in order."""
        result: dict[str, list[Part]] = {}
        for part in self.parts:
            result.setdefault(part.split, []).append(part)
        return result
