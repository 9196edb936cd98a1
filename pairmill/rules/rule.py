"""What is taken of one task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

LongContext = Literal["truncate", "drop", "split"]
Numbers = NDArray[np.uint32]


class Part(NamedTuple):
    """Rows of a task that a walk of their own draws.

    Args:
        name: after that of the task's random numbers; empty = it is these.
        members: numbers of its rows in the task's arrays, ascending; those that may not be sampled are passed over.
        rows: how many each epoch has.
    """

    name: str
    members: Numbers
    rows: tuple[int, ...]


class Members(Protocol):
    """Rows of a task that are drawn in place of all."""

    def parts(self, stream: str) -> Sequence[Part]:
        """Read which rows they are; ``stream`` is the seed and the name of the task's random numbers."""
        ...


@dataclass(frozen=True)
class Rule:
    """How much of a task is taken per epoch.

    Args:
        max_per_file: rows; None = all.
        long_context: for a row longer than the context: truncate the response, drop the row, or split the response
            over several rows (not in data_io).
        repeat: how often the rows are repeated (for a small, precious data set).
        max_response_tokens_per_file: take rows until their responses have this many tokens per epoch, before
            repeat; None = no limit. Not in data_io.
        passes_total: the most times that a row is seen, over all epochs and the plans that this one goes on after; None
            = no limit. Not in data_io.
        rows: how many rows each epoch has, in place of ``max_per_file``, ``repeat`` and
            ``max_response_tokens_per_file``; None = these count. The solver of groups writes it.
        members: parts of the task's rows that are drawn each by itself, in place of ``rows``; None = the task is
            drawn as a whole.
    """

    max_per_file: int | None = None
    long_context: LongContext = "truncate"
    repeat: int = 1
    max_response_tokens_per_file: int | None = None
    passes_total: int | None = None
    rows: tuple[int, ...] | None = None
    members: Members | None = None

    def to_manifest(self) -> dict[str, Any]:
        """Return what a manifest records, JSON-like; parts of rows are in its plan."""
        result = {name: value for name, value in vars(self).items() if name != "members"}
        for name in ("passes_total", "rows"):
            if result[name] is None:
                del result[name]
        return result

    @classmethod
    def from_manifest(cls, recorded: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_manifest` returned."""
        rows = recorded.get("rows")
        return cls(**{**recorded, "rows": None if rows is None else tuple(rows)})

    def is_off(self) -> bool:
        """Return whether it asks for none of the rows."""
        if self.rows is not None:
            return not any(self.rows) or self.passes_total == 0
        return 0 in (self.max_per_file, self.repeat, self.max_response_tokens_per_file, self.passes_total)


PER_TASK = tuple(item.name for item in fields(Rule))[:5]
"""The keys of a rule that say what is taken of each task."""


def reference_json(rule: Rule) -> str:
    """Return a rule as the reference's warning prints it."""
    raw = {name: getattr(rule, name) for name in ("max_per_file", "long_context", "repeat")}
    return json.dumps(raw, separators=(",", ":"))
