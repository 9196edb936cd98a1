"""Lengths of rows in tokens, counted exactly: percentiles, and what fits into a context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99, 100)
CONTEXTS: Final = (2048, 4096, 8192, 16384, 32768)
"""Tokens of a row."""

Counts = dict[int, int]
"""A length, and how many there are of it."""


@dataclass
class TokenLengths:
    """Counts by length.

    Args:
        prompt: rows by the tokens of their prompt.
        response: rows by the tokens of their response.
        total: rows by the tokens of both.
        response_tokens: tokens of responses by the tokens of both.
    """

    prompt: Counts = field(default_factory=dict)
    response: Counts = field(default_factory=dict)
    total: Counts = field(default_factory=dict)
    response_tokens: Counts = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Self:
        """Read what :meth:`to_data` wrote."""
        return cls(**{name: dict(_pairs(text)) for name, text in data.items()})

    def to_data(self) -> dict[str, str]:
        """Return it as a record keeps it: a text for each, since there may be a record for each of 16,000 tasks."""
        return {
            name: " ".join(f"{length}:{count}" for length, count in sorted(counts.items()))
            for name, counts in vars(self).items()
        }

    def add(self, prompt: NDArray[Any], response: NDArray[Any]) -> None:
        """Count rows of these lengths; integers [rows] both."""
        prompt, response = prompt.astype(np.int64), response.astype(np.int64)
        _add(prompt, (self.prompt, None))
        _add(response, (self.response, None))
        _add(prompt + response, (self.total, None), (self.response_tokens, response))

    def join(self, other: TokenLengths) -> None:
        """Add those of other rows."""
        for name, counts in vars(other).items():
            mine: Counts = getattr(self, name)
            for length, count in counts.items():
                mine[length] = mine.get(length, 0) + count

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(self.total.values())

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says: rows, percentiles of each length, and the shares that fit into contexts."""
        return {
            "rows": self.rows,
            "percentiles": {
                name: percentiles(getattr(self, name), PERCENTILES) for name in ("prompt", "response", "total")
            },
            "fits": {str(size): [share(self.total, size), share(self.response_tokens, size)] for size in CONTEXTS},
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
    if not counts:
        return []
    lengths = np.array(sorted(counts), np.int64)
    sums = np.cumsum([counts[length] for length in lengths.tolist()])
    places = [int(np.searchsorted(sums, -(-int(sums[-1]) * percent // 100))) for percent in wanted]
    return [int(lengths[place]) for place in places]


def share(counts: Counts, size: int) -> float:
    """Return the share of what is counted that has at most this many tokens; 1 of nothing."""
    everything = sum(counts.values())
    return sum(count for length, count in counts.items() if length <= size) / everything if everything else 1.0


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for pair in text.split():
        length, _, count = pair.partition(":")
        yield int(length), int(count)


def _add(lengths: NDArray[np.int64], *into: tuple[Counts, NDArray[np.int64] | None]) -> None:
    """Add lengths to counts: each once, or as often as its weight says."""
    values, places = np.unique(lengths, return_inverse=True)
    for counts, weights in into:
        sums = np.bincount(places.reshape(-1), weights, len(values)).astype(np.int64)
        for length, count in zip(values.tolist(), sums.tolist(), strict=True):
            counts[length] = counts.get(length, 0) + count
