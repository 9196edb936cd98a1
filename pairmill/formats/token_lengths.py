"""Lengths of rows in tokens, counted exactly: percentiles, and what fits into a context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99, 100)
CONTEXTS: Final = (2048, 4096, 8192, 16384, 32768)
"""Tokens of a row."""

Counts: TypeAlias = NDArray[np.int64]
"""Lengths, ascending, and how many there are of each; [2, n]."""


def _none() -> Counts:
    return np.empty((2, 0), np.int64)


@dataclass
class TokenLengths:
    """Counts by length.

    Args:
        prompt: rows by the tokens of their prompt.
        response: rows by the tokens of their response.
        total: rows by the tokens of both.
        response_tokens: tokens of responses by the tokens of both.
    """

    prompt: Counts = field(default_factory=_none)
    response: Counts = field(default_factory=_none)
    total: Counts = field(default_factory=_none)
    response_tokens: Counts = field(default_factory=_none)

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Self:
        """Read what :meth:`to_data` wrote."""
        numbers = {name: np.array(text.replace(":", " ").split(), np.int64) for name, text in data.items()}
        return cls(**{name: some.reshape(-1, 2).T for name, some in numbers.items()})

    def to_data(self) -> dict[str, str]:
        """Return it as a record keeps it: a text for each, since there may be a record for each of 16,000 tasks."""
        return {
            name: " ".join(f"{length}:{count}" for length, count in counts.T.tolist())
            for name, counts in vars(self).items()
        }

    def add(self, prompt: NDArray[Any], response: NDArray[Any]) -> None:
        """Count rows of these lengths; integers [rows] both."""
        prompt, response = prompt.astype(np.int64), response.astype(np.int64)
        total, once = prompt + response, np.ones(len(prompt), np.int64)
        added = (prompt, once), (response, once), (total, once), (total, response)
        self.join(TokenLengths(*map(np.stack, added)))

    def join(self, other: TokenLengths) -> None:
        """Add those of other rows."""
        for name, counts in vars(other).items():
            setattr(self, name, _summed(getattr(self, name), counts))

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says: rows, percentiles of each length, and the shares that fit into contexts."""
        counts = vars(self)
        return {
            "rows": int(self.total[1].sum()),
            "percentiles": {name: percentiles(counts[name], PERCENTILES) for name in ("prompt", "response", "total")},
            "fits": {
                str(size): [share(counts[name], size) for name in ("total", "response_tokens")] for size in CONTEXTS
            },
        }


@dataclass(frozen=True)
class Lengths:
    """The data of a record: what :meth:`TokenLengths.to_data` says of its rows.

    Args:
        lengths: of the rows that have tokens.
        before: of all rows, before long ones were made to fit; empty = none were.
        examples: ordinals of two rows without tokens, by reason.
    """

    lengths: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    examples: dict[str, list[int]] = field(default_factory=dict)


def percentiles(counts: Counts, wanted: Sequence[int]) -> list[int]:
    """Return for each percentage the smallest length that at least that share of the rows does not exceed.

    This is numpy's method ``inverted_cdf``; 100 is the longest. Without rows there are none.
    """
    lengths, sums = counts[0], np.cumsum(counts[1])
    if not len(lengths):
        return []
    return [int(lengths[np.searchsorted(sums, -(-int(sums[-1]) * percent // 100))]) for percent in wanted]


def share(counts: Counts, size: int) -> float:
    """Return the share of what is counted that has at most this many tokens; 1 of nothing."""
    lengths, of_each = counts
    everything = int(of_each.sum())
    return int(of_each[lengths <= size].sum()) / everything if everything else 1.0


def _summed(*some: Counts) -> Counts:
    """Return counts, whose lengths may repeat in any order, as one."""
    lengths, counts = np.concatenate(some, axis=1)
    order = np.argsort(lengths, kind="stable")
    lengths, counts = lengths[order], counts[order]
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    return np.stack([lengths[starts], np.add.reduceat(counts, starts)]) if len(starts) else _none()
