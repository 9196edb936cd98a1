"""The rows of a task that may be sampled: filtered and cut as the options and the task's rule say. Pure.

The algorithm is data_io's sampler (docs/format.md section 5); the default profile decides its defects
(docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample.config import SampleConfig
from components.sample.node.plan import narrowest
from pairmill.formats.prefixes import Rule
from pairmill.formats.tokens import INDEX, Ints

NEVER = 2**63 - 1
"""A context that no row has."""
REASONS = ("response_too_short", "over_context", "response_too_short_once_cut")


def by_size(sizes: NDArray[Any], weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """How many sizes (or the sum of their weights) lie in (2^(k-1), 2^k], for each k from 0; int64, shape (64,)."""
    power = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    counts = np.bincount(power, minlength=64) if weights is None else np.bincount(power, weights, minlength=64)
    return counts.astype(np.int64)


@dataclass
class TaskRows:
    """The rows of a task that may be sampled, with what became of the others.

    Arrays are int32 or int64 of shape (rows,); spans point into the task's own ``tokens.npy``.
    """

    name: str
    rule: Rule
    total: int
    """Rows before filtering."""
    length: int
    """Tokens of the task."""
    inst_start: NDArray[Any]
    inst_len: NDArray[Any]
    resp_start: NDArray[Any]
    resp_len: NDArray[Any]
    dropped: dict[str, int]
    truncated: int
    """Rows left whose response was cut."""
    cut_tokens: int
    """Tokens that were cut off them."""
    least_context: int
    """The smallest context with which a row stays whose response is long enough; NEVER if there is none."""
    cuts: NDArray[np.int64]
    """These rows by how many tokens were cut off, as :func:`by_size` counts."""

    def __len__(self) -> int:
        return len(self.inst_len)


def rows_of(name: str, rule: Rule, index: Iterable[Mapping[str, Ints]], config: SampleConfig) -> TaskRows:
    """Filter and truncate the rows of a task, given in pieces of its four index arrays (int64)."""
    kept: dict[str, list[NDArray[Any]]] = {column: [] for column in INDEX}
    dropped = dict.fromkeys(REASONS, 0)
    cuts = np.zeros(64, np.int64)
    total = length = truncated = cut_tokens = 0
    least = NEVER
    for piece in index:
        inst_len, resp_len = piece["inst_len"], piece["resp_len"]
        allowed = config.context_size - np.minimum(inst_len, config.context_size)
        if rule.long_context == "truncate":
            fits, cut = allowed >= 1, np.minimum(resp_len, allowed)
        else:
            fits, cut = resp_len <= allowed, resp_len
        # The reference looks at the length before it cuts, so a response cut to one token passes.
        tested = resp_len if config.profile == "data_io" else cut
        short = resp_len < config.min_resp_length
        cut_short = ~short & fits & (tested < config.min_resp_length)
        keep = fits & ~short & ~cut_short
        for reason, marked in zip(REASONS, (short, ~short & ~fits, cut_short), strict=True):
            dropped[reason] += int(marked.sum())
        total += len(resp_len)
        length += int(inst_len.sum() + resp_len.sum())
        lost = (resp_len - cut)[keep]
        lost = lost[lost > 0]
        truncated += len(lost)
        cut_tokens += int(lost.sum())
        needed = inst_len + (max(1, config.min_resp_length) if rule.long_context == "truncate" else resp_len)
        least = min(least, int(needed[~short].min(initial=NEVER)))
        cuts += by_size(lost)
        for column, values in zip(INDEX, (piece["inst_start"], inst_len, piece["resp_start"], cut), strict=True):
            # All of a task's tokens are not known yet, but a piece knows its own numbers.
            values = values[keep]
            kept[column].append(values.astype(narrowest(int(values.max(initial=0)))))
    columns = {name: np.concatenate(parts) if parts else np.empty(0, np.int32) for name, parts in kept.items()}
    return TaskRows(
        name=name,
        rule=rule,
        total=total,
        length=length,
        **columns,
        dropped={reason: count for reason, count in dropped.items() if count},
        truncated=truncated,
        cut_tokens=cut_tokens,
        least_context=least,
        cuts=cuts,
    )
